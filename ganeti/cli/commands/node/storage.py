"""``gnt-node`` list-storage, modify-storage, repair-storage and volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.jobs import execute, make_opcode
from ganeti.cli.run.listing import select_fields, style_of
from ganeti.cli.run.table import Column, format_table

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
    op_id: str,
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
    [result] = execute(context, options, make_opcode(op_id, output_fields=fields, **params))
    rows: Sequence[Sequence[object]] = result if isinstance(result, list) else []
    cells = [[(0, value) for value in row] for row in rows]
    shown = [columns[name] for name in fields]
    context.terminal.write_lines(format_table(shown, cells, style_of(context, options)))
    return EXIT_SUCCESS


def list_storage(context: Context, options: Options, args: list[str]) -> int:
    """List the storage units of nodes."""
    return _show(
        context,
        options,
        "OP_NODE_QUERY_STORAGE",
        _STORAGE,
        storage_type=options.storage_type,
        nodes=args,
    )


def volumes(context: Context, options: Options, args: list[str]) -> int:
    """List the logical volumes of nodes."""
    return _show(context, options, "OP_NODE_QUERYVOLS", _VOLUMES, nodes=args)


def modify_storage(context: Context, options: Options, args: list[str]) -> int:
    """Change a storage unit."""
    node, storage_type, name = args
    if options.allocatable is None:
        raise OpPrereqError("nothing to change; give --allocatable")
    opcode = make_opcode(
        "OP_NODE_MODIFY_STORAGE",
        node_name=node,
        storage_type=storage_type,
        name=name,
        changes={"allocatable": options.allocatable},
    )
    execute(context, options, opcode)
    return EXIT_SUCCESS


def repair_storage(context: Context, options: Options, args: list[str]) -> int:
    """Repair a storage unit."""
    node, storage_type, name = args
    opcode = make_opcode(
        "OP_REPAIR_NODE_STORAGE",
        node_name=node,
        storage_type=storage_type,
        name=name,
        ignore_consistency=options.ignore_consistency,
    )
    execute(context, options, opcode)
    return EXIT_SUCCESS
