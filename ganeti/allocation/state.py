"""The state of a group and of the cluster: loads of nodes, and the sums from which scores follow.

Nothing is changed in place: `GroupState.with_loads` and `ClusterState.with_instance` return new
states that share the unchanged parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from ganeti.allocation.load import Free, NodeLoad, load_of
from ganeti.allocation.model import Group, Instance, Node
from ganeti.allocation.score import (
    CLASH_WEIGHT,
    Component,
    Share,
    Spreads,
    Tally,
    components_of,
    score_of,
    share_of,
    spreads_of,
    tally_of,
)
from ganeti.allocation.snapshot import Snapshot
from ganeti.base.text import natural_sorted

Clash = tuple[str, str]  # a location and an exclusion tag


class GroupState(Struct, frozen=True):
    """A group with its nodes, in natural order of their names.

    ``clashes`` counts the primary instances on usable nodes with an exclusion tag in each failure
    domain.
    """

    group: Group
    loads: Mapping[str, NodeLoad]
    tally: Tally
    clashes: Mapping[Clash, int]

    @property
    def score(self) -> float:
        """The group's score; lower is better.  Quick, and right to six digits."""
        return self.tally.score

    @property
    def components(self) -> list[Component]:
        """The components of the score, from scratch."""
        return components_of(self.loads.values(), excess(self.clashes, self.clashes))

    @property
    def exact_score(self) -> float:
        """The score, from scratch, as it is printed."""
        return score_of(self.components)

    def share(self, load: NodeLoad) -> Share:
        """Return the addends to the sums of a node with this load."""
        return share_of(load, self.tally.spreads)

    def clash_count(self, instance: Instance, node: Node) -> float:
        """Return the addend to the score if the instance comes to the node's failure domains."""
        clashes = self.clashes
        if not clashes or not instance.exclusion_tags or not node.locations:
            return 0.0
        return CLASH_WEIGHT * sum(clashes.get(key, 0) > 0 for key in clash_keys(instance, node))

    def with_loads(self, loads: Mapping[str, NodeLoad]) -> GroupState:
        """Return the state with other loads of some nodes."""
        tally = self.tally
        for name, load in loads.items():
            tally = tally.changed(self.share(self.loads[name]), self.share(load))
        return replace(self, loads={**self.loads, **loads}, tally=tally)

    def with_clashes(self, instance: Instance, node: Node, sign: int) -> GroupState:
        """Return the state after a primary instance has come (1) or gone (-1)."""
        keys = clash_keys(instance, node)
        if not keys:
            return self
        clashes = dict(self.clashes)
        before = excess(clashes, keys)
        for key in keys:
            clashes[key] = clashes.get(key, 0) + sign
        amount = CLASH_WEIGHT * (excess(clashes, keys) - before)
        return replace(self, clashes=clashes, tally=self.tally.with_count(amount))


def clash_keys(instance: Instance, node: Node) -> list[Clash]:
    """Return the pairs of location and exclusion tag that an instance occupies on a node."""
    if not node.is_usable or instance.is_forthcoming:
        return []
    return [(place, tag) for place in node.locations for tag in instance.exclusion_tags]


def excess(clashes: Mapping[Clash, int], keys: Iterable[Clash]) -> int:
    """Return how many instances too many these pairs of location and exclusion tag have."""
    return sum(max(0, clashes[key] - 1) for key in keys if key in clashes)


class ClusterState(Struct, frozen=True):
    """All groups by UUID, all nodes and instances by name."""

    groups: Mapping[str, GroupState]
    nodes: Mapping[str, Node]
    instances: Mapping[str, Instance]

    def group_of(self, node: str) -> GroupState:
        """Return the group that a node is in."""
        return self.groups[self.nodes[node].group]

    @property
    def loads(self) -> list[NodeLoad]:
        """The loads of all nodes."""
        return [load for state in self.groups.values() for load in state.loads.values()]

    @property
    def components(self) -> list[Component]:
        """The components of the score of all groups taken as one."""
        clashes: Counter[Clash] = Counter()
        for state in self.groups.values():
            clashes.update(state.clashes)
        return components_of(self.loads, excess(clashes, clashes))

    def load(self, node: str) -> NodeLoad:
        """Return the load of a node."""
        return self.group_of(node).loads[node]

    def with_instance(self, instance: Instance) -> ClusterState:
        """Return the state with an instance on its nodes."""
        return self._changed(instance, 1)

    def without_instance(self, instance: Instance) -> ClusterState:
        """Return the state without an instance that was on its nodes."""
        return self._changed(instance, -1)

    def _changed(self, instance: Instance, sign: int) -> ClusterState:
        groups = dict(self.groups)
        primary, secondary = self.nodes[instance.primary], self.nodes.get(instance.secondary or "")
        state = groups[primary.group]
        load = state.loads[primary.name].with_primary(instance, secondary, sign)
        state = state.with_loads({primary.name: load})
        groups[primary.group] = state.with_clashes(instance, primary, sign)
        if secondary is not None:
            state = groups[secondary.group]
            load = state.loads[secondary.name].with_secondary(instance, primary.name, sign)
            groups[secondary.group] = state.with_loads({secondary.name: load})
        instances = {key: each for key, each in self.instances.items() if key != instance.name}
        if sign > 0:
            instances[instance.name] = instance
        return ClusterState(groups, self.nodes, instances)


def snapshot_after(snapshot: Snapshot, state: ClusterState) -> Snapshot:
    """Return the snapshot as it would be once instances are as in a state."""
    free = {}
    for name in snapshot.nodes:
        load = state.load(name)
        free[name] = Free(
            load.present_free_memory + load.surplus,
            load.free_disk + load.promised.disk,
            load.free_spindles + load.promised.spindles,
        )
    return replace(snapshot, free=free, instances=state.instances)


def make_state(snapshot: Snapshot) -> ClusterState:
    """Return the state of a cluster."""
    nodes, instances = snapshot.nodes, snapshot.instances
    primaries: dict[str, list[Instance]] = {name: [] for name in nodes}
    secondaries: dict[str, list[Instance]] = {name: [] for name in nodes}
    for instance in instances.values():
        primaries[instance.primary].append(instance)
        for name in instance.nodes[1:]:
            secondaries[name].append(instance)
    members: dict[str, dict[str, NodeLoad]] = {uuid: {} for uuid in snapshot.groups}
    for name in natural_sorted(nodes):
        node = nodes[name]
        members[node.group][name] = load_of(
            node, snapshot.free[name], primaries[name], secondaries[name], nodes
        )
    loads = [load for group in members.values() for load in group.values()]
    spreads = spreads_of(instances.values(), loads)
    states = {
        uuid: _group_state(group, members[uuid], primaries, spreads)
        for uuid, group in snapshot.groups.items()
    }
    return ClusterState(states, nodes, instances)


def _group_state(
    group: Group,
    loads: Mapping[str, NodeLoad],
    primaries: Mapping[str, list[Instance]],
    spreads: Spreads,
) -> GroupState:
    clashes: Counter[Clash] = Counter()
    for name, load in loads.items():
        if load.node.locations:
            for instance in primaries[name]:
                clashes.update(clash_keys(instance, load.node))
    return group_state(group, loads, clashes, spreads)


def group_state(
    group: Group, loads: Mapping[str, NodeLoad], clashes: Mapping[Clash, int], spreads: Spreads
) -> GroupState:
    """Return the state of a group; its sums are made from scratch."""
    amount = CLASH_WEIGHT * excess(clashes, clashes)
    tally = tally_of(loads.values(), spreads).with_count(amount)
    return GroupState(group, loads, tally, dict(clashes))
