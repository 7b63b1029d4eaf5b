"""Everything about instances, as shown by ``gnt-instance info``.

Live state costs one call per node for all instances on it, and one for all their disks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, shared
from ganeti.logical_units.node_calls import call_nodes, target_of
from ganeti.objects.fill import (
    cluster_hvparams,
    fill_beparams,
    fill_hvparams,
    fill_nicparams,
    fill_osparams,
)
from ganeti.objects.instance_status import LiveState
from ganeti.objects.rpc_instance import build_rpc_disk, disk_template, secondary_nodes
from ganeti.opcodes.instance import OpInstanceQueryData

if TYPE_CHECKING:
    from ganeti.base.ids import NodeUuid
    from ganeti.objects.disk import Disk
    from ganeti.objects.instance import Instance
    from ganeti.objects.network import Network
    from ganeti.objects.nic import NIC
    from ganeti.objects.nodegroup import NodeGroup

STATUS_FIELDS = (
    "dev_path",
    "major",
    "minor",
    "sync_percent",
    "estimated_time",
    "is_degraded",
    "ldisk_status",
)


class LUInstanceQueryData(LogicalUnit[OpInstanceQueryData]):
    """Answer everything that is known about some instances, or about all."""

    def expand_names(self) -> None:
        """Read the instances and all that they refer to, each kind in one call."""
        config = self.config
        if self.op.instances:
            self.instances = lookup.require_instances(config, self.op.instances)
        else:
            self.instances = lookup.present(config.get_instances(None))
        disk_uuids = [uuid for instance in self.instances for uuid in instance.disks]
        disks = config.get_disks(disk_uuids) if disk_uuids else []
        self.disks = {disk.uuid: disk for disk in lookup.present(disks)}
        node_uuids = dict.fromkeys(
            uuid
            for instance in self.instances
            for uuid in (
                instance.primary_node,
                *secondary_nodes(instance, self.disks_of(instance)),
            )
        )
        nodes = config.get_nodes(list(node_uuids)) if node_uuids else []
        self.nodes = {node.uuid: node for node in lookup.present(nodes)}

    def disks_of(self, instance: Instance) -> list[Disk]:
        """Return the disks of an instance in order."""
        return [self.disks[uuid] for uuid in instance.disks if uuid in self.disks]

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock instances and nodes shared, if that is asked for."""
        if not self.op.use_locking:
            return {}
        match level:
            case LockLevel.INSTANCE:
                return shared(level, [instance.name for instance in self.instances])
            case LockLevel.NODE:
                return shared(level, list(self.nodes))
            case _:
                return {}

    @cached_property
    def groups(self) -> dict[str, NodeGroup]:
        """The groups of the nodes."""
        keys = list(dict.fromkeys(node.group for node in self.nodes.values()))
        found = self.config.get_node_groups(keys) if keys else []
        return {group.uuid: group for group in lookup.present(found)}

    @cached_property
    def networks(self) -> dict[str, Network]:
        """The networks of the NICs."""
        keys = {nic.network for item in self.instances for nic in item.nics if nic.network}
        found = self.config.get_networks(sorted(keys)) if keys else []
        return {str(network.uuid): network for network in lookup.present(found)}

    def exec(self) -> dict[str, dict[str, object]]:
        """Return {instance name: facts}."""
        running: Mapping[str, Mapping[str, int]] = {}
        statuses: Mapping[str, object] = {}
        if not self.op.static:
            running = self._running()
            statuses = self._disk_statuses()
        return {
            instance.name: self._facts(instance, running, statuses) for instance in self.instances
        }

    def _running(self) -> dict[str, dict[str, int]]:
        """Ask the primary nodes; returns {node UUID: {instance name: state}}."""
        by_name = {
            self.nodes[uuid].name: self.nodes[uuid]
            for uuid in {instance.primary_node for instance in self.instances}
        }
        hypervisors = sorted({instance.hypervisor for instance in self.instances})
        all_params = cluster_hvparams(self.cluster)
        results = call_nodes(
            self.context, by_name.values(), "all_instances_info", hypervisors, all_params
        )
        found: dict[str, dict[str, int]] = {}
        for name, result in results.items():
            if result.error is None and isinstance(result.payload, Mapping):
                found[by_name[name].uuid] = {
                    instance: info["state"] for instance, info in result.payload.items()
                }
            elif not result.offline:
                self.context.warn(f"cannot ask node {name} about its instances: {result.error}")
        return found

    def _disk_statuses(self) -> dict[str, object]:
        """Ask the primary nodes about all disks; returns {disk UUID: status}."""
        asked: dict[NodeUuid, list[Disk]] = {}
        for instance in self.instances:
            if instance.disks:
                asked.setdefault(instance.primary_node, []).extend(self.disks_of(instance))
        targets = {
            target_of(self.nodes[uuid]): [
                [build_rpc_disk(self.cluster, self._group_of(uuid), disk) for disk in disks]
            ]
            for uuid, disks in asked.items()
        }
        if not targets:
            return {}
        results = self.context.rpc.call("blockdev_getmirrorstatus_multi", targets)
        statuses: dict[str, object] = {}
        for uuid, disks in asked.items():
            result = results[self.nodes[uuid].name]
            if result.error is None and isinstance(result.payload, Sequence):
                for disk, answer in zip(disks, result.payload, strict=False):
                    statuses[disk.uuid] = _status(answer)
        return statuses

    def _group_of(self, node_uuid: NodeUuid) -> NodeGroup:
        return self.groups[self.nodes[node_uuid].group]

    def _facts(
        self,
        instance: Instance,
        running: Mapping[str, Mapping[str, int]],
        statuses: Mapping[str, object],
    ) -> dict[str, object]:
        disks = self.disks_of(instance)
        primary = self.nodes[instance.primary_node]
        secondaries = [self.nodes[uuid] for uuid in secondary_nodes(instance, disks)]
        return {
            "name": instance.name,
            "config_state": instance.admin_state.value,
            "run_state": _run_state(instance, running),
            "pnode": primary.name,
            "pnode_group_uuid": primary.group,
            "pnode_group_name": self.groups[primary.group].name,
            "snodes": [node.name for node in secondaries],
            "snodes_group_uuids": [node.group for node in secondaries],
            "snodes_group_names": [self.groups[node.group].name for node in secondaries],
            "os": instance.os,
            "nics": [self._nic(nic) for nic in instance.nics],
            "disk_template": disk_template(disks),
            "disks": [_disk(disk, statuses) for disk in disks],
            "hypervisor": instance.hypervisor,
            "network_port": instance.network_port,
            "hv_instance": dict(instance.hvparams),
            "hv_actual": fill_hvparams(self.cluster, instance),
            "be_instance": dict(instance.beparams),
            "be_actual": {**fill_beparams(self.cluster, instance)},
            "os_instance": dict(instance.osparams),
            "os_actual": fill_osparams(self.cluster, instance.os, instance.osparams),
            "serial_no": instance.serial_no,
            "mtime": instance.mtime,
            "ctime": instance.ctime,
            "uuid": instance.uuid,
            "tags": list(instance.tags),
            "admin_state_source": instance.admin_state_source.value,
        }

    def _nic(self, nic: NIC) -> list[object]:
        """Return name, UUID, IP, MAC, mode, link, VLAN, network UUID, network."""
        params = fill_nicparams(self.cluster, nic)
        network = self.networks.get(nic.network or "")
        return [
            nic.name,
            nic.uuid,
            nic.ip,
            nic.mac,
            params["mode"],
            params["link"],
            params["vlan"],
            nic.network,
            None if network is None else network.to_wire(),
        ]


def _run_state(instance: Instance, running: Mapping[str, Mapping[str, int]]) -> str | None:
    on_primary = running.get(instance.primary_node)
    if on_primary is None:
        return None
    return "up" if on_primary.get(instance.name) == LiveState.RUNNING else "down"


def _status(answer: object) -> object:
    """Return a status as a list of its fields; None if the node could not tell."""
    match answer:
        case [True, Mapping() as status]:
            return [status.get(name) for name in STATUS_FIELDS]
        case [True, [*values]]:
            return values
        case _:
            return None


def _disk(disk: Disk, statuses: Mapping[str, object]) -> dict[str, object]:
    return {
        "iv_name": disk.iv_name,
        "logical_id": disk.logical_id,
        "dev_type": disk.dev_type,
        "pstatus": statuses.get(disk.uuid),
        "sstatus": None,
        "children": [_disk(child, statuses) for child in disk.children],
        "mode": disk.mode.value,
        "size": disk.size,
        "spindles": disk.spindles,
        "name": disk.name,
        "uuid": disk.uuid,
        "params": dict(disk.params or {}),
    }
