"""Sets dead nodes offline and starts their instances elsewhere, where high availability is on.

A turn reads what etcd has of losses, then the jobs, then the configuration, so that a job that was
seen to have ended has left its mark there.  It acts only while this node holds the master's lease,
its key in etcd is this node's, and nobody has paused it all.  A daemon that has just started waits
until a request of the one before it must have been carried out, or was lost.

Each turn asks etcd, and WConfD for the serial number of the configuration.  All else is asked when
it is time for a look (`ganeti.maintd.losses.Pace`): at once for another loss, or while jobs run,
and ever later where nothing can be done.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

import msgspec

from ganeti.availability.inventory import without_copy
from ganeti.availability.keeper import is_dead
from ganeti.availability.records import (
    ACTING,
    GUARDS,
    LOSSES,
    MASTER_KEY,
    NODES,
    OUTDATED,
    PAUSE_KEY,
    Guard,
    Loss,
    Mastership,
    Outdated,
    Pause,
    Presence,
)
from ganeti.availability.restarts import Guest, Limits, Restart
from ganeti.base.errors import GenericError
from ganeti.base.ids import JobId
from ganeti.base.json import dumps
from ganeti.clients.async_services import AsyncLuxiClient, AsyncWConfClient
from ganeti.clients.etcd import Delete, EtcdClient, Put, Snapshot, Unchanged
from ganeti.daemon.context import DaemonContext
from ganeti.maintd.acting import SETTLE_S
from ganeti.maintd.incidents import NodeFacts
from ganeti.maintd.losses import (
    Decision,
    LossJob,
    Pace,
    Scene,
    decide,
    event_of,
    next_rest_s,
    nodes_to_ask,
)
from ganeti.maintd.lost_guests import StrickenCluster
from ganeti.maintd.rounds import Step
from ganeti.maintd.service import StatusService
from ganeti.opcodes.instance import OpInstanceFailover
from ganeti.opcodes.node import OpNodeSetParams
from ganeti.protocol.maintenance.stored import RepairStatus
from ganeti.store import availability, lease
from ganeti.system import clock

logger = logging.getLogger(__name__)

TURN_S: Final = 1.0
IDLE_TURN_S: Final = 2.0
REST_S: Final = 60.0  # after a job that failed
TIDY_S: Final = 60.0
KNOWN_S: Final = 5.0  # after so long all agents know that a node is offline


class Cluster(Protocol):
    """The cluster as `ganeti.maintd.lost_guests` has it; everything raises GenericError."""

    async def serial(self) -> int:
        """Return the serial number of the configuration."""

    async def queue(self, uuids: Collection[str]) -> tuple[list[LossJob], set[str]]:
        """Return the jobs of these losses, and the instances that unfinished jobs name."""

    async def nodes(self) -> Mapping[str, NodeFacts]:
        """Return all nodes by name."""

    async def guests(
        self, names: Collection[str], outdated: Collection[str], busy: Collection[str]
    ) -> list[Guest]:
        """Return the instances that should run on these nodes.

        Args:
            outdated: copies that nobody is to use, as ``NODE/PORT``.
            busy: instances that jobs act on.
        """

    async def copies(self) -> dict[int, set[str]]:
        """Return {port: the nodes with the copies of that disk}."""

    async def free_memory(self, names: Collection[str]) -> dict[str, int]:
        """Return MiB on each of these nodes that answers and may get instances."""

    async def submit(self, steps: Sequence[Step]) -> list[JobId | str]:
        """Submit jobs; returns ids, or why one was refused."""


class Restarter:
    """Acts on losses, a turn at a time.

    Attributes:
        losses: those with a proof, by node.
        decision: what was decided last.
    """

    def __init__(self, own: str, cluster: Cluster, etcd: EtcdClient, limits: Limits) -> None:
        self.losses: Mapping[str, Loss] = {}
        self.decision = Decision()
        self._own, self._cluster, self._etcd, self._limits = own, cluster, etcd, limits
        self._unsure_s = clock.monotonic()
        self._failed_s: dict[JobId, float] = {}
        self._offline_s: dict[str, float] = {}
        self._jobs: Sequence[LossJob] = ()
        self._guests: Sequence[Guest] = ()
        self._pace = Pace()
        self._tidied_s = -math.inf

    def go_on_with(self, etcd: EtcdClient, limits: Limits) -> None:
        """Take up other settings.  It knows the jobs that it submitted, so it waits for none."""
        self._etcd, self._limits = etcd, limits
        self._pace = Pace()

    async def turn(self, *, holds_lease: bool) -> None:
        """Do what is to be done now.

        Raises:
            GenericError: something does not answer; the next turn decides anew.
        """
        shelf = await self._etcd.read()
        if holds_lease and clock.monotonic() >= self._tidied_s + TIDY_S:
            await self._tidy(shelf)
        losses = shelf.below(LOSSES, Loss)
        self.losses = {name: loss for name, loss in losses.items() if loss.proof is not None}
        if not self.losses:
            self.decision, self._pace = Decision(), Pace()
            return
        if why := self._why_not(shelf, holds_lease=holds_lease):
            waits = dict.fromkeys(self.losses, why)
            self._pace = Pace()
            self._decided(Decision(waits=waits))
            return
        known = self.losses, shelf.below(ACTING, Mastership)
        others = _boots(shelf), _outdated(shelf), await self._cluster.serial()
        now_s = clock.monotonic()
        if self._pace.is_due(known, others, now_s):
            last, self._pace = self._pace, Pace()  # after an error it begins anew
            await self._look(shelf, last, Pace(known, others, now_s))

    async def _tidy(self, shelf: Snapshot) -> None:
        """Forget that copies lack writes which are there no more: no node would ever do so."""
        records, holder = shelf.below(OUTDATED, Outdated), shelf.one(MASTER_KEY, Mastership)
        if not records or holder is None or holder.node != self._own:
            return
        self._tidied_s = clock.monotonic()
        for name in without_copy(records, await self._cluster.copies(), clock.now()):
            keys = (MASTER_KEY, OUTDATED + name)
            unchanged = [Unchanged(key, shelf.revision_of(key)) for key in keys]
            if await self._etcd.change(unchanged, Delete(OUTDATED + name)):
                logger.info("%s has no copy any more that could lack writes", name)

    async def _look(self, shelf: Snapshot, last: Pace, found: Pace) -> None:
        """Decide, and do what is to be done.

        Args:
            last: the pace until now.
            found: the one that begins with this look.
        """
        scene, before = await self._scene(shelf), self.decision
        decision = decide(scene, self._limits)
        await self._carry_out(shelf, decision)
        self._decided(decision)
        is_changing = found.others != last.others
        rest_s = next_rest_s(last.rest_s, scene, before, decision, is_changing=is_changing)
        ends_s = [
            *(when_s + REST_S for when_s in self._failed_s.values()),
            *(when_s + KNOWN_S for when_s in self._offline_s.values()),
        ]
        until_s = min((each for each in ends_s if each >= found.looked_s), default=math.inf)
        self._pace = replace(found, rest_s=rest_s, until_s=until_s)

    def _decided(self, decision: Decision) -> None:
        _log_news(self.decision, decision)
        self.decision = decision

    def told(self) -> list[dict[str, object]]:
        """Return what ``/1/status`` says of losses: the fields that events of nodes have."""
        return [
            {
                "id": loss.uuid,
                "node": name,
                "original": {"proof": loss.proof, "by": loss.by, "since": loss.since},
                "repair-status": RepairStatus.PENDING,
                "jobs": [job.job_id for job in self._jobs if job.uuid == loss.uuid],
                "tag": "",
                "node-name": name,
                "action": "restart",
                "why": self.decision.waits.get(name),
                "stuck": [
                    f"{guest.name}: {self.decision.left[guest.name]}"
                    for guest in self._guests
                    if guest.node == name and guest.name in self.decision.left
                ],
            }
            for name, loss in self.losses.items()
        ]

    def _why_not(self, shelf: Snapshot, *, holds_lease: bool) -> str:
        holder, pause = shelf.one(MASTER_KEY, Mastership), shelf.one(PAUSE_KEY, Pause)
        if pause is not None and pause.until > clock.now():
            return f"high availability is paused by {pause.by}: {pause.why}"
        if not holds_lease or holder is None or holder.node != self._own:
            return f"{self._own} does not hold the lease of the master"
        if clock.monotonic() < self._unsure_s + SETTLE_S:
            return "jobs that were submitted before may still arrive"
        return ""

    async def _scene(self, shelf: Snapshot) -> Scene:
        uuids = {loss.uuid for loss in self.losses.values()}
        self._jobs, busy = await self._cluster.queue(uuids)
        now_s = clock.monotonic()
        for job in self._jobs:
            if job.is_bad:
                self._failed_s.setdefault(job.job_id, now_s)
        nodes = await self._cluster.nodes()
        lost = [name for name in self.losses if name in nodes]
        for name in self.losses:
            if name in lost and nodes[name].is_offline:
                self._offline_s.setdefault(name, now_s)
            else:
                self._offline_s.pop(name, None)
        self._guests = await self._cluster.guests(lost, _outdated(shelf), busy)
        scene = Scene(
            own=self._own,
            losses=self.losses,
            acting=shelf.below(ACTING, Mastership),
            present=_boots(shelf),
            nodes=nodes,
            guests=self._guests,
            jobs=self._jobs,
            resting=[job for job, when_s in self._failed_s.items() if now_s < when_s + REST_S],
            settled=[name for name, when_s in self._offline_s.items() if now_s > when_s + KNOWN_S],
        )
        asked = nodes_to_ask(scene)
        return replace(scene, free=await self._cluster.free_memory(asked)) if asked else scene

    async def _carry_out(self, shelf: Snapshot, decision: Decision) -> None:
        steps = [
            Step(
                (OpNodeSetParams(node_name=name, offline=True, auto_promote=True),),
                event_of(self.losses[name], name),
            )
            for name in decision.goes_offline
        ]
        steps += map(self._restart, decision.restarts)
        if steps:
            self._unsure_s, sure_s = clock.monotonic(), self._unsure_s
            answers = await self._cluster.submit(steps)
            self._unsure_s = sure_s
            decision.is_refused = all(isinstance(answer, str) for answer in answers)
            names = [*decision.goes_offline, *(each.guest.name for each in decision.restarts)]
            for name, step, answer in zip(names, steps, answers, strict=True):
                if not isinstance(answer, str):
                    logger.warning("%s: job %s, for %s", name, answer, step.event)
                    continue
                told = decision.left if step.instance else decision.waits
                told[name] = f"its job is refused: {answer}"
        for name in decision.over:
            await self._close(shelf, name)

    def _restart(self, restart: Restart) -> Step:
        guest = restart.guest
        opcode = OpInstanceFailover(
            instance_name=guest.name,
            ignore_consistency=True,  # nobody can ask the dead node; what it lacks is in etcd
            ignore_ipolicy=True,
            target_node=restart.node if guest.is_shared else None,
        )
        return Step((opcode,), event_of(self.losses[guest.node], restart.node), instance=guest.name)

    async def _close(self, shelf: Snapshot, name: str) -> None:
        """Forget a loss, and that jobs of a master may run there, but not that it was a death."""
        loss, guard = self.losses[name], shelf.one(GUARDS + name, Guard)
        keys = [MASTER_KEY, LOSSES + name, ACTING + name, GUARDS + name]
        acting = shelf.one(ACTING + name, Mastership)
        changes: list[Put | Delete] = [Delete(LOSSES + name)]
        if acting is not None and is_dead(loss, acting.boot_id):
            changes.append(Delete(ACTING + name))
        if guard is not None and is_dead(loss, guard.boot_id):
            dead = msgspec.structs.replace(guard, is_dead=True)
            changes.append(Put(GUARDS + name, dumps(dead.to_wire())))
        unchanged = [Unchanged(key, shelf.revision_of(key)) for key in keys]
        if await self._etcd.change(unchanged, *changes):
            logger.info("The loss of node %s is dealt with", name)


async def run(
    context: DaemonContext, luxi: AsyncLuxiClient, wconfd: AsyncWConfClient, service: StatusService
) -> None:
    """Act on losses until high availability is switched off.

    Raises:
        ConfigurationError: its settings cannot be read.
    """
    paths = context.paths
    restarter: Restarter | None = None
    try:
        while (settings := availability.read(paths)) is not None:
            async with EtcdClient.of(settings, settings.timing.command_s) as etcd:
                if restarter is None:
                    cluster = StrickenCluster(paths, luxi, wconfd)
                    restarter = Restarter(context.hostname, cluster, etcd, settings.limits)
                    service.losses = restarter.told
                restarter.go_on_with(etcd, settings.limits)
                await _act(context, restarter, settings, service)
    finally:
        service.losses = list


async def _act(
    context: DaemonContext,
    restarter: Restarter,
    settings: availability.Settings,
    service: StatusService,
) -> None:
    """Act on losses until the settings change."""
    paths, said = context.paths, ""
    while availability.read(paths) == settings:
        try:
            await restarter.turn(holds_lease=lease.is_held(paths))
            said = ""
        except GenericError as err:
            if err.message != said:
                logger.warning("Losses are not looked at: %s", err.message)
            said = err.message
        service.publish()
        await asyncio.sleep(TURN_S if restarter.losses else IDLE_TURN_S)


def _boots(shelf: Snapshot) -> dict[str, str]:
    """Return {node: boot that etcd has of it}."""
    return {name: each.boot_id for name, each in shelf.below(NODES, Presence).items()}


def _outdated(shelf: Snapshot) -> list[str]:
    """Return the copies that nobody is to use, as ``NODE/PORT``."""
    return [key.removeprefix(OUTDATED) for key in shelf.entries if key.startswith(OUTDATED)]


def _log_news(before: Decision, after: Decision) -> None:
    """Say once why something waits."""
    for old, new in ((before.waits, after.waits), (before.left, after.left)):
        for name, why in new.items():
            if old.get(name) != why:
                logger.warning("%s waits: %s", name, why)
