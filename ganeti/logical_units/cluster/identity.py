"""Finish a new cluster, send its files again, destroy it; give it another name or address.

A change of the cluster's own address moves it to another device, or gives it another netmask or
address.  The address is moved on the master node first and written down afterwards; all steps are
undone when a later one fails, so the address never differs from the configuration.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, GenericError, OpExecError, OpPrereqError, wrong_state
from ganeti.base.text import shown
from ganeti.logical_units import lookup, node_files
from ganeti.logical_units.base import NamelessUnit, SimpleUnit
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.locks import LockLevel, LockNeed, all_shared
from ganeti.logical_units.node.base import make_switch, switch_of
from ganeti.logical_units.undo import Undo
from ganeti.objects.model import Cluster, Node, master_network_parameters
from ganeti.opcodes import cluster as opcodes
from ganeti.store import lease
from ganeti.system import files


class LUClusterPostInit(NamelessUnit[opcodes.OpClusterPostInit]):
    """Finish a cluster that was just made, and run the hooks for it."""

    hooks = HookPoint("cluster-init", ObjectType.CLUSTER)

    def hook_nodes(self, plan: None) -> Sequence[Node]:
        return []

    def hook_nodes_after(self, plan: None) -> Sequence[Node]:
        return [self.master]

    def hook_values(self, plan: None) -> Mapping[str, object]:
        return {"OP_TARGET": self.cluster.cluster_name}

    def execute(self, plan: None) -> bool:
        """Give the master its Open vSwitch, if it is to have one, and wait for its address."""
        group = lookup.require_group(self.config, self.master.group)
        make_switch(self.context, self.master, switch_of(self.cluster, group, self.master))
        try:
            _switch(self.context, self.master, self.cluster, on=True).carry_out()
        except OpExecError as err:
            self.context.warn(
                f"{err.message}; 'gnt-cluster activate-master-ip' does it once the reason is gone"
            )
        return True


class LUClusterDestroy(NamelessUnit[opcodes.OpClusterDestroy]):
    """Give the cluster up: afterwards WConfD keeps the cluster lock, and no job runs any more."""

    hooks = HookPoint("cluster-destroy", ObjectType.CLUSTER)
    exclusive_bgl = True

    def hook_nodes(self, plan: None) -> Sequence[Node]:
        """Run none: the daemons of the nodes are about to end."""
        return []

    def hook_values(self, plan: None) -> Mapping[str, object]:
        return {"OP_TARGET": self.cluster.cluster_name}

    def plan(self, found: None) -> None:
        """Refuse while anything besides the master node is left, or a merge has not ended."""
        paths = self.context.paths
        lease.check_off(paths)
        if os.path.exists(paths.merge_note):  # the only record of what the other cluster was
            raise wrong_state(
                "a merge was cut off here, and its other cluster stands still; run 'cluster-merge"
                " --rollback' first, or let it go on"
            )
        nodes = lookup.all_nodes(self.config)
        others = [node.name for node in nodes if node.uuid != self.cluster.master_node]
        self._refuse_if_any("other node(s)", others, "gnt-node remove")
        instances = [instance.name for instance in lookup.all_instances(self.config)]
        self._refuse_if_any("instance(s)", instances, "gnt-instance remove")

    @staticmethod
    def _refuse_if_any(what: str, names: Sequence[str], command: str) -> None:
        if names:
            raise OpPrereqError(
                f"there are still {len(names)} {what} in this cluster:"
                f" {shown(names)}; remove them with '{command}'"
            )

    def execute(self, plan: None) -> str:
        """Give up the cluster's address and tell WConfD; returns the master's UUID."""
        master = self.master
        try:
            _switch(self.context, master, self.cluster, on=False).carry_out()
        except OpExecError as err:
            self.context.warn(f"{err.message}; ignoring")
        self.config.prepare_cluster_destruction()
        return master.uuid


class LUClusterRedistConf(NamelessUnit[opcodes.OpClusterRedistConf]):
    """Send the configuration and the other files of the cluster to the nodes again."""

    def locks(self, found: None) -> LockNeed:
        return all_shared(LockLevel.NODE)

    def execute(self, plan: None) -> None:
        """Let WConfD send the configuration again, and send the other files.

        A failure of one node is told and does not keep files from the others.

        Raises:
            OpExecError: the configuration is not on enough master candidates.
        """
        self.config.redistribute_config()
        nodes = lookup.all_nodes(self.config)
        sent = node_files.distribute(self.context, self.cluster, nodes)
        too_few: GenericError | None = None
        try:
            self.config.flush_config()
        except GenericError as err:
            too_few = err
        lacking = failures(self.config.get_replication_status())
        for text in lacking.values():
            self.context.warn(text)
        if too_few is not None:
            raise too_few
        complete = sent.nodes - sent.failed - set(lacking)
        self.context.info(
            f"sent the configuration and {sent.files} other file(s) to {len(complete)} of"
            f" {len(sent.nodes)} node(s)"
        )


def failures(status: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """Return {node: text} of the online nodes without the newest configuration, with the reason.

    Args:
        status: the answer to "getReplicationStatus".
    """
    found = {}
    for row in status:
        lacks_config = row["candidate"] and row["serial_no"] != row["wanted_serial_no"]
        if row["offline"] or not (lacks_config or not row["ssconf_is_current"]):
            continue
        part = "the configuration" if lacks_config else "the simple configuration"
        reason = row["error"] or "no answer yet; it will be tried again"
        name = str(row["node"])
        found[name] = f"cannot send {part} to node {name}: {reason}"
    return found


def move_address(
    context: JobContext, master: Node, before: Cluster, after: Cluster, undo: Undo
) -> None:
    """Bring the master node from one cluster's settings to another's.

    Raises:
        OpExecError: a step failed; those before it are on the undo stack.
    """
    moves = (before.master_netdev, before.master_ip) != (after.master_netdev, after.master_ip)
    changes_mask = before.master_netmask != after.master_netmask
    steps: list[tuple[_Step, _Step]] = []  # and the step that undoes each
    if moves or (changes_mask and before.use_external_mip_script):
        up, down = (_switch(context, master, before, on=on) for on in (True, False))
        steps.append((down, up))
        up, down = (_switch(context, master, after, on=on) for on in (True, False))
        steps.append((up, down))
    elif changes_mask:
        old, new = before.master_netmask, after.master_netmask
        change = _netmask(context, master, before, old, new)
        steps.append((change, _netmask(context, master, before, new, old)))
    for step, back in steps:
        step.carry_out()
        undo.push(back.doing, back.carry_out)


class _Step(NamedTuple):
    """A step on the master node: as it reads after "cannot", and the call."""

    doing: str
    carry_out: Callable[[], object]


def _switch(context: JobContext, master: Node, cluster: Cluster, *, on: bool) -> _Step:
    doing = "bring up" if on else "take down"
    doing += f" the cluster address {cluster.master_ip} on device {cluster.master_netdev}"
    calls = context.nodes.on(master, doing)
    call = calls.node_activate_master_ip if on else calls.node_deactivate_master_ip
    params = master_network_parameters(cluster)
    script = cluster.use_external_mip_script
    return _Step(doing, lambda: call(params, use_external_mip_script=script))


def _netmask(context: JobContext, master: Node, cluster: Cluster, old: int, new: int) -> _Step:
    doing = f"change the netmask of the cluster address {cluster.master_ip} from {old} to {new}"
    call = context.nodes.on(master, doing).node_change_master_netmask
    return _Step(doing, lambda: call(old, new, cluster.master_ip, cluster.master_netdev))


class LUClusterActivateMasterIp(NamelessUnit[opcodes.OpClusterActivateMasterIp]):
    """Bring up the cluster's address on the master node."""

    def execute(self, plan: None) -> None:
        _switch(self.context, self.master, self.cluster, on=True).carry_out()


