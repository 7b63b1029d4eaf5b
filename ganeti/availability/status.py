"""What people are told of high availability: how it is now, and what a loss would lead to.  Pure.

The forecast of a loss asks the code that decides when it happens (`restarts`, `mastership`); what
it cannot know is which nodes see each other then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ganeti.availability.inventory import Inventory
from ganeti.availability.mastership import answers_wanted
from ganeti.availability.proof import CONFIRM_COMMAND, confirmed
from ganeti.availability.records import (
    Fencing,
    Guard,
    Loss,
    Mastership,
    Outdated,
    Pause,
    Presence,
    outdated_key,
)
from ganeti.availability.restarts import Guest, Limits, objection, plan_restarts
from ganeti.availability.timing import Timing
from ganeti.base.text import natural_sorted
from ganeti.jobs.votes import votes_needed

ACCEPT_COMMAND: Final = "gnt-cluster ha-accept-copy"
_NO_LIMITS: Final = Limits(starts_max=1 << 30, per_node_max=1 << 30)


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known at one time.

    Attributes:
        now: in seconds since the epoch.
        helpers: the nodes that have an out-of-band helper.
        trouble: why etcd could not be read; "" if it was.  If not, there are no records.
        members: {URL of a member of etcd: its trouble, or ""}.
        witness: the node that only votes; "" for none.
        lease_disk: path of the disk on which nodes hold leases, too; "" for none.
        free_memory: MiB, of nodes that told it.
        presences, guards, losses, acting, fencing: by name of the node.
        outdated: by key of the copy, as `outdated_key` makes it.
    """

    now: float
    inventory: Inventory
    timing: Timing
    helpers: Collection[str] = ()
    trouble: str = ""
    members: Mapping[str, str] = field(default_factory=dict)
    witness: str = ""
    lease_disk: str = ""
    free_memory: Mapping[str, int] = field(default_factory=dict)
    presences: Mapping[str, Presence] = field(default_factory=dict)
    guards: Mapping[str, Guard] = field(default_factory=dict)
    losses: Mapping[str, Loss] = field(default_factory=dict)
    acting: Mapping[str, Mastership] = field(default_factory=dict)
    fencing: Mapping[str, Fencing] = field(default_factory=dict)
    outdated: Mapping[str, Outdated] = field(default_factory=dict)
    master: Mastership | None = None
    alone: Mastership | None = None
    pause: Pause | None = None

    @property
    def is_paused(self) -> bool:
        """Nobody acts."""
        return self.pause is not None and self.pause.until > self.now

    @property
    def lone(self) -> str:
        """The candidate that went on without the other; "" for none."""
        return "" if self.alone is None else self.alone.node

    def candidates(self) -> list[str]:
        """Return the names of the master candidates, the master first."""
        found = natural_sorted(n for n, m in self.inventory.machines.items() if m.is_candidate)
        return sorted(found, key=self.inventory.master.__ne__)


