"""Files of gnt-instance batch-create."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.cli.instance.creation import instances_of

GOOD: dict[str, Any] = {
    "instance_name": "web1.example.com",
    "pnode": "node1.example.com",
    "disk_template": "file",
    "os_type": "test",
    "disks": [{"size": "2g"}, {"size": 64}],
}


def test_entries_become_creations() -> None:
    [wire] = instances_of("f", [GOOD])
    assert wire["OP_ID"] == "OP_INSTANCE_CREATE"
    assert wire["mode"] == "create"
    assert wire["disks"] == [{"size": 2048}, {"size": 64}]
    assert wire["nics"] == [{}]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({}, "f: a list of instances is needed"),
        ([], "f: a list of instances is needed"),
        ([GOOD, 3], "f: entry 2: an object"),
        ([{"pnode": "x"}], "f: entry 1: instance_name is missing"),
        ([{**GOOD, "mode": "import"}], "the mode can only be create"),
        ([{**GOOD, "disks": 3}], "disks must be a list"),
        ([{**GOOD, "disks": ["3"]}], "disk 0 must be an object"),
        ([{**GOOD, "disks": [{"size": "3q"}]}], "disk 0: .*3q"),
        ([{**GOOD, "pnode": 3}], r"\(web1.example.com\): .*pnode"),
        ([{**GOOD, "colour": "red"}], "'colour' is unknown"),
    ],
)
def test_what_is_wrong_is_named_with_its_entry(content: object, text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        instances_of("f", content)