class LUClusterDeactivateMasterIp(NamelessUnit[opcodes.OpClusterDeactivateMasterIp]):
    """Take down the cluster's address on the master node."""

    def execute(self, plan: None) -> None:
        _switch(self.context, self.master, self.cluster, on=False).carry_out()


_KNOWN_HOSTS_MODE: Final = 0o644


@dataclass(frozen=True, slots=True)
class Identity:
    """A name of the cluster and the address that it stands for."""

    name: str
    address: str


class LUClusterRename(SimpleUnit[opcodes.OpClusterRename, Identity]):
    """Rename the cluster; the result is the new name."""

    hooks = HookPoint("cluster-rename", ObjectType.CLUSTER)
    exclusive_bgl = True

    def resolve(self) -> Identity:
        version = self.cluster.primary_ip_family.version
        return Identity(
            *lookup.resolve("cluster", self.op.name, self.context.paths, ip_version=version)
        )

    def plan(self, found: Identity) -> Identity:
        """Refuse a name or address that nodes have, and to change nothing."""
        cluster = self.cluster
        if found == Identity(cluster.cluster_name, cluster.master_ip):
            raise OpPrereqError(
                f"the cluster is called {found.name!r} already, and has the address"
                f" {found.address}; nothing to do"
            )
        if found.address != cluster.master_ip:
            version = cluster.primary_ip_family.version
            lookup.check_ip_version(f"the name {found.name}", found.address, version)
        for node in lookup.all_nodes(self.config):
            if found.name == node.name or found.address in (node.primary_ip, node.secondary_ip):
                raise OpPrereqError(
                    f"{found.name!r} ({found.address}) is the name or an address of node"
                    f" {node.name!r}; the cluster needs ones of its own",
                    ErrorCode.NOTUNIQUE,
                )
        return found

    def hook_nodes_after(self, plan: Identity) -> Sequence[Node]:
        return lookup.all_nodes(self.config)

    def hook_values(self, plan: Identity) -> Mapping[str, object]:
        return {"OP_TARGET": self.cluster.cluster_name, "NEW_NAME": plan.name}

    def execute(self, plan: Identity) -> str:
        """Move the address, record the name, and send it to all nodes."""
        before = self.cluster
        after = replace(before, cluster_name=plan.name, master_ip=plan.address)
        with Undo(self.context) as undo:
            move_address(self.context, self.master, before, after, undo)
            self.config.replace_cluster(after.to_wire())
            undo.forget()
        self._rename_known_host(before.cluster_name, plan.name)
        node_files.distribute(self.context, after, lookup.all_nodes(self.config))
        return plan.name

    def _rename_known_host(self, old_name: str, new_name: str) -> None:
        """Let the host key of all nodes be found under the new name."""
        path = self.context.paths.known_hosts
        try:
            content = files.read_bytes_or_none(path) or b""
            renamed = renamed_known_hosts(content.decode(), old_name, new_name)
            if content:
                files.write_durable(path, renamed.encode(), _KNOWN_HOSTS_MODE)
        except (OSError, UnicodeDecodeError) as err:
            self.context.warn(
                f"cannot change the name in {path}: {err}; put {new_name} in the place of"
                f" {old_name} there and run 'gnt-cluster redist-conf'"
            )


def renamed_known_hosts(text: str, old_name: str, new_name: str) -> str:
    """Return the content of a known_hosts file with another name for one host.

    >>> renamed_known_hosts("a ssh-rsa AAAA\\n# a\\n", "a", "b")
    'b ssh-rsa AAAA\\n# a\\n'
    """
    prefix = f"{old_name} "
    return "".join(
        f"{new_name} {line.removeprefix(prefix)}" if line.startswith(prefix) else line
        for line in text.splitlines(keepends=True)
    )
