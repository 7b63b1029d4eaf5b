"""Looking at the instances of a node, and stopping them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from guests.instances import make_instance

from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm import state
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.machine import build_machine
from ganeti.netdev import taps
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.instances import life
from ganeti.objects.model import Guest
from ganeti.objects.rpc_instance import RpcInstance


class Silent:
    """A driver whose guests do not answer; keeps how long they were given."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def guest(self, _instance: RpcInstance, wait_s: float) -> Guest:
        self.waits.append(wait_s)
        return Guest()


def test_many_guests_that_are_silent_cost_no_more_time_than_a_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call has 60 s; twenty agents that were not there took all of it, and all guests got lost."""
    driver = Silent()
    monkeypatch.setattr(life.clock, "monotonic", lambda: sum(driver.waits))  # type: ignore[attr-defined]
    monkeypatch.setattr(NodeContext, "hypervisor_of", lambda _context, _instance: driver)
    handler = life.Instances(NodeContext(Paths("/proc/nowhere"), "node1.example.com"))
    wire = make_instance().to_wire()
    request = {
        "instance": wire,
        "node": {"name": "node1", "primary_ip": "192.0.2.1"},
        "hvParams": wire["hvparams"],
        "beParams": wire["beparams"],
    }
    found = handler.instance_guest_info({f"i{index}": request for index in range(200)})
    assert len(found) == len(driver.waits) == 200
    assert sum(driver.waits) < 45


def test_a_guest_that_has_ended_by_itself_leaves_nothing_when_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its address stayed routed to its tap, also after it had been failed over or removed."""
    removed: dict[str, str] = {}
    monkeypatch.setattr(taps, "remove_tap", removed.__setitem__)
    paths, instance = Paths(str(tmp_path)), make_instance()
    os.makedirs(paths.lock_dir)
    files = MachineFiles(paths, instance.name)
    files.make_directories()
    Path(files.pid_file).write_text("4194305\n")  # more than a process can have
    machine = build_machine(instance, [], accelerator="tcg")
    left = state.Runtime(machine=machine, taps=("gnt1",), modes={"gnt1": "routed"})
    state.save_runtime(files, left)
    handler = life.Instances(NodeContext(paths, "node1.example.com"))
    handler.instance_shutdown(instance, 120, [])
    assert removed == {"gnt1": "routed"}
    assert state.known_names(paths) == []
    assert not os.path.exists(files.runtime)
