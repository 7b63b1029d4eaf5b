"""``gnt-instance`` change-group, failover, migrate and move."""

from __future__ import annotations

from ganeti.base.errors import OpPrereqError
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.confirm import confirm
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.jobs import execute, follow_moves, make_opcode


def failover(context: Context, options: Options, args: list[str]) -> int:
    """Stop an instance and start it on another node."""
    [name] = args
    _one_way_to_choose(options)
    if not options.force and not options.cleanup:
        confirm(context, f"This stops instance {name} and starts it on another node.  Go on?")
    opcode = make_opcode(
        "OP_INSTANCE_FAILOVER",
        instance_name=name,
        ignore_consistency=options.ignore_consistency,
        shutdown_timeout=options.shutdown_timeout,
        target_node=options.target_node,
        iallocator=options.iallocator,
        ignore_ipolicy=options.ignore_ipolicy,
        cleanup=options.cleanup,
    )
    execute(context, options, opcode)
    return EXIT_SUCCESS


def migrate(context: Context, options: Options, args: list[str]) -> int:
    """Move a running instance to another node."""
    [name] = args
    _one_way_to_choose(options)
    if not options.live and options.migration_mode is not None:
        raise OpPrereqError("give either --non-live or --migration-mode, not both")
    if not options.force:
        what = (
            f"This finds out where instance {name} runs and records that.  Go on?"
            if options.cleanup
            else f"This moves the running instance {name} to another node.  Go on?"
        )
        confirm(context, what)
    opcode = make_opcode(
        "OP_INSTANCE_MIGRATE",
        instance_name=name,
        mode=options.migration_mode if options.live else "non-live",
        cleanup=options.cleanup,
        iallocator=options.iallocator,
        target_node=options.target_node,
        allow_failover=options.allow_failover,
        allow_runtime_changes=options.allow_runtime_changes,
        ignore_ipolicy=options.ignore_ipolicy,
        ignore_hvversions=options.ignore_hvversions,
    )
    execute(context, options, opcode)
    return EXIT_SUCCESS


def move(context: Context, options: Options, args: list[str]) -> int:
    """Copy the disks of an instance to another node, and run it there."""
    [name] = args
    if options.node is None:
        raise OpPrereqError("give the node to move to with -n NODE")
    if not options.force:
        confirm(context, f"This stops instance {name} and copies its disks.  Go on?")
    opcode = make_opcode(
        "OP_INSTANCE_MOVE",
        instance_name=name,
        target_node=options.node,
        shutdown_timeout=options.shutdown_timeout,
        ignore_consistency=options.ignore_consistency,
        ignore_ipolicy=options.ignore_ipolicy,
        compress=options.compress,
    )
    execute(context, options, opcode)
    return EXIT_SUCCESS


def _one_way_to_choose(options: Options) -> None:
    if options.iallocator is not None and options.target_node is not None:
        raise OpPrereqError("give either a target node or an allocator, not both")


def change_group(context: Context, options: Options, args: list[str]) -> int:
    """Move an instance to another group."""
    opcode = make_opcode(
        "OP_INSTANCE_CHANGE_GROUP",
        instance_name=args[0],
        early_release=options.early_release,
        iallocator=options.iallocator,
        target_groups=list(options.to) or None,
    )
    [result] = execute(context, options, opcode)
    return follow_moves(context, result)
