"""Changes of an instance policy as given in opcodes; plain decisions over plain values.

Source: config.json, "IPolicy"; constants.json, "ipolicy".
"""

from __future__ import annotations

from collections.abc import Mapping

from ganeti.base.errors import OpPrereqError
from ganeti.objects.instance_policy import (
    MINMAX,
    POLICY_KEYS,
    STD,
    TEMPLATES,
    policy_problems,
    std_problem,
)
from ganeti.objects.model import Cluster
from ganeti.objects.parameters import VALUE_DEFAULT


def _wrong(text: str) -> OpPrereqError:
    return OpPrereqError(f"instance policy: {text}")


def check_ipolicy_changes(given: Mapping[str, object], *, of_cluster: bool) -> None:
    """Check the shape of a policy, or of a part of one.

    Raises:
        OpPrereqError: an unknown key, a wrong type, or limits that contradict each other.
    """
    back = [key for key, value in given.items() if value == VALUE_DEFAULT or value is None]
    if of_cluster and back:
        raise _wrong(f"{back[0]!r} of the cluster has no default to go back to")
    changed = {
        key: value for key, value in given.items() if key not in back or key not in POLICY_KEYS
    }
    if changed.get(MINMAX) == []:
        raise _wrong(f"{MINMAX} must be a list of pairs of limits, not empty")
    for problem in policy_problems(changed, of_cluster=of_cluster, partial=True):
        raise _wrong(problem)


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
    problem = std_problem(merged) if cluster is None else None
    if problem:
        raise _wrong(problem)
    return merged
