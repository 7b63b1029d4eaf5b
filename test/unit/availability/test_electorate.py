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
    losses = {"b": Loss(uuid="u", node="b", proof=Proof.CONFIRMED)}
    losses |= {} if loss is None else {"c": loss}
    found = obstacle(NODES, ["a"], guards, losses)
    assert found == (None if is_enough else Obstacle(["c"], []))


@pytest.mark.parametrize("is_behind", [False, True], ids=["is cut off", "did not hear"])
def test_dead_nodes_count_only_where_nobody_else_counts_by_an_older_list(
    *, is_behind: bool
) -> None:
    """They would vouch for it by that list when they are back."""
    guards = {"a": guard("a"), "b": Guard(boot_id="b.1", nodes=digest_of(("a", "b")))}
    found = obstacle(NODES, ["a", "b"] if is_behind else ["a"], guards, {"c": DEAD})
    assert found == (Obstacle([], ["b"]) if is_behind else Obstacle(["b"], []))
    dead = {**guards, "c": Guard(boot_id="c.1", is_dead=True)}
    if not is_behind:
        closed = {"b": Guard(boot_id="b.1", is_dead=True), "c": Guard(boot_id="c.1", is_dead=True)}
        assert obstacle(NODES, ["a"], closed, {}) is None, "their losses were dealt with"
        assert obstacle(NODES, ["a"], dead, {}) == Obstacle(["b"], [])
    most = {**guards, "b": guard("b")}
    assert obstacle(NODES, ["a", "b"], most, {"c": DEAD}) is None
    assert obstacle(NODES, ["a", "b"], most, {}) is None
