"""Verify the cluster and its disks: one job for the configuration, one for each node group.

Do the disks exist, and are they as large as the configuration says?  Each node is asked once for
all disks of all its instances, never once per disk; only those that it does not show are asked for
one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict, TypeVar

from ganeti.base.errors import ConfigVerifyError, GenericError
from ganeti.base.ids import NodeUuid
from ganeti.base.paths import Paths
from ganeti.base.text import natural_sorted
from ganeti.clients.node_rpc import RpcResult, Target, target_of
from ganeti.logical_units import lookup, node_files
from ganeti.logical_units.backup.findings import backup_findings
from ganeti.logical_units.base import NamelessUnit, SimpleUnit
from ganeti.logical_units.cluster.findings import Finding, Report, Severity, judge_dangling
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.generations import mark_left_behind
from ganeti.logical_units.instance.storage.planner import resized
from ganeti.logical_units.instance.view import changed_fields
from ganeti.logical_units.locks import LockLevel, LockNeed, all_exclusive, exclusive, shared, union
from ganeti.objects.model import Cluster, Disk, Instance, Node, NodeGroup
from ganeti.objects.rpc_instance import RpcDisk, build_rpc_disk
from ganeti.objects.verify_errors import VerifyErrorCode
from ganeti.opcodes import cluster as opcodes
from ganeti.opcodes.group import OpGroupVerifyDisks
from ganeti.opcodes.opcode import OpCode
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.wconfd import ObjectKind, WConfCalls
from ganeti.store import lease
from ganeti.store.job_files import JobFiles
from ganeti.system import files

CERTIFICATES: Final = ("server_pem", "client_pem", "rapi_pem", "spice_pem", "spice_ca_pem")
DAYS_ERROR: Final = 7  # SSL_CERT_EXPIRATION_ERROR
DAYS_WARN: Final = 30  # SSL_CERT_EXPIRATION_WARN
# Parameters of all three opcodes.
_COMMON: Final = ("debug_simulate_errors", "error_codes", "ignore_errors", "verbose", "reason")
_SECONDS_PER_DAY: Final = 86400.0


class LUClusterVerify(SimpleUnit[opcodes.OpClusterVerify, Sequence[NodeGroup]]):
    """Submit the jobs that verify the cluster."""

    def resolve(self) -> list[NodeGroup]:
        return lookup.groups_named(self.config, self.op.group_name)

    def execute(self, plan: Sequence[NodeGroup]) -> dict[str, object]:
        """Submit the jobs; those for groups wait for the one for the configuration."""
        op = self.op
        common: dict[str, Any] = {name: getattr(op, name) for name in _COMMON}
        jobs: list[list[OpCode]] = []
        if op.group_name is None:
            jobs.append([opcodes.OpClusterVerifyConfig(**common)])
        first = len(jobs)
        for number, group in enumerate(plan):
            job = opcodes.OpClusterVerifyGroup(
                group_name=group.name,
                skip_checks=op.skip_checks,
                verify_clutter=op.verify_clutter,
                depends=[(-(first + number), [])] if first else None,
                **common,
            )
            jobs.append([job])
        return {"jobs": [(True, job_id) for job_id in self.context.submit_jobs(jobs)]}


class LUClusterVerifyConfig(NamelessUnit[opcodes.OpClusterVerifyConfig]):
    """Verify configuration and certificates; the result tells whether all is well."""

    def execute(self, plan: None) -> bool:
        config, report = self.config, Report(self.context, self.op)
        report.section("Verifying cluster config")
        try:
            config.verify_config()
        except ConfigVerifyError as err:
            for text in err.errors or [err.message]:
                report.add(Finding(VerifyErrorCode.ECLUSTERCFG, "", text))
        groups = {group.uuid for group in lookup.all_groups(config)}
        nodes, instances = lookup.all_nodes(config), lookup.all_instances(config)
        report.add_all(judge_dangling(nodes, instances, groups))
        report.section("Verifying cluster certificate files")
        report.add_all(certificate_findings(self.context.paths, self.context.now()))
        report.add_all(lost_job_findings(self.context.paths))
        report.add_all(backup_findings(self.context, nodes, instances))
        if lease.is_on(self.context.paths):
            from ganeti.logical_units.cluster.availability_findings import availability_findings

            report.section("Verifying high availability")
            report.add_all(availability_findings(self.context, nodes))
        return report.is_well


def certificate_findings(paths: Paths, now: float) -> list[Finding]:
    """Return findings about certificates of this node that are broken or end soon."""
    from ganeti.system import certificates  # cryptography: 30 ms and its memory for every job

    found = []
    for name in CERTIFICATES:
        path = getattr(paths, name)
        pem = files.read_bytes_or_none(path, node_files.FILE_BYTES_MAX)
        if pem is None:
            if name == "server_pem":
                found.append(_certificate(f"certificate {path} is missing", Severity.ERROR))
            continue
        try:
            left_days = (certificates.facts(pem, path).not_after - now) / _SECONDS_PER_DAY
        except GenericError as err:
            found.append(_certificate(err.message, Severity.ERROR))
            continue
        if left_days <= DAYS_WARN:
            severity = Severity.ERROR if left_days <= DAYS_ERROR else Severity.WARNING
            text = (
                f"certificate {path} ends in {left_days:.1f} days"
                if left_days > 0
                else f"certificate {path} has ended {-left_days:.1f} days ago"
            )
            found.append(_certificate(text, severity))
    return found


def lost_job_findings(paths: Paths) -> list[Finding]:
    """Return findings about job files that could not be read."""
    return [
        Finding(
            VerifyErrorCode.ECLUSTERFILECHECK,
            "",
            f"the file of job {job_id} could not be read, so the job is lost; it is {path} now:"
            " remove it when nobody needs it",
            Severity.WARNING,
        )
        for job_id, path in JobFiles(paths).set_aside_files().items()
    ]


def _certificate(text: str, severity: Severity) -> Finding:
    return Finding(VerifyErrorCode.ECLUSTERCERT, "", text, severity)


AnswerT = TypeVar("AnswerT")

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class DiskOfInstance:
    """One disk, with its instance and its number there."""

    instance: Instance
    index: int
    disk: Disk


def disks_of(config: WConfCalls, instances: Sequence[Instance]) -> list[DiskOfInstance]:
    """Return all disks of instances, read in one call."""
    return [
        DiskOfInstance(instance, index, disk)
        for instance, disks in zip(instances, lookup.disks_of_each(config, instances), strict=True)
        for index, disk in enumerate(disks)
    ]


def _holders(place: DiskOfInstance) -> set[str]:
    """Return the UUIDs of the nodes that have the disk, and of the instance's primary node."""
    return {place.instance.primary_node, *place.disk.nodes}


