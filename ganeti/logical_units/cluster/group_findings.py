"""Problems of instances and nodes seen together: memory, layout, policy, tags, disks.

Plain functions over the configuration and over the answers of the nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Final

import msgspec

from ganeti.base.text import shown
from ganeti.logical_units.cluster.findings import Finding, Severity
from ganeti.logical_units.instance.parameters import spec_of
from ganeti.logical_units.instance.storage.files import file_of, renamed_directories
from ganeti.logical_units.query import OsOnNode
from ganeti.objects.disk_templates import DiskTemplate, Traits, traits_of_all
from ganeti.objects.fill import fill_beparams, fill_ipolicy, fill_ndparams
from ganeti.objects.instance_policy import violations
from ganeti.objects.model import AdminState, Cluster, Disk, Instance, Node, NodeGroup
from ganeti.objects.rpc_instance import disk_template, secondary_nodes
from ganeti.objects.verify_errors import VerifyErrorCode

_Code = VerifyErrorCode
EXCLUSION_PREFIX: Final = "htools:iextags:"  # of tags of the cluster; constants.json, "tags"


@dataclass(frozen=True, slots=True)
class Guest:
    """An instance with its disks."""

    instance: Instance
    disks: Sequence[Disk]

    @property
    def name(self) -> str:
        """Its name."""
        return self.instance.name

    @property
    def template(self) -> str:
        """Its disk template."""
        return disk_template(self.disks)

    @property
    def traits(self) -> Traits:
        """The traits of its disk template, or of the weakest."""
        return traits_of_all(disk.dev_type for disk in self.disks)


def judge_layout(
    guest: Guest, cluster: Cluster, group: NodeGroup, nodes: Mapping[str, Node]
) -> Iterator[Finding]:
    """Yield the problems of an instance's placement and specification.

    Args:
        nodes: all nodes of the cluster by UUID.
    """
    name, primary = guest.name, nodes[guest.instance.primary_node]
    # One that does not exist is a problem of the configuration, and told as that.
    others = secondary_nodes(guest.instance, guest.disks)
    secondaries = [nodes[uuid] for uuid in others if uuid in nodes]
    own = [primary, *(secondaries if not guest.traits.shared else [])]
    if not primary.vm_capable:
        text = f"its primary node {primary.name} is not vm-capable"
        yield Finding(_Code.EINSTANCEBADNODE, name, text)
    for node in own[1:]:
        if node.offline:
            text = f"its secondary node {node.name} is marked offline"
            yield Finding(_Code.EINSTANCEBADNODE, name, text)
    if len(own) > 2:
        text = f"it has several secondary nodes: {', '.join(node.name for node in own[1:])}"
        yield Finding(_Code.EINSTANCELAYOUT, name, text, Severity.WARNING)
    outside = [node.name for node in own if node.group != group.uuid]
    if outside:
        text = f"node(s) {shown(outside)} are not in group {group.name} of its primary node"
        yield Finding(_Code.EINSTANCESPLITGROUPS, name, text, Severity.WARNING)
    exclusive = [
        node.name for node in own if fill_ndparams(cluster, group, node)["exclusive_storage"]
    ]
    if exclusive and guest.disks and not guest.traits.takes_physical_volumes:
        text = (
            f"disk template {guest.template} cannot be on node(s) {shown(exclusive)},"
            " which have exclusive storage"
        )
        yield Finding(_Code.EINSTANCEUNSUITABLENODE, name, text)
    broken = violations(fill_ipolicy(cluster, group), spec_of(cluster, guest.instance, guest.disks))
    if broken:
        text = f"violates the instance policy of group {group.name}: {'; '.join(broken)}"
        yield Finding(_Code.EINSTANCEPOLICY, name, text, Severity.WARNING)


def judge_exclusion(
    cluster: Cluster, guests: Sequence[Guest], node_names: Mapping[str, str]
) -> Iterator[Finding]:
    """Say on which nodes instances are together that their exclusion tags keep apart."""
    prefixes = tuple(
        f"{tag.removeprefix(EXCLUSION_PREFIX)}:"
        for tag in cluster.tags
        if tag.startswith(EXCLUSION_PREFIX)
    )
    together: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for guest in guests:
        for tag in guest.instance.tags:
            if prefixes and tag.startswith(prefixes):
                together[guest.instance.primary_node, tag].append(guest.name)
    for (uuid, tag), names in sorted(together.items()):
        if len(names) > 1:
            text = f"instances {shown(names)} are on it, which all have the tag {tag}"
            yield Finding(_Code.EEXTAGS, node_names[uuid], text)


def _balanced(cluster: Cluster, guests: Sequence[Guest]) -> Iterator[tuple[Guest, int]]:
    """Yield each instance that another node is to take over, with the memory it needs (MiB)."""
    for guest in guests:
        beparams = fill_beparams(cluster, guest.instance)
        if guest.instance.admin_state is AdminState.UP and beparams["auto_balance"]:
            yield guest, beparams["minmem"]


def judge_memory(
    cluster: Cluster,
    guests: Sequence[Guest],
    free_mib: Mapping[str, int],
    node_names: Mapping[str, str],
) -> Iterator[Finding]:
    """Name the nodes that could not start their secondary instances after another node's failure.

    Args:
        free_mib: free memory of the nodes that told it, by UUID.
    """
    wanted: Counter[tuple[str, str]] = Counter()
    for guest, needed_mib in _balanced(cluster, guests):
        if not guest.traits.shared:  # otherwise any node of the group may take it
            for secondary in secondary_nodes(guest.instance, guest.disks):
                wanted[secondary, guest.instance.primary_node] += needed_mib
    for (uuid, failing), needed_mib in sorted(wanted.items()):
        if uuid in free_mib and needed_mib > free_mib[uuid]:
            text = (
                f"has not the memory to take over the instances of node {node_names[failing]}:"
                f" {needed_mib} MiB are needed, {free_mib[uuid]} MiB are free"
            )
            yield Finding(_Code.ENODEN1, node_names[uuid], text)


def judge_spare_memory(
    cluster: Cluster,
    guests: Sequence[Guest],
    free_mib: Mapping[str, int],
    node_names: Mapping[str, str],
) -> Iterator[Finding]:
    """Name the nodes after whose failure the others could not start the instances of any node.

    Largest first onto the node with most room, which is near enough to the best way.
    """
    by_node: defaultdict[str, list[int]] = defaultdict(list)
    for guest, needed_mib in _balanced(cluster, guests):
        if guest.traits.shared:
            by_node[guest.instance.primary_node].append(needed_mib)
    for failing, sizes_mib in sorted(by_node.items()):
        room_mib = [mib for uuid, mib in free_mib.items() if uuid != failing]
        if room_mib and not _fits(sizes_mib, room_mib):
            text = (
                f"after its failure the other nodes could not take its instances: these need"
                f" {sum(sizes_mib)} MiB, free on the others are {_largest(room_mib)} MiB"
            )
            yield Finding(_Code.ENODEN1, node_names[failing], text)


def _largest(sizes: Iterable[int], count_max: int = 10) -> str:
    ordered = sorted(sizes, reverse=True)
    more = len(ordered) - count_max
    return ", ".join(map(str, ordered[:count_max])) + (f" and {more} less" if more > 0 else "")


def _fits(sizes_mib: Sequence[int], room_mib: Sequence[int]) -> bool:
    room = list(room_mib)
    for size in sorted(sizes_mib, reverse=True):
        room.sort()
        room[-1] -= size
        if room[-1] < 0:
            return False
    return True


def judge_systems(answers: Mapping[str, object]) -> Iterator[Finding]:
    """Say which operating systems are broken, or not the same on all nodes.

    Args:
        answers: {node name: answer to "oslist"}; the first node is the one that others are compared
            with.
    """
    known: dict[str, dict[str, OsOnNode]] = {}
    for node_name, answer in answers.items():
        try:
            systems = msgspec.convert(answer, list[OsOnNode])
        except msgspec.ValidationError:
            text = f"did not tell its operating systems, but {answer!r:.120}"
            yield Finding(_Code.ENODEOS, node_name, text)
            continue
        found: dict[str, OsOnNode] = {}
        for system in systems:
            first = found.setdefault(system.name, system)
            if first is not system:
                text = f"OS {system.name} in {system.path} is hidden by the one in {first.path}"
                yield Finding(_Code.ENODEOS, node_name, text, Severity.WARNING)
        known[node_name] = found
        for system in found.values():
            if not system.ok:
                text = f"OS {system.name} ({system.path}) is not valid: {system.message}"
                yield Finding(_Code.ENODEOS, node_name, text)
    if known:
        reference, *others = known
        for node_name in others:
            yield from _differences(node_name, known[node_name], reference, known[reference])


def _differences(
    node_name: str,
    systems: Mapping[str, OsOnNode],
    reference: str,
    expected: Mapping[str, OsOnNode],
) -> Iterator[Finding]:
    for name in sorted(expected.keys() - systems.keys()):
        yield Finding(_Code.ENODEOS, node_name, f"OS {name} of node {reference} is missing")
    for name in sorted(systems.keys() - expected.keys()):
        yield Finding(_Code.ENODEOS, node_name, f"OS {name} is not on node {reference}")
    for name in sorted(systems.keys() & expected.keys()):
        here, there = systems[name], expected[name]
        differing = [what for what in _COMPARED if getattr(here, what) != getattr(there, what)]
        if here.ok and there.ok and differing:
            text = f"OS {name} differs from node {reference} in: {_words(differing)}"
            yield Finding(_Code.ENODEOS, node_name, text)


_COMPARED: Final = ("api_versions", "variants", "parameters", "trusted")


def _words(names: Sequence[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in names)


def judge_stored_disks(
    guests: Sequence[Guest],
    stored: Mapping[str, Collection[str]],
    *,
    owned: Collection[str],
    busy: Collection[str],
    directories: Mapping[DiskTemplate, str],
    node_names: Mapping[str, str],
) -> Iterator[Finding]:
    """Compare the files of disks that are there with the files that should be.

    Args:
        stored: files in the storage directories by the names of the nodes that told them.
        owned: the files of all disks in the configuration.
        busy: names of instances that somebody is working on, also of new ones.
        directories: the storage directories by disk template.
    """
    told: set[str] = set()  # a file that all nodes see is told once
    below = {template: f"{directory}/" for template, directory in directories.items()}
    shared = tuple(path for template, path in below.items() if template.traits.shared)
    for node_name, paths in sorted(stored.items()):
        for path in sorted(set(paths) - set(owned) - told):
            if path.startswith(shared):
                told.add(path)
            if _directory_name(path) not in busy:
                command = f"gnt-cluster command -n {node_name} rm {quote(quote(path))}"
                text = f"file {path} belongs to no disk; if nobody needs it: {command}"
                yield Finding(_Code.ENODEORPHANLV, node_name, text, Severity.WARNING)
    for guest in guests:
        node_name = node_names[guest.instance.primary_node]
        if guest.instance.disks_active or node_name not in stored:
            continue  # active disks are asked for one by one
        strays = [path for path in stored[node_name] if path not in owned]
        elsewhere = renamed_directories(guest.disks, strays)
        for index, disk in enumerate(guest.disks):
            file = file_of(disk)
            if file is None or file in stored[node_name]:
                continue
            if file.startswith(tuple(below.values())):
                text = f"disk/{index} on {node_name}: file {file} is missing"
                place = elsewhere.get(file.rpartition("/")[0])
                hint = _how_to_go_on(guest.name, place) if place is not None else ""
                yield Finding(_Code.EINSTANCEMISSINGDISK, guest.name, text + hint)


def _how_to_go_on(name: str, place: str) -> str:
    new_name = place.rpartition("/")[2]
    return (
        f"; it is in {place}, as when a rename was cut off: 'gnt-instance rename {name} {new_name}'"
        f" completes it, 'gnt-instance rename {name} {name}' takes it back"
    )


def _directory_name(path: str) -> str:
    """Return the directory that a file is in: the name of its instance."""
    return path.rpartition("/")[0].rpartition("/")[2]
