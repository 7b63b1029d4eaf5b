"""The network by which nodes talk to instances: a setting of the cluster makes and connects it.

It has the link-local addresses, and its NICs are routed by a table of their own.  What is done
with a network is done by operations on networks, in jobs of their own.

Source: constants.json, "nic_modes", INSTANCE_COMMUNICATION_*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import wrong_state
from ganeti.logical_units.network.settings import check_name
from ganeti.objects.disk_templates import DeviceAction
from ganeti.objects.model import Cluster, Instance, Network, NodeGroup
from ganeti.objects.nic import (
    IP_FROM_POOL,
    NODE_ADDRESS,
    NicMode,
    communicates_by,
    leads_to_node,
    name_to_node,
)
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceSetParams
from ganeti.opcodes.network import OpNetworkAdd, OpNetworkConnect, OpNetworkDisconnect
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.values import LAST_DEVICE, NicChange, NicSettingName

_LINK: Final = "communication_rt"
CONNECTION: Final[Mapping[str, str]] = {"mode": NicMode.ROUTED.value, "link": _LINK, "vlan": ""}


def network_name(value: str) -> str:
    """Return the name of a network; an empty one for none."""
    if value:
        check_name(value)
    return value


def named(networks: Sequence[Network], name: str) -> Network | None:
    """Return the network of a name, None if it is not there."""
    return next((network for network in networks if network.name == name), None)


def _addition(name: str) -> OpNetworkAdd:
    return OpNetworkAdd(
        network_name=name,
        network="169.254.0.0/16",
        network6="fe80::/10",
        mac_prefix="52:54:00",
        add_reserved_ips=[NODE_ADDRESS],
    )


def nic_settings(cluster: Cluster, instance_name: str) -> dict[NicSettingName, str | None]:
    """Return the settings of the interface by which an instance communicates with its node.

    Raises:
        OpPrereqError: the cluster has no network for that.
    """
    network = cluster.instance_communication_network
    if not network:
        raise wrong_state(
            f"instance {instance_name!r} cannot communicate with its node: the cluster has no"
            " network for that; make one with 'gnt-cluster modify"
            " --instance-communication-network=NAME'"
        )
    return {"network": network, "ip": IP_FROM_POOL, "name": name_to_node(instance_name)}


def with_interface(cluster: Cluster, op: OpInstanceCreate, instance_name: str) -> OpInstanceCreate:
    """Return the opcode with the interface for communication as the last one, if it asks for it."""
    if not op.instance_communication or any(leads_to_node(nic.get("name")) for nic in op.nics):
        return op
    return replace(op, nics=[*op.nics, nic_settings(cluster, instance_name)])


def with_change(
    cluster: Cluster, instance: Instance, op: OpInstanceSetParams
) -> OpInstanceSetParams:
    """Return the opcode with the change of that interface among the others, if it asks for one."""
    way = communicates_by(instance.nics)
    if op.instance_communication is None or op.instance_communication == (way is not None):
        return op
    if way is None:
        change = NicChange(DeviceAction.ADD, LAST_DEVICE, nic_settings(cluster, instance.name))
    else:
        change = NicChange(DeviceAction.REMOVE, way.uuid, {})
    return replace(op, nics=[*op.nics, change])


def jobs_of_change(
    before: str, after: str, networks: Sequence[Network], groups: Sequence[NodeGroup]
) -> list[list[OpCode]]:
    """Return the jobs that disconnect the old network, and make and connect the new one.

    Args:
        before, after: their names; they may be the same, then what is missing is done.
    """
    old, new = named(networks, before), named(networks, after)
    jobs: list[list[OpCode]] = []
    if old is not None and before != after:
        jobs += [
            [OpNetworkDisconnect(group_name=group.name, network_name=before)]
            for group in groups
            if old.uuid in group.networks
        ]
    if not after:
        return jobs
    making: list[OpCode] = [] if new else [_addition(after)]
    connecting = [
        OpNetworkConnect(
            group_name=group.name,
            network_name=after,
            network_mode=NicMode.ROUTED,
            network_link=_LINK,
        )
        for group in groups
        if new is None or new.uuid not in group.networks
    ]
    return [*jobs, [*making, *connecting]] if making or connecting else jobs


def remarks(name: str, networks: Sequence[Network], groups: Sequence[NodeGroup]) -> Iterator[str]:
    """Yield what a network that is there already has otherwise than a new one would have it."""
    network = named(networks, name)
    if network is None:
        return
    for field in ("network", "network6", "mac_prefix"):
        value, wanted = getattr(network, field) or "(none)", getattr(_addition(name), field)
        if value != wanted:
            yield f"network {name!r} has {field} {value}; for instances {wanted} is usual"
    for group in groups:
        found = group.networks.get(network.uuid)
        if found is not None and {**CONNECTION, **found} != CONNECTION:
            said = ",".join(f"{key}={value}" for key, value in found.items())
            yield (
                f"network {name!r} is connected to node group {group.name!r} with {said}; for"
                f" instances mode={CONNECTION['mode']},link={_LINK} is usual"
            )
