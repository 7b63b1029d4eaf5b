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
    judge_forthcoming,
    judge_instance,
    judge_leftover_files,
    judge_node,
    judge_oob_programs,
    judge_orphans,
)
from ganeti.logical_units.cluster.group_findings import (
    Guest,
    judge_exclusion,
    judge_layout,
    judge_memory,
    judge_spare_memory,
    judge_stored_disks,
    judge_systems,
)
from ganeti.logical_units.cluster.verify import Report, as_mapping, as_sequence
from ganeti.logical_units.cluster.verify_checks import (
    checks_of_group,
    oob_programs,
    ssh_check,
    storage_directories,
)
from ganeti.logical_units.instance.misplaced import file_of
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, shared
from ganeti.logical_units.node_calls import call_nodes, target_of
from ganeti.objects.fill import cluster_hvparams
from ganeti.objects.rpc_instance import build_rpc_disk
from ganeti.objects.verify_errors import VerifyErrorCode
from ganeti.opcodes.cluster import OpClusterVerifyGroup, OptionalCheck
from ganeti.protocol.node_rpc_values import STORED_DISKS_CHECK
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
        if self.op.verbose:
            self._name_all(report)
        busy = self._busy()
        answers, findings = self._ask_nodes()
        findings += [*self._together(answers, busy), *self._instances()]
        report.section("Verifying node and instance status")
        for finding in findings:
            report.add(finding)
        offline = len(self.nodes) - len(self.online)
        if offline:
            self.context.feedback(f"  - NOTICE: {offline} offline node(s) found.")
        return report.is_well

    def _name_all(self, report: Report) -> None:
        for node in self.nodes:
            left_out = ", which is offline and left out" if node.offline else ""
            report.section(f"Verifying node {node.name}{left_out}")
        for instance in self.instances:
            report.section(f"Verifying instance {instance.name}")

    # Nodes.

    def _ask_nodes(self) -> tuple[dict[str, Mapping[str, object]], list[Finding]]:
        """Ask all nodes; returns {node name: answer} of those that answered, and what is wrong."""
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
        answers, findings = {}, []
        for node in self.online:
            result = results[node.name]
            if result.error is not None:
                text = f"node_verify: {result.error}"
                findings.append(Finding(VerifyErrorCode.ENODERPC, node.name, text))
                continue
            answers[node.name] = as_mapping(result.payload)
            findings += self._judge_node(node, answers[node.name], clock)
        return answers, findings

    def _judge_node(
        self, node: Node, answer: Mapping[str, object], clock: Clock
    ) -> Iterator[Finding]:
        is_master = node.uuid == self.master.uuid
        expected = self._master_sums.of(node)
        yield from judge_node(
            node,
            answer,
            clock,
            certificate=self.cluster.candidate_certs.get(node.uuid),
            file_sums={} if is_master else expected,
        )
        if is_master:
            programs = oob_programs(self.cluster, self.group, self.nodes)
            yield from judge_oob_programs(node.name, programs, answer.get("oob-paths"))
        else:
            yield from judge_leftover_files(
                node.name, answer.get("filelist"), expected, self._master_sums.paths
            )

    def _checks(self) -> dict[str, object]:
        candidates = [node for node in lookup.all_nodes(self.config) if node.master_candidate]
        checks = checks_of_group(
            self.cluster,
            self.group,
            self.nodes,
            self.instances,
            master=self.master,
            candidates=[node.name for node in candidates],
        )
        if self.cluster.modify_ssh_setup:
            checks["ssh-setup"] = ssh_check(self.cluster, lookup.all_nodes(self.config))
        if self.op.verify_clutter:
            checks["ssh-clutter"] = None
        if self.context.paths.root:  # daemons of virtual nodes listen on their own address only
            del checks["master-ip"], checks["nodelist"]  # and have no SSH server
        return {"filelist": self._master_sums.paths, **checks}

    # Nodes and instances together.

    def _together(
        self, answers: Mapping[str, Mapping[str, object]], busy: set[str]
    ) -> Iterator[Finding]:
        """Judge what can be seen only by looking at several nodes and instances."""
        vm_nodes = {node.name: node for node in self.online if node.vm_capable}
        names_in_order = sorted(vm_nodes.keys() & answers.keys(), key=self._master_first)
        said = {name: answers[name] for name in names_in_order}
        yield from judge_systems({n: a["oslist"] for n, a in said.items() if "oslist" in a})
        guests = self._guests()
        all_nodes = {str(node.uuid): node for node in lookup.all_nodes(self.config)}
        names = {uuid: node.name for uuid, node in all_nodes.items()}
        for guest in guests:
            yield from judge_layout(guest, self.cluster, self.group, all_nodes)
        yield from judge_exclusion(self.cluster, guests, names)
        if OptionalCheck.NPLUSONE_MEM not in self.op.skip_checks:
            free_mib = {
                str(vm_nodes[name].uuid): free
                for name, answer in said.items()
                if isinstance(free := as_mapping(answer.get("hvinfo")).get("memory_free"), int)
            }
            yield from judge_memory(self.cluster, guests, free_mib, names)
            yield from judge_spare_memory(self.cluster, guests, free_mib, names)
        busy |= self._busy()  # who began meanwhile, too: their disks are not in the configuration
        disks = lookup.present(self.config.get_disks(None))
        yield from judge_stored_disks(
            [guest for guest in guests if guest.name not in busy],
            {
                name: [str(path) for path in as_sequence(answer[STORED_DISKS_CHECK])]
                for name, answer in said.items()
                if isinstance(answer.get(STORED_DISKS_CHECK), list)
            },
            owned={path for disk in disks if (path := file_of(disk)) is not None},
            busy=busy,
            directories=storage_directories(self.cluster),
            node_names=names,
        )

    def _master_first(self, node_name: str) -> tuple[bool, str]:
        return node_name != self.master.name, node_name

    def _guests(self) -> list[Guest]:
        """The instances that are made, with their disks."""
        uuids = [uuid for item in self.instances for uuid in item.disks]
        disks = {
            disk.uuid: disk
            for disk in (lookup.present(self.config.get_disks(uuids)) if uuids else [])
        }
        return [
            Guest(item, [disks[uuid] for uuid in item.disks if uuid in disks])
            for item in self.instances
            if not item.forthcoming
        ]

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
            if instance.forthcoming:
                disks = lookup.present(self.config.get_disks(instance.disks))
                yield from judge_forthcoming(instance, disks)
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
        busy = self._busy()
        return {
            instance.name
            for instance in self.instances
            if serials.get(instance.name) == instance.serial_no and instance.name not in busy
        }

    def _busy(self) -> set[str]:
        """Return the names of the instances that somebody is working on; also of new ones."""
        return {
            name.partition("/")[2]
            for name, owners in self.config.list_all_locks_owners()
            if name.startswith("instance/")
            and any(mode == LockMode.EXCLUSIVE for _owner, mode in owners)
        }
