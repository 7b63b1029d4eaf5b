"""The hypervisor "kvm": every instance is a QEMU process, with KVM where that works.

After its start a machine is known by its process and its monitor alone, so nothing is lost when
the node daemon restarts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import GenericError, HypervisorError
from ganeti.hypervisor import node
from ganeti.hypervisor.interface import AssembledDisk, Hypervisor, InstanceInfo, NodeEnv
from ganeti.hypervisor.kvm import params, state
from ganeti.hypervisor.kvm.consoles import consoles
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.hotplug import KvmHotplug
from ganeti.hypervisor.kvm.launch import (
    abilities_for,
    bring_up,
    can_reboot_softly,
    clean_up,
    kill_now,
    soft_reboot,
    stop,
)
from ganeti.hypervisor.kvm.machine import Machine, build_machine, with_machine_type
from ganeti.hypervisor.kvm.migration import KvmMigration
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.hypervisor.kvm.params import KvmParams
from ganeti.hypervisor.kvm.qemu import choose_accelerator, find_qemu
from ganeti.hypervisor.kvm.snapshot import KvmSnapshots
from ganeti.hypervisor.kvm.state import Machines, Runtime, find_process, save_runtime
from ganeti.hypervisor.kvm.validation import validate_on_node
from ganeti.netdev.backends import choose_backends
from ganeti.objects.hypervisors import RebootType
from ganeti.objects.model import InstanceConsole
from ganeti.objects.rpc_instance import RpcInstance

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
        """Look at all instances here."""
        return state.look_at_all(self.env)

    def node_info(self) -> dict[str, object]:
        """Return the node's memory and processors; QEMU's memory counts as instances'."""
        return node.resources(sum(info.memory_mib for info in self.all_instances_info()))

    def consoles(
        self, instance: RpcInstance, *, node_name: str, node_address: str
    ) -> list[InstanceConsole]:
        """Return every way to the console: serial, VNC or SPICE."""
        return consoles(instance, self.env, node_name=node_name, node_address=node_address)

    # Checking

    def verify(self) -> str | None:
        """Say that there is no QEMU where the parameters say, if so."""
        try:
            find_qemu(self._params.text("kvm_path"))
        except GenericError as err:
            return err.message
        return None

    def problems(self, hvparams: Mapping[str, object]) -> Iterator[GenericError]:
        """Find wrong values, and values that do not fit each other."""
        return params.problems(hvparams)

    def check_on_node(self, hvparams: Mapping[str, object]) -> None:
        """Check parameters against this node and its QEMU."""
        validate_on_node(KvmParams(hvparams), self.env)

    # Starting and stopping

    def start(
        self, instance: RpcInstance, disks: Sequence[AssembledDisk], *, paused: bool = False
    ) -> None:
        """Start a machine and let its guest run, or stand still."""
        self._make_room(self._machines.files(instance.name))
        self.check_params(instance.hvparams)
        own = KvmParams(instance.hvparams)
        binary = find_qemu(own.text("kvm_path"))
        accelerator = choose_accelerator(own.text("kvm_flag"), binary, self.env.paths)
        machine = build_machine(instance, disks, accelerator=accelerator)
        runtime = Runtime(machine=machine, paused=paused)
        backends = choose_backends(instance, abilities_for(self.env, instance.nics))
        with bring_up(self.env, runtime, disks, backends) as monitor:
            self._note_machine_type(monitor, machine)
            if not paused:
                self._let_go(monitor, instance.name)

    def _let_go(self, monitor: Monitor, name: str) -> None:
        try:
            monitor.execute("cont")
        except HypervisorError:
            kill_now(self._machines.files(name))
            raise

    def _make_room(self, files: MachineFiles) -> None:
        """Remove the remains of an earlier run; refuse if the machine is still of use."""
        if find_process(files) is not None:
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
            kill_now(files)
        clean_up(files)

    def _note_machine_type(self, monitor: Monitor, machine: Machine) -> None:
        """Write down which machine an alias such as "pc" stands for in this QEMU."""
        exact = with_machine_type(machine, monitor.query_list("query-machines"))
        runtime = self._machines.runtime(machine.name)
        save_runtime(self._machines.files(machine.name), replace(runtime, machine=exact))

    def stop(self, name: str, *, force: bool = False, timeout_s: float = 120) -> None:
        """Stop a machine: by its power button, and if that does not help, by force."""
        stop(self._machines.files(name), force=force, timeout_s=timeout_s)

    def reboot(
        self,
        instance: RpcInstance,
        disks: Sequence[AssembledDisk],
        *,
        kind: RebootType,
        timeout_s: float = 120,
    ) -> None:
        """Reboot: ``soft`` in the same machine, ``hard`` and ``full`` in a new one."""
        files = self._machines.files(instance.name)
        if kind is RebootType.SOFT and can_reboot_softly(files):
            soft_reboot(files, timeout_s)
        else:
            super().reboot(instance, disks, kind=kind, timeout_s=timeout_s)

    def balloon(self, name: str, memory_mib: int) -> None:
        """Set the memory that a running guest may use."""
        with self._machines.control(name) as monitor:
            monitor.execute("balloon", {"value": memory_mib * _MIB})

    def resize_disk(self, instance: RpcInstance, disk: AssembledDisk) -> None:
        """Let the running machine see that a disk has grown."""
        self._hotplug.resize_disk(instance, disk)
