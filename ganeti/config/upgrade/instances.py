"""Steps about instances: their memory, their state, and what is not theirs to set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ganeti.config.upgrade.draft import Draft, Fields, count_of
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.model import AdminState, AdminStateSource
from ganeti.objects.parameters import cluster_wide_only


def memory_has_bounds(draft: Draft) -> Iterator[str]:
    """Turn ``memory`` into ``minmem`` and ``maxmem``, of the cluster and of instances."""
    changed = _bound_memory(draft.cluster.get("beparams", {}).values())
    if changed:
        yield "cluster: parameter memory became minmem and maxmem"
    changed = _bound_memory(one.get("beparams", {}) for one in draft.objects("instances"))
    if changed:
        yield f"{count_of(changed, 'instance')}: parameter memory became minmem and maxmem"


def _bound_memory(groups: Iterable[Fields]) -> int:
    changed = 0
    for params in groups:
        if "memory" in params:
            memory = params.pop("memory")
            params.setdefault("minmem", memory)
            params.setdefault("maxmem", memory)
            changed += 1
    return changed


def states_are_told_apart(draft: Draft) -> Iterator[str]:
    """Note whether disks are in use, and who decided on the state of an instance."""
    active = source = 0
    for instance in draft.objects("instances"):
        if "disks_active" not in instance:
            instance["disks_active"] = instance.get("admin_state") == AdminState.UP
            active += 1
        if "admin_state_source" not in instance:
            instance["admin_state_source"] = str(AdminStateSource.ADMIN)
            source += 1
    if active:
        yield f"{count_of(active, 'instance')}: disks are active where the instance is up"
    if source:
        yield f"{count_of(source, 'instance')}: the state counts as set by the administrator"


def cluster_wide_values_are_gone(draft: Draft) -> Iterator[str]:
    """Remove instances' own values of parameters that only the cluster can set."""
    for instance in draft.objects("instances"):
        own = instance.get("hvparams") or {}
        names = cluster_wide_only(own, HVPARAMS.get(instance.get("hypervisor", ""), {}))
        for name in names:
            value = own.pop(name)
            yield (
                f"instance {instance.get('name')!r}: its own {name}={value} removed, only the"
                " cluster can set that"
            )
