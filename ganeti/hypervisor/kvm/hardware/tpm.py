"""A TPM for a guest: swtpm, a process beside QEMU whose state the instance keeps.

The state is on a disk of the instance that is called `TPM_STATE`, which only swtpm writes, so it
goes with the others.  A live migration brings what the TPM has in its memory, by QEMU.  swtpm is
connected to QEMU alone, and ends with it.

Source: manual page swtpm(8); documentation of QEMU, "QEMU TPM Device".
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import HypervisorError, failing_as
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.hypervisor.kvm import state
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.hardware.disks import kept_disk
from ganeti.hypervisor.kvm.machine import Machine
from ganeti.hypervisor.params import missing_here
from ganeti.objects.disk_templates import TPM_STATE
from ganeti.system.files import read_bytes_or_none, remove_if_exists
from ganeti.system.process import wait_gone
from ganeti.system.programs import is_runnable

_PLACES: Final = ("/usr/bin/swtpm", "/usr/local/bin/swtpm")
_STATE_BYTES: Final = 2 << 20  # more than any TPM 2 has
_END_TIMEOUT_S: Final = 5.0
_PID_BYTES_MAX: Final = 64
_MIB: Final = 1 << 20


def find(hostname: str) -> str:
    """Return the path of swtpm.

    Raises:
        OpPrereqError: this node does not have it.
    """
    found = next(filter(is_runnable, _PLACES), None)
    if found is None:
        text = f"node {hostname} does not have the program swtpm (package swtpm)"
        raise missing_here("tpm", text)
    return found


def disk_for(machine: Machine, disks: Mapping[str, AssembledDisk]) -> AssembledDisk | None:
    """Return the disk with the state of a machine's TPM; None if it has no TPM.

    Raises:
        OpPrereqError: the instance has no fitting one.
    """
    if not machine.params.flag("tpm"):
        return None
    wish = "tpm needs a disk for the TPM's state"
    return kept_disk(machine.name, TPM_STATE, wish, disks.values(), _STATE_BYTES)


def start(
    program: str,
    files: MachineFiles,
    disk: AssembledDisk,
    ends: contextlib.ExitStack,
    undo: contextlib.ExitStack,
) -> int:
    """Start swtpm; returns the descriptor by which QEMU talks to it.

    Args:
        ends: closes our ends of the connection, once QEMU has its own.
        undo: ends swtpm, if the start of the machine fails.

    Raises:
        HypervisorError: it cannot be run.
    """
    end(files)
    stretch(disk)
    of_swtpm, of_qemu = socket.socketpair()
    ends.enter_context(of_qemu)
    with of_swtpm:
        command = [
            *(program, "socket", "--tpm2", "--terminate"),
            *("--tpmstate", f"backend-uri=file://{disk.dev_path}"),
            *("--ctrl", f"type=unixio,clientfd={of_swtpm.fileno()}"),
            *("--pid", f"file={files.tpm_pid_file}"),
        ]
        pid = state.start_process(command, files, [of_swtpm.fileno()], log=files.tpm_log)
    undo.callback(state.kill_process, pid)
    return of_qemu.fileno()


def stretch(disk: AssembledDisk) -> None:
    """Give a file the size that the configuration says: swtpm makes it as short as its state."""
    with failing_as(HypervisorError, f"the state of a TPM in {disk.dev_path}"):
        size = disk.size_mib * _MIB
        if os.path.isfile(disk.dev_path) and os.path.getsize(disk.dev_path) < size:
            os.truncate(disk.dev_path, size)


def end(files: MachineFiles) -> None:
    """Wait until the swtpm of a machine that ended has ended too, by force if need be."""
    data = (read_bytes_or_none(files.tpm_pid_file, _PID_BYTES_MAX) or b"").strip()
    if data.isdigit() and _is_of(int(data), files):
        pid = int(data)
        if not wait_gone(pid, _END_TIMEOUT_S) and not state.end_process(pid):
            raise HypervisorError(f"instance {files.name}: swtpm, process {pid}, cannot be ended")
    remove_if_exists(files.tpm_pid_file)


def _is_of(pid: int, files: MachineFiles) -> bool:
    """Tell whether a process is the swtpm of a machine, and not another with its number."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return os.fsencode(f"file={files.tpm_pid_file}") in file.read().split(b"\0")
    return False
