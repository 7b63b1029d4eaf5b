"""Looks whether a move can go through, before anything is touched, and tells all that is missing.

Facts that both clusters tell are compared; each comparison yields a sentence for each thing that is
wrong, with the remedy, and all of them are told at once.  Whether both have the same
domain secret, and the like, only the destination cluster can know: the creation is submitted there
as a dry run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.text import shown
from ganeti.cli.moving.clusters import Cluster, is_not_found, run_job
from ganeti.cli.moving.wish import Overrides, Source, Wish, plan
from ganeti.clients.rapi import JobFailedError, RapiClient, failure_reason
from ganeti.objects.disk_templates import traits_of
from ganeti.opcodes.backup import ExportMode, OpBackupPrepare
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceListSnapshots

_UNSIGNED: Final = "not signed"  # told even if something else is wrong
_PLAIN: Final = "none"


@dataclass(frozen=True, slots=True)
class Ready:
    """A move that can begin.

    Attributes:
        prepared: the source's answer for it.
        is_confirmed: a job of one of them that ends in success means that the disks are complete;
            where one of the two is of 3.0, both jobs have to, and the log may tell no loss.
    """

    wish: Wish
    prepared: Mapping[str, Any]
    is_confirmed: bool = True

    @property
    def creation(self) -> OpInstanceCreate:
        """The creation, with the proof of the sender."""
        start = self.wish.creation["start"] and self.is_confirmed
        return OpInstanceCreate(
            **{**self.wish.creation, "start": start},
            source_handshake=self.prepared["handshake"],
            source_x509_ca=self.prepared["x509_ca"],
        )


class Preflight:
    """Collects problems."""

    def __init__(
        self, source: Cluster, destination: Cluster, *, keeps_source: bool = False
    ) -> None:
        self.problems: list[str] = []
        self._keeps_source = keeps_source
        self._clusters = (source, destination)
        self._of_3_0: set[str] = set()

    def run(self, names: Mapping[str, str], wanted: Overrides) -> list[Ready]:
        """Look at all moves; the result is of use only if there are no `problems`.

        Args:
            names: of the instances, and the names that they get.
        """
        found = [self._reach(cluster) for cluster in self._clusters]
        clients = [client for client, _ in found if client is not None]
        try:
            if len(clients) < len(self._clusters):
                return []
            infos = [info for _, info in found]
            self.problems += version_problems(*infos)
            there = self._destination(clients[1], infos[1])
            moves = [
                self._look_at(clients, there, name, new_name, wanted)
                for name, new_name in names.items()
            ]
            return [move for move in moves if move is not None]
        except GenericError as err:
            self.problems.append(err.message)
            return []
        finally:
            for client in clients:
                client.close()

    def _reach(self, cluster: Cluster) -> tuple[RapiClient | None, Mapping[str, Any]]:
        """Return a client and facts, if the cluster can be asked."""
        client = None
        try:
            client = cluster.client()
            info = client.get_info()
            self.problems += rights_problems(cluster.label, self._user(client, cluster))
        except GenericError as err:
            self.problems.append(cluster.explain(err))
            if client is not None:
                client.close()
            return None, {}
        return client, info

    def _user(self, client: RapiClient, cluster: Cluster) -> Mapping[str, Any]:
        """Ask for our user; a server of 3.0 does not know that question, and says so later."""
        try:
            return client.read(dict[str, Any], "get_user")
        except GenericError as err:
            if not is_not_found(err):
                raise
        self._of_3_0.add(cluster.what)
        return {"name": cluster.user, "rights": ["write"]}

    def _destination(self, client: RapiClient, info: Mapping[str, Any]) -> Destination:
        return Destination(
            info=info,
            nodes=client.get_nodes(bulk=True),
            instances=[each["id"] for each in client.get_instances()],
            systems=client.get_os(),
            networks=[each["name"] for each in client.get_networks(bulk=True)],
        )

    def _look_at(
        self,
        clients: Sequence[RapiClient],
        there: Destination,
        name: str,
        new_name: str,
        wanted: Overrides,
    ) -> Ready | None:
        here = clients[0]
        try:
            source = describe(here, name)
            wish = plan(source, new_name or source.name, wanted)
            found = [
                *source_problems(source, here.get_nodes(bulk=True)),
                *destination_problems(wish, there),
            ]
            if self._clusters[1].what in self._of_3_0:
                found += problems_of_3_0(source)
            prepare = OpBackupPrepare(instance_name=source.name, mode=ExportMode.REMOTE)
            ready = Ready(wish, run_job(here, here.submit(prepare)), not self._of_3_0)
            found += snapshot_problems(source, self._lost_snapshots(here, source))
        except GenericError as err:
            self.problems.append(err.message)
            return None
        refusal = self._rehearse(clients[1], ready)
        if refusal and (not found or _UNSIGNED in refusal):
            found.append(refusal)
        self.problems += found
        return ready

    def _lost_snapshots(self, here: RapiClient, source: Source) -> list[str]:
        """Return the snapshots that go with the source; in a cluster of 3.0 there are none."""
        if self._keeps_source or self._clusters[0].what in self._of_3_0:
            return []
        found = run_job(here, here.submit(OpInstanceListSnapshots(instance_name=source.name)))
        return [name for name, *_ in found]

    def _rehearse(self, client: RapiClient, ready: Ready) -> str:
        """Ask the destination cluster whether it would make the instance; returns why not."""
        try:
            run_job(client, client.submit(replace(ready.creation, dry_run=True)))
        except JobFailedError as err:
            return f"the {self._clusters[1].what} refuses it: {failure_reason(err.job)}"
        return ""


def describe(client: RapiClient, name: str) -> Source:
    """Return an instance as its cluster describes it.

    Raises:
        OpPrereqError: there is none, or nobody knows whether it runs.
    """
    try:
        row = client.get_instance(name)
    except GenericError as err:
        if not is_not_found(err):
            raise
        raise OpPrereqError(f"the source cluster has no instance {name!r}") from err
    if row["oper_state"] is None:
        raise OpPrereqError(
            f"the source cluster cannot tell whether instance {name!r} runs: node"
            f" {row['pnode']!r} does not answer"
        )
    facts = run_job(client, client.get_instance_info(name, static=True))
    found = {**facts[row["name"]], "tags": row["tags"]}  # 3.0 tells tags in the row only
    return Source(row["name"], bool(row["oper_state"]), found)


# The comparisons.  Pure.


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
    """Yield the rights for a move that a user lacks; a user with roles is left to the server."""
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


def snapshot_problems(source: Source, names: Sequence[str]) -> Iterator[str]:
    """Yield why an instance with snapshots is not to be removed: they are not sent along."""
    if names:
        yield (
            f"the snapshots of instance {source.name!r} ({shown(names)}) would be lost with it:"
            f" remove them there with 'gnt-instance snapshot remove {source.name} NAME', or leave"
            " the instance in the source cluster with --keep-source"
        )


def problems_of_3_0(source: Source) -> Iterator[str]:
    """Yield why a destination of 3.0 cannot receive an instance."""
    if not source.facts["os"]:
        yield (
            f"instance {source.name!r} has no operating system definition: a cluster of 3.0 waits"
            " for no disks of such instances"
        )


def destination_problems(wish: Wish, there: Destination) -> Iterator[str]:
    """Yield the things that a new instance needs and the destination cluster does not have."""
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
