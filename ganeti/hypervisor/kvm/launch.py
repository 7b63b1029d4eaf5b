"""Bringing a machine up on this node, paused; whatever fails on the way leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from msgspec.structs import replace as replace_fields

from ganeti.base.errors import ErrorCode, HypervisorError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import AssembledDisk, NodeEnv
from ganeti.hypervisor.kvm import process
from ganeti.hypervisor.kvm.command import command_line
from ganeti.hypervisor.kvm.console_address import bound_by, listen_address
from ganeti.hypervisor.kvm.cpu_mask import assign_cpus
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.machine import Machine
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorGone, MonitorTimeout
from ganeti.hypervisor.kvm.node_files import local_files, read_password
from ganeti.hypervisor.kvm.params import VNC_BASE_PORT, KvmParams
from ganeti.hypervisor.kvm.placement import Placement
from ganeti.hypervisor.kvm.qemu_binary import find_qemu
from ganeti.hypervisor.kvm.runtime import Runtime, load_runtime, save_runtime, with_taps
from ganeti.hypervisor.user_ids import LentUid, release_uid, request_unused_uid
from ganeti.netdev import taps
from ganeti.netdev.backends import BackendKind, NicBackend
from ganeti.objects.nic_modes import NicMode

START_TIMEOUT_S: Final = 60.0  # QEMU answers after 0.1 s; huge pages may have to be cleared first


def console_address(machine: Machine, env: NodeEnv, files: MachineFiles) -> str:
    """Return where VNC or SPICE listens on this node: an address or the path of a socket.

    Raises:
        OpPrereqError: the instance has no port for it, or this node no such interface.
    """
    _parameter, bind = bound_by(machine.params)
    if not bind:
        return ""
    if bind.startswith("/"):
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
    if not params.flag("spice_use_tls"):
        return ("", "", "")
    paths = env.paths
    return (paths.spice_ca_pem, paths.spice_pem, paths.spice_pem)


def bring_up(
    env: NodeEnv,
    runtime: Runtime,
    disks: Sequence[AssembledDisk],
    backends: Sequence[NicBackend],
    *,
    incoming: bool = False,
) -> Monitor:
    """Start QEMU with a machine and return its control monitor; the guest does not run yet.

    Raises:
        HypervisorError: QEMU did not start; the text has its own message.
    """
    machine = runtime.machine
    files = MachineFiles(env.paths, machine.name)
    cpus = assign_cpus(machine.params.text("cpu_mask"), machine.vcpus)
    protocol, password = _console_password(machine, env)
    place = _placement(env, files, machine, disks, backends)
    with contextlib.ExitStack() as undo, contextlib.ExitStack() as listeners:
        files.make_directories()
        undo.callback(files.remove)
        lent = _lend_uid(machine.params, env.paths, undo)
        runtime = replace_fields(runtime, uid=lent.uid if lent is not None else None)
        save_runtime(files, with_taps(runtime, backends))
        for backend in backends:
            make_tap(machine, backend, env.paths, undo)
        sockets = {
            kind: listeners.enter_context(files.listen(kind)).fileno()
            for kind in _socket_kinds(machine.params)
        }
        place = replace(
            place,
            sockets=sockets,
            console_password=bool(protocol),
            incoming=incoming,
            run_as=_run_as(machine.params, lent),
        )
        pid = process.launch(command_line(machine, place), files, list(sockets.values()))
        undo.callback(process.kill, pid)
        listeners.close()
        monitor = undo.enter_context(_first_contact(files))
        if protocol:
            monitor.execute("set_password", {"protocol": protocol, "password": password})
        _pin(monitor, machine.name, cpus)
        undo.pop_all()
        if lent is not None:
            lent.in_use()
        return monitor


def _lend_uid(params: KvmParams, paths: Paths, undo: contextlib.ExitStack) -> LentUid | None:
    """Lend a user id for the guest, if it is to have one of its own."""
    if params.text("security_model") != "pool":
        return None
    lent = request_unused_uid(paths)
    undo.callback(lent.give_back)
    return lent


def _run_as(params: KvmParams, lent: LentUid | None) -> str:
    """Return the user that QEMU is to become, "" to stay what it is."""
    if lent is not None:
        return f"{lent.uid}:{lent.uid}"
    return params.text("security_domain") if params.text("security_model") == "user" else ""


def _placement(
    env: NodeEnv,
    files: MachineFiles,
    machine: Machine,
    disks: Sequence[AssembledDisk],
    backends: Sequence[NicBackend],
) -> Placement:
    """Decide what of the placement is known before anything is made."""
    params = machine.params
    return Placement(
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
    """Return which sockets a machine has."""
    kinds = ["control", "info"]
    if params.flag("serial_console"):
        kinds.append("serial")
    if params.flag("use_guest_agent"):
        kinds.append("agent")
    return kinds


def make_tap(
    machine: Machine, backend: NicBackend, paths: Paths, undo: contextlib.ExitStack
) -> None:
    """Make the tap of a network interface, if that is what it needs."""
    if backend.kind is not BackendKind.TAP:
        return
    taps.create_tap(
        backend,
        vnet_hdr=uses_vnet_hdr(machine.params),
        queues=machine.params.number("virtio_net_queues"),
        script=paths.kvm_vif_script,
    )
    undo.callback(taps.remove_tap, backend.tap, backend.mode)


def uses_vnet_hdr(params: KvmParams) -> bool:
    """Tell whether taps pass on what the guest leaves to the network card, as virtio does."""
    return params.text("nic_type") == "paravirtual" and params.flag("vnet_hdr")


def _first_contact(files: MachineFiles) -> Monitor:
    """Wait for QEMU to be ready; when it dies instead, say what it said."""
    try:
        return Monitor.connect(files.name, files.socket_path("control"), START_TIMEOUT_S)
    except MonitorGone as err:
        said = process.log_tail(files) or "it said nothing"
        raise HypervisorError(f"instance {files.name}: QEMU ended at its start: {said}") from err
    except MonitorTimeout as err:
        said = process.log_tail(files)
        raise HypervisorError(
            f"instance {files.name}: QEMU was not ready after {START_TIMEOUT_S:g} s: {said}"
        ) from err


def _pin(monitor: Monitor, name: str, cpus: Sequence[frozenset[int] | None]) -> None:
    """Bind each virtual processor to its processors of the node."""
    if not any(cpus):
        return
    threads = monitor.query_list("query-cpus-fast")
    for thread, wanted in zip(threads, cpus, strict=False):
        if wanted is None:
            continue
        try:
            os.sched_setaffinity(int(str(thread["thread-id"])), wanted)
        except OSError as err:
            text = ",".join(map(str, sorted(wanted)))
            raise HypervisorError(
                f"instance {name}: cannot run on processors {text}: {err.strerror}"
            ) from err


def clean_up(files: MachineFiles) -> None:
    """Remove what a machine that has ended left on the node, its logs excepted."""
    try:
        runtime = load_runtime(files)
    except HypervisorError:
        runtime = None  # not ours to understand: at least the files go
    if runtime is not None:
        for tap in runtime.taps:
            taps.remove_tap(tap, runtime.modes.get(tap, NicMode.BRIDGED))
        if runtime.uid is not None:
            release_uid(files.paths, runtime.uid)
    files.remove()
