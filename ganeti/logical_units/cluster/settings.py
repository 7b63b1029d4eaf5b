"""New values of the cluster's fields from an opcode: plain decisions over plain values.

Each field of the opcode is one row of the table `SETTINGS`, and the rows are applied one after the
other: most values are stored as they are, groups of parameters are laid over the old ones.  The
functions for single values return a value as it is stored, or raise OpPrereqError with a text that
names the setting.  Whether the values fit the objects of the cluster is decided by
`ganeti.logical_units.cluster.set_params`.

Source: constants.json, "export_import" and "network"; manual page gnt-cluster(8).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ganeti.base.errors import NotSupportedError, OpPrereqError, ParameterError, refuse, refusing
from ganeti.base.text import is_plugin_name
from ganeti.logical_units import parameters
from ganeti.logical_units.cluster import block_storage, communication
from ganeti.logical_units.instance.parameters import (
    check_beparams,
    check_filled_beparams,
    check_hvparams,
)
from ganeti.objects import model
from ganeti.objects.allocation_modes import EVERY_KIND
from ganeti.objects.disk_templates import IMAGES, DiskTemplate, image_problem, supported_templates
from ganeti.objects.fill import fill_beparams
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.model import Cluster
from ganeti.objects.nic import NicMode, mac_prefix_problem, parse_vlan
from ganeti.objects.parameters import (
    NICPARAMS,
    VALUE_DEFAULT,
    apply_changes,
    defaults_of,
    stored_defaults,
)
from ganeti.objects.record import PrivateParams
from ganeti.objects.uid_pool import UidRange, format_uid_pool, normal_form, problem_of, without
from ganeti.opcodes.cluster import OpClusterSetParams, OsListChange

Fields = dict[str, object]
Setting = Callable[[Cluster, Any], Fields]

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


def image(what: str, value: str) -> str:
    """Return the path or URL of an image; an empty one for none."""
    if value:
        refuse(image_problem(what, value))
    return value


def mac_prefix(value: str) -> str:
    """Return the first half of a MAC address in lower case."""
    refuse(mac_prefix_problem(value))
    return value.lower()


def network_device(value: str) -> str:
    """Return the name of a network device."""
    if _NETWORK_DEVICE.fullmatch(value) is None:
        raise OpPrereqError(
            f"master_netdev: {value!r} is not the name of a network device, such as eth0"
        )
    return value


def netmask(value: int, family: model.IpFamily) -> int:
    """Return the length of a prefix."""
    refuse(model.netmask_problem(value, family))
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
        refuse(problem_of(uids))
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


def _checked(field: str, check: Callable[[Any], object] = lambda value: value) -> Setting:
    return lambda _cluster, value: {field: check(value)}


def _enabled_hypervisors(cluster: Cluster, value: Sequence[str]) -> Fields:
    names = some_names("enabled_hypervisors", value)
    unset = {
        name: stored_defaults(HVPARAMS[name]) for name in names if name not in cluster.hvparams
    }
    return {"enabled_hypervisors": names, "hvparams": {**cluster.hvparams, **unset}}


def _enabled_disk_templates(cluster: Cluster, value: Sequence[DiskTemplate]) -> Fields:
    names = some_names("enabled_disk_templates", value)
    missing = sorted(set(names) - set(cluster.enabled_disk_templates) - set(supported_templates()))
    if missing:
        known = ", ".join(supported_templates())
        text = f"disk template {missing[0]!r} is not supported yet; supported are: {known}"
        raise NotSupportedError(text)
    return {"enabled_disk_templates": names}


def _hvparams(cluster: Cluster, value: Mapping[str, Mapping[str, object]]) -> Fields:
    changed = {
        name: apply_changes(
            cluster.hvparams.get(name, {}), check_hvparams(name, params, of_cluster=True)
        )
        for name, params in value.items()
    }
    return {"hvparams": {**cluster.hvparams, **changed}}


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
    merged = apply_changes(cluster.beparams.get(model.DEFAULTS, {}), changes)
    filled = {**fill_beparams(cluster), **merged}
    check_filled_beparams(filled)  # type: ignore[arg-type]  # types were enforced above
    return {"beparams": {**cluster.beparams, model.DEFAULTS: filled}}


def nic_defaults(before: Mapping[str, object], value: Mapping[str, object]) -> dict[str, object]:
    """Return the defaults of network interfaces after a change, all of them."""
    given = {name: item for name, item in value.items() if item is not None}
    changes = parameters.enforced(given, NICPARAMS, "NIC parameter")
    if changes.get("vlan", VALUE_DEFAULT) != VALUE_DEFAULT:
        with refusing(ParameterError, prefix="NIC parameter 'vlan': "):
            changes["vlan"] = str(parse_vlan(str(changes["vlan"])))
    filled = {**defaults_of(NICPARAMS), **apply_changes(before, changes)}
    if filled["mode"] == NicMode.BRIDGED and not filled["link"]:
        raise OpPrereqError("NIC parameters: mode bridged needs a link, the name of a bridge")
    return filled


def _nicparams(cluster: Cluster, value: Mapping[str, object]) -> Fields:
    before = cluster.nicparams.get(model.DEFAULTS, {})
    return {"nicparams": {model.DEFAULTS: nic_defaults(before, value)}}


def _ipolicy(cluster: Cluster, value: Mapping[str, object]) -> Fields:
    parameters.check_ipolicy_changes(value, of_cluster=True)
    return {"ipolicy": parameters.merge_ipolicy(None, cluster.ipolicy, value)}


def _osparams(cluster: Cluster, value: Mapping[str, Mapping[str, object]]) -> Fields:
    old = cluster.osparams
    laid = {name: apply_changes(old.get(name, {}), params) for name, params in value.items()}
    return {"osparams": {name: params for name, params in {**old, **laid}.items() if params}}


def _osparams_private(cluster: Cluster, value: Mapping[str, PrivateParams]) -> Fields:
    merged = {name: params.reveal() for name, params in cluster.osparams_private_cluster.items()}
    for name, params in value.items():
        merged[name] = apply_changes(merged.get(name, {}), params.reveal())
    return {"osparams_private_cluster": {name: params for name, params in merged.items() if params}}


def _os_list(field: str) -> Setting:
    def change(cluster: Cluster, value: Sequence[tuple[OsListChange, str]]) -> Fields:
        names: list[str] = list(getattr(cluster, field))
        for action, name in value:
            if action in (OsListChange.ADD, OsListChange.ATTACH):
                names = [*names, name] if name not in names else names
            else:
                names = [known for known in names if known != name]
        return {field: names}

    return change


def _pool(ranges: Sequence[UidRange]) -> Fields:
    return {"uid_pool": [list(uids) for uids in ranges]}


def _uid_pool(_cluster: Cluster, value: Sequence[UidRange]) -> Fields:
    return _pool(normal_form(uid_ranges(value)))


def _add_uids(cluster: Cluster, value: Sequence[UidRange]) -> Fields:
    return _pool(normal_form([*cluster.uid_pool, *uid_ranges(value)]))


def _remove_uids(cluster: Cluster, value: Sequence[UidRange]) -> Fields:
    missing = without(uid_ranges(value), cluster.uid_pool)
    if missing:
        raise OpPrereqError(
            f"user ids to be removed are not in the pool: {format_uid_pool(missing, ', ')}"
        )
    return _pool(without(cluster.uid_pool, value))


def _master_netmask(cluster: Cluster, value: int) -> Fields:
    return {"master_netmask": netmask(value, cluster.primary_ip_family)}


# A collector that nobody has changed yet.
_COLLECTOR: Final = {"active": True, "interval": model.COLLECTOR_INTERVAL_US}


def _collectors(
    what: str, check: Callable[[str, Any], object] = lambda _name, setting: setting
) -> Setting:
    def change(cluster: Cluster, value: Mapping[str, object]) -> Fields:
        merged = {name: collector.to_wire() for name, collector in cluster.data_collectors.items()}
        known = sorted({*merged, *model.DATA_COLLECTORS})
        for name, setting in value.items():
            if name not in known:
                raise OpPrereqError(
                    f"unknown data collector {name!r}; known are: {', '.join(known)}"
                )
            merged[name] = {**merged.get(name, _COLLECTOR), what: check(name, setting)}
        return {"data_collectors": merged}

    return change


def allocator_names(value: str) -> list[str]:
    """Return the default allocators that a text names, the first one first."""
    return [name.strip() for name in value.split(",")] if value else []


def _default_allocator(cluster: Cluster, value: str) -> Fields:
    """The first is that of 3.0; where there are several, all of them stand in a list of ours."""
    lists = {kind: each for kind, each in cluster.default_iallocators.items() if kind != EVERY_KIND}
    first, several = default_allocators(value)
    return {"default_iallocator": first, "default_iallocators": {**several, **lists}}


def default_allocators(value: str) -> tuple[str, dict[str, list[str]]]:
    """Return the first of the allocators that a text names, and the list of several."""
    names = _each_once("default_iallocator", allocator_names(value))
    return next(iter(names), ""), {EVERY_KIND: names} if len(names) > 1 else {}


def _default_allocators(cluster: Cluster, value: Mapping[str, Sequence[str]]) -> Fields:
    given = {str(kind): _each_once("default_iallocators", names) for kind, names in value.items()}
    lists = {**cluster.default_iallocators, **given}
    return {"default_iallocators": {kind: names for kind, names in lists.items() if names}}


def _each_once(what: str, names: Sequence[str]) -> list[str]:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise OpPrereqError(f"{what}: allocator {twice[0]!r} is named twice")
    return [*names]


_STORED_AS_GIVEN: Final = (
    *("maintain_node_health", "prealloc_wipe_disks", "candidate_pool_size", "max_running_jobs"),
    *("max_tracked_jobs", "default_iallocator_params", "modify_etc_hosts"),
    *("use_external_mip_script", "enabled_user_shutdown", "max_disk_transfers"),
    "silent_node_tries",
)
_DIRECTORIES: Final = ("file_storage_dir", "shared_file_storage_dir", "gluster_storage_dir")
_DIAGNOSE: Final = "diagnose_data_collector_filename"
_COMMUNICATION: Final = "instance_communication_network"

# parameter of the opcode -> the fields that it sets
SETTINGS: Final[Mapping[str, Setting]] = {
    **{name: _checked(name) for name in _STORED_AS_GIVEN},
    **{name: _checked(name, partial(image, name)) for name in IMAGES},
    "default_iallocator": _default_allocator,
    "default_iallocators": _default_allocators,
    "reserved_lvs": _checked("reserved_lvs", volume_patterns),
    "compression_tools": _checked("compression_tools", compression_tools),
    "enabled_hypervisors": _enabled_hypervisors,
    "enabled_disk_templates": _enabled_disk_templates,
    **{name: _checked(name, partial(directory, name)) for name in _DIRECTORIES},
    "mac_prefix": _checked("mac_prefix", mac_prefix),
    "master_netdev": _checked("master_netdev", network_device),
    "master_netmask": _master_netmask,
    "hvparams": _hvparams,
    "os_hvp": _os_hvp,
    "beparams": _beparams,
    "nicparams": _nicparams,
    **{name: partial(parameters.changed_parameter, name) for name in parameters.PARAMETERS},
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
    _DIAGNOSE: _checked(_DIAGNOSE, diagnose_command),
    "vg_name": _checked("volume_group_name", block_storage.volume_group),
    "drbd_helper": _checked("drbd_usermode_helper", block_storage.helper),
    _COMMUNICATION: _checked(_COMMUNICATION, communication.network_name),
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
