"""What is wrong with parameters and policies of an object, by themselves.

Each function yields sentences without the object's name, which `ganeti.config.checks` puts before
them.

Source: constants.json, the parameter tables; config.json, "IPolicy".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ganeti.base.errors import TypeEnforcementError
from ganeti.objects.cluster import DEFAULTS, Cluster, IpFamily
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.nic_modes import NicMode
from ganeti.objects.parameters import (
    BEPARAMS,
    DISKPARAMS,
    HVPARAMS,
    IPOLICY_RATIOS,
    ISPEC_PARAMS,
    NDPARAMS,
    NICPARAMS,
    ParamTable,
    enforce_types,
)
from ganeti.objects.uid_pool import problem_of

_NETMASK_MAX: Final = {IpFamily.IPV4: 32, IpFamily.IPV6: 128}
_NIC_MODES: Final = frozenset(str(mode) for mode in NicMode if mode is not NicMode.POOL)
_POLICY_KEYS: Final = frozenset({"minmax", "std", "disk-templates", *IPOLICY_RATIOS})


def types(what: str, params: Mapping[str, object], table: ParamTable) -> Iterator[str]:
    """Check that parameters are known and of their types."""
    try:
        enforce_types(params, table, what=what)
    except TypeEnforcementError as err:
        yield err.message


def hvparams(hypervisor: str, params: Mapping[str, object]) -> Iterator[str]:
    """Check parameters of a hypervisor."""
    table = HVPARAMS.get(hypervisor)
    if table is None:
        yield f"unknown hypervisor {hypervisor!r}"
        return
    yield from types(f"{hypervisor} parameter", params, table)


def beparams(params: Mapping[str, object], defaults: Mapping[str, object]) -> Iterator[str]:
    """Check backend parameters, laid over defaults."""
    yield from types("backend parameter", params, BEPARAMS)
    filled = {**defaults, **params}
    least, most = filled.get("minmem"), filled.get("maxmem")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        yield f"minmem, {least}, is greater than maxmem, {most}"


def nicparams(params: Mapping[str, object]) -> Iterator[str]:
    """Check parameters of a network interface."""
    yield from types("NIC parameter", params, NICPARAMS)
    if "mode" in params and params["mode"] not in _NIC_MODES:
        yield f"unknown NIC mode {params['mode']!r}"


def ndparams(params: Mapping[str, object]) -> Iterator[str]:
    """Check node parameters."""
    yield from types("node parameter", params, NDPARAMS)


def diskparams(by_template: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """Check parameters of disks."""
    for template, params in by_template.items():
        table = DISKPARAMS.get(template)
        if table is None:
            yield f"unknown disk template {template!r}"
        else:
            yield from types(f"{template} parameter", params, table)


def cluster_params(cluster: Cluster) -> Iterator[str]:
    """Check all parameters and single values of the cluster."""
    for hypervisor, params in cluster.hvparams.items():
        yield from hvparams(hypervisor, params)
    for os_name, by_hypervisor in cluster.os_hvp.items():
        for hypervisor, params in by_hypervisor.items():
            for problem in hvparams(hypervisor, params):
                yield f"OS {os_name!r}: {problem}"
    for params in cluster.beparams.values():
        yield from beparams(params, {})
    for params in cluster.nicparams.values():
        yield from nicparams(params)
    yield from _complete("beparams", cluster.beparams, BEPARAMS)
    yield from _complete("nicparams", cluster.nicparams, NICPARAMS)
    yield from ndparams(cluster.ndparams)
    yield from diskparams(cluster.diskparams)
    yield from ipolicy(cluster.ipolicy, complete=True)
    yield from _numbers(cluster)


def _complete(
    what: str, groups: Mapping[str, Mapping[str, object]], table: ParamTable
) -> Iterator[str]:
    """Check that the cluster has a default for each parameter."""
    missing = sorted(set(table).difference(groups.get(DEFAULTS, ())))
    if missing:
        yield f"{what}: no default for {', '.join(missing)}"


def _numbers(cluster: Cluster) -> Iterator[str]:
    for name in ("candidate_pool_size", "max_running_jobs", "max_tracked_jobs"):
        value = getattr(cluster, name)
        if value < 1:
            yield f"{name} is {value}, must be at least 1"
    for name, collector in cluster.data_collectors.items():
        if collector.interval <= 0:
            yield f"data collector {name} has the interval {collector.interval}"
    longest = _NETMASK_MAX[cluster.primary_ip_family]
    if not 0 <= cluster.master_netmask <= longest:
        yield f"master_netmask is {cluster.master_netmask}, must be at most {longest}"
    yield from address("master_ip", cluster.master_ip)
    for uids in cluster.uid_pool:
        problem = problem_of(uids)
        if problem is not None:
            yield problem


def address(what: str, text: str) -> Iterator[str]:
    """Check that a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        yield f"{what} {text!r} is not an IP address"


