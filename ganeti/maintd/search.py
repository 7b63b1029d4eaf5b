"""The search for moves that balance the cluster: a program that the maintenance daemon starts.

    python -m ganeti.maintd.search ROOT < question > answer

It asks LuxiD, and for the load the monitoring daemons, and ends: the memory that a large cluster
takes is given back.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ganeti.allocation.balancing.search import Done, Ends, Search
from ganeti.allocation.balancing.steps import Limits
from ganeti.allocation.model import Instance, InstanceStatus
from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources import listings, utilisation
from ganeti.allocation.state import ClusterState, make_state
from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.base.text import shown
from ganeti.clients import mond
from ganeti.clients.luxi import LuxiClient
from ganeti.maintd.balance import MOVES_MAX, Answer, GroupAnswer, Move, Question

_ENDS: Final = Ends(score_min=1e-9, gain_min=0.01, gain_limit=0.1, count_max=MOVES_MAX)  # hbal's
_LOAD_TARGET: Final = f"/1/report/default/{utilisation.CPU_COLLECTOR}"
_LOAD_BYTES_MAX: Final = 64 << 10
_LOAD_S_MAX: Final = 10.0
# Others are not as they should be, or were shut down from inside and would be started by a move.
_MOVES: Final = frozenset({InstanceStatus.RUNNING, InstanceStatus.ADMIN_DOWN})


class _LateError(Exception):
    """The time of a group is over."""


def main() -> None:
    """Answer the question on the standard input."""
    question = loads_as(Question, sys.stdin.buffer.read())
    try:
        with LuxiClient(Paths(sys.argv[1])) as luxi:
            snapshot = listings.ask_master(luxi)
        remarks: list[str] = []
        if question.uses_load:
            snapshot, remarks = _with_load(snapshot)
        found = balance(snapshot, question)
    except GenericError as err:
        sys.exit(err.message)
    sys.stdout.buffer.write(dumps(Answer(found, remarks)))


def _with_load(snapshot: Snapshot) -> tuple[Snapshot, list[str]]:
    """Return the cluster with the load that its nodes report, if all do."""
    asked = {name: node.address for name, node in snapshot.nodes.items() if not node.is_offline}
    answers = asyncio.run(
        mond.fetch_all(asked, _LOAD_TARGET, body_bytes_max=_LOAD_BYTES_MAX, timeout_s=_LOAD_S_MAX)
    )
    reports = {}
    for name, answer in answers.items():
        if isinstance(answer, bytes):
            try:
                reports[name] = [loads_as(utilisation.Report, answer)]
            except ProtocolError:
                continue  # as one that does not answer
    silent = set(asked) - set(reports)
    if silent:
        return snapshot, [f"the load is left out: it is not known of {shown(silent, 5)}"]
    return utilisation.with_reports(snapshot, reports).snapshot, []


def balance(snapshot: Snapshot, question: Question) -> list[GroupAnswer]:
    """Return the moves for each group; no group takes the time of another."""
    state = make_state(restricted(snapshot, question))
    limits = Limits(moves_disks=question.moves_disks)
    share_s = question.limit_s / max(len(state.groups), 1)
    signal.signal(signal.SIGALRM, _ring)
    return [_of_group(state, uuid, limits, share_s) for uuid in state.groups]


def _ring(_signal: int, _frame: object) -> None:
    raise _LateError


def _of_group(state: ClusterState, uuid: str, limits: Limits, limit_s: float) -> GroupAnswer:
    group = state.groups[uuid]
    moves: list[Move] = []
    is_late = False
    try:
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        for done in Search(state, uuid, limits, _ENDS).steps():
            moves.append(_move(done))
        signal.setitimer(signal.ITIMER_REAL, 0)
    except _LateError:
        is_late = True
    return GroupAnswer(group.group.name, group.exact_score, moves, is_late)


def _move(done: Done) -> Move:
    before = done.step.before
    return Move(
        before.name,
        sorted(done.step.nodes),
        list(done.step.actions),
        before.status is InstanceStatus.RUNNING,
        done.score,
    )


def restricted(snapshot: Snapshot, question: Question) -> Snapshot:
    """Return the cluster with nodes and instances that are not to be touched nailed down.

    What is on a node that is drained or offline stays there: whoever set it so decides about it.
    """
    busy, fixed = set(question.busy), set(question.fixed)
    nodes = {
        name: replace(node, is_usable=node.is_usable and name not in busy)
        for name, node in snapshot.nodes.items()
    }
    usable = {name for name, node in nodes.items() if node.is_usable}
    return replace(snapshot, nodes=nodes, instances=_nailed(snapshot.instances, usable, fixed))


def _nailed(
    instances: Mapping[str, Instance], usable: set[str], fixed: set[str]
) -> dict[str, Instance]:
    def may_move(each: Instance) -> bool:
        is_well = each.status in _MOVES and each.name not in fixed
        return is_well and usable.issuperset(each.nodes)

    return {
        name: each if may_move(each) else replace(each, is_movable=False)
        for name, each in instances.items()
    }


if __name__ == "__main__":
    main()
