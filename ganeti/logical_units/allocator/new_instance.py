"""The request for a place for an instance that is to be made: from its opcode.

Source: iallocator.json, "request_per_mode", "allocate".
"""

from __future__ import annotations

from collections.abc import Mapping

from ganeti.base.errors import OpPrereqError
from ganeti.base.json import JsonValue
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.question import nodes_needed, plain_disk
from ganeti.logical_units.instance.changes.nic_addresses import named_networks
from ganeti.logical_units.instance.parameters import (
    check_beparams,
    check_filled_beparams,
    without_defaults,
)
from ganeti.logical_units.instance.storage import planning
from ganeti.objects.disk_templates import disk_space_mib
from ganeti.objects.fill import fill_beparams_with, fill_nicparams
from ganeti.objects.model import Cluster, Network
from ganeti.objects.nic import NicMode
from ganeti.objects.parameters import NICPARAMS
from ganeti.opcodes.instance import OpInstanceCreate
from ganeti.protocol.iallocator import NewInstance
from ganeti.protocol.wconfd import WConfCalls


def request_for_new(
    config: WConfCalls, cluster: Cluster, op: OpInstanceCreate, name: str
) -> NewInstance:
    """Return the request for a place for an instance to be made.

    Raises:
        OpPrereqError: a setting cannot be, or no allocator can place such an instance.
    """
    what = f"instance {name!r}"
    template = planning.choose_template(cluster, op.disk_template)
    planned = planning.plan_disks(template, op.disks)
    if any(disk.adopt for disk in planned):
        raise OpPrereqError(
            f"{what}: a disk that is adopted is where it is; give the node with -n NODE"
        )
    beparams = fill_beparams_with(cluster, without_defaults(check_beparams(op.beparams)), what)
    check_filled_beparams(beparams)
    group = None if op.group_name is None else lookup.require_group(config, op.group_name).name
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