def ask_nodes(
    context: JobContext,
    cluster: Cluster,
    method: Callable[[NodeCalls, Sequence[RpcDisk]], AnswerT],
    places: Sequence[DiskOfInstance],
    *,
    both_sides: bool = False,
) -> list[tuple[Node, list[DiskOfInstance], RpcResult[AnswerT]]]:
    """Ask the primary nodes about disks, all of one node in one call.

    Nobody is asked about a disk on a node that does not exist, which `verify_config` tells.

    Args:
        both_sides: ask both nodes about disks with copies.
    """
    if not places:
        return []
    holders = {uuid for place in places for uuid in _holders(place)}
    known = lookup.present(context.config.get_nodes(sorted(holders)))
    ips = {node.uuid: node.secondary_ip for node in known}
    groups = lookup.groups_of(context.config, known)
    by_node: dict[str, list[DiskOfInstance]] = defaultdict(list)
    for place in places:
        if not ips.keys() >= _holders(place):
            continue
        copies = place.disk.nodes if both_sides and place.disk.traits.mirrored else ()
        for uuid in dict.fromkeys([place.instance.primary_node, *copies]):
            by_node[uuid].append(place)
    nodes = [node for node in known if node.uuid in by_node and node.group in groups]
    targets = {}
    for node in nodes:
        group, disks = groups[node.group], [place.disk for place in by_node[node.uuid]]
        side = _side(node, ips)
        wires = [build_rpc_disk(cluster, group, disk, **side) for disk in disks]
        targets[target_of(node)] = (wires,)
    results = context.nodes.call_each(method, targets)
    return [(node, by_node[node.uuid], results[node.name]) for node in nodes]


