"""What is computed once per run of a query: who has what, and filled parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from ganeti.base.ids import GroupUuid, NodeUuid
from ganeti.base.text import natural_sort_key
from ganeti.objects.disk import Disk
from ganeti.objects.fill import (
    NdParams,
    fill_beparams,
    fill_hvparams_for,
    fill_ndparams,
    fill_nicparams,
)
from ganeti.objects.instance import Instance
from ganeti.objects.network import Network
from ganeti.objects.node import Node
from ganeti.objects.nodegroup import NodeGroup
from ganeti.objects.rpc_instance import secondary_nodes
from ganeti.query.view import InstanceLive, QueryView

T = TypeVar("T")
K = TypeVar("K")

_NAMES_REMEMBERED_MAX = 65_536  # more than the names of the largest cluster, some MB

NameKey = list[tuple[int, int, str]]

name_key = lru_cache(maxsize=_NAMES_REMEMBERED_MAX)(natural_sort_key)
"""Natural order of a name, remembered: lists are sorted again and again."""


def sorted_names(names: Iterable[str]) -> list[str]:
    """Sort names in natural order."""
    return sorted(names, key=name_key)


def _grouped(items: Iterable[T], keys: Callable[[T], Iterable[K]]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = {}
    for item in items:
        for key in keys(item):
            groups.setdefault(key, []).append(item)
    return groups


class RunContext:
    """A view, and what was computed from it so far."""

    def __init__(self, view: QueryView) -> None:
        self.view = view
        # What follows from the configuration alone is worth keeping as long as that is the same.
        self._made: MutableMapping[str, Any] = {} if view.index is None else view.index.made
        self._live_by_name: Mapping[str, InstanceLive] | None = None
        self._hv_defaults: dict[tuple[str, str], Mapping[str, object]] = {}
        # Several fields of one item in a row ask for the same things.
        self._ndparams: tuple[NodeUuid, NdParams] | None = None
        self._instance: Instance | None = None
        self._disks: list[Disk] = []
        # Looked up for each row of a list.
        self._find_disk, self._find_node = view.disks.get, view.nodes.get

    def _once(self, what: str, make: Callable[[], T]) -> T:
        """Return what was made under that name, the first time by making it."""
        found: T | None = self._made.get(what)
        if found is None:
            found = self._made[what] = make()
        return found

    def primary_instances(self, node_uuid: NodeUuid) -> Sequence[Instance]:
        """Return the instances that have this primary node."""
        by_node = self._once("instances by primary node", self._by_primary)
        return by_node.get(node_uuid, ())

    def _by_primary(self) -> Mapping[NodeUuid, Sequence[Instance]]:
        return _grouped(self.view.instances.values(), lambda instance: (instance.primary_node,))

    def secondary_instances(self, node_uuid: NodeUuid) -> Sequence[Instance]:
        """Return the instances that have this secondary node."""
        by_node = self._once("instances by secondary node", self._by_secondary)
        return by_node.get(node_uuid, ())

    def _by_secondary(self) -> Mapping[NodeUuid, Sequence[Instance]]:
        return _grouped(self.view.instances.values(), self.secondaries)

    def network_instances(self, network: Network) -> Sequence[Instance]:
        """Return the instances with a NIC in this network."""
        return self._once("instances by network", self._by_network).get(network.uuid, ())

    def _by_network(self) -> Mapping[str, Sequence[Instance]]:
        return _grouped(
            self.view.instances.values(),
            lambda instance: {nic.network for nic in instance.nics if nic.network is not None},
        )

    def group_nodes(self, group: NodeGroup) -> Sequence[Node]:
        """Return the nodes of a group."""
        return self._once("nodes by group", self._by_group).get(group.uuid, ())

    def _by_group(self) -> Mapping[GroupUuid, Sequence[Node]]:
        return _grouped(self.view.nodes.values(), lambda node: (node.group,))

    def group_instances(self, group: NodeGroup) -> list[Instance]:
        """Return the instances whose primary node is in a group."""
        return [
            instance
            for node in self.group_nodes(group)
            for instance in self.primary_instances(node.uuid)
        ]

    @property
    def live_by_name(self) -> Mapping[str, InstanceLive]:
        """What any of the nodes said about instances."""
        if self._live_by_name is None:
            self._live_by_name = {
                name: live
                for answer in self.view.instance_live.values()
                if answer is not None
                for name, live in answer.items()
            }
        return self._live_by_name

    def disks(self, instance: Instance) -> Sequence[Disk]:
        """Return the disks of an instance, in order."""
        if instance is not self._instance:
            found = map(self._find_disk, instance.disks)
            self._disks = [disk for disk in found if disk is not None]
            self._instance = instance
        return self._disks

    def secondaries(self, instance: Instance) -> Sequence[NodeUuid]:
        """Return the UUIDs of an instance's secondary nodes."""
        return secondary_nodes(instance, self.disks(instance))

    def node_name(self, node_uuid: NodeUuid) -> str:
        """Return the name of a node; a node that is not there shows as its UUID."""
        node = self._find_node(node_uuid)
        return str(node_uuid) if node is None else node.name

    def group_of(self, node_uuid: NodeUuid) -> NodeGroup | None:
        """Return the group of a node, None if either is not there."""
        node = self.view.nodes.get(node_uuid)
        return None if node is None else self.view.groups.get(node.group)

    def hv_defaults(self, instance: Instance) -> Mapping[str, object]:
        """Return the hypervisor parameters of an instance as far as it has not its own."""
        key = (instance.hypervisor, instance.os)
        defaults = self._hv_defaults.get(key)
        if defaults is None:
            defaults = self._hv_defaults[key] = fill_hvparams_for(self.view.cluster, *key)
        return defaults

    @cached_property
    def be_defaults(self) -> Mapping[str, object]:
        """Backend parameters of instances that have not their own."""
        return fill_beparams(self.view.cluster)

    @cached_property
    def nic_defaults(self) -> Mapping[str, object]:
        """Parameters of network interfaces that have not their own."""
        return fill_nicparams(self.view.cluster, {})

    def hvparams(self, instance: Instance) -> Mapping[str, object]:
        """Return the filled hypervisor parameters; not to be changed."""
        defaults, own = self.hv_defaults(instance), instance.hvparams
        return {**defaults, **own} if own else defaults

    def beparams(self, instance: Instance) -> Mapping[str, object]:
        """Return the filled backend parameters; not to be changed."""
        own = instance.beparams
        return {**self.be_defaults, **own} if own else self.be_defaults

    def ndparams(self, node: Node) -> NdParams | None:
        """Return the filled node parameters, None if the group is not there."""
        known = self._ndparams
        if known is None or known[0] != node.uuid:
            group = self.view.groups.get(node.group)
            if group is None:
                return None
            known = (node.uuid, fill_ndparams(self.view.cluster, group, node))
            self._ndparams = known
        return known[1]
