"""The search for repairs and for moves that balance: a program that the maintenance daemon starts.

    python -m ganeti.maintd.search ROOT < question > answer

It asks LuxiD, and for the load the monitoring daemons, and ends: the memory that a large cluster
takes is given back.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ganeti.allocation import autorepair
from ganeti.allocation.autorepair import Decision, NodeState, Patient
from ganeti.allocation.balancing.search import Done, Ends, Search
from ganeti.allocation.balancing.steps import Limits
from ganeti.allocation.model import Instance, InstanceStatus
from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources import listings, utilisation
from ganeti.allocation.state import ClusterState, make_state
from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.ids import JobId
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.base.text import shown
from ganeti.clients import mond
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs.status import Status
from ganeti.maintd.balance import MOVES_MAX, Answer, GroupAnswer, Move, Question, apart
from ganeti.maintd.repairs import Care
from ganeti.opcodes.registry import encode_opcode
from ganeti.system import clock

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
            # The jobs first: one that ends in between must not be taken for done without effect.
            rows = luxi.query_jobs(None, ["id", "status"]) if question.repairs else []
            snapshot = listings.ask_master(luxi)
        cares = []
        if question.repairs:
            statuses = {JobId(int(job_id)): Status(status) for job_id, status in rows}
            cares = repairs(snapshot, statuses, clock.now(), clock.new_uuid)
        groups, remarks = _balance(snapshot, question) if question.balances else ([], [])
    except GenericError as err:
        sys.exit(err.message)
    sys.stdout.buffer.write(dumps(Answer(groups, remarks, cares)))


def repairs(
    snapshot: Snapshot, statuses: Mapping[JobId, Status], now_s: float, new_uuid: Callable[[], str]
) -> list[Care]:
    """Return the next steps for instances that need one, as harep would take them.

    Args:
        statuses: of all jobs of the queue, older than the snapshot.
    """
    patients, states = autorepair.patients_of(snapshot), autorepair.node_states(snapshot)
    return cares(patients, states, snapshot.tags, statuses, now_s, new_uuid)


def cares(
    patients: Sequence[Patient],
    states: Mapping[str, NodeState],
    cluster_tags: Sequence[str],
    statuses: Mapping[JobId, Status],
    now_s: float,
    new_uuid: Callable[[], str],
) -> list[Care]:
    """Return the next steps for instances; see `repairs`."""
    newest = max(statuses, default=0)
    known: dict[int, Status | None] = {
        job: statuses.get(JobId(job), Status.QUEUED if job > newest else None)
        for job in autorepair.jobs_under_way(patients)
    }
    decisions = autorepair.decide(patients, states, cluster_tags, known, now_s, new_uuid)
    nodes = {each.name: each.nodes for each in patients}
    found = (_care(each, nodes[each.instance]) for each in decisions)
    return [each for each in found if each is not None]


def _care(found: Decision, nodes: Sequence[str]) -> Care | None:
    """Return the next step: a repair begins only in the round after the one before has ended."""
    change, planned = found.settled or found.refused, found.repair
    care = Care(found.instance, list(nodes), text=found.text)
    if change is not None:
        return replace(care, add=list(change.add), remove=list(change.remove))
    if planned is not None:
        which = planned.attempt
        return replace(
            care,
            remove=list(planned.replaced),
            repair=f"{which.kind}:{which.uuid}:{which.time}",
            opcodes=[encode_opcode(op) for op in planned.opcodes],
        )
    return care if found.text else None


def _balance(snapshot: Snapshot, question: Question) -> tuple[list[GroupAnswer], list[str]]:
    remarks: list[str] = []
    if question.uses_load:
        snapshot, remarks = _with_load(snapshot)
    return balance(snapshot, question), remarks


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
    signal.signal(signal.SIGPROF, _ring)
    threshold = question.threshold
    return [_of_group(state, uuid, limits, threshold, share_s) for uuid in state.groups]


def _ring(_signal: int, _frame: object) -> None:
    raise _LateError


def _of_group(
    state: ClusterState, uuid: str, limits: Limits, threshold: float, limit_s: float
) -> GroupAnswer:
    group = state.groups[uuid]
    before = group.exact_score
    moves: list[Move] = []
    is_late = False
    try:
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        for done in Search(state, uuid, limits, _ENDS).steps():
            moves.append(_move(done))
            if before - done.score >= threshold and len(list(apart(moves))) < len(moves):
                break  # a round is full
        signal.setitimer(signal.ITIMER_PROF, 0)
    except _LateError:
        is_late = True
    return GroupAnswer(group.group.name, before, moves, is_late)


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
