"""Verify the nodes of one group and the instances on them.

All nodes are asked at once, then the answers are judged.  Instances are not locked, so that a
verification never delays work on them; an instance that was changed meanwhile is not judged.

Source: node_rpc.json, "node_verify_checks".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.base.text import shown
from ganeti.clients.node_rpc import RpcResult
from ganeti.logical_units import hooks, lookup, node_files
from ganeti.logical_units.base import SimpleUnit
from ganeti.logical_units.cluster import drbd_findings, lvm_findings
from ganeti.logical_units.cluster import findings as single
from ganeti.logical_units.cluster import group_findings as together
from ganeti.logical_units.cluster.findings import Finding, Report, as_mapping, as_sequence
from ganeti.logical_units.cluster.identity import failures
from ganeti.logical_units.cluster.verify import DiskOfInstance, ask_nodes, disks_of
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.changes.nics import bridges_of
from ganeti.logical_units.instance.storage.files import file_of
from ganeti.logical_units.locks import LockLevel, LockNeed, shared, union
from ganeti.logical_units.node import ssh_findings
from ganeti.objects.fill import (
    cluster_hvparams,
    fill_group_ndparams,
    fill_hvparams,
    fill_hvparams_for,
    fill_ndparams,
)
from ganeti.objects.model import (
    Cluster,
    Instance,
    Node,
    NodeGroup,
    NodeRole,
    listed_directories,
    role_of,
    storage_directories,
)
from ganeti.objects.rpc_instance import RpcDisk
from ganeti.objects.verify_errors import VerifyErrorCode
from ganeti.opcodes.cluster import OpClusterVerifyGroup, OptionalCheck
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import STORED_DISKS_CHECK
from ganeti.protocol.wconfd import LockMode
from ganeti.store import lease

T = TypeVar("T")

_ROLES: Final = {
    NodeRole.MASTER: "master",
    NodeRole.CANDIDATE: "master candidate",
    NodeRole.REGULAR: "regular",
    NodeRole.DRAINED: "drained",
    NodeRole.OFFLINE: "offline",
}
_MASTER_IP_SCRIPT: Final = "master-ip-setup"


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """A group, with its nodes and their instances."""

    group: NodeGroup
    nodes: Sequence[Node]
    instances: Sequence[Instance]

    @property
    def online(self) -> list[Node]:
        """The nodes that can be asked."""
        return [node for node in self.nodes if not node.offline]


class LUClusterVerifyGroup(SimpleUnit[OpClusterVerifyGroup, GroupMembers]):
    """Verify one group; the result tells whether all is well."""

    hooks = HookPoint("cluster-verify", ObjectType.CLUSTER)

    def resolve(self) -> GroupMembers:
        group = lookup.require_group(self.config, self.op.group_name)
        return GroupMembers(group, *lookup.group_members(self.config, group))

    def locks(self, found: GroupMembers) -> LockNeed:
        """Lock the group and its nodes shared."""
        return union(
            shared(LockLevel.NODEGROUP, [found.group.uuid]),
            shared(LockLevel.NODE, [node.uuid for node in found.nodes]),
        )

    def hook_nodes(self, plan: GroupMembers) -> Sequence[Node]:
        """There are hooks after the work only, on all nodes of the group."""
        return []

    def hook_nodes_after(self, plan: GroupMembers) -> Sequence[Node]:
        return plan.nodes

    def hook_values(self, plan: GroupMembers) -> Mapping[str, object]:
        return {
            "CLUSTER_TAGS": " ".join(self.cluster.tags),
            **{f"NODE_TAGS_{node.name}": " ".join(node.tags) for node in plan.nodes},
        }

    def judge_hooks(self, answers: Mapping[str, object], result: object) -> object:
        """Show the output of the hooks; one that failed makes the verification fail."""
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

    def execute(self, plan: GroupMembers) -> bool:
        """Ask all nodes, judge the answers, report."""
        report = Report(self.context, self.op)
        report.section(f"Verifying group '{plan.group.name}'")
        report.section(f"Gathering data ({len(plan.nodes)} nodes)")
        if self.op.verbose:
            self._name_all(report, plan)
        busy = self._busy()
        answers, findings = self._ask_nodes(plan)
        silent = {node.name for node in plan.online} - answers.keys()
        findings += self._lacking_configuration(plan.group.uuid, answers.keys())
        findings += [*self._together(plan, answers, busy), *self._instances(plan, silent)]
        report.section("Verifying node and instance status")
        report.add_all(findings)
        report.section("Other Notes")
        for note in self._states(plan):
            self.context.feedback(f"  - NOTICE: {note}")
        return report.is_well

    def _states(self, members: GroupMembers) -> Iterator[str]:
        """Yield how many nodes have each role, and which; offline nodes last.

        Source: design-2.0, "offline flag" and "drained flag".
        """
        for role in NodeRole:
            names = [node.name for node in members.nodes if role_of(self.cluster, node) is role]
            if names and role is not NodeRole.OFFLINE:
                yield f"{len(names)} {_ROLES[role]} node(s): {shown(names)}"
        if offline := [node.name for node in members.nodes if node.offline]:
            yield f"{len(offline)} offline node(s) found: {shown(offline)}"

    def _name_all(self, report: Report, members: GroupMembers) -> None:
        for node in members.nodes:
            left_out = ", which is left out" if node.offline else ""
            role = _ROLES[role_of(self.cluster, node)]
            report.section(f"Verifying node {node.name} ({role}){left_out}")
        for instance in members.instances:
            report.section(f"Verifying instance {instance.name}")

    # Nodes.

    def _ask_nodes(
        self, members: GroupMembers
    ) -> tuple[dict[str, Mapping[str, object]], list[Finding]]:
        """Ask all nodes; returns {node name: answer}, and findings about single nodes."""
        sums = node_files.file_sums(self.context.paths, self.cluster, members.instances)
        before = self.context.now()
        results = self.context.nodes.call_all(
            NodeCalls.node_verify,
            members.online,
            {"filelist": sums.paths, **self._checks(members)},
            self.cluster.cluster_name,
            cluster_hvparams(self.cluster),
        )
        clock = single.Clock(before, self.context.now())
        answers: dict[str, Mapping[str, object]] = {}
        findings = [
            Finding(
                VerifyErrorCode.ENODEFILECHECK,
                self.master.name,
                f"file {path}, which nodes need, cannot be read: {reason}",
            )
            for path, reason in sums.unreadable
        ]
        for node in members.online:
            result = results[node.name]
            if result.error is not None:
                text = f"node_verify: {result.error}{self._as_candidate(node, results)}"
                findings.append(Finding(VerifyErrorCode.ENODERPC, node.name, text))
                continue
            answers[node.name] = result.payload
            findings += self._judge_node(members, node, result.payload, clock, sums)
        findings += ssh_findings.judge(self.context, self.cluster, members.online, answers)
        return answers, findings

    def _lacking_configuration(self, group: str, names: Collection[str]) -> Iterator[Finding]:
        """Name nodes among these, which answer, that do not take the newest configuration."""
        if self._refusing(names):
            self.config.flush_config_group(group)  # some may be back only now
        for name, text in self._refusing(names).items():
            yield Finding(VerifyErrorCode.ENODEFILECHECK, name, text)

    def _refusing(self, names: Collection[str]) -> dict[str, str]:
        status = self.config.get_replication_status()
        return failures(row for row in status if row["error"] and row["node"] in names)

    def _as_candidate(self, node: Node, results: Mapping[str, RpcResult[Any]]) -> str:
        """Return what a silent node means for the copies of the configuration."""
        if not node.master_candidate:
            return ""
        others = [
            each
            for each in lookup.all_nodes(self.config)
            if each.master_candidate and not each.offline and each.uuid != node.uuid
        ]
        asked = [results[each.name] for each in others if each.name in results]
        answered = sum(result.error is None for result in asked)
        text = f"; it is a master candidate; of the others {answered} answered"
        left = len(others) - len(asked)
        return f"{text} and {left} of other groups were not asked" if left else text

    def _judge_node(
        self,
        members: GroupMembers,
        node: Node,
        answer: Mapping[str, object],
        clock: single.Clock,
        sums: node_files.FileSums,
    ) -> Iterator[Finding]:
        is_master = node.uuid == self.master.uuid
        expected = sums.of(node)
        yield from single.judge_node(
            node,
            answer,
            clock,
            certificate=self.cluster.candidate_certs.get(node.uuid),
            file_sums={} if is_master else expected,
        )
        if is_master:
            programs = oob_programs(self.cluster, members)
            yield from single.judge_oob_programs(node.name, programs, answer.get("oob-paths"))
        else:
            yield from single.judge_leftover_files(
                node.name, answer.get("filelist"), expected, sums.paths
            )

    def _checks(self, members: GroupMembers) -> dict[str, object]:
        all_nodes = lookup.all_nodes(self.config)
        candidates = [node.name for node in all_nodes if node.master_candidate]
        checks = checks_of_group(self.cluster, members, master=self.master, candidates=candidates)
        checks |= ssh_findings.checks(self.cluster, all_nodes)
        if self.op.verify_clutter:
            checks["ssh-clutter"] = None
        if self.context.paths.root:  # daemons of virtual nodes listen on their own address only
            del checks["master-ip"], checks["nodelist"]  # and have no SSH server
        return checks

    # Nodes and instances together.

    def _together(
        self, members: GroupMembers, answers: Mapping[str, Mapping[str, object]], busy: set[str]
    ) -> Iterator[Finding]:
        """Judge several nodes and instances seen together."""
        vm_nodes = {node.name: node for node in members.online if node.vm_capable}
        names_in_order = sorted(vm_nodes.keys() & answers.keys(), key=self._master_first)
        said = {name: answers[name] for name in names_in_order}
        yield from together.judge_systems(
            {n: a["oslist"] for n, a in said.items() if "oslist" in a}
        )
        guests = self._guests(members.instances)
        all_nodes = {str(node.uuid): node for node in lookup.all_nodes(self.config)}
        names = {uuid: node.name for uuid, node in all_nodes.items()}
        for guest in guests:
            yield from together.judge_layout(guest, self.cluster, members.group, all_nodes)
        yield from together.judge_exclusion(self.cluster, guests, names)
        if OptionalCheck.NPLUSONE_MEM not in self.op.skip_checks:
            free_mib = {
                str(vm_nodes[name].uuid): free
                for name, answer in said.items()
                if isinstance(free := as_mapping(answer.get("hvinfo")).get("memory_free"), int)
            }
            yield from together.judge_memory(self.cluster, guests, free_mib, names)
            yield from together.judge_spare_memory(self.cluster, guests, free_mib, names)
        busy |= self._busy()  # also work that began meanwhile: its disks are not yet recorded
        disks = lookup.present(self.config.get_disks(None))
        yield from together.judge_stored_disks(
            [guest for guest in guests if guest.name not in busy],
            {
                name: [str(path) for path in as_sequence(answer[STORED_DISKS_CHECK])]
                for name, answer in said.items()
                if isinstance(answer.get(STORED_DISKS_CHECK), list)
            },
            owned={path for disk in disks if (path := file_of(disk)) is not None},
            busy=busy,
            directories=listed_directories(self.cluster),
            node_names=names,
        )
        if self.cluster.volume_group_name:
            for name, answer in said.items():
                group_name = self.cluster.volume_group_name
                yield from lvm_findings.judge_groups(vm_nodes[name], group_name, answer)
            if gives_whole_volumes(self.cluster, members.group):
                yield from lvm_findings.judge_sizes(members.group, said)
            yield from lvm_findings.judge_volumes(
                self.cluster,
                [guest for guest in guests if guest.name not in busy],
                disks,
                said,
                node_names=names,
                is_busy=bool(busy),
            )
        if helper := self._drbd_helper():
            settled = [guest for guest in guests if guest.name not in busy]
            minors = {uuid: dict(rows) for uuid, rows in self.config.compute_drbd_map()}
            yield from drbd_findings.judge_versions(said)
            for node, answer in ((vm_nodes[name], answer) for name, answer in said.items()):
                known = minors.get(node.uuid, {})
                yield from drbd_findings.judge_helper(node, helper, answer)
                yield from drbd_findings.judge_minors(
                    node, answer, known, settled, is_busy=bool(busy)
                )

    def _drbd_helper(self) -> str | None:
        """Return what DRBD is to run at events; under high availability it is a program of ours."""
        helper = self.cluster.drbd_usermode_helper
        if helper and lease.is_on(self.context.paths):
            from ganeti.system import daemon_control  # starts processes, which no job needs

            return daemon_control.executable(lease.DRBD_HELPER)
        return helper

    def _master_first(self, node_name: str) -> tuple[bool, str]:
        return node_name != self.master.name, node_name

    def _guests(self, instances: Sequence[Instance]) -> list[together.Guest]:
        """Return the instances that are made, with their disks."""
        made = [instance for instance in instances if not instance.forthcoming]
        disks = lookup.disks_of_each(self.config, made)
        return list(map(together.Guest, made, disks))

    # Instances and disks.

    def _instances(self, members: GroupMembers, silent: Collection[str]) -> Iterator[Finding]:
        """Judge instances and their disks.

        Args:
            silent: names of nodes that have told nothing, and were named for it.
        """
        results = self._ask_for_instances(members.online)
        live = {
            name: {
                instance: cast("int", info["state"]) for instance, info in result.payload.items()
            }
            for name, result in results.items()
            if result.error is None
        }
        yield from single.judge_untold(results, silent)
        on_disks = list(self._disk_findings(members.instances, silent))
        settled = self._settled(members.instances)
        by_uuid = {node.uuid: node for node in members.nodes}
        for instance in members.instances:
            if instance.name not in settled:
                continue
            if instance.forthcoming:
                disks = lookup.present(self.config.get_disks(instance.disks))
                yield from single.judge_forthcoming(instance, disks)
                continue
            seen_on = {
                name: states[instance.name]
                for name, states in live.items()
                if instance.name in states
            }
            primary = by_uuid[instance.primary_node]
            yield from single.judge_instance(
                instance, primary, seen_on, answers=primary.name in live
            )
        for name, findings in on_disks:
            if name is None or name in settled:
                yield from findings
        known = {instance.name for instance in lookup.all_instances(self.config)}
        yield from single.judge_orphans(
            live, known | {instance.name for instance in members.instances}
        )

    def _ask_for_instances(self, nodes: Sequence[Node]) -> Mapping[str, RpcResult[Any]]:
        return self.context.nodes.call_all(
            NodeCalls.all_instances_info,
            [node for node in nodes if node.vm_capable],
            [str(name) for name in self.cluster.enabled_hypervisors],
            cluster_hvparams(self.cluster),
        )

    def _disk_findings(
        self, instances: Sequence[Instance], silent: Collection[str]
    ) -> Iterator[tuple[str | None, Iterator[Finding]]]:
        """Yield (instance name, findings) of all disks that are to be ready; None for nodes."""
        places = disks_of(self.config, [item for item in instances if item.disks_active])
        degraded: dict[str, DiskOfInstance] = {}
        method = NodeCalls.blockdev_getmirrorstatus_multi
        for node, mine, result in self._ask_about(method, places):
            yield None, single.judge_untold({node.name: result}, silent)
            if result.error is None:
                for place, answer in zip(mine, result.payload, strict=False):
                    name = place.instance.name
                    yield name, single.judge_disk(name, place.index, node.name, answer)
                    match answer:
                        case [True, {"is_degraded": True}] if place.disk.traits.mirrored:
                            degraded[place.disk.uuid] = place
        for node, mine, sides in self._ask_about(NodeCalls.drbd_sides, [*degraded.values()]):
            for place, side in zip(mine, sides.payload or (), strict=False):
                name = place.instance.name
                yield name, drbd_findings.judge_side(name, place.index, node.name, side)

    def _ask_about(
        self, method: Callable[[NodeCalls, Sequence[RpcDisk]], T], places: Sequence[DiskOfInstance]
    ) -> list[tuple[Node, list[DiskOfInstance], RpcResult[T]]]:
        return ask_nodes(self.context, self.cluster, method, places, both_sides=True)

    def _settled(self, instances: Sequence[Instance]) -> set[str]:
        """Return the names of the instances that no job has changed meanwhile or is changing."""
        now = lookup.present(self.config.get_instances([item.uuid for item in instances]))
        serials = {instance.name: instance.serial_no for instance in now}
        busy = self._busy()
        return {
            instance.name
            for instance in instances
            if serials.get(instance.name) == instance.serial_no and instance.name not in busy
        }

    def _busy(self) -> set[str]:
        """Return the names of the instances that jobs are working on; also of new ones."""
        return {
            name.partition("/")[2]
            for name, owners in self.config.list_all_locks_owners()
            if name.startswith("instance/")
            and any(mode == LockMode.EXCLUSIVE for _owner, mode in owners)
        }


def checks_of_group(
    cluster: Cluster, members: GroupMembers, *, master: Node, candidates: Sequence[str]
) -> dict[str, object]:
    """Return the checks that all nodes of a group are asked for, with their arguments.

    Args:
        candidates: names of the master candidates, which look at the network for all.
    """
    nodes, online, instances = members.nodes, members.online, members.instances
    checks: dict[str, object] = {
        "version": None,
        "time": None,
        "client-cert": None,
        "nodesetup": None,
        "oslist": None,
        "hypervisor": [str(name) for name in cluster.enabled_hypervisors],
        "hvinfo": str(cluster.enabled_hypervisors[0]),
        "hvparms": list(_hypervisor_params(cluster, instances)),
        "nonvmnodes": [node.name for node in nodes if not node.vm_capable],
        "allowed-file-storage-paths": master.name,
        "nodelist": [[node.name for node in online], {}, list(candidates)],
        "node-net-test": [
            [[node.name, node.primary_ip, node.secondary_ip] for node in online],
            list(candidates),
        ],
        "master-ip": [master.name, cluster.master_ip, list(candidates)],
        "bridges": bridges_of(cluster, [nic for item in instances for nic in item.nics]),
        "oob-paths": oob_programs(cluster, members),
    }
    checks |= lvm_findings.checks(cluster, exclusive=gives_whole_volumes(cluster, members.group))
    checks |= drbd_findings.checks(cluster)
    directories = storage_directories(cluster)
    checks |= {template.traits.directory_check: path for template, path in directories.items()}
    listed = listed_directories(cluster)
    if listed:
        checks[STORED_DISKS_CHECK] = sorted(listed.values())
    if cluster.use_external_mip_script:
        checks["user-scripts"] = [f"{Paths().user_scripts_dir}/{_MASTER_IP_SCRIPT}"]
    return checks


def gives_whole_volumes(cluster: Cluster, group: NodeGroup) -> bool:
    """Tell whether the nodes of a group have exclusive storage, which single nodes cannot have."""
    return bool(fill_group_ndparams(cluster, group)["exclusive_storage"])


def oob_programs(cluster: Cluster, members: GroupMembers) -> list[str]:
    """Return the out-of-band programs of the nodes; the master runs them."""
    filled = (fill_ndparams(cluster, members.group, node) for node in members.nodes)
    return sorted({str(params["oob_program"]) for params in filled} - {""})


def _hypervisor_params(
    cluster: Cluster, instances: Sequence[Instance]
) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Yield (owner, hypervisor, filled parameters); equal parameters only once."""
    enabled = {str(name) for name in cluster.enabled_hypervisors}
    seen: set[tuple[str, bytes]] = set()
    for source, hypervisor, params in _all_hypervisor_params(cluster, instances):
        key = hypervisor, dumps(params)
        if hypervisor in enabled and key not in seen:
            seen.add(key)
            yield source, hypervisor, params


def _all_hypervisor_params(
    cluster: Cluster, instances: Sequence[Instance]
) -> Iterator[tuple[str, str, dict[str, object]]]:
    for hypervisor, params in cluster_hvparams(cluster).items():
        yield "the cluster", hypervisor, params
    for os_name, by_hypervisor in cluster.os_hvp.items():
        for hypervisor in by_hypervisor:
            yield f"OS {os_name}", hypervisor, fill_hvparams_for(cluster, hypervisor, os_name)
    for instance in instances:
        yield (f"instance {instance.name}", instance.hypervisor, fill_hvparams(cluster, instance))
