"""Balancing as the daemon sees it: the question, the answer, and the moves of a round.  Pure.

Theory of operation.  The search is a program of its own (`ganeti.maintd.search`), since it needs a
CPU for seconds and memory for the whole cluster.  It tells for each node group the moves that it
found, each the best one after those before it, and the scores that they reach.  A group is balanced
if all its moves together gain as much as the threshold.  Then the first ones that share no node are
made; where things are then is looked at again in another round.

Only nodes without an event take part, and an instance whose move failed rests for an hour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from ganeti.maintd.repairs import Care
from ganeti.opcodes.instance import (
    OpInstanceFailover,
    OpInstanceMigrate,
    OpInstanceReplaceDisks,
    ReplaceDisksMode,
)
from ganeti.opcodes.opcode import OpCode

FAILOVER: Final = "f"
MOVES_MAX: Final = 50  # of a group in one search: more are of no use before these are made
SEARCH_S: Final = 6.0  # of a CPU, for all groups together
REST_S: Final = 3600.0


class Question(Struct, frozen=True):
    """What is searched for.

    Attributes:
        balances: whether moves are.
        repairs: whether repairs of instances are.
        busy: names of nodes that take no part, nor do instances with a disk there.
        fixed: names of instances that stay.
        uses_load: whether the CPU load that nodes report counts.
        limit_s: of a CPU; a busy machine takes longer.
        threshold: a group whose first moves gain as much needs no further search.
    """

    balances: bool = True
    repairs: bool = False
    busy: list[str] = []
    fixed: list[str] = []
    uses_load: bool = False
    moves_disks: bool = False
    threshold: float = math.inf
    limit_s: float = SEARCH_S


class Move(Struct, frozen=True):
    """A move of an instance.

    Attributes:
        nodes: that it touches.
        actions: in their order: ``f``, ``r:NODE`` or ``fa:NODE``, as hbal writes them.
        score: of the group after it.
    """

    instance: str
    nodes: list[str]
    actions: list[str]
    is_running: bool
    score: float


class GroupAnswer(Struct, frozen=True):
    """The moves found for a group; ``is_late`` if the search was broken off."""

    group: str
    score: float
    moves: list[Move]
    is_late: bool = False


class Answer(Struct, frozen=True):
    """All groups with remarks about their data, and the next steps for instances."""

    groups: list[GroupAnswer] = []
    remarks: list[str] = []
    cares: list[Care] = []


class Balance(Struct, frozen=True):
    """The moves of a round, and for people why there are no others."""

    moves: tuple[Move, ...] = ()
    remarks: tuple[str, ...] = ()


def choose(answer: Answer, threshold: float) -> Balance:
    """Return the moves that are worth it."""
    moves: list[Move] = []
    remarks = list(answer.remarks)
    for found in answer.groups:
        gain = found.score - found.moves[-1].score if found.moves else 0.0
        if gain >= threshold and found.moves:
            moves += apart(found.moves)
            continue
        what = (
            f"{len(found.moves)} moves gain {gain:.4f}" if found.moves else "no move gains enough"
        )
        late = " as far as the search got" if found.is_late else ""
        remarks.append(
            f"group {found.group} has the score {found.score:.4f}: {what}{late}"
            f" (threshold {threshold:g})"
        )
    return Balance(tuple(moves), tuple(remarks))


def apart(moves: Sequence[Move]) -> Iterator[Move]:
    """Yield the first moves, as long as they share no node: one after it may need one before."""
    used: set[str] = set()
    for move in moves:
        if not used.isdisjoint(move.nodes):
            return
        used.update(move.nodes)
        yield move


def opcodes_of(move: Move) -> tuple[OpCode, ...]:
    """Return the job of a move.  An instance that runs is migrated or stays: nobody stops it."""
    return tuple(_opcode(move, action) for action in move.actions)


def _opcode(move: Move, action: str) -> OpCode:
    kind, _, node = action.partition(":")
    name, target = move.instance, node or None
    if kind == "r":
        mode = ReplaceDisksMode.NEW_SECONDARY
        return OpInstanceReplaceDisks(instance_name=name, mode=mode, remote_node=target)
    if move.is_running:
        return OpInstanceMigrate(instance_name=name, target_node=target)
    return OpInstanceFailover(instance_name=name, target_node=target)
