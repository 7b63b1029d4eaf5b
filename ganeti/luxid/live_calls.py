"""Asks nodes for a client that waits for a list: memory, disk space, instances, consoles.

All nodes are asked at once, under one deadline.  A node that let it pass, or failed only after a
long time, is *silent*: from then on it is still asked, but waited for only as long as the others
need and a short grace, so that a dead node costs one list its deadline and not every list.  It
stops being silent by answering; one of the questions given up goes on for that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Protocol

from ganeti.base.errors import GenericError
from ganeti.base.ids import NodeUuid
from ganeti.clients.node_rpc import RpcResult, Target
from ganeti.config.tables import Tables
from ganeti.luxid.tasks import Tasks
from ganeti.protocol.node_rpc import NodeCall
from ganeti.query.live import NodeQuestion, with_answers
from ganeti.query.view import View
from ganeti.system import clock

logger = logging.getLogger(__name__)

DEADLINE_S: Final = 10.0  # people wait for lists; 3.0's limit for these calls is 60 s
GRACE_S: Final = 0.5  # ten times the time that a healthy node needs


class NodeCaller(Protocol):
    """Calls nodes."""

    async def perform(
        self, call: NodeCall, targets: Mapping[Target, Sequence[object]]
    ) -> dict[str, RpcResult[Any]]:
        """Make one call on many nodes at once; returns {node name: result}."""


@dataclass(eq=False, slots=True)
class LiveCalls:
    """Asks nodes the questions of queries.

    Args:
        tasks: carries the questions.
    """

    _rpc: NodeCaller
    _tasks: Tasks
    _: KW_ONLY
    deadline_s: float = DEADLINE_S
    grace_s: float = GRACE_S
    _silent: set[str] = field(default_factory=set)
    _probes: dict[str, asyncio.Task[RpcResult[object]]] = field(default_factory=dict)

    async def add(self, view: View, asked: Sequence[NodeQuestion]) -> View:
        """Return a view with the answers of nodes; nothing is known of one without an answer."""
        answers = await asyncio.gather(*(self._answers(view.config, each) for each in asked))
        for question, answer in zip(asked, answers, strict=True):
            view = with_answers(view, question, answer)
        return view

    async def _answers(self, config: Tables, question: NodeQuestion) -> dict[NodeUuid, object]:
        nodes = {uuid: config.nodes[uuid] for uuid in question.asked}
        targets = {
            Target(node.name, node.primary_ip, offline=node.offline): question.asked[uuid]
            for uuid, node in nodes.items()
        }
        results = await self.ask(question.call, targets) if targets else {}
        return {uuid: _decoded(question, results[node.name]) for uuid, node in nodes.items()}

    async def ask(
        self, call: NodeCall, asked: Mapping[Target, Sequence[object]]
    ) -> dict[str, RpcResult[object]]:
        """Make a call with arguments for each node; returns one result per node name."""
        started_s = clock.monotonic()
        tasks = {
            target: self._tasks.create_task(
                self._call(call, target, args), name=f"{call.name} on {target.name}"
            )
            for target, args in asked.items()
        }
        silent = set(self._silent)
        try:
            await _wait_for(
                (task for target, task in tasks.items() if target.name not in silent),
                self.deadline_s,
            )
            await _wait_for(tasks.values(), started_s + self.grace_s - clock.monotonic())
        finally:
            late = [target for target, task in tasks.items() if not task.done()]
            for target in late:
                self._give_up(target.name, tasks[target])
        if late:
            names = ", ".join(target.name for target in late)
            logger.warning("%s: no answer in time from %s; going on without", call.name, names)
        return {
            target.name: RpcResult(target.name, error="no answer in time")
            if target in late
            else task.result()
            for target, task in tasks.items()
        }

    async def _call(
        self, call: NodeCall, target: Target, args: Sequence[object]
    ) -> RpcResult[object]:
        started_s = clock.monotonic()
        try:
            answers = await self._rpc.perform(call, {target: args})
        except GenericError as err:  # the call cannot be made at all
            return RpcResult(target.name, error=str(err))
        result: RpcResult[object] = answers[target.name]
        if result.error is not None and clock.monotonic() - started_s > self.grace_s:
            self._silent.add(target.name)
        else:
            self._silent.discard(target.name)
        return result

    def _give_up(self, name: str, task: asyncio.Task[RpcResult[object]]) -> None:
        """Wait no longer; a node's first such question goes on, to notice when it is back."""
        self._silent.add(name)
        if name in self._probes:
            task.cancel()
            return
        self._probes[name] = task
        task.add_done_callback(lambda _task: self._probes.pop(name, None))


def _decoded(question: NodeQuestion, result: RpcResult[object]) -> object:
    try:
        return question.decode(result.check(question.call.name))
    except GenericError as err:
        logger.info("%s; going on", err)
        return None


async def _wait_for(tasks: Iterable[asyncio.Task[RpcResult[object]]], timeout_s: float) -> None:
    """Wait until all are done or the time is over."""
    pending = [task for task in tasks if not task.done()]
    if pending and timeout_s > 0:
        await asyncio.wait(pending, timeout=timeout_s)
