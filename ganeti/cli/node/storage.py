"""``gnt-node`` list-storage, modify-storage, repair-storage and volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.cli.command import EXIT_SUCCESS, Context, Options, command, job, opt
from ganeti.cli.run.jobs import execute, make_opcode
from ganeti.cli.run.listing import select_fields, style_of
from ganeti.cli.run.table import Column, format_table
from ganeti.objects.disk_templates import StorageType
from ganeti.opcodes import node
from ganeti.opcodes.opcode import OpCode

_STORAGE: Final[Mapping[str, Column]] = {
    "node": Column("Node"),
    "type": Column("Type"),
    "name": Column("Name"),
    "size": Column("Size", "unit"),
    "used": Column("Used", "unit"),
    "free": Column("Free", "unit"),
    "allocatable": Column("Allocatable", "bool"),
}
_VOLUMES: Final[Mapping[str, Column]] = {
    "node": Column("Node"),
    "phys": Column("PhysDev"),
    "vg": Column("VG"),
    "name": Column("Name"),
    "size": Column("Size", "unit"),
    "instance": Column("Instance"),
    "dev": Column("Device"),
}


def _show(
    context: Context,
    options: Options,
    kind: type[OpCode],
    columns: Mapping[str, Column],
    **params: object,
) -> int:
    """Run an opcode that answers rows of the selected fields, and print them."""
    fields = select_fields(options.output, list(columns))
    unknown = [name for name in fields if name not in columns]
    if unknown:
        raise OpPrereqError(
            f"unknown field(s) {', '.join(unknown)}; known are: {', '.join(columns)}"
        )
    [result] = execute(context, options, make_opcode(kind, output_fields=fields, **params))
    rows: Sequence[Sequence[object]] = result if isinstance(result, list) else []
    cells = [[(0, value) for value in row] for row in rows]
    shown = [columns[name] for name in fields]
    context.terminal.write_lines(format_table(shown, cells, style_of(context, options)))
    return EXIT_SUCCESS


def list_storage(context: Context, options: Options, args: list[str]) -> int:
    """List storage units."""
    return _show(
        context,
        options,
        node.OpNodeQueryStorage,
        _STORAGE,
        storage_type=options.storage_type,
        nodes=args,
    )


def volumes(context: Context, options: Options, args: list[str]) -> int:
    """List logical volumes."""
    return _show(context, options, node.OpNodeQueryvols, _VOLUMES, nodes=args)


def allocation_change(options: Options) -> Mapping[str, object]:
    """Return the change of a storage unit."""
    if options.allocatable is None:
        raise OpPrereqError("nothing to change; give --allocatable")
    return {"changes": {"allocatable": options.allocatable}}


COMMANDS: Final = (
    command(volumes, "[<node>...] --no-headers --output --priority --separator --units"),
    command(
        list_storage,
        "[<node>...] --no-headers --output --priority --separator --units",
        opt.option(
            "-t --storage-type",
            "kind of storage",
            choices=tuple(each.value for each in StorageType if each.units is not None),
        ),
    ),
    job(
        "modify-storage: change a storage unit",
        node.OpNodeModifyStorage,
        "<node> {lvm-pv}=storage_type <file>=name CHANGE",
        opt.yes_no("--allocatable", "whether disks may be put there"),
        makes=allocation_change,
    ),
    job(
        "repair-storage: repair a storage unit",
        node.OpRepairNodeStorage,
        "<node> {lvm-vg}=storage_type <file>=name --ignore-consistency CHANGE",
    ),
)
