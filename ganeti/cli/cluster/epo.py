"""``gnt-cluster epo``: the emergency power-off of nodes, and the way back.

Off: the instances of the nodes stop and remember that they ran, the nodes are marked offline, and
the out-of-band helper switches them off.  On: the same backwards.  The master node, and a node
without a helper, is never switched; its administrator does that by hand.

Source: cli.json, "epo"; the manual page of gnt-cluster 3.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, GenericError, OpPrereqError, ProtocolError, TransportError
from ganeti.base.text import natural_sorted
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options, command, confirm, opt
from ganeti.cli.run.failures import explain
from ganeti.cli.run.jobs import JobGroup, execute, make_opcode
from ganeti.cli.run.listing import rows_of_nodes
from ganeti.objects.query_words import ResultStatus
from ganeti.opcodes.instance import OpInstanceShutdown, OpInstanceStartup
from ganeti.opcodes.node import OpNodeSetParams, OpOobCommand
from ganeti.opcodes.opcode import OpCode
from ganeti.protocol.node_rpc import DEFAULT_PORT
from ganeti.system import clock
from ganeti.transport.addresses import serves

_FIELDS: Final = ("name", "master", "offline", "powered", "pinst_list", "group", "pip")
REACHABLE_TIMEOUT_S: Final = 900.0  # machines take minutes to start
REACHABLE_STEP_S: Final = 5.0
PING_TIMEOUT_S: Final = 10.0  # constants.json, TCP_PING_TIMEOUT


@dataclass(frozen=True, slots=True)
class EpoNode:
    """A node to be switched; ``powered`` is None where no helper can do it."""

    name: str
    is_master: bool
    offline: bool
    powered: bool | None
    instances: Sequence[str]
    group: str
    address: str


def epo(context: Context, options: Options, args: list[str]) -> int:
    """Switch nodes off in an emergency."""
    if options.show_all and args:
        raise OpPrereqError("give either --all or names, not both")
    if options.show_all and options.groups:
        raise OpPrereqError("give either --all or --groups, not both")
    if not options.show_all and not args:
        raise OpPrereqError("name the nodes, or give --all")
    nodes = chosen_nodes(context, args, by_group=bool(options.groups))
    _check(nodes, everything=bool(options.show_all))
    others = [node for node in nodes if not node.is_master and node.powered is not None]
    for node in nodes:
        if not node.is_master and node.powered is None:
            context.write(
                f"Node {node.name} has no out-of-band helper and stays as it is; switch it by hand."
            )
    if not options.force:
        what = "power on" if options.on else "power off"
        names = ", ".join(node.name for node in others) or "no node"
        at = ", ".join(node.name for node in nodes)
        confirm(context, f"This is to {what} {names}, with all instances on {at}.  Go on?")
    work = _switch_on if options.on else _switch_off
    if not work(context, options, nodes, others):
        return EXIT_FAILURE
    if any(node.is_master for node in nodes) and not options.on:
        context.write("The master node was left on; switch it off by hand.")
    return EXIT_SUCCESS


def chosen_nodes(context: Context, names: Sequence[str], *, by_group: bool) -> list[EpoNode]:
    """Return the nodes named, those of groups named, or all.

    Raises:
        OpPrereqError: a node or group is not known.
    """
    rows = rows_of_nodes(context, [] if by_group else names, _FIELDS)
    nodes = [EpoNode(*row) for row in rows]  # type: ignore[arg-type]  # as of _FIELDS
    if not by_group:
        return nodes
    known = {str(row[0]) for row in context.client.query_groups([], ["name"])}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise OpPrereqError(
            f"node group {unknown[0]!r} is not known; see 'gnt-group list'", ErrorCode.NOENT
        )
    return [node for node in nodes if node.group in names]


def _check(nodes: Sequence[EpoNode], *, everything: bool) -> None:
    """Refuse to cut the master off from the rest.

    Raises:
        OpPrereqError: naming it.
    """
    masters = [node.name for node in nodes if node.is_master]
    if masters and not everything:
        raise OpPrereqError(
            f"node {masters[0]} is the master node; use --all, or make a node that stays on the"
            " master first ('gnt-cluster master-failover')"
        )


def _instances(nodes: Sequence[EpoNode]) -> list[str]:
    return natural_sorted(name for node in nodes for name in node.instances)


def _switch_off(
    context: Context, options: Options, nodes: Sequence[EpoNode], others: Sequence[EpoNode]
) -> bool:
    """Stop instances, mark nodes offline, cut the power; goes no further where something fails."""
    names = _instances([node for node in nodes if not node.offline])
    timeout = options.shutdown_timeout
    if not _on_instances(context, options, names, OpInstanceShutdown, timeout=timeout):
        context.terminal.error("Not all instances could be stopped, so no node is switched off.")
        return False
    if not others:
        return True
    marks = [_mark(node, offline=True) for node in others if not node.offline]
    *_, rows = execute(context, options, *marks, _power(options, others, "power-off"))
    return _all_switched(rows)


def _switch_on(
    context: Context, options: Options, nodes: Sequence[EpoNode], others: Sequence[EpoNode]
) -> bool:
    """Give power, wait for the nodes, take them back and start their instances."""
    dark = [node for node in others if not node.powered]
    is_well = True
    if dark:
        [rows] = execute(context, options, _power(options, dark, "power-on"))
        is_well = _all_switched(rows)
    away = [node for node in others if node.offline]
    late = _wait_for(context, away)
    stay = _take_back(context, options, [node for node in away if node not in late])
    for node in late:
        context.terminal.error(
            f"Node {node.name} does not answer; see to it, then run: gnt-cluster epo --on"
            f" {node.name}"
        )
    names = _instances([node for node in nodes if node not in (*late, *stay)])
    is_well = is_well and not (late or stay)
    return _on_instances(context, options, names, OpInstanceStartup) and is_well


def _take_back(context: Context, options: Options, nodes: Sequence[EpoNode]) -> list[EpoNode]:
    """Mark nodes online, each in a job of its own: one that cannot be keeps no other offline.

    Returns:
        The nodes that stay offline, which are told.
    """
    stay = []
    for node in nodes:
        try:
            execute(context, options, _mark(node, offline=False))
        except (TransportError, ProtocolError):
            raise  # LuxiD is lost, and takes no other node back either
        except GenericError as err:
            context.terminal.error(f"Node {node.name} stays offline: {explain(err)[0]}")
            stay.append(node)
    return stay


def _mark(node: EpoNode, *, offline: bool) -> OpCode:
    return make_opcode(OpNodeSetParams, node_name=node.name, offline=offline, auto_promote=True)


def _all_switched(rows: object) -> bool:
    """Tell whether the helper worked for all nodes; the job names the nodes where it failed."""
    return isinstance(rows, list) and all(row[1][0] == ResultStatus.NORMAL for row in rows)


def _wait_for(context: Context, nodes: Sequence[EpoNode]) -> list[EpoNode]:
    """Wait until the daemons of nodes answer; returns the nodes that do not answer in time."""
    waiting = list(nodes)
    deadline_s = clock.monotonic() + REACHABLE_TIMEOUT_S
    while waiting:
        context.write(f"Waiting for {', '.join(node.name for node in waiting)}")
        waiting = [node for node in waiting if not _is_up(node)]
        if not waiting or clock.monotonic() > deadline_s:
            break
        clock.pause(REACHABLE_STEP_S)
    return waiting


def _is_up(node: EpoNode) -> bool:
    return serves(node.address, DEFAULT_PORT, PING_TIMEOUT_S)


def _on_instances(
    context: Context, options: Options, names: Sequence[str], kind: type[OpCode], **params: object
) -> bool:
    """Start or stop the instances whose recorded state is up, and leave that state as it is."""
    rows = context.client.query_instances(list(names), ["name", "admin_state"]) if names else []
    meant = [str(name) for name, state in rows if state == "up"]
    if not meant:
        return True
    group = JobGroup(context, options)
    for name in meant:
        group.add(name, make_opcode(kind, instance_name=name, no_remember=True, **params))
    try:
        return group.run() == EXIT_SUCCESS
    except GenericError as err:
        context.terminal.error(explain(err)[0])
        return False


def _power(options: Options, nodes: Sequence[EpoNode], command: str) -> OpCode:
    return make_opcode(
        OpOobCommand,
        node_names=[node.name for node in nodes],
        command=command,
        ignore_status=True,
        timeout=options.timeout,
        power_delay=options.power_delay,
    )


COMMANDS: Final = (
    command(
        epo,
        "[<text>...]@node --force --oob-timeout --power-delay --shutdown-timeout",
        opt.flag("--all -> show_all", "all nodes"),
        opt.flag("--groups", "the arguments are groups"),
        opt.flag("--on", "switch them on again"),
        description="""Stops the instances of the nodes, marks the nodes offline and switches them
off by the out-of-band helper; with --on the same backwards: power, waiting until the nodes answer,
and the instances that ran before.  Nothing is switched off while an instance does not stop.  The
master node is never switched; when it is among the nodes, all must be meant (--all).""",
        examples="""
gnt-cluster epo --all  # the air conditioning has failed
gnt-cluster epo --on --all  # it works again
gnt-cluster epo --groups rack1  # the nodes of one group""",
    ),
)
