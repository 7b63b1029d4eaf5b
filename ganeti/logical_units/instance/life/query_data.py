"""Everything about instances, as shown by ``gnt-instance info``.

Live state costs one call per node for all instances on it, or for a single one if only one is
asked for, and one for all their disks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ganeti.base.ids import NodeUuid
from ganeti.clients.node_rpc import RpcResult
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.disk_states import NOT_ASKED, DiskStates, ask_disks, holders
from ganeti.logical_units.instance.guest import is_running
from ganeti.logical_units.locks import LockLevel, LockNeed, shared
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.fill import (
    cluster_hvparams,
    fill_beparams,
    fill_hvparams,
    fill_nicparams,
    fill_osparams,
    without_cluster_wide,
)
from ganeti.objects.model import Cluster, Disk, Instance, Network, Node, NodeGroup
from ganeti.objects.nic import NIC
from ganeti.objects.rpc_instance import disk_template, secondary_nodes
from ganeti.opcodes.instance import OpInstanceQueryData
from ganeti.protocol.node_calls import NodeCalls


@dataclass(frozen=True, slots=True)
class Instances:
    """Instances and all that they refer to, as the configuration has them."""

    cluster: Cluster
    instances: list[Instance]
    disks: Mapping[str, Disk]
    nodes: Mapping[NodeUuid, Node]
    groups: Mapping[str, NodeGroup]
    networks: Mapping[str, Network]

    def disks_of(self, instance: Instance) -> list[Disk]:
        """Return the disks of an instance in order."""
        return [self.disks[uuid] for uuid in instance.disks if uuid in self.disks]

    def group_of(self, node_uuid: NodeUuid) -> NodeGroup:
        """Return the group of a node."""
        return self.groups[self.nodes[node_uuid].group]


class LUInstanceQueryData(LogicalUnit[OpInstanceQueryData, Instances, Instances]):
    """Answer everything that is known about some instances, or about all."""

    def resolve(self) -> Instances:
        """Read the instances and all that they refer to, each kind in one call."""
        config = self.config
        if self.op.instances:
            instances = lookup.require_instances(config, self.op.instances)
        else:
            instances = lookup.present(config.get_instances(None))
        disk_uuids = [uuid for instance in instances for uuid in instance.disks]
        found = lookup.present(config.get_disks(disk_uuids)) if disk_uuids else []
        disks = {str(disk.uuid): disk for disk in found}
        node_uuids = dict.fromkeys(
            uuid
            for instance in instances
            for uuid in (
                instance.primary_node,
                *secondary_nodes(instance, [disks[key] for key in instance.disks if key in disks]),
            )
        )
        nodes = lookup.present(config.get_nodes(list(node_uuids))) if node_uuids else []
        group_keys = list(dict.fromkeys(node.group for node in nodes))
        groups = config.get_node_groups(group_keys) if group_keys else []
        keys = {nic.network for item in instances for nic in item.nics if nic.network}
        networks = config.get_networks(sorted(keys)) if keys else []
        return Instances(
            self.cluster,
            instances,
            disks,
            {node.uuid: node for node in nodes},
            {group.uuid: group for group in lookup.present(groups)},
            {str(network.uuid): network for network in lookup.present(networks)},
        )

    def locks(self, found: Instances) -> LockNeed:
        """Lock instances and nodes shared, if that is asked for."""
        if not self.op.use_locking:
            return {}
        names = [instance.name for instance in found.instances]
        return shared(LockLevel.INSTANCE, names) | shared(LockLevel.NODE, found.nodes)

    def plan(self, found: Instances) -> Instances:
        return found

    def execute(self, plan: Instances) -> dict[str, dict[str, object]]:
        """Return {instance name: facts}."""
        running = {} if self.op.static else self._running(plan)
        states = {} if self.op.static else self._disk_states(plan)
        return {
            instance.name: _facts(plan, instance, running, states) for instance in plan.instances
        }

    def _running(self, found: Instances) -> dict[str, set[str]]:
        """Ask the primary nodes; returns {node UUID: names of the instances that run there}."""
        uuids = {instance.primary_node for instance in found.instances}
        by_name = {found.nodes[uuid].name: found.nodes[uuid] for uuid in uuids}
        hypervisors = sorted({instance.hypervisor for instance in found.instances})
        params = cluster_hvparams(found.cluster)
        nodes = self.context.nodes
        only = found.instances[0].name if len(found.instances) == 1 else None
        results: Mapping[str, RpcResult[Any]]
        if only is None:
            results = nodes.call_all(
                NodeCalls.all_instances_info, by_name.values(), hypervisors, params
            )
        else:  # its node may have very many
            (hypervisor,) = hypervisors
            results = nodes.call_all(
                NodeCalls.instance_info, by_name.values(), only, hypervisor, params.get(hypervisor)
            )
        running: dict[str, set[str]] = {}
        for name, result in results.items():
            if result.error is None and isinstance(result.payload, Mapping):
                states = (result.payload if only is None else {only: result.payload}).items()
                running[by_name[name].uuid] = {each for each, info in states if is_running(info)}
            elif not result.offline:
                self.context.warn(f"cannot ask node {name} about its instances: {result.error}")
        return running

    def _disk_states(self, found: Instances) -> DiskStates:
        """Ask all nodes that hold disks of the instances."""
        disks = [(each, disk) for each in found.instances for disk in found.disks_of(each)]
        return ask_disks(self.context, found.cluster, found.nodes, found.groups, disks)


def _facts(
    found: Instances, instance: Instance, running: Mapping[str, Collection[str]], states: DiskStates
) -> dict[str, object]:
    disks = found.disks_of(instance)
    primary = found.nodes[instance.primary_node]
    secondaries = [found.nodes[uuid] for uuid in secondary_nodes(instance, disks)]
    backend = fill_beparams(found.cluster, instance)
    return {
        "name": instance.name,
        "config_state": instance.admin_state.value,
        "run_state": _run_state(instance, running),
        "pnode": primary.name,
        "pnode_group_uuid": primary.group,
        "pnode_group_name": found.groups[primary.group].name,
        "snodes": [node.name for node in secondaries],
        "snodes_group_uuids": [node.group for node in secondaries],
        "snodes_group_names": [found.groups[node.group].name for node in secondaries],
        "os": instance.os,
        "nics": [_nic(found, nic) for nic in instance.nics],
        "disk_template": disk_template(disks),
        "disks": [_disk(found, instance, disk, disk, states) for disk in disks],
        "hypervisor": instance.hypervisor,
        "network_port": instance.network_port,
        "hv_instance": dict(instance.hvparams),
        "hv_actual": without_cluster_wide(
            instance.hypervisor, fill_hvparams(found.cluster, instance)
        ),
        "be_instance": dict(instance.beparams),
        "be_actual": {**backend, "memory": backend["maxmem"]},
        "os_instance": dict(instance.osparams),
        "os_actual": fill_osparams(found.cluster, instance.os, instance.osparams),
        "serial_no": instance.serial_no,
        "mtime": instance.mtime,
        "ctime": instance.ctime,
        "uuid": instance.uuid,
        "tags": list(instance.tags),
        "admin_state_source": instance.admin_state_source.value,
    }


def _nic(found: Instances, nic: NIC) -> list[object]:
    """Return name, UUID, IP, MAC, mode, link, VLAN, network UUID, network."""
    params = fill_nicparams(found.cluster, nic)
    network = found.networks.get(nic.network or "")
    place = [params["mode"], params["link"], params["vlan"], nic.network]
    wire = None if network is None else network.to_wire()
    return [nic.name, nic.uuid, nic.ip, nic.mac, *place, wire]


def _run_state(instance: Instance, running: Mapping[str, Collection[str]]) -> str | None:
    on_primary = running.get(instance.primary_node)
    if on_primary is None:
        return None
    return "up" if instance.name in on_primary else "down"


def _drbd_sides(found: Instances, disk: Disk) -> dict[str, object]:
    node_a, node_b, port, minor_a, minor_b, _secret = disk.logical_id
    return {
        "primary_node": found.nodes[NodeUuid(str(node_a))].name,
        "primary_minor": minor_a,
        "secondary_node": found.nodes[NodeUuid(str(node_b))].name,
        "secondary_minor": minor_b,
        "port": port,
    }


def _disk(
    found: Instances, instance: Instance, whole: Disk, disk: Disk, states: DiskStates
) -> dict[str, object]:
    """Return the facts about a disk, or about a part of the whole."""
    primary = instance.primary_node
    others = [uuid for uuid in holders(instance, whole) if uuid != primary]
    here = states.get((primary, disk.uuid), NOT_ASKED)
    there = states.get((others[0], disk.uuid), NOT_ASKED) if others else NOT_ASKED
    errors = {"pstatus_error": here.error, "sstatus_error": there.error}
    return {
        "iv_name": disk.iv_name,
        "logical_id": disk.logical_id,
        "dev_type": disk.dev_type,
        "drbd_info": _drbd_sides(found, disk) if disk.dev_type == DiskTemplate.DRBD else None,
        "pstatus": here.status,
        "sstatus": there.status,
        "children": [_disk(found, instance, whole, child, states) for child in disk.children],
        "mode": disk.mode.value,
        "size": disk.size,
        "spindles": disk.spindles,
        "name": disk.name,
        "uuid": disk.uuid,
        "params": dict(disk.params or {}),
        **{name: error for name, error in errors.items() if error},  # ours
    }
