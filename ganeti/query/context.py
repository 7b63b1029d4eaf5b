"""What is computed once per run of a query: who has what, and filled parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from functools import lru_cache
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
from ganeti.objects.nic import NIC
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


class _Filled:
    """Own parameters over defaults; the last ones are remembered, as several fields ask."""

    __slots__ = ("_filled", "_own")

    def __init__(self) -> None:
        self._own: Mapping[str, object] | None = None
        self._filled: Mapping[str, object] = {}

    def over(
        self, defaults: Mapping[str, object], own: Mapping[str, object]
    ) -> Mapping[str, object]:
        """Lay own parameters over the defaults, which are always the same for the same own."""
        if not own:
            return defaults
        if own is not self._own:
            self._own, self._filled = own, {**defaults, **own}
        return self._filled


class RunContext:
    """A view, and what was computed from it so far."""

    def __init__(self, view: QueryView) -> None:
        self.view = view
        # What follows from the configuration alone is worth keeping as long as that is the same.
        self._made: MutableMapping[str, Any] = {} if view.index is None else view.index.made
        self._live_by_name: Mapping[str, InstanceLive] | None = None
        self._hv_defaults: dict[tuple[str, str], Mapping[str, object]] = {}
        self._be_defaults: Mapping[str, object] | None = None
        self._nic_defaults: Mapping[str, object] | None = None
        # Several fields of one item in a row ask for the same things.
        self._hv_filled, self._be_filled, self._nic_filled = _Filled(), _Filled(), _Filled()
        self._ndparams: tuple[NodeUuid, NdParams] | None = None
        self._instance: Instance | None = None
        self._disks: list[Disk] = []
        self._secondaries: list[NodeUuid] | None = None

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
            self._instance, self._secondaries = instance, None
            get = self.view.disks.get
            disks: list[Disk] = []
            for uuid in instance.disks:
                disk = get(uuid)
                if disk is not None:
                    disks.append(disk)
            self._disks = disks
        return self._disks

    def secondaries(self, instance: Instance) -> Sequence[NodeUuid]:
        """Return the UUIDs of an instance's secondary nodes."""
        disks = self.disks(instance)
        if self._secondaries is None:
            self._secondaries = secondary_nodes(instance, disks)
        return self._secondaries

    def node_name(self, node_uuid: NodeUuid) -> str:
        """Return the name of a node; a node that is not there shows as its UUID."""
        node = self.view.nodes.get(node_uuid)
        return str(node_uuid) if node is None else node.name

    def group_of(self, node_uuid: NodeUuid) -> NodeGroup | None:
        """Return the group of a node, None if either is not there."""
        node = self.view.nodes.get(node_uuid)
        return None if node is None else self.view.groups.get(node.group)

    def hvparams(self, instance: Instance) -> Mapping[str, object]:
        """Return the filled hypervisor parameters."""
        key = (instance.hypervisor, instance.os)
        defaults = self._hv_defaults.get(key)
        if defaults is None:
            defaults = fill_hvparams_for(self.view.cluster, *key)
            self._hv_defaults[key] = defaults
        return self._hv_filled.over(defaults, instance.hvparams)

    def beparams(self, instance: Instance) -> Mapping[str, object]:
        """Return the filled backend parameters."""
        if self._be_defaults is None:
            self._be_defaults = fill_beparams(self.view.cluster)
        return self._be_filled.over(self._be_defaults, instance.beparams)

    def nicparams(self, nic: NIC) -> Mapping[str, object]:
        """Return the filled parameters of a network interface."""
        if self._nic_defaults is None:
            self._nic_defaults = fill_nicparams(self.view.cluster, {})
        return self._nic_filled.over(self._nic_defaults, nic.nicparams)

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
