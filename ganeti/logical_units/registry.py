"""Which logical unit carries out which opcode.

Each unit declares its opcode itself; its class is named like the opcode, with LU in front.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final

from ganeti.base.errors import NotSupportedError
from ganeti.logical_units.base import LogicalUnit
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.registry import op_id_of

AnyUnit = type[LogicalUnit[Any, Any, Any]]

UNIT_MODULES: Final = (
    "allocator.groups",
    "allocator.testing",
    "backup.export",
    "backup.others",
    "backup.remote_export",
    "backup.remote_import",
    "cluster.disks",
    "cluster.life",
    "cluster.master_network",
    "cluster.rename",
    "cluster.renew_crypto",
    "cluster.set_params",
    "cluster.verify",
    "cluster.verify_group",
    "diagnose",
    "groups",
    "instance.changes.set_params",
    "instance.creation.create",
    "instance.creation.multi_alloc",
    "instance.life.console",
    "instance.life.power",
    "instance.life.query_data",
    "instance.life.reinstall",
    "instance.life.remove",
    "instance.life.rename",
    "instance.moving.failover",
    "instance.moving.migrate",
    "instance.moving.move",
    "instance.storage.activate",
    "instance.storage.grow_disk",
    "instance.storage.recreate_disks",
    "instance.storage.replace_disks",
    "network.units",
    "node.add",
    "node.leaving",
    "node.power",
    "node.remove",
    "node.set_params",
    "node.storage",
    "query",
    "tags",
    "testing",
)
"""Modules of this package that have logical units."""


def load_units() -> Iterator[str]:
    """Import all logical units, module by module; yields the name of each."""
    for name in UNIT_MODULES:
        import_module(f"ganeti.logical_units.{name}")
        yield name


@cache
def all_units() -> Mapping[tuple[str, str], AnyUnit]:
    """Return every logical unit by the name of its opcode and the mode that it is for."""
    found: dict[tuple[str, str], AnyUnit] = {}
    for name in UNIT_MODULES:
        module = import_module(f"ganeti.logical_units.{name}")
        for class_name, unit in vars(module).items():
            if class_name.startswith("LU") and unit.__module__ == module.__name__:
                found[op_id_of(unit.opcode), unit.mode] = unit
    return found


def unit_for(op: OpCode) -> AnyUnit:
    """Return the class that carries out an opcode, perhaps a special one for its ``mode``.

    Raises:
        NotSupportedError: none does; the text names the opcode.
    """
    op_id, mode = op_id_of(type(op)), str(getattr(op, "mode", ""))
    units = all_units()
    unit = units.get((op_id, mode)) or units.get((op_id, ""))
    if unit is None:
        raise NotSupportedError(f"opcode {op_id} is not supported by this version")
    return unit
