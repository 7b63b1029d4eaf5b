"""Telling a node what it may tell the guest of an instance, before the guest asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects import fill
from ganeti.objects.model import Cluster, Disk, Instance, Network, Node
from ganeti.objects.nic import NIC, communicates_by
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import GuestMetadata, GuestNic, Visibility


def bring(
    context: JobContext, view: InstanceView, node: Node, secret: Mapping[str, object] | None = None
) -> None:
    """Bring the metadata of an instance to a node, if it communicates; a failure is told.

    A guest that cannot learn about itself is still a guest: it starts all the same.

    Args:
        secret: parameters of its operating system that were given for this work alone.
    """
    guest = describe_guest(view.cluster, view.instance, view.disks, view.networks, secret)
    if guest is not None:
        doing = f"tell node {node.name!r} the metadata of instance {view.name!r}"
        context.attempt(doing, NodeCalls.instance_metadata_modify, node, guest)


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
    addresses: str | None = None
    gateway: str | None = None
    if network is not None and ":" in (nic.ip or ""):
        addresses, gateway = network.network6, network.gateway6
    elif network is not None:
        addresses, gateway = network.ipv4, network.gateway
    return GuestNic(
        mac=nic.mac,
        ip=nic.ip or "",
        name=nic.name or "",
        network=addresses or "",
        gateway=gateway or "",
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
