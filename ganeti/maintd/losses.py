"""What is to be done about nodes that are proved dead.  Pure.

Theory of operation.  A node that is proved dead is set offline, by a job.  Then the instances that
should run there start elsewhere (`ganeti.availability.restarts`), by one job each.  When nothing is
left to do the loss is over; the node stays offline until a person takes it back.

Nothing is remembered: each job carries in its reason the loss that it is for, and the node that it
is about, so a daemon that begins anew finds them in the queue and decides the same.

Some losses cannot end: an instance with the only copy of its disks on the dead node waits for a
person.  So a look that found nothing to do, as the one before, is repeated ever later (`Pace`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ganeti.availability.records import Loss, Mastership
from ganeti.availability.restarts import Guest, Limits, Restart, objection, plan_restarts
from ganeti.base.ids import JobId
from ganeti.maintd.incidents import NodeFacts

ATTEMPTS_MAX: Final = 5
LOOK_S_MIN: Final = 1.0
LOOK_S_SOON: Final = 5.0  # between two looks where every job changes the configuration
LOOK_S_MAX: Final = 30.0  # nobody tells how much memory of a node is free
_PREFIX: Final = "ha:"


def event_of(loss: Loss, node: str) -> str:
    """Return what the reason of a job says: the loss that it is for, and the node it is about."""
    return f"{_PREFIX}{loss.uuid}:{node}"


@dataclass(frozen=True, slots=True)
class LossJob:
    """A job for a loss.

    Attributes:
        node: where the instance starts, or the node that is set offline.
        instance: None for a job that sets the node offline.
        is_bad: it failed, or nobody knows.
    """

    job_id: JobId
    uuid: str
    node: str
    instance: str | None
    is_running: bool = False
    is_bad: bool = False


def read_event(event: str) -> tuple[str, str] | None:
    """Return the UUID of the loss and the node of such a reason; None for another one."""
    uuid, colon, node = event.removeprefix(_PREFIX).rpartition(":")
    return (uuid, node) if event.startswith(_PREFIX) and colon else None


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that is decided from.

    Attributes:
        own: this node, the master.
        losses: those with a proof, by node.
        acting: nodes on which jobs of a master may still run.
        present: {node: boot that etcd has of it}.
        guests: instances that should run, on lost nodes.
        free: MiB of memory on each node that is alive and may get instances.
        jobs: of these losses.
        resting: failed jobs after which nothing is tried yet.
        settled: lost nodes that have been offline for a while, so that everybody knows.
    """

    own: str
    losses: Mapping[str, Loss]
    acting: Mapping[str, Mastership]
    present: Mapping[str, str]
    nodes: Mapping[str, NodeFacts]
    guests: Sequence[Guest] = ()
    free: Mapping[str, int] = field(default_factory=dict)
    jobs: Sequence[LossJob] = ()
    resting: Collection[JobId] = ()
    settled: Collection[str] = ()


@dataclass(slots=True)
class Decision:
    """What is done now, and what waits.

    Attributes:
        goes_offline: nodes to be set offline.
        over: losses of which nothing is left to do, by node.
        waits: {node: why its loss is not over}.
        left: {instance: why it does not start}.
        is_refused: whether LuxiD has taken none of the jobs for it.
    """

    goes_offline: list[str] = field(default_factory=list)
    restarts: Sequence[Restart] = ()
    over: list[str] = field(default_factory=list)
    waits: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    is_refused: bool = False

    @property
    def acts(self) -> bool:
        """Whether something is done now."""
        return bool(self.goes_offline or self.restarts or self.over)

    def leaves_the_same(self, other: Decision) -> bool:
        """Tell whether the same waits, by whatever reason: free memory is another each time."""
        return self.waits == other.waits and self.left.keys() == other.left.keys()


@dataclass(frozen=True, slots=True)
class Pace:
    """When to look at losses again.

    Attributes:
        losses: what etcd has of them; another state is looked at at once.
        others: what it and the configuration have besides; another state is looked at soon.
        looked_s: when the last look was.
        rest_s: until the next one, if nothing happens.
        until_s: when the next thing that rests is over.
    """

    losses: object = None
    others: object = None
    looked_s: float = -math.inf
    rest_s: float = 0.0
    until_s: float = math.inf

    def is_due(self, losses: object, others: object, now_s: float) -> bool:
        """Tell whether to look now."""
        rest_s = self.rest_s if others == self.others else min(self.rest_s, LOOK_S_SOON)
        return losses != self.losses or now_s >= min(self.looked_s + rest_s, self.until_s)


