"""Steps about parameters: their types, their defaults, and instance policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ganeti.base.errors import TypeEnforcementError
from ganeti.config.upgrade.draft import Draft, Fields, count_of
from ganeti.objects import parameters
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.model import DEFAULTS
from ganeti.objects.nic import NicMode

_BOUNDS: Final = ("min", "max")


def bridges_are_links(draft: Draft) -> Iterator[str]:
    """Turn bridges, of the cluster and of NICs, into NIC parameters, which came with 2.1."""
    cluster = draft.cluster
    bridge = cluster.get("default_bridge")
    if bridge:
        params = cluster.setdefault("nicparams", {}).setdefault(DEFAULTS, {})
        params |= {"mode": str(NicMode.BRIDGED), "link": bridge}
        yield f"cluster: the default bridge {bridge} became the NIC parameter link"
    changed = 0
    for nic in draft.nics():
        bridge = nic.pop("bridge", None)
        if bridge:
            own = {"mode": str(NicMode.BRIDGED), "link": bridge}
            nic["nicparams"] = own | nic.get("nicparams", {})
            changed += 1
    if changed:
        yield f"{count_of(changed, 'NIC')}: the bridge became the parameter link"


def values_have_types(draft: Draft) -> Iterator[str]:
    """Convert parameters whose value is a text, or null, where another type belongs.

    A value that cannot be converted stays: it is told when the configuration is verified.
    """
    changed = sum(_convert(params, table) for params, table in _all_params(draft))
    if changed:
        yield f"{count_of(changed, 'parameter')} brought to the right type"


def _all_params(draft: Draft) -> Iterator[tuple[Fields, parameters.ParamTable]]:
    cluster = draft.cluster
    by_hypervisor = [cluster.get("hvparams", {}), *cluster.get("os_hvp", {}).values()]
    for groups in by_hypervisor:
        for hypervisor, params in groups.items():
            yield params, HVPARAMS.get(hypervisor, {})
    for params in cluster.get("beparams", {}).values():
        yield params, parameters.BEPARAMS
    for params in cluster.get("nicparams", {}).values():
        yield params, parameters.NICPARAMS
    yield cluster.get("ndparams", {}), parameters.NDPARAMS
    for item in (*draft.objects("nodes"), *draft.objects("nodegroups")):
        yield item.get("ndparams", {}), parameters.NDPARAMS
    for instance in draft.objects("instances"):
        yield instance.get("hvparams", {}), HVPARAMS.get(instance.get("hypervisor", ""), {})
        yield instance.get("beparams", {}), parameters.BEPARAMS
    for nic in draft.nics():
        yield nic.get("nicparams", {}), parameters.NICPARAMS


def _convert(params: Fields, table: parameters.ParamTable) -> int:
    changed = 0
    for name, value in list(params.items()):
        spec = table.get(name)
        if spec is None:
            continue
        try:
            converted = parameters.enforce_types({name: value}, {name: spec})[name]
        except TypeEnforcementError:
            if value is not None:
                continue
            del params[name]  # null was "not set": the default below it applies
            changed += 1
            continue
        if converted != value or isinstance(converted, bool) != isinstance(value, bool):
            params[name] = converted
            changed += 1
    return changed


def hvparams_are_full(draft: Draft) -> Iterator[str]:
    """Give enabled hypervisors, and all disk templates, values for parameters that are new."""
    cluster = draft.cluster
    hvparams = cluster.setdefault("hvparams", {})
    for hypervisor in cluster.get("enabled_hypervisors", ()):
        table = HVPARAMS.get(hypervisor)
        if table is not None:
            yield from _fill(
                hvparams.setdefault(hypervisor, {}), parameters.stored_defaults(table), hypervisor
            )
    diskparams = cluster.setdefault("diskparams", {})
    for template, table in parameters.DISKPARAMS.items():
        defaults = parameters.stored_defaults(table)
        if "metavg" in defaults and cluster.get("volume_group_name"):
            defaults["metavg"] = cluster["volume_group_name"]
        yield from _fill(diskparams.setdefault(template, {}), defaults, f"{template} disk")


def groups_are_full(draft: Draft) -> Iterator[str]:
    """Fill the groups of parameters that 3.0 wants complete in the cluster."""
    cluster = draft.cluster
    for key, table, what in (
        ("beparams", parameters.BEPARAMS, "backend"),
        ("nicparams", parameters.NICPARAMS, "NIC"),
    ):
        params = cluster.setdefault(key, {}).setdefault(DEFAULTS, {})
        yield from _fill(params, parameters.defaults_of(table), what)
    yield from _fill(
        cluster.setdefault("ndparams", {}), parameters.defaults_of(parameters.NDPARAMS), "node"
    )
    policy = cluster.setdefault("ipolicy", {})
    missing = [name for name in parameters.IPOLICY_DEFAULTS if name not in policy]
    for name in missing:
        policy[name] = _copy(parameters.IPOLICY_DEFAULTS[name])
    if missing:
        yield f"cluster: instance policy got default values of {', '.join(missing)}"
    default_std = parameters.IPOLICY_DEFAULTS["std"]
    assert isinstance(default_std, Mapping)
    yield from _fill(policy["std"], default_std, "std specification")


def _fill(params: Fields, defaults: Mapping[str, object], what: str) -> Iterator[str]:
    missing = {name: value for name, value in defaults.items() if name not in params}
    params.update(missing)
    if missing:
        shown = ", ".join(f"{name}={value}" for name, value in missing.items())
        yield f"cluster: default values of {what} parameters added: {shown}"


def bounds_are_pairs(draft: Draft) -> Iterator[str]:
    """Turn ``min`` and ``max`` of instance policies into one pair of the list ``minmax``."""
    cluster_policy = draft.cluster.setdefault("ipolicy", {})
    default_pairs = parameters.IPOLICY_DEFAULTS["minmax"]
    assert isinstance(default_pairs, list)
    if _pair_bounds(cluster_policy, default_pairs[0]):
        yield "cluster: instance policy has pairs of bounds (minmax) in place of min and max"
    pairs = cluster_policy.get("minmax") or default_pairs
    for group in draft.objects("nodegroups"):
        if _pair_bounds(group.get("ipolicy", {}), pairs[0]):
            yield (
                f"node group {group.get('name')!r}: instance policy has pairs of bounds (minmax)"
                " in place of min and max"
            )


def _pair_bounds(policy: Fields, inherited: Mapping[str, Fields]) -> bool:
    """Return whether the policy was changed; bounds that are missing are inherited."""
    own: Fields = {}
    if isinstance(policy.get("minmax"), dict):
        own = policy.pop("minmax")
    elif "minmax" not in policy:
        own = {bound: policy.pop(bound) for bound in _BOUNDS if bound in policy}
    if own:
        policy["minmax"] = [own]
    changed = bool(own)
    for pair in policy.get("minmax") or ():
        for bound in _BOUNDS:
            specs = pair.get(bound) or {}
            full = {
                name: specs.get(name, inherited[bound][name])
                for name in parameters.ISPEC_PARAMS
                if name in specs or name in inherited[bound]
            }
            merged = {**specs, **full}
            if merged != pair.get(bound):
                pair[bound] = merged
                changed = True
    return changed


def _copy(value: object) -> object:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
