"""Change settings of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from ganeti.base.daemons import METAD
from ganeti.base.errors import ConfigurationError, OpExecError, OpPrereqError, wrong_state
from ganeti.base.text import is_plugin_name, shown
from ganeti.logical_units import lookup, node_files
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.cluster import block_storage, communication
from ganeti.logical_units.cluster.identity import move_address
from ganeti.logical_units.cluster.settings import SETTINGS, allocator_names, laid_over, plan_changes
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.parameters import spec_of
from ganeti.logical_units.locks import LockLevel, LockNeed, all_shared
from ganeti.logical_units.node.base import make_switch, switch_of
from ganeti.logical_units.node.candidates import is_capable, refill_pool, tell_availability
from ganeti.logical_units.parameters import templates_not_enabled
from ganeti.logical_units.query import ask_nodes
from ganeti.logical_units.undo import Undo
from ganeti.objects import fill
from ganeti.objects.disk_templates import file_templates
from ganeti.objects.instance_policy import violations
from ganeti.objects.model import Cluster, Disk, Instance, Node, NodeGroup, storage_directories
from ganeti.objects.nic import NicMode
from ganeti.objects.record import PrivateParams
from ganeti.opcodes.cluster import OpClusterSetParams, OsListChange
from ganeti.opcodes.summary import summary
from ganeti.protocol.maintenance.stored import switched_off
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.wconfd import WConfCalls
from ganeti.system.programs import allocator_directories, find_plugin

ATTEMPTS_MAX: Final = 20  # each fails only because another change came in between
BUILT_IN_ALLOCATOR: Final = "hail"

# Settings that instances may stand in the way of; none may be made or changed meanwhile.
_ABOUT_INSTANCES: Final = (
    *("enabled_hypervisors", "enabled_disk_templates", "nicparams", "vg_name", "drbd_helper"),
)
_DUTIES: Final = ("maint_auto_repair", "maint_use_load", "maint_move_disks")
_OF_MAINTENANCE: Final = (
    *("maint_round_delay", "maint_balance", "maint_balance_threshold"),
    *_DUTIES,
)


class ClusterObjects:
    """All objects of the cluster; each kind is read once, when it is first looked at."""

    def __init__(self, config: WConfCalls) -> None:
        self._config = config

    @cached_property
    def nodes(self) -> list[Node]:
        """All nodes."""
        return lookup.all_nodes(self._config)

    @cached_property
    def groups(self) -> list[NodeGroup]:
        """All node groups."""
        return lookup.all_groups(self._config)

    @cached_property
    def instances(self) -> list[Instance]:
        """All instances."""
        return lookup.all_instances(self._config)

    @cached_property
    def disks(self) -> dict[str, Disk]:
        """All disks, by UUID."""
        return {disk.uuid: disk for disk in lookup.present(self._config.get_disks(None))}

    def disks_of(self, instance: Instance) -> list[Disk]:
        """Return the disks of an instance that are known."""
        return [self.disks[uuid] for uuid in instance.disks if uuid in self.disks]


def check_settings(before: Cluster, after: Cluster, objects: ClusterObjects) -> None:
    """Refuse settings that contradict the objects of the cluster, or each other.

    Raises:
        OpPrereqError: names the objects in the way.
    """
    _check_disabled(before, after, objects)
    _check_policy_templates(before, after, objects.groups)
    _check_directories(before, after)
    block_storage.check_settings(before, after)
    _check_nics(before, after, objects)


def _check_disabled(before: Cluster, after: Cluster, objects: ClusterObjects) -> None:
    """Hypervisors and disk templates that instances use must not be disabled."""
    gone = _gone(before.enabled_hypervisors, after.enabled_hypervisors)
    instances = objects.instances if gone else []
    users = [instance.name for instance in instances if instance.hypervisor in gone]
    _refuse_if_used("hypervisor(s)", gone, users)
    gone = _gone(before.enabled_disk_templates, after.enabled_disk_templates)
    instances = objects.instances if gone else []
    users = [
        instance.name
        for instance in instances
        if gone & ({str(disk.dev_type) for disk in objects.disks_of(instance)} or {"diskless"})
    ]
    _refuse_if_used("disk template(s)", gone, users)


def _gone(before: Sequence[str], after: Sequence[str]) -> set[str]:
    return set(map(str, before)) - set(map(str, after))


def _refuse_if_used(what: str, names: set[str], users: list[str]) -> None:
    if users:
        raise wrong_state(
            f"the {what} {', '.join(sorted(names))} cannot be disabled, there are instances that"
            f" use them: {shown(users)}"
        )


def _check_policy_templates(before: Cluster, after: Cluster, groups: Sequence[NodeGroup]) -> None:
    """A policy must not allow a disabled template; one that did before may go on."""
    policies = [("the cluster", before.ipolicy, after.ipolicy)]
    policies += [(f"node group {group.name!r}", group.ipolicy, group.ipolicy) for group in groups]
    for whose, policy_before, policy in policies:
        found = templates_not_enabled(policy, after)
        if found and found != templates_not_enabled(policy_before, before):
            raise OpPrereqError(
                f"the instance policy of {whose} allows the disk template(s) {', '.join(found)},"
                " which would not be enabled; change --ipolicy-disk-templates as well"
            )


def _check_directories(before: Cluster, after: Cluster) -> None:
    """A template that keeps disks in files needs a directory."""
    for template in file_templates():
        field = template.traits.directory_setting
        if template not in after.enabled_disk_templates or getattr(after, field):
            continue
        if template not in before.enabled_disk_templates or getattr(before, field):
            raise OpPrereqError(
                f"the disk template {template!s} is enabled and needs a directory:"
                f" --{field.replace('_', '-')}"
            )


def _check_nics(before: Cluster, after: Cluster, objects: ClusterObjects) -> None:
    """Defaults of NICs must suit the NICs that use them."""
    if before.nicparams == after.nicparams:
        return
    problems = [
        f"{instance.name}: {problem}"
        for instance in objects.instances
        for problem in _nic_problems(before, after, instance)
    ]
    if problems:
        raise wrong_state(
            f"the network interface parameters do not suit these instances: {shown(problems)}"
        )


def _nic_problems(before: Cluster, after: Cluster, instance: Instance) -> Iterator[str]:
    for index, nic in enumerate(instance.nics):
        old, new = fill.fill_nicparams(before, nic), fill.fill_nicparams(after, nic)
        if old == new or nic.network:
            continue
        if new["mode"] == NicMode.ROUTED and not nic.ip:
            yield f"nic/{index} has no IP address, mode routed needs one"
        elif new["mode"] == NicMode.ROUTED and new["vlan"]:
            yield f"nic/{index} would have a VLAN, mode routed has none"
        elif new["mode"] != NicMode.ROUTED and not new["link"]:
            yield f"nic/{index} would have no link, mode {new['mode']} needs one"


def remarks(before: Cluster, after: Cluster, objects: ClusterObjects) -> Iterator[str]:
    """Yield remarks to the operator about settings that are accepted."""
    for template in file_templates():
        field = template.traits.directory_setting
        old, new = getattr(before, field), getattr(after, field)
        if new and new != old and template not in after.enabled_disk_templates:
            yield f"{field} is set, but the disk template {template!s} is not enabled"
        elif new != old and _has_template(objects, template):
            yield (f"{field} changes for new disks only; those of existing instances stay in {old}")
    if after.candidate_pool_size > before.candidate_pool_size:
        possible = sum(map(is_capable, objects.nodes))
        if after.candidate_pool_size > possible:
            yield (
                f"the candidate pool is to have {after.candidate_pool_size} nodes, but only"
                f" {possible} can be master candidates now"
            )
    if (before.ipolicy, before.beparams) != (after.ipolicy, after.beparams):
        now = violators(before, objects, objects.groups)
        then = violators(after, objects, objects.groups)
        if newly := [name for name in then if name not in now]:
            yield f"with the new policy these instances violate it: {shown(newly)}"


def _has_template(objects: ClusterObjects, template: str) -> bool:
    return any(disk.dev_type == template for disk in objects.disks.values())


def violators(
    cluster: Cluster,
    objects: ClusterObjects,
    groups: Sequence[NodeGroup],
    moved: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return the names of the instances on nodes of these groups that do not fit the policy there.

    Args:
        moved: {node UUID: group UUID} of nodes that are to be in another group.
    """
    by_uuid = {str(group.uuid): group for group in groups}
    homes = {str(node.uuid): moved.get(node.uuid, node.group) for node in objects.nodes}
    found = []
    for instance in objects.instances:
        group = by_uuid.get(homes.get(instance.primary_node, ""))
        if group is None:
            continue
        spec = spec_of(cluster, instance, objects.disks_of(instance))
        if violations(fill.fill_ipolicy(cluster, group), spec):
            found.append(instance.name)
    return found


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """The cluster with its new settings, and the objects in it."""

    after: Cluster
    objects: ClusterObjects


