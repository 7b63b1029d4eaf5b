"""Checks of instance parameters as given in opcodes, and of the policy of a group.

Source: config.json, "IPolicy" and "ISpec"; constants.json, "ipolicy".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from ganeti.base.errors import OpPrereqError, TypeEnforcementError, refuse, refusing, wrong_state
from ganeti.logical_units.context import JobContext
from ganeti.objects.fill import BeParams, fill_beparams, fill_ipolicy
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.instance_policy import InstanceSpec, violations
from ganeti.objects.model import Cluster, Disk, Instance, NodeGroup
from ganeti.objects.parameters import (
    BEPARAMS,
    VALUE_DEFAULT,
    VALUE_NONE,
    checked,
    cluster_wide_only,
    memory_problem,
)

DEVICE_NAME_LENGTH_MAX: Final = 128  # as for tags
_MEMORY_COMPAT: Final = "memory"  # older name for both limits of the memory
_TOPOLOGY: Final = ("cpu_sockets", "cpu_cores", "cpu_threads")
_MASK_SEPARATOR: Final = ":"  # constants.json, CPU_PINNING_SEP


def check_hvparams(
    hypervisor: str, given: Mapping[str, object], *, of_cluster: bool = False
) -> dict[str, object]:
    """Return hypervisor parameters with their types enforced, within their limits.

    Raises:
        OpPrereqError: unknown, wrong, or (unless ``of_cluster``) only to be set for the cluster.
    """
    table = HVPARAMS.get(hypervisor)
    if table is None:
        raise OpPrereqError(f"unknown hypervisor {hypervisor!r}; known are: {', '.join(HVPARAMS)}")
    with refusing(TypeEnforcementError):
        params = checked(given, table, what=f"{hypervisor} hypervisor parameter")
    reserved = [] if of_cluster else cluster_wide_only(params, table)
    if reserved:
        raise OpPrereqError(
            f"the hypervisor parameter(s) {', '.join(reserved)} can only be set for the whole"
            f" cluster: gnt-cluster modify -H {hypervisor}:{reserved[0]}=..."
        )
    return params


def check_beparams(given: Mapping[str, object]) -> dict[str, object]:
    """Return backend parameters with their types enforced; ``memory`` overrides both limits.

    Raises:
        OpPrereqError: unknown, of the wrong type, or contradicting itself.
    """
    params = dict(given)
    if _MEMORY_COMPAT in params:
        params["minmem"] = params["maxmem"] = params.pop(_MEMORY_COMPAT)
    with refusing(TypeEnforcementError):
        return checked(params, BEPARAMS, what="backend parameter")


def without_defaults(params: Mapping[str, object]) -> dict[str, object]:
    """Drop parameters whose value says "default": they are not stored."""
    return {name: value for name, value in params.items() if value != VALUE_DEFAULT}


def check_filled_beparams(filled: BeParams) -> None:
    """Refuse backend parameters that make no sense together.

    Raises:
        OpPrereqError: which, and why.
    """
    refuse(memory_problem(filled))


def check_processors(hvparams: Mapping[str, object], vcpus: int) -> None:
    """Refuse a mask for other virtual processors than there are, and sockets for fewer of them.

    Raises:
        OpPrereqError: saying how many.
    """
    topology = [hvparams.get(name) for name in _TOPOLOGY]
    counts = [count for count in topology if isinstance(count, int) and count]
    if len(counts) == len(_TOPOLOGY) and prod(counts) < vcpus:
        raise OpPrereqError(
            f"hypervisor parameters {', '.join(_TOPOLOGY)}: they make {prod(counts)} virtual"
            f" processors, the instance has {vcpus}; set one of them to 0 to have it computed"
        )
    mask = str(hvparams.get("cpu_mask") or "")
    count = mask.count(_MASK_SEPARATOR) + 1
    if count not in (1, vcpus):
        raise OpPrereqError(
            f"hypervisor parameter cpu_mask: {mask!r} is for {count} virtual processors, the"
            f" instance has {vcpus}; give one entry for all, or one for each"
        )


def device_name(what: str, name: object) -> str | None:
    """Return the name of a disk or network interface; ``none`` and an empty one mean without.

    Raises:
        OpPrereqError: it is too long, or cannot be printed.
    """
    if name in (None, "", VALUE_NONE):
        return None
    text = str(name)
    if len(text) > DEVICE_NAME_LENGTH_MAX:
        raise OpPrereqError(
            f"{what}: the name {text[:20]!r}... is longer than {DEVICE_NAME_LENGTH_MAX} characters"
        )
    if not text.isprintable():
        raise OpPrereqError(f"{what}: the name {text!r} has characters that cannot be printed")
    return text


def check_enabled(kind: str, name: str, enabled: Sequence[str], option: str) -> None:
    """Refuse a hypervisor that is not enabled in the cluster.

    Raises:
        OpPrereqError: it is not enabled; says how it can be.
    """
    if name not in enabled:
        raise wrong_state(
            f"{kind} {str(name)!r} is not enabled on this cluster; enabled are:"
            f" {', '.join(enabled)} (see 'gnt-cluster modify {option}')"
        )


def check_hypervisor_enabled(cluster: Cluster, hypervisor: str) -> None:
    """Refuse a hypervisor that the cluster has not enabled."""
    enabled = [str(name) for name in cluster.enabled_hypervisors]
    check_enabled("hypervisor", hypervisor, enabled, "--enabled-hypervisors")


def spec_of(cluster: Cluster, instance: Instance, disks: Sequence[Disk]) -> InstanceSpec:
    """Return the values that an instance policy limits."""
    beparams = fill_beparams(cluster, instance)
    return InstanceSpec(
        memory_mib=beparams["maxmem"],
        vcpus=beparams["vcpus"],
        nics=len(instance.nics),
        spindles=beparams["spindle_use"],
        disk_sizes_mib=tuple(disk.size for disk in disks),
        templates=tuple(dict.fromkeys(disk.dev_type for disk in disks)) or ("diskless",),
    )


def check_policy(
    context: JobContext,
    cluster: Cluster,
    group: NodeGroup,
    instance: Instance,
    disks: Sequence[Disk],
    *,
    ignore: bool,
) -> None:
    """Refuse an instance that does not fit a group's policy, or tell only that it does not.

    Raises:
        OpPrereqError: it does not fit, and that is not to be ignored (wrong_input).
    """
    found = violations(fill_ipolicy(cluster, group), spec_of(cluster, instance, disks))
    if not found:
        return
    text = (
        f"instance {instance.name!r} violates the instance policy of node group {group.name!r}:"
        f" {'; '.join(found)}"
    )
    if not ignore:
        raise OpPrereqError(f"{text} (use --ignore-ipolicy to allow it)")
    context.warn(f"{text}; ignoring")
