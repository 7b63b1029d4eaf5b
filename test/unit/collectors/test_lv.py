"""Tests of ganeti/collectors/lv.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from ganeti.base.errors import CommandError, StorageError
from ganeti.base.paths import Paths
from ganeti.collectors import lv
from ganeti.collectors.cluster_facts import ClusterFacts
from ganeti.collectors.collector import NodeView
from ganeti.system.process import CommandResult

SAID = {
    "lv_uuid": "nhasjL-cnZi-uqLS-WRLj-tkXI-nvCB-n0o2lj",
    "lv_name": "df9ff3f6.disk0_data",
    "lv_attr": "-wi-ao----",
    "lv_major": "-1",
    "lv_minor": "-1",
    "lv_kernel_major": "253",
    "lv_kernel_minor": "0",
    "lv_size": "1073741824",
    "seg_count": "1",
    "lv_tags": "originstname+inst1.example.com,x",
    "lv_modules": "",
    "vg_uuid": "uZgXit-eiRr-vRqe-xpEo-e9nU-mTuR-9nfVIU",
    "vg_name": "xenvg",
    "segtype": "linear",
    "seg_start": "0",
    "seg_start_pe": "0",
    "seg_size": "1073741824",
    "seg_tags": "",
    "seg_pe_ranges": "/dev/sda5:0-255",
    "devices": "/dev/sda5(0)",
}
ROW = {
    "uuid": "nhasjL-cnZi-uqLS-WRLj-tkXI-nvCB-n0o2lj",
    "name": "df9ff3f6.disk0_data",
    "attr": "-wi-ao----",
    "major": -1,
    "minor": -1,
    "kernel_major": 253,
    "kernel_minor": 0,
    "size": 1073741824,
    "seg_count": 1,
    "tags": ["originstname+inst1.example.com", "x"],
    "modules": [],
    "vg_uuid": "uZgXit-eiRr-vRqe-xpEo-e9nU-mTuR-9nfVIU",
    "vg_name": "xenvg",
    "segtype": "linear",
    "seg_start": 0,
    "seg_start_pe": 0,
    "seg_size": 1073741824,
    "seg_tags": [],
    "seg_pe_ranges": "/dev/sda5:0-255",
    "devices": "/dev/sda5(0)",
}
OWNERS = {("xenvg", "df9ff3f6.disk0_data"): "inst1.example.com"}


def report(*rows: dict[str, str]) -> str:
    return json.dumps({"report": [{"lv": list(rows)}]})


def test_a_row_for_each_segment() -> None:
    found = lv.segments(report(SAID, {**SAID, "lv_name": "df9ff3f6.disk1_data"}), OWNERS)
    assert found[0] == {**ROW, "instance": "inst1.example.com"}
    assert (found[1]["name"], found[1]["instance"]) == ("df9ff3f6.disk1_data", None)
    assert lv.segments(report(), OWNERS) == []


@pytest.mark.parametrize(
    "text", ["a;b;c", "", report({**SAID, "lv_size": "1GiB"}), report({"lv_name": "x"})]
)
def test_a_report_that_is_not_understood_is_shown(text: str) -> None:
    with pytest.raises(StorageError, match="cannot understand the output of lvs"):
        lv.segments(text, {})


def test_the_fields_asked_for_are_those_that_are_read() -> None:
    assert lv.COMMAND[-1].removeprefix("--options=").split(",") == list(SAID)


def test_the_report_and_its_failure() -> None:
    results = [CommandResult(lv.COMMAND, 0, report(SAID).encode(), b"WARNING: ignored")]

    def run(argv: Sequence[str], **_limits: Any) -> CommandResult:
        assert tuple(argv) == lv.COMMAND
        return results.pop() if results else CommandResult(lv.COMMAND, 5, b"", b"no such device")

    view = NodeView(Paths(), "n", ClusterFacts(volume_owners=OWNERS), run)
    collect = lv.LogicalVolumes().collect
    assert collect(view) == [{**ROW, "instance": "inst1.example.com"}]
    with pytest.raises(CommandError, match="exit status 5: no such device"):
        collect(view)
