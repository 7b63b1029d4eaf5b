"""The hypervisor "kvm": every instance is a QEMU process, with KVM where that works.

After its start a machine is known by its process and its monitor alone, so nothing is lost when
the node daemon restarts.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import CommandError, GenericError, HypervisorError, OpPrereqError
from ganeti.base.json import loads
from ganeti.base.paths import Paths
from ganeti.hypervisor import interface, node, pci, shared_dirs
from ganeti.hypervisor.interface import ConsoleNode, Disks, Hypervisor, InstanceInfo, NodeEnv
from ganeti.hypervisor.kvm import launch, params, state
from ganeti.hypervisor.kvm.consoles import check_on_node, consoles, guest, shorten_log, vnc_socket
from ganeti.hypervisor.kvm.files import (
    DIRECTORY_PARAMETERS,
    FILE_PARAMETERS,
    MachineFiles,
    local_file,
    read_password,
)
from ganeti.hypervisor.kvm.hardware import firmware, tpm, virtiofs
from ganeti.hypervisor.kvm.hotplug import KvmHotplug
from ganeti.hypervisor.kvm.machine import Machine, build_machine, with_machine_type
from ganeti.hypervisor.kvm.migration import KvmMigration
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.hypervisor.kvm.params import KvmParams
from ganeti.hypervisor.kvm.qemu import choose_accelerator, find_qemu, is_usual_place
from ganeti.hypervisor.kvm.snapshot import KvmSnapshots
from ganeti.hypervisor.kvm.state import Machines, Runtime, find_process, save_runtime
from ganeti.hypervisor.params import check_cpus_here, missing_here, wrong_param
from ganeti.hypervisor.user_ids import pool_of
from ganeti.netdev.backends import choose_backends
from ganeti.objects.hypervisors import RebootType
from ganeti.objects.model import Guest, InstanceConsole
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.system import process

_MIB: Final = 1 << 20


class KvmHypervisor(Hypervisor):
    """The hypervisor "kvm" on one node."""

    def __init__(self, name: str, env: NodeEnv, hvparams: Mapping[str, object]) -> None:
        super().__init__(name, env, hvparams)
        self._machines = Machines(env)
        self._params = KvmParams(hvparams)
        self.migration = KvmMigration(self._machines)
        self._hotplug = self.hotplug = KvmHotplug(self._machines)
        self.snapshots = KvmSnapshots(self._machines)

    @classmethod
    def mend(cls, env: NodeEnv) -> None:
        """Let guests go on that a process which died has left standing still."""
        state.let_all_go(env.paths)

    # Looking

    def list_instances(self) -> list[str]:
        """Return the names of the instances here; not those still being received."""
        return [
            name
            for name in state.known_names(self.env.paths)
            if (
                state.look(self._machines.files(name)) is not None
                if state.is_incoming(self._machines.files(name))
                else find_process(self._machines.files(name)) is not None
            )
        ]

    def instance_info(self, name: str) -> InstanceInfo | None:
        """Look at one instance; None when it is not here."""
        return state.look(self._machines.files(name))

    def all_instances_info(self) -> list[InstanceInfo]:
        """Look at all instances here; logs of their consoles that are too large are shortened."""
        found = state.look_at_all(self.env)
        for info in found:
            shorten_log(self._machines.files(info.name).serial_log)
        return found

    def node_info(self) -> dict[str, object]:
        """Return the node's memory and processors; QEMU's memory counts as instances'."""
        return node.resources(sum(info.memory_mib for info in self.all_instances_info()))

    def consoles(self, instance: RpcInstance, node: ConsoleNode) -> list[InstanceConsole]:
        """Return every way to the console: serial, VNC or SPICE."""
        return consoles(instance, self.env, node)

    def vnc_socket(self, instance: RpcInstance) -> str:
        """As declared."""
        return vnc_socket(instance, self.env)

    def guest(self, instance: RpcInstance, wait_s: float = interface.GUEST_WAIT_S) -> Guest:
        """Return what the guest agent and the serial console tell, and the way in by SSH."""
        return guest(instance, self.env, wait_s)

    # Checking

    def verify(self) -> str | None:
        """Say that there is no QEMU, or what machines cannot be used or have lost, if so."""
        found = [*state.unreadable_runtimes(self.env.paths), *virtiofs.lost(self.env.paths)]
        try:
            find_qemu(self._params.text("kvm_path"))
        except GenericError as err:
            found.append(err.message)
        return "; ".join(found) or None

    def problems(self, hvparams: Mapping[str, object]) -> Iterator[GenericError]:
        """Find wrong values, and values that do not fit each other."""
        return params.problems(hvparams)

    def check_on_node(self, hvparams: Mapping[str, object]) -> None:
        """Check parameters against this node and its QEMU."""
        validate_on_node(KvmParams(hvparams), self.env)

    # Starting and stopping

    def start(self, instance: RpcInstance, disks: Disks, *, paused: bool = False) -> None:
        """Start a machine and let its guest run, or stand still."""
        self._make_room(self._machines.files(instance.name))
        self.check_params(instance.hvparams)
        own = KvmParams(instance.hvparams)
        binary = find_qemu(own.text("kvm_path"))
        accelerator = choose_accelerator(own.text("kvm_flag"), binary, self.env.paths)
        hostname = self.env.hostname
        pci.check_here(own.pci_devices(), hostname)
        uefi = firmware.prepare(own.text("firmware"), instance.name, hostname, disks)
        machine = build_machine(instance, disks, accelerator=accelerator, firmware=uefi)
        runtime = Runtime(machine=machine, paused=paused)
        backends = choose_backends(instance, launch.abilities_for(self.env, instance.nics))
        with launch.bring_up(self.env, runtime, disks, backends) as monitor:
            self._note_machine_type(monitor, machine)
            if not paused:
                self._let_go(monitor, instance.name)

    def _let_go(self, monitor: Monitor, name: str) -> None:
        try:
            monitor.execute("cont")
        except HypervisorError:
            launch.kill_now(self._machines.files(name))
            raise

    def _make_room(self, files: MachineFiles) -> None:
        """Remove the remains of an earlier run; refuse if the machine is still of use."""
        if state.find_begun(files) is not None:
            if state.is_incoming(files):
                raise HypervisorError(
                    f"instance {files.name} is being received from another node;"
                    " end that with gnt-instance migrate --cleanup"
                )
            with Monitor.connect(files.name, files.socket_path("control")) as monitor:
                status = monitor.status()
            if status != "shutdown" and not state.is_unfinished(files, status):
                raise HypervisorError(
                    f"instance {files.name} is already here, and {status}, on {self.env.hostname}"
                )
            launch.kill_now(files)
        launch.clean_up(files)

    def _note_machine_type(self, monitor: Monitor, machine: Machine) -> None:
        """Write down which machine an alias such as "pc" stands for in this QEMU."""
        exact = with_machine_type(machine, monitor.query_list("query-machines"))
        runtime = self._machines.runtime(machine.name)
        save_runtime(self._machines.files(machine.name), replace(runtime, machine=exact))

    def stop(self, name: str, *, force: bool = False, timeout_s: float = 120) -> None:
        """Stop a machine: by its power button, and if that does not help, by force."""
        launch.stop(self._machines.files(name), force=force, timeout_s=timeout_s)

    def reboot(
        self, instance: RpcInstance, disks: Disks, *, kind: RebootType, timeout_s: float = 120
    ) -> None:
        """Reboot: ``soft`` in the same machine, ``hard`` and ``full`` in a new one."""
        files = self._machines.files(instance.name)
        if kind is RebootType.SOFT and launch.can_reboot_softly(files):
            launch.soft_reboot(files, timeout_s)
        else:
            super().reboot(instance, disks, kind=kind, timeout_s=timeout_s)

    def balloon(self, name: str, memory_mib: int) -> None:
        """Set the memory that a running guest may use."""
        with self._machines.control(name) as monitor:
            monitor.execute("balloon", {"value": memory_mib * _MIB})

    def resize_disk(self, instance: RpcInstance, disk: interface.AssembledDisk) -> None:
        """Let the running machine see that a disk has grown."""
        self._hotplug.resize_disk(instance, disk)


