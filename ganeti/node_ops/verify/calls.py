"""Checking this node: the master names the checks; each check is one row of a table.

Source: node_rpc.json, "node_verify_checks".
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.versions import PROTOCOL_VERSION, RELEASE_VERSION
from ganeti.netdev.taps import missing_bridges
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.node_ops.disks import volumes
from ganeti.node_ops.instances.os_definitions import OsDefinitions
from ganeti.node_ops.verify import files, network
from ganeti.protocol.node_rpc_values import STORED_DISKS_CHECK
from ganeti.storage.drbd import drbdsetup
from ganeti.storage.drbd.status import usermode_helper
from ganeti.system import clock

logger = logging.getLogger(__name__)

_Look = Callable[..., object]
_NONVM_NODES: Final = "nonvmnodes"


class Verify(NodeHandler):
    """Checks of cluster verification."""

    def node_verify(
        self, checkdict: Mapping[str, object], cluster_name: str, all_hvparams: Mapping[str, object]
    ) -> dict[str, object]:
        """Run the checks of one request; one that fails is answered with its error's text."""
        results: dict[str, object] = {}
        is_vm_node = self.hostname not in _converted(checkdict.get(_NONVM_NODES, []), list[str])
        for name, wanted in checkdict.items():
            if name == _NONVM_NODES or (name in _VM_CHECKS and not is_vm_node):
                continue
            try:
                results[name] = _run_check(self.node, name, wanted, all_hvparams)
            except files.NothingToSayError:
                continue
            except (GenericError, OSError) as err:
                text = err.message if isinstance(err, GenericError) else str(err)
                logger.info("check %s cannot be made: %s", name, text)
                results[name] = _in_its_form(name, text)
        return results

    def node_verify_light(
        self, checkdict: Mapping[str, object], cluster_name: str, hvparams: Mapping[str, object]
    ) -> dict[str, object]:
        return self.node_verify(checkdict, cluster_name, hvparams)

    def bridges_exist(self, bridges_list: Sequence[str]) -> None:
        missing = ", ".join(sorted(_bridges(self.node, bridges_list)))
        if missing:
            raise GenericError(f"bridges missing on node {self.hostname}: {missing}")


def _run_check(
    node: NodeContext, name: str, wanted: object, hvparams: Mapping[str, object]
) -> object:
    """Run one check with the master's arguments for it, in its types."""
    if name in _HYPERVISOR_CHECKS:
        look, kind = _HYPERVISOR_CHECKS[name]
        return look(node, _converted(wanted, kind), hvparams)
    match _CHECKS.get(name):
        case (look,):
            return look(node)
        case (look, kind):
            return look(node, _converted(wanted, kind))
        case (look, *kinds):
            return look(node, *_converted(wanted, tuple[*kinds]))  # type: ignore[valid-type]
    raise ProtocolError(f"unknown check {name!r}")


def _converted(value: object, kind: Any) -> Any:
    """Return a value that the master sent in its type.

    Raises:
        ProtocolError: it is something else.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as err:
        raise ProtocolError(str(err)) from err


def _in_its_form(name: str, text: str) -> object:
    """Return a message in the place of a result, in the form that this check's messages have."""
    return _FORMS.get(name, str)(text)


def _hypervisors(
    node: NodeContext, names: list[str], hvparams: Mapping[str, object]
) -> dict[str, str | None]:
    """Return {hypervisor: null or its problem}."""
    results: dict[str, str | None] = {}
    for name in names:
        try:
            [driver] = node.hypervisors([name], hvparams)
            results[name] = driver.verify()
        except GenericError as err:
            results[name] = err.message
    return results


def _hypervisor_params(
    node: NodeContext, rows: list[tuple[str, str, dict[str, Any]]], _hvparams: object
) -> list[tuple[str, str, str]]:
    """Return (source, hypervisor, message) of parameters that are wrong on this node."""
    failures = []
    for source, name, params in rows:
        try:
            node.hypervisor(name, params).check_all(params)
        except GenericError as err:
            failures.append((source, name, err.message))
    return failures


def _hypervisor_info(node: NodeContext, name: str, hvparams: Mapping[str, object]) -> object:
    """Return memory and processors as a hypervisor sees them."""
    [driver] = node.hypervisors([name], hvparams)
    return driver.node_info()


def _bridges(node: NodeContext, names: Sequence[str]) -> list[str]:
    """Return the bridges that are missing; guests of a virtual node do without."""
    return [] if node.paths.root else missing_bridges(names)


# The checks that are told the cluster's parameters of all hypervisors
_HYPERVISOR_CHECKS: Final[Mapping[str, tuple[_Look, Any]]] = {
    "hvinfo": (_hypervisor_info, str),
    "hvparms": (_hypervisor_params, list[tuple[str, str, dict[str, Any]]]),
    "hypervisor": (_hypervisors, list[str]),
    "instancelist": (NodeContext.instance_names, list[str]),
}
# The function of each check, and the types of its arguments
_CHECKS: Final[Mapping[str, tuple[Any, ...]]] = {
    "allowed-file-storage-paths": (files.forbidden_storage_paths, str),
    "bridges": (_bridges, list[str]),
    "client-cert": (lambda node: files.client_certificate(node.paths, clock.now()),),
    "drbd-helper": (lambda _node: [True, usermode_helper()],),
    "drbd-list": (lambda _node: drbdsetup.status().used_minors(),),
    "drbd-version": (lambda _node: drbdsetup.status().version,),
    "exclusive-pvs": (volumes.shared_physical, Any),
    "file-storage-path": (files.storage_directory, str),
    "filelist": (files.fingerprints, list[str]),
    "gluster-storage-path": (files.mount_point, str),
    "lvlist": (volumes.volumes_of_group, str),
    "master-ip": (network.reach_master, str, str, list[str]),
    "node-net-test": (network.reach_nodes, list[tuple[str, str, str]], list[str]),
    "nodelist": (network.log_in, list[str], dict[str, list[str]], list[str]),
    "nodesetup": (files.node_setup,),
    "oob-paths": (files.oob_programs, list[str]),
    "oslist": (lambda node: OsDefinitions(node).os_diagnose(),),
    "pvlist": (volumes.physical_of_groups, list[str]),
    "shared-file-storage-path": (files.storage_directory, str),
    "ssh-clutter": (network.clutter,),
    "ssh-setup": (network.set_up, list[network.NodeInfo], str),
    STORED_DISKS_CHECK: (files.stored_disks, list[str]),
    "time": (lambda _node: list(clock.timestamp()),),
    "user-scripts": (files.not_executable, list[str]),
    "vglist": (volumes.group_sizes, Any),
    "version": (lambda _node: [PROTOCOL_VERSION, RELEASE_VERSION],),
}

# A node without instances is not asked these.
_VM_CHECKS: Final = {
    *(
        "bridges",
        "drbd-helper",
        "drbd-list",
        "drbd-version",
        "file-storage-path",
        "gluster-storage-path",
        "oslist",
    ),
    *("shared-file-storage-path", STORED_DISKS_CHECK),
    *("exclusive-pvs", "lvlist", "pvlist", "vglist", *_HYPERVISOR_CHECKS),
}

# How a message looks in the place of a result; all others are plain text.
_FORMS: Final[Mapping[str, Callable[[str], object]]] = {
    "client-cert": lambda text: ["ERROR", text],
    "drbd-helper": lambda text: [False, text],
    "ssh-clutter": lambda text: [text],
    "ssh-setup": lambda text: [text],
}
