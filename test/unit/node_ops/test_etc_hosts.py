"""Entries in a hosts file."""

import pytest

from ganeti.node_ops.machine.files import with_entry, without_name

NAME = "node2.example.com"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "10.0.0.2\tnode2.example.com node2\n"),
        ("127.0.0.1 localhost\n", "127.0.0.1 localhost\n10.0.0.2\tnode2.example.com node2\n"),
        ("10.0.0.2 other # by hand\n", "10.0.0.2\tnode2.example.com node2 other # by hand\n"),
        ("10.0.0.9 node2.example.com node2\n", "10.0.0.2\tnode2.example.com node2\n"),
        (
            "10.0.0.9 node2 db  # both\n::1 localhost",
            "10.0.0.9\tdb # both\n::1 localhost\n10.0.0.2\tnode2.example.com node2\n",
        ),
    ],
)
def test_adding(before: str, after: str) -> None:
    assert with_entry(before, "10.0.0.2", NAME) == after
    assert with_entry(after, "10.0.0.2", NAME) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("10.0.0.2\tnode2.example.com node2\n", ""),
        ("10.0.0.2 node2 web\n#c\n", "10.0.0.2\tweb\n#c\n"),
        ("10.0.0.3 node20.example.com\n", "10.0.0.3 node20.example.com\n"),
        ("# node2 stood here\n", "# node2 stood here\n"),
    ],
)
def test_removing(before: str, after: str) -> None:
    assert without_name(before, NAME) == after
    assert without_name(after, NAME) == after


def test_a_name_without_a_domain_is_written_once() -> None:
    assert with_entry("", "10.0.0.4", "node4") == "10.0.0.4\tnode4\n"
