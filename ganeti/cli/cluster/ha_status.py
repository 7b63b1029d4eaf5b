"""``gnt-cluster`` ha-status, ha-pause, ha-confirm-dead, ha-accept-copy.

They talk to etcd directly, as the master's daemons may be what is lost.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

from ganeti.availability.proof import CONFIRM_COMMAND, confirmed
from ganeti.availability.records import (
    GUARDS,
    LOSSES,
    MASTER_KEY,
    NODES,
    PAUSE_KEY,
    Guard,
    Loss,
    Outdated,
    Pause,
    Presence,
    outdated_key,
)
from ganeti.availability.status import Forecast, NodeStatus, Seen, Status, forecast, look
from ganeti.base.errors import ErrorCode, OpPrereqError, TransportError
from ganeti.base.json import dumps
from ganeti.base.text import meant_by, natural_sorted, parse_duration
from ganeti.cli.command import ArgKind, Context, Options, command, confirm, opt
from ganeti.cli.run.listing import style_of
from ganeti.cli.run.table import Column, format_plain, format_time
from ganeti.clients.availability import Sight, look_around
from ganeti.clients.etcd import Delete, EtcdClient, MemberHealth, Put, Unchanged
from ganeti.clients.node_rpc import NodeRpcClient, Target
from ganeti.protocol.node_calls import NodeCalls
from ganeti.store import availability
from ganeti.system import clock
from ganeti.system.environment import own_hostname

T = TypeVar("T")

EXIT_UNKNOWN: Final = 1  # as of every command that fails
EXIT_LOOK: Final = 3
_MIB: Final = 1 << 20
_STAND_DOWN_S: Final = 8.0  # a few beats
_LOOK_S: Final = 0.2
_NODE_COLUMNS: Final = (
    *("Node", "Role", "Lease", Column("Watchdog", "number"), "Helper", "Fencing"),
    "If it died now",
)
_DISK_COLUMN: Final = 4  # where there is a lease disk
_MEMBER_COLUMNS: Final = ("Member of etcd", "Health", Column("Size", "unit"), "Answers after")


def _with_etcd(context: Context, do: Callable[[EtcdClient, Sight], Awaitable[T]]) -> T:
    """Look around, and let something be done with what was seen.

    Raises:
        OpPrereqError: high availability is off.
        GenericError: this node has no configuration, or etcd refuses.
    """
    settings = availability.read(context.paths)
    if settings is None:
        raise OpPrereqError("high availability is off ('gnt-cluster ha-enable' switches it on)")

    async def run() -> T:
        async with EtcdClient.of(settings, settings.timing.command_s) as etcd:
            return await do(etcd, await look_around(context.paths, settings, etcd))

    return asyncio.run(run())


async def _as_seen(_etcd: EtcdClient, sight: Sight) -> Sight:
    return sight


# --- status


def ha_status(context: Context, options: Options, args: list[str]) -> int:
    """Show what high availability sees, and what a loss would lead to."""
    sight = _with_etcd(context, _as_seen)
    seen, status = sight.seen, look(sight.seen)
    if options.if_lost:
        lost = [_node_of(seen, name) for name in options.if_lost]
        context.terminal.write_lines(list(forecast_lines(forecast(seen, lost))))
        return EXIT_UNKNOWN if status.trouble else 0
    if options.json:
        context.write(dumps(status).decode())
        return _exit_status(status)
    chosen = {_node_of(seen, name) for name in args}
    context.terminal.write_lines(list(_head(status)))
    shown = [each for each in status.nodes if not chosen or each.name in chosen]
    rows = [_row(each) for each in shown]
    columns: list[Column | str] = list(_NODE_COLUMNS)
    if status.lease_disk:
        columns.insert(_DISK_COLUMN, "Disk")
        for row, node in zip(rows, shown, strict=True):
            row.insert(_DISK_COLUMN, "held" if node.holds_disk else "-")
    style = style_of(context, options)
    context.terminal.write_lines(["", *format_plain(columns, rows, style)])
    if not chosen:
        members = [_member(url, each) for url, each in sight.health.items()]
        context.terminal.write_lines(["", *format_plain(_MEMBER_COLUMNS, members, style)])
    for node in status.nodes:
        if node.name in chosen:
            context.terminal.write_lines(["", *_details(node)])
    if status.warnings:
        context.terminal.write_lines(["", *(f"Warning: {each}" for each in status.warnings)])
    return _exit_status(status)


def _exit_status(status: Status) -> int:
    if status.trouble:
        return EXIT_UNKNOWN
    return EXIT_LOOK if status.warnings else 0


def _node_of(seen: Seen, name: str) -> str:
    """Return the node that is meant.

    Raises:
        OpPrereqError: there is none, or several.
    """
    found = meant_by(name, {each: each for each in seen.inventory.machines})
    if found is None:
        raise OpPrereqError(f"node {name!r} is not known", ErrorCode.NOENT)
    return found


def _head(status: Status) -> Iterator[str]:
    healthy = sum(not trouble for trouble in status.members.values())
    yield f"etcd:    {status.trouble or f'{healthy} of {len(status.members)} members answer'}"
    if status.trouble:
        yield f"Master:  {status.master}, by the configuration of this node"
    else:
        takers = ", ".join(status.may_take_over) or "nobody"
        yield f"Master:  {status.holder or 'nobody'} holds the lease; {takers} may take over"
    if status.lease_disk:
        held = sum(each.holds_disk for each in status.nodes)
        yield f"Disk:    {held} of {len(status.nodes)} nodes hold a lease on {status.lease_disk}"
    if status.alone:
        yield f"Alone:   {status.alone} goes on without the other candidate"
    if status.paused_until is not None:
        why = f": {status.paused_why}" if status.paused_why else ""
        yield f"Paused:  until {format_time(status.paused_until)}, by {status.paused_by}{why}"


def _row(node: NodeStatus) -> list[object]:
    lease = node.lease if node.since is None else f"{node.lease} {_since(node.since)}"
    return [
        node.name,
        node.role,
        lease,
        "-" if node.watchdog_s is None else f"{node.watchdog_s:g} s",
        "yes" if node.has_helper else "-",
        _fencing(node),
        _summary(node.if_lost),
    ]


def _since(moment: float) -> str:
    return time.strftime("since %H:%M:%S", time.localtime(moment))


def _fencing(node: NodeStatus) -> str:
    if node.fencing is None:
        return "-"
    said = node.fencing.trouble or f"it is {node.fencing.power}"
    return f"{format_time(node.fencing.at)}: {said}"


def _summary(what: Forecast) -> str:
    if what.nobody:
        return f"nothing: {what.nobody}"
    if what.unproved:
        return "; ".join(what.unproved.values())
    words = [f"{len(what.starts)} start"] if what.starts else []
    words += [f"{len(what.left)} do not"] if what.left else []
    words += [f"{what.takes_over[0]} takes over"] if what.takes_over else []
    return ", ".join(words) or "nothing runs there"


def _member(url: str, health: MemberHealth) -> list[object]:
    if health.trouble:
        return [url, health.trouble, None, "-"]
    said = "follows a leader" if health.leader else "has no leader"
    return [url, said, health.size_bytes / _MIB, f"{health.latency_s * 1000:.0f} ms"]


def _details(node: NodeStatus) -> Iterator[str]:
    yield f"{node.name}: {node.role}, lease {node.lease}"
    if node.proof:
        yield f"  dead: {node.proof}"
    if node.fencing is not None:
        yield f"  {node.fencing.by} told its helper to switch it off: {_fencing(node)}"
    for instance in node.outdated:
        yield f"  its copy of {instance} lacks writes"
    yield from (f"  {line}" for line in forecast_lines(node.if_lost))


def forecast_lines(what: Forecast) -> Iterator[str]:
    """Yield the lines that tell what a loss would lead to."""
    yield f"If {', '.join(what.nodes)} died now:"
    if what.nobody:
        yield f"  nobody would act: {what.nobody}"
    for name in what.nodes:
        yield f"  {name}: {what.proofs.get(name) or what.unproved[name]}"
    if what.takes_over:
        yield f"  may take over as the master: {', '.join(what.takes_over)}"
    for number, start in enumerate(what.starts, 1):
        yield f"  {number}. {start.instance} starts on {start.node}"
    for name in natural_sorted(what.left):
        yield f"  {name} does not start: {what.left[name]}"
    for name in what.unknown:
        yield f"  the free memory of {name} is not known: nothing is planned there"
    for line in what.commands:
        yield f"  once you know that it is off: {line}"


# --- what a person may say


def ha_pause(context: Context, options: Options, _args: list[str]) -> None:
    """Let nobody act on losses for a while.

    Raises:
        OpPrereqError: not exactly one of --until, --for and --end, or a time that is over.
    """
    now = clock.now()
    given = [each for each in (options.until, options.duration, options.end) if each]
    if len(given) != 1:
        raise OpPrereqError("one of --until, --for and --end says how long")
    if options.end:
        _with_etcd(context, lambda etcd, _sight: _change(etcd, [], Delete(PAUSE_KEY)))
        context.write("High availability is no longer paused.")
        return
    until = now + parse_duration(options.duration) if options.duration else 0.0
    until = until or moment(options.until, datetime.fromtimestamp(now))  # noqa: DTZ006 - local
    if until <= now:
        raise OpPrereqError(f"{format_time(until)} is over")
    pause = Pause(until=until, by=_person(), why=options.reason or "")
    armed = _with_etcd(context, lambda etcd, _sight: _pause(etcd, pause))
    context.write(f"Nobody acts on losses until {format_time(until)}.")
    if armed:
        names = ", ".join(natural_sorted(armed))
        context.write(f"Warning: the watchdog still runs on {names}; see 'gnt-cluster ha-status'.")


async def _pause(etcd: EtcdClient, pause: Pause) -> set[str]:
    """Pause it all; returns the nodes whose agent has not ended its watchdog in time."""
    await _change(etcd, [], Put(PAUSE_KEY, dumps(pause.to_wire())))
    until_s = clock.monotonic() + _STAND_DOWN_S
    while True:
        shelf = await etcd.read()
        guards = shelf.below(GUARDS, Guard)
        present = shelf.below(NODES, Presence).keys()
        armed = {name for name in present if name in guards and guards[name].watchdog_s is not None}
        if not armed or clock.monotonic() > until_s:
            return armed
        await asyncio.sleep(_LOOK_S)


def moment(text: str, now: datetime) -> float:
    """Return the time that a person means, in seconds since the epoch: the next 18:30, or a date.

    Raises:
        OpPrereqError: it cannot be understood.
    """
    try:
        if "-" in text:
            return datetime.fromisoformat(text).timestamp()
        found = datetime.fromisoformat(f"{now:%Y-%m-%d} {text}")
    except ValueError as err:
        wanted = "a time such as 18:30 or '2027-01-31 18:30'"
        raise OpPrereqError(f"{text!r} is not {wanted}") from err
    return (found if found > now else found + timedelta(days=1)).timestamp()


def _person() -> str:
    login = os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    return f"{login}@{own_hostname()}"


async def _change(
    etcd: EtcdClient, conditions: Sequence[Unchanged], *changes: Put | Delete
) -> None:
    """Make changes.

    Raises:
        OpPrereqError: what they are based on has changed meanwhile.
        TransportError: nobody knows whether it was done.
    """
    if not await etcd.change(conditions, *changes):
        raise OpPrereqError(
            "something has changed meanwhile, nothing was done; look at 'gnt-cluster ha-status'",
            ErrorCode.STATE,
        )


def ha_confirm_dead(context: Context, options: Options, args: list[str]) -> None:
    """Say that a node is off, where nothing else proves it."""

    async def do(etcd: EtcdClient, sight: Sight) -> str:
        seen, shelf = sight.seen, sight.shelf
        name = _node_of(seen, args[0])
        if shelf is None:
            raise TransportError(seen.trouble)
        _check_absent(context, seen, name)
        loss, guard = seen.losses.get(name), seen.guards.get(name)
        if loss is not None and loss.proof is not None:
            raise OpPrereqError(f"{name} is dead already ({loss.proof}, by {loss.by})")
        if not options.confirm:
            confirm(context, _promise(seen, name), option="--yes")
        if loss is None:
            boot_id = guard.boot_id if guard else ""
            uuid = f"{boot_id or name}@{shelf.revision}"
            loss = Loss(uuid=uuid, node=name, boot_id=boot_id, since=seen.now)
        keys = (MASTER_KEY, NODES + name, LOSSES + name, GUARDS + name)  # so of that boot
        conditions = [Unchanged(key, shelf.revision_of(key)) for key in keys]
        record = dumps(confirmed(loss, _person()).to_wire())
        await _change(etcd, conditions, Put(LOSSES + name, record))
        return name

    context.write(f"{_with_etcd(context, do)} counts as dead.")


def _check_absent(context: Context, seen: Seen, name: str) -> None:
    """Refuse a node that lives.

    Raises:
        OpPrereqError: it is present in etcd, or its daemon answers.
    """
    if name in seen.presences:
        raise OpPrereqError(f"{name} is not dead: its agent is there", ErrorCode.STATE)
    target = Target(name, seen.inventory.machines[name].address)
    with NodeRpcClient(context.paths) as rpc:
        answer = rpc.call_one(NodeCalls.version, target)
    if answer.error is None:
        text = f"{name} is not dead: its node daemon answers; switch it off first"
        raise OpPrereqError(text, ErrorCode.STATE)


def _promise(seen: Seen, name: str) -> str:
    guests = natural_sorted(each.name for each in seen.inventory.guests if each.node == name)
    shown = ", ".join(guests) or "none"
    return (
        f"You promise that {name} is off, and stays off until it boots anew.  Its instances"
        f" ({shown}) may then start on other nodes at once.\nIf it still runs, or comes back from"
        " being cut off, they run twice, and their data is destroyed.  Go on?"
    )


def ha_accept_copy(context: Context, options: Options, args: list[str]) -> None:
    """Let an instance start from a copy of its disks that lacks writes."""

    async def do(etcd: EtcdClient, sight: Sight) -> str:
        seen, shelf = sight.seen, sight.shelf
        if shelf is None:
            raise TransportError(seen.trouble)
        name = meant_by(args[0], {each: each for each in seen.inventory.ports})
        if name is None:
            raise OpPrereqError(f"instance {args[0]!r} is not known", ErrorCode.NOENT)
        node = _node_of(seen, options.node) if options.node else ""
        found = _records_of(seen, name, node)
        if not found:
            raise OpPrereqError(f"no copy of {name} lacks writes, as far as etcd knows")
        if not options.confirm:
            confirm(context, _given_up(seen, name, found), option="--yes")
        conditions = [Unchanged(key, shelf.revision_of(key)) for key in found]
        await _change(etcd, conditions, *map(Delete, found))
        return name

    context.write(f"{_with_etcd(context, do)} may start from that copy.")


def _records_of(seen: Seen, instance: str, node: str) -> dict[str, Outdated]:
    """Return the records of the copies of an instance's disks; of those on one node, if named."""
    nodes = [node] if node else list(seen.inventory.machines)
    keys = [outdated_key(each, port) for each in nodes for port in seen.inventory.ports[instance]]
    return {key: seen.outdated[key] for key in keys if key in seen.outdated}


