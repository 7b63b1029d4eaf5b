"""Checking this node: the master says what to look at, each look is one row of a table.

Source: node_rpc.json, "node_verify_checks".
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.versions import PROTOCOL_VERSION, RELEASE_VERSION
from ganeti.node_ops import drivers
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.node_ops.instances.os_definitions import OsDefinitions
from ganeti.node_ops.verify import files as verify_files
from ganeti.node_ops.verify import network as verify_network
from ganeti.node_ops.verify import ssh as verify_ssh
from ganeti.protocol.node_rpc_values import STORED_DISKS_CHECK
from ganeti.storage.allowed_paths import storage_directory_problem
from ganeti.system import clock

logger = logging.getLogger(__name__)

Check = Callable[[NodeContext, Any], object]
HypervisorCheck = Callable[[NodeContext, Any, Mapping[str, object]], object]

_NONVM_NODES: Final = "nonvmnodes"


class NothingToSayError(Exception):
    """The result has no key for this check: all is well, or another node is to look."""


class Verify(NodeHandler):
    """Checks of cluster verification."""

    def node_verify(
        self, checkdict: Mapping[str, object], cluster_name: str, all_hvparams: Mapping[str, object]
    ) -> dict[str, object]:
        return _run_checks(self.context, checkdict, all_hvparams)

    def node_verify_light(
        self, checkdict: Mapping[str, object], cluster_name: str, hvparams: Mapping[str, object]
    ) -> dict[str, object]:
        return _run_checks(self.context, checkdict, hvparams)


def _run_checks(
    context: NodeContext, checkdict: Mapping[str, object], hvparams: Mapping[str, object]
) -> dict[str, object]:
    """Run the checks of one request; one that fails is answered with its error's text."""
    results: dict[str, object] = {}
    is_vm_node = context.hostname not in _names(checkdict.get(_NONVM_NODES, []))
    for name, wanted in checkdict.items():
        if name == _NONVM_NODES or (name in _VM_CHECKS and not is_vm_node):
            continue
        try:
            results[name] = _run_check(context, name, wanted, hvparams)
        except NothingToSayError:
            continue
        except (GenericError, OSError) as err:
            text = err.message if isinstance(err, GenericError) else str(err)
            logger.info("check %s cannot be made: %s", name, text)
            results[name] = _in_its_form(name, text)
    return results


def _run_check(
    context: NodeContext, name: str, wanted: object, hvparams: Mapping[str, object]
) -> object:
    """Run one check."""
    of_hypervisors = _HYPERVISOR_CHECKS.get(name)
    if of_hypervisors is not None:
        return of_hypervisors(context, wanted, hvparams)
    check = _CHECKS.get(name)
    if check is not None:
        return check(context, wanted)
    if name in _FORMS:
        return _in_its_form(name, "this check is not supported yet")
    raise ProtocolError(f"unknown check {name!r}")


def _in_its_form(name: str, text: str) -> object:
    """Return a message in the place of a result, in the form that this check's messages have."""
    return _FORMS.get(name, str)(text)


def _names(value: object) -> list[str]:
    """Return a list of names from the wire.

    Raises:
        ProtocolError: it is something else.
    """
    names: list[str] = _convert(value, list[str])
    return names


