"""``gnt-instance`` activate-disks and deactivate-disks."""

from __future__ import annotations

from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.jobs import execute, make_opcode


def activate(context: Context, options: Options, args: list[str]) -> int:
    """Make an instance's disks usable; prints ``node:disk:device`` for each."""
    [name] = args
    opcode = make_opcode(
        "OP_INSTANCE_ACTIVATE_DISKS",
        instance_name=name,
        ignore_size=options.ignore_size,
        wait_for_sync=options.wait_for_sync,
    )
    [devices] = execute(context, options, opcode)
    for device in devices if isinstance(devices, list) else []:
        context.write(":".join(str(part) for part in device))
    return EXIT_SUCCESS


def deactivate(context: Context, options: Options, args: list[str]) -> int:
    """Put an instance's disks to rest."""
    [name] = args
    opcode = make_opcode("OP_INSTANCE_DEACTIVATE_DISKS", instance_name=name, force=options.force)
    execute(context, options, opcode)
    return EXIT_SUCCESS
