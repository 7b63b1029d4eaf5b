"""The daemon's work: takes reports, notes events, and has the jobs of a round submitted.

Theory of operation.  Everything that must outlive this process is in the configuration.  A round
is submitted in this order: the list of the last round's jobs is emptied and the events concerned
become pending (the intent), the jobs are submitted, all at once, and their numbers are noted, in
the list first.  Each job carries the UUID of its event in its reason.  So whoever begins anew does
not know whether there are jobs, and looks for them by their reasons, once the time is over that a
request under way may take; until then no event is forgotten.  An intent without jobs is taken
back: the event is noted again, and forgotten if its node reports something else.  If the intent is
so old that such jobs may have been archived, the event has failed: nobody knows what was done.

LuxiD may refuse jobs: its queue is drained or full, or a filter rejects them.  Such an answer is
known, so an intent without jobs is taken back at once.  An event all of whose jobs were refused
rests before they are submitted again, longer each time.  No intent is written for that, so a try
that is refused again writes nothing; whoever begins anew looks by the reasons anyway.

Moves that balance the cluster and repairs of instances have no event: whoever begins anew lets the
time of such a request pass, waits for those that run, which their reasons tell, and sets the tags
that tell of repairs, unless that was done.  So it is when maintenance is switched on again: what it
was about was forgotten, and its jobs may still run.

The state in memory is only what reports tell, and when the cluster was last balanced.  An error
ends a turn; the next one reads all again.  A time to come is the mark of a clock that was wrong, as
before it was set when the machine booted, and is not waited for.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from msgspec.structs import replace

from ganeti.base.errors import GenericError
from ganeti.base.ids import JobId
from ganeti.maintd.balance import REST_S, Answer, Question, choose
from ganeti.maintd.health import Health, heard
from ganeti.maintd.incidents import (
    JobFacts,
    NodeFacts,
    adopt,
    follow,
    is_active,
    is_intent,
    look,
    taken_back,
    with_jobs,
)
from ganeti.maintd.repairs import (
    WORD,
    Care,
    Work,
    outdated,
    pending_tag,
    repairs_in,
    retagging,
    tells_of,
)
from ganeti.maintd.rounds import BALANCING, InstanceFacts, Round, Situation, Step, Waits, plan_round
from ganeti.opcodes.summary import summary
from ganeti.opcodes.tags import TagsChange
from ganeti.protocol.maintenance.diagnosis import Diagnosis, Unknown
from ganeti.protocol.maintenance.stored import ROUND_DELAY_S, Incident, Maintenance, RepairStatus

logger = logging.getLogger(__name__)

# A request that was under way when its sender died is carried out within seconds, or never.
SETTLE_S: Final = 10.0
_GONE: Final = JobFacts(None)
ARCHIVED_S: Final = 3600.0  # the watcher archives jobs that ended six hours ago
REFUSED_S: Final = 4.0  # the first rest of an event whose jobs were refused: two looks


@dataclass(frozen=True, slots=True)
class Refusal:
    """All jobs of an event were refused.

    Attributes:
        why: for people.
        until_s: nothing is submitted for the event before, a rest of so many seconds (`rest_s`).
    """

    why: str
    until_s: float
    rest_s: float


class Cluster(Protocol):
    """The cluster as the daemon sees and changes it; everything raises GenericError."""

    async def maintenance(self) -> Maintenance | None:
        """Return the stored state; None while maintenance is off."""

    async def nodes(self) -> Mapping[str, NodeFacts]:
        """Return all nodes by name."""

    async def instances(self, nodes: Collection[NodeFacts]) -> Sequence[InstanceFacts]:
        """Return the instances that have one of the nodes as primary or secondary node."""

    async def put(self, incident: Incident) -> None:
        """Store an incident, unless it was changed since it was read."""

    async def forget(self, uuid: str) -> None:
        """Remove an incident."""

    async def clear_jobs(self) -> None:
        """Empty the list of the last round's jobs."""

    async def append_jobs(self, job_ids: Sequence[JobId]) -> None:
        """Add to that list."""

    async def add_evacuated(self, names: Sequence[str]) -> None:
        """Note instances that are moved away."""

    async def remove_evacuated(self, name: str) -> None:
        """Forget one of them."""

    async def submit(self, steps: Sequence[Step]) -> list[JobId | str]:
        """Submit jobs, each with its event in its reason; returns ids, or why one was refused."""

    async def search(self, question: Question) -> Answer:
        """Search for repairs of instances and for moves that balance the cluster."""

    async def tags(self, instance: str) -> Sequence[str] | None:
        """Return the tags of an instance; None if it is gone."""

    async def jobs(self, job_ids: Collection[JobId]) -> Mapping[JobId, JobFacts]:
        """Return those of the jobs that are still there."""

    async def submitted(self) -> Mapping[str, list[Work]]:
        """Return the work in the queue by the event (of a `Step`) that its reason names."""


