"""``gnt-instance`` activate-disks, deactivate-disks, grow-disk, recreate-disks, replace-disks."""

from __future__ import annotations

from ganeti.base.errors import OpPrereqError, UnitParseError
from ganeti.base.units import parse_unit
from ganeti.cli.commands.instance.devices import disk_settings
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


def _number(text: str) -> int:
    if not text.isdigit():
        raise OpPrereqError(f"disk {text!r}: give its number, from 0 on")
    return int(text)


def grow(context: Context, options: Options, args: list[str]) -> int:
    """Make a disk larger."""
    name, disk, size = args
    try:
        amount_mib = parse_unit(size)
    except UnitParseError as err:
        raise OpPrereqError(f"disk {disk}: {err.message}") from err
    opcode = make_opcode(
        "OP_INSTANCE_GROW_DISK",
        instance_name=name,
        disk=_number(disk),
        amount=amount_mib,
        absolute=options.absolute,
        wait_for_sync=options.wait_for_sync,
        ignore_ipolicy=options.ignore_ipolicy,
    )
    execute(context, options, opcode)
    return EXIT_SUCCESS


def recreate(context: Context, options: Options, args: list[str]) -> int:
    """Make lost disks anew; all of them, or those named."""
    [name] = args
    disks = []
    for ident, settings in options.disks:
        index = _number(ident)
        disks.append((index, disk_settings(index, settings) if settings else {}))
    nodes = [node for node in (options.node or "").split(":") if node]
    opcode = make_opcode(
        "OP_INSTANCE_RECREATE_DISKS",
        instance_name=name,
        disks=disks,
        nodes=nodes,
        iallocator=options.iallocator,
    )
    execute(context, options, opcode)
    return EXIT_SUCCESS


def replace(context: Context, options: Options, args: list[str]) -> int:
    """Replace half of a mirrored disk."""
    [name] = args
    new_secondary = options.new_secondary
    ways = {
        "replace_auto": options.auto,
        "replace_on_primary": options.on_primary,
        "replace_on_secondary": options.on_secondary,
        "replace_new_secondary": new_secondary is not None or options.iallocator is not None,
    }
    chosen = [mode for mode, is_asked in ways.items() if is_asked]
    if len(chosen) != 1:
        raise OpPrereqError("give one of -a, -p, -s, -n NODE and -I ALLOCATOR")
    disks = [_number(part) for part in (options.disks or "").split(",") if part]
    opcode = make_opcode(
        "OP_INSTANCE_REPLACE_DISKS",
        instance_name=name,
        mode=chosen[0],
        disks=disks,
        remote_node=new_secondary,
        iallocator=options.iallocator,
        early_release=options.early_release,
        ignore_ipolicy=options.ignore_ipolicy,
    )
    execute(context, options, opcode)
    return EXIT_SUCCESS
