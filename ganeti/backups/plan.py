"""Which backups and rehearsals are due, where they go, and which exports are too old.  Pure.

Of backups nothing is remembered: what is done is read from the exports, what is under way and what
failed from the jobs.  With hours of the day there is one backup in each such time (every so many
days), and it is due from the beginning on; so the time of day does not creep.  The backup that
waits longest begins first, and no node has more than so many under way, be it as the one that is
read from or written to.

A chain has grown by half before its oldest points are removed, as that copies a whole export: to
do so for each new point would cost what incremental exports save.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from ganeti.backups.policy import HOUR_S, Chosen, Policy, age_text, choose, per_node_of, problems_of
from ganeti.backups.rehearsals import RehearsalStanding, judge
from ganeti.backups.times import due_at
from ganeti.base.text import natural_sort_key, natural_sorted
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.model import Rehearsal

RETRY_S: Final = HOUR_S  # after a failure


class NodeState(StrEnum):
    """A node as far as backups distinguish it."""

    GOOD = "good"
    DRAINED = "drained"  # it keeps the exports that it has, and gets no others
    SILENT = "silent"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance.

    Attributes:
        secondaries: the other nodes that have its disks.
        made: when, in seconds since 1970.
        rehearsed: the result of the last rehearsal.
        memory_mib: that it takes when it runs.
        tags: {kind of object: its tags}, of the instance and its node group.
    """

    name: str
    primary: str
    secondaries: tuple[str, ...] = ()
    made: float = 0.0
    group: str = ""
    rehearsed: Rehearsal | None = None
    memory_mib: int = 0
    disk_template: str = ""
    tags: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Export:
    """An export of an instance: its node, the time and the numbers of its points."""

    node: str
    newest: float
    points: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Place:
    """A node that can run instances: its group, and its free memory if that is known."""

    group: str
    free_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """The state that is decided upon.

    Attributes:
        exports: {instance: its exports}; a silent node's are not known.
        untold: {instance: a node that has an export of it, and did not tell which points}.
        busy: {instance: why it is left alone}.
        under_way: the nodes of each backup that is under way.
        failed: {instance: when its last backup failed}.
        rehearsals_failed: {instance: when the job of its last rehearsal failed}.
        places: the nodes that can run instances.
        local: turns a time into one whose days begin at midnight of the master's clock.
    """

    machines: Sequence[Machine]
    nodes: Mapping[str, NodeState]
    now: float
    cluster_tags: Sequence[str] = ()
    exports: Mapping[str, Sequence[Export]] = field(default_factory=dict)
    untold: Mapping[str, str] = field(default_factory=dict)
    busy: Mapping[str, str] = field(default_factory=dict)
    under_way: Sequence[frozenset[str]] = ()
    failed: Mapping[str, float] = field(default_factory=dict)
    rehearsals_failed: Mapping[str, float] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    local: Callable[[float], float] = float


class Work(StrEnum):
    """The things that are done; the text reads after "to"."""

    EXPORT = "export it"
    SHORTEN = "remove the oldest points of its chain"
    REHEARSE = "rehearse its newest export"


