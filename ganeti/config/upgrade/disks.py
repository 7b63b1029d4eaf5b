"""Steps about disks: from parts of an instance to objects of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ganeti.base.errors import ConfigurationError
from ganeti.config.upgrade.draft import Draft, Fields, count_of, own_disks, with_children
from ganeti.objects.disk_templates import DiskTemplate, traits_of

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


def disks_have_a_table(draft: Draft) -> Iterator[str]:
    """Move disks out of the instances; these then name them by UUID.

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
            table[uuid] = disk
            uuids.append(uuid)
            moved += 1
        instance["disks"] = uuids
    if moved:
        yield f"{count_of(moved, 'disk')} moved from the instances to the table of disks"


def disks_know_their_nodes(draft: Draft) -> Iterator[str]:
    """Note which nodes hold a disk, and fill what every device must have."""
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


def _nodes_of(disk: Fields, primary_node: str) -> list[str]:
    template = disk.get("dev_type", "")
    if template == DiskTemplate.DRBD:
        return [node for node in disk.get("logical_id", [])[:2] if isinstance(node, str)]
    if traits_of(template).shared or not primary_node:
        return []  # all nodes can reach it
    return [primary_node]


def _is_key(uuid: object, table: dict[str, Fields]) -> bool:
    return isinstance(uuid, str) and uuid in table
