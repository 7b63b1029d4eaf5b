"""The cluster as the maintenance daemon sees and changes it, through WConfD, LuxiD and MonD.

Only nodes are read as a whole; instances and disks are asked for where a node has an event.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ganeti.base.errors import GenericError, failing_as
from ganeti.base.ids import JobId
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.clients import mond
from ganeti.clients.async_services import AsyncLuxiClient, AsyncWConfClient
from ganeti.daemon.context import run_aside
from ganeti.jobs.status import Status
from ganeti.maintd.balance import Answer, Question
from ganeti.maintd.health import SWITCHED_OFF
from ganeti.maintd.incidents import JobFacts, NodeFacts
from ganeti.maintd.repairs import Work
from ganeti.maintd.rounds import InstanceFacts, Step
from ganeti.objects.disk_templates import traits_of_all
from ganeti.objects.model import COLLECTOR_INTERVAL_US, AdminState, Cluster, Disk, Instance
from ganeti.objects.rpc_instance import secondary_nodes
from ganeti.opcodes.registry import encode_opcode
from ganeti.protocol.luxi import LuxiCalls
from ganeti.protocol.maintenance.diagnosis import (
    CATEGORY,
    COLLECTOR,
    REPORT_BYTES_MAX,
    Diagnosis,
    Unknown,
    read_report,
)
from ganeti.protocol.maintenance.stored import REASON_SOURCE, Incident, Maintenance
from ganeti.protocol.wconfd import WConfCalls
from ganeti.system import clock, files

INTERVAL_S_MAX: Final = 120.0  # of the collector, whose reports are good for 300 s
INTERVAL_S_MIN: Final = 1.0
SEARCH_S_MAX: Final = 90.0  # with the answers of LuxiD, which asks all nodes
SEARCH_BYTES_MAX: Final = 16 << 20
_SEARCH: Final = "ganeti.maintd.search"
_MICROSECONDS: Final = 1_000_000
_ANSWERS_S_MAX: Final = 20.0
_TARGET: Final = f"/1/report/{CATEGORY}/{COLLECTOR}"
_SETS_TAGS: Final = "OP_TAGS_SET"


class LiveCluster:
    """The cluster of this node; errors are GenericErrors.

    Attributes:
        interval_s: at which the collector of diagnoses works.
        is_diagnosed: whether it works at all.
    """

    def __init__(self, paths: Paths, luxi: AsyncLuxiClient, wconfd: AsyncWConfClient) -> None:
        self.interval_s = COLLECTOR_INTERVAL_US / _MICROSECONDS
        self.is_diagnosed = True
        self._paths = paths
        self._luxi = luxi
        self._wconfd = wconfd
        self._names: dict[str, str] = {}

    async def maintenance(self) -> Maintenance | None:
        return await self._wconfd.ask(WConfCalls.get_maintenance)

    async def nodes(self) -> Mapping[str, NodeFacts]:
        cluster = await self._wconfd.ask(WConfCalls.get_cluster)
        self._take_settings(cluster)
        nodes = [node for node in await self._wconfd.ask(WConfCalls.get_nodes) if node is not None]
        self._names = {str(node.uuid): node.name for node in nodes}
        return {
            node.name: NodeFacts(
                name=node.name,
                uuid=node.uuid,
                address=node.primary_ip,
                tags=frozenset(node.tags),
                is_master=node.uuid == cluster.master_node,
                is_offline=node.offline,
                is_drained=node.drained,
            )
            for node in nodes
        }

    def _take_settings(self, cluster: Cluster) -> None:
        found = cluster.data_collectors.get(COLLECTOR)
        if found is not None:
            seconds = found.interval / _MICROSECONDS
            self.interval_s = min(max(seconds, INTERVAL_S_MIN), INTERVAL_S_MAX)
        self.is_diagnosed = found is None or found.active

    async def reports(self, nodes: Mapping[str, NodeFacts]) -> dict[str, Diagnosis | Unknown]:
        """Return the reports of all nodes; none is waited for longer than the interval."""
        if not self.is_diagnosed:
            return dict.fromkeys(nodes, SWITCHED_OFF)
        with failing_as(GenericError, f"{self._paths.hmac_key} cannot be read"):
            key = files.read_bytes(self._paths.hmac_key)
        asked = {name: node.address for name, node in nodes.items() if not node.is_offline}
        limit_s = min(max(self.interval_s, 5.0), _ANSWERS_S_MAX)
        answers = await mond.fetch_all(
            asked, _TARGET, body_bytes_max=REPORT_BYTES_MAX, timeout_s=limit_s
        )
        found: dict[str, Diagnosis | Unknown] = {}
        for name in nodes:
            answer = answers.get(name, "the node is offline")
            if isinstance(answer, str):
                found[name] = Unknown(answer)
            else:
                found[name] = read_report(answer, key, name, clock.now())
        return found

    async def instances(self, nodes: Collection[NodeFacts]) -> Sequence[InstanceFacts]:
        lists = await self._wconfd.ask(WConfCalls.get_node_instances, [node.uuid for node in nodes])
        uuids = {uuid for each in lists if each for side in each for uuid in side}
        if not uuids:
            return ()
        found = await self._wconfd.ask(WConfCalls.get_instances, sorted(uuids))
        instances = [each for each in found if each is not None and not each.forthcoming]
        disk_uuids = [uuid for instance in instances for uuid in instance.disks]
        disks = await self._wconfd.ask(WConfCalls.get_disks, disk_uuids) if disk_uuids else []
        by_uuid = {disk.uuid: disk for disk in disks if disk is not None}
        return [
            self._facts(instance, [by_uuid[uuid] for uuid in instance.disks if uuid in by_uuid])
            for instance in sorted(instances, key=lambda each: each.name)
        ]

    def _facts(self, instance: Instance, disks: Sequence[Disk]) -> InstanceFacts:
        is_mirrored = any(disk.traits.mirrored for disk in disks)
        copies = secondary_nodes(instance, disks) if is_mirrored else []
        return InstanceFacts(
            name=instance.name,
            primary=self._names.get(str(instance.primary_node), ""),
            secondary=self._names.get(str(copies[0])) if copies else None,
            can_leave=not traits_of_all(disk.dev_type for disk in disks).alone,
            is_up=instance.admin_state is AdminState.UP,
        )

    async def put(self, incident: Incident) -> None:
        await self._wconfd.ask(WConfCalls.update_maintd_incident, incident)

    async def forget(self, uuid: str) -> None:
        await self._wconfd.ask(WConfCalls.rm_maintd_incident, uuid)

    async def clear_jobs(self) -> None:
        await self._wconfd.ask(WConfCalls.clear_maintd_jobs)

    async def append_jobs(self, job_ids: Sequence[JobId]) -> None:
        await self._wconfd.ask(WConfCalls.append_maintd_jobs, job_ids)

    async def add_evacuated(self, names: Sequence[str]) -> None:
        await self._wconfd.ask(WConfCalls.add_maintd_evacuated, names)

    async def remove_evacuated(self, name: str) -> None:
        await self._wconfd.ask(WConfCalls.rm_maintd_evacuated, name)

    async def submit(self, steps: Sequence[Step]) -> list[JobId | str]:
        now_ns = clock.now_ns()
        jobs = [
            [
                {**encode_opcode(op), "reason": [[REASON_SOURCE, step.event, now_ns]]}
                for op in step.opcodes
            ]
            for step in steps
        ]
        answers = await self._luxi.ask(LuxiCalls.submit_many_jobs, jobs)
        return [JobId(int(value)) if done else str(value) for done, value in answers]

    async def search(self, question: Question) -> Answer:
        argv = [sys.executable, "-m", _SEARCH, self._paths.root]
        found = await run_aside(
            argv, timeout_s=SEARCH_S_MAX, stdin=dumps(question), output_bytes_max=SEARCH_BYTES_MAX
        )
        return loads_as(Answer, found.check().stdout)

    async def jobs(self, job_ids: Collection[JobId]) -> Mapping[JobId, JobFacts]:
        if not job_ids:
            return {}
        fields = ["id", "status", "ops"]
        rows = await self._luxi.ask(LuxiCalls.query_jobs, sorted(job_ids), fields)
        return {
            JobId(int(job_id)): JobFacts(Status(status), _tags_set_by(ops))
            for job_id, status, ops in rows
            if status is not None
        }

    async def submitted(self) -> Mapping[str, list[Work]]:
        found: dict[str, list[Work]] = {}
        for job_id, ops in await self._luxi.ask(LuxiCalls.query_jobs, None, ["id", "ops"]):
            for op in ops or ():
                for event in events_of(op):
                    found.setdefault(event, []).append((JobId(int(job_id)), op))
        return found

    async def tags(self, instance: str) -> list[str] | None:
        rows = await self._luxi.ask(LuxiCalls.query_instances, [], ["name", "tags"])
        return next((list(tags) for name, tags in rows if name == instance), None)


def _tags_set_by(ops: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    return frozenset(
        tag for op in ops if op.get("OP_ID") == _SETS_TAGS for tag in op.get("tags") or ()
    )


def events_of(op: Mapping[str, Any]) -> list[str]:
    """Return the events that the reason of an opcode names."""
    return [
        entry[1]
        for entry in op.get("reason") or ()
        if isinstance(entry, list) and len(entry) > 1 and entry[0] == REASON_SOURCE
        if isinstance(entry[1], str)  # clients may write anything there
    ]