_VHOST: Final = "/dev/vhost-net"


def validate_on_node(params: KvmParams, env: NodeEnv) -> None:
    """Check that this node has the files, users and features that the parameters name.

    Raises:
        OpPrereqError: naming the parameter and the missing thing.
    """
    paths = env.paths
    binary = find_qemu(params.text("kvm_path"))
    if not is_usual_place(binary):
        check_is_qemu(binary)
    _check_files(params, paths)
    for name in ("vnc_password_file", "spice_password_file"):
        if params.text(name):
            read_password(name, params.text(name), paths)
    _check_user(params, paths)
    if params.text("kvm_flag"):
        choose_accelerator(params.text("kvm_flag"), binary, paths)
    _check_words(params, binary)
    check_cpus_here(params.text("cpu_mask"), env.hostname)
    check_on_node(params, env)
    if params.text("firmware"):
        firmware.find(params.text("firmware"), env.hostname)
    if params.flag("tpm"):
        tpm.find(env.hostname)
    pci.check_here(params.pci_devices(), env.hostname)
    if shares := params.shares():
        shared_dirs.check_here(shares, paths, env.hostname)
        virtiofs.find(env.hostname)
    if params.flag("vhost_net") and not os.path.exists(_VHOST):
        raise missing_here("vhost_net", f"there is no {_VHOST} on node {env.hostname}")