class Worker:
    """Does the work, a turn at a time.

    Attributes:
        state: the stored state as last read; None while maintenance is off.
        healths: of the nodes, by name.
        waits: why nothing is done about events, by their UUIDs, or by way of `BALANCING`.
        round_s: when the last round began; None before the first one.
        lost: returns the nodes whose instances high availability starts elsewhere.
    """

    def __init__(
        self, cluster: Cluster, now: Callable[[], float], new_uuid: Callable[[], str]
    ) -> None:
        self.state: Maintenance | None = None
        self.nodes: Mapping[str, NodeFacts] = {}
        self.healths: dict[str, Health] = {}
        self.waits: Mapping[str, Waits] = {}
        self.rounds = 0
        self.round_s: float | None = None
        self.lost: Callable[[], Collection[str]] = tuple
        self._cluster = cluster
        self._now = now
        self._new_uuid = new_uuid
        self._unsure_s: float | None = now()
        self._searched_s = -math.inf
        self._remarks = Answer()
        self._moving: dict[JobId, str] = {}
        self._rests: dict[str, float] = {}
        self._refusals: dict[str, Refusal] = {}

    async def read(self) -> Maintenance | None:
        """Read the state again."""
        before, self.state = self.state, await self._cluster.maintenance()
        if self.state is None or (before is not None and before.ctime != self.state.ctime):
            self._unsure_s = self._now()  # its jobs go on, and nobody remembers them
        if self.state is None:
            self.healths, self.waits = {}, {}
        else:
            self.nodes = await self._cluster.nodes()
        return self.state

    async def hear(self, reports: Mapping[str, Diagnosis | Unknown]) -> None:
        """Take reports of nodes: note new events, and forget those that are over."""
        state = await self.read()
        if state is None:
            return
        before, now_s = self.healths, self._now()
        self.healths = {
            name: heard(before.get(name, Health()), report, now_s)
            for name, report in reports.items()
        }
        _log_unknown(before, self.healths)
        updates = look(state.incidents, self.nodes, self.healths, self._new_uuid)
        # While it is not known whether a job was submitted for an event, it has to be there.
        # Others make room first: there is a limit to the events that are kept.
        for uuid in updates.forgotten if self._unsure_s is None else ():
            await self._cluster.forget(uuid)
            logger.info("Incident %s is over", uuid)
        for incident in updates.stored:
            await self._cluster.put(incident)
            logger.info("Node %s asks for %s: %s", incident.node, incident.action, incident.uuid)
        await self.read()

    async def act(self) -> None:
        """Begin a round if there is work and the last one is over."""
        state = await self.read()
        if state is None or not await self._is_sure(state):
            return
        state = await self.read()
        if state is None:
            return
        of_incidents = {job_id for each in state.incidents for job_id in each.jobs}
        jobs = await self._cluster.jobs(of_incidents | set(state.jobs) | set(self._moving))
        self._note_rests(jobs)
        changed = follow(state.incidents, self.nodes, jobs)
        for incident in changed:
            await self._cluster.put(incident)
            logger.info("Incident %s is %s", incident.uuid, incident.repair_status)
        if any(job_id in jobs and jobs[job_id].is_running for job_id in state.jobs):
            return
        found = await self._search(state)
        state = await self.read()
        if state is not None:
            await self._begin(state, jobs, found)

    async def _is_sure(self, state: Maintenance) -> bool:
        """Find jobs that were submitted and not noted; False while there may be more."""
        if self._unsure_s is None:
            return True
        may_be_untold = (
            state.auto_repair
            or (state.balance and not state.jobs)
            or any(map(_may_have_jobs, state.incidents))
        )
        self._unsure_s = min(self._unsure_s, self._now())
        if may_be_untold and self._now() - self._unsure_s < SETTLE_S:
            return False
        submitted = await self._cluster.submitted()
        await self._await(state, submitted)
        jobs = {event: list(dict(work)) for event, work in submitted.items()}
        found = adopt(state.incidents, jobs)
        for incident in found:
            logger.info("Jobs of incident %s: %s", incident.uuid, incident.jobs)
            await self._cluster.append_jobs(incident.jobs)
            await self._cluster.put(incident)
        listed = [*state.jobs, *(job_id for each in found for job_id in each.jobs)]
        adopted = {each.uuid for each in found}
        await self._undo([each for each in state.incidents if each.uuid not in adopted], listed)
        if state.auto_repair:
            await self._tell(submitted)
        self._unsure_s = None
        return True

    async def _await(self, state: Maintenance, submitted: Mapping[str, Sequence[Work]]) -> None:
        """Let jobs that still run, and are of no known event, belong to the last round."""
        known = {each.uuid for each in state.incidents}
        others = [work for event, work in submitted.items() if event not in known]
        job_ids = {job_id for work in others for job_id, _ in work}
        running = [
            job_id for job_id, job in (await self._cluster.jobs(job_ids)).items() if job.is_running
        ]
        if running:
            logger.info("Jobs of moves, repairs and former events still run: %s", running)
            await self._cluster.append_jobs(running)

    async def _tell(self, submitted: Mapping[str, Sequence[Work]]) -> None:
        """Set the tags of repairs whose sender did not live to do so."""
        steps = []
        for found in repairs_in(submitted):
            tags = None if found.is_told else await self._cluster.tags(found.instance)
            if tags is not None and not tells_of(tags, found.repair):
                old = outdated(tags, found.repair)
                steps.append(_telling(found.instance, found.repair, found.jobs, old))
        await self._submit_telling(steps)

    async def _submit_telling(self, steps: Sequence[Step]) -> None:
        if steps:
            answers = await self._cluster.submit(steps)
            await self._note(list(zip(steps, answers, strict=True)))

    async def _undo(self, incidents: Sequence[Incident], listed: Sequence[JobId]) -> None:
        """Take intents back that no job was found for; old ones have failed.

        Events with jobs go on from their nodes as these are: they may have waited for days, and
        have had no part in the round that was cut off.

        Args:
            listed: the jobs of the last round; none where the intent of one stands.
        """
        for incident in filter(is_intent, incidents):
            if self._now() - incident.mtime > ARCHIVED_S:
                await self._give_up(incident)
                continue
            await self._cluster.put(taken_back(incident))
            logger.info("Incident %s: no job was submitted for it", incident.uuid)
        begun = filter(_is_begun, incidents)
        if not listed and (known := sorted({job_id for each in begun for job_id in each.jobs})):
            await self._cluster.append_jobs(known)

    async def _give_up(self, intent: Incident) -> None:
        """Nobody can tell any more whether jobs were submitted: in doubt nothing is done."""
        logger.error("Incident %s: its jobs cannot be found; it has failed", intent.uuid)
        await self._cluster.put(replace(intent, repair_status=RepairStatus.FAILED))

    async def _begin(
        self, state: Maintenance, jobs: Mapping[JobId, JobFacts], found: Answer
    ) -> None:
        """Plan a round and submit its jobs."""
        await self._tidy(state)
        with_event = {each.node for each in state.incidents if is_active(each)}
        nodes = [self.nodes[name] for name in sorted(with_event) if name in self.nodes]
        instances = await self._cluster.instances(nodes) if nodes else ()
        balance = choose(found, state.balance_threshold)
        planned = plan_round(
            Situation(
                state.incidents,
                self.nodes,
                instances,
                self.healths,
                jobs,
                balance,
                found.cares,
                self.lost(),
            )
        )
        self._refusals = {
            each.uuid: self._refusals[each.uuid]
            for each in state.incidents
            if each.uuid in self._refusals
        }
        self._explain(planned)
        now_s = self._now()
        resting = {
            uuid for uuid, each in self._refusals.items() if 0 < each.until_s - now_s <= each.rest_s
        }
        steps = tuple(step for step in planned.steps if step.event not in resting)
        if steps:
            await self._submit(state, Round(steps, planned.waits))
            self._explain(planned)

    def _explain(self, planned: Round) -> None:
        """Say once why nothing is done about events: because of the plan, or of refusals."""
        waits = dict(planned.waits)
        for event in {step.event for step in planned.steps} & self._refusals.keys():
            other = waits.get(event, Waits(event, ""))
            whys = filter(None, (other.why, self._refusals[event].why))
            waits[event] = Waits(event, "; ".join(whys), other.stuck)
        _log_waits(self.waits, waits, self._refusals)
        self.waits = waits

    async def _search(self, state: Maintenance) -> Answer:
        """Return repairs and moves, if it is time; else only why there were none."""
        now_s = self._now()
        if not (state.balance or state.auto_repair):
            self._searched_s, self._remarks = -math.inf, Answer()
            return self._remarks
        if 0 <= now_s - self._searched_s < state.round_delay:
            return self._remarks
        self._searched_s = now_s
        situation = Situation(state.incidents, self.nodes, healths=self.healths, lost=self.lost())
        self._rests = {
            name: end_s for name, end_s in self._rests.items() if 0 < end_s - now_s <= REST_S
        }
        question = Question(
            balances=state.balance,
            repairs=state.auto_repair,
            busy=sorted(set(self.nodes) - situation.untouched),
            fixed=sorted(self._rests),
            uses_load=state.use_load,
            moves_disks=state.move_disks,
            threshold=state.balance_threshold,
        )
        try:
            found = await self._cluster.search(question)
        except GenericError as err:
            found = Answer(remarks=[f"the search failed: {err.message}"])
        self._remarks = Answer(
            remarks=list(choose(found, state.balance_threshold).remarks),
            cares=[replace(each, add=[], remove=[]) for each in found.cares if each.text],
        )
        if any(each.add for each in found.cares):
            # A repair may begin once another has ended.
            self._searched_s = min(now_s, now_s - state.round_delay + SETTLE_S)
        return found

    def _note_rests(self, jobs: Mapping[JobId, JobFacts]) -> None:
        """Let instances rest whose move failed."""
        for job_id in [each for each in self._moving if not jobs.get(each, _GONE).is_running]:
            name = self._moving.pop(job_id)
            if jobs.get(job_id, _GONE).is_bad:
                logger.warning("Job %s did not move instance %s, which rests now", job_id, name)
                self._rests[name] = self._now() + REST_S

    async def _submit(self, state: Maintenance, planned: Round) -> None:
        by_uuid = {each.uuid: each for each in state.incidents}
        begun = dict.fromkeys(step.event for step in planned.steps)
        intended = [event for event in begun if event not in self._refusals]
        if intended:
            await self._cluster.clear_jobs()
        for uuid in intended:
            if uuid in by_uuid:
                await self._cluster.put(_intended(by_uuid[uuid]))
        if not set(state.evacuated).issuperset(planned.evacuated):
            await self._cluster.add_evacuated(planned.evacuated)
        self._unsure_s = begun_s = self._now()  # until the numbers are noted
        answers = await self._cluster.submit(planned.steps)
        listed: Sequence[JobId] = ()
        if all(isinstance(each, str) for each in answers):
            listed = state.jobs if intended else ()  # as before the intent
        else:
            self.round_s, self.rounds = begun_s, self.rounds + 1
            if not intended:
                await self._cluster.clear_jobs()
        await self._note(list(zip(planned.steps, answers, strict=True)), listed)
        self._unsure_s = None

    async def _note(
        self, answers: Sequence[tuple[Step, JobId | str]], listed: Sequence[JobId] = ()
    ) -> None:
        """Note the numbers of submitted jobs.

        Args:
            listed: the jobs of the last round, which stay in the list if there are no new ones.
        """
        by_event: dict[str, list[JobId]] = {}
        telling: list[Step] = []
        for step, answer in answers:
            if isinstance(answer, str):
                continue
            logger.info("%s: job %s, %s", _title(step.event), answer, _words(step))
            if step.event == BALANCING and step.instance is not None:
                self._moving[answer] = step.instance
            by_event.setdefault(step.event, []).append(answer)
            if step.repair and step.instance is not None and not _is_telling(step):
                telling.append(_telling(step.instance, step.repair, [answer], step.replaced))
        self._note_refusals(
            [(step, answer) for step, answer in answers if isinstance(answer, str)], by_event
        )
        submitted = [job_id for job_ids in by_event.values() for job_id in job_ids] or listed
        if submitted:
            await self._cluster.append_jobs(submitted)
        state = await self.read()
        for incident in state.incidents if state else ():
            if incident.uuid in by_event:
                await self._cluster.put(with_jobs(incident, by_event[incident.uuid]))
            elif incident.uuid in self._refusals and is_intent(incident):
                await self._cluster.put(taken_back(incident))
        await self._submit_telling(telling)

    def _note_refusals(self, refused: Sequence[tuple[Step, str]], taken: Collection[str]) -> None:
        """Let events rest all of whose jobs were refused; say it of others at once.

        Args:
            taken: events with jobs that were not refused.
        """
        for event in taken:
            self._refusals.pop(event, None)
        for event in dict.fromkeys(step.event for step, _ in refused):
            [(first, answer), *more] = [each for each in refused if each[0].event == event]
            count = f" and {len(more)} other jobs are" if more else " is"
            why = f"{_words(first)}{count} refused: {answer}"
            if first.is_of_incident and event not in taken:
                self._refusals[event] = self._refusal(event, why)
                continue
            logger.warning("%s: %s", _title(event), why)
            if not first.is_of_incident:
                self._searched_s = self._now()
                self._remarks = _with_remark(self._remarks, first, why)

    def _refusal(self, event: str, why: str) -> Refusal:
        known = self._refusals.get(event)
        delay_s = ROUND_DELAY_S if self.state is None else self.state.round_delay
        rest_s = min(2 * known.rest_s if known else REFUSED_S, delay_s, ROUND_DELAY_S)
        return Refusal(why, self._now() + rest_s, rest_s)

    async def _tidy(self, state: Maintenance) -> None:
        """Forget which instances were moved away once there is nothing that they left."""
        if all(each.repair_status is RepairStatus.CANCELED for each in state.incidents):
            for name in state.evacuated:
                await self._cluster.remove_evacuated(name)


