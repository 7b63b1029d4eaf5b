"""What hooks are told about an instance.

Source: hooks_os_ext.json, "instance_env".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.fill import fill_beparams, fill_hvparams, fill_nicparams
from ganeti.objects.network import network_variables
from ganeti.objects.nic_modes import NicMode
from ganeti.objects.rpc_instance import disk_template

if TYPE_CHECKING:
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.disk import Disk
    from ganeti.objects.instance import Instance
    from ganeti.objects.network import Network
    from ganeti.objects.nic import NIC
    from ganeti.objects.node import Node

Values = Iterator[tuple[str, object]]


def instance_env(
    cluster: Cluster,
    instance: Instance,
    disks: Sequence[Disk],
    nodes: Sequence[Node],
    networks: Mapping[str, Network],
) -> dict[str, object]:
    """Return the values that describe an instance.

    Args:
        nodes: the primary node, then the secondary ones.
    """
    beparams = fill_beparams(cluster, instance)
    env: dict[str, object] = {
        "OP_TARGET": instance.name,
        "INSTANCE_NAME": instance.name,
        "INSTANCE_PRIMARY": nodes[0].name,
        "INSTANCE_SECONDARIES": " ".join(node.name for node in nodes[1:]),
        "INSTANCE_OS_TYPE": instance.os,
        "INSTANCE_STATUS": instance.admin_state.value,
        "INSTANCE_MINMEM": beparams["minmem"],
        "INSTANCE_MAXMEM": beparams["maxmem"],
        "INSTANCE_MEMORY": beparams["maxmem"],
        "INSTANCE_VCPUS": beparams["vcpus"],
        "INSTANCE_DISK_TEMPLATE": disk_template(disks),
        "INSTANCE_HYPERVISOR": instance.hypervisor,
        "INSTANCE_TAGS": " ".join(instance.tags),
        "INSTANCE_NIC_COUNT": len(instance.nics),
        "INSTANCE_DISK_COUNT": len(disks),
    }
    env |= {f"INSTANCE_BE_{name}": value for name, value in beparams.items()}
    hvparams = fill_hvparams(cluster, instance)
    env |= {f"INSTANCE_HV_{name}": value for name, value in hvparams.items()}
    for index, nic in enumerate(instance.nics):
        env |= {
            f"INSTANCE_NIC{index}_{name}": value for name, value in _nic(cluster, nic, networks)
        }
    for index, disk in enumerate(disks):
        env |= {f"INSTANCE_DISK{index}_{name}": value for name, value in _disk(disk)}
    return env


def _nic(cluster: Cluster, nic: NIC, networks: Mapping[str, Network]) -> Values:
    params = fill_nicparams(cluster, nic)
    yield "NAME", nic.name or ""
    yield "UUID", nic.uuid
    yield "IP", nic.ip or ""
    yield "MAC", nic.mac
    yield "MODE", params["mode"]
    yield "LINK", params["link"]
    yield "VLAN", params["vlan"]
    if params["mode"] == NicMode.BRIDGED:
        yield "BRIDGE", params["link"]
    network = networks.get(nic.network or "")
    if network is not None:
        yield from network_variables(network).items()


_FIRST_PART = {
    DiskTemplate.PLAIN: "VG",
    DiskTemplate.EXT: "PROVIDER",
}


def _disk(disk: Disk) -> Values:
    yield "NAME", disk.name or ""
    yield "UUID", disk.uuid
    yield "SIZE", disk.size
    yield "MODE", disk.mode.value
    yield "DEV_TYPE", disk.dev_type
    if disk.dev_type == DiskTemplate.DRBD:
        yield from _drbd(disk)
    elif len(disk.logical_id) == 2:
        first, name = disk.logical_id
        yield _FIRST_PART.get(DiskTemplate(disk.dev_type), "DRIVER"), first
        yield "ID", name


def _drbd(disk: Disk) -> Values:
    names = ("PNODE", "SNODE", "PORT", "PMINOR", "SMINOR")
    yield from zip(names, disk.logical_id, strict=False)
    for prefix, child in zip(("DATA", "META"), disk.children, strict=False):
        group, volume = child.logical_id
        yield f"{prefix}_VG", group
        yield f"{prefix}_ID", volume