@dataclass(frozen=True, slots=True)
class Start:
    """An instance that starts on another node."""

    instance: str
    lost: str
    node: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """What would happen if nodes died now.

    Attributes:
        nobody: why nobody would act; "" if somebody would.
        proofs: {node: how it is proved dead}.
        unproved: {node: why it is not}.
        takes_over: candidates that may become the master, if the master is among the nodes.
        starts: in this order.
        left: {instance: why it does not start}.
        unknown: nodes whose free memory is not known: nothing is planned there.
        commands: what a person may type, and only that person can know whether it is true.
    """

    nodes: tuple[str, ...]
    nobody: str
    proofs: Mapping[str, str]
    unproved: Mapping[str, str]
    takes_over: tuple[str, ...]
    starts: tuple[Start, ...]
    left: Mapping[str, str]
    unknown: tuple[str, ...]
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node.

    Attributes:
        role: "master", "candidate", "witness", "regular" or "offline".
        lease: "held", "missed", "dead", "left" (its agent was stopped), "never" or "unknown".
        since: when it was first missed, in seconds since the epoch; None while it is not.
        proof: how it was proved dead, and by whom; "" if it was not.
        watchdog_s: from the last feeding to the reset; None where none runs.
        holds_disk: it holds its lease on the lease disk, too.
        fencing: the last attempt to switch it off.
        outdated: the instances whose copy of a disk on it lacks writes.
        if_lost: what would happen if it died now; what will happen, if it is dead.
    """

    name: str
    role: str
    lease: str
    since: float | None
    proof: str
    watchdog_s: float | None
    holds_disk: bool
    has_helper: bool
    fencing: Fencing | None
    outdated: tuple[str, ...]
    if_lost: Forecast


@dataclass(frozen=True, slots=True)
class Status:
    """Everything.

    Attributes:
        trouble: why etcd could not be read.
        holder: the node that has the master's lease; "" for nobody.
        lease_disk: path of the disk on which nodes hold leases, too; "" for none.
        may_take_over: candidates that could do so now, if the master were lost.
        alone: the candidate that went on without the other.
        paused_until: in seconds since the epoch; None while nothing is paused.
        warnings: what somebody should look at.
    """

    trouble: str
    master: str
    holder: str
    lease_disk: str
    may_take_over: tuple[str, ...]
    alone: str
    paused_until: float | None
    paused_by: str
    paused_why: str
    members: Mapping[str, str]
    nodes: tuple[NodeStatus, ...]
    warnings: tuple[str, ...]


def look(seen: Seen) -> Status:
    """Return how everything is."""
    pause = seen.pause if seen.is_paused else None
    master = seen.master.node if seen.master else ""
    nodes = tuple(_node(seen, name) for name in natural_sorted(seen.inventory.machines))
    return Status(
        trouble=seen.trouble,
        master=seen.inventory.master,
        holder=master,
        lease_disk=seen.lease_disk,
        may_take_over=forecast(seen, [master or seen.inventory.master]).takes_over,
        alone=seen.lone,
        paused_until=pause.until if pause else None,
        paused_by=pause.by if pause else "",
        paused_why=pause.why if pause else "",
        members=seen.members,
        nodes=nodes,
        warnings=tuple(_warnings(seen, nodes)),
    )


def _warnings(seen: Seen, nodes: Sequence[NodeStatus]) -> Iterator[str]:
    if seen.trouble:
        yield f"{seen.trouble}; until it does, nobody acts on losses"
    for endpoint, trouble in seen.members.items():
        if trouble:
            yield f"member {endpoint} of etcd: {trouble}"
    if seen.is_paused:
        yield "high availability is paused: nobody acts on losses, and no watchdog runs"
    if seen.trouble:
        return
    if seen.master is None:
        yield "nobody holds the lease of the master"
    elif seen.master.node != seen.inventory.master:
        yield f"{seen.master.node} holds the lease, but {seen.inventory.master} is the master"
    if seen.alone is not None:
        yield f"{seen.lone} went on without the other candidate, which never takes over meanwhile"
    for node in nodes:
        yield from _warnings_about(node, is_paused=seen.is_paused)
        is_guarded = node.lease == "held" and node.watchdog_s is not None
        if node.lease == "missed" and node.name == seen.witness:
            yield f"{node.name}, the witness, does not answer: no other node may be lost now"
        if seen.lease_disk and is_guarded and not node.holds_disk:
            yield f"{node.name} does not hold its lease on {seen.lease_disk}"


def _warnings_about(node: NodeStatus, *, is_paused: bool) -> Iterator[str]:
    match node.lease:
        case "missed" if node.role != "witness":
            why = node.if_lost.unproved.get(node.name) or "its proof is waited for"
            yield f"{node.name} is missed: {why}"
        case "dead":
            yield f"{node.name} is dead ({node.proof})"
        case "left" | "never" if node.role != "offline":
            yield f"{node.name} has no agent: nobody watches over it"
        case "held" if node.role == "witness":
            return
        case "held" if node.watchdog_s is None and not (node.has_helper or is_paused):
            yield f"nothing could prove that {node.name} is dead: no watchdog, no helper"
    for instance in node.outdated:
        yield f"the copy of {instance} on {node.name} lacks writes"


def _node(seen: Seen, name: str) -> NodeStatus:
    machine, loss = seen.inventory.machines[name], seen.losses.get(name)
    guard = seen.guards.get(name)
    is_proved = loss is not None and loss.proof is not None
    return NodeStatus(
        name=name,
        role="offline"
        if machine.is_offline
        else "master"
        if machine.is_master
        else "witness"
        if name == seen.witness
        else "candidate"
        if machine.is_candidate
        else "regular",
        lease=_lease(seen, name),
        since=loss.since if loss else None,
        proof=f"{loss.proof}, by {loss.by}" if loss is not None and is_proved else "",
        watchdog_s=guard.watchdog_s if guard else None,
        holds_disk=name in seen.presences and guard is not None and bool(guard.disk),
        has_helper=name in seen.helpers,
        fencing=seen.fencing.get(name),
        outdated=tuple(outdated_instances(seen, name)),
        if_lost=forecast(seen, [name]),
    )


def _lease(seen: Seen, name: str) -> str:
    loss, guard = seen.losses.get(name), seen.guards.get(name)
    if seen.trouble:
        return "unknown"
    if name in seen.presences:
        return "held"
    if guard is not None and guard.has_left:
        return "left"
    if loss is not None:
        return "missed" if loss.proof is None else "dead"
    return "missed" if guard is not None else "never"


def outdated_instances(seen: Seen, node: str) -> Iterator[str]:
    """Yield the instances whose copy of a disk on that node lacks writes."""
    for instance, ports in seen.inventory.ports.items():
        if any(outdated_key(node, port) in seen.outdated for port in ports):
            yield instance


def forecast(seen: Seen, lost: Collection[str]) -> Forecast:
    """Tell what would happen if these nodes died now, all at once."""
    names = tuple(natural_sorted(lost))
    alive = {name for name in seen.presences if name in seen.inventory.machines} - {*lost}
    found = [(name, *_proof(seen, name)) for name in names]
    proofs = {name: how for name, how, _ in found if how}
    unproved = {name: why for name, _, why in found if why}
    master = seen.master.node if seen.master else seen.inventory.master
    takers = tuple(_takers(seen, alive)) if master in lost else ()
    losses = {**seen.losses, **{name: _as_dead(seen, name) for name in proofs}}
    nobody = _why_nobody_acts(seen, names, alive)
    if not nobody and master in lost and not takers:
        nobody = "no master candidate may take over"
    if not nobody:
        nobody = objection(seen.acting, losses, takers[0] if takers else master)
    left: dict[str, str] = {}
    guests = [guest for guest in seen.inventory.guests if guest.node in lost]
    usable = list(_usable(seen, guests, unproved, left))
    known = {name: mib for name, mib in seen.free_memory.items() if name in alive}
    wanted = alive & {name for guest in usable for name in guest.nodes}
    plan = plan_restarts(usable, known, {}, _NO_LIMITS)
    left |= plan.left
    starts = [Start(each.guest.name, each.guest.node, each.node) for each in plan.restarts]
    if nobody:
        left |= {guest.name: nobody for guest in guests if guest.name not in left}
        starts = []
    commands = [f"{CONFIRM_COMMAND} {name}" for name in unproved if not _is_ignored(seen, name)]
    return Forecast(
        nodes=names,
        nobody=nobody,
        proofs=proofs,
        unproved=unproved,
        takes_over=takers,
        starts=tuple(starts),
        left=left,
        unknown=tuple(natural_sorted(wanted - known.keys())),
        commands=tuple(commands),
    )


def _why_nobody_acts(seen: Seen, lost: Collection[str], alive: Collection[str]) -> str:
    """Return why nobody would act on the loss; "" if somebody would."""
    if seen.trouble:
        return seen.trouble
    if seen.is_paused:
        return "high availability is paused"
    if len(alive) < votes_needed(len(seen.inventory.machines)):
        return f"only {len(alive)} of {len(seen.inventory.machines)} nodes would be there"
    addresses = [seen.inventory.machines[name].address for name in lost]
    left = [
        url
        for url, trouble in seen.members.items()
        if not trouble and not any(_is_at(url, address) for address in addresses)
    ]
    if len(left) < votes_needed(len(seen.members)):
        return f"only {len(left)} of {len(seen.members)} members of etcd would be there"
    return ""


def _is_at(url: str, address: str) -> bool:
    host = url.partition("://")[2].rpartition(":")[0]
    return host.strip("[]") == address


def _takers(seen: Seen, alive: Collection[str]) -> Iterator[str]:
    """Yield the candidates that may take over from a master that is lost."""
    candidates = seen.candidates()
    answering = [name for name in candidates if name in alive]
    for name in answering:
        if name == seen.witness:
            continue
        is_enough = len(answering) >= answers_wanted(candidates, seen.lone, name)
        if seen.lone in ("", name) and is_enough:
            yield name


def _is_ignored(seen: Seen, name: str) -> bool:
    """Tell whether nobody misses that node."""
    guard = seen.guards.get(name)
    is_nobodys = seen.inventory.machines[name].is_offline or name == seen.witness
    return is_nobodys or guard is None or guard.has_left


def _proof(seen: Seen, name: str) -> tuple[str, str]:
    """Return how a node would be proved dead, or else why it would not."""
    loss, guard, timing = seen.losses.get(name), seen.guards.get(name), seen.timing
    if seen.inventory.machines[name].is_offline:
        return "", "it is marked offline: nobody misses it"
    if name == seen.witness:
        return "", "it is the witness: its vote and its member of etcd would be missing"
    if loss is not None and loss.proof is not None and name not in seen.presences:
        return f"it is dead already ({loss.proof}, by {loss.by})", ""
    if guard is None:
        return "", "its agent was never there: nobody misses it"
    if guard.has_left:
        return "", "its agent was stopped: nobody misses it"
    missed_s = timing.lease_s + timing.beat_s
    ways = []
    if name in seen.helpers:
        ways.append(f"its helper switches it off, within {missed_s + timing.helper_s:.0f} s")
    if guard.watchdog_s is not None:
        seconds = missed_s + timing.dead_after_s
        ways.append(f"its watchdog has reset it, after {seconds:.0f} s")
        if guard.disk:
            seconds = missed_s + 2 * timing.beat_s + guard.watchdog_s + timing.margin_s
            ways[-1] += f" ({seconds:.0f} s where it says on the lease disk that it gives up)"
    return ", or ".join(ways), "" if ways else "nothing proves it: no watchdog, no helper"


def _as_dead(seen: Seen, name: str) -> Loss:
    """Return the record of a loss that is proved."""
    loss, guard = seen.losses.get(name), seen.guards.get(name)
    if loss is None:
        loss = Loss(uuid="", node=name, boot_id=guard.boot_id if guard else "")
    return loss if loss.proof is not None else confirmed(loss, "")


def _usable(
    seen: Seen, guests: Sequence[Guest], unproved: Mapping[str, str], left: dict[str, str]
) -> Iterator[Guest]:
    """Yield the guests that may start, each with the nodes whose copies may be used.

    Args:
        left: the others are put there.
    """
    for guest in guests:
        if guest.node in unproved:
            left[guest.name] = f"{guest.node}: {unproved[guest.node]}"
            continue
        ports = seen.inventory.ports.get(guest.name, ())
        stale = [
            name
            for name in guest.nodes
            if any(outdated_key(name, port) in seen.outdated for port in ports)
        ]
        good = [name for name in guest.nodes if name not in stale]
        if stale and not good:
            left[guest.name] = (
                f"its copy on {stale[0]} lacks writes; to give them up, type '{ACCEPT_COMMAND}"
                f" --node={stale[0]} {guest.name}'"
            )
            continue
        yield replace(guest, nodes=good)
