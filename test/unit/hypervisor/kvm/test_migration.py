"""Ports and addresses of migrations."""

from __future__ import annotations

import pytest
from guests.instances import make_instance

from ganeti.hypervisor.interface import MigrationState
from ganeti.hypervisor.kvm.migration import (
    join_target,
    look_from_source,
    migration_port,
    split_target,
)


def test_instances_move_side_by_side() -> None:
    ports = [migration_port(make_instance(network_port=11000 + n)) for n in range(2000)]
    assert ports[0] == 8102
    assert len(set(ports)) == 2000


def test_port_without_a_network_port_comes_from_the_name() -> None:
    ports = {migration_port(make_instance(f"inst{n}", network_port=None)) for n in range(10)}
    assert len(ports) > 5
    assert all(8102 <= port < 10102 for port in ports)


@pytest.mark.parametrize("base", [65535, 65000])
def test_ports_stay_in_their_range(base: int) -> None:
    ports = {
        migration_port(make_instance(network_port=11000 + n, migration_port=base))
        for n in range(2000)
    }
    assert base <= min(ports) <= max(ports) <= 65535


@pytest.mark.parametrize(
    ("target", "split"),
    [
        ("192.0.2.1", ("192.0.2.1", 7)),
        ("192.0.2.1:99", ("192.0.2.1", 99)),
        ("2001:db8::1", ("2001:db8::1", 7)),
        ("[2001:db8::1]:99", ("2001:db8::1", 99)),
        ("[2001:db8::1]", ("2001:db8::1", 7)),
    ],
)
def test_targets(target: str, split: tuple[str, int]) -> None:
    assert split_target(target, 7) == split
    assert split_target(join_target(*split), 7) == split


class Answers:
    """A monitor that knows one answer."""

    def __init__(self, **answer: object) -> None:
        self.answer = answer

    def query(self, _command: str) -> dict[str, object]:
        return self.answer


def test_progress_is_told() -> None:
    ram = {"transferred": 5, "total": 9}
    found = look_from_source(Answers(status="active", ram=ram))  # type: ignore[arg-type]  # only asked once
    assert found.to_wire() == {"status": "active", "transferred_ram": 5, "total_ram": 9}


@pytest.mark.parametrize(("stopped", "pause_ms"), [(False, 3), (True, 1200)])
def test_pause_of_a_stopped_guest_is_the_whole_transfer(stopped: bool, pause_ms: int) -> None:
    answers = Answers(**{"status": "completed", "downtime": 3, "total-time": 1200})
    assert look_from_source(answers, stopped=stopped).downtime_ms == pause_ms  # type: ignore[arg-type]  # same


def test_failure_says_why() -> None:
    answers = Answers(**{"status": "failed", "error-desc": "Connection refused"})
    found = look_from_source(answers)  # type: ignore[arg-type]  # only asked once
    assert (found.status, found.error) == (MigrationState.FAILED, "Connection refused")
    found = look_from_source(Answers())  # type: ignore[arg-type]  # only asked once
    assert found.error == "no migration was begun"
