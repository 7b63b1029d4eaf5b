"""The hypervisors "xen-pvm" and "xen-hvm": every instance is a domain, made by ``xl``.

Both see the same list of domains; each takes those of its kind.  A domain is known by its name;
nothing is remembered, so nothing is lost when the node daemon restarts.

Source: xl(1), xl.cfg(5); constants.json, "hvparams"; node_rpc.json, "hypervisor info".
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping
from typing import Final

from ganeti.base.errors import CommandError, GenericError, HypervisorError
from ganeti.base.text import natural_sorted
from ganeti.hypervisor.interface import (
    GUEST_WAIT_S,
    ConsoleNode,
    Disks,
    Hypervisor,
    InstanceInfo,
    InstanceState,
    NodeEnv,
)
from ganeti.hypervisor.kvm.files import local_file, read_password
from ganeti.hypervisor.params import HvParams, check_cpus_here, missing_here
from ganeti.hypervisor.xen import config, output
from ganeti.hypervisor.xen.migration import XenMigration
from ganeti.hypervisor.xen.output import PROGRAM
from ganeti.hypervisor.xen.tool import DomainFiles, Xl
from ganeti.objects import hypervisors as objects
from ganeti.objects.hypervisors import ConsoleKind, RebootType
from ganeti.objects.model import Guest, InstanceConsole
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.store import ssconf
from ganeti.system.files import remove_if_exists, write_atomic

_CONFIG_MODE: Final = 0o600  # the password of VNC may be in it
_CONSOLE_LOG: Final = "/var/log/xen/console/guest-{}.log"
_CONSOLE_TAIL_BYTES: Final = 2048
_USER: Final = "root"
_FILES: Final = {
    objects.Hypervisor.XEN_PVM: ("kernel_path", "initrd_path", "bootloader_path"),
    objects.Hypervisor.XEN_HVM: ("kernel_path", "device_model", "cdrom_image_path"),
}
_NO_FILE_WITH_BOOTLOADER: Final = ("kernel_path", "initrd_path")


class XenHypervisor(Hypervisor):
    """One of the two hypervisors on one node."""

    migration_hands_over = True

    def __init__(self, name: str, env: NodeEnv, hvparams: Mapping[str, object]) -> None:
        super().__init__(name, env, hvparams)
        self._xl = Xl(env)
        self._is_hvm = name == objects.Hypervisor.XEN_HVM
        self.migration = XenMigration(env, self._xl)

    def _files(self, name: str) -> DomainFiles:
        return DomainFiles(self.env.paths, name)

    # Looking

    def all_instances_info(self) -> list[InstanceInfo]:
        """Look at all domains of this kind; not those still being received."""
        found = {each.name: each for each in output.guests(self._xl.domains())}
        types = self._xl.types() if found else {}
        names = [
            name
            for name in natural_sorted(found)
            if (types.get(name) == output.HVM) == self._is_hvm and self._is_here(found[name])
        ]
        return [self._info(found[name]) for name in names]

    def instance_info(self, name: str) -> InstanceInfo | None:
        """Look at one domain; None when it is not here, or still being received."""
        found = self._xl.find(name)
        return self._info(found) if found is not None and self._is_here(found) else None

    def _is_here(self, domain: output.Domain) -> bool:
        files = self._files(domain.name)
        if not domain.is_paused:  # a mark was left by its hand-over
            remove_if_exists(files.incoming)
        return not files.is_incoming

    def _info(self, domain: output.Domain) -> InstanceInfo:
        has_left = domain.is_paused and self._files(domain.name).has_left
        is_down = domain.is_over or has_left
        return InstanceInfo(
            name=domain.name,
            memory_mib=domain.memory_mib,
            vcpus=domain.vcpus,
            state=InstanceState.SHUTDOWN if is_down else InstanceState.RUNNING,
            cpu_time_s=domain.time_s,
        )

    def node_info(self) -> dict[str, object]:
        """Return memory and processors as Xen shares them out."""
        try:
            info = output.parse_info(self._xl.ask("info"))
            return output.node_resources(info, self._xl.domains())
        except GenericError as err:
            raise HypervisorError(f"Xen does not tell the node's resources: {err}") from err

    def consoles(self, instance: RpcInstance, node: ConsoleNode) -> list[InstanceConsole]:
        """Return the serial console, and before it that of VNC."""
        name = instance.name
        serial = ["-t", "serial"] if self._is_hvm else []
        found = [
            InstanceConsole(
                instance=name,
                kind=ConsoleKind.SSH,
                host=node.name,
                user=_USER,
                command=[PROGRAM, "console", *serial, name],
            )
        ]
        port = instance.network_port
        address = self._vnc_address(HvParams(instance.hvparams)) if self._is_hvm else ""
        if address and port is not None and port > config.VNC_BASE_PORT:
            shared = ipaddress.ip_address(address).is_unspecified
            vnc = InstanceConsole(
                instance=name,
                kind=ConsoleKind.VNC,
                host=node.primary_ip if shared else address,
                port=port,
                display=port - config.VNC_BASE_PORT,
            )
            found.insert(0, vnc)
        return found

    def _vnc_address(self, params: HvParams) -> str:
        """Return where VNC listens; virtual nodes share a machine: there at their own address."""
        address = params.text("vnc_bind_address")
        return self.env.address if address and self.env.is_virtual else address

    def guest(self, instance: RpcInstance, wait_s: float = GUEST_WAIT_S) -> Guest:
        """Return the last words of the console, where Xen's daemon keeps them."""
        try:
            with open(local_file(_CONSOLE_LOG.format(instance.name), self.env.paths), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _CONSOLE_TAIL_BYTES))
                return Guest(console=file.read().decode("utf-8", "replace"))
        except OSError:  # it keeps none
            return Guest()

    # Checking

    def verify(self) -> str | None:
        """Say that Xen does not answer, or not as this node's hypervisor, if so."""
        if os.geteuid() != 0 and not self.env.is_virtual:
            return f"hypervisor {self.name} needs the node daemon to run as root"
        try:
            self._xl.ask("info")
        except CommandError as err:
            return f"Xen does not answer: {err.message}"
        return None

    def problems(self, hvparams: Mapping[str, object]) -> Iterator[GenericError]:
        """Find wrong values, and values that do not fit each other."""
        wrong = list(super().problems(hvparams))
        yield from wrong or config.problems(self.name, hvparams)

    def check_on_node(self, hvparams: Mapping[str, object]) -> None:
        """Check that the node has the files and processors that the parameters name."""
        params = HvParams(hvparams)
        boots = not self._is_hvm and params.flag("use_bootloader")
        defaults = objects.HVPARAMS[self.name]
        for name in _FILES[objects.Hypervisor(self.name)]:
            path = params.text(name)
            unused = boots and name in _NO_FILE_WITH_BOOTLOADER
            if not path.startswith("/") or unused:
                continue  # a name such as pygrub, and a URL, are Xen's to find
            if self._is_hvm and path == defaults[name].default:
                continue  # Xen finds its own
            if not os.path.isfile(local_file(path, self.env.paths)):
                raise missing_here(name, f"there is no file {path}")
        if self._is_hvm and params.text("vnc_bind_address"):
            self._password(params)
        if self._is_hvm and config.pci_devices(params):
            self._check_iommu()
        if not self.env.is_virtual:
            check_cpus_here(params.text("cpu_mask"), self.env.hostname)

    def _check_iommu(self) -> None:
        """Check that Xen can give devices to guests."""
        abilities = output.parse_info(self._xl.ask("info")).get("virt_caps", "").split()
        if "hvm_directio" not in abilities:
            text = f"Xen on node {self.env.hostname} has no IOMMU, and gives no devices to guests"
            raise missing_here("pci_pass", f"{text}; switch on VT-d or AMD-Vi in the firmware")

    def _password(self, params: HvParams) -> str:
        path = params.text("vnc_password_file")
        return read_password("vnc_password_file", path, self.env.paths) if path else ""

    # Starting and stopping

    def start(self, instance: RpcInstance, disks: Disks, *, paused: bool = False) -> None:
        """Write the configuration and make a domain; on failure nothing is left."""
        name, files = instance.name, self._files(instance.name)
        if self._xl.find(name) is not None:
            state = "being received" if files.is_incoming else "already"
            raise HypervisorError(f"instance {name!r} is {state} here, on {self.env.hostname}")
        self.check_all(instance.hvparams)
        text = config.config_text(instance, disks, self._place(instance))
        files.make_directories()
        remove_if_exists(files.transfer("status"))  # of a migration that nobody has ended
        write_atomic(files.config, text.encode(), _CONFIG_MODE)
        words = ("create", "-p", files.config) if paused else ("create", files.config)
        try:
            self._xl.change(f"instance {name!r} did not start", *words)
        except HypervisorError:
            if self._xl.find(name) is not None:
                self._xl.tried("destroy", name)
            files.remove()
            raise

    def _place(self, instance: RpcInstance) -> config.Place:
        params = HvParams(instance.hvparams)
        named = [params.text(name) for name in _FILES[objects.Hypervisor(self.name)]]
        address = self._vnc_address(params) if self._is_hvm else ""
        keeps = ssconf.read_key_or_none(self.env.paths, "enabled_user_shutdown") or ""
        return config.Place(
            keeps_after_shutdown=keeps.strip() == "True",
            files={path: local_file(path, self.env.paths) for path in named if path},
            vnc_address=address,
            vnc_password=self._password(params) if address else "",
        )

    def stop(self, name: str, *, force: bool = False, timeout_s: float = 120) -> None:
        """Stop a domain, by its guest's own shutdown or at once."""
        found = self._xl.find(name)
        if found is not None and not (force or found.is_over or found.is_paused) and timeout_s > 0:
            # Whether it obeys or not: it is removed below.
            self._xl.tried("shutdown", "-w", "-F", name, timeout_s=timeout_s)
        if self._xl.find(name) is not None:
            self._xl.tried("destroy", name)
            if not self._xl.wait_gone(name):
                raise HypervisorError(f"instance {name!r} cannot be removed from Xen")
        self._files(name).remove()

    def reboot(
        self, instance: RpcInstance, disks: Disks, *, kind: RebootType, timeout_s: float = 120
    ) -> None:
        """Reboot: ``soft`` asks the guest, where it comes back by itself; else a new domain."""
        name = instance.name
        found = self._xl.find(name)
        comes_back = HvParams(instance.hvparams).text("reboot_behavior") == "reboot"
        is_soft = kind is RebootType.SOFT and comes_back and timeout_s > 0
        if (
            is_soft
            and found is not None
            and self._xl.tried("reboot", "-F", name)
            and self._xl.wait_rebooted(found, timeout_s)
        ):
            return
        super().reboot(instance, disks, kind=kind, timeout_s=timeout_s)

    def balloon(self, name: str, memory_mib: int) -> None:
        """Set the memory that a running guest may use."""
        text = f"instance {name!r}: its memory cannot be set to {memory_mib} MiB"
        self._xl.change(text, "mem-set", name, str(memory_mib))
