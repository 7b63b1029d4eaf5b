"""Tests of ganeti/collectors/kvm.py, and of the running machines that it asks for."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.waiting import wait_until

from ganeti.base.paths import Paths
from ganeti.collectors import instance_status
from ganeti.collectors.cluster_facts import ClusterFacts, InstanceFacts, NodeInstances
from ganeti.collectors.collector import NodeView
from ganeti.collectors.kvm import KvmInstanceLoad, KvmInstanceStatus
from ganeti.hypervisor.interface import InstanceInfo, InstanceState
from ganeti.hypervisor.kvm import state as state_module
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.objects.model import AdminState

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def view(tmp_path: Path) -> NodeView:
    known = NodeInstances(
        (
            InstanceFacts("runs", "u1", AdminState.UP, "kvm", 1.5),
            InstanceFacts("down", "u2", AdminState.DOWN, "kvm"),
            InstanceFacts("gone", "u3", AdminState.UP, "kvm"),
            InstanceFacts("fake", "u4", AdminState.UP, "fake"),
        ),
        (InstanceFacts("mirror", "u5", AdminState.UP, "kvm"),),
    )
    return NodeView(Paths(str(tmp_path)), "n", ClusterFacts(instances=known))


@pytest.fixture
def start(view: NodeView) -> Iterator[Start]:
    """Start what looks like the QEMU of an instance: it waits until its input ends."""
    started: list[subprocess.Popen[bytes]] = []

    def run(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        files = MachineFiles(view.paths, name)
        files.make_directories()
        words = ["sh", "-c", "read -r line", "qemu", "-pidfile", files.pid_file, *arguments]
        started.append(subprocess.Popen(words, stdin=subprocess.PIPE))
        # The kernel closes the pipe that Popen waits for shortly before it shows the arguments.
        shown = Path(f"/proc/{started[-1].pid}/cmdline")
        wait_until(shown.read_bytes, "the arguments of the process")
        Path(files.pid_file).write_text(f"{started[-1].pid}\n")
        return started[-1]

    yield run
    for child in started:
        child.kill()
        child.communicate()


def report(view: NodeView) -> Any:
    return msgspec.to_builtins(KvmInstanceStatus().collect(view))


def test_a_node_where_nothing_ever_ran(view: NodeView) -> None:
    found = report(view)
    states = {one["name"]: one["actualState"] for one in found["instances"]}
    assert states == {"runs": "absent", "down": "absent", "gone": "absent"}
    assert found["status"]["code"] == 4
    assert KvmInstanceLoad().collect(view) == {}


def test_what_runs_and_what_does_not(view: NodeView, start: Start) -> None:
    start("runs")
    found = report(view)
    one = found["instances"][0]
    assert one.pop("uptime").startswith("0:0")
    assert one == {
        "name": "runs",
        "uuid": "u1",
        "adminState": "up",
        "actualState": "running",
        "mtime": 1.5,
        "state_reason": [],
        "status": {"code": 0, "message": ""},
    }
    codes = {one["name"]: one["status"]["code"] for one in found["instances"]}
    assert codes == {"runs": 0, "down": 0, "gone": 4}


def test_what_runs_where_it_should_not(view: NodeView, start: Start) -> None:
    start("mirror")
    start("down")
    message = report(view)["status"]["message"]
    assert "mirror: The instance runs on its secondary node" in message
    assert "down: The instance runs, but is not meant to" in message


def test_what_is_being_received_does_not_count(view: NodeView, start: Start) -> None:
    start("mirror")
    Path(MachineFiles(view.paths, "mirror").incoming).touch()
    assert "mirror" not in report(view)["status"]["message"]


def test_a_stopped_process_and_one_that_has_gone(view: NodeView, start: Start) -> None:
    child = start("runs")
    os.kill(child.pid, 19)
    os.waitpid(child.pid, os.WUNTRACED)
    assert report(view)["instances"][0]["actualState"] == "paused"
    child.kill()
    child.wait()
    assert report(view)["instances"][0]["actualState"] == "absent"


def test_a_number_that_went_to_another_process(view: NodeView, start: Start) -> None:
    start("runs")
    Path(MachineFiles(view.paths, "gone").pid_file).write_text(str(os.getpid()))
    states = {one["name"]: one["actualState"] for one in report(view)["instances"]}
    assert states["gone"] == "absent"


@pytest.mark.parametrize(
    ("state", "actual"),
    [(InstanceState.SHUTDOWN, "shutdown"), (InstanceState.RUNNING, "running"), (None, "running")],
)
def test_a_qemu_that_outlives_its_guest_is_asked(
    view: NodeView,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    state: InstanceState | None,
    actual: str,
) -> None:
    asked: list[str] = []

    def look(files: MachineFiles) -> InstanceInfo | None:
        asked.append(files.name)
        return None if state is None else InstanceInfo(files.name, 1, 1, state, 0.0)

    monkeypatch.setattr(state_module, "look", look)
    start("runs", "-no-shutdown")
    start("down")
    assert report(view)["instances"][0]["actualState"] == actual
    assert asked == ["runs"]


@pytest.mark.shows("maintd/harep/load-data")
def test_the_load_of_instances(
    view: NodeView, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start("runs")
    collect = KvmInstanceLoad().collect
    monkeypatch.setattr(instance_status.clock, "monotonic", lambda: 10.0)
    assert collect(view) == {"runs": 0.0}
    read = state_module.process_facts.read
    monkeypatch.setattr(
        state_module.process_facts, "read", lambda pid: dataclasses.replace(read(pid), cpu_s=400.0)
    )
    monkeypatch.setattr(instance_status.clock, "monotonic", lambda: 410.0)
    found: Any = collect(view)
    assert found == {"runs": pytest.approx(1.0, abs=0.1)}
