"""``gnt-instance`` modify and rename."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import OpPrereqError
from ganeti.cli.command import ArgKind, Context, Options, command, opt
from ganeti.cli.declaration.values import KeyValues
from ganeti.cli.instance.devices import (
    DISK_TEMPLATE,
    FILE_DRIVER,
    changes,
    disk_settings,
    nic_settings,
)
from ganeti.cli.run.binding import NOTHING_TO_CHANGE, ask, bound, has_changes, show_changes
from ganeti.cli.run.jobs import execute
from ganeti.opcodes.instance import OpInstanceRename, OpInstanceSetParams


def device_changes(options: Options) -> Mapping[str, object]:
    """Return the changes of disks and interfaces, and of whether the instance is offline."""
    return {
        "disks": changes(options.disks, disk_settings),
        "nics": changes(options.nics, nic_settings),
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
        ask(context, context.command, options, question)
    ip_check = options.ip_check and options.name_check
    opcode = bound(context.command, options, args, ip_check=ip_check)
    [final_name] = execute(context, options, opcode)
    if isinstance(final_name, str):
        context.write(f"Instance {name} is now called {final_name}")


COMMANDS: Final = (
    command(
        modify,
        opt.ONE_INSTANCE,
        (
            opt.BACKEND_PARAMETERS,
            opt.COMMUNICATION,
            opt.DISK,
            DISK_TEMPLATE,
            opt.DRY_RUN,
            opt.option(
                "-e --ext-params",
                "parameters for the conversion to external storage",
                KeyValues,
                default={},
            ),
            FILE_DRIVER,
            opt.FILE_STORAGE_DIR,
            opt.FORCE,
            opt.FORCE_VARIANT,
            opt.flag("--hotplug", "change devices of the running instance, or fail"),
            opt.flag(
                "--hotplug-if-possible", "change devices of the running instance where it can"
            ),
            opt.INSTANCE_HYPERVISOR_PARAMETERS,
            opt.IALLOCATOR,
            opt.IGNORE_IPOLICY,
            opt.NET,
            opt.option(
                "--new-primary",
                "the new primary node",
                metavar="<node>",
                dest="pnode",
                completes=ArgKind.NODE,
            ),
            opt.NO_CONFLICTS_CHECK,
            opt.NO_WAIT_FOR_SYNC,
            replace(opt.NODE, help="the new secondary node", dest="remote_node"),
            opt.flag("--offline", "mark the instance as offline: never to be started"),
            opt.flag("--online", "mark an offline instance as down"),
            opt.OS_PARAMETERS,
            opt.OS_PARAMETERS_PRIVATE,
            replace(opt.OS_TYPE, dest="os_name"),
            *opt.SUBMISSION,
            opt.size(
                "-m --runtime-memory",
                "memory of the running guest",
                metavar="<size>",
                dest="runtime_mem",
            ),
        ),
        opcode=OpInstanceSetParams,
        makes=device_changes,
        exclusive=(("--offline", "--online"),),
    ),
    command(
        rename,
        (
            opt.Argument(ArgKind.INSTANCE),
            opt.Argument(ArgKind.HOST, metavar="<new-name>", dest="new_name"),
        ),
        (opt.FORCE, opt.NO_IP_CHECK, opt.NO_NAME_CHECK, *opt.CHANGE),
        description="""The instance must be stopped.  A rename that was cut off is completed by
running it again; with the name that the instance has as the new one, the directory of its disks is
put back.""",
        opcode=OpInstanceRename,
    ),
)
