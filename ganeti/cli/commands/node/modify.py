"""``gnt-node`` modify and remove."""

from __future__ import annotations

from ganeti.base.errors import OpPrereqError
from ganeti.cli.commands.instance.modify import show_changes
from ganeti.cli.commands.instance.parameters import unset_as_default
from ganeti.cli.commands.node.add import disk_state
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.confirm import confirm
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.jobs import execute, make_opcode


def modify(context: Context, options: Options, args: list[str]) -> int:
    """Change flags and parameters of a node."""
    [name] = args
    wanted: dict[str, object] = {
        "master_candidate": options.master_candidate,
        "offline": options.offline,
        "drained": options.drained,
        "master_capable": options.master_capable,
        "vm_capable": options.vm_capable,
        "secondary_ip": options.secondary_ip,
        "powered": options.node_powered,
        "ndparams": unset_as_default(options.ndparams) if options.ndparams else None,
        "hv_state": dict(options.hv_state) or None,
        "disk_state": disk_state(options.disk_state) or None,
    }
    if all(value is None for value in wanted.values()):
        raise OpPrereqError("nothing to change; give at least one option")
    if options.offline and not options.force and context.terminal.is_interactive:
        confirm(context, f"The master will not talk to node {name} any more.  Go on?")
    opcode = make_opcode(
        "OP_NODE_SET_PARAMS",
        node_name=name,
        force=options.force,
        auto_promote=options.auto_promote,
        **wanted,
    )
    [result] = execute(context, options, opcode)
    show_changes(context, f"Modified node {name}", result)
    return EXIT_SUCCESS


def remove(context: Context, options: Options, args: list[str]) -> int:
    """Take a node out of the cluster."""
    [name] = args
    execute(context, options, make_opcode("OP_NODE_REMOVE", node_name=name))
    return EXIT_SUCCESS
