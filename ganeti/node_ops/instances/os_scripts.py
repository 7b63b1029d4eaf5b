"""Installing and renaming the operating system of an instance: its scripts and their environment.

Source: hooks_os_ext.json, "os_api", "env_instance_scripts" and "network_env".
"""

import os
from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.node_ops import drivers, scripts
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.node_ops.instances import os_definitions
from ganeti.node_ops.leftovers import alone, can_be_ended
from ganeti.objects.model import network_variables
from ganeti.objects.nic import NicMode
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance, RpcNIC
from ganeti.system import clock, files

_LOG_DIRECTORY_MODE: Final = 0o750


class InstanceOs(NodeHandler):
    """Scripts of operating systems."""

    def instance_os_add(self, instance: RpcInstance, *, reinstall: bool, debug: int) -> None:
        extra = {"INSTANCE_REINSTALL": "1"} if reinstall else {}
        _run_script(self.context, instance, os_definitions.CREATE, "add", debug, extra)

    def instance_run_rename(self, instance: RpcInstance, old_name: str, debug: int) -> None:
        extra = {"OLD_INSTANCE_NAME": old_name}
        _run_script(self.context, instance, os_definitions.RENAME, "rename", debug, extra)


def os_environment(
    context: NodeContext, definition: os_definitions.OsDefinition, instance: RpcInstance, debug: int
) -> dict[str, str]:
    """Return the variables for a script that works on an instance; assembles its disks."""
    core = os_definitions.core_environment(
        definition, instance.os, instance.osparams.reveal(), debug
    )
    return core | instance_environment(instance, drivers.assemble_disks(context, instance))


def _run_script(
    context: NodeContext,
    instance: RpcInstance,
    kind: str,
    log_kind: str,
    debug: int,
    extra_env: dict[str, str],
) -> None:
    """Run one script of the OS of an instance."""
    drivers.check_instance_name(instance.name)
    definition = os_definitions.load(context.paths, instance.os)
    definition.check_hypervisor(instance.hypervisor)
    script = definition.script(kind)
    env = os_environment(context, definition, instance, debug) | extra_env
    with alone(context, instance.name), can_be_ended(context, instance.name):
        outcome = scripts.run_logged(
            [script],
            log_path(context, log_kind, definition.name, instance.name),
            env=env,
            cwd=definition.path,
            timeout_s=context.script_timeout_s(),
        )
    if outcome.status != 0:
        what = f"{kind} script of OS {instance.os!r} for instance {instance.name!r}"
        raise GenericError(f"{what} on node {context.hostname}: {outcome.failure('it')}")


def log_path(context: NodeContext, kind: str, os_name: str, instance_name: str) -> str:
    """Return a new log file for one run of a script."""
    directory = context.paths.log_os_dir
    files.ensure_directory(directory, _LOG_DIRECTORY_MODE)
    stamp = clock.now()
    return os.path.join(directory, f"{kind}-{os_name}-{instance_name}-{stamp:.3f}.log")


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
    is_file = disk.traits.is_file
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
