"""``gnt-node`` list-storage, modify-storage, repair-storage and volumes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.cli.command import Context, Options, command, job, opt
from ganeti.cli.run.binding import submit
from ganeti.cli.run.listing import select_fields, style_of
from ganeti.cli.run.table import Column, format_table
from ganeti.objects.disk_templates import StorageType
from ganeti.opcodes import node

STORAGE_COLUMNS: Final[Mapping[str, Column]] = {
    "node": Column("Node"),
    "type": Column("Type"),
    "name": Column("Name"),
    "size": Column("Size", "unit"),
    "used": Column("Used", "unit"),
    "free": Column("Free", "unit"),
    "allocatable": Column("Allocatable", "bool"),
}
STORAGE_COLUMNS_MORE: Final[Mapping[str, Column]] = {"status": Column("Status")}
VOLUME_COLUMNS: Final[Mapping[str, Column]] = {
    "node": Column("Node"),
    "phys": Column("PhysDev"),
    "vg": Column("VG"),
    "name": Column("Name"),
    "size": Column("Size", "unit"),
    "instance": Column("Instance"),
}
VOLUME_COLUMNS_MORE: Final[Mapping[str, Column]] = {"dev": Column("Device")}


def _show(
    context: Context,
    options: Options,
    args: list[str],
    usual: Mapping[str, Column],
    others: Mapping[str, Column] = MappingProxyType({}),
) -> None:
    """Print rows of the selected fields, the usual ones if none is, that the opcode answers."""
    fields, columns = select_fields(options.output, list(usual)), {**usual, **others}
    unknown = [name for name in fields if name not in columns]
    if unknown:
        raise OpPrereqError(
            f"unknown field(s) {', '.join(unknown)}; known are: {', '.join(columns)}"
        )
    result = submit(context, options, args, output_fields=fields)
    cells = [[(0, value) for value in row] for row in (result if isinstance(result, list) else [])]
    shown = [columns[name] for name in fields]
    context.terminal.write_lines(format_table(shown, cells, style_of(context, options)))


def list_storage(context: Context, options: Options, args: list[str]) -> None:
    """List storage units."""
    _show(context, options, args, STORAGE_COLUMNS, STORAGE_COLUMNS_MORE)


def volumes(context: Context, options: Options, args: list[str]) -> None:
    """List logical volumes."""
    _show(context, options, args, VOLUME_COLUMNS, VOLUME_COLUMNS_MORE)


def modify_storage(context: Context, options: Options, args: list[str]) -> None:
    """Change a storage unit."""
    if options.allocatable is None:
        context.terminal.error("Nothing to change; --allocatable can be given.")
        return
    submit(context, options, args, changes={"allocatable": options.allocatable})


COMMANDS: Final = (
    command(
        volumes,
        "[<node>...] --no-headers --output --priority --separator --units",
        opcode=node.OpNodeQueryvols,
    ),
    command(
        list_storage,
        "[<node>...] --no-headers --output --priority --separator --units",
        opt.option(
            "-t --storage-type",
            "kind of storage",
            choices=tuple(each.value for each in StorageType if each.units is not None),
        ),
        opcode=node.OpNodeQueryStorage,
        examples="""
gnt-node list-storage -t file  # room of the file storage of all nodes
gnt-node list-storage -t file -o +status  # and what is wrong with it, if anything is""",
    ),
    command(
        modify_storage,
        "<node> {lvm-pv}=storage_type <file>=name CHANGE",
        opt.yes_no("--allocatable", "whether disks may be put there"),
        opcode=node.OpNodeModifyStorage,
    ),
    job(
        "repair-storage: repair a storage unit",
        node.OpRepairNodeStorage,
        "<node> {lvm-vg}=storage_type <file>=name --ignore-consistency CHANGE",
    ),
)