def _check_words(params: KvmParams, binary: str) -> None:
    """Check the parameters with values that only QEMU knows: machine, processor, keymap."""
    machine = params.text("machine_version").partition(",")[0]
    if machine and machine not in words_for(binary, "-machine"):
        raise wrong_param("machine_version", f"{binary} has no machine {machine!r}; see -machine ?")
    cpu = params.text("cpu_type").partition(",")[0]
    if cpu and cpu not in words_for(binary, "-cpu"):
        raise wrong_param("cpu_type", f"{binary} has no processor {cpu!r}; see -cpu ?")
    if keymap := params.text("keymap"):
        known = keymaps(binary)
        if known is not None and keymap not in known:
            text = f"{binary} knows no keyboard {keymap!r}; it knows {', '.join(sorted(known))}"
            raise wrong_param("keymap", text)
    if wanted := params.migration_capabilities():
        able = migration_capabilities(binary)
        for capability in wanted:
            if capability not in able:
                text = f"{binary} cannot {capability!r}; it can {', '.join(sorted(able))}"
                raise wrong_param("migration_caps", text)


def _check_files(params: KvmParams, paths: Paths) -> None:
    for name in FILE_PARAMETERS:
        path = params.text(name)
        if path.startswith("/") and not os.path.isfile(local_file(path, paths)):
            hint = "; set it to nothing to boot from the disk" if name == "kernel_path" else ""
            raise missing_here(name, f"there is no file {path}{hint}")
    for name in DIRECTORY_PARAMETERS:
        path = params.text(name)
        if path and not os.path.isdir(local_file(path, paths)):
            raise missing_here(name, f"there is no directory {path}")


def _check_user(params: KvmParams, paths: Paths) -> None:
    model = params.text("security_model")
    if model == "none":
        return
    if model == "user":
        _check_account(params.text("security_domain"))
    else:
        _check_pool(paths)
    if os.geteuid() != 0:
        raise missing_here("security_model", "needs a node daemon that runs as root")


def _check_pool(paths: Paths) -> None:
    try:
        pool_of(paths)
    except OpPrereqError as err:
        raise missing_here("security_model", f"pool: {err.message}") from err


def _check_account(name: str) -> None:
    try:
        found = pwd.getpwnam(name)
    except KeyError as err:
        raise missing_here("security_domain", f"no user {name!r}") from err
    if found.pw_uid == 0:
        raise wrong_param("security_domain", f"user {name!r} is the superuser")


_TIMEOUT_S: Final = 30.0
_ITSELF: Final = "QEMU emulator version"
_KEYMAPS: Final = "keymaps"
_ALONE: Final = ("-machine", "none", "-nodefaults", "-no-user-config", "-display", "none")
_QUESTIONS: Final = b"".join(
    b'{"execute": "%s"}\n' % command
    for command in (b"qmp_capabilities", b"query-migrate-capabilities", b"quit")
)


def check_is_qemu(binary: str) -> None:
    """Check that a program says of itself that it is QEMU.

    Raises:
        OpPrereqError: it does not.
    """
    if _ITSELF not in _ask(binary, "--version"):
        raise missing_here("kvm_path", f"{binary} is not QEMU")


def words_for(binary: str, option: str) -> set[str]:
    """Return the words that QEMU lists for an option."""
    words: set[str] = set()
    for line in _ask(binary, option, "help").splitlines():
        words.update(line.split()[:2])
    return words


def keymaps(binary: str) -> set[str] | None:
    """Return the names of the keyboards that QEMU has descriptions of; None if that is unknown."""
    for directory in _ask(binary, "-L", "help").splitlines():
        path = os.path.join(directory.strip(), _KEYMAPS)
        if os.path.isdir(path):
            return set(os.listdir(path))
    return None


def migration_capabilities(binary: str) -> set[str]:
    """Return the names of the migration capabilities that QEMU knows."""
    names: set[str] = set()
    for line in _ask(binary, *_ALONE, "-qmp", "stdio", stdin=_QUESTIONS).splitlines():
        match loads(line):
            case {"return": [*found]}:
                names |= {str(each.get("capability")) for each in found if isinstance(each, dict)}
    return names


def _ask(binary: str, *arguments: str, stdin: bytes | None = None) -> str:
    """Run QEMU and return its output.

    Raises:
        OpPrereqError: it failed.
    """
    try:
        done = process.run([binary, *arguments], timeout_s=_TIMEOUT_S, stdin=stdin).check()
    except CommandError as err:
        raise missing_here("kvm_path", err.message) from err
    return done.stdout.decode("utf-8", "replace")