class LUClusterRepairDiskSizes(SimpleUnit[opcodes.OpClusterRepairDiskSizes, Sequence[Instance]]):
    """Correct the sizes of disks in the configuration."""

    def resolve(self) -> list[Instance]:
        """Look the instances up; all of them if none is named."""
        config, names = self.config, self.op.instances
        found = lookup.require_instances(config, names) if names else lookup.all_instances(config)
        return [instance for instance in found if not instance.forthcoming]

    def locks(self, found: Sequence[Instance]) -> LockNeed:
        """Lock the instances exclusively: their disks may be changed in the configuration."""
        instances = (
            exclusive(LockLevel.INSTANCE, [instance.name for instance in found])
            if self.op.instances
            else all_exclusive(LockLevel.INSTANCE)
        )
        uuids = {instance.primary_node for instance in found}
        return union(instances, shared(LockLevel.NODE, uuids), shared(LockLevel.NODE_RES, uuids))

    def execute(self, plan: Sequence[Instance]) -> list[tuple[str, int, str, int]]:
        """Compare and correct; returns (instance, disk, "size", new size) of each change."""
        changed: list[tuple[str, int, str, int]] = []
        places, method = disks_of(self.config, plan), NodeCalls.blockdev_getdimensions
        for node, mine, result in ask_nodes(self.context, self.cluster, method, places):
            if result.error is not None:
                self.context.warn(f"cannot look at disks on node {node.name}: {result.error}")
                continue
            for place, answer in zip(mine, result.payload, strict=False):
                changed += self._compare(place, answer)
        return changed

    def _compare(
        self, place: DiskOfInstance, answer: tuple[int, int | None] | None
    ) -> list[tuple[str, int, str, int]]:
        name, index, disk = place.instance.name, place.index, place.disk
        if answer is None:
            self.context.warn(f"disk {index} of instance {name} does not exist, ignoring")
            return []
        real_mib = answer[0] // _MIB
        fields = changed_fields(disk, resized(disk, real_mib))
        if not fields:
            return []
        sizes_mib = dict.fromkeys([disk.size, *(child.size for child in disk.children[:1])])
        self.context.info(
            f"disk {index} of instance {name} has {real_mib} MiB,"
            f" {' and '.join(map(str, sizes_mib))} are written down: correcting"
        )
        self.config.modify(ObjectKind.DISK, disk.uuid, fields)
        return [(name, index, "size", real_mib)]


class LUClusterVerifyDisks(SimpleUnit[opcodes.OpClusterVerifyDisks, Sequence[NodeGroup]]):
    """Submit one job for each group."""

    def resolve(self) -> list[NodeGroup]:
        return lookup.groups_named(self.config, self.op.group_name)

    def execute(self, plan: Sequence[NodeGroup]) -> dict[str, object]:
        jobs = [
            [OpGroupVerifyDisks(group_name=group.name, reason=self.op.reason)] for group in plan
        ]
        return {"jobs": [(True, job_id) for job_id in self.context.submit_jobs(jobs)]}


@dataclass(frozen=True, slots=True)
class ActiveInstances:
    """A group, and its instances whose disks are to be ready.

    Attributes:
        disks: all of their disks.
    """

    group: NodeGroup
    instances: Sequence[Instance]
    disks: Sequence[DiskOfInstance]

    @property
    def nodes(self) -> set[str]:
        """The UUIDs of the nodes that have disks of the instances."""
        holders = {uuid for place in self.disks for uuid in place.disk.nodes}
        return {instance.primary_node for instance in self.instances} | holders


class _Side(TypedDict):
    """The node that gets a disk, and the addresses for copies."""

    node_uuid: NodeUuid
    secondary_ips: Mapping[NodeUuid, str]


_ANY: Final = ""  # stands for all answers of a node


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A disk, or a volume below one, of which its node has not told the state.

    Attributes:
        name: its name in the result of the job.
        answer: what the node said instead.
    """

    target: Target
    place: DiskOfInstance
    wire: RpcDisk
    name: str
    answer: object


def _is_seen(answer: object) -> bool:
    """Tell whether a node's answer about a disk is the state of the disk."""
    match answer:
        case [True, _]:
            return True
        case _:
            return False