class LUClusterSetParams(LogicalUnit[OpClusterSetParams, ClusterObjects, SettingsChange]):
    """Change settings of the cluster.

    New settings are laid over the old ones, so two such jobs must not overtake each other: the
    cluster is replaced as a whole, which WConfD refuses if somebody else has changed it meanwhile,
    and then it is planned again.
    """

    hooks = HookPoint("cluster-modify", ObjectType.CLUSTER)

    def resolve(self) -> ClusterObjects:
        return ClusterObjects(self.config)

    def locks(self, found: ClusterObjects) -> LockNeed:
        """Lock all instances shared where one that is just being made could stand in the way."""
        concerned = any(getattr(self.op, name) is not None for name in _ABOUT_INSTANCES)
        return all_shared(LockLevel.INSTANCE) if concerned else {}

    def plan(self, found: ClusterObjects) -> SettingsChange:
        """Refuse wrong values, and to disable something in use."""
        if all(getattr(self.op, name) is None for name in (*SETTINGS, *_OF_MAINTENANCE)):
            raise OpPrereqError("please give at least one change")
        before = self.cluster
        after = laid_over(before, plan_changes(before, self.op))
        check_settings(before, after, found)
        self._check_allocators()
        nodes = [node for node in found.nodes if node.vm_capable and not node.offline]
        self._check_hypervisors_on_nodes(after, nodes)
        block_storage.check_nodes(self.context, before, after, nodes)
        self._check_os_parameters(after)
        for remark in (
            *remarks(before, after, found),
            *self._os_remarks(after),
            *self._unknown_os_remarks(after),
            *self._directory_remarks(after, nodes),
            *self._bridge_remarks(after, nodes),
            *self._communication_remarks(found.groups),
            *self._maintenance_remarks(after),
        ):
            self.context.warn(remark)
        return SettingsChange(after, found)

    def _check_allocators(self) -> None:
        lists = (self.op.default_iallocators or {}).values()
        named = {
            "default_iallocator": allocator_names(self.op.default_iallocator or ""),
            "default_iallocators": [name for names in lists for name in names],
        }
        paths = allocator_directories(self.context.paths)
        for setting, names in named.items():
            for name in names:
                is_there = is_plugin_name(name) and find_plugin(name, paths, "allocator")
                if not is_there and name != BUILT_IN_ALLOCATOR:
                    raise OpPrereqError(
                        f"{setting}: there is no allocator {name!r} on node"
                        f" {self.master.name!r}; looked in {', '.join(paths)}"
                    )

    def _check_hypervisors_on_nodes(self, cluster: Cluster, nodes: Sequence[Node]) -> None:
        """Ask nodes whether changed hypervisor parameters are usable there."""
        if self.op.force:
            return
        before, after = fill.cluster_hvparams(self.cluster), fill.cluster_hvparams(cluster)
        for name, params in after.items():
            if before.get(name) != params:
                self._ask_nodes(nodes, name, params, f"hypervisor {name!r}")
        for os_name, by_hypervisor in (self.op.os_hvp or {}).items():
            for name in set(by_hypervisor) & set(after):
                params = fill.fill_hvparams_for(cluster, name, os_name)
                self._ask_nodes(nodes, name, params, f"hypervisor {name!r} with OS {os_name!r}")

    def _ask_nodes(
        self, nodes: Sequence[Node], hypervisor: str, params: Mapping[str, object], what: str
    ) -> None:
        method = NodeCalls.hypervisor_validate_params
        results = self.context.nodes.call_all(method, nodes, hypervisor, params)
        for name, result in results.items():
            if result.error is not None and not result.offline:
                raise OpPrereqError(
                    f"the parameters of {what} will not do on node {name!r}: {result.error}"
                    " (use --force to set them all the same)"
                )

    def _check_os_parameters(self, cluster: Cluster) -> None:
        """Let the OS check its parameters, if the master has it."""
        for os_name in {**(self.op.osparams or {}), **(self.op.osparams_private_cluster or {})}:
            params = fill.fill_osparams_all(cluster, os_name, {}, PrivateParams()).reveal()
            self.context.nodes.check(
                self.master, f"use the parameters of operating system {os_name!r}"
            ).os_validate(False, os_name, ["parameters"], params, True)

    def _directory_remarks(self, after: Cluster, nodes: Sequence[Node]) -> list[str]:
        """Ask nodes whether they allow new directories for disks; each decides for itself."""
        checks = {
            template.traits.directory_check: directory
            for template, directory in storage_directories(after).items()
            if directory not in ("", getattr(self.cluster, template.traits.directory_setting))
        }
        if not checks:
            return []
        name, hvparams = self.cluster.cluster_name, fill.cluster_hvparams(self.cluster)
        results = self.context.nodes.call_all(NodeCalls.node_verify, nodes, checks, name, hvparams)
        return [
            f"node {node}: {answer}"
            for node, result in results.items()
            for answer in ([result.error] if result.error else _answers(result.payload, checks))
        ]

    def _bridge_remarks(self, after: Cluster, nodes: Sequence[Node]) -> list[str]:
        """Return a remark for each node that lacks the new default bridge, or is silent."""
        new = fill.fill_nicparams(after, {})
        if new["mode"] != NicMode.BRIDGED or new == fill.fill_nicparams(self.cluster, {}):
            return []
        results = self.context.nodes.call_all(NodeCalls.bridges_exist, nodes, [new["link"]])
        return [
            f"node {node} could not be asked for the default bridge: {result.error}"
            if result.address
            else f"node {node}: {result.error}; instances whose NICs use the default bridge cannot"
            " start there"
            for node, result in results.items()
            if result.error
        ]

    def _communication_remarks(self, groups: Sequence[NodeGroup]) -> Iterator[str]:
        if name := self.op.instance_communication_network:
            yield from communication.remarks(name, lookup.all_networks(self.config), groups)

    def _maintenance_remarks(self, after: Cluster) -> Iterator[str]:
        """Refuse to set maintenance up while it is off, or switched off; say if nobody acts.

        Raises:
            OpPrereqError: so.
        """
        given = [name for name in _OF_MAINTENANCE if getattr(self.op, name) is not None]
        if self.op.maint_round_delay == 0 and len(given) > 1:
            raise OpPrereqError(
                "a maintenance interval of 0 switches maintenance off, so it cannot be set up too"
            )
        if given and self.op.maint_round_delay is None and self.config.get_maintenance() is None:
            raise switched_off()  # each of these calls of WConfD would switch it on
        command = after.diagnose_data_collector_filename
        is_new = command not in ("", self.cluster.diagnose_data_collector_filename)
        if is_new and not given and self.config.get_maintenance() is None:
            yield (
                "maintenance is switched off: nobody acts on what the command says, until"
                " 'gnt-cluster modify --maintenance-interval=300' switches it on"
            )

    def _os_remarks(self, after: Cluster) -> list[str]:
        """Return a remark for each change about an operating system that has no effect now."""
        found = [
            f"hypervisor {name!r} is not enabled, so its parameters for OS {os_name!r} wait"
            for os_name, by_hypervisor in (self.op.os_hvp or {}).items()
            for name in by_hypervisor
            if name in after.os_hvp.get(os_name, {}) and name not in after.enabled_hypervisors
        ]
        for field in ("hidden_os", "blacklisted_os"):
            listed = set(getattr(self.cluster, field))
            for action, name in getattr(self.op, field) or ():
                adds = action in (OsListChange.ADD, OsListChange.ATTACH)
                if adds == (name in listed):
                    state = "is already" if adds else "is not"
                    found.append(f"OS {name!r} {state} in {field}; ignoring")
                listed = listed | {name} if adds else listed - {name}
        return found

    def _unknown_os_remarks(self, after: Cluster) -> list[str]:
        """Return a remark for each operating system in the new settings that no node has."""
        named = [
            *(name for name in self.op.osparams or {} if name in after.osparams),
            *(
                name
                for name in self.op.osparams_private_cluster or {}
                if name in after.osparams_private_cluster
            ),
            *(name for name in self.op.os_hvp or {} if name in after.os_hvp),
            *(
                name
                for changes in (self.op.hidden_os, self.op.blacklisted_os)
                for action, name in changes or ()
                if action in (OsListChange.ADD, OsListChange.ATTACH)
            ),
        ]
        answers = ask_nodes(self.context, self.config) if named else {}
        known = {name for systems in answers.values() for each in systems for name in each.names}
        unknown = [name for name in dict.fromkeys(named) if answers and name not in known]
        return [f"no node has OS {name!r}; see 'gnt-os list'" for name in unknown]

    def hook_values(self, plan: SettingsChange) -> Mapping[str, object]:
        return {"OP_TARGET": self.cluster.cluster_name, "NEW_VG_NAME": self.op.vg_name}

    def execute(self, plan: SettingsChange) -> dict[str, object] | None:
        """Replace the cluster, and do what follows from it; returns jobs that do more of it."""
        after, nodes = plan.after, plan.objects.nodes
        if self.op.ndparams is not None:
            self._make_switches(plan)
        with Undo(self.context) as undo:
            move_address(self.context, self.master, self.cluster, after, undo)
            self._replace()
            undo.forget()
        self._set_maintenance()
        if self.op.candidate_pool_size is not None:
            refill_pool(self.context, [])
        if not (self.op.candidate_pool_size is None and self.op.ndparams is None):
            tell_availability(self.context)
        if set(node_files.files_of(after)) - set(node_files.files_of(self.cluster)):
            node_files.distribute(self.context, after, nodes)
        return self._see_to_network(after.instance_communication_network, nodes)

    def _set_maintenance(self) -> None:
        """Set up the maintenance daemon, whose state is no part of the cluster object."""
        if self.op.maint_round_delay is not None:
            self.config.set_maintd_round_delay(self.op.maint_round_delay)
        if self.op.maint_balance is not None:
            self.config.set_maintd_balance(self.op.maint_balance)
        if self.op.maint_balance_threshold is not None:
            self.config.set_maintd_balance_threshold(self.op.maint_balance_threshold)
        duties = [getattr(self.op, name) for name in _DUTIES]
        if any(each is not None for each in duties):
            self.config.set_maintd_duties(*duties)

    def _see_to_network(self, name: str, nodes: Sequence[Node]) -> dict[str, object] | None:
        """Submit the jobs that make, connect and disconnect networks for communication."""
        if self.op.instance_communication_network is None:
            return None
        networks, groups = lookup.all_networks(self.config), lookup.all_groups(self.config)
        before = self.cluster.instance_communication_network
        for node in nodes if before and not name else ():
            if not node.offline:
                doing = f"stop the metadata daemon of node {node.name!r}"
                self.context.attempt(doing, NodeCalls.node_ensure_daemon, node, METAD, run=False)
        jobs = communication.jobs_of_change(before, name, networks, groups)
        ids = self.context.submit_jobs(jobs)
        for ops, job_id in zip(jobs, ids, strict=True):
            self.context.info(f"job {job_id}: {', '.join(map(summary, ops))}")
        return {"jobs": [(True, job_id) for job_id in ids]}

    def _make_switches(self, plan: SettingsChange) -> None:
        groups = {group.uuid: group for group in plan.objects.groups}
        for node in plan.objects.nodes:
            group = groups[node.group]
            before = switch_of(self.cluster, group, node)
            make_switch(self.context, node, switch_of(plan.after, group, node), before)

    def _replace(self) -> None:
        last: object = "no answer"
        for _ in range(ATTEMPTS_MAX):
            cluster = self.config.get_cluster()
            wire = laid_over(cluster, plan_changes(cluster, self.op)).to_wire()
            if wire == cluster.to_wire():
                return
            try:
                self.config.replace_cluster(wire)
            except ConfigurationError as err:
                if self.config.get_cluster().serial_no == cluster.serial_no:
                    raise OpExecError(f"the settings were refused: {err.message}") from err
                last = err  # changed since it was read
            else:
                return
            self.context.check_canceled()
        raise OpExecError(f"the cluster's settings kept changing: {last}; try again")


def _answers(payload: object, checks: Iterable[str]) -> list[str]:
    """Return the objections of a node to the values that it was asked about."""
    found = payload if isinstance(payload, Mapping) else {}
    return [str(found[check]) for check in checks if found.get(check)]