def _convert(value: object, kind: Any) -> Any:
    """Return what a check is given in its type.

    Raises:
        ProtocolError: it is something else.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as err:
        raise ProtocolError(str(err)) from err


def _hypervisors(
    context: NodeContext, wanted: object, hvparams: Mapping[str, object]
) -> dict[str, str | None]:
    """Return {hypervisor: null or what keeps it from working}."""
    results: dict[str, str | None] = {}
    for name in _names(wanted):
        try:
            [driver] = drivers.hypervisors(context, [name], hvparams)
            results[name] = driver.verify()
        except GenericError as err:
            results[name] = err.message
    return results


def _hypervisor_params(
    context: NodeContext, wanted: object, _hvparams: Mapping[str, object]
) -> list[tuple[str, str, str]]:
    """Return (source, hypervisor, message) of parameters that are wrong on this node."""
    failures = []
    for source, name, params in _convert(wanted, list[tuple[str, str, dict[str, Any]]]):
        try:
            driver = drivers.hypervisor(context, name, params)
            driver.check_params(params)
            driver.check_on_node(params)
        except GenericError as err:
            failures.append((source, name, err.message))
    return failures


def _hypervisor_info(
    context: NodeContext, wanted: object, hvparams: Mapping[str, object]
) -> object:
    """Return memory and processors as a hypervisor sees them."""
    [driver] = drivers.hypervisors(context, [str(wanted)], hvparams)
    return driver.node_info()


def _instance_names(
    context: NodeContext, wanted: object, hvparams: Mapping[str, object]
) -> list[str]:
    """Return the names of all instances of some hypervisors."""
    return sorted(
        instance
        for driver in drivers.hypervisors(context, _names(wanted), hvparams)
        for instance in driver.list_instances()
    )


def _version(_context: NodeContext, _wanted: object) -> list[object]:
    return [PROTOCOL_VERSION, RELEASE_VERSION]


def _time(_context: NodeContext, _wanted: object) -> list[int]:
    return list(clock.timestamp())


def _oslist(context: NodeContext, _wanted: object) -> object:
    return OsDefinitions(context).os_diagnose()


def _file_list(context: NodeContext, wanted: object) -> object:
    return verify_files.fingerprints(context.paths, _names(wanted))


def _client_certificate(context: NodeContext, _wanted: object) -> object:
    return verify_files.client_certificate(context.paths, clock.now())


def _not_executable(context: NodeContext, wanted: object) -> object:
    return verify_files.not_executable(context.paths, _names(wanted))


def _oob_programs(context: NodeContext, wanted: object) -> object:
    return verify_files.oob_programs(context.paths, _names(wanted))


def _storage_directory(context: NodeContext, wanted: object) -> str:
    """Return what is wrong with a storage directory.

    Raises:
        NothingToSayError: it is as it should be.
    """
    message = storage_directory_problem(str(wanted), context.paths)
    if message is None:
        raise NothingToSayError
    return message


def _storage_paths(context: NodeContext, wanted: object) -> list[str]:
    """Return which allowed file storage paths should not be allowed.

    Raises:
        NothingToSayError: another node is to look at them.
    """
    if str(wanted) != context.hostname:
        raise NothingToSayError
    return verify_files.forbidden_storage_paths(context.paths)


def _stored_disks(context: NodeContext, wanted: object) -> list[str]:
    return verify_files.stored_disks(context.paths, _names(wanted))


def _node_setup(context: NodeContext, _wanted: object) -> list[str]:
    return verify_files.node_setup(context.paths)


def _bridges(context: NodeContext, wanted: object) -> list[str]:
    return verify_network.missing_bridges(context, _names(wanted))


def _node_list(context: NodeContext, wanted: object) -> dict[str, str]:
    """Return {node: why it cannot be logged in to}."""
    names, more, candidates = _convert(wanted, tuple[list[str], dict[str, list[str]], list[str]])
    return verify_ssh.log_in(context, [*names, *more.get(context.hostname, ())], candidates)


def _ssh_setup(context: NodeContext, wanted: object) -> list[str]:
    nodes, kind = _convert(wanted, tuple[list[verify_ssh.NodeInfo], str])
    return verify_ssh.set_up(context, nodes, kind)


def _ssh_clutter(context: NodeContext, _wanted: object) -> list[str]:
    return verify_ssh.clutter(context)


def _node_net_test(context: NodeContext, wanted: object) -> dict[str, str]:
    nodes, candidates = _convert(wanted, tuple[list[tuple[str, str, str]], list[str]])
    return verify_network.reach_nodes(context, nodes, candidates)


def _master_ip(context: NodeContext, wanted: object) -> bool | None:
    _master, address, candidates = _convert(wanted, tuple[str, str, list[str]])
    return verify_network.reach_master(context, address, candidates)


# Those that are told the cluster's parameters of all hypervisors
_HYPERVISOR_CHECKS: Final[Mapping[str, HypervisorCheck]] = {
    "hvinfo": _hypervisor_info,
    "hvparms": _hypervisor_params,
    "hypervisor": _hypervisors,
    "instancelist": _instance_names,
}
_CHECKS: Final[Mapping[str, Check]] = {
    "allowed-file-storage-paths": _storage_paths,
    "bridges": _bridges,
    "client-cert": _client_certificate,
    "file-storage-path": _storage_directory,
    "filelist": _file_list,
    "gluster-storage-path": _storage_directory,
    "master-ip": _master_ip,
    "node-net-test": _node_net_test,
    "nodelist": _node_list,
    "nodesetup": _node_setup,
    "oob-paths": _oob_programs,
    "oslist": _oslist,
    "shared-file-storage-path": _storage_directory,
    "ssh-clutter": _ssh_clutter,
    "ssh-setup": _ssh_setup,
    STORED_DISKS_CHECK: _stored_disks,
    "time": _time,
    "user-scripts": _not_executable,
    "version": _version,
}

# What a node without instances is not asked.
_VM_CHECKS: Final = frozenset(
    {
        "bridges",
        "drbd-helper",
        "drbd-list",
        "drbd-version",
        "exclusive-pvs",
        "file-storage-path",
        "gluster-storage-path",
        "hvinfo",
        "hvparms",
        "hypervisor",
        "instancelist",
        "lvlist",
        "oslist",
        "pvlist",
        "shared-file-storage-path",
        STORED_DISKS_CHECK,
        "vglist",
    }
)

# How a message looks in the place of a result; plain text where nothing is said.
_FORMS: Final[Mapping[str, Callable[[str], object]]] = {
    "client-cert": lambda text: ["ERROR", text],
    "drbd-helper": lambda text: [False, text],
    "drbd-list": str,
    "drbd-version": str,
    "exclusive-pvs": str,
    "lvlist": str,
    "pvlist": str,
    "ssh-clutter": lambda text: [text],
    "ssh-setup": lambda text: [text],
    "vglist": str,
}
