"""Checks of node parameters as given in opcodes; plain decisions over plain values."""

from __future__ import annotations

from collections.abc import Mapping

from ganeti.base.errors import OpPrereqError, TypeEnforcementError
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.hypervisors import Hypervisor
from ganeti.objects.parameters import (
    DISK_STATE_PARAMS,
    HV_STATE_PARAMS,
    NDPARAMS,
    NDPARAMS_CLUSTER_AND_GROUP,
    ParamTable,
    checked,
)


def _enforced(params: Mapping[str, object], table: ParamTable, what: str) -> dict[str, object]:
    try:
        return checked(params, table, what=what)
    except TypeEnforcementError as err:
        raise OpPrereqError(err.message) from err


def check_ndparams(params: Mapping[str, object], *, of_node: bool = True) -> dict[str, object]:
    """Return node parameters with their types enforced.

    Args:
        of_node: they are for one node, not for a group or the cluster.

    Raises:
        OpPrereqError: unknown, of the wrong type, or not for a single node.
    """
    enforced = _enforced(params, NDPARAMS, "node parameter")
    reserved = sorted(NDPARAMS_CLUSTER_AND_GROUP.intersection(enforced)) if of_node else []
    if reserved:
        raise OpPrereqError(
            f"the node parameter(s) {', '.join(reserved)} can only be set for a group or the"
            " cluster"
        )
    return enforced


def _check_state(
    state: Mapping[str, object], names: frozenset[str], table: ParamTable, what: str
) -> dict[str, object]:
    checked: dict[str, object] = {}
    for name, params in state.items():
        if name not in names:
            raise OpPrereqError(f"{what}: {name!r} is unknown; known are: {', '.join(names)}")
        if not isinstance(params, Mapping):
            raise OpPrereqError(f"{what} of {name!r}: expected an object of parameters")
        checked[name] = _enforced(params, table, f"{what} of {name}")
    return checked


def check_hv_state(state: Mapping[str, object]) -> dict[str, object]:
    """Return hypervisor states {hypervisor: parameters} with their types enforced.

    Raises:
        OpPrereqError: an unknown hypervisor or parameter, or a wrong type.
    """
    names = frozenset(str(name) for name in Hypervisor)
    return _check_state(state, names, HV_STATE_PARAMS, "hypervisor state")


def check_disk_state(state: Mapping[str, object]) -> dict[str, object]:
    """Return disk states {storage: {name: parameters}} with their types enforced.

    Raises:
        OpPrereqError: an unknown storage or parameter, or a wrong type.
    """
    checked: dict[str, object] = {}
    for storage, by_name in state.items():
        if storage != DiskTemplate.PLAIN:
            raise OpPrereqError(f"disk state: {storage!r} is unknown; known is: plain")
        if not isinstance(by_name, Mapping):
            raise OpPrereqError(f"disk state of {storage!r}: expected an object")
        names = frozenset(str(name) for name in by_name)
        checked[storage] = _check_state(by_name, names, DISK_STATE_PARAMS, "disk state")
    return checked
