"""Reports of the info commands."""

from __future__ import annotations

from ganeti.cli.run.report import Facts, format_report


def test_nested_facts_are_indented() -> None:
    facts = Facts(
        [
            ("Name", "web1"),
            ("Nodes", Facts([("primary", "node1"), ("secondaries", "")])),
            ("Disks", [Facts([("disk/0", "file, size 1G"), ("mode", "rw")])]),
            ("Tags", []),
            ("Parameters", {"b": 1, "a": None}),
        ]
    )
    assert format_report(facts) == [
        "Name: web1",
        "Nodes:",
        "  primary: node1",
        "  secondaries:",
        "Disks:",
        "  - disk/0: file, size 1G",
        "    mode: rw",
        "Tags:",
        "Parameters:",
        "  a: None",
        "  b: 1",
    ]


def test_several_objects_are_a_list() -> None:
    found = [Facts([("Name", "a"), ("x", 1)]), Facts([("Name", "b")])]
    assert format_report(found) == ["- Name: a", "  x: 1", "- Name: b"]


def test_whole_numbers_have_no_fraction_and_nothing_is_left_empty() -> None:
    facts = Facts([("a", 2.0), ("b", 2.5), ("c", {}), ("d", ""), ("e", True)])
    assert format_report(facts) == ["a: 2", "b: 2.5", "c:", "d:", "e: True"]
