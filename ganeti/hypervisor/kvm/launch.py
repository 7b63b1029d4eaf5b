"""Bringing machines up on this node, paused, and ending and resetting them.

A failure while one is brought up leaves nothing behind.  A guest that is to end is asked by
the ACPI power button, again and again because one that still boots does not notice it, and is given
a time; after that, or where it cannot be asked, its QEMU is ended.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from msgspec.structs import replace as replace_fields

from ganeti.base.errors import ErrorCode, HypervisorError, OpPrereqError, failing_as
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import AssembledDisk, NodeEnv
from ganeti.hypervisor.kvm import state
from ganeti.hypervisor.kvm.command import Placement, command_line
from ganeti.hypervisor.kvm.consoles import bound_by, listen_address
from ganeti.hypervisor.kvm.files import MachineFiles, local_files, read_password
from ganeti.hypervisor.kvm.hardware import tpm, virtiofs
from ganeti.hypervisor.kvm.machine import Machine
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorGone, MonitorTimeout
from ganeti.hypervisor.kvm.params import VNC_BASE_PORT, KvmParams
from ganeti.hypervisor.kvm.qemu import find_qemu
from ganeti.hypervisor.kvm.state import Runtime
from ganeti.hypervisor.params import assign_cpus
from ganeti.hypervisor.user_ids import LockedUid, release_uid, request_unused_uid
from ganeti.netdev import taps
from ganeti.netdev.backends import BackendKind, NetworkAbilities, NicBackend, choose_backends
from ganeti.objects.nic import NicMode
from ganeti.objects.rpc_instance import RpcInstance, RpcNIC
from ganeti.system import clock
from ganeti.system.files import ensure_directory, remove_if_exists
from ganeti.system.process import wait_gone

START_TIMEOUT_S: Final = 60.0  # QEMU answers after 0.1 s; huge pages may have to be cleared first


def console_address(machine: Machine, env: NodeEnv, files: MachineFiles) -> str:
    """Return where VNC or SPICE listens on this node: an address or the path of a socket.

    Raises:
        OpPrereqError: the instance has no port for it, or this node no such interface.
    """
    _parameter, bind = bound_by(machine.params)
    if not bind:
        return ""
    if machine.params.vnc_directory:
        return files.socket_path("vnc")
    if machine.network_port is None or machine.network_port < VNC_BASE_PORT:
        raise OpPrereqError(
            f"instance {machine.name} has no network port from {VNC_BASE_PORT} on for its console",
            ErrorCode.STATE,
        )
    return listen_address(machine.params, env)


def _console_password(machine: Machine, env: NodeEnv) -> tuple[str, str]:
    """Return (protocol, password) of the console, ("", "") without."""
    params = machine.params
    for protocol, parameter in (("vnc", "vnc_password_file"), ("spice", "spice_password_file")):
        path = params.text(parameter)
        if path:
            return protocol, read_password(parameter, path, env.paths)
    return "", ""


def _spice_files(params: KvmParams, env: NodeEnv) -> tuple[str, str, str]:
    paths = env.paths
    has_tls = params.flag("spice_use_tls")
    return (paths.spice_ca_pem, paths.spice_pem, paths.spice_pem) if has_tls else ("", "", "")


def bring_up(
    env: NodeEnv,
    runtime: Runtime,
    disks: Sequence[AssembledDisk],
    backends: Sequence[NicBackend],
    *,
    incoming: bool = False,
) -> Monitor:
    """Start QEMU with a machine and return its control monitor; the guest does not run yet.

    Args:
        incoming: the guest comes from another node, where it runs still.  So nothing here may say
            that its address leads here: routed taps are left to `connect_received`.

    Raises:
        HypervisorError: QEMU did not start; the text has its own message.
    """
    machine = runtime.machine
    files = MachineFiles(env.paths, machine.name)
    cpus = assign_cpus(machine.params.text("cpu_mask"), machine.vcpus_now)
    protocol, password = _console_password(machine, env)
    place = _placement(env, files, machine, disks, backends)
    with contextlib.ExitStack() as undo, contextlib.ExitStack() as listeners:
        files.make_directories()
        undo.callback(files.remove)
        if not incoming:  # QEMU only appends to it, so that it can be shortened meanwhile
            with contextlib.suppress(FileNotFoundError):
                os.truncate(files.serial_log, 0)
        _link_vnc(machine.params, files, undo)
        locked = _lock_uid(machine.params, env.paths, undo)
        runtime = replace_fields(runtime, uid=locked.uid if locked is not None else None)
        state.save_runtime(files, state.with_taps(runtime, backends))
        for backend in backends:
            waits = incoming and backend.mode == NicMode.ROUTED
            make_tap(machine, backend, env.paths, undo, connects=not waits)
        sockets = {
            kind: listeners.enter_context(files.listen(kind)).fileno()
            for kind in _socket_kinds(machine.params)
        }
        place = replace(
            place,
            sockets=sockets,
            console_password=bool(protocol),
            incoming=incoming,
            run_as=_run_as(machine.params, locked),
        )
        of_tpm = tpm.disk_for(machine, place.disks)
        if of_tpm is not None:
            sockets["tpm"] = tpm.start(tpm.find(env.hostname), files, of_tpm, listeners, undo)
        shares = machine.params.shares()
        sockets |= virtiofs.start(env, files, shares, listeners, undo)
        pid = state.start_process(command_line(machine, place), files, list(sockets.values()))
        undo.callback(state.kill_process, pid)
        listeners.close()
        monitor = undo.enter_context(_first_contact(files))
        if protocol:
            monitor.execute("set_password", {"protocol": protocol, "password": password})
        pin(monitor, machine.name, cpus)
        if of_tpm is not None:
            tpm.stretch(of_tpm)
        undo.pop_all()
        if locked is not None:
            locked.in_use()
        return monitor


def _link_vnc(params: KvmParams, files: MachineFiles, undo: contextlib.ExitStack) -> None:
    """Make the link to VNC's socket in the directory that it is asked for in, if it is.

    Raises:
        HypervisorError: it cannot be made there.
    """
    if not params.vnc_directory:
        return
    link = files.vnc_link(params.vnc_directory)
    text = f"instance {files.name}: hypervisor parameter vnc_bind_address: cannot make {link}"
    with failing_as(HypervisorError, text):
        ensure_directory(os.path.dirname(link))
        remove_if_exists(link)
        os.symlink(files.socket_path("vnc"), link)
    undo.callback(remove_if_exists, link)


def _lock_uid(params: KvmParams, paths: Paths, undo: contextlib.ExitStack) -> LockedUid | None:
    """Lock a user id for the guest, if it is to have one of its own."""
    if params.text("security_model") != "pool":
        return None
    locked = request_unused_uid(paths)
    undo.callback(locked.release)
    return locked


def _run_as(params: KvmParams, locked: LockedUid | None) -> str:
    """Return the user that QEMU is to become, "" to stay the same."""
    if locked is not None:
        return f"{locked.uid}:{locked.uid}"
    return params.text("security_domain") if params.text("security_model") == "user" else ""


def _placement(
    env: NodeEnv,
    files: MachineFiles,
    machine: Machine,
    disks: Sequence[AssembledDisk],
    backends: Sequence[NicBackend],
) -> Placement:
    """Return the placement as far as it is known before anything is made."""
    params = machine.params
    return Placement(
        monitor_for_3_0=files.monitor_for_3_0,
        binary=find_qemu(params.text("kvm_path")),
        pid_file=files.pid_file,
        serial_log=files.serial_log,
        disks={disk.uuid: disk for disk in disks},
        nics={backend.uuid: backend for backend in backends},
        console_address=console_address(machine, env, files),
        spice_files=_spice_files(params, env),
        files=local_files(params, env.paths),
    )


def _socket_kinds(params: KvmParams) -> list[str]:
    """Return the kinds of sockets that a machine has."""
    kinds = ["control", "info"]
    if params.flag("serial_console"):
        kinds.append("serial")
    if params.flag("use_guest_agent"):
        kinds.append("agent")
    return kinds


def abilities_for(env: NodeEnv, nics: Sequence[RpcNIC]) -> NetworkAbilities:
    """Look up the abilities of the node for some network interfaces."""
    script = env.paths.kvm_vif_script
    return taps.abilities(nics, script=script, is_virtual=env.is_virtual, address=env.address)


def make_tap(
    machine: Machine,
    backend: NicBackend,
    paths: Paths,
    undo: contextlib.ExitStack,
    *,
    connects: bool = True,
) -> None:
    """Make the tap of a network interface, if it needs one."""
    if backend.kind is not BackendKind.TAP:
        return
    taps.create_tap(
        backend,
        vnet_hdr=uses_vnet_hdr(machine.params),
        queues=machine.params.number("virtio_net_queues"),
        script=paths.kvm_vif_script,
        connects=connects,
    )
    undo.callback(taps.remove_tap, backend.tap, backend.mode)


def connect_received(env: NodeEnv, instance: RpcInstance) -> None:
    """Connect the routed taps of a machine that was received, and is to run here now.

    Raises:
        HypervisorError: one cannot be connected.
    """
    runtime = state.load_runtime(MachineFiles(env.paths, instance.name))
    modes = {} if runtime is None else runtime.modes
    if NicMode.ROUTED not in modes.values():
        return
    for backend in choose_backends(instance, abilities_for(env, instance.nics)):
        if modes.get(backend.tap) == NicMode.ROUTED:
            taps.connect_tap(backend, script=env.paths.kvm_vif_script)


def uses_vnet_hdr(params: KvmParams) -> bool:
    """Tell whether taps pass on the checksums that guests leave to a virtio interface."""
    return params.text("nic_type") == "paravirtual" and params.flag("vnet_hdr")


def _first_contact(files: MachineFiles) -> Monitor:
    """Wait for QEMU to be ready; when it ends instead, show its messages."""
    try:
        return Monitor.connect(files.name, files.socket_path("control"), START_TIMEOUT_S)
    except MonitorGone as err:
        said = _said(files) or "it said nothing"
        raise HypervisorError(f"instance {files.name}: QEMU ended at its start: {said}") from err
    except MonitorTimeout as err:
        said = _said(files)
        raise HypervisorError(
            f"instance {files.name}: QEMU was not ready after {START_TIMEOUT_S:g} s: {said}"
        ) from err


def _said(files: MachineFiles) -> str:
    """Return the last messages of QEMU, and of what shares directories with its guest."""
    of_virtiofsd = state.log_tail(files.shares_log) if os.path.exists(files.shares) else ""
    said = (state.log_tail(files.log), of_virtiofsd and f"virtiofsd: {of_virtiofsd}")
    return "; ".join(filter(None, said))


def pin(monitor: Monitor, name: str, cpus: Sequence[frozenset[int] | None]) -> None:
    """Bind each virtual processor to its processors of the node."""
    if not any(cpus):
        return
    threads = monitor.query_list("query-cpus-fast")
    for thread, wanted in zip(threads, cpus, strict=False):
        if wanted is None:
            continue
        text = ",".join(map(str, sorted(wanted)))
        with failing_as(HypervisorError, f"instance {name}: cannot run on processors {text}"):
            os.sched_setaffinity(int(str(thread["thread-id"])), wanted)


def clean_up(files: MachineFiles) -> None:
    """Remove all files and taps of a machine that has ended, its logs excepted."""
    try:
        runtime = state.load_runtime(files)
    except HypervisorError:
        runtime = None  # not ours to understand: at least the files go
    if runtime is not None:
        for tap in runtime.taps:
            taps.remove_tap(tap, runtime.modes.get(tap, NicMode.BRIDGED))
        if runtime.uid is not None:
            release_uid(files.paths, runtime.uid)
        if directory := runtime.machine.params.vnc_directory:
            with contextlib.suppress(OSError):  # it is of no use, whatever has become of it
                remove_if_exists(files.vnc_link(directory))
    tpm.end(files)
    virtiofs.end(files)
    files.remove()


PRESS_INTERVAL_S: Final = 5.0
_EXIT_TIMEOUT_S: Final = 60.0  # QEMU writes back its disks before it ends; Gluster takes 10 s each
_CONNECT_TIMEOUT_S: Final = 5.0
_SHUTDOWN: Final = frozenset({"SHUTDOWN"})


def stop(files: MachineFiles, *, force: bool, timeout_s: float) -> None:
    """Stop a machine and remove its files and taps; does nothing when there is none.

    Raises:
        HypervisorError: its process cannot be ended.
    """
    process = state.find_begun(files)
    if process is not None:
        try:
            path = files.socket_path("control")
            with Monitor.connect(files.name, path, _CONNECT_TIMEOUT_S) as monitor:
                if not force and _has_button(files) and monitor.status() == "running":
                    press_until_down(monitor, timeout_s)
                monitor.execute("quit")
        except (MonitorGone, MonitorTimeout):
            pass  # it is gone, as was wanted, or hangs and will be killed
        if not wait_gone(process.pid, _EXIT_TIMEOUT_S) and not state.end_process(process.pid):
            raise HypervisorError(f"instance {files.name}: process {process.pid} cannot be ended")
    clean_up(files)


def _has_button(files: MachineFiles) -> bool:
    """Tell whether a machine has a power button; without ACPI, pressing it does nothing."""
    try:
        runtime = state.load_runtime(files)
    except HypervisorError:
        return True  # not ours to understand
    return runtime is None or runtime.machine.params.values.get("acpi") is not False


def press_until_down(monitor: Monitor, timeout_s: float) -> bool:
    """Press the power button until the guest has switched itself off; returns whether it has.

    Raises:
        MonitorGone: QEMU ended, as it does when the guest switches itself off.
    """
    deadline = clock.monotonic() + timeout_s
    while (left_s := deadline - clock.monotonic()) > 0:
        monitor.execute("system_powerdown")
        if monitor.wait_event(_SHUTDOWN, min(left_s, PRESS_INTERVAL_S)) is not None:
            return True
    return False


def can_reboot_softly(files: MachineFiles) -> bool:
    """Tell whether a reboot keeps the machine: one that is to exit at it ends its QEMU."""
    runtime = state.load_runtime(files)
    return runtime is None or runtime.machine.params.text("reboot_behavior") != "exit"


def soft_reboot(files: MachineFiles, timeout_s: float) -> None:
    """Let the guest shut down and start again in the same machine; a guest that does not is reset.

    Raises:
        HypervisorError: there is no machine, or it does not run again.
    """
    runtime = state.load_runtime(files)
    if runtime is None or state.find_process(files) is None:
        raise HypervisorError(f"instance {files.name} does not run")
    params = runtime.machine.params
    with Monitor.connect(files.name, files.socket_path("control")) as monitor:
        can_ask = params.flag("acpi") and monitor.schema().has_argument("set-action", "shutdown")
        if can_ask and monitor.status() == "running":
            monitor.execute("set-action", {"shutdown": "pause"})
            press_until_down(monitor, timeout_s)
        monitor.execute("system_reset")
        if monitor.status() != "running":
            monitor.execute("cont")
        if can_ask:
            action = "pause" if params.flag("user_shutdown") else "poweroff"
            monitor.execute("set-action", {"shutdown": action})


def kill_now(files: MachineFiles) -> None:
    """Kill the process of a machine, if there is one, and remove its files and taps.

    Raises:
        HypervisorError: the process does not end.
    """
    process = state.find_begun(files)
    if process is not None and not state.kill_process(process.pid):
        raise HypervisorError(f"instance {files.name}: process {process.pid} cannot be killed")
    clean_up(files)
