"""Steps that give things UUIDs, and find them by UUID where they used to be found by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ganeti.base.errors import ConfigurationError
from ganeti.config.upgrade.draft import Draft, Fields, count_of

_UUID: Final = re.compile(r"[a-f0-9]{8}(-[a-f0-9]{4}){3}-[a-f0-9]{12}", re.IGNORECASE)
_FIRST_GROUP: Final = "default"
_KEYED_BY_UUID: Final = {
    "nodegroups": "node group",
    "networks": "network",
    "nodes": "node",
    "instances": "instance",
}


def parts_have_uuids(draft: Draft) -> Iterator[str]:
    """Give NICs and disks the UUIDs that they did not have before 2.8."""
    for uuid, disk in draft.table("disks").items():
        disk.setdefault("uuid", uuid)
    yield from _give_uuids(draft, draft.nics(), "NIC")
    yield from _give_uuids(draft, draft.devices(), "disk")
    if not draft.cluster.get("uuid"):
        draft.cluster["uuid"] = draft.new_uuid()
        yield f"the cluster got the UUID {draft.cluster['uuid']}"


def _give_uuids(draft: Draft, parts: Iterable[Fields], what: str) -> Iterator[str]:
    without = [part for part in parts if not part.get("uuid")]
    for part in without:
        part["uuid"] = draft.new_uuid()
    if without:
        yield f"{count_of(len(without), what)} got a UUID"


def nodes_have_a_group(draft: Draft) -> Iterator[str]:
    """Put nodes without a node group, which came with 2.4, into the first one."""
    without = [node for node in draft.objects("nodes") if not node.get("group")]
    if not without:
        return
    groups = draft.table("nodegroups")
    if not groups:
        uuid = draft.new_uuid()
        groups[uuid] = {"name": _FIRST_GROUP, "uuid": uuid}
        yield f"a node group {_FIRST_GROUP!r} was added"
    key, first = next(iter(groups.items()))
    for node in without:
        node["group"] = first.get("uuid") or key
    yield f"{count_of(len(without), 'node')} put into the node group {first.get('name')!r}"


def networks_by_uuid(draft: Draft) -> Iterator[str]:
    """Let NICs and node groups name networks by UUID; 2.7 had names there."""
    uuids = _uuids_by_name(draft, "networks")
    named = [nic for nic in draft.nics() if nic.get("network") in uuids]
    for nic in named:
        nic["network"] = uuids[nic["network"]]
    if named:
        yield f"{count_of(len(named), 'NIC')} now found in a network by its UUID, not its name"
    for group in draft.objects("nodegroups"):
        networks = group.get("networks", {})
        if any(name in uuids for name in networks):
            group["networks"] = {uuids.get(name, name): own for name, own in networks.items()}
            yield f"node group {group.get('name')!r}: networks are named by UUID"


def tables_by_uuid(draft: Draft) -> Iterator[str]:
    """Key every table by UUID; nodes and instances were keyed by name before 2.9.

    Raises:
        ConfigurationError: two objects of a table have the same UUID.
    """
    for name, what in _KEYED_BY_UUID.items():
        table = draft.table(name)
        keyed: dict[str, Fields] = {}
        for key, item in table.items():
            if not _UUID.fullmatch(key):
                item.setdefault("name", key)
            if not item.get("uuid"):
                item["uuid"] = key if _UUID.fullmatch(key) else draft.new_uuid()
            if item["uuid"] in keyed:
                raise ConfigurationError(
                    f"the {what}s {keyed[item['uuid']].get('name')!r} and {item.get('name')!r}"
                    f" have the same UUID, {item['uuid']}"
                )
            keyed[item["uuid"]] = item
        changed = sum(1 for key in keyed if key not in table)
        if changed:
            draft.config[name] = keyed
            yield f"{count_of(changed, what)} now kept by UUID, not by name"


def nodes_by_uuid(draft: Draft) -> Iterator[str]:
    """Name nodes by UUID wherever something refers to one; names stood there before 2.9."""
    uuids = _uuids_by_name(draft, "nodes")
    cluster = draft.cluster
    if cluster.get("master_node") in uuids:
        cluster["master_node"] = uuids[cluster["master_node"]]
        yield "the master node is named by its UUID"
    instances = [one for one in draft.objects("instances") if one.get("primary_node") in uuids]
    for instance in instances:
        instance["primary_node"] = uuids[instance["primary_node"]]
    if instances:
        yield f"the primary node of {count_of(len(instances), 'instance')} is named by its UUID"
    changed = sum(1 for disk in draft.devices() if _rename_drbd_nodes(disk, uuids))
    if changed:
        yield f"{count_of(changed, 'DRBD disk')}: both nodes are named by their UUIDs"


def _rename_drbd_nodes(disk: Fields, uuids: Mapping[str, str]) -> bool:
    logical_id = disk.get("logical_id", [])
    if disk.get("dev_type") not in ("drbd", "drbd8") or len(logical_id) < 2:
        return False
    renamed = [uuids.get(name, name) for name in logical_id[:2] if isinstance(name, str)]
    if len(renamed) != 2 or renamed == logical_id[:2]:
        return False
    logical_id[:2] = renamed
    return True


def _uuids_by_name(draft: Draft, table: str) -> dict[str, str]:
    """Return {name: UUID}; a name that is a UUID of the table itself is left out."""
    objects = draft.objects(table)
    known = {item.get("uuid") for item in objects}
    return {
        item["name"]: item["uuid"]
        for item in objects
        if item.get("name") and item.get("uuid") and item["name"] not in known
    }
