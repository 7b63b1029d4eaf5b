"""Checks of parameters as given in opcodes; plain decisions over plain values.

These are the parameters of nodes and disk templates, the states of hypervisors and storage, and
instance policies.  Those of instances are in `ganeti.logical_units.instance.parameters`.

Source: config.json, "IPolicy"; constants.json, "ipolicy".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ganeti.base.errors import OpPrereqError, TypeEnforcementError, refusing
from ganeti.objects import instance_policy
from ganeti.objects import parameters as tables
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.hypervisors import Hypervisor
from ganeti.objects.instance_policy import MINMAX, POLICY_KEYS, STD, TEMPLATES
from ganeti.objects.model import Cluster, Node, NodeGroup
from ganeti.objects.parameters import VALUE_DEFAULT, ParamTable, apply_changes
from ganeti.opcodes.group import GroupSettings
from ganeti.opcodes.node import OpNodeAdd, OpNodeSetParams

Params = Mapping[str, object]


def enforced(params: Params, table: ParamTable, what: str) -> dict[str, object]:
    """Return parameters with their types enforced.

    Args:
        what: the name of the group of parameters, for errors.

    Raises:
        OpPrereqError: unknown, or of the wrong type.
    """
    with refusing(TypeEnforcementError):
        return tables.checked(params, table, what=what)


def check_ndparams(params: Params, *, of_node: bool = True) -> dict[str, object]:
    """Return node parameters with their types enforced.

    Args:
        of_node: they are for one node, not for a group or the cluster.

    Raises:
        OpPrereqError: unknown, of the wrong type, or not for a single node.
    """
    found = enforced(params, tables.NDPARAMS, "node parameter")
    reserved = sorted(tables.NDPARAMS_CLUSTER_AND_GROUP.intersection(found)) if of_node else []
    if reserved:
        raise OpPrereqError(
            f"the node parameter(s) {', '.join(reserved)} can only be set for a group or the"
            " cluster"
        )
    return found


def _changed_state(
    before: Mapping[str, Any], given: Params, names: Iterable[str], table: ParamTable, what: str
) -> dict[str, object]:
    """Lay parameters over those there are, for each name; a name that has none left is dropped."""
    found: dict[str, object] = dict(before)
    for name, params in given.items():
        if name not in names:
            raise OpPrereqError(f"{what}: {name!r} is unknown; known are: {', '.join(names)}")
        if not isinstance(params, Mapping):
            raise OpPrereqError(f"{what} of {name!r}: expected an object of parameters")
        changes = enforced(params, table, f"{what} of {name}")
        found[name] = apply_changes(before.get(name, {}), changes)
    return {name: params for name, params in found.items() if params}


def check_hv_state(
    given: Params, before: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, object]:
    """Return hypervisor states {hypervisor: parameters}, checked and laid over those before.

    Raises:
        OpPrereqError: an unknown hypervisor or parameter, or a wrong type.
    """
    known = list(map(str, Hypervisor))
    return _changed_state(before, given, known, tables.HV_STATE_PARAMS, "hypervisor state")


def check_disk_state(
    given: Params, before: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, object]:
    """Return disk states {storage: {name: parameters}}, checked and laid over those before.

    Raises:
        OpPrereqError: an unknown storage or parameter, or a wrong type.
    """
    found: dict[str, object] = dict(before)
    for storage, by_name in given.items():
        if storage != DiskTemplate.PLAIN:
            raise OpPrereqError(f"disk state: {storage!r} is unknown; known is: plain")
        if not isinstance(by_name, Mapping):
            raise OpPrereqError(f"disk state of {storage!r}: expected an object")
        found[storage] = _changed_state(
            before.get(storage, {}), by_name, by_name, tables.DISK_STATE_PARAMS, "disk state"
        )
    return {storage: by_name for storage, by_name in found.items() if by_name}


PARAMETERS: Final = ("ndparams", "diskparams", "hv_state", "disk_state")
"""Parameters of opcodes for the cluster, groups and nodes that are laid over those there are."""


def _field_of(name: str) -> str:
    """Return the field of objects that a parameter of opcodes sets."""
    return f"{name}_static" if name.endswith("_state") else name


def empty_fields(op: GroupSettings) -> set[str]:
    """Return the fields of a group for which an opcode gives nothing to change."""
    return {_field_of(name) for name in op.__struct_fields__ if not getattr(op, name)}


def changed_parameter(
    name: str, old: Cluster | NodeGroup | Node | None, given: Any
) -> dict[str, object]:
    """Return {field: new value} of the field that one of the `PARAMETERS` changes.

    Args:
        old: the object as it is; None if it is to be made.

    Raises:
        OpPrereqError: a parameter is unknown or wrong.
    """
    field = _field_of(name)
    before: Mapping[str, Any] = getattr(old, field, {})
    match name:
        case "ndparams":
            changes = check_ndparams(given, of_node=isinstance(old, Node))
            return {field: apply_changes(before, changes)}
        case "diskparams":
            after = {
                str(template): apply_changes(
                    before.get(template, {}),
                    enforced(params, tables.DISKPARAMS[template], f"{template} disk parameter"),
                )
                for template, params in given.items()
            }
            return {field: {**before, **after}}
        case "hv_state":
            return {field: check_hv_state(given, before)}
        case _:
            return {field: check_disk_state(given, before)}


def parameter_changes(
    op: GroupSettings | OpNodeAdd | OpNodeSetParams, old: NodeGroup | Node | None
) -> dict[str, object]:
    """Return the new values of all fields that the `PARAMETERS` of an opcode change."""
    changes: dict[str, object] = {}
    for name in PARAMETERS:
        given = getattr(op, name, None)
        if given is not None:
            changes |= changed_parameter(name, old, given)
    return changes


# Instance policies.


def _wrong_policy(text: str) -> OpPrereqError:
    return OpPrereqError(f"instance policy: {text}")


def check_ipolicy_changes(given: Params, *, of_cluster: bool) -> None:
    """Check the shape of a policy, or of a part of one.

    Raises:
        OpPrereqError: an unknown key, a wrong type, or limits that contradict each other.
    """
    back = [key for key, value in given.items() if value == VALUE_DEFAULT or value is None]
    if of_cluster and back:
        raise _wrong_policy(f"{back[0]!r} of the cluster has no default to go back to")
    changed = {
        key: value for key, value in given.items() if key not in back or key not in POLICY_KEYS
    }
    if changed.get(MINMAX) == []:
        raise _wrong_policy(f"{MINMAX} must be a list of pairs of limits, not empty")
    for problem in instance_policy.policy_problems(changed, of_cluster=of_cluster, partial=True):
        raise _wrong_policy(problem)


def templates_not_enabled(policy: Params, cluster: Cluster) -> list[str]:
    """Return the disk templates that a policy allows although the cluster has them disabled."""
    templates = policy.get(TEMPLATES)
    enabled = set(map(str, cluster.enabled_disk_templates))
    return sorted(set(map(str, templates)) - enabled) if isinstance(templates, list) else []


def check_templates_enabled(policy: Params, cluster: Cluster) -> None:
    """Refuse a policy that allows disk templates which the cluster has disabled.

    Raises:
        OpPrereqError: names the disk templates.
    """
    found = ", ".join(templates_not_enabled(policy, cluster))
    if found:
        raise _wrong_policy(f"the disk template(s) {found} are not enabled on this cluster")


def merge_ipolicy(cluster: Cluster | None, old: Params, given: Params) -> dict[str, object]:
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
    problem = instance_policy.std_problem(merged) if cluster is None else None
    if problem:
        raise _wrong_policy(problem)
    return merged