@dataclass(frozen=True, slots=True)
class Step:
    """A job to be submitted.

    Attributes:
        node: that gets the export, has the chain, or runs the rehearsal.
        before: the first point that is kept, of a chain that is shortened.
        source: the node that has the export, of a rehearsal.
        disk_template: of a rehearsal; "" for that of the export.
    """

    work: Work
    instance: str
    policy: Policy
    node: str
    before: int = 0
    source: str = ""
    disk_template: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """How an instance stands.

    Attributes:
        export: the newest one, if it has any.
        due: from when on the next backup may begin; None without a policy.
        wait: why nothing is begun although it is due; "" for no reason.
        is_late: the newest export is too old, or there is none and the instance is that old.
    """

    machine: Machine
    chosen: Chosen
    export: Export | None
    due: float | None = None
    wait: str = ""
    is_late: bool = False
    rehearsal: RehearsalStanding = field(default_factory=RehearsalStanding)

    def warnings(self, now: float) -> list[str]:
        """Return what an operator has to know: an export or a rehearsal that is amiss."""
        late = [self.late_text(now)] if self.is_late else []
        return [*late, self.rehearsal.problem] if self.rehearsal.problem else late

    def late_text(self, now: float) -> str:
        """Return the warning about an export that is too old."""
        assert self.chosen.policy is not None
        limit = age_text(self.chosen.policy.too_old_s)
        if self.export is None:
            return f"there is no export of it, and the policy of its {self.chosen.origin} wants one"
        hours = (now - self.export.newest) / HOUR_S
        return (
            f"its newest export, on {self.export.node}, is {hours:.0f} h old, which is too old by"
            f" the policy of its {self.chosen.origin} ({limit})"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """The jobs to be submitted now, and how each instance stands."""

    steps: tuple[Step, ...]
    standings: tuple[Standing, ...]


class _Room:
    """How much is under way on each node, and which one takes an export."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._limit = per_node_of(facts.cluster_tags)
        self._load = Counter(name for nodes in facts.under_way for name in nodes)
        self._exports = Counter(each.node for found in facts.exports.values() for each in found)
        self._order = {name: place for place, name in enumerate(natural_sorted(facts.nodes))}

    def objection(self, *names: str) -> str:
        """Return which of some nodes has no room for one more backup; "" if all have."""
        for name in names:
            if self._load[name] >= self._limit:
                return f"node {name} has {self._load[name]} under way, and may have {self._limit}"
        return ""

    def take(self, nodes: Collection[str]) -> None:
        """Count one more on these nodes."""
        self._load.update(nodes)

    def node_for(self, machine: Machine, policy: Policy) -> str | None:
        """Return the node that gets an export: one with an older one, and not the disks as well."""
        nodes = self._facts.nodes
        having = {each.node: each.newest for each in self._facts.exports.get(machine.name, ())}

        def rank(name: str) -> tuple[object, ...]:
            is_own, is_copy = name == machine.primary, name in machine.secondaries
            work = (self._load[name], self._exports[name], self._order[name])
            return (is_own, -having.get(name, 0.0), is_copy, *work)

        def is_fit(name: str) -> bool:
            state = nodes.get(name)
            return state is NodeState.GOOD or (state is NodeState.DRAINED and name in having)

        return min(filter(is_fit, policy.nodes or nodes), key=rank, default=None)

    def place_for(self, machine: Machine, source: str) -> str:
        """Return the node that runs a rehearsal; "" for none.

        Args:
            source: the node that has the export.
        """
        facts = self._facts

        def is_fit(name: str) -> bool:
            place = facts.places[name]
            has_memory = place.free_mib is None or place.free_mib >= machine.memory_mib
            is_good = facts.nodes.get(name) is NodeState.GOOD
            return is_good and place.group == machine.group and has_memory

        def rank(name: str) -> tuple[bool, int, int]:
            return name != source, -(facts.places[name].free_mib or 0), self._order[name]

        fit = [name for name in facts.places if is_fit(name) and not self.objection(name)]
        return min(fit, key=rank, default="")


def plan_backups(facts: Facts) -> Plan:
    """Decide what begins now, and judge all instances."""
    room = _Room(facts)
    steps: list[Step] = []
    standings = []
    for standing in sorted((_stand(each, facts) for each in facts.machines), key=_rank):
        found = _next_step(standing, facts, room)
        if isinstance(found, Step):
            steps.append(found)
            standings.append(standing)
        else:
            standings.append(replace(standing, wait=found))
    begun = {step.instance for step in steps}
    standings.sort(key=_rehearsal_rank)
    for at, standing in enumerate(standings):
        rehearsal = _rehearsal(standing, facts, room, begun)
        if isinstance(rehearsal, Step):
            steps.append(rehearsal)
        elif rehearsal:
            standing_now = replace(standing.rehearsal, wait=rehearsal)
            standings[at] = replace(standing, rehearsal=standing_now)
    standings.sort(key=lambda each: natural_sort_key(each.machine.name))
    return Plan(tuple(steps), tuple(standings))


def _next_step(standing: Standing, facts: Facts, room: _Room) -> Step | str:
    """Return what begins now, and takes its place; or why nothing does, if there is a reason."""
    machine, policy, export = standing.machine, standing.chosen.policy, standing.export
    if standing.wait or policy is None or standing.due is None:
        return standing.wait
    if standing.due <= facts.now:
        if text := room.objection(machine.primary):
            return text
        node = room.node_for(machine, policy)
        if node is None:
            return "no node can take it"
        if text := room.objection(node):
            return text
        room.take({machine.primary, node})
        return Step(Work.EXPORT, machine.name, policy, node)
    if export is None or not policy.keep or len(export.points) <= policy.keep + policy.keep // 2:
        return ""
    if text := room.objection(export.node):
        return text
    room.take({export.node})
    before = export.points[-policy.keep]
    return Step(Work.SHORTEN, machine.name, policy, export.node, before)


def _rehearsal(standing: Standing, facts: Facts, room: _Room, begun: Collection[str]) -> Step | str:
    """Return the rehearsal that begins now, and takes its place; or why none does, if it is due.

    Args:
        begun: the instances of which a backup begins now.
    """
    machine, policy, due = standing.machine, standing.chosen.policy, standing.rehearsal.due
    if policy is None or due is None or due > facts.now:
        return ""
    if machine.name in begun:
        return "a backup of it begins"
    if busy := facts.busy.get(machine.name):
        return busy
    failed = facts.rehearsals_failed.get(machine.name)
    if failed is not None and facts.now - failed < RETRY_S:
        return "the last try failed; the next one is an hour after that"
    readable = (NodeState.GOOD, NodeState.DRAINED)
    exports = facts.exports.get(machine.name, ())
    there = [each for each in exports if facts.nodes.get(each.node) in readable]
    if not there:
        return "no node that answers has an export of it"
    source = max(there, key=lambda each: each.newest).node
    if text := room.objection(source):
        return text
    node = room.place_for(machine, source)
    if not node:
        return (
            f"no node of group {machine.group} that has no other backup under way has"
            f" {machine.memory_mib} MiB of memory free"
        )
    room.take({source, node})
    template = DiskTemplate.PLAIN if machine.disk_template == DiskTemplate.DRBD else ""
    return Step(Work.REHEARSE, machine.name, policy, node, source=source, disk_template=template)


def _rehearsal_rank(standing: Standing) -> tuple[float, list[tuple[int, int, str]]]:
    last = standing.machine.rehearsed
    return 0.0 if last is None else last.ended, natural_sort_key(standing.machine.name)


def _rank(standing: Standing) -> tuple[float, list[tuple[int, int, str]]]:
    newest = 0.0 if standing.export is None else standing.export.newest
    return newest, natural_sort_key(standing.machine.name)


def _stand(machine: Machine, facts: Facts) -> Standing:
    """Judge one instance by itself."""
    chosen = choose({**machine.tags, "cluster": facts.cluster_tags})
    exports = facts.exports.get(machine.name, ())
    export = max(exports, key=lambda each: each.newest, default=None)
    if chosen.policy is None:
        return Standing(machine, chosen, export)
    newest = None if export is None else export.newest
    policy, now, local = chosen.policy, facts.now, facts.local
    due = due_at(policy.every_s, policy.hours, newest, now, local)
    since = machine.made if newest is None else newest
    is_late = now - since > policy.too_old_s
    rehearsal = judge(chosen, machine.rehearsed, made=machine.made, now=now, local=local)
    wait = _wait(machine, export, facts)
    return Standing(machine, chosen, export, due, wait, is_late, rehearsal)


def _wait(machine: Machine, export: Export | None, facts: Facts) -> str:
    """Return why an instance cannot be exported now."""
    if busy := facts.busy.get(machine.name):
        return busy
    primary = facts.nodes.get(machine.primary, NodeState.OFFLINE)
    if primary in (NodeState.OFFLINE, NodeState.SILENT):
        return f"its primary node {machine.primary} is {primary}"
    if export is None and NodeState.SILENT in facts.nodes.values():
        silent = [name for name, state in facts.nodes.items() if state is NodeState.SILENT]
        return f"node {min(silent)} is silent, and may have an export of it"
    if export is None and machine.name in facts.untold:
        return f"node {facts.untold[machine.name]} has an export of it, and did not tell how old"
    failed = facts.failed.get(machine.name)
    if failed is not None and facts.now - failed < RETRY_S:
        return "the last try failed; the next one is an hour after that"
    return ""


def tag_problems(facts: Facts) -> list[str]:
    """Return what is wrong with the policies, each once."""
    found = [f"cluster: {text}" for text in problems_of(facts.cluster_tags)]
    for each in facts.machines:
        names = {"instance": each.name, "nodegroup": each.group}
        for kind, tags in each.tags.items():
            found += [f"{kind} {names[kind]}: {text}" for text in problems_of(tags)]
    return list(dict.fromkeys(found))