def _telling(instance: str, repair: str, job_ids: Sequence[JobId], replaced: Sequence[str]) -> Step:
    """Return the job that sets the tag of a repair."""
    opcodes = retagging(instance, [pending_tag(repair, job_ids)], replaced)
    return Step(opcodes, f"{WORD}:{repair}", instance=instance)


def _is_telling(step: Step) -> bool:
    return all(isinstance(op, TagsChange) for op in step.opcodes)


def _title(event: str) -> str:
    if event == BALANCING:
        return "Balancing"
    return f"Repair {event}" if event.startswith(WORD) else f"Incident {event}"


def _words(step: Step) -> str:
    return ", ".join(map(summary, step.opcodes))


def _with_remark(remarks: Answer, step: Step, why: str) -> Answer:
    """Return why there are no moves or repairs, with another reason, until the next search."""
    if step.event == BALANCING:
        return Answer(remarks=[*remarks.remarks, why], cares=remarks.cares)
    care = Care(step.instance or "", [], text=why)
    return Answer(remarks=remarks.remarks, cares=[*remarks.cares, care])


def _is_begun(incident: Incident) -> bool:
    """Tell whether an intent to submit jobs was stored."""
    return incident.repair_status in (RepairStatus.PENDING, RepairStatus.FAILED)


def _may_have_jobs(incident: Incident) -> bool:
    """Tell whether jobs may have been submitted that are not noted."""
    return is_active(incident) or _is_begun(incident)


def _intended(incident: Incident) -> Incident:
    """Return an event for which jobs are about to be submitted."""
    if incident.repair_status is RepairStatus.NOTED:
        return replace(incident, repair_status=RepairStatus.PENDING)
    return incident


def _log_unknown(before: Mapping[str, Health], after: Mapping[str, Health]) -> None:
    """Say once why the health of a node is not known."""
    for name, health in after.items():
        was, now = before.get(name, Health()).report, health.report
        if isinstance(now, Unknown) and was != now:
            logger.warning("The health of node %s is not known: %s", name, now.why)
        elif isinstance(was, Unknown) and name in before and not isinstance(now, Unknown):
            logger.info("Node %s reports its health again", name)


def _log_waits(
    before: Mapping[str, Waits], after: Mapping[str, Waits], refused: Collection[str]
) -> None:
    """Say once why nothing is done about an event."""
    for uuid, found in after.items():
        if before.get(uuid) != found:
            level = logging.WARNING if uuid in refused else logging.INFO
            logger.log(level, "%s waits: %s", _title(uuid), found.why)
