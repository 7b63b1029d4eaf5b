"""Storage units of nodes, and logical volumes.

Source: opcodes.json, OP_NODE_QUERY_STORAGE, OP_NODE_MODIFY_STORAGE, OP_REPAIR_NODE_STORAGE,
OP_NODE_QUERYVOLS; constants.json, "VALID_STORAGE_FIELDS", "MODIFIABLE_STORAGE_FIELDS",
"VALID_STORAGE_OPERATIONS", "vol_fields".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ganeti.base.errors import NotSupportedError, OpPrereqError, wrong_state
from ganeti.clients.node_rpc import RpcResult, target_of
from ganeti.logical_units import lookup
from ganeti.logical_units.base import SimpleUnit
from ganeti.logical_units.instance.storage.lvm_disks import volumes_of
from ganeti.logical_units.locks import LockLevel, LockNeed, shared
from ganeti.logical_units.node.base import NodeUnit
from ganeti.objects.disk_templates import DiskTemplate, StorageType, volume_of_kept
from ganeti.objects.model import Cluster, Node, NodeGroup
from ganeti.opcodes import node as opcodes
from ganeti.protocol.node_calls import NodeCalls
from ganeti.query.live import storage_unit

UNIT_FIELDS: Final = ("allocatable", "free", "name", "size", "used")  # known to nodes
STATUS: Final = "status"  # ours: node daemons of 3.0 do not know it
FIELDS: Final = (*UNIT_FIELDS, STATUS, "node", "type")
VOLUME_FIELDS: Final = ("dev", "instance", "name", "node", "phys", "size", "vg")
MODIFIABLE: Final = {StorageType.LVM_PV: ("allocatable",)}


def check_fields(asked: Sequence[str], known: Sequence[str]) -> None:
    """Refuse unknown fields.

    Raises:
        OpPrereqError: names them.
    """
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise OpPrereqError(f"unknown field(s) {', '.join(unknown)}; known are: {', '.join(known)}")


def check_storage(storage_type: StorageType) -> None:
    """Refuse storage without units, and units that are not supported yet.

    Raises:
        OpPrereqError: that kind has no units.
        NotSupportedError: it has, and they are not supported yet.
    """
    if storage_type.units is None:
        known = ", ".join(sorted(each for each in StorageType if each.units is not None))
        raise OpPrereqError(
            f"storage type {storage_type.value!r} has no storage units; types with units: {known}"
        )
    supported = {each.traits.storage for each in DiskTemplate if each.traits.is_supported}
    if storage_type not in supported and not storage_type.units.driver:
        raise NotSupportedError(
            f"storage units of type {storage_type.value!r} are not supported yet"
        )


def default_storage(cluster: Cluster) -> StorageType:
    """Return the kind of storage of the first enabled disk template, whatever the others have.

    Raises:
        OpPrereqError: that has no units.
    """
    first = cluster.enabled_disk_templates[0]
    if first.traits.storage.units is None:
        raise wrong_state(
            f"{first.value!r}, the first enabled disk template, has no storage units; name a"
            " storage type, as in 'gnt-node list-storage -t file'"
        )
    return first.traits.storage


def unit_arguments(
    cluster: Cluster, group: NodeGroup | None, storage_type: StorageType
) -> tuple[str, list[object]]:
    """Return the arguments of a group's nodes about units: type, names, and how to reach them."""
    units = storage_type.units
    if units is None or not units.are_named:
        return storage_type.value, []
    template = next(each for each in DiskTemplate if each.traits.storage is storage_type)
    name, params = storage_unit(cluster, group, template)
    return storage_type.value, [[name] if name else [], *([params] if params else [])]


@dataclass(frozen=True, slots=True)
class UnitsOfNodes:
    """Storage units of one type on some nodes."""

    nodes: Sequence[Node]
    storage_type: StorageType


