"""The recorded command lines of Ganeti 3.0.2, played: each difference is one that is meant.

Source: cli_output.json; doc/compatibility.md has the differences with their reasons.
"""

from __future__ import annotations

import pytest
from compat import golden

ALIKE_MIN = 255


@pytest.fixture(scope="module")
def different() -> dict[int, golden.Difference]:
    """The differences, by the number of the command line.  This takes about two minutes."""
    return {each.number: each for each in golden.differences()}


def test_each_difference_has_its_reason(different: dict[int, golden.Difference]) -> None:
    known = golden.named()
    new = [str(each) for number, each in different.items() if number not in known]
    assert not new, "mend them, or give their reasons in doc/compatibility.md:\n" + "\n".join(new)


def test_differences_that_are_gone_are_named_no_more(
    different: dict[int, golden.Difference],
) -> None:
    gone = [f"{number}: {command}" for number, command in golden.named().items()
            if number not in different]  # fmt: skip
    assert not gone, "take them out of the table in doc/compatibility.md"


def test_most_command_lines_are_answered_alike(different: dict[int, golden.Difference]) -> None:
    assert len(golden.recorded()) - len(different) >= ALIKE_MIN


def test_the_table_names_command_lines_of_the_record() -> None:
    commands = [each["command"] for each in golden.recorded()]
    assert golden.named(), "the table of differences was not found"
    for number, command in golden.named().items():
        assert commands[number].replace("|", "\\|") == command


def test_additions_are_left_out_and_nothing_else() -> None:
    lines = ["- Node group: a", "  UUID: u", "  Nodes:", "    - n1", "  vcpu-ratio: 4", "  Tags:"]
    kept = ["- Node group: a", "  vcpu-ratio: 4"]
    assert golden.without_more("gnt-group info a", lines) == kept
    assert golden.without_more("gnt-node info a", lines) == lines
    assert golden.without_more("gnt-os diagnose", ["  Node: u, valid (node1)"]) == [
        "  Node: u, valid"
    ]


def test_only_values_that_must_differ_are_replaced() -> None:
    lines = ["12", "  Watermark: 12", "Size: 12", "a  b", "  node1.example.com:1234:0:5678:Y"]
    assert golden.normalised(lines, {}) == [
        "JOB", "  Watermark: JOB", "Size: 12", "a b", "  node1:SIZE:0:SIZE:Y",
    ]  # fmt: skip
    ratios = ["  vcpu-ratio: 4", "  spindle-ratio: 32", "x"]
    assert golden.with_ratios_in_order(ratios) == [ratios[1], ratios[0], "x"]
