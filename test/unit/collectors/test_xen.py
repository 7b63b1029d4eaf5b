"""Tests of ganeti/collectors/xen.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganeti.base.errors import CommandError, GenericError
from ganeti.base.paths import Paths
from ganeti.collectors import instance_status, xen
from ganeti.collectors.cluster_facts import ClusterFacts, InstanceFacts, NodeInstances
from ganeti.collectors.collector import NodeView
from ganeti.collectors.instance_status import ActualState, Found
from ganeti.collectors.xen import XenInstanceLoad, XenInstanceStatus
from ganeti.hypervisor.xen.tool import DomainFiles
from ganeti.objects.model import AdminState
from ganeti.system.process import CommandResult

LIST = """\
Name                                        ID   Mem VCPUs\tState\tTime(s)
Domain-0                                     0  1024     4     r-----     123.4
inst1.example.com                            3   512     1     -b----      10.2
inst2.example.com                            4   512     2     ------       0.0
inst3.example.com                            5   512     2     ---s--       0.5
inst4.example.com                            6   512     2     ---sc-       0.5
"""
UPTIME = """\
Name                                ID Uptime
Domain-0                             0 98 days,  2:27:44
inst1.example.com                    3 20:23:16
inst2.example.com                    4 1 day,  0:00:01
"""
XENTOP = """\
      NAME  STATE   CPU(sec) CPU(%)     MEM(k) MEM(%)  MAXMEM(k) MAXMEM(%) VCPUS NETS
  Domain-0 -----r      12345    0.0    1048576   12.5   no limit       n/a     4    0
inst1.example.com --b---       10{more}    0.0     524288    6.2     524288       6.2     1    1
"""


class Tools:
    """Stands for Xen's tools: what each prints."""

    def __init__(self, **outputs: str) -> None:
        self.outputs = outputs
        self.called: list[str] = []

    def __call__(self, argv: Sequence[str], **_limits: Any) -> CommandResult:
        self.called.append(" ".join(argv))
        word = argv[1] if argv[0] == "xl" else "top"
        if word not in self.outputs:
            raise CommandError(f"cannot run {argv[0]!r}: No such file", tuple(argv), None, "")
        return CommandResult(tuple(argv), 0, self.outputs[word].encode(), b"")


def instance(name: str, admin_state: AdminState = AdminState.UP) -> InstanceFacts:
    return InstanceFacts(name, f"uuid-{name}", admin_state, "xen-pvm", 1.5)


def test_domains_and_what_they_do() -> None:
    assert xen.states(LIST, xen.parse_uptime(UPTIME)) == {
        "inst1.example.com": Found(ActualState.BLOCKED, "20:23:16"),
        "inst2.example.com": Found(ActualState.RUNNING, "1 day,  0:00:01"),
        "inst3.example.com": Found(ActualState.SHUTDOWN),
        "inst4.example.com": Found(ActualState.CRASHED),
    }


def test_lines_that_are_not_understood_are_shown() -> None:
    with pytest.raises(GenericError, match="Xen's list of domains: 'broken line'"):
        xen.states(LIST + "broken line\n", {})
    with pytest.raises(GenericError, match="the output of xentop: 'inst1 --b--- n/a'"):
        xen.parse_xentop("  NAME STATE CPU(sec)\ninst1 --b--- n/a\n")


def test_the_report_on_instances(tmp_path: Path) -> None:
    tools = Tools(list=LIST, uptime=UPTIME)
    known = NodeInstances(
        primary=(
            instance("inst1.example.com"),
            instance("inst2.example.com", AdminState.DOWN),
            instance("inst4.example.com"),
            instance("gone.example.com"),
            msgspec.structs.replace(instance("kvm.example.com"), hypervisor="kvm"),
        ),
        secondary=(instance("inst3.example.com"),),
    )
    view = NodeView(Paths(str(tmp_path)), "n", ClusterFacts(instances=known), tools)
    found: Any = msgspec.to_builtins(XenInstanceStatus().collect(view))
    assert tools.called == ["xl uptime", "xl list"]
    assert found["instances"][0] == {
        "name": "inst1.example.com",
        "uuid": "uuid-inst1.example.com",
        "adminState": "up",
        "actualState": "blocked",
        "uptime": "20:23:16",
        "mtime": 1.5,
        "state_reason": [],
        "status": {"code": 0, "message": ""},
    }
    codes = {one["name"].partition(".")[0]: one["status"]["code"] for one in found["instances"]}
    assert codes == {"inst1": 0, "inst2": 4, "inst4": 4, "gone": 4}
    assert found["status"]["code"] == 4
    assert "inst3.example.com: The instance runs on its secondary" in found["status"]["message"]


def test_what_moves_or_is_being_received_does_not_count(tmp_path: Path) -> None:
    moving = """\
arrives--incoming                            7   512     1     --p---       0.0
leaves--migratedaway                         8   512     1     ---ss-      99.0
(null)                                       9     0     1     --ps-d      99.0
received                                    10   512     1     --p---       0.0
stranger                                    11   512     1     --p---       0.0
"""
    paths = Paths(str(tmp_path))
    files = DomainFiles(paths, "received")
    files.make_directories()
    Path(files.incoming).touch()
    facts = ClusterFacts(instances=NodeInstances((), ()))
    view = NodeView(paths, "n", facts, Tools(list=LIST.partition("inst1")[0] + moving, uptime=""))
    found: Any = msgspec.to_builtins(XenInstanceStatus().collect(view))
    assert found["status"]["message"] == "stranger: This runs here, but is no instance of this node"


def test_the_load_of_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = Tools(top=XENTOP.format(more=""))
    view, collect = NodeView(Paths(), "n", run=tools), XenInstanceLoad().collect
    monkeypatch.setattr(instance_status.clock, "monotonic", lambda: 100.0)
    assert collect(view) == {"inst1.example.com": 0.0}
    tools.outputs["top"] = XENTOP.format(more="5")  # 105 seconds instead of 10
    monkeypatch.setattr(instance_status.clock, "monotonic", lambda: 195.0)
    assert collect(view) == {"inst1.example.com": 1.0}


def test_a_node_without_xen_says_so(tmp_path: Path) -> None:
    view = NodeView(Paths(str(tmp_path)), "n", run=Tools())
    for collector in (XenInstanceStatus(), XenInstanceLoad()):
        with pytest.raises(CommandError, match="cannot run 'x"):
            collector.collect(view)