class LUGroupVerifyDisks(SimpleUnit[OpGroupVerifyDisks, ActiveInstances]):
    """Look for the disks of the instances of one group that are to be ready."""

    def resolve(self) -> ActiveInstances:
        group = lookup.require_group(self.config, self.op.group_name)
        _, instances = lookup.group_members(self.config, group)
        active = [each for each in instances if each.disks_active]
        return ActiveInstances(group, active, disks_of(self.config, active))

    def locks(self, found: ActiveInstances) -> LockNeed:
        """Lock the instances, the group and their nodes shared."""
        return union(
            shared(LockLevel.INSTANCE, [instance.name for instance in found.instances]),
            shared(LockLevel.NODEGROUP, [found.group.uuid]),
            shared(LockLevel.NODE, found.nodes),
        )

    def execute(
        self, plan: ActiveInstances
    ) -> tuple[dict[str, str], list[str], dict[str, list[list[str]]]]:
        """Ask the nodes.

        Returns:
            {node: reason why it, or a disk on it, could not be asked}, names of instances whose
            disks must be activated, {instance: [[node, disk], ...] that are missing}.
        """
        known = {node.uuid for node in lookup.present(self.config.get_nodes(sorted(plan.nodes)))}
        failing = dict.fromkeys(sorted(plan.nodes - known), "there is no such node")
        doubts: list[_Doubt] = []
        found = [place for place in plan.disks if _holders(place) <= known]
        mirrored = [place for place in found if place.disk.traits.mirrored]
        places = [place for place in found if not place.disk.traits.mirrored]
        method = NodeCalls.blockdev_getmirrorstatus_multi
        for node, mine, result in ask_nodes(self.context, self.cluster, method, places):
            if result.error is not None:
                if not result.offline:
                    failing[node.name] = result.error
                continue
            for place, answer in zip(mine, result.payload, strict=False):
                if not _is_seen(answer):
                    wire = build_rpc_disk(self.cluster, plan.group, place.disk, **_side(node, {}))
                    name = f"{place.disk.iv_name} ({place.disk.uuid})"
                    doubts.append(_Doubt(target_of(node), place, wire, name, answer))
        inactive = self._look_at_copies(plan, mirrored, failing, doubts)
        missing = self._missing_among(doubts, failing)
        return failing, natural_sorted(inactive - missing.keys()), missing

    def _missing_among(
        self, doubts: Sequence[_Doubt], failing: dict[str, str]
    ) -> dict[str, list[list[str]]]:
        """Ask about each disk that was not seen: is it gone, or can its node not look at it?

        The first answer does not tell that apart.  One that a node gave for a disk that it cannot
        look at means the same for others: a driver out of order is not asked about all its disks,
        and a node that does not answer any more is not asked again.

        Returns:
            {instance: [[node, disk], ...]} of the disks that are gone.
        """
        missing: dict[str, list[list[str]]] = {}
        judged: set[tuple[str, str]] = set()
        for doubt in doubts:
            node_name, answer = doubt.target.name, str(doubt.answer)
            if judged & {(node_name, answer), (node_name, _ANY)}:
                continue
            call = NodeCalls.blockdev_find
            [result] = self.context.nodes.call_each(call, {doubt.target: (doubt.wire,)}).values()
            if result.error is not None:
                judged.add((node_name, _ANY if result.address else answer))
                failing.setdefault(node_name, result.error)
            elif result.payload is None:
                row = [node_name, doubt.name]
                missing.setdefault(doubt.place.instance.name, []).append(row)
        return missing

    def _look_at_copies(
        self,
        plan: ActiveInstances,
        places: Sequence[DiskOfInstance],
        failing: dict[str, str],
        doubts: list[_Doubt],
    ) -> set[str]:
        """Ask both nodes about disks with copies, and about the volumes below them.

        Returns:
            The names of the instances of which a side is not ready, or does not connect.
        """
        nodes = lookup.all_nodes(self.config) if places else []
        ips = {node.uuid: node.secondary_ip for node in nodes}
        sides = {
            target_of(node): [
                (place, build_rpc_disk(self.cluster, plan.group, place.disk, **_side(node, ips)))
                for place in places
                if node.uuid in place.disk.nodes
            ]
            for node in nodes
        }
        asked = {target: rows for target, rows in sides.items() if rows}
        calls = self.context.nodes
        states = calls.call_each(
            NodeCalls.blockdev_getmirrorstatus_multi,
            {
                target: ([c for _, disk in rows for c in disk.children],)
                for target, rows in asked.items()
            },
        )
        needing = calls.call_each(
            NodeCalls.drbd_needs_activation,
            {target: ([disk for _, disk in rows],) for target, rows in asked.items()},
        )
        self._mark_left_behind(asked)
        inactive: set[str] = set()
        for target, rows in asked.items():
            result = next(
                (each for each in (states[target.name], needing[target.name]) if each.error), None
            )
            if result is not None:
                if not result.offline:
                    failing[target.name] = str(result.error)
                continue
            volumes = [(place, child) for place, disk in rows for child in disk.children]
            for (place, child), answer in zip(volumes, states[target.name].payload, strict=False):
                if not _is_seen(answer):
                    path = "/".join(map(str, child.logical_id))
                    doubts.append(_Doubt(target, place, child, path, answer))
            uuids = set(needing[target.name].payload)
            inactive |= {place.instance.name for place, disk in rows if disk.uuid in uuids}
        return inactive

    def _mark_left_behind(
        self, asked: Mapping[Target, Sequence[tuple[DiskOfInstance, RpcDisk]]]
    ) -> None:
        """Mark copies that lack what was written on the primary node, and tell them."""
        disks = {target: [disk for _, disk in rows] for target, rows in asked.items()}
        marked = set(mark_left_behind(self.context, disks))
        names = {
            place.instance.name
            for rows in asked.values()
            for place, disk in rows
            if disk.uuid in marked
        }
        for name in natural_sorted(names):
            self.context.warn(
                f"a copy of a disk of instance {name} lacks what was written on its primary node"
                " since they lost each other; it is marked as outdated, so that no failover takes"
                " it: mend the network between its nodes, then 'gnt-instance activate-disks"
                f" --wait-for-sync {name}'"
            )


def _side(node: Node, ips: Mapping[NodeUuid, str]) -> _Side:
    return {"node_uuid": node.uuid, "secondary_ips": ips}
