"""What can be known to be missing before anything is touched.  Pure.

Each check yields what is wrong in one sentence that says what to do about it; all of them are told
at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ganeti.cli.moving.wish import Source, Wish
from ganeti.objects.disk_templates import traits_of

_PLAIN: Final = "none"


@dataclass(frozen=True, slots=True)
class Destination:
    """The destination cluster as it describes itself."""

    info: Mapping[str, Any]
    nodes: Sequence[Mapping[str, Any]]
    instances: Sequence[str]
    systems: Sequence[str]
    networks: Sequence[str]

    def node(self, name: str) -> Mapping[str, Any] | None:
        """Return a node by its name, or the first part of it."""
        fitting = [
            node for node in self.nodes if name in (node["name"], node["name"].partition(".")[0])
        ]
        return fitting[0] if fitting else None


def rights_problems(cluster: str, user: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a user may not do what a move does; one with roles is left to the server."""
    if user.get("name") is None:
        yield f"{cluster}: no user was given, and nobody may change things without one"
    elif not user.get("roles") and "write" not in user.get("rights", ()):
        yield (
            f"{cluster}: user {user['name']!r} has no right to change things; give it the right"
            f" there, with 'gnt-rapi set-user --rights=write {user['name']}'"
        )


def version_problems(source: Mapping[str, Any], destination: Mapping[str, Any]) -> Iterator[str]:
    """Yield why two clusters do not understand each other."""
    versions = [info.get("software_version", "unknown") for info in (source, destination)]
    if [*map(_minor, versions)] != [_minor(versions[0])] * 2:
        yield (
            f"the source cluster has version {versions[0]}, the destination cluster"
            f" {versions[1]}: upgrade the older one"
        )
    if source.get("uuid") and source.get("uuid") == destination.get("uuid"):
        yield "source and destination are the same cluster; use 'gnt-instance move'"


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def source_problems(source: Source, nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield why an instance cannot be sent."""
    if not source.disks:
        yield f"instance {source.name!r} has no disks: there is nothing to move"
    primary = source.facts["pnode"]
    if any(node["name"] == primary and node["offline"] for node in nodes):
        yield f"node {primary!r}, which has instance {source.name!r}, is marked offline"


def destination_problems(wish: Wish, there: Destination) -> Iterator[str]:
    """Yield what a new instance needs and the destination cluster does not have."""
    wanted, info = wish.creation, there.info
    if wish.name in there.instances:
        yield (
            f"the destination cluster has an instance {wish.name!r} already; give another name with"
            " --dest-instance-name"
        )
    for what, value, known, hint in (
        ("hypervisor", wanted["hypervisor"], info["enabled_hypervisors"], "enable it there"),
        (
            "disk template",
            wanted["disk_template"],
            info["enabled_disk_templates"],
            "enable it there, or give another one with --dest-disk-template",
        ),
        ("operating system", wanted.get("os_type"), there.systems, "install its definition there"),
        (
            "compression",
            None if wanted["compress"] == _PLAIN else wanted["compress"],
            info.get("compression_tools", ()),
            "give another one with --compress",
        ),
    ):
        if value is not None and value not in known:
            names = ", ".join(known) or "none"
            yield f"the destination cluster has no {what} {value!r} (it has {names}); {hint}"
    yield from _network_problems(wanted["nics"], there.networks)
    yield from _placement_problems(wish, there)


def _network_problems(nics: Sequence[Mapping[str, Any]], networks: Sequence[str]) -> Iterator[str]:
    for index, nic in enumerate(nics):
        network = nic.get("network")
        if network not in (None, "none", *networks):
            yield (
                f"the destination cluster has no network {network!r}, which interface {index} is"
                f" in; add it there, or give another one with --net {index}:network=..."
            )


def _placement_problems(wish: Wish, there: Destination) -> Iterator[str]:
    name = wish.creation.get("pnode")
    if name is None:
        if wish.creation.get("iallocator") is None and not there.info.get("default_iallocator"):
            yield "give the node for it with --dest-primary-node, or an allocator with --iallocator"
        return
    node = there.node(name)
    if node is None:
        names = ", ".join(node["name"] for node in there.nodes)
        yield f"the destination cluster has no node {name!r} (it has {names})"
        return
    for is_bad, what in (
        (node["offline"], "is marked offline"),
        (node["drained"], "is drained"),
        (not node["vm_capable"], "is not vm_capable"),
    ):
        if is_bad:
            yield f"destination node {node['name']!r} {what}; give another one"
    yield from _room_problems(wish, node)


def _room_problems(wish: Wish, node: Mapping[str, Any]) -> Iterator[str]:
    needs = []
    if traits_of(wish.creation["disk_template"]).storage.units is not None:
        needs.append(("disk space", wish.disk_mib, node["dfree"]))
    if wish.creation["start"]:
        needs.append(("memory", wish.memory_mib, node["mfree"]))
    for what, needed, free in needs:
        if free is not None and needed > free:
            yield (
                f"destination node {node['name']!r} has {free} MiB of {what} free, {needed} MiB are"
                " needed; give another one"
            )
