"""Looking at machines; what QEMU itself answers is looked at in the tests with a real one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import NodeEnv
from ganeti.hypervisor.kvm import state
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.monitor import Monitor


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


class Answers:
    """A monitor that answers as it is told."""

    def __init__(self, balloon_bytes: int) -> None:
        self._balloon_bytes = balloon_bytes

    def query(self, command: str) -> Mapping[str, object]:
        sizes = {"base-memory": 512 << 20, "plugged-memory": 256 << 20}
        return {"actual": self._balloon_bytes} if command == "query-balloon" else sizes


@pytest.mark.parametrize(("balloon_mib", "size_mib"), [(512, 512), (-16_000_000, 768), (0, 768)])
def test_a_guest_cannot_have_given_back_more_than_it_has(balloon_mib: int, size_mib: int) -> None:
    monitor = cast("Monitor", Answers(balloon_mib << 20))
    assert state.memory_mib(monitor) == size_mib
