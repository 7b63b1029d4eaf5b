"""The nodes and instances that high availability is about, as ``config.data`` has them.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.availability.records import Outdated
from ganeti.availability.restarts import Guest, priority_of
from ganeti.config.index import drbd_devices
from ganeti.config.tables import Tables
from ganeti.objects.disk_templates import traits_of_all
from ganeti.objects.fill import fill_beparams
from ganeti.objects.model import AdminState, Instance, Node

MOVED_S: Final = 600.0  # a job that moves a copy has told the configuration by then
MADE_S: Final = 86400.0  # and a job that makes a disk


@dataclass(frozen=True, slots=True)
class Machine:
    """A node."""

    name: str
    address: str
    is_master: bool = False
    is_candidate: bool = False
    is_offline: bool = False


@dataclass(frozen=True, slots=True)
class Inventory:
    """What there is.

    Attributes:
        machines: all nodes by name.
        guests: all instances that should run, each with its primary node.
        ports: {instance: the ports by which the halves of its DRBD disks talk}, of all instances.
    """

    machines: Mapping[str, Machine]
    guests: Sequence[Guest]
    ports: Mapping[str, Sequence[int]]

    @property
    def master(self) -> str:
        """The node that the configuration calls the master; "" if it knows none."""
        return next((name for name, each in self.machines.items() if each.is_master), "")


def read_inventory(tables: Tables) -> Inventory:
    """Return what a configuration says.

    Raises:
        ConfigurationError: an object is not of its type.
    """
    machines = [
        Machine(
            node.name,
            node.primary_ip,
            uuid == tables.cluster.master_node,
            node.master_candidate,
            node.offline,
        )
        for uuid in tables.nodes
        for node in [tables.nodes.read(uuid)]
    ]
    instances = [tables.instances.read(uuid) for uuid in tables.instances]
    return Inventory(
        {each.name: each for each in machines},
        list(_guests(tables, instances)),
        {each.name: list(_ports(tables, each)) for each in instances},
    )


def without_copy(
    records: Mapping[str, Outdated], copies: Mapping[int, Collection[str]], now: float
) -> list[str]:
    """Return the records that nobody takes back, as their copies are gone, as ``NODE/PORT``.

    Args:
        records: of copies that lack writes.
        copies: {port: the nodes with the copies of that disk}, by a configuration that was read
            after the records.
        now: in seconds since the epoch.
    """
    found = []
    for name, record in records.items():
        node, _, port = name.rpartition("/")
        nodes = copies.get(int(port)) if port.isdecimal() else None
        age_s = now - record.since
        if age_s > MADE_S if nodes is None else node not in nodes and age_s > MOVED_S:
            found.append(name)
    return found


def _ports(tables: Tables, instance: Instance) -> Iterator[int]:
    for disk in tables.disks_of(instance):
        for _, _, port, *_ in drbd_devices(disk):
            if port is not None:
                yield port


def _guests(tables: Tables, instances: Sequence[Instance]) -> Iterator[Guest]:
    """Yield the instances that should run."""
    nodes: dict[str, Node] = {uuid: tables.nodes.read(uuid) for uuid in tables.nodes}
    for instance in instances:
        if instance.forthcoming or instance.admin_state is not AdminState.UP:
            continue
        primary = nodes[instance.primary_node]
        traits = traits_of_all(disk.dev_type for disk in tables.disks_of(instance))
        if traits.shared:
            others = [
                node
                for node in nodes.values()
                if node.group == primary.group and node is not primary
            ]
        else:
            others = [nodes[uuid] for uuid in tables.secondary_nodes(instance.uuid)]
        yield Guest(
            instance.name,
            primary.name,
            fill_beparams(tables.cluster, instance)["maxmem"],
            [node.name for node in others if _takes_instances(node)],
            priority_of(instance.tags),
            is_shared=traits.shared,
        )


def _takes_instances(node: Node) -> bool:
    return node.vm_capable and not (node.offline or node.drained)
