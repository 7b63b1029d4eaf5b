"""The steps from a minor as it stands to the device of a disk, or the reason to leave it alone.

A minor is ours when it has our local devices, or, without any, our two addresses.  One of ours that
is configured by half is completed.  A minor that has neither disk nor connection and is not open is
free: it was shut down in good order.  Everything else is a stranger's, and nothing is done to it.

Source: design 2.0, "DRBD minor allocation" and "Caveats"; DRBD User's Guide 8.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from ganeti.base.errors import BlockDeviceError
from ganeti.storage.drbd.options import TWO_PRIMARIES, differences
from ganeti.storage.drbd.show import Minor, Resource
from ganeti.storage.drbd.status import Device, Status


@dataclass(frozen=True, slots=True)
class Wanted:
    """The device of a disk on this node.

    Attributes:
        size_mib: of a new disk; the metadata of others know it.
        data: path of the local half, whose metadata is apart in ``meta``.
        has_half: both are there; else the device works without, by the copy of the other node.
    """

    minor: int
    data: str
    meta: str
    local: str
    remote: str
    size_mib: int = 0
    disk_options: Mapping[str, str] = field(default_factory=dict)
    net_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    has_half: bool = True

    @property
    def resource(self) -> str:
        """The name of its resource."""
        return f"resource{self.minor}"


@dataclass(frozen=True, slots=True)
class Found:
    """A minor as it stands; all None where it does not exist.

    Attributes:
        named: the resource that has the name of the wanted one, with any devices.
    """

    resource: Resource | None = None
    volume: Minor | None = None
    device: Device | None = None
    named: Resource | None = None

    def __str__(self) -> str:
        """Tell it in a message."""
        return f"{self.resource or 'no resource'}; {self.device or 'not in use'}"


def find(minor: int, resources: Sequence[Resource], status: Status) -> Found:
    """Return a minor among all that a look at the node found."""
    device = status.devices.get(minor)
    named = next((each for each in resources if each.name == f"resource{minor}"), None)
    for resource in resources:
        for volume in resource.volumes.values():
            if volume.minor == minor:
                return Found(resource, volume, device, named)
    return Found(device=device, named=named)


class Owner(Enum):
    """Whose a minor is."""

    NOBODY = auto()  # it does not exist, or is not used any more
    OURS = auto()
    STRANGER = auto()


def owner_of(wanted: Wanted, found: Found) -> Owner:
    """Tell whose a minor is."""
    resource, volume, device = found.resource, found.volume, found.device
    if resource is None or volume is None:
        return Owner.NOBODY if device is None or not device.is_configured else Owner.STRANGER
    is_primary = device is not None and device.is_primary
    is_single = list(resource.volumes) == [0]
    is_empty = is_single and not volume.data and not resource.local
    if is_empty and not is_primary:
        return Owner.NOBODY
    if resource.name != wanted.resource or not is_single:
        return Owner.STRANGER
    if is_empty:  # it lost first its disk, then its connection
        return Owner.OURS
    if volume.data:
        has_ours = (volume.data, volume.meta) == (wanted.data, wanted.meta)
        return Owner.OURS if has_ours else Owner.STRANGER
    has_ours = (resource.local, resource.remote) == (wanted.local, wanted.remote)
    return Owner.OURS if has_ours else Owner.STRANGER


def in_use(wanted: Wanted, found: Found) -> BlockDeviceError:
    """Return the error that a minor is a stranger's, with the command for people."""
    return BlockDeviceError(
        f"DRBD minor {wanted.minor} is in use by another: {found}; nothing was done to it;"
        f" if nobody needs it, type: drbdsetup down"
        f" {found.resource.name if found.resource else wanted.resource}"
    )


class Step(Enum):
    """One command."""

    DOWN = auto()
    NEW_RESOURCE = auto()
    NEW_MINOR = auto()
    ATTACH = auto()
    DISK_OPTIONS = auto()
    DISCONNECT = auto()
    CONNECT = auto()
    NET_OPTIONS = auto()


def plan(wanted: Wanted, found: Found) -> list[Step]:
    """Return the steps that make the device what is wanted; none where it is that already.

    Raises:
        BlockDeviceError: the minor is a stranger's, or holds the only good data of another pair.
    """
    match owner_of(wanted, found):
        case Owner.STRANGER:
            raise in_use(wanted, found)
        case Owner.NOBODY:
            return [*_clean(wanted, found), *_half(wanted, None), *_link(wanted, None)]
        case Owner.OURS:
            return [*_half(wanted, found), *_link(wanted, found)]


def _clean(wanted: Wanted, found: Found) -> list[Step]:
    """Make an empty device of our name, from whatever unused one is there."""
    if found.resource is not None and found.resource.name == wanted.resource:
        return []
    if found.named is not None and (found.named.volumes or found.named.local):
        raise BlockDeviceError(
            f"the name {wanted.resource} of DRBD minor {wanted.minor} is in use by another:"
            f" {found.named}; nothing was done to it"
        )
    down = [Step.DOWN] if found.resource is not None else []
    return [*down, Step.NEW_RESOURCE, Step.NEW_MINOR]


def _half(wanted: Wanted, found: Found | None) -> list[Step]:
    """Return the steps for the local half."""
    if not wanted.has_half:
        return []
    if found is None or found.volume is None or not found.volume.data:
        return [Step.ATTACH]
    differ = differences(wanted.disk_options, found.volume.options)
    return [Step.DISK_OPTIONS] if differ else []


def _link(wanted: Wanted, found: Found | None) -> list[Step]:
    """Return the steps for the connection."""
    if found is None or found.resource is None or not found.resource.local:
        return [Step.CONNECT]
    if (found.resource.local, found.resource.remote) != (wanted.local, wanted.remote):
        if found.device is not None and not found.device.is_up_to_date:
            raise BlockDeviceError(
                f"DRBD minor {wanted.minor} is ours, but its data comes from another node:"
                f" {found}; it stays so until the data is up to date"
            )
        return [Step.DISCONNECT, Step.CONNECT]
    return [Step.NET_OPTIONS] if net_differences(wanted, found) else []


def may_become_second_primary(found: Found) -> bool:
    """Return whether a migration to this node is allowed by the connection, and going on."""
    resource, device = found.resource, found.device
    if resource is None or device is None or not device.is_writable_there:
        return False
    return resource.options.get(TWO_PRIMARIES) == "yes"


def net_differences(wanted: Wanted, found: Found) -> dict[str, str]:
    """Return the options of the connection that are to be set.

    Two primaries stay allowed as long as there are two.
    """
    assert found.resource is not None
    differ = differences(wanted.net_options, found.resource.options)
    device = found.device
    if device is not None and device.is_primary and device.is_writable_there:
        differ.pop(TWO_PRIMARIES, None)
    return differ
