"""Changes of an instance policy as given in opcodes; plain decisions over plain values.

Source: config.json, "IPolicy"; constants.json, "ipolicy".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.parameters import IPOLICY_RATIOS, ISPEC_PARAMS, VALUE_DEFAULT

if TYPE_CHECKING:
    from ganeti.objects.cluster import Cluster

MINMAX: Final = "minmax"
STD: Final = "std"
TEMPLATES: Final = "disk-templates"
KEYS: Final = (TEMPLATES, MINMAX, *IPOLICY_RATIOS, STD)


def _wrong(text: str) -> OpPrereqError:
    return OpPrereqError(f"instance policy: {text}", ErrorCode.INVAL)


def check_ipolicy_changes(given: Mapping[str, object], *, of_cluster: bool) -> None:
    """Check the shape of a policy, or of a part of one.

    Raises:
        OpPrereqError: an unknown key, a wrong type, or limits that contradict each other.
    """
    for key, value in given.items():
        if key not in KEYS:
            raise _wrong(f"unknown key {key!r}; known are: {', '.join(KEYS)}")
        if value == VALUE_DEFAULT or value is None:
            if of_cluster:
                raise _wrong(f"{key!r} of the cluster has no default to go back to")
            continue
        if key == MINMAX:
            _check_minmax(value)
        elif key == STD:
            if not of_cluster:
                raise _wrong("'std' can only be set for the whole cluster")
            _check_spec("std", value, partial=True)
        elif key == TEMPLATES:
            _check_templates(value)
        elif isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise _wrong(f"{key!r} must be a number greater than 0, got {value!r}")


def _check_templates(value: object) -> None:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise _wrong(f"{TEMPLATES!r} must be a list of disk templates, not empty")
    unknown = [str(name) for name in value if name not in set(DiskTemplate)]
    if unknown:
        raise _wrong(f"unknown disk template(s) {', '.join(unknown)}")


def templates_not_enabled(policy: Mapping[str, object], cluster: Cluster) -> list[str]:
    """Return the disk templates that a policy allows although the cluster has them disabled."""
    templates = policy.get(TEMPLATES)
    enabled = set(map(str, cluster.enabled_disk_templates))
    return sorted(set(map(str, templates)) - enabled) if isinstance(templates, list) else []


def check_templates_enabled(policy: Mapping[str, object], cluster: Cluster) -> None:
    """Refuse a policy that allows what the cluster does not.

    Raises:
        OpPrereqError: names the disk templates.
    """
    found = templates_not_enabled(policy, cluster)
    if found:
        raise _wrong(f"the disk template(s) {', '.join(found)} are not enabled on this cluster")


def _check_minmax(value: object) -> None:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise _wrong(f"{MINMAX!r} must be a list of pairs of limits, not empty")
    for pair in value:
        if not isinstance(pair, Mapping) or set(pair) != {"min", "max"}:
            raise _wrong("each pair of limits must have exactly 'min' and 'max'")
        low = _check_spec("min", pair["min"], partial=False)
        high = _check_spec("max", pair["max"], partial=False)
        for name in ISPEC_PARAMS:
            if low[name] > high[name]:
                raise _wrong(f"{name}: min {low[name]} is greater than max {high[name]}")


def _check_spec(what: str, value: object, *, partial: bool) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise _wrong(f"{what!r} must be an object")
    unknown = sorted(set(value) - set(ISPEC_PARAMS))
    missing = [] if partial else sorted(set(ISPEC_PARAMS) - set(value))
    if unknown or missing:
        problem = f"unknown {', '.join(unknown)}" if unknown else f"missing {', '.join(missing)}"
        raise _wrong(f"{what!r}: {problem}")
    numbers = {}
    for name, number in value.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise _wrong(f"{what!r}: {name} must be an integer from 0, got {number!r}")
        numbers[name] = number
    return numbers


def merge_ipolicy(
    cluster: Cluster | None, old: Mapping[str, object], given: Mapping[str, object]
) -> dict[str, object]:
    """Lay changes over a policy; for a group "default" goes back to the cluster's.

    Only the cluster's standard specification must lie within its limits: a group may well be for
    larger or smaller instances than usual.

    Args:
        cluster: the cluster when the policy is a group's, None when it is the cluster's own.

    Raises:
        OpPrereqError: the standard specification would lie outside all limits.
    """
    merged = dict(old)
    for key, value in given.items():
        old_value = merged.get(key)
        if value == VALUE_DEFAULT or value is None:
            merged.pop(key, None)
        elif key == STD and isinstance(value, Mapping) and isinstance(old_value, Mapping):
            merged[key] = {**old_value, **value}
        else:
            merged[key] = value
    if cluster is None:
        _check_std(merged)
    return merged


def _check_std(policy: Mapping[str, object]) -> None:
    std, pairs = policy.get(STD), policy.get(MINMAX)
    if not isinstance(std, Mapping) or not isinstance(pairs, Sequence):
        return
    for pair in pairs:
        if not any(_outside(pair, name, value) for name, value in std.items()):
            return
    shown = ", ".join(f"{name}={value}" for name, value in std.items())
    raise _wrong(f"the standard specification ({shown}) lies outside all limits")


def _outside(pair: object, name: str, value: object) -> bool:
    if not isinstance(pair, Mapping) or not isinstance(value, int):
        return True
    low, high = pair["min"].get(name, value), pair["max"].get(name, value)
    return not low <= value <= high
