"""Storage units of nodes, and logical volumes, of which there are none.

Source: opcodes.json, OP_NODE_QUERY_STORAGE, OP_NODE_MODIFY_STORAGE, OP_REPAIR_NODE_STORAGE,
OP_NODE_QUERYVOLS; constants.json, "VALID_STORAGE_FIELDS", "MODIFIABLE_STORAGE_FIELDS",
"VALID_STORAGE_OPERATIONS", "vol_fields".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, shared
from ganeti.logical_units.node_calls import call_nodes, order
from ganeti.objects.disk_templates import REPORTING_STORAGE, STORAGE_TYPE, DiskTemplate, StorageType
from ganeti.opcodes.node import (
    OpNodeModifyStorage,
    OpNodeQueryStorage,
    OpNodeQueryvols,
    OpRepairNodeStorage,
)

if TYPE_CHECKING:
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.node import Node

UNIT_FIELDS: Final = ("allocatable", "free", "name", "size", "used")  # those that nodes know
FIELDS: Final = (*UNIT_FIELDS, "node", "type")
VOLUME_FIELDS: Final = ("dev", "instance", "name", "node", "phys", "size", "vg")
MODIFIABLE: Final = {StorageType.LVM_PV: ("allocatable",)}
_NOT_BUILT: Final = frozenset({StorageType.LVM_PV, StorageType.LVM_VG, StorageType.GLUSTER})


def check_fields(asked: Sequence[str], known: Sequence[str]) -> None:
    """Refuse fields that there are not.

    Raises:
        OpPrereqError: names them.
    """
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise OpPrereqError(f"unknown field(s) {', '.join(unknown)}; known are: {', '.join(known)}")


def check_storage(storage_type: StorageType) -> None:
    """Refuse storage whose units nobody can look at.

    Raises:
        OpPrereqError: that kind has no units.
        NotSupportedError: it has, and they are not supported yet.
    """
    if storage_type not in REPORTING_STORAGE:
        known = ", ".join(sorted(REPORTING_STORAGE))
        raise OpPrereqError(
            f"storage type {storage_type.value!r} has no storage units; those that have: {known}"
        )
    if storage_type in _NOT_BUILT:
        raise NotSupportedError(
            f"storage units of type {storage_type.value!r} are not supported yet"
        )


def default_storage(cluster: Cluster) -> StorageType:
    """Return the kind of storage of the first enabled disk template that has units.

    Raises:
        OpPrereqError: none has.
    """
    for template in cluster.enabled_disk_templates:
        found = STORAGE_TYPE[DiskTemplate(template)]
        if found in REPORTING_STORAGE:
            return found
    raise OpPrereqError(
        "no enabled disk template has storage units; name a storage type", ErrorCode.STATE
    )


def unit_arguments(cluster: Cluster, storage_type: StorageType) -> list[object]:
    """Return what a node needs to know to look at units: the directories there are."""
    shared_files = storage_type is StorageType.SHAREDFILE
    directory = cluster.shared_file_storage_dir if shared_files else cluster.file_storage_dir
    return [[directory] if directory else []]


class LUNodeQueryStorage(LogicalUnit[OpNodeQueryStorage]):
    """List the storage units of nodes."""

    def expand_names(self) -> None:
        """Look the nodes up; all of them if none is named."""
        check_fields(self.op.output_fields, FIELDS)
        names = self.op.nodes
        self.nodes = (
            lookup.require_nodes(self.config, names) if names else lookup.all_nodes(self.config)
        )
        self.storage_type = self.op.storage_type or default_storage(self.cluster)
        check_storage(self.storage_type)

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the nodes shared."""
        if level is LockLevel.NODE:
            return shared(level, [node.uuid for node in self.nodes])
        return {}

    def exec(self) -> list[list[object]]:
        """Ask all nodes at once; returns one row for each unit."""
        results = call_nodes(
            self.context,
            self.nodes,
            "storage_list",
            self.storage_type.value,
            unit_arguments(self.cluster, self.storage_type),
            self.op.name,
            list(UNIT_FIELDS),
        )
        rows = []
        for node in self.nodes:
            result = results[node.name]
            if result.offline:
                continue
            if result.error is not None:
                self.context.warn(f"cannot list storage on node {node.name}: {result.error}")
                continue
            for unit in result.payload if isinstance(result.payload, list) else []:
                values = dict(zip(UNIT_FIELDS, unit, strict=True))
                values |= {"node": node.name, "type": self.storage_type.value}
                rows.append([values[name] for name in self.op.output_fields])
        return rows


class LUNodeModifyStorage(LogicalUnit[OpNodeModifyStorage]):
    """Change a storage unit: only those of LVM have anything to change."""

    def expand_names(self) -> None:
        """Look the node up, and refuse what cannot be changed."""
        op = self.op
        self.node: Node = lookup.require_node(self.config, op.node_uuid or op.node_name)
        modifiable = MODIFIABLE.get(op.storage_type, ())
        if not modifiable:
            raise OpPrereqError(
                f"storage units of type {op.storage_type.value!r} have nothing that can be changed;"
                f" those of {', '.join(MODIFIABLE)} have"
            )
        check_fields(list(op.changes), modifiable)
        check_storage(op.storage_type)

    def exec(self) -> None:
        """Let the node change it."""
        op = self.op
        arguments = unit_arguments(self.cluster, op.storage_type)
        order(
            self.context,
            self.node,
            f"change storage unit {op.name!r}",
            "storage_modify",
            op.storage_type.value,
            arguments,
            op.name,
            dict(op.changes),
        )


class LURepairNodeStorage(LogicalUnit[OpRepairNodeStorage]):
    """Repair a storage unit: only volume groups can be."""

    def expand_names(self) -> None:
        """Look the node up, and refuse what cannot be repaired."""
        op = self.op
        self.node: Node = lookup.require_node(self.config, op.node_uuid or op.node_name)
        if op.storage_type is not StorageType.LVM_VG:
            raise OpPrereqError(
                f"storage units of type {op.storage_type.value!r} cannot be repaired; those of"
                f" {StorageType.LVM_VG.value} can"
            )
        check_storage(op.storage_type)

    def exec(self) -> None:
        """Let the node repair it."""
        op = self.op
        order(
            self.context,
            self.node,
            f"repair storage unit {op.name!r}",
            "storage_execute",
            op.storage_type.value,
            unit_arguments(self.cluster, op.storage_type),
            op.name,
            "fix-consistency",
        )


class LUNodeQueryvols(LogicalUnit[OpNodeQueryvols]):
    """List logical volumes: nodes have none, because LVM is not supported yet."""

    def expand_names(self) -> None:
        """Look the nodes up, so that a wrong name is told."""
        check_fields(self.op.output_fields, VOLUME_FIELDS)
        if self.op.nodes:
            lookup.require_nodes(self.config, self.op.nodes)

    def exec(self) -> list[object]:
        """Return no volumes, and say why."""
        self.context.info("logical volumes are not supported yet, so there are none")
        return []
