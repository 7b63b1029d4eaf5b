"""``gnt-node`` evacuate, failover and migrate."""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.base.text import natural_sorted
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.confirm import confirm
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.jobs import JobGroup, execute, follow_moves, make_opcode
from ganeti.cli.run.nodes import rows_of_nodes

_EVACUATED: Final = {
    (False, False): ("all", "all instances"),
    (True, False): ("primary-only", "all instances whose primary node it is"),
    (False, True): ("secondary-only", "all instances whose secondary node it is"),
}


def evacuate(context: Context, options: Options, args: list[str]) -> int:
    """Move instances away from a node; the exit status tells whether all of them went."""
    [name] = args
    found = _EVACUATED.get((options.primary_only, options.secondary_only))
    if found is None:
        raise OpPrereqError("give either --primary-only or --secondary-only, not both")
    mode, what = found
    if not options.force:
        confirm(context, f"This moves {what} away from node {name}.  Go on?")
    opcode = make_opcode(
        "OP_NODE_EVACUATE",
        node_name=name,
        remote_node=options.new_secondary,
        iallocator=options.iallocator,
        mode=mode,
        early_release=options.early_release,
        ignore_soft_errors=options.ignore_soft_errors or None,
    )
    [result] = execute(context, options, opcode)
    return follow_moves(context, result)


def migrate(context: Context, options: Options, args: list[str]) -> int:
    """Migrate the primary instances of a node; the exit status tells whether all of them went."""
    [name] = args
    if not options.live and options.migration_mode is not None:
        raise OpPrereqError("give either --non-live or --migration-mode, not both")
    if not options.force:
        confirm(context, f"This migrates all instances that run on node {name}.  Go on?")
    opcode = make_opcode(
        "OP_NODE_MIGRATE",
        node_name=name,
        mode=options.migration_mode if options.live else "non-live",
        target_node=options.target_node,
        iallocator=options.iallocator,
        allow_runtime_changes=options.allow_runtime_changes,
        ignore_ipolicy=options.ignore_ipolicy,
    )
    [result] = execute(context, options, opcode)
    return follow_moves(context, result)


def _without_planned(context: Context, names: list[str]) -> list[str]:
    """Leave out the instances that are not made yet, which nobody can fail over, and name them."""
    rows = context.client.query_instances(names, ["name", "forthcoming"]) if names else []
    planned = {str(name) for name, is_forthcoming in rows if is_forthcoming is True}
    for name in natural_sorted(planned):
        context.terminal.error(
            f"Warning: instance {name} is not made yet, only planned; make it on another node with"
            f" 'gnt-instance add --commit -n NODE {name}', or drop it with 'gnt-instance remove"
            f" {name}'."
        )
    return [name for name in names if name not in planned]


def failover(context: Context, options: Options, args: list[str]) -> int:
    """Fail over the primary instances of a node, each in a job of its own."""
    [name] = args
    rows = rows_of_nodes(context, [name], ["name", "pinst_list"])
    [[full_name, found]] = rows
    names = [str(each) for each in found] if isinstance(found, list) else []
    names = _without_planned(context, names)
    if not names:
        context.terminal.error(f"Node {full_name} has no primary instances, nothing to do.")
        return EXIT_SUCCESS
    if not options.force:
        confirm(context, f"This fails over the instances {', '.join(names)}.  Go on?")
    jobs = JobGroup(context, options)
    for instance in names:
        opcode = make_opcode(
            "OP_INSTANCE_FAILOVER",
            instance_name=instance,
            ignore_consistency=options.ignore_consistency,
            iallocator=options.iallocator,
            target_node=options.target_node,
        )
        jobs.add(instance, opcode)
    return jobs.run()
