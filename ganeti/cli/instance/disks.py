"""``gnt-instance`` activate-disks, deactivate-disks, grow-disk, recreate-disks, replace-disks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import OpPrereqError, UnitParseError
from ganeti.base.units import parse_unit
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options, command, job, opt
from ganeti.cli.instance.devices import disk_settings, number
from ganeti.cli.run.binding import submit
from ganeti.cli.run.jobs import results_of_all, submitted_jobs
from ganeti.opcodes import instance
from ganeti.opcodes.opcode import OpCode


def show_devices(context: Context, _opcode: OpCode, devices: object) -> None:
    """Print ``node:disk:device`` for each disk."""
    for device in devices if isinstance(devices, list) else []:
        context.write(":".join(str(part) for part in device))


def grow(context: Context, options: Options, args: list[str]) -> None:
    """Make a disk larger."""
    name, disk, size = args
    try:
        amount_mib = parse_unit(size)
    except UnitParseError as err:
        raise OpPrereqError(f"disk {disk}: {err.message}") from err
    submit(context, options, [name], disk=number("disk", disk), amount=amount_mib)


def lost_disks(options: Options) -> Mapping[str, object]:
    """Return the disks to make anew, all if none is named, and the nodes for them."""
    given = [(number("disk", ident), settings) for ident, settings in options.disks]
    disks = [(index, disk_settings(index, values) if values else {}) for index, values in given]
    return {"disks": disks, "nodes": [node for node in (options.node or "").split(":") if node]}


def replacement(options: Options) -> Mapping[str, object]:
    """Return which disks are replaced, and how."""
    ways = {
        "replace_auto": options.auto,
        "replace_on_primary": options.on_primary,
        "replace_on_secondary": options.on_secondary,
        "replace_new_secondary": options.remote_node is not None or options.iallocator is not None,
    }
    chosen = [mode for mode, is_asked in ways.items() if is_asked]
    if len(chosen) != 1:
        raise OpPrereqError("give one of -a, -p, -s, -n NODE and -I ALLOCATOR")
    disks = [number("disk", part) for part in (options.disks or "").split(",") if part]
    return {"mode": chosen[0], "disks": disks}


def show_repair(context: Context, _opcode: OpCode, result: object) -> int:
    """Print the condition of each side of the disks, and follow the replacement."""
    for side in result.get("disks", []) if isinstance(result, dict) else []:
        index, node, condition, said = side
        context.write(f"disk/{index} on {node}: {condition}" + (f" ({said})" if said else ""))
    failures, _ = results_of_all(context, submitted_jobs(result), announces=True)
    return EXIT_FAILURE if failures else EXIT_SUCCESS


COMMANDS: Final = (
    job(
        "activate-disks: make an instance's disks usable on its node",
        instance.OpInstanceActivateDisks,
        "<instance> SUBMISSION",
        opt.flag("--ignore-size", "do not compare with the recorded size"),
        opt.flag("--wait-for-sync", "wait until the disks are in step"),
        result=show_devices,
        examples="""
gnt-instance activate-disks web1  # make the disks of a stopped instance readable on its node""",
    ),
    job(
        "deactivate-disks: put an instance's disks to rest",
        instance.OpInstanceDeactivateDisks,
        "<instance> --force CHANGE",
    ),
    command(
        grow,
        "<instance> <disk> <size> --ignore-ipolicy --no-wait-for-sync CHANGE",
        opt.flag("--absolute", "the size is the new size, not the increase"),
        title="grow-disk: make a disk larger",
        opcode=instance.OpInstanceGrowDisk,
        examples="""
gnt-instance grow-disk web1 0 2g  # add 2 GiB to disk 0
gnt-instance grow-disk --absolute web1 0 20g  # make it 20 GiB""",
    ),
    job(
        "recreate-disks: make an instance's lost disks anew, empty",
        instance.OpInstanceRecreateDisks,
        "<instance> --iallocator CHANGE",
        opt.with_help(opt.DISK, "only this disk, perhaps changed"),
        opt.with_help(opt.NODE_PAIR, "nodes to make them on"),
        makes=lost_disks,
        examples="""
gnt-instance recreate-disks -n node2 web1  # empty disks on another node""",
    ),
    job(
        "repair: replace disks that are broken on the primary node",
        instance.OpInstanceRepair,
        "<instance> CHANGE",
        description="""Asks the nodes of a mirrored instance about its disks.  Those that are
broken on the primary node while their copy is good are replaced there, as by replace-disks -p.  A
secondary node with broken disks is named only: another one can take its place.""",
        result=show_repair,
    ),
    job(
        "replace-disks: replace a mirrored disk",
        instance.OpInstanceReplaceDisks,
        "<instance> --early-release --iallocator --ignore-ipolicy CHANGE",
        opt.flag("-a --auto", "find out which disks are broken"),
        opt.option("--disks", "numbers of the disks, separated by commas"),
        opt.option("-n --new-secondary=NODE -> remote_node", "the new secondary node"),
        opt.flag("-p --on-primary", "replace the disks on the primary node"),
        opt.flag("-s --on-secondary", "replace the disks on the secondary node"),
        makes=replacement,
    ),
)
