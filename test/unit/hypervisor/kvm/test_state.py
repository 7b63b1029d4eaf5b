"""Looking at machines; what QEMU itself answers is looked at in the tests with a real one."""

from __future__ import annotations

import pytest

from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import NodeEnv
from ganeti.hypervisor.kvm import state
from ganeti.hypervisor.kvm.files import MachineFiles


def test_many_that_hang_cost_no_more_time_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call has 60 s, and a dozen machines that hang would each be given 5 s."""
    waits: list[float] = []

    def hang(_files: MachineFiles, timeout_s: float) -> None:
        waits.append(timeout_s)

    monkeypatch.setattr(state.clock, "monotonic", lambda: sum(waits))  # type: ignore[attr-defined]
    monkeypatch.setattr(state, "known_names", lambda _env: [f"i{index}" for index in range(100)])
    monkeypatch.setattr(state, "_look_within", hang)
    assert state.look_at_all(NodeEnv(Paths("/vc/node1"), "node1", "127.0.0.1")) == []
    assert len(waits) == 100
    assert waits[0] == state.INFO_TIMEOUT_S
    assert sum(waits) < 35