def ipolicy(policy: Mapping[str, Any], *, complete: bool) -> Iterator[str]:
    """Check an instance policy; that of a group need not be ``complete``."""
    for problem in _policy(policy, complete=complete):
        yield f"instance policy: {problem}"


def _policy(policy: Mapping[str, Any], *, complete: bool) -> Iterator[str]:
    for key in sorted(set(policy) - _POLICY_KEYS):
        yield f"unknown key {key!r}"
    for key in IPOLICY_RATIOS:
        ratio = policy.get(key, 1)
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or ratio <= 0:
            yield f"{key} is {ratio!r}, must be a number above 0"
    yield from _templates(policy.get("disk-templates"), complete=complete)
    pairs, std = policy.get("minmax"), policy.get("std")
    if not isinstance(pairs, list):
        if complete or pairs is not None:
            yield "minmax is missing or no list"
        pairs = []
    for number, pair in enumerate(pairs):
        yield from _pair(number, pair)
    if not complete:
        if std is not None:
            yield "std can only be set for the cluster"
    elif not isinstance(std, Mapping):
        yield "std is missing or no object"
    else:
        yield from _std(pairs, std)


def _templates(value: object, *, complete: bool) -> Iterator[str]:
    if value is None and not complete:
        return
    if not isinstance(value, list) or not value:
        yield "disk-templates is missing, empty or no list"
        return
    unknown = sorted(str(name) for name in value if name not in set(DiskTemplate))
    if unknown:
        yield f"unknown disk template(s) {', '.join(unknown)}"


def _pair(number: int, pair: object) -> Iterator[str]:
    low, high = _bounds(pair)
    if low is None or high is None:
        yield f"minmax {number} must have min and max"
        return
    for name in ISPEC_PARAMS:
        least, most = low.get(name), high.get(name)
        if not isinstance(least, int) or not isinstance(most, int):
            yield f"{name} is missing or no number in minmax {number}"
        elif least > most:
            yield f"{name} has minimum {least}, maximum {most}"
        elif least < 0:
            yield f"{name} has the minimum {least}"


def _bounds(pair: object) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    if not isinstance(pair, Mapping):
        return None, None
    low, high = pair.get("min"), pair.get("max")
    return (
        low if isinstance(low, Mapping) else None,
        high if isinstance(high, Mapping) else None,
    )


def _std(pairs: list[Any], std: Mapping[str, Any]) -> Iterator[str]:
    """The usual instance must lie within one of the pairs."""
    wrong = [name for name in ISPEC_PARAMS if not isinstance(std.get(name), int)]
    for name in wrong:
        yield f"{name} is missing or no number in std"
    if not wrong and pairs and not any(_fits(pair, std) for pair in pairs):
        shown = ", ".join(f"{name}={std[name]}" for name in ISPEC_PARAMS)
        yield f"std ({shown}) does not lie between any min and max"


def _fits(pair: object, std: Mapping[str, int]) -> bool:
    low, high = _bounds(pair)
    if low is None or high is None:
        return False
    for name in ISPEC_PARAMS:
        least, most = low.get(name), high.get(name)
        if not isinstance(least, int) or not isinstance(most, int):
            return False
        if not least <= std[name] <= most:
            return False
    return True
