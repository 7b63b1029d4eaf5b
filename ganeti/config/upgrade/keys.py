"""Steps about keys that came, went, or stand there without a value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ganeti.base.errors import ConfigurationError
from ganeti.config.config_data import TABLES
from ganeti.config.upgrade.draft import Draft, Fields, count_of
from ganeti.objects.model import AllocPolicy, Cluster, Disk
from ganeti.objects.nic import NIC

# Keys that old versions wrote and 3.0 refuses: each can be computed from other keys.
_OBSOLETE_IN_TABLES: Final = {
    "nodes": ("hv_state", "disk_state"),
    "networks": ("network_type", "family", "size"),
    "instances": ("disk_template", "disks_info", "secondary_nodes"),
}
_OBSOLETE_IN_CLUSTER: Final = ("default_bridge", "default_hypervisor")
_OBSOLETE_IN_NICS: Final = ("netinfo", "pci", "hvinfo")
_OBSOLETE_IN_DISKS: Final = ("physical_id", "dynamic_params", "pci", "hvinfo")

# Keys that 3.0 requires, and the meaning of their absence.
_REQUIRED: Final[dict[str, dict[str, object]]] = {
    "nodes": {
        "offline": False,
        "drained": False,
        "master_capable": True,
        "vm_capable": True,
        "powered": True,
        "ndparams": {},
        "serial_no": 1,
    },
    "nodegroups": {
        "ndparams": {},
        "alloc_policy": str(AllocPolicy.PREFERRED),
        "ipolicy": {},
        "diskparams": {},
        "networks": {},
        "serial_no": 1,
    },
    "networks": {"serial_no": 1},
    "instances": {"serial_no": 1},
}


def no_value_is_no_key(draft: Draft) -> Iterator[str]:
    """Remove keys whose value is null: up to 2.x that meant the same as a missing key.

    Raises:
        ConfigurationError: an object is null.
    """
    removed = _drop_nulls([draft.cluster], frozenset(Cluster.__struct_fields__))
    for name, kind in TABLES.items():
        objects = draft.objects(name)
        known = frozenset(kind.__struct_fields__)
        removed += _drop_nulls(objects, known.union(_OBSOLETE_IN_TABLES.get(name, ())))
    removed += _drop_nulls(draft.nics(), frozenset(NIC.__struct_fields__))
    removed += _drop_nulls(draft.devices(), frozenset(Disk.__struct_fields__))
    if removed:
        yield f"{count_of(removed, 'key')} without a value removed"


def _drop_nulls(objects: Iterable[Fields], known: frozenset[str]) -> int:
    removed = 0
    for fields in objects:
        empty = [name for name, value in fields.items() if value is None and name in known]
        for name in empty:
            del fields[name]
        removed += len(empty)
    return removed


def required_keys_are_there(draft: Draft) -> Iterator[str]:
    """Fill keys that 3.0 asks of every node, node group, network and instance."""
    filled: dict[str, int] = {}
    for table, required in _REQUIRED.items():
        for item in draft.objects(table):
            for name, default in required.items():
                if name not in item:
                    item[name] = dict(default) if isinstance(default, dict) else default
                    filled[table] = filled.get(table, 0) + 1
    for group in draft.objects("nodegroups"):
        if group.get("members"):
            filled["nodegroups"] = filled.get("nodegroups", 0) + 1
        group["members"] = []  # the nodes know their group
    for nic in draft.nics():
        if "nicparams" not in nic:
            nic["nicparams"] = {}
            filled["NICs"] = filled.get("NICs", 0) + 1
    for table, number in filled.items():
        yield f"{table}: {count_of(number, 'missing value')} filled in"


def obsolete_keys_are_gone(draft: Draft) -> Iterator[str]:
    """Remove keys that 3.0 refuses because they can be computed."""
    _check_templates(draft)
    removed = _drop([draft.cluster], _OBSOLETE_IN_CLUSTER)
    for table, names in _OBSOLETE_IN_TABLES.items():
        removed += _drop(draft.objects(table), names)
    removed += _drop(draft.nics(), _OBSOLETE_IN_NICS)
    removed += _drop(draft.devices(), _OBSOLETE_IN_DISKS)
    if removed:
        yield f"{count_of(removed, 'key')} that can be computed from others removed"


def _check_templates(draft: Draft) -> None:
    """Refuse to forget the template of an instance whose disks say something else."""
    table = draft.table("disks")
    for instance in draft.objects("instances"):
        template = instance.get("disk_template")
        types = {table[uuid].get("dev_type") for uuid in instance.get("disks", ()) if uuid in table}
        if template and types and types != {template}:
            raise ConfigurationError(
                f"instance {instance.get('name')!r} has the disk template {template}, but disks of"
                f" type {', '.join(sorted(map(str, types)))}"
            )


def _drop(objects: Iterable[Fields], names: Iterable[str]) -> int:
    removed = 0
    for fields in objects:
        for name in names:
            if name in fields:
                del fields[name]
                removed += 1
    return removed
