"""The instances of dead nodes, and the nodes where they may start, by the configuration."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ganeti.availability.restarts import Guest, priority_of
from ganeti.base.ids import JobId, NodeUuid
from ganeti.config.index import drbd_devices
from ganeti.jobs.status import Status
from ganeti.maintd.cluster import LiveCluster, events_of
from ganeti.maintd.incidents import JobFacts
from ganeti.maintd.losses import LossJob, read_event
from ganeti.objects.disk_templates import traits_of_all
from ganeti.objects.fill import fill_beparams
from ganeti.objects.model import AdminState, Cluster, Disk, Instance
from ganeti.objects.rpc_instance import secondary_nodes
from ganeti.protocol.luxi import LuxiCalls
from ganeti.protocol.wconfd import WConfCalls


class StrickenCluster(LiveCluster):
    """The cluster of this node as `ganeti.maintd.restarting` sees it."""

    async def serial(self) -> int:
        """As declared."""
        return (await self._wconfd.ask(WConfCalls.get_serial))[0]

    async def queue(self, uuids: Collection[str]) -> tuple[list[LossJob], set[str]]:
        """As declared."""
        rows = await self._luxi.ask(LuxiCalls.query_jobs, None, ["id", "status", "ops"])
        found: dict[JobId, LossJob] = {}
        busy: set[str] = set()
        for number, status, ops in rows:
            job_id, facts = JobId(int(number)), JobFacts(None if status is None else Status(status))
            for op in ops or ():
                name = op.get("instance_name")
                if name and facts.is_running:
                    busy.add(str(name))
                for about in filter(None, map(read_event, events_of(op))):
                    if about[0] in uuids:
                        found[job_id] = LossJob(
                            job_id, *about, name, facts.is_running, facts.is_bad
                        )
        return list(found.values()), busy

    async def guests(
        self, names: Collection[str], outdated: Collection[str], busy: Collection[str]
    ) -> list[Guest]:
        """As declared."""
        cluster = await self._wconfd.ask(WConfCalls.get_cluster)
        nodes = [node for node in await self._wconfd.ask(WConfCalls.get_nodes) if node is not None]
        lost = [node.uuid for node in nodes if node.name in names]
        lists = await self._wconfd.ask(WConfCalls.get_node_instances, lost) if lost else []
        uuids = sorted(uuid for each in lists if each for uuid in each[0])
        if not uuids:
            return []
        found = await self._wconfd.ask(WConfCalls.get_instances, uuids)
        wanted = [
            each
            for each in found
            if each is not None and not each.forthcoming and each.admin_state is AdminState.UP
        ]
        disk_uuids = [uuid for instance in wanted for uuid in instance.disks]
        disks = await self._wconfd.ask(WConfCalls.get_disks, disk_uuids) if disk_uuids else []
        by_uuid = {disk.uuid: disk for disk in disks if disk is not None}
        groups = {node.uuid: node.group for node in nodes}
        return [
            _guest(
                cluster,
                instance,
                [by_uuid[uuid] for uuid in instance.disks if uuid in by_uuid],
                {n.uuid: n.name for n in nodes},
                [n.name for n in nodes if n.group == groups[instance.primary_node]],
                outdated,
                is_in_work=instance.name in busy,
            )
            for instance in wanted
            if instance.primary_node in groups
        ]

    async def copies(self) -> dict[int, set[str]]:
        """As declared."""
        nodes = await self._wconfd.ask(WConfCalls.get_nodes)
        names = {node.uuid: node.name for node in nodes if node is not None}
        disks = await self._wconfd.ask(WConfCalls.get_disks)
        return {
            port: {names.get(NodeUuid(uuid), "") for uuid in (node_a, node_b)}
            for disk in disks
            if disk is not None
            for node_a, node_b, port, *_ in drbd_devices(disk)
            if port is not None
        }

    async def free_memory(self, names: Collection[str]) -> dict[str, int]:
        """As declared."""
        if not names:
            return {}  # LUXI takes no names for all
        fields = ["name", "mfree", "offline", "drained", "vm_capable"]
        rows = await self._luxi.ask(LuxiCalls.query_nodes, sorted(names), fields)
        return {
            name: int(mib)
            for name, mib, is_offline, is_drained, is_capable in rows
            if mib is not None and is_capable and not (is_offline or is_drained)
        }


def _guest(
    cluster: Cluster,
    instance: Instance,
    disks: Sequence[Disk],
    names: Mapping[str, str],
    group: Sequence[str],
    outdated: Collection[str],
    *,
    is_in_work: bool,
) -> Guest:
    """Return an instance of a dead node.

    Args:
        names: of nodes, by UUID.
        group: the nodes of its group.
    """
    is_mirrored = any(disk.traits.mirrored for disk in disks)
    is_shared = not is_mirrored and not traits_of_all(disk.dev_type for disk in disks).alone
    primary = names[instance.primary_node]
    nodes = group if is_shared else ()
    if is_mirrored:
        stale = {name for name in names.values() if _has_outdated(name, disks, outdated)}
        nodes = [names[str(uuid)] for uuid in secondary_nodes(instance, disks)]
        nodes = [name for name in nodes if name not in stale]
    return Guest(
        name=instance.name,
        node=primary,
        memory=fill_beparams(cluster, instance)["maxmem"],
        nodes=tuple(name for name in nodes if name != primary),
        priority=priority_of(instance.tags),
        is_in_work=is_in_work,
        is_shared=is_shared,
    )


def _has_outdated(name: str, disks: Sequence[Disk], outdated: Collection[str]) -> bool:
    """Tell whether a node's copy of one of the disks lacks writes."""
    ports = [disk.logical_id[2] for disk in disks if disk.traits.mirrored]
    return any(f"{name}/{port}" in outdated for port in ports)
