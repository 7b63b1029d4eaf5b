"""Verify the nodes of one group and the instances on them.

Everything is asked for at once, then judged.  Instances are not locked, so that a verification
never delays work on them; what was being changed meanwhile is left out of the judgement instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ganeti.logical_units import ancillary, hooks, lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.cluster.findings import (
    Clock,
    Finding,
    judge_disk,
    judge_instance,
    judge_node,
    judge_orphans,
)
from ganeti.logical_units.cluster.verify import Report, as_mapping, as_sequence
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, shared
from ganeti.logical_units.node_calls import call_nodes, target_of
from ganeti.objects.fill import cluster_hvparams
from ganeti.objects.rpc_instance import build_rpc_disk
from ganeti.objects.verify_errors import VerifyErrorCode
from ganeti.opcodes.cluster import OpClusterVerifyGroup
from ganeti.protocol.wconfd import LockMode

if TYPE_CHECKING:
    from ganeti.objects.disk import Disk
    from ganeti.objects.instance import Instance
    from ganeti.objects.node import Node


@dataclass(frozen=True, slots=True)
class DiskPlace:
    """A disk of an instance, to be looked for on a node."""

    instance: Instance
    index: int
    disk: Disk


class LUClusterVerifyGroup(LogicalUnit[OpClusterVerifyGroup]):
    """Verify one group; the result says whether all is well."""

    def expand_names(self) -> None:
        """Look the group up, with its nodes and their instances."""
        self.group = lookup.require_group(self.config, self.op.group_name)
        node_uuids, instance_uuids = self.config.get_group_members([self.group.uuid])[0] or ([], [])
        self.nodes = lookup.present(self.config.get_nodes(node_uuids)) if node_uuids else []
        self.instances = (
            lookup.present(self.config.get_instances(instance_uuids)) if instance_uuids else []
        )

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the group and its nodes shared."""
        match level:
            case LockLevel.NODEGROUP:
                return shared(level, [self.group.uuid])
            case LockLevel.NODE:
                return shared(level, [node.uuid for node in self.nodes])
            case _:
                return {}

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run the hooks afterwards, on all nodes of the group."""
        return [], self.nodes

    def hooks_env(self) -> Mapping[str, object]:
        """Tell the tags of the cluster and of the nodes."""
        return {
            "CLUSTER_TAGS": " ".join(self.cluster.tags),
            **{f"NODE_TAGS_{node.name}": " ".join(node.tags) for node in self.nodes},
        }

    def hooks_done(self, answers: Mapping[str, object], result: object) -> object:
        """Show what the hooks printed; one that failed makes the verification fail."""
        report = Report(self.context, self.op)
        for node_name, answer in sorted(answers.items()):
            for entry in as_sequence(answer):
                match entry:
                    case [str(script), int(status), output]:
                        if status == hooks.RESULT_FAIL:
                            text = f"hook {script} failed"
                            report.add(Finding(VerifyErrorCode.ENODEHOOKS, node_name, text))
                        self._show(output)
        return bool(result) and report.is_well

    def _show(self, output: object) -> None:
        for line in str(output).splitlines():
            self.context.feedback(f"      {line}")

    @cached_property
    def online(self) -> list[Node]:
        """The nodes that can be asked."""
        return [node for node in self.nodes if not node.offline]

    def exec(self) -> bool:
        """Ask everybody, judge, tell."""
        report = Report(self.context, self.op)
        report.section(f"Verifying group '{self.group.name}'")
        report.section(f"Gathering data ({len(self.nodes)} nodes)")
        findings = [*self._nodes(), *self._instances()]
        report.section("Verifying node and instance status")
        for finding in findings:
            report.add(finding)
        offline = len(self.nodes) - len(self.online)
        if offline:
            self.context.feedback(f"  - NOTICE: {offline} offline node(s) found.")
        return report.is_well

    # Nodes.

    def _nodes(self) -> Iterator[Finding]:
        before = self.context.now()
        results = call_nodes(
            self.context,
            self.online,
            "node_verify",
            self._checks(),
            self.cluster.cluster_name,
            cluster_hvparams(self.cluster),
        )
        clock = Clock(before, self.context.now())
        for node in self.online:
            result = results[node.name]
            if result.error is not None:
                yield Finding(VerifyErrorCode.ENODERPC, node.name, f"node_verify: {result.error}")
                continue
            yield from judge_node(
                node,
                as_mapping(result.payload),
                clock,
                certificate=self.cluster.candidate_certs.get(node.uuid),
                file_sums=self._master_sums.of(node) if node.uuid != self.master.uuid else {},
            )

    def _checks(self) -> dict[str, object]:
        cluster = self.cluster
        templates = {str(name) for name in cluster.enabled_disk_templates}
        checks: dict[str, object] = {
            "version": None,
            "time": None,
            "client-cert": None,
            "nodesetup": None,
            "filelist": self._master_sums.paths,
            "hypervisor": [str(name) for name in cluster.enabled_hypervisors],
            "nonvmnodes": [node.name for node in self.nodes if not node.vm_capable],
            "allowed-file-storage-paths": self.master.name,
        }
        if "file" in templates:
            checks["file-storage-path"] = cluster.file_storage_dir
        if "sharedfile" in templates:
            checks["shared-file-storage-path"] = cluster.shared_file_storage_dir
        return checks

    @cached_property
    def _master_sums(self) -> ancillary.FileSums:
        return ancillary.file_sums(self.context.paths, self.cluster)

    # Instances and disks.

    def _instances(self) -> Iterator[Finding]:
        live = self._live()
        disk_answers = self._disk_answers()
        settled = self._settled()
        by_uuid = {node.uuid: node for node in self.nodes}
        for instance in self.instances:
            if instance.name not in settled:
                continue
            seen_on = {
                name: states[instance.name]
                for name, states in live.items()
                if instance.name in states
            }
            primary = by_uuid[instance.primary_node]
            yield from judge_instance(instance, primary, seen_on, answers=primary.name in live)
        for place, node_name, answer in disk_answers:
            if place.instance.name in settled:
                yield from judge_disk(place.instance.name, place.index, node_name, answer)
        known = {instance.name for instance in lookup.present(self.config.get_instances(None))}
        yield from judge_orphans(live, known | {instance.name for instance in self.instances})

    def _live(self) -> dict[str, dict[str, int]]:
        """Ask all nodes for their instances; returns {node name: {instance name: state}}."""
        results = call_nodes(
            self.context,
            [node for node in self.online if node.vm_capable],
            "all_instances_info",
            [str(name) for name in self.cluster.enabled_hypervisors],
            cluster_hvparams(self.cluster),
        )
        return {
            name: {instance: info["state"] for instance, info in result.payload.items()}
            for name, result in results.items()
            if result.error is None and isinstance(result.payload, Mapping)
        }

    def _disk_answers(self) -> list[tuple[DiskPlace, str, object]]:
        """Ask each node once about all disks of its primary instances that are to be ready."""
        uuids = [uuid for item in self.instances if item.disks_active for uuid in item.disks]
        found = self.config.get_disks(uuids) if uuids else []
        disks = {disk.uuid: disk for disk in lookup.present(found)}
        answers = []
        asked: dict[str, list[DiskPlace]] = {}
        for instance in self.instances:
            for index, uuid in enumerate(instance.disks):
                if uuid in disks:
                    place = DiskPlace(instance, index, disks[uuid])
                    asked.setdefault(instance.primary_node, []).append(place)
        online = {str(node.uuid): node for node in self.online}
        targets = {
            target_of(online[uuid]): [
                [build_rpc_disk(self.cluster, self.group, place.disk) for place in places]
            ]
            for uuid, places in asked.items()
            if uuid in online
        }
        results = (
            self.context.rpc.call("blockdev_getmirrorstatus_multi", targets) if targets else {}
        )
        for node_uuid, places in asked.items():
            result = results.get(online[node_uuid].name) if node_uuid in online else None
            if result is not None and result.error is None:
                pairs = zip(places, as_sequence(result.payload), strict=False)
                answers += [(place, result.node_name, answer) for place, answer in pairs]
        return answers

    def _settled(self) -> set[str]:
        """Return the names of the instances that nobody has changed or is changing."""
        now = lookup.present(self.config.get_instances([item.uuid for item in self.instances]))
        serials = {instance.name: instance.serial_no for instance in now}
        busy = {
            name.partition("/")[2]
            for name, owners in self.config.list_all_locks_owners()
            if name.startswith("instance/")
            and any(mode == LockMode.EXCLUSIVE for _owner, mode in owners)
        }
        return {
            instance.name
            for instance in self.instances
            if serials.get(instance.name) == instance.serial_no and instance.name not in busy
        }
