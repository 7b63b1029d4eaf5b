"""The hypervisor "kvm": every instance is a QEMU process, with KVM where that works.

After its start a machine is known by its process and its monitor alone, so nothing is lost when
the node daemon restarts.  This module only puts the parts together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from ganeti.base.errors import GenericError, HotplugError, HypervisorError
from ganeti.hypervisor.interface import (
    AssembledDisk,
    HypervisorInfo,
    InstanceInfo,
    MigrationStatus,
    NodeEnv,
    SnapshotAddress,
)
from ganeti.hypervisor.kvm import disk_hotplug, migration, nic_hotplug, shutdown, snapshot, state
from ganeti.hypervisor.kvm.accelerator import KVM, choose_accelerator
from ganeti.hypervisor.kvm.consoles import consoles
from ganeti.hypervisor.kvm.devices import disk_place
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.launch import bring_up, clean_up
from ganeti.hypervisor.kvm.machine import Machine, build_machine, with_machine_type
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.hypervisor.kvm.params import KvmParams, check_params
from ganeti.hypervisor.kvm.process import find_process
from ganeti.hypervisor.kvm.qemu_binary import find_qemu
from ganeti.hypervisor.kvm.runtime import (
    Runtime,
    decode_runtime,
    load_runtime,
    runtime_for_migration,
    save_runtime,
)
from ganeti.hypervisor.kvm.validation import validate_on_node
from ganeti.hypervisor.node_resources import node_resources
from ganeti.hypervisor.power import powercycle
from ganeti.netdev import taps
from ganeti.netdev.backends import (
    NetworkAbilities,
    NicBackend,
    choose_backend,
    choose_backends,
)
from ganeti.objects.console import InstanceConsole
from ganeti.objects.hypervisors import RebootType
from ganeti.objects.rpc_instance import RpcInstance, RpcNIC
from ganeti.system.files import remove_if_exists, write_atomic

_MIB: Final = 1 << 20


class KvmHypervisor:
    """The hypervisor "kvm" on one node."""

    info = HypervisorInfo(
        name="kvm",
        can_migrate=True,
        can_migrate_live=True,
        can_hotplug=True,
        needs_network_port=True,
    )

    def __init__(self, env: NodeEnv) -> None:
        self._env = env

    def _files(self, name: str) -> MachineFiles:
        return MachineFiles(self._env.paths, name)

    def _control(self, name: str) -> Monitor:
        files = self._files(name)
        if find_process(files) is None:
            raise HypervisorError(f"instance {name} does not run on {self._env.hostname}")
        return Monitor.connect(name, files.socket_path("control"))

    @contextlib.contextmanager
    def _disks_alone(self, name: str) -> Iterator[Monitor]:
        """Talk to a machine whose disks nothing of an earlier job uses."""
        with self._control(name) as monitor:
            snapshot.end(monitor, self._files(name))
            yield monitor

    # Looking

    def list_instances(self) -> list[str]:
        """Return the names of the instances here; not those still being received."""
        return [
            name
            for name in state.known_names(self._env)
            if (
                state.look(self._files(name)) is not None
                if state.is_incoming(self._files(name))
                else find_process(self._files(name)) is not None
            )
        ]

    def instance_info(self, name: str) -> InstanceInfo | None:
        """Look at one instance; None when it is not here."""
        return state.look(self._files(name))

    def all_instances_info(self) -> list[InstanceInfo]:
        """Look at all instances here."""
        return state.look_at_all(self._env)

    def node_info(self) -> dict[str, object]:
        """Return the node's memory and processors; what the processes hold is the instances'."""
        return node_resources(sum(info.memory_mib for info in self.all_instances_info()))

    def consoles(
        self, instance: RpcInstance, *, node_name: str, node_address: str
    ) -> list[InstanceConsole]:
        """Return every way to the console: serial, VNC or SPICE."""
        return consoles(instance, self._env, node_name=node_name, node_address=node_address)

    def verify(self) -> str | None:
        """Say that there is no QEMU, if so."""
        try:
            find_qemu()
        except GenericError as err:
            return err.message
        return None

    def check_params(self, hvparams: Mapping[str, object]) -> None:
        """Check filled parameters against each other."""
        check_params(hvparams)

    def validate_params(self, hvparams: Mapping[str, object]) -> None:
        """Check filled parameters against this node."""
        check_params(hvparams)
        validate_on_node(KvmParams(hvparams), self._env)

    # Starting and stopping

    def start(
        self, instance: RpcInstance, disks: Sequence[AssembledDisk], *, paused: bool = False
    ) -> None:
        """Start a machine and let its guest run, or stand still."""
        self._make_room(self._files(instance.name))
        check_params(instance.hvparams)
        params = KvmParams(instance.hvparams)
        accelerator = choose_accelerator(
            params.text("kvm_flag"), find_qemu(params.text("kvm_path")), self._env.paths
        )
        machine = build_machine(instance, disks, accelerator=accelerator)
        runtime = Runtime(machine=machine, paused=paused)
        with bring_up(self._env, runtime, disks, self._backends(instance)) as monitor:
            self._note_machine_type(monitor, machine)
            if not paused:
                self._let_go(monitor, instance.name)

    def _let_go(self, monitor: Monitor, name: str) -> None:
        try:
            monitor.execute("cont")
        except HypervisorError:
            shutdown.kill_now(self._files(name))
            raise

    def _make_room(self, files: MachineFiles) -> None:
        """Remove what is left of an earlier run; refuse if that is still of use."""
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
                    f"instance {files.name} is already here, and {status}, on {self._env.hostname}"
                )
            shutdown.kill_now(files)
        clean_up(files)

    def _note_machine_type(self, monitor: Monitor, machine: Machine) -> None:
        """Write down which machine an alias such as "pc" stands for in this QEMU."""
        exact = with_machine_type(machine, monitor.query_list("query-machines"))
        files = self._files(machine.name)
        runtime = load_runtime(files)
        assert runtime is not None  # bring_up wrote it
        save_runtime(files, msgspec.structs.replace(runtime, machine=exact))

    def _backends(self, instance: RpcInstance) -> list[NicBackend]:
        return choose_backends(instance, self._abilities(instance.nics))

    def _abilities(self, nics: Sequence[RpcNIC]) -> NetworkAbilities:
        script, is_virtual = self._env.paths.kvm_vif_script, self._env.is_virtual
        return taps.abilities(nics, script=script, is_virtual=is_virtual)

    def stop(self, name: str, *, force: bool = False, timeout_s: float = 120) -> None:
        """Stop a machine: by its power button, and if that does not help, by force."""
        shutdown.stop(self._files(name), force=force, timeout_s=timeout_s)

    def reboot(
        self,
        instance: RpcInstance,
        disks: Sequence[AssembledDisk],
        *,
        kind: RebootType,
        timeout_s: float = 120,
    ) -> None:
        """Reboot: ``soft`` in the same machine, ``hard`` and ``full`` in a new one."""
        if kind is RebootType.SOFT and shutdown.can_reboot_softly(self._files(instance.name)):
            shutdown.soft_reboot(self._files(instance.name), timeout_s)
            return
        self.stop(instance.name, timeout_s=timeout_s)
        self.start(instance, disks)

    def balloon(self, name: str, memory_mib: int) -> None:
        """Set the memory that a running guest may use."""
        with self._control(name) as monitor:
            monitor.execute("balloon", {"value": memory_mib * _MIB})

    # Moving

    def migratable(self, instance: RpcInstance) -> None:
        """Check that the machine runs, or stands still, and nothing moves it already."""
        with self._control(instance.name) as monitor:
            status = monitor.status()
        if status not in ("running", "paused"):
            raise HypervisorError(f"instance {instance.name} is {status} and cannot be migrated")

    def migration_info(self, instance: RpcInstance) -> str:
        """Describe the running machine for the node that will accept it."""
        files = self._files(instance.name)
        runtime = load_runtime(files)
        with self._control(instance.name) as monitor:
            status = monitor.status()
        if runtime is None:
            raise HypervisorError(f"instance {instance.name}: the file {files.runtime} is missing")
        return runtime_for_migration(runtime, paused=status == "paused")

    def accept_instance(
        self,
        instance: RpcInstance,
        info: str,
        target_address: str,
        disks: Sequence[AssembledDisk],
    ) -> str:
        """Start a machine that waits for its memory; returns "address:port"."""
        files = self._files(instance.name)
        runtime = decode_runtime(info, f"migration of instance {instance.name}")
        machine = runtime.machine
        if (machine.name, machine.uuid) != (instance.name, instance.uuid):
            raise HypervisorError(f"instance {instance.name}: the description is of {machine.name}")
        _check_devices(machine, "disks", machine.disks, disks)
        _check_devices(machine, "network interfaces", machine.nics, instance.nics)
        self._clear_incoming(files)
        if machine.accelerator == KVM:
            binary = find_qemu(machine.params.text("kvm_path"))
            choose_accelerator("enabled", binary, self._env.paths)
        with contextlib.ExitStack() as undo:
            files.make_directories()
            write_atomic(files.incoming, b"")
            undo.callback(remove_if_exists, files.incoming)
            backends = self._backends(instance)
            with bring_up(self._env, runtime, disks, backends, incoming=True) as monitor:
                undo.callback(shutdown.kill_now, files)
                wanted = KvmParams(instance.hvparams).migration_capabilities()
                migration.set_capabilities(monitor, wanted)
                port = migration.listen(monitor, target_address, migration.migration_port(instance))
            undo.pop_all()
        return migration.join_target(target_address, port)

    def _clear_incoming(self, files: MachineFiles) -> None:
        """Make room for a machine to be received; what waits from an earlier try is removed."""
        if state.look(files) is not None:
            raise HypervisorError(
                f"instance {files.name} is already on {self._env.hostname}; not accepted"
            )
        shutdown.kill_now(files)

    def migrate(self, instance: RpcInstance, target_address: str, *, live: bool) -> None:
        """Begin to send the machine."""
        files = self._files(instance.name)
        with self._disks_alone(instance.name) as monitor:
            runtime = load_runtime(files)
            if runtime is not None:
                save_runtime(files, msgspec.structs.replace(runtime, stopped=not live))
            migration.send(monitor, instance, target_address, live=live)

    def migration_status(self, instance: RpcInstance, *, wait_s: float = 1.0) -> MigrationStatus:
        """Look at a migration from its source, waiting a moment for its end."""
        with self._control(instance.name) as monitor:
            runtime = load_runtime(self._files(instance.name))
            stopped = runtime is not None and runtime.stopped
            return migration.wait_for_end(monitor, wait_s, stopped=stopped)

    def finalize_migration_src(self, instance: RpcInstance, *, success: bool, live: bool) -> None:
        """Remove the machine whose memory has left, or let it run again."""
        files = self._files(instance.name)
        if find_process(files) is None:
            if not success:
                raise HypervisorError(
                    f"instance {instance.name} does not run on {self._env.hostname} any more"
                )
            clean_up(files)
            return
        with self._control(instance.name) as monitor:
            if not success:
                migration.take_back(monitor, instance.name)
                return
            status = monitor.status()
        if status == "running":
            raise HypervisorError(
                f"instance {instance.name} still runs on {self._env.hostname}; not removed"
            )
        shutdown.kill_now(files)

    def finalize_migration_dst(self, instance: RpcInstance, info: str, *, success: bool) -> None:
        """Let the received machine run, or remove what waits for it."""
        files = self._files(instance.name)
        if success:
            paused = bool(info) and decode_runtime(info, "migration").paused
            with self._control(instance.name) as monitor:
                migration.run_received(monitor, instance.name, paused=paused)
            remove_if_exists(files.incoming)
        elif state.is_incoming(files) and state.look(files) is None:
            shutdown.kill_now(files)

    # Changing devices

    def hotplug_supported(self, instance: RpcInstance) -> None:
        """Check that the machine runs, was started by us, and nothing moves it."""
        try:
            self._running_machine(instance.name)
            self.migratable(instance)
        except HypervisorError as err:
            raise HotplugError(err.message) from err

    def _running_machine(self, name: str) -> Runtime:
        files = self._files(name)
        runtime = load_runtime(files)
        if runtime is None:
            raise HotplugError(f"instance {name}: the file {files.runtime} is missing")
        return runtime

    def _save_machine(self, runtime: Runtime, machine: Machine) -> None:
        save_runtime(self._files(machine.name), msgspec.structs.replace(runtime, machine=machine))

    def plug_disk(self, instance: RpcInstance, disk: AssembledDisk) -> str:
        """Add a disk to the running machine; returns its place on the bus."""
        runtime = self._running_machine(instance.name)
        with self._disks_alone(instance.name) as monitor:
            machine, device = disk_hotplug.plug(monitor, runtime.machine, disk)
        self._save_machine(runtime, machine)
        return disk_place(device, machine)

    def unplug_disk(self, instance: RpcInstance, uuid: str) -> None:
        """Take a disk away from the running machine."""
        runtime = self._running_machine(instance.name)
        with self._disks_alone(instance.name) as monitor:
            machine = disk_hotplug.unplug(monitor, runtime.machine, uuid)
        self._save_machine(runtime, machine)

    def plug_nic(self, instance: RpcInstance, nic: RpcNIC, index: int) -> str:
        """Add a network interface to the running machine; returns its place on the bus."""
        runtime = self._running_machine(instance.name)
        backend = choose_backend(instance, index, nic, self._abilities([nic]))
        with self._control(instance.name) as monitor:
            return nic_hotplug.plug(monitor, runtime, nic, backend, self._files(instance.name))

    def unplug_nic(self, instance: RpcInstance, uuid: str) -> None:
        """Take a network interface away from the running machine."""
        runtime = self._running_machine(instance.name)
        with self._control(instance.name) as monitor:
            nic_hotplug.unplug(monitor, runtime, uuid, self._files(instance.name))

    def resize_disk(self, instance: RpcInstance, disk: AssembledDisk) -> None:
        """Let the running machine see that a disk has grown."""
        with self._disks_alone(instance.name) as monitor:
            disk_hotplug.resize(monitor, self._running_machine(instance.name).machine, disk)

    # Snapshots

    def snapshot_supported(self, instance: RpcInstance) -> None:
        """Check that the machine runs, was started by us, and that its QEMU is new enough."""
        self._running_machine(instance.name)
        with self._control(instance.name) as monitor:
            snapshot.check_supported(monitor, instance.name)

    def snapshot_disks(self, instance: RpcInstance, directory: str) -> None:
        """Keep what all disks hold now, for whoever reads it at `snapshot_address`."""
        machine = self._running_machine(instance.name).machine
        with self._control(instance.name) as monitor:
            snapshot.begin(monitor, machine.disks, self._files(instance.name), directory)

    def snapshot_address(self, name: str, uuid: str) -> SnapshotAddress:
        """Return QEMU's socket, and the disk's name there."""
        return SnapshotAddress(self._files(name).socket_path("nbd"), uuid)

    def drop_snapshots(self, name: str) -> None:
        """Remove the snapshots; those of a machine that ended went with it."""
        if find_process(self._files(name)) is not None:
            with self._disks_alone(name):
                pass

    def powercycle(self) -> None:
        """Restart the node."""
        powercycle(self._env)


class _Device(Protocol):
    @property
    def uuid(self) -> str: ...


def _check_devices(
    machine: Machine, kind: str, running: Sequence[_Device], configured: Sequence[_Device]
) -> None:
    """Check that a running machine has the devices that the configuration says.

    Raises:
        HypervisorError: it was changed since; the machine cannot be built again as it runs.
    """
    have, want = {device.uuid for device in running}, {device.uuid for device in configured}
    if have != want:
        raise HypervisorError(
            f"instance {machine.name}: the running machine has {kind}"
            f" {', '.join(sorted(have)) or 'none'}, the configuration"
            f" {', '.join(sorted(want)) or 'none'}; restart it before migrating it"
        )
