"""Change settings of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

from ganeti.base.errors import ConfigurationError, ErrorCode, OpExecError, OpPrereqError
from ganeti.logical_units import ancillary
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.cluster.in_use import Inhabitants, check_settings, remarks
from ganeti.logical_units.cluster.master_network import move_address
from ganeti.logical_units.cluster.settings import SETTINGS, laid_over, plan_changes
from ganeti.logical_units.inside import Inside
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, all_shared
from ganeti.logical_units.node.candidates import refill_pool
from ganeti.logical_units.node.switches import make_switch, switch_of
from ganeti.logical_units.node_calls import ask, call_nodes
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.fill import cluster_hvparams, fill_hvparams_for, fill_osparams
from ganeti.opcodes.cluster import OpClusterSetParams, OsListChange
from ganeti.system.programs import find_plugin, is_plugin_name

ATTEMPTS_MAX: Final = 20  # each fails only because another change came in between
BUILT_IN_ALLOCATOR: Final = "hail"

_DIRECTORY_CHECKS: Final = {  # template -> setting, the node's check of it
    DiskTemplate.FILE: ("file_storage_dir", "file-storage-path"),
    DiskTemplate.SHAREDFILE: ("shared_file_storage_dir", "shared-file-storage-path"),
}

# Settings that instances may stand in the way of; none may be made or changed meanwhile.
_ABOUT_INSTANCES: Final = ("enabled_hypervisors", "enabled_disk_templates", "nicparams")


class LUClusterSetParams(LogicalUnit[OpClusterSetParams]):
    """Change settings of the cluster.

    Settings are laid over those that are there, so two such jobs must not overtake each other: the
    cluster is replaced as a whole, which WConfD refuses if somebody else has changed it meanwhile,
    and then it is planned again.
    """

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock all instances shared where one that is just being made could stand in the way."""
        concerned = any(getattr(self.op, name) is not None for name in _ABOUT_INSTANCES)
        return all_shared(level) if level is LockLevel.INSTANCE and concerned else {}

    @cached_property
    def inside(self) -> Inhabitants:
        """What is in the cluster."""
        return Inside(self.config)

    def check_prereq(self) -> None:
        """Refuse wrong values, and taking away what is in use."""
        if all(getattr(self.op, name) is None for name in SETTINGS):
            raise OpPrereqError("please give at least one change", ErrorCode.INVAL)
        self.after = laid_over(self.cluster, plan_changes(self.cluster, self.op))
        check_settings(self.cluster, self.after, self.inside)
        self._check_allocator()
        self._check_hypervisors_on_nodes()
        self._check_os_parameters()
        for remark in (
            *remarks(self.cluster, self.after, self.inside),
            *self._os_remarks(),
            *self._directory_remarks(),
        ):
            self.context.warn(remark)

    def _check_allocator(self) -> None:
        name = self.op.default_iallocator
        if not name or name == BUILT_IN_ALLOCATOR:
            return
        paths = self.context.paths.iallocator_search_path
        if not is_plugin_name(name) or find_plugin(name, paths, "allocator") is None:
            raise OpPrereqError(
                f"default_iallocator: there is no allocator {name!r} on node {self.master.name!r};"
                f" looked in {', '.join(paths)}",
                ErrorCode.INVAL,
            )

    def _check_hypervisors_on_nodes(self) -> None:
        """Ask all nodes whether changed hypervisor parameters will do there."""
        if self.op.force:
            return
        before, after = cluster_hvparams(self.cluster), cluster_hvparams(self.after)
        for name, params in after.items():
            if before.get(name) != params:
                self._ask_nodes(name, params, f"hypervisor {name!r}")
        for os_name, by_hypervisor in (self.op.os_hvp or {}).items():
            for name in set(by_hypervisor) & set(after):
                params = fill_hvparams_for(self.after, name, os_name)
                self._ask_nodes(name, params, f"hypervisor {name!r} with OS {os_name!r}")

    def _ask_nodes(self, hypervisor: str, params: Mapping[str, object], what: str) -> None:
        call = "hypervisor_validate_params"
        nodes = [node for node in self.inside.nodes if node.vm_capable and not node.offline]
        results = call_nodes(self.context, nodes, call, hypervisor, params)
        for name, result in results.items():
            if result.error is not None and not result.offline:
                raise OpPrereqError(
                    f"the parameters of {what} will not do on node {name!r}, call {call}:"
                    f" {result.error} (use --force to set them all the same)",
                    ErrorCode.INVAL,
                )

    def _check_os_parameters(self) -> None:
        """Let the OS check its parameters, if the master has it."""
        for os_name in self.op.osparams or {}:
            ask(
                self.context,
                self.master,
                f"use the parameters of operating system {os_name!r}",
                "os_validate",
                False,
                os_name,
                ["parameters"],
                fill_osparams(self.after, os_name),
                True,
                ecode=ErrorCode.INVAL,
            )

    def _directory_remarks(self) -> list[str]:
        """Ask all nodes whether they allow new directories for disks; each decides for itself."""
        checks = {
            check: getattr(self.after, field)
            for template, (field, check) in _DIRECTORY_CHECKS.items()
            if template in self.after.enabled_disk_templates
            and getattr(self.after, field) not in ("", getattr(self.cluster, field))
        }
        if not checks:
            return []
        nodes = [node for node in self.inside.nodes if node.vm_capable and not node.offline]
        name, hvparams = self.cluster.cluster_name, cluster_hvparams(self.cluster)
        results = call_nodes(self.context, nodes, "node_verify", checks, name, hvparams)
        return [
            f"node {node}: {answer}"
            for node, result in results.items()
            for answer in ([result.error] if result.error else _answers(result.payload, checks))
        ]

    def _os_remarks(self) -> list[str]:
        """Say which changes of lists of operating systems change nothing."""
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

    def hooks_env(self) -> Mapping[str, object]:
        """Name the cluster."""
        return {"OP_TARGET": self.cluster.cluster_name, "NEW_VG_NAME": self.op.vg_name}

    def exec(self) -> None:
        """Replace the cluster; fill the candidate pool and send files if that follows from it."""
        if self.op.ndparams is not None:
            self._make_switches()
        with Undo(self.context) as undo:
            move_address(self.context, self.master, self.cluster, self.after, undo)
            self._replace()
            undo.forget()
        if self.op.candidate_pool_size is not None:
            refill_pool(self.context, [])
        if set(ancillary.files_of(self.after)) - set(ancillary.files_of(self.cluster)):
            ancillary.distribute(
                self.context, self.after, self.inside.nodes, master_name=self.master.name
            )

    def _make_switches(self) -> None:
        groups = {group.uuid: group for group in self.inside.groups}
        for node in self.inside.nodes:
            before, wanted = (
                switch_of(cluster, groups[node.group], node)
                for cluster in (self.cluster, self.after)
            )
            make_switch(self.context, node, wanted, before)

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
    """Return what a node says against the values it was asked about."""
    found = payload if isinstance(payload, Mapping) else {}
    return [str(found[check]) for check in checks if found.get(check)]