class LUNodeQueryStorage(SimpleUnit[opcodes.OpNodeQueryStorage, UnitsOfNodes]):
    """List the storage units of nodes."""

    def resolve(self) -> UnitsOfNodes:
        """Look the nodes up; all of them if none is named."""
        check_fields(self.op.output_fields, FIELDS)
        nodes = lookup.named_or_all_nodes(self.config, self.op.nodes)
        storage_type = self.op.storage_type or default_storage(self.cluster)
        check_storage(storage_type)
        return UnitsOfNodes(nodes, storage_type)

    def locks(self, found: UnitsOfNodes) -> LockNeed:
        return shared(LockLevel.NODE, [node.uuid for node in found.nodes])

    def execute(self, plan: UnitsOfNodes) -> list[list[object]]:
        """Ask all nodes at once; returns one row for each unit."""
        asked = [*UNIT_FIELDS, *([STATUS] if STATUS in self.op.output_fields else [])]
        rows = []
        for name, result in self._answers(plan, asked).items():
            if result.error is not None:
                if not result.offline:
                    self.context.warn(f"cannot list storage on node {name}: {result.error}")
                continue
            for unit in result.payload:
                values = dict(zip(asked, unit, strict=True))
                values |= {"node": name, "type": plan.storage_type.value}
                if values["size"] is None and STATUS not in asked:
                    self.context.warn(
                        f"storage unit {values['name']} of node {name} cannot be used; see"
                        f" 'gnt-node list-storage -t {plan.storage_type.value} -o +status {name}'"
                    )
                rows.append([values[field] for field in self.op.output_fields])
        return rows

    def _answers(self, plan: UnitsOfNodes, fields: list[str]) -> dict[str, RpcResult[Any]]:
        """Ask each node for what its group has."""
        groups = lookup.groups_of(self.config, plan.nodes)
        kind, name = plan.storage_type, self.op.name
        targets = {
            target_of(node): (*unit_arguments(self.cluster, groups[node.group], kind), name, fields)
            for node in plan.nodes
        }
        return self.context.rpc.call_each(NodeCalls.storage_list, targets)


class LUNodeModifyStorage(NodeUnit[opcodes.OpNodeModifyStorage, Node]):
    """Change a storage unit: only those of LVM have anything to change."""

    def plan(self, found: Node) -> Node:
        """Refuse fields that cannot be changed."""
        op = self.op
        modifiable = MODIFIABLE.get(op.storage_type, ())
        if not modifiable:
            raise OpPrereqError(
                f"storage units of type {op.storage_type.value!r} have nothing that can be changed;"
                f" those of {', '.join(MODIFIABLE)} have"
            )
        check_fields(list(op.changes), modifiable)
        check_storage(op.storage_type)
        return found

    def execute(self, plan: Node) -> None:
        op = self.op
        self.context.nodes.on(plan, f"change storage unit {op.name!r}").storage_modify(
            *unit_arguments(self.cluster, None, op.storage_type), op.name or "", dict(op.changes)
        )


class LUNodeQueryvols(SimpleUnit[opcodes.OpNodeQueryvols, Sequence[Node]]):
    """List logical volumes, each with the instance that it belongs to."""

    def resolve(self) -> Sequence[Node]:
        """Look the nodes up; all of them if none is named."""
        check_fields(self.op.output_fields, VOLUME_FIELDS)
        return lookup.named_or_all_nodes(self.config, self.op.nodes)

    def locks(self, found: Sequence[Node]) -> LockNeed:
        return shared(LockLevel.NODE, [node.uuid for node in found])

    def execute(self, plan: Sequence[Node]) -> list[list[object]]:
        """Ask all nodes at once; returns one row for each device that a volume is on."""
        owners = self._owners()
        results = self.context.nodes.call_all(NodeCalls.node_volumes, plan)
        rows = []
        for node in plan:
            result = results[node.name]
            if result.error is not None:
                if not result.offline:
                    self.context.warn(f"cannot list volumes on node {node.name}: {result.error}")
                continue
            for volume in sorted(result.payload, key=lambda each: (each["vg"], each["name"])):
                path = f"{volume['vg']}/{volume['name']}"
                values = {
                    "node": node.name,
                    "phys": volume["dev"],
                    "vg": volume["vg"],
                    "name": volume["name"],
                    "size": int(float(volume["size"])),
                    "dev": f"/dev/{path}",
                    "instance": owners.get((node.uuid, volume_of_kept(path)), "-"),
                }
                rows.append([values[field] for field in self.op.output_fields])
        return rows

    def _owners(self) -> dict[tuple[str, str], str]:
        """Return {(UUID of the node, group/volume): name of the instance}."""
        instances = lookup.all_instances(self.config)
        return {
            (node, path): instance.name
            for instance, disks in zip(
                instances, lookup.disks_of_each(self.config, instances), strict=True
            )
            for node, path, _disk in volumes_of(disks)
        }
