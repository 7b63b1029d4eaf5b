"""Tests of ganeti/availability/electorate.py: when nodes may come and go."""

from __future__ import annotations

import pytest

from ganeti.availability.electorate import Obstacle, digest_of, obstacle
from ganeti.availability.records import Guard, Loss, Proof

NODES = ("a", "b", "c")
DEAD = Loss(uuid="u", node="c", boot_id="c.1", proof=Proof.WATCHDOG, by="a")


def guard(name: str, boot: int = 1) -> Guard:
    return Guard(boot_id=f"{name}.{boot}", watchdog_s=5.0, nodes=digest_of(NODES))


@pytest.mark.parametrize(
    ("last_boot", "loss", "is_enough"),
    [
        (1, DEAD, True),
        (2, DEAD, False),  # it was back, and is cut off now
        (1, Loss(uuid="u", node="c", boot_id="c.1"), False),
        (1, None, False),
        (None, Loss(uuid="u", node="c", proof=Proof.CONFIRMED), True),  # it was never there
        (2, Loss(uuid="u", node="c", proof=Proof.CONFIRMED), False),  # it was, since
    ],
)
def test_only_the_death_of_its_last_boot_lets_a_silent_node_count(
    last_boot: int | None, loss: Loss | None, *, is_enough: bool
) -> None:
    guards = {"a": guard("a")} | ({} if last_boot is None else {"c": guard("c", last_boot)})
    losses = {} if loss is None else {"c": loss}
    found = obstacle(NODES, ["a"], guards, losses)
    assert found == (None if is_enough else Obstacle(["b", "c"], []))
