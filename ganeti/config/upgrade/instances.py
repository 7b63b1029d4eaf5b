"""Steps about instances, and their disks: from parts of an instance to objects of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ganeti.base.errors import ConfigurationError
from ganeti.config.upgrade.draft import Draft, Fields, count_of, own_disks, with_children
from ganeti.objects.disk_templates import DiskTemplate, traits_of
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.model import AdminState, AdminStateSource
from ganeti.objects.parameters import cluster_wide_only


def states_are_words(draft: Draft) -> Iterator[str]:
    """Turn ``admin_up``, which was true or false, into the state that came with 2.6."""
    changed = 0
    for instance in draft.objects("instances"):
        is_up = instance.pop("admin_up", None)
        if is_up is not None and "admin_state" not in instance:
            instance["admin_state"] = str(AdminState.UP if is_up else AdminState.DOWN)
            changed += 1
    if changed:
        yield f"{count_of(changed, 'instance')}: admin_up became admin_state"


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
    """Note whether disks are in use, and by whose decision an instance has its state."""
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


_RENAMED_TYPES: Final = {"lvm": DiskTemplate.PLAIN, "drbd8": DiskTemplate.DRBD}


def types_are_templates(draft: Draft) -> Iterator[str]:
    """Name the type of a disk by its template; up to 2.9 there were other words for it."""
    changed = 0
    for disk in draft.devices():
        if disk.get("dev_type") in _RENAMED_TYPES:
            disk["dev_type"] = str(_RENAMED_TYPES[disk["dev_type"]])
            changed += 1
    if changed:
        yield f"{count_of(changed, 'device')}: type lvm is now called plain, drbd8 drbd"
    yield from _tell_files_apart(draft)


def _tell_files_apart(draft: Draft) -> Iterator[str]:
    """Shared files had the type of local ones, only the instance's template told them apart."""
    table = draft.table("disks")
    for instance in draft.objects("instances"):
        template = instance.get("disk_template", "")
        if not traits_of(template).is_file or template == DiskTemplate.FILE:
            continue
        disks = own_disks(instance)
        disks += [table[uuid] for uuid in instance.get("disks", ()) if _is_key(uuid, table)]
        files = [disk for disk in disks if disk.get("dev_type") == DiskTemplate.FILE]
        for disk in files:
            disk["dev_type"] = template
        if files:
            yield (
                f"instance {instance.get('name')!r}: {count_of(len(files), 'disk')} now of type"
                f" {template}, like the instance"
            )


_TIMES: Final = ("ctime", "mtime")


def disks_have_a_table(draft: Draft) -> Iterator[str]:
    """Move disks out of the instances, as old as these, which then name them by UUID.

    Raises:
        ConfigurationError: two disks have the same UUID.
    """
    table = draft.table("disks")
    moved = 0
    for instance in draft.objects("instances"):
        uuids: list[str] = []
        for index, disk in enumerate(instance.get("disks", ())):
            if not isinstance(disk, dict):
                uuids.append(disk)
                continue
            uuid = disk["uuid"]
            if uuid in table:
                raise ConfigurationError(
                    f"disk {index} of instance {instance.get('name')!r} has the UUID {uuid},"
                    " which another disk has as well"
                )
            disk.setdefault("iv_name", f"disk/{index}")
            times = {name: instance[name] for name in _TIMES if name in instance}
            disk |= times | disk
            table[uuid] = disk
            uuids.append(uuid)
            moved += 1
        instance["disks"] = uuids
    if moved:
        yield f"{count_of(moved, 'disk')} moved from the instances to the table of disks"


def disks_know_their_nodes(draft: Draft) -> Iterator[str]:
    """Note which nodes hold a disk, and fill the fields that every device must have."""
    table = draft.table("disks")
    changed = 0
    for instance in draft.objects("instances"):
        for uuid in instance.get("disks", ()):
            disk = table.get(uuid)
            if disk is not None and "nodes" not in disk:
                disk["nodes"] = _nodes_of(disk, instance.get("primary_node", ""))
                changed += 1
    if changed:
        yield f"{count_of(changed, 'disk')}: the nodes that hold it were noted"
    for disk in draft.objects("disks"):
        for device in with_children(disk):
            device.setdefault("serial_no", 1)
            device.setdefault("nodes", list(disk.get("nodes", ())))


def _nodes_of(disk: Fields, primary_node: str) -> list[str]:
    template = disk.get("dev_type", "")
    if template == DiskTemplate.DRBD:
        return [node for node in disk.get("logical_id", [])[:2] if isinstance(node, str)]
    if traits_of(template).shared or not primary_node:
        return []  # all nodes can reach it
    return [primary_node]


def _is_key(uuid: object, table: dict[str, Fields]) -> bool:
    return isinstance(uuid, str) and uuid in table
