"""``gnt-backup`` export, import and remove."""

from __future__ import annotations

from ganeti.base.errors import OpPrereqError
from ganeti.cli.commands.instance.add import settings_of_new
from ganeti.cli.commands.instance.devices import disk_settings, in_order, nics_for_create
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.confirm import confirm
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_FAILURE, EXIT_SUCCESS
from ganeti.cli.run.jobs import execute, make_opcode


def export(context: Context, options: Options, args: list[str]) -> int:
    """Export an instance to a node."""
    [name] = args
    if options.node is None:
        raise OpPrereqError("name the node to export to, with -n NODE")
    if options.remove_instance and not options.force:
        confirm(context, f"This removes instance {name} once it is exported.  Go on?")
    opcode = make_opcode(
        "OP_BACKUP_EXPORT",
        instance_name=name,
        target_node=options.node,
        compress=options.transport_compression,
        shutdown=options.shutdown,
        shutdown_timeout=options.shutdown_timeout,
        remove_instance=options.remove_instance,
        ignore_remove_failures=options.ignore_remove_failures,
        zero_free_space=options.zero_free_space,
        zeroing_timeout_fixed=options.zeroing_timeout_fixed,
        zeroing_timeout_per_mib=options.zeroing_timeout_per_mib,
        long_sleep=options.long_sleep,
        mode="local",
    )
    [result] = execute(context, options, opcode)
    match result:
        case None if options.dry_run:
            return EXIT_SUCCESS
        case [True, list(disks)] if all(disks):
            return EXIT_SUCCESS
        case [_, list(disks)]:
            failed = ", ".join(str(index) for index, good in enumerate(disks) if not good)
            context.terminal.error(f"The export of {name} is not complete; disks: {failed or '-'}")
    return EXIT_FAILURE


def import_(context: Context, options: Options, args: list[str]) -> int:
    """Create an instance from an export."""
    [name] = args
    if options.no_nics:
        raise OpPrereqError("an import has the NICs of the export, or those given with --net")
    if options.os_size is not None and options.disks:
        raise OpPrereqError("give either -s or --disk, not both")
    disks = (
        [{"size": options.os_size}]
        if options.os_size is not None
        else [disk_settings(index, values) for index, values in in_order("disk", options.disks)]
        if options.disks
        else []
    )
    opcode = make_opcode(
        "OP_INSTANCE_CREATE",
        **settings_of_new(options),
        mode="import",
        instance_name=name,
        src_node=options.src_node,
        src_path=options.src_dir,
        compress=options.compress,
        disks=disks,
        nics=nics_for_create(options.nics, no_nics=False) if options.nics else [],
        start=False,
        identify_defaults=options.identify_defaults,
    )
    execute(context, options, opcode)
    return EXIT_SUCCESS


def remove(context: Context, options: Options, args: list[str]) -> int:
    """Remove an export from all nodes."""
    [name] = args
    execute(context, options, make_opcode("OP_BACKUP_REMOVE", instance_name=name))
    return EXIT_SUCCESS
