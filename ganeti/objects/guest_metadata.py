"""Instance communication: the interface of an instance that leads to its node, and its metadata.

An instance that communicates has a network interface in a network of link-local addresses.  At
the other end is its node, which answers there at one address, the same on all nodes, and tells the
guest about itself.  The node knows the guest by its address in that network.

Source: constants.json, "nic_modes", INSTANCE_COMMUNICATION_*; hooks_os_ext.json,
"metadata_daemon".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from ganeti.base.errors import ProtocolError
from ganeti.objects import fill
from ganeti.objects.model import Cluster, Disk, Instance, Network
from ganeti.objects.nic import NIC

NODE_ADDRESS: Final = "169.254.169.254"
PORT: Final = 80
NIC_PREFIX: Final = "ganeti:communication:"

NicType = TypeVar("NicType", bound=NIC)


def nic_name(instance_name: str) -> str:
    """Return the name of the interface by which an instance communicates with its node."""
    return NIC_PREFIX + instance_name


def leads_to_node(name: str | None) -> bool:
    """Tell whether an interface of that name leads to the node."""
    return (name or "").startswith(NIC_PREFIX)


def communicates_by(nics: Iterable[NicType]) -> NicType | None:
    """Return the interface by which an instance communicates with its node; None without one."""
    return next((nic for nic in nics if leads_to_node(nic.name)), None)


class Visibility(StrEnum):
    """A parameter of an operating system: stored, stored and hidden, or never stored."""

    PUBLIC = "public"
    PRIVATE = "private"
    SECRET = "secret"  # noqa: S105 - a word


class GuestNic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An interface, as its guest is told."""

    mac: str
    ip: str = ""
    name: str = ""
    network: str = ""
    gateway: str = ""


class GuestMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """All that a guest may ask its node for.

    Attributes:
        address: of the guest, in the network for communication.
        memory: in MiB.
        disks: the sizes, in MiB.
        parameters: of the operating system: value and visibility.
    """

    name: str
    uuid: str
    address: str
    os: str = ""
    hypervisor: str = ""
    memory: int = 0
    vcpus: int = 0
    tags: Sequence[str] = ()
    nics: Sequence[GuestNic] = ()
    disks: Sequence[int] = ()
    parameters: Mapping[str, tuple[str, Visibility]] = {}

    @classmethod
    def from_wire(cls, value: object) -> GuestMetadata:
        """Read it from JSON.

        Raises:
            ProtocolError: it is none; says why.
        """
        try:
            return msgspec.convert(value, cls)
        except msgspec.ValidationError as err:
            raise ProtocolError(f"metadata of an instance cannot be used: {err}") from err

    def to_wire(self) -> dict[str, object]:
        """Return it as JSON."""
        found: dict[str, object] = msgspec.to_builtins(self)
        return found

    def without_secrets(self) -> GuestMetadata:
        """Return it without the parameters that may not be stored."""
        kept = {
            name: parameter
            for name, parameter in self.parameters.items()
            if parameter[1] is not Visibility.SECRET
        }
        return msgspec.structs.replace(self, parameters=kept)


def describe_guest(
    cluster: Cluster,
    instance: Instance,
    disks: Sequence[Disk],
    networks: Mapping[str, Network],
    secret: Mapping[str, object] | None = None,
) -> GuestMetadata | None:
    """Return what the guest of an instance may be told; None if it does not communicate.

    Args:
        networks: those of its interfaces, by UUID.
        secret: parameters that were given for this work alone.
    """
    way = communicates_by(instance.nics)
    if way is None or way.ip is None:
        return None
    beparams = fill.fill_beparams(cluster, instance)
    return GuestMetadata(
        name=instance.name,
        uuid=str(instance.uuid),
        address=way.ip,
        os=instance.os,
        hypervisor=instance.hypervisor,
        memory=beparams["maxmem"],
        vcpus=beparams["vcpus"],
        tags=tuple(instance.tags),
        nics=tuple(_nic(nic, networks) for nic in instance.nics),
        disks=tuple(disk.size for disk in disks),
        parameters=_parameters(cluster, instance, secret or {}),
    )


def _nic(nic: NIC, networks: Mapping[str, Network]) -> GuestNic:
    network = networks.get(nic.network or "")
    return GuestNic(
        mac=nic.mac,
        ip=nic.ip or "",
        name=nic.name or "",
        network=network.network if network else "",
        gateway=(network.gateway if network else None) or "",
    )


def _parameters(
    cluster: Cluster, instance: Instance, secret: Mapping[str, object]
) -> dict[str, tuple[str, Visibility]]:
    private = fill.fill_osparams_private(cluster, instance.os, instance.osparams_private)
    layers: tuple[tuple[Mapping[str, object], Visibility], ...] = (
        (fill.fill_osparams(cluster, instance.os, instance.osparams), Visibility.PUBLIC),
        (private.reveal(), Visibility.PRIVATE),
        (secret, Visibility.SECRET),
    )
    return {
        name: (str(value), visibility)
        for values, visibility in layers
        for name, value in values.items()
    }
