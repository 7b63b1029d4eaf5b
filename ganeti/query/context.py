"""Values that one run of a query computes once: disks of an instance, filled parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from ganeti.base.ids import InstanceUuid, NodeUuid
from ganeti.config.tables import name_key
from ganeti.objects import fill
from ganeti.objects.model import Cluster, Disk, Instance, Node, NodeGroup
from ganeti.objects.rpc_instance import secondary_nodes
from ganeti.query.view import InstanceLive, View


def sorted_names(names: Iterable[str]) -> list[str]:
    """Sort names in natural order."""
    return sorted(names, key=name_key)


class RunContext:
    """A view, and the values computed from it so far."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.config = config = view.config
        self.nodes, self.groups = config.nodes.quick(), config.groups.quick()
        self.instances, self.disks = config.instances.quick(), config.disks.quick()
        self.networks, self.filters = config.networks.quick(), config.filters.quick()
        self._live_by_name: Mapping[str, InstanceLive] | None = None
        self._hv_defaults: dict[tuple[str, str], Mapping[str, object]] = {}
        # Several fields of one item in a row ask for the same things.
        self._ndparams: tuple[NodeUuid, fill.NdParams] | None = None
        self._instance: Instance | None = None
        self._disks: list[Disk] = []
        # Looked up for each row of a list.
        self._find_disk, self._find_node = self.disks.get, self.nodes.get

    @property
    def cluster(self) -> Cluster:
        """The cluster."""
        return self.config.cluster

    def names_of(self, instances: Iterable[InstanceUuid]) -> list[str]:
        """Return the names of instances in natural order."""
        return sorted_names([self.instances[uuid].name for uuid in instances])

    @property
    def live_by_name(self) -> Mapping[str, InstanceLive]:
        """The answers of all nodes about instances."""
        if self._live_by_name is None:
            self._live_by_name = {
                name: live
                for answer in self.view.instance_live.values()
                if answer is not None
                for name, live in answer.items()
            }
        return self._live_by_name

    def disks_of(self, instance: Instance) -> Sequence[Disk]:
        """Return the disks of an instance, in order."""
        if instance is not self._instance:
            found = map(self._find_disk, instance.disks)
            self._disks = [disk for disk in found if disk is not None]
            self._instance = instance
        return self._disks

    def active_disks_of(self, instance: Instance, *, all_kinds: bool) -> Sequence[Disk]:
        """Return the disks that are meant to be active.

        Args:
            all_kinds: also those that are not on a second node.
        """
        if not instance.disks_active:
            return ()
        return [
            disk
            for disk in self.disks_of(instance)
            if (all_kinds or disk.traits.mirrored)
            and all(uuid in self.nodes for uuid in disk.nodes)
        ]

    def secondaries(self, instance: Instance) -> Sequence[NodeUuid]:
        """Return the UUIDs of an instance's secondary nodes."""
        return secondary_nodes(instance, self.disks_of(instance))

    def node_name(self, node_uuid: NodeUuid) -> str:
        """Return the name of a node; a node that is not there shows as its UUID."""
        node = self._find_node(node_uuid)
        return str(node_uuid) if node is None else node.name

    def group_of(self, node_uuid: NodeUuid) -> NodeGroup | None:
        """Return the group of a node, None if either is not there."""
        node = self.nodes.get(node_uuid)
        return None if node is None else self.groups.get(node.group)

    def hv_defaults(self, instance: Instance) -> Mapping[str, object]:
        """Return the hypervisor parameters of an instance as far as it has not its own."""
        key = (instance.hypervisor, instance.os)
        defaults = self._hv_defaults.get(key)
        if defaults is None:
            defaults = self._hv_defaults[key] = fill.fill_hvparams_for(self.cluster, *key)
        return defaults

    @cached_property
    def be_defaults(self) -> Mapping[str, object]:
        """Backend parameters of instances that have not their own."""
        return fill.fill_beparams(self.cluster)

    @cached_property
    def nic_defaults(self) -> Mapping[str, object]:
        """Parameters of network interfaces that have not their own."""
        return fill.fill_nicparams(self.cluster, {})

    def hvparams(self, instance: Instance) -> Mapping[str, object]:
        """Return the filled hypervisor parameters; not to be changed."""
        defaults, own = self.hv_defaults(instance), instance.hvparams
        return {**defaults, **own} if own else defaults

    def beparams(self, instance: Instance) -> Mapping[str, object]:
        """Return the filled backend parameters; not to be changed."""
        own = instance.beparams
        return {**self.be_defaults, **own} if own else self.be_defaults

    def ndparams(self, node: Node) -> fill.NdParams | None:
        """Return the filled node parameters, None if the group is not there."""
        known = self._ndparams
        if known is None or known[0] != node.uuid:
            group = self.groups.get(node.group)
            if group is None:
                return None
            known = (node.uuid, fill.fill_ndparams(self.cluster, group, node))
            self._ndparams = known
        return known[1]
