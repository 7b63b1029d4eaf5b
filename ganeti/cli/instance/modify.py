"""``gnt-instance`` modify and rename."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import OpPrereqError
from ganeti.cli.command import Context, Options, command, opt
from ganeti.cli.instance import devices
from ganeti.cli.run.binding import NOTHING_TO_CHANGE, ask, bound, has_changes, show_changes, submit
from ganeti.cli.run.jobs import execute
from ganeti.opcodes.instance import OpInstanceRename, OpInstanceSetParams


def device_changes(options: Options) -> Mapping[str, object]:
    """Return the changes of disks and interfaces, and of whether the instance is offline."""
    return {
        "disks": devices.changes(options.disks, devices.disk_settings),
        "nics": devices.changes(options.nics, devices.nic_settings),
        "offline": True if options.offline else False if options.online else None,
    }


def modify(context: Context, options: Options, args: list[str]) -> None:
    """Change an instance."""
    is_marked = options.offline or options.online
    if not is_marked and not has_changes(context.command, options):
        raise OpPrereqError(NOTHING_TO_CHANGE)
    opcode = bound(context.command, options, args)
    [result] = execute(context, options, opcode)
    show_changes(context, opcode, result)


def rename(context: Context, options: Options, args: list[str]) -> None:
    """Rename an instance."""
    name, new_name = args
    if not options.name_check:
        question = f"The name {new_name} is taken as it is, resolved or not.  Go on?"
        ask(context, context.command, options, args, question)
    ip_check = options.ip_check and options.name_check
    final_name = submit(context, options, args, ip_check=ip_check)
    if isinstance(final_name, str):
        context.write(f"Instance {name} is now called {final_name}")


COMMANDS: Final = (
    command(
        modify,
        "<instance> --backend-parameters --communication --disk --dry-run",
        "--file-storage-dir --force --force-variant --iallocator --ignore-ipolicy",
        "--net --no-conflicts-check --no-wait-for-sync --os-parameters --os-parameters-private",
        "SUBMISSION",
        devices.DISK_KIND,
        opt.pairs("-e --ext-params", "parameters for the conversion to external storage"),
        opt.flag("--hotplug", "change devices of the running instance, or fail"),
        opt.flag("--hotplug-if-possible", "change devices of the running instance where it can"),
        opt.INSTANCE_HYPERVISOR_PARAMETERS,
        opt.option("--new-primary=<node> -> pnode", "the new primary node"),
        opt.with_help(opt.NODE, "the new secondary node", "remote_node"),
        opt.flag("--offline", "mark the instance as offline: never to be started"),
        opt.flag("--online", "mark an offline instance as down"),
        replace(opt.OS_TYPE, dest="os_name"),
        opt.size("-m --runtime-memory=<size> -> runtime_mem", "memory of the running guest"),
        opcode=OpInstanceSetParams,
        makes=device_changes,
        exclusive=(("--offline", "--online"),),
    ),
    command(
        rename,
        "<instance> <new-name>:host=new_name --force --no-ip-check --no-name-check CHANGE",
        description="""The instance must be stopped.  A rename that was cut off is completed by
running it again; with the name that the instance has as the new one, the directory of its disks is
put back.""",
        opcode=OpInstanceRename,
    ),
)
