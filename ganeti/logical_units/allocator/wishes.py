"""The wish for a place for an instance that is to be made: from its opcode.

Source: iallocator.json, "request_per_mode", "allocate".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import UNSET

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.placing import free_nodes
from ganeti.logical_units.allocator.question import nodes_needed, plain_disk
from ganeti.logical_units.instance import new_disks
from ganeti.logical_units.instance.nic_addresses import named_networks
from ganeti.logical_units.instance.parameters import (
    check_beparams,
    check_filled_beparams,
    without_defaults,
)
from ganeti.objects.disk_templates import disk_space_mib
from ganeti.objects.fill import fill_beparams_with, fill_nicparams
from ganeti.objects.nic_modes import NicMode
from ganeti.objects.parameters import NICPARAMS
from ganeti.protocol.iallocator import NewInstance

if TYPE_CHECKING:
    from ganeti.clients.wconfd_stub import WConfStub
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.json_value import JsonValue
    from ganeti.objects.network import Network
    from ganeti.opcodes.instance import OpInstanceCreate


def wish_for_new(
    config: WConfStub,
    cluster: Cluster,
    op: OpInstanceCreate,
    name: str,
    *,
    only_free_nodes: bool = False,
) -> NewInstance:
    """Return what an allocator is told about an instance to be made.

    Args:
        only_free_nodes: it may only go to nodes that nobody has locked for himself.

    Raises:
        OpPrereqError: a setting cannot be, or no allocator can place such an instance.
    """
    what = f"instance {name!r}"
    template = new_disks.choose_template(cluster, op.disk_template)
    planned = new_disks.plan_disks(template, op.disks)
    if any(disk.adopt for disk in planned):
        raise OpPrereqError(
            f"{what}: a disk that is adopted is where it is; give the node with -n NODE",
            ErrorCode.INVAL,
        )
    beparams = fill_beparams_with(cluster, without_defaults(check_beparams(op.beparams)), what)
    check_filled_beparams(beparams)
    group = None if op.group_name is None else lookup.require_group(config, op.group_name).name
    allowed = free_nodes(config, lookup.all_nodes(config), what) if only_free_nodes else UNSET
    return NewInstance(
        name=name,
        memory=beparams["maxmem"],
        vcpus=beparams["vcpus"],
        spindle_use=beparams["spindle_use"],
        disks=[
            {**settings, **plain_disk(disk.size_mib, disk.mode.value, template.value)}
            for settings, disk in zip(op.disks, planned, strict=True)
        ],
        disk_space_total=disk_space_mib(template, (disk.size_mib for disk in planned)),
        disk_template=template.value,
        group_name=group,
        os=op.os_type or "",
        tags=list(op.tags),
        nics=[_nic(cluster, named_networks(config, op.nics), nic) for nic in op.nics],
        required_nodes=nodes_needed(template),
        hypervisor=str(op.hypervisor or cluster.enabled_hypervisors[0]),
        restrict_to_nodes=allowed,
    )


def _nic(
    cluster: Cluster, networks: Mapping[str, Network], given: Mapping[str, str | None]
) -> dict[str, JsonValue]:
    """Return a network interface as it is told: with its network, else with mode and link."""
    told: dict[str, JsonValue] = {"mac": given.get("mac") or "auto", "ip": given.get("ip")}
    network = networks.get(given.get("network") or "")
    if network is not None:  # it decides about mode and link in each group
        return {**told, "network": network.uuid}
    own = {name: value for name, value in given.items() if name in NICPARAMS and value}
    params = fill_nicparams(cluster, own)
    link = given.get("bridge") or params["link"]
    told |= {"mode": params["mode"], "link": link}
    return {**told, "bridge": link} if params["mode"] == NicMode.BRIDGED else told
