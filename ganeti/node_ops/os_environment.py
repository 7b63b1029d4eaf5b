"""What an OS script is told about its instance, as environment variables.  Plain values only.

Source: hooks_os_ext.json, "env_instance_scripts" and "network_env".
"""

from collections.abc import Sequence

from ganeti.hypervisor.interface import AssembledDisk
from ganeti.objects.disk_templates import FILE_BASED
from ganeti.objects.network import network_variables
from ganeti.objects.nic_modes import NicMode
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance, RpcNIC


def instance_environment(
    instance: RpcInstance, assembled: Sequence[AssembledDisk]
) -> dict[str, str]:
    """Return the variables that describe an instance and its assembled disks."""
    env = {
        "INSTANCE_NAME": instance.name,
        "INSTANCE_OS": instance.os,
        "INSTANCE_UUID": str(instance.uuid),
        "INSTANCE_CTIME": str(instance.ctime),
        "INSTANCE_MTIME": str(instance.mtime),
        "INSTANCE_PRIMARY_NODE": str(instance.primary_node),
        "INSTANCE_SECONDARY_NODES": " ".join(instance.secondary_nodes),
        "HYPERVISOR": instance.hypervisor,
        "DISK_COUNT": str(len(instance.disks_info)),
        "NIC_COUNT": str(len(instance.nics)),
    }
    for index, (disk, device) in enumerate(zip(instance.disks_info, assembled, strict=True)):
        env.update(_disk_variables(f"DISK_{index}_", disk, device))
        _add_type(env, f"DISK_{index}_FRONTEND_TYPE", instance, "disk_type")
    for index, nic in enumerate(instance.nics):
        env.update(_nic_variables(f"NIC_{index}_", nic))
        _add_type(env, f"NIC_{index}_FRONTEND_TYPE", instance, "nic_type")
    env.update({f"INSTANCE_BE_{name}": str(value) for name, value in instance.beparams.items()})
    env.update({f"INSTANCE_HV_{name}": str(value) for name, value in instance.hvparams.items()})
    return env


def _disk_variables(prefix: str, disk: RpcDisk, device: AssembledDisk) -> dict[str, str]:
    """Return the variables of one disk."""
    is_file = disk.dev_type in FILE_BASED
    values: dict[str, str | None] = {
        "PATH": device.dev_path or None,
        "URI": device.uri,
        "ACCESS": str(disk.mode),
        "UUID": str(disk.uuid),
        "NAME": disk.name,
        "SIZE": str(disk.size),
        "BACKEND_TYPE": f"file:{disk.logical_id[0]}" if is_file else "block",
    }
    return {prefix + name: value for name, value in values.items() if value is not None}


def _nic_variables(prefix: str, nic: RpcNIC) -> dict[str, str]:
    """Return the variables of one network interface."""
    mode, link = nic.nicparams["mode"], nic.nicparams["link"]
    values: dict[str, str | None] = {
        "MAC": nic.mac,
        "UUID": nic.uuid,
        "NAME": nic.name,
        "IP": nic.ip,
        "MODE": str(mode),
        "LINK": link,
        "BRIDGE": link if mode == NicMode.BRIDGED else None,
    }
    if nic.netinfo is not None:
        values.update(network_variables(nic.netinfo))
    return {prefix + name: value for name, value in values.items() if value is not None}


def _add_type(env: dict[str, str], variable: str, instance: RpcInstance, parameter: str) -> None:
    """Say how the hypervisor shows a device to the guest, where it has a choice."""
    value = instance.hvparams.get(parameter)
    if value:
        env[variable] = str(value)
