"""Tests of ganeti/collectors/instance_status.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.collectors.cluster_facts import ClusterFacts, InstanceFacts, NodeInstances
from ganeti.collectors.collector import NodeView
from ganeti.collectors.instance_status import ActualState, Found, judge, report_on, uptime_text
from ganeti.collectors.report import StatusCode
from ganeti.objects.model import AdminState

OK, SOON, BAD = StatusCode.OK, StatusCode.TEMPORARILY_BAD, StatusCode.BAD


@pytest.mark.parametrize(
    ("actual", "up", "down"),
    [
        (ActualState.RUNNING, OK, BAD),
        (ActualState.BLOCKED, OK, BAD),
        (ActualState.PAUSED, SOON, BAD),
        (ActualState.SHUTDOWN, SOON, OK),
        (ActualState.CRASHED, BAD, BAD),
        (ActualState.DYING, SOON, OK),
        (ActualState.ABSENT, BAD, OK),
    ],
)
def test_what_is_and_what_is_meant_to_be(
    actual: ActualState, up: StatusCode, down: StatusCode
) -> None:
    assert judge(AdminState.UP, actual).code == up
    for state in (AdminState.DOWN, AdminState.OFFLINE):
        assert judge(state, actual).code == down
        assert bool(judge(state, actual).message) == (down is not OK)


def view_of(root: Path, *instances: InstanceFacts) -> NodeView:
    return NodeView(
        Paths(str(root)), "n", ClusterFacts(instances=NodeInstances(tuple(instances), ()))
    )


def test_the_reason_of_the_node_daemon_is_shown(tmp_path: Path) -> None:
    view = view_of(tmp_path, InstanceFacts("inst1", "u", AdminState.UP, "kvm"))
    directory = Path(view.paths.instance_reason_dir)
    directory.mkdir(parents=True)
    reason = [["gnt:client:gnt-instance", "", 1700000000000000000]]

    def shown() -> Any:
        found: Any = report_on(view, ["kvm"], {"inst1": Found(ActualState.RUNNING)})
        return found["instances"][0]["state_reason"]

    assert shown() == []
    (directory / "inst1").write_bytes(msgspec.json.encode(reason))
    assert shown() == reason
    for broken in (b"[[", b"{}", b"\xff"):
        (directory / "inst1").write_bytes(broken)
        assert shown() == []


def test_what_is_not_known_is_not_reported_as_fine(tmp_path: Path) -> None:
    with pytest.raises(GenericError, match=r"not known which instances .* not been asked"):
        report_on(NodeView(Paths(str(tmp_path)), "n"), ["kvm"], {})


def test_what_does_not_belong_here(tmp_path: Path) -> None:
    found: Any = report_on(view_of(tmp_path), ["kvm"], {"strange": Found(ActualState.RUNNING)})
    assert found["status"].code == StatusCode.BAD
    assert found["status"].message.startswith("strange: This runs here")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0:00:00"),
        (59.9, "0:00:59"),
        (73396, "20:23:16"),
        (86401, "1 day,  0:00:01"),
        (98 * 86400 + 8864, "98 days,  2:27:44"),
    ],
)
def test_uptime_looks_as_in_xens_tools(seconds: float, text: str) -> None:
    assert uptime_text(seconds) == text