def next_rest_s(
    rest_s: float, scene: Scene, before: Decision, decision: Decision, *, is_changing: bool
) -> float:
    """Return the rest after a look: none while something is done, then twice the last one.

    Args:
        before: what was decided at the look before.
        is_changing: the configuration is another one than then.
    """
    is_done = decision.acts and not decision.is_refused
    if is_done or any(job.is_running for job in scene.jobs):
        return 0.0
    if not decision.leaves_the_same(before):
        return LOOK_S_MIN
    is_busy = decision.acts or is_changing or any(guest.is_in_work for guest in scene.guests)
    return min(max(LOOK_S_MIN, 2 * rest_s), LOOK_S_SOON if is_busy else LOOK_S_MAX)


def nodes_to_ask(scene: Scene) -> set[str]:
    """Return the nodes whose free memory decides which instances start now."""
    if objection(scene.acting, scene.losses, scene.own):
        return set()
    usable = {
        name
        for name, node in scene.nodes.items()
        if name not in scene.losses and not (node.is_offline or node.is_drained)
    }
    running = _running(scene)
    return {
        name
        for guest in scene.guests
        if guest.node in scene.nodes
        and scene.nodes[guest.node].is_offline
        and guest.priority is not None
        and not (guest.is_in_work or guest.name in running or _why_not_now(scene, guest))
        for name in usable.intersection(guest.nodes)
    }


def decide(scene: Scene, limits: Limits) -> Decision:
    """Decide what is done now."""
    found = Decision()
    if why := objection(scene.acting, scene.losses, scene.own):
        found.waits = dict.fromkeys(scene.losses, why)
        found.left = {guest.name: why for guest in scene.guests}
        return found
    offline = [name for name in scene.losses if _is_offline(scene, name, found)]
    guests = [guest for guest in scene.guests if guest.node in offline]
    _restart(scene, guests, limits, found)
    for name in offline:
        waiting = [each.name for each in guests if each.node == name and each.priority is not None]
        if waiting:
            found.waits[name] = f"{len(waiting)} of its instances do not run elsewhere yet"
        elif _is_busy(scene, name):
            found.waits[name] = "its last jobs run"
        elif name not in scene.settled:
            found.waits[name] = "it was set offline a moment ago"
        else:
            found.over.append(name)
    return found


def _is_busy(scene: Scene, name: str) -> bool:
    uuid = scene.losses[name].uuid
    return any(job.uuid == uuid and job.is_running for job in scene.jobs)


def _is_offline(scene: Scene, name: str, found: Decision) -> bool:
    """Tell whether a lost node is offline; otherwise decide what is done about that."""
    loss, node = scene.losses[name], scene.nodes.get(name)
    is_back = scene.present.get(name, loss.boot_id) != loss.boot_id
    if node is None or (is_back and not node.is_offline):
        # What ran there has ended, and nobody took it away from there.
        if _is_busy(scene, name):
            found.waits[name] = "it is back, and jobs about it still run"
        else:
            found.over.append(name)
        return False
    if node.is_offline:
        return True
    tries = [job for job in scene.jobs if job.uuid == loss.uuid and job.instance is None]
    if _is_busy(scene, name):
        found.waits[name] = "it is being set offline"
    elif why := _why_not_again(scene, tries, f"gnt-node modify --offline=yes {name}"):
        found.waits[name] = why
    else:
        found.goes_offline.append(name)
    return False


def _why_not_again(scene: Scene, tries: Sequence[LossJob], command: str) -> str:
    """Return why nothing is tried after jobs that failed; "" if it is."""
    bad = [job.job_id for job in tries if job.is_bad]
    if len(bad) >= ATTEMPTS_MAX:
        return f"{len(bad)} jobs failed, the last one is {max(bad)}; type '{command}'"
    if not set(bad).isdisjoint(scene.resting):
        return f"job {max(bad)} failed; it is tried again"
    return ""


def _why_not_now(scene: Scene, guest: Guest) -> str:
    """Return why an instance is not started after jobs that failed; "" if it is."""
    uuid = scene.losses[guest.node].uuid
    tries = [job for job in scene.jobs if (job.uuid, job.instance) == (uuid, guest.name)]
    command = f"gnt-instance failover --ignore-consistency {guest.name}"
    return _why_not_again(scene, tries, command)


def _running(scene: Scene) -> dict[str, str]:
    """Return {instance: node} of the restarts that have not ended."""
    return {job.instance: job.node for job in scene.jobs if job.is_running and job.instance}


def _restart(scene: Scene, guests: Sequence[Guest], limits: Limits, found: Decision) -> None:
    running = _running(scene)
    turn = []
    for guest in guests:
        if why := _why_not_now(scene, guest):
            found.left[guest.name] = why
        else:
            turn.append(guest)
    free = dict(scene.free)
    for guest in guests:
        if running.get(guest.name) in free:
            free[running[guest.name]] -= guest.memory
    plan = plan_restarts(turn, free, running, limits)
    found.restarts = plan.restarts
    found.left |= plan.left
