"""Installing and renaming the operating system of an instance: its scripts and their environment.

Source: hooks_os_ext.json, "os_api", "env_instance_scripts" and "network_env".
"""

from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.node_ops import scripts
from ganeti.node_ops.context import NodeContext, NodeHandler, check_instance_name
from ganeti.node_ops.instances import departures, os_definitions, os_package
from ganeti.node_ops.leftovers import alone, can_be_ended
from ganeti.objects.disk_templates import FileDriver
from ganeti.objects.model import network_variables
from ganeti.objects.nic import NicMode
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance, RpcNIC
from ganeti.storage.interface import contents
from ganeti.system import clock, files

_LOG_DIRECTORY_MODE: Final = 0o750
_LOG_MODE: Final = 0o640


class InstanceOs(NodeHandler):
    """Scripts of operating systems."""

    def instance_os_add(self, instance: RpcInstance, *, reinstall: bool, debug: int) -> None:
        extra = {"INSTANCE_REINSTALL": "1"} if reinstall else {}
        self._run_script(instance, os_definitions.CREATE, "add", debug, extra)

    def os_package_write(
        self, instance: RpcInstance, disk: RpcDisk, *, reinstall: bool, debug: int
    ) -> None:
        departures.check(self.paths, instance)
        definition = os_definitions.load(self.paths, instance.os)
        definition.check_hypervisor(instance.hypervisor)
        env = os_environment(self.node, definition, instance, debug)
        env |= _paths_in_machine(instance)
        if reinstall:
            env["INSTANCE_REINSTALL"] = "1"
        package = os_package.build(definition, env)
        with contents(self.node.volume(disk)) as path:
            os_package.write_to_disk(path, package, disk.size << 20)

    def os_package_answer(self, disk: RpcDisk) -> str:
        with contents(self.node.volume(disk)) as path:
            return os_package.read_answer(path)

    def os_package_log(self, name: str, os_name: str, disk: RpcDisk) -> tuple[str, str]:
        check_instance_name(name)
        with contents(self.node.volume(disk)) as path:
            output = os_package.read_output(path)
        log = log_path(self.node, "add", os_definitions.base_name(os_name), name)
        files.write_atomic(log, output, _LOG_MODE)
        return self.node.wire_path(log), os_package.tail(output)

    def instance_run_rename(self, instance: RpcInstance, old_name: str, debug: int) -> None:
        extra = {"OLD_INSTANCE_NAME": old_name}
        self._run_script(instance, os_definitions.RENAME, "rename", debug, extra)

    def _run_script(
        self, instance: RpcInstance, kind: str, log_kind: str, debug: int, extra: dict[str, str]
    ) -> None:
        """Run one script of the OS of an instance."""
        name = instance.name
        check_instance_name(name)
        departures.check(self.paths, instance)
        definition = os_definitions.load(self.paths, instance.os)
        definition.check_hypervisor(instance.hypervisor)
        argv = [definition.script(kind)]
        env = os_environment(self.node, definition, instance, debug) | extra
        with alone(self.node, name), can_be_ended(self.node, name):
            log = log_path(self.node, log_kind, definition.name, name)
            limit_s = self.node.script_timeout_s()
            with self.node.shown(instance.disks_info):
                outcome = scripts.run_logged(
                    argv, log, env=env, cwd=definition.path, timeout_s=limit_s
                )
        if outcome.status != 0:
            script = f"{kind} script of OS {instance.os!r} for instance {name!r}"
            raise GenericError(f"{script} on node {self.hostname}: {outcome.failure('it')}")


def os_environment(
    context: NodeContext, definition: os_definitions.OsDefinition, instance: RpcInstance, debug: int
) -> dict[str, str]:
    """Return the variables for a script that works on an instance; assembles its disks."""
    params = instance.osparams.reveal()
    core = os_definitions.core_environment(definition, instance.os, params, debug)
    disks = context.assemble_for_programs(instance)
    return core | instance_environment(instance, disks, definition.api_version)


def _paths_in_machine(instance: RpcInstance) -> dict[str, str]:
    """Return the paths of the disks in a machine of its own, whose first disk is its system."""
    is_virtio = instance.hvparams.get("disk_type", "paravirtual") == "paravirtual"
    prefix, letters = "/dev/vd" if is_virtio else "/dev/sd", ascii_lowercase[1:]
    found: dict[str, str] = {}
    for index, letter in zip(range(len(instance.disks_info)), letters, strict=False):
        found[f"DISK_{index}_PATH"] = found[f"DISK_{index}_URI"] = prefix + letter
        found[f"DISK_{index}_BACKEND_TYPE"] = "block"
    return found


def log_path(context: NodeContext, kind: str, os_name: str, instance_name: str) -> str:
    """Return a new log file for one run of a script."""
    directory = context.paths.log_os_dir
    files.ensure_directory(directory, _LOG_DIRECTORY_MODE)
    return f"{directory}/{kind}-{os_name}-{instance_name}-{clock.now():.3f}.log"


def instance_environment(
    instance: RpcInstance, assembled: Sequence[AssembledDisk], api_version: int
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
    # How the hypervisor shows a device to the guest, where it has a choice
    disk_type, nic_type = (instance.hvparams.get(name) for name in ("disk_type", "nic_type"))
    for index, (disk, device) in enumerate(zip(instance.disks_info, assembled, strict=True)):
        variables = {**_disk_variables(disk, device), "FRONTEND_TYPE": disk_type or None}
        env |= _with_prefix(f"DISK_{index}_", variables)
    for index, nic in enumerate(instance.nics):
        variables = {**_nic_variables(nic), "FRONTEND_TYPE": nic_type or None}
        env |= _with_prefix(f"NIC_{index}_", variables)
    env |= {f"INSTANCE_BE_{name}": str(value) for name, value in instance.beparams.items()}
    if api_version < os_definitions.API_WITH_VARIANTS:  # these came with it
        return env
    return env | {f"INSTANCE_HV_{name}": str(value) for name, value in instance.hvparams.items()}


def _with_prefix(prefix: str, values: Mapping[str, object]) -> dict[str, str]:
    return {prefix + name: str(value) for name, value in values.items() if value is not None}


def _disk_variables(disk: RpcDisk, device: AssembledDisk) -> dict[str, object]:
    """Return the variables of one disk."""
    return {
        "PATH": device.dev_path or None,
        "URI": device.uri,
        "ACCESS": disk.mode,
        "UUID": disk.uuid,
        "NAME": disk.name,
        "SIZE": disk.size,
        "BACKEND_TYPE": _backend_type(disk, device),
    }


def _backend_type(disk: RpcDisk, device: AssembledDisk) -> str:
    """Return what a script finds at the path of a disk: a device, or a file with its driver."""
    if disk.traits.is_file:
        return f"file:{disk.logical_id[0]}"
    return f"file:{FileDriver.LOOP}" if device.dev_type == "file" and device.dev_path else "block"


def _nic_variables(nic: RpcNIC) -> dict[str, object]:
    """Return the variables of one network interface."""
    mode, link = nic.nicparams["mode"], nic.nicparams["link"]
    return {
        "MAC": nic.mac,
        "UUID": nic.uuid,
        "NAME": nic.name,
        "IP": nic.ip,
        "MODE": mode,
        "LINK": link,
        "BRIDGE": link if mode == NicMode.BRIDGED else None,
        **(network_variables(nic.netinfo) if nic.netinfo is not None else {}),
    }
