"""``gnt-instance`` modify and rename."""

from __future__ import annotations

from ganeti.base.errors import OpPrereqError
from ganeti.cli.commands.instance.devices import changes, disk_settings, nic_settings
from ganeti.cli.commands.instance.parameters import backend_parameters, unset_as_default
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.confirm import confirm
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.jobs import execute, make_opcode


def modify(context: Context, options: Options, args: list[str]) -> int:
    """Change an instance."""
    [name] = args
    if options.offline and options.online:
        raise OpPrereqError("give either --offline or --online, not both")
    wanted: dict[str, object] = {
        "beparams": backend_parameters(options.beparams),
        "hvparams": unset_as_default(options.hvparams),
        "osparams": unset_as_default(options.osparams),
        "osparams_private": options.osparams_private or None,
        "disks": changes(options.disks, disk_settings),
        "nics": changes(options.nics, nic_settings),
        "disk_template": options.disk_template,
        "ext_params": options.ext_params,
        "file_driver": options.file_driver,
        "file_storage_dir": options.file_storage_dir,
        "pnode": options.new_primary,
        "remote_node": options.node,
        "iallocator": options.iallocator,
        "os_name": options.os_type,
        "runtime_mem": options.runtime_memory,
        "offline": True if options.offline else (False if options.online else None),
        "instance_communication": options.instance_communication,
    }
    if not any(value not in (None, {}, []) for value in wanted.values()):
        raise OpPrereqError("nothing to change; give at least one option")
    opcode = make_opcode(
        "OP_INSTANCE_SET_PARAMS",
        instance_name=name,
        force=options.force,
        force_variant=options.force_variant,
        ignore_ipolicy=options.ignore_ipolicy,
        wait_for_sync=options.wait_for_sync,
        conflicts_check=options.conflicts_check,
        hotplug=options.hotplug,
        hotplug_if_possible=options.hotplug_if_possible,
        **wanted,
    )
    [result] = execute(context, options, opcode)
    show_changes(context, f"Modified instance {name}", result)
    return EXIT_SUCCESS


def show_changes(context: Context, title: str, result: object) -> None:
    """Print what an operation that changes parameters says it changed."""
    changed = result if isinstance(result, list) else []
    if not changed:
        return
    context.write(title)
    for parameter, value in changed:
        context.write(f" - {parameter:<24} -> {value}")


def rename(context: Context, options: Options, args: list[str]) -> int:
    """Rename an instance."""
    name, new_name = args
    if not options.name_check and not options.force:
        confirm(context, f"The name {new_name} is taken as it is, resolved or not.  Go on?")
    opcode = make_opcode(
        "OP_INSTANCE_RENAME",
        instance_name=name,
        new_name=new_name,
        ip_check=options.ip_check and options.name_check,
        name_check=options.name_check,
    )
    [final_name] = execute(context, options, opcode)
    if isinstance(final_name, str):
        context.write(f"Instance {name} is now called {final_name}")
    return EXIT_SUCCESS
