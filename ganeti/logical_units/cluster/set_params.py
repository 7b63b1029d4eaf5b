"""Change settings of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ConfigurationError, OpExecError, OpPrereqError
from ganeti.logical_units import ancillary
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.cluster.conflicts import ClusterObjects, check_settings, remarks
from ganeti.logical_units.cluster.master_network import move_address
from ganeti.logical_units.cluster.settings import SETTINGS, laid_over, plan_changes
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.locks import LockLevel, LockNeed, all_shared
from ganeti.logical_units.node.candidates import refill_pool
from ganeti.logical_units.node.switches import make_switch, switch_of
from ganeti.logical_units.undo import Undo
from ganeti.objects.fill import cluster_hvparams, fill_hvparams_for, fill_osparams
from ganeti.objects.model import Cluster, Node, storage_directories
from ganeti.opcodes.cluster import OpClusterSetParams, OsListChange
from ganeti.protocol.node_calls import NodeCalls
from ganeti.system.programs import find_plugin, is_plugin_name

ATTEMPTS_MAX: Final = 20  # each fails only because another change came in between
BUILT_IN_ALLOCATOR: Final = "hail"

# Settings that instances may stand in the way of; none may be made or changed meanwhile.
_ABOUT_INSTANCES: Final = ("enabled_hypervisors", "enabled_disk_templates", "nicparams")


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """The cluster with its new settings, and the objects in it."""

    after: Cluster
    objects: ClusterObjects


class LUClusterSetParams(LogicalUnit[OpClusterSetParams, ClusterObjects, SettingsChange]):
    """Change settings of the cluster.

    Settings are laid over those that are there, so two such jobs must not overtake each other: the
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
        if all(getattr(self.op, name) is None for name in SETTINGS):
            raise OpPrereqError("please give at least one change")
        before = self.cluster
        after = laid_over(before, plan_changes(before, self.op))
        check_settings(before, after, found)
        self._check_allocator()
        nodes = [node for node in found.nodes if node.vm_capable and not node.offline]
        self._check_hypervisors_on_nodes(after, nodes)
        self._check_os_parameters(after)
        for remark in (
            *remarks(before, after, found),
            *self._os_remarks(),
            *self._directory_remarks(after, nodes),
        ):
            self.context.warn(remark)
        return SettingsChange(after, found)

    def _check_allocator(self) -> None:
        name = self.op.default_iallocator
        if not name or name == BUILT_IN_ALLOCATOR:
            return
        paths = self.context.paths.iallocator_search_path
        if not is_plugin_name(name) or find_plugin(name, paths, "allocator") is None:
            raise OpPrereqError(
                f"default_iallocator: there is no allocator {name!r} on node {self.master.name!r};"
                f" looked in {', '.join(paths)}"
            )

    def _check_hypervisors_on_nodes(self, cluster: Cluster, nodes: Sequence[Node]) -> None:
        """Ask nodes whether changed hypervisor parameters are usable there."""
        if self.op.force:
            return
        before, after = cluster_hvparams(self.cluster), cluster_hvparams(cluster)
        for name, params in after.items():
            if before.get(name) != params:
                self._ask_nodes(nodes, name, params, f"hypervisor {name!r}")
        for os_name, by_hypervisor in (self.op.os_hvp or {}).items():
            for name in set(by_hypervisor) & set(after):
                params = fill_hvparams_for(cluster, name, os_name)
                self._ask_nodes(nodes, name, params, f"hypervisor {name!r} with OS {os_name!r}")

    def _ask_nodes(
        self, nodes: Sequence[Node], hypervisor: str, params: Mapping[str, object], what: str
    ) -> None:
        method = NodeCalls.hypervisor_validate_params
        results = self.context.nodes.call_all(method, nodes, hypervisor, params)
        for name, result in results.items():
            if result.error is not None and not result.offline:
                raise OpPrereqError(
                    f"the parameters of {what} will not do on node {name!r}, call {result.call}:"
                    f" {result.error} (use --force to set them all the same)"
                )

    def _check_os_parameters(self, cluster: Cluster) -> None:
        """Let the OS check its parameters, if the master has it."""
        for os_name in self.op.osparams or {}:
            self.context.nodes.check(
                self.master, f"use the parameters of operating system {os_name!r}"
            ).os_validate(False, os_name, ["parameters"], fill_osparams(cluster, os_name), True)

    def _directory_remarks(self, after: Cluster, nodes: Sequence[Node]) -> list[str]:
        """Ask nodes whether they allow new directories for disks; each decides for itself."""
        checks = {
            template.traits.directory_check: directory
            for template, directory in storage_directories(after).items()
            if directory not in ("", getattr(self.cluster, template.traits.directory_setting))
        }
        if not checks:
            return []
        name, hvparams = self.cluster.cluster_name, cluster_hvparams(self.cluster)
        results = self.context.nodes.call_all(NodeCalls.node_verify, nodes, checks, name, hvparams)
        return [
            f"node {node}: {answer}"
            for node, result in results.items()
            for answer in ([result.error] if result.error else _answers(result.payload, checks))
        ]

    def _os_remarks(self) -> list[str]:
        """Return a remark for each change of a list of operating systems that changes nothing."""
        found = []
        for field in ("hidden_os", "blacklisted_os"):
            listed = set(getattr(self.cluster, field))
            for action, name in getattr(self.op, field) or ():
                adds = action in (OsListChange.ADD, OsListChange.ATTACH)
                if adds == (name in listed):
                    state = "is already" if adds else "is not"
                    found.append(f"OS {name!r} {state} in {field}; ignoring")
                listed = listed | {name} if adds else listed - {name}
        return found

    def hook_values(self, plan: SettingsChange) -> Mapping[str, object]:
        return {"OP_TARGET": self.cluster.cluster_name, "NEW_VG_NAME": self.op.vg_name}

    def execute(self, plan: SettingsChange) -> None:
        """Replace the cluster; fill the candidate pool and send files if that follows from it."""
        after, nodes = plan.after, plan.objects.nodes
        if self.op.ndparams is not None:
            self._make_switches(plan)
        with Undo(self.context) as undo:
            move_address(self.context, self.master, self.cluster, after, undo)
            self._replace()
            undo.forget()
        if self.op.candidate_pool_size is not None:
            refill_pool(self.context, [])
        if set(ancillary.files_of(after)) - set(ancillary.files_of(self.cluster)):
            ancillary.distribute(self.context, after, nodes, master_name=self.master.name)

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
