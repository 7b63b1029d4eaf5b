"""Changes of instances and their disks.

Each function works on a transaction, which is checked afterwards; keys are names or UUIDs.

Source: wconfd.json, "methods".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ganeti.base.errors import ConfigurationError, ErrorCode, OpPrereqError
from ganeti.config.index import DISKS, INSTANCES, NODES, By
from ganeti.config.transaction import SerialAndTime, Transaction, uuid_of_new
from ganeti.objects.model import Instance

Wire = Mapping[str, object]


def _instance(change: Transaction, key: str) -> tuple[str, Instance]:
    _, uuid = change.existing(INSTANCES, key)
    instance = change.instance(uuid)
    assert instance is not None
    return uuid, instance


def create_instance(change: Transaction, wire: Wire, disks: Sequence[Wire]) -> SerialAndTime:
    """Add an instance with its disks."""
    uuid = uuid_of_new(INSTANCES, wire)
    for disk in disks:
        create_disk(change, disk)
    return change.create((INSTANCES, uuid), wire)


def create_disk(change: Transaction, wire: Wire) -> SerialAndTime:
    """Add a disk that is not attached to anything yet."""
    return change.create((DISKS, uuid_of_new(DISKS, wire)), wire)


def replace_instance(change: Transaction, wire: Wire, *, may_exist: bool) -> SerialAndTime:
    """Add an instance, or put a whole new one in the place of one with the same UUID.

    Raises:
        ConfigurationError: it exists and must not.
    """
    uuid = uuid_of_new(INSTANCES, wire)
    before = change.instance(uuid)
    if before is None:
        return create_instance(change, wire, ())
    if not may_exist:
        raise ConfigurationError(f"Cannot add '{before.name}': UUID {uuid} already in use")
    return change.replace((INSTANCES, uuid), wire)


def put_instance(change: Transaction, key: str, wire: Wire, disks: Sequence[Wire]) -> SerialAndTime:
    """Make an instance and its disks another, whole one; its UUID and its birth stay.

    Disks that it had and has no more are forgotten.

    Raises:
        OpPrereqError: there is no such instance (unknown_entity).
    """
    uuid, before = _instance(change, key)
    for disk in disks:
        _put_disk(change, disk)
    change.replace((INSTANCES, uuid), wire)
    for old in before.disks:
        if not change.find(By.DISK_OWNER, old):
            delete_disk(change, old)
    return change.serial_of((INSTANCES, uuid))


def _put_disk(change: Transaction, wire: Wire, *, may_exist: bool = True) -> str:
    """Add a disk, or put a whole new one in the place of one with the same UUID; returns that."""
    uuid = uuid_of_new(DISKS, wire)
    if change.disk(uuid) is None:
        create_disk(change, wire)
    elif not may_exist:
        raise ConfigurationError(f"Cannot add disk: UUID {uuid} already in use")
    else:
        change.replace((DISKS, uuid), wire)
    return uuid


def delete_instance(change: Transaction, key: str) -> SerialAndTime:
    """Remove an instance with the disks attached to it."""
    uuid, before = _instance(change, key)
    serial = change.delete((INSTANCES, uuid))
    for disk in before.disks:
        if change.stored((DISKS, disk)) is not None and not change.find(By.DISK_OWNER, disk):
            delete_disk(change, disk)
    return serial


def delete_disk(change: Transaction, key: str) -> SerialAndTime:
    """Remove a disk that is not attached to anything."""
    return change.delete(change.existing(DISKS, key))


def attach_disk(
    change: Transaction, instance_key: str, disk_key: str, index: int | None
) -> SerialAndTime:
    """Attach a disk to an instance, at the end or at an index; the others move up.

    Raises:
        OpPrereqError: no such index, or the disk belongs to another instance.
    """
    uuid, instance = _instance(change, instance_key)
    _, disk = change.existing(DISKS, disk_key)
    if disk in instance.disks:
        return change.serial_of((INSTANCES, uuid))
    owners = change.find(By.DISK_OWNER, disk)
    if owners:
        raise OpPrereqError(
            f"disk {disk} is attached to instance {change.name_of(owners[0])} already",
            ErrorCode.STATE,
        )
    place = len(instance.disks) if index is None or index == -1 else index
    if not 0 <= place <= len(instance.disks):
        raise OpPrereqError(
            f"instance {instance.name} has {len(instance.disks)} disks, there is no place {index}"
        )
    disks = [*instance.disks[:place], disk, *instance.disks[place:]]
    _set_disks(change, uuid, disks)
    return change.serial_of((INSTANCES, uuid))


def detach_disk(change: Transaction, instance_key: str, disk_key: str) -> SerialAndTime:
    """Detach a disk from an instance; the disk itself stays.

    Raises:
        OpPrereqError: the disk is not attached to the instance.
    """
    uuid, instance = _instance(change, instance_key)
    _, disk = change.existing(DISKS, disk_key)
    if disk not in instance.disks:
        raise OpPrereqError(
            f"disk {disk} is not attached to instance {instance.name}", ErrorCode.NOENT
        )
    _set_disks(change, uuid, [other for other in instance.disks if other != disk])
    return change.serial_of((INSTANCES, uuid))


def _set_disks(change: Transaction, uuid: str, disks: Sequence[str]) -> None:
    """Set the list of disks, and their names inside the instance by their places."""
    change.modify((INSTANCES, uuid), {"disks": list(disks)})
    for index, disk in enumerate(disks):
        if change.stored((DISKS, disk)) is not None:
            change.modify((DISKS, disk), {"iv_name": f"disk/{index}"})


def add_disk(
    change: Transaction, instance_key: str, wire: Wire, index: int | None, *, may_exist: bool = True
) -> SerialAndTime:
    """Add a disk and attach it.

    Args:
        may_exist: the disk may be there already and is replaced.
    """
    uuid = _put_disk(change, wire, may_exist=may_exist)
    return attach_disk(change, instance_key, uuid, index)


def remove_disk(change: Transaction, instance_key: str, disk_key: str) -> SerialAndTime:
    """Detach a disk and remove it."""
    _, disk = change.existing(DISKS, disk_key)
    serial = detach_disk(change, instance_key, disk)
    delete_disk(change, disk)
    return serial


def set_status(
    change: Transaction,
    key: str,
    admin_state: str | None,
    disks_active: bool | None,
    admin_state_source: str | None,
) -> str:
    """Set the wanted state of an instance; None leaves a field as it is.  Returns its UUID."""
    uuid, _ = _instance(change, key)
    wanted = {
        "admin_state": admin_state,
        "disks_active": disks_active,
        "admin_state_source": admin_state_source,
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    change.modify((INSTANCES, uuid), given)
    return uuid


def set_primary_node(change: Transaction, key: str, node_key: str) -> None:
    """Give an instance another primary node."""
    uuid, _ = _instance(change, key)
    _, node = change.existing(NODES, node_key)
    change.modify((INSTANCES, uuid), {"primary_node": node})
