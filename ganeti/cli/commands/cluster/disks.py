"""``gnt-cluster`` verify-disks and repair-disk-sizes."""

from __future__ import annotations

from collections.abc import Mapping

from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_FAILURE, EXIT_SUCCESS
from ganeti.cli.run.jobs import execute, make_opcode, results_of_all, submitted_jobs


def verify_disks(context: Context, options: Options, _args: list[str]) -> int:
    """Look for the disks of all instances that are to be ready; say what is missing."""
    opcode = make_opcode("OP_CLUSTER_VERIFY_DISKS", group_name=options.node_group)
    [result] = execute(context, options, opcode)
    failures, results = results_of_all(context, submitted_jobs(result))
    is_well = not failures
    for [answer] in results:
        match answer:
            case [{**failing}, [*_to_activate], {**missing}]:
                is_well = _tell(context, failing, missing) and is_well
    return EXIT_SUCCESS if is_well else EXIT_FAILURE


def _tell(
    context: Context, failing: Mapping[object, object], missing: Mapping[object, object]
) -> bool:
    """Say what was found; returns whether all is well."""
    for node, text in failing.items():
        context.terminal.error(f"Node {node} cannot be asked: {text}")
    for instance, disks in missing.items():
        context.write(f"Instance {instance} has missing disks:")
        for node, disk in disks if isinstance(disks, list) else []:
            context.write(f"  {node} {disk}")
        context.write(f"  To make them anew, empty: gnt-instance recreate-disks {instance}")
    return not failing and not missing


def repair_disk_sizes(context: Context, options: Options, args: list[str]) -> int:
    """Write down the real sizes of disks."""
    [result] = execute(
        context, options, make_opcode("OP_CLUSTER_REPAIR_DISK_SIZES", instances=args)
    )
    changed = result if isinstance(result, list) else []
    for instance, index, what, value in changed:
        context.write(f"Disk {index} of instance {instance}: {what} is {value} MiB")
    if not changed:
        context.write("All recorded sizes are right.")
    return EXIT_SUCCESS
