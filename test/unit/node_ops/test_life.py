"""Looking at the instances of a node."""

from __future__ import annotations

import pytest
from guests.instances import make_instance

from ganeti.base.paths import Paths
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