def _given_up(seen: Seen, instance: str, found: Mapping[str, Outdated]) -> str:
    lines = []
    for key, record in found.items():
        _, node, _ = key.split("/")
        there = " (it is there now)" if record.by in seen.presences else ""
        since = format_time(record.since)
        lines.append(f"  {node}: {record.by}{there} may have written alone since {since}")
    return (
        f"Copies of disks of {instance} lack writes:\n"
        + "\n".join(lines)
        + "\nIf it starts from such a copy, the later writes of the other one are given up for"
        " ever.  Go on?"
    )


_YES: Final = opt.flag("--yes -> confirm", "do not ask")

COMMANDS: Final = (
    command(
        ha_status,
        "[<node>...]:node",
        opt.commas("--if-lost=NODE,...", "only tell what the loss of these nodes would lead to"),
        opt.flag("--json", "everything, as JSON"),
        "--no-headers --separator",
        description=f"""Works on every master candidate, whatever happened to the master: it asks
etcd, the nodes for their memory, and this node's own configuration.  With names of nodes, it tells
in detail what the death of each would lead to.  The exit status is 0 if all is well, {EXIT_LOOK} if
somebody should look at the warnings, {EXIT_UNKNOWN} if etcd does not answer or high availability is
off.""",
        examples="""
gnt-cluster ha-status  # what is, and what the loss of each node would lead to
gnt-cluster ha-status node2  # which instances start where if node2 dies, and in which order
gnt-cluster ha-status --if-lost=node2,node3  # both at once""",
    ),
    command(
        ha_pause,
        opt.option("--until=TIME", "until then: 18:30, or '2027-01-31 18:30'"),
        opt.option("--for=DURATION -> duration", "for so long: 90, 30m, 4h, 2d"),
        opt.flag("--end", "act on losses again"),
        description="""While it lasts no node is fenced, no instance is restarted, and no candidate
takes over.  No watchdog runs, so no node is reset when it is cut off, or stopped after the others;
one that is still away at the end can only be proved dead by its helper, or by you.  It ends by
itself.""",
        examples="""
gnt-cluster ha-pause --for=2h --reason='new switch'  # before work on the network
gnt-cluster ha-pause --until=18:30 --reason='new power'  # before all nodes are stopped
gnt-cluster ha-pause --end  # after it""",
    ),
    command(
        ha_confirm_dead,
        "<node>",
        _YES,
        description="""Where neither a watchdog nor a helper proves that a missed node is dead,
nothing of it starts elsewhere until somebody who knows it says so.  A node that is there, or whose
node daemon answers, is refused.""",
        examples=f"{CONFIRM_COMMAND} node2  # its power cable is in my hand",
    ),
    command(
        ha_accept_copy,
        "<instance>",
        opt.option("--node", "only its copy on that node", completes=ArgKind.NODE),
        _YES,
        description="""A copy of a disk that was left behind is not started from while etcd says so.
If the node with the newer copy is lost for good, or may be away for too long, this lets the older
one be used.  What the other copy has more is overwritten when it comes back.""",
        examples="gnt-cluster ha-accept-copy --node=node3 web1  # go on with what node3 has",
    ),
)
