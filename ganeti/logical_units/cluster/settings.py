"""New values of the cluster's fields from an opcode: plain decisions over plain values.

Each field of the opcode is one row of the table `SETTINGS`, and the rows are applied one after the
other: most values are stored as they are, groups of parameters are laid over the old ones.  The
functions for single values return a value as it is stored, or raise OpPrereqError with a text that
names the setting.  Whether the values fit the objects of the cluster is decided by
`ganeti.logical_units.cluster.conflicts`.

Source: constants.json, "export_import" and "network"; manual page gnt-cluster(8).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base.errors import NotSupportedError, OpPrereqError, TypeEnforcementError
from ganeti.logical_units.groups import check_diskparams
from ganeti.logical_units.instance.parameters import (
    check_beparams,
    check_filled_beparams,
    check_hvparams,
)
from ganeti.logical_units.ipolicy import check_ipolicy_changes, merge_ipolicy
from ganeti.logical_units.node.parameters import check_disk_state, check_hv_state, check_ndparams
from ganeti.objects.disk_templates import DiskTemplate, supported_templates
from ganeti.objects.fill import fill_beparams
from ganeti.objects.hypervisors import HVPARAMS, SUPPORTED_HYPERVISORS
from ganeti.objects.model import (
    COLLECTOR_INTERVAL_US,
    DATA_COLLECTORS,
    DEFAULTS,
    Cluster,
    IpFamily,
    netmask_problem,
)
from ganeti.objects.nic import NicMode, mac_prefix_problem
from ganeti.objects.parameters import NICPARAMS, apply_changes, checked, defaults_of
from ganeti.objects.record import PrivateParams
from ganeti.objects.uid_pool import UidRange, format_uid_pool, normal_form, problem_of, without
from ganeti.opcodes.cluster import OpClusterSetParams, OsListChange
from ganeti.system.programs import is_plugin_name

Fields = dict[str, object]

IEC_GZIP: Final = "gzip"  # a node of another cluster can always unpack it
IEC_NONE: Final = "none"  # a word of its own: no compression
_TOOL: Final = re.compile(r"[A-Za-z0-9_-]+")
_NETWORK_DEVICE: Final = re.compile(r"(?!\.{1,2}$)[^\s/]{1,15}")  # names that the kernel allows


def some_names(what: str, value: Sequence[str]) -> list[str]:
    """Return names, each once; there must be one at least."""
    if not value:
        raise OpPrereqError(f"{what}: the list must not be empty")
    return [str(name) for name in dict.fromkeys(value)]


def directory(what: str, value: str) -> str:
    """Return an absolute path in its shortest form; an empty one unsets the directory."""
    if not value:
        return ""
    if not posixpath.isabs(value):
        raise OpPrereqError(f"{what}: {value!r} is not an absolute path")
    path = posixpath.normpath("/" + value.lstrip("/"))
    if path == "/" or ".." in value.split("/"):
        raise OpPrereqError(
            f"{what}: {value!r} cannot hold disks; give a directory of its own, without '..'"
        )
    return path


def mac_prefix(value: str) -> str:
    """Return the first half of a MAC address in lower case."""
    problem = mac_prefix_problem(value)
    if problem:
        raise OpPrereqError(problem)
    return value.lower()


def network_device(value: str) -> str:
    """Return the name of a network device."""
    if _NETWORK_DEVICE.fullmatch(value) is None:
        raise OpPrereqError(
            f"master_netdev: {value!r} is not the name of a network device, such as eth0"
        )
    return value


def netmask(value: int, family: IpFamily) -> int:
    """Return the length of a prefix."""
    problem = netmask_problem(value, family)
    if problem:
        raise OpPrereqError(problem)
    return value


def compression_tools(value: Sequence[str]) -> list[str]:
    """Return names of programs that compress; gzip must be among them."""
    names = some_names("compression_tools", value)
    for name in names:
        if _TOOL.fullmatch(name) is None or name == IEC_NONE:
            raise OpPrereqError(
                f"compression_tools: {name!r} is not the name of a program of letters, digits, '-'"
                " and '_'"
            )
    if IEC_GZIP not in names:
        raise OpPrereqError(f"compression_tools: {IEC_GZIP} must be among them, for other clusters")
    return names


def volume_patterns(value: Sequence[str]) -> list[str]:
    """Return regular expressions that match whole names of logical volumes."""
    for pattern in value:
        try:
            re.compile(pattern)
        except re.error as err:
            raise OpPrereqError(
                f"reserved_lvs: {pattern!r} is not a regular expression: {err}"
            ) from err
    return list(dict.fromkeys(value))


def uid_ranges(value: Sequence[UidRange]) -> list[UidRange]:
    """Return ranges of user ids."""
    for uids in value:
        problem = problem_of(uids)
        if problem is not None:
            raise OpPrereqError(problem)
    return list(value)


def diagnose_command(value: str) -> str:
    """Return the name of the command that diagnoses nodes; empty for none."""
    if value and not is_plugin_name(value):
        raise OpPrereqError(
            f"diagnose_data_collector_filename: {value!r} is not a name of letters, digits, - and"
            " _; give the name of a file in /etc/ganeti/node-diagnose-commands on the nodes"
        )
    return value


def interval_us(name: str, value: int) -> int:
    """Return the interval of a data collector, in microseconds."""
    if value <= 0:
        raise OpPrereqError(
            f"data_collector_interval: {name} must have an interval above 0, got {value}"
        )
    return value


def _same(field: str) -> Callable[[Cluster, Any], Fields]:
    return lambda _cluster, value: {field: value}


def _not_yet(field: str, what: str) -> Callable[[Cluster, Any], Fields]:
    """Refuse a field that belongs to something not built; an empty one may be left empty."""

    def refuse(cluster: Cluster, value: object) -> Fields:
        if value or getattr(cluster, field):
            raise NotSupportedError(f"{what} are not supported yet, so {field} cannot be changed")
        return {}

    return refuse


def _checked(field: str, check: Callable[[Any], object]) -> Callable[[Cluster, Any], Fields]:
    return lambda _cluster, value: {field: check(value)}


def _directory(field: str) -> Callable[[Cluster, Any], Fields]:
    return _checked(field, lambda value: directory(field, value))


def _enabled_hypervisors(cluster: Cluster, value: Sequence[str]) -> Fields:
    names = some_names("enabled_hypervisors", value)
    _refuse_without_driver(
        "hypervisor", set(names) - set(cluster.enabled_hypervisors), SUPPORTED_HYPERVISORS
    )
    unset = {name: defaults_of(HVPARAMS[name]) for name in names if name not in cluster.hvparams}
    return {"enabled_hypervisors": names, "hvparams": {**cluster.hvparams, **unset}}


def _enabled_disk_templates(cluster: Cluster, value: Sequence[DiskTemplate]) -> Fields:
    names = some_names("enabled_disk_templates", value)
    _refuse_without_driver(
        "disk template", set(names) - set(cluster.enabled_disk_templates), supported_templates()
    )
    return {"enabled_disk_templates": names}


def _refuse_without_driver(what: str, added: set[str], supported: Sequence[str]) -> None:
    missing = sorted(added - set(supported))
    if missing:
        raise NotSupportedError(
            f"{what} {missing[0]!r} is not supported yet; supported are: {', '.join(supported)}"
        )


def _typed(params: Mapping[str, object], table: Mapping[str, Any], what: str) -> dict[str, object]:
    try:
        return checked(params, table, what=what)
    except TypeEnforcementError as err:
        raise OpPrereqError(err.message) from err


def _hvparams(cluster: Cluster, value: Mapping[str, Mapping[str, object]]) -> Fields:
    merged: dict[str, object] = dict(cluster.hvparams)
    for hypervisor, params in value.items():
        old = cluster.hvparams.get(hypervisor, {})
        merged[hypervisor] = apply_changes(old, check_hvparams(hypervisor, params, of_cluster=True))
    return {"hvparams": merged}


def _os_hvp(cluster: Cluster, value: Mapping[str, Mapping[str, Any]]) -> Fields:
    merged: dict[str, object] = dict(cluster.os_hvp)
    for os_name, by_hypervisor in value.items():
        old = cluster.os_hvp.get(os_name, {})
        new: dict[str, object] = dict(old)
        for hypervisor, params in by_hypervisor.items():
            if not isinstance(params, Mapping):
                raise OpPrereqError(f"os_hvp of {os_name!r}: {hypervisor!r} must have an object")
            changes = check_hvparams(hypervisor, params)
            new[hypervisor] = apply_changes(old.get(hypervisor, {}), changes)
        merged[os_name] = {name: params for name, params in new.items() if params}
    return {
        "os_hvp": {name: by_hypervisor for name, by_hypervisor in merged.items() if by_hypervisor}
    }


def _beparams(cluster: Cluster, value: Mapping[str, object]) -> Fields:
    changes = check_beparams(value)
    merged = apply_changes(cluster.beparams.get(DEFAULTS, {}), changes)
    filled = {**fill_beparams(cluster), **merged}
    check_filled_beparams(filled)  # type: ignore[arg-type]  # types were enforced above
    return {"beparams": {**cluster.beparams, DEFAULTS: filled}}


def _nicparams(cluster: Cluster, value: Mapping[str, object]) -> Fields:
    given = {name: item for name, item in value.items() if item is not None}
    changes = _typed(given, NICPARAMS, "NIC parameter")
    old = cluster.nicparams.get(DEFAULTS, {})
    defaults = {name: spec.default for name, spec in NICPARAMS.items()}
    filled = {**defaults, **apply_changes(old, changes)}
    if filled["mode"] == NicMode.BRIDGED and not filled["link"]:
        raise OpPrereqError("NIC parameters: mode bridged needs a link, the name of a bridge")
    return {"nicparams": {DEFAULTS: filled}}


def _ndparams(cluster: Cluster, value: Mapping[str, object]) -> Fields:
    return {"ndparams": apply_changes(cluster.ndparams, check_ndparams(value, of_node=False))}


def _diskparams(cluster: Cluster, value: Mapping[str, Mapping[str, object]]) -> Fields:
    checked = check_diskparams({str(name): params for name, params in value.items()})
    old = cluster.diskparams
    laid = {name: apply_changes(old.get(name, {}), params) for name, params in checked.items()}
    return {"diskparams": {**old, **laid}}


def _ipolicy(cluster: Cluster, value: Mapping[str, object]) -> Fields:
    check_ipolicy_changes(value, of_cluster=True)
    return {"ipolicy": merge_ipolicy(None, cluster.ipolicy, value)}


def _osparams(cluster: Cluster, value: Mapping[str, Mapping[str, object]]) -> Fields:
    old = cluster.osparams
    laid = {name: apply_changes(old.get(name, {}), params) for name, params in value.items()}
    return {"osparams": {name: params for name, params in {**old, **laid}.items() if params}}


def _osparams_private(cluster: Cluster, value: Mapping[str, PrivateParams]) -> Fields:
    merged = {name: params.reveal() for name, params in cluster.osparams_private_cluster.items()}
    for name, params in value.items():
        merged[name] = apply_changes(merged.get(name, {}), params.reveal())
    return {"osparams_private_cluster": {name: params for name, params in merged.items() if params}}


def _os_list(field: str) -> Callable[[Cluster, Any], Fields]:
    def change(cluster: Cluster, value: Sequence[tuple[OsListChange, str]]) -> Fields:
        names: list[str] = list(getattr(cluster, field))
        for action, name in value:
            if action in (OsListChange.ADD, OsListChange.ATTACH):
                names = [*names, name] if name not in names else names
            else:
                names = [known for known in names if known != name]
        return {field: names}

    return change


def _uid_pool(_cluster: Cluster, value: Sequence[UidRange]) -> Fields:
    return {"uid_pool": as_lists(normal_form(uid_ranges(value)))}


def _add_uids(cluster: Cluster, value: Sequence[UidRange]) -> Fields:
    return {"uid_pool": as_lists(normal_form([*cluster.uid_pool, *uid_ranges(value)]))}


def _remove_uids(cluster: Cluster, value: Sequence[UidRange]) -> Fields:
    missing = without(uid_ranges(value), cluster.uid_pool)
    if missing:
        raise OpPrereqError(
            f"user ids to be removed are not in the pool: {format_uid_pool(missing, ', ')}"
        )
    return {"uid_pool": as_lists(without(cluster.uid_pool, value))}


def as_lists(ranges: Sequence[UidRange]) -> list[list[int]]:
    """Return ranges as they are stored."""
    return [list(uids) for uids in ranges]


def _master_netmask(cluster: Cluster, value: int) -> Fields:
    return {"master_netmask": netmask(value, cluster.primary_ip_family)}


# A collector that nobody has changed yet.
_COLLECTOR: Final = {"active": True, "interval": COLLECTOR_INTERVAL_US}


def _collectors(
    what: str, check: Callable[[str, Any], object] = lambda _name, setting: setting
) -> Callable[[Cluster, Any], Fields]:
    def change(cluster: Cluster, value: Mapping[str, object]) -> Fields:
        merged = {name: collector.to_wire() for name, collector in cluster.data_collectors.items()}
        known = sorted({*merged, *DATA_COLLECTORS})
        for name, setting in value.items():
            if name not in known:
                raise OpPrereqError(
                    f"unknown data collector {name!r}; known are: {', '.join(known)}"
                )
            merged[name] = {**merged.get(name, _COLLECTOR), what: check(name, setting)}
        return {"data_collectors": merged}

    return change


def _states(field: str, check: Callable[[Mapping[str, object]], Fields]) -> Callable[..., Fields]:
    def change(cluster: Cluster, value: Mapping[str, object]) -> Fields:
        return {field: {**getattr(cluster, field), **check(value)}}

    return change


# parameter of the opcode -> the fields that it sets
SETTINGS: Final[Mapping[str, Callable[[Cluster, Any], Fields]]] = {
    "maintain_node_health": _same("maintain_node_health"),
    "prealloc_wipe_disks": _same("prealloc_wipe_disks"),
    "candidate_pool_size": _same("candidate_pool_size"),
    "max_running_jobs": _same("max_running_jobs"),
    "max_tracked_jobs": _same("max_tracked_jobs"),
    "default_iallocator": _same("default_iallocator"),
    "default_iallocator_params": _same("default_iallocator_params"),
    "use_external_mip_script": _same("use_external_mip_script"),
    "modify_etc_hosts": _same("modify_etc_hosts"),
    "install_image": _not_yet("install_image", "helper instances that install operating systems"),
    "zeroing_image": _not_yet("zeroing_image", "helper instances that zero free space"),
    "enabled_user_shutdown": _same("enabled_user_shutdown"),
    "reserved_lvs": _checked("reserved_lvs", volume_patterns),
    "compression_tools": _checked("compression_tools", compression_tools),
    "enabled_hypervisors": _enabled_hypervisors,
    "enabled_disk_templates": _enabled_disk_templates,
    "file_storage_dir": _directory("file_storage_dir"),
    "shared_file_storage_dir": _directory("shared_file_storage_dir"),
    "gluster_storage_dir": _directory("gluster_storage_dir"),
    "mac_prefix": _checked("mac_prefix", mac_prefix),
    "master_netdev": _checked("master_netdev", network_device),
    "master_netmask": _master_netmask,
    "hvparams": _hvparams,
    "os_hvp": _os_hvp,
    "beparams": _beparams,
    "nicparams": _nicparams,
    "ndparams": _ndparams,
    "diskparams": _diskparams,
    "ipolicy": _ipolicy,
    "osparams": _osparams,
    "osparams_private_cluster": _osparams_private,
    "hidden_os": _os_list("hidden_os"),
    "blacklisted_os": _os_list("blacklisted_os"),
    "uid_pool": _uid_pool,
    "add_uids": _add_uids,
    "remove_uids": _remove_uids,
    "enabled_data_collectors": _collectors("active"),
    "data_collector_interval": _collectors("interval", interval_us),
    "diagnose_data_collector_filename": _checked(
        "diagnose_data_collector_filename", diagnose_command
    ),
    "hv_state": _states("hv_state_static", check_hv_state),
    "disk_state": _states("disk_state_static", check_disk_state),
    "vg_name": _not_yet("volume_group_name", "logical volumes"),
    "drbd_helper": _not_yet("drbd_usermode_helper", "DRBD disks"),
    "instance_communication_network": _not_yet(
        "instance_communication_network", "networks for instance communication"
    ),
}


def plan_changes(cluster: Cluster, op: OpClusterSetParams) -> dict[str, object]:
    """Return the new values of the fields that an opcode changes.

    Raises:
        OpPrereqError: a value is wrong, or cannot be changed yet.
    """
    changes: dict[str, object] = {}
    for name, plan in SETTINGS.items():
        value = getattr(op, name)
        if value is not None:
            changes |= plan(laid_over(cluster, changes), value)
    return changes


def laid_over(cluster: Cluster, changes: Mapping[str, object]) -> Cluster:
    """Return the cluster with new values of some fields."""
    return Cluster.from_wire({**cluster.to_wire(), **changes}) if changes else cluster
