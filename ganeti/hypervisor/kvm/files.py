"""The files of a virtual machine on its node, and the files that its parameters name.

Sockets have short names made from the instance's, because a socket's path must not have more than
107 bytes; a link of the instance's full name beside the other files leads to each of them.

    RUN_DIR/kvm/<12 hex digits>.<c|i|s|g|v|n>  sockets: control, info, serial, guest agent, VNC, NBD
    RUN_DIR/kvm/<12 hex digits>.f              for a moment: the way to a shared directory
    RUN_DIR/kvm-hypervisor/ctrl/<name>.<...>   links to them
    RUN_DIR/kvm-hypervisor/pid/<name>          written by QEMU, locked while it runs
    RUN_DIR/kvm-hypervisor/conf/<name>.runtime the machine that runs
    RUN_DIR/kvm-hypervisor/incoming/<name>     there while the instance is being received: empty
                                               until the moment that it is told to run
    RUN_DIR/kvm-hypervisor/tpm/<name>          the process that is the machine's TPM
    RUN_DIR/kvm-hypervisor/shares/<name>/<tag> the process for a shared directory, and its view
    RUN_DIR/kvm-hypervisor/still/<name>        locked while a snapshot lets the guest stand still
    VNC_BIND_ADDRESS/<name>.vnc                link to the socket, where that is a directory
    LOG_DIR/kvm/<name>.log, <name>.serial.log  the output of QEMU and of the guest's serial console

A machine that 3.0 started has its sockets in ``ctrl`` instead, called ``<name>.qmp``, ``.monitor``
and ``.serial``, and more files in ``uid`` and ``nic``.

On a virtual node a file that a parameter names is looked for below the node's root first, then
on the machine.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import GenericError, HypervisorError
from ganeti.base.paths import UNIX_SOCKET_PATH_BYTES_MAX, Paths
from ganeti.hypervisor.interface import check_name
from ganeti.hypervisor.kvm.params import SPICE_PASSWORD_BYTES_MAX, VNC_PASSWORD_BYTES, KvmParams
from ganeti.hypervisor.params import missing_here
from ganeti.system.environment import check_socket_path
from ganeti.system.files import ensure_directory, read_bytes, remove_if_exists

_SUFFIXES: Final[Mapping[str, str]] = {
    "control": "c",
    "info": "i",
    "serial": "s",
    "agent": "g",
    "vnc": "v",
    "nbd": "n",
    "share": "f",
}
_SUFFIXES_OF_3_0: Final = {"control": "qmp", "info": "qmp", "serial": "serial"}
_ALL_OF_3_0: Final = ("monitor", "qmp", "serial", "shutdown", "kvmd")
_BACKLOG: Final = 16  # QEMU serves one client of a socket at a time, others wait here
_DIRECTORY_MODE: Final = 0o750
RUNTIME_SUFFIX: Final = ".runtime"


def console_lock(socket_path: str) -> str:
    """Return the path of the lock that the user of a console holds."""
    return f"{socket_path}.lock"


@dataclass(frozen=True, slots=True)
class MachineFiles:
    """The files of one instance's machine on one node."""

    paths: Paths
    name: str

    def __post_init__(self) -> None:
        check_name(self.name)

    @property
    def pid_file(self) -> str:
        """The number of the QEMU process."""
        return f"{self.paths.kvm_dir}/pid/{self.name}"

    @property
    def runtime(self) -> str:
        """The machine that runs, as it was made."""
        return f"{self.paths.kvm_dir}/conf/{self.name}{RUNTIME_SUFFIX}"

    @property
    def incoming(self) -> str:
        """A mark: the instance is being received, and must not run by itself."""
        return f"{self.paths.kvm_dir}/incoming/{self.name}"

    @property
    def standstill(self) -> str:
        """A note: the guest stands still for a moment, and is to go on."""
        return f"{self.paths.kvm_dir}/still/{self.name}"

    @property
    def log(self) -> str:
        """The messages of QEMU."""
        return f"{self.paths.log_kvm_dir}/{self.name}.log"

    @property
    def tpm_pid_file(self) -> str:
        """The number of the process that is the machine's TPM."""
        return f"{self.paths.kvm_dir}/tpm/{self.name}"

    @property
    def tpm_log(self) -> str:
        """The messages of the machine's TPM."""
        return f"{self.paths.log_kvm_dir}/{self.name}.tpm.log"

    @property
    def shares(self) -> str:
        """The directory with the processes that share directories with the guest."""
        return f"{self.paths.kvm_dir}/shares/{self.name}"

    @property
    def shares_log(self) -> str:
        """The messages of these processes."""
        return f"{self.paths.log_kvm_dir}/{self.name}.shares.log"

    @property
    def serial_log(self) -> str:
        """The output of the guest's serial console."""
        return f"{self.paths.log_kvm_dir}/{self.name}.serial.log"

    def socket_path(self, kind: str) -> str:
        """Return the path of a socket: control, info, serial, agent, vnc, nbd or share.

        That of a machine that 3.0 started, if it is there and ours is not.
        """
        path = self._own_socket(kind)
        if kind in _SUFFIXES_OF_3_0 and not os.path.exists(path):
            other = f"{self.paths.kvm_dir}/ctrl/{self.name}.{_SUFFIXES_OF_3_0[kind]}"
            if os.path.exists(other):
                return other
        return path

    def _own_socket(self, kind: str) -> str:
        digest = hashlib.sha256(self.name.encode()).hexdigest()[:12]
        return f"{self.paths.run_dir}/kvm/{digest}.{_SUFFIXES[kind]}"

    @property
    def monitor_for_3_0(self) -> str:
        """The monitor by which 3.0 stops an instance; "" if its path would be too long."""
        path = f"{self.paths.kvm_dir}/ctrl/{self.name}.monitor"
        return path if len(os.fsencode(path)) <= UNIX_SOCKET_PATH_BYTES_MAX else ""

    @property
    def uid_file_of_3_0(self) -> str:
        """The user id that 3.0 took from the pool for the machine."""
        return f"{self.paths.kvm_dir}/uid/{self.name}"

    def link(self, kind: str) -> str:
        """Return the path of the link, with the instance's name, to a socket."""
        return f"{self.paths.kvm_dir}/ctrl/{self.name}.{kind}"

    def vnc_link(self, directory: str) -> str:
        """Return the path of the link to VNC's socket in a directory that a parameter names."""
        return os.path.join(self.paths.localize(directory), f"{self.name}.vnc")

    def make_directories(self) -> None:
        """Make the directories for all of these files."""
        files = (self.pid_file, self.runtime, self.incoming, self.link("info"), self.log)
        for path in (*files, self.tpm_pid_file):
            ensure_directory(os.path.dirname(path), _DIRECTORY_MODE)
        ensure_directory(os.path.dirname(self._own_socket("info")), _DIRECTORY_MODE)

    def listen(self, kind: str) -> socket.socket:
        """Make a socket, its link, and listen on it.

        Raises:
            OpPrereqError: the path is too long; the text says by how much.
            HypervisorError: it cannot be made.
        """
        path = self._own_socket(kind)
        check_socket_path(path)
        remove_if_exists(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(path)
            os.chmod(path, 0o600)
            listener.listen(_BACKLOG)
            remove_if_exists(self.link(kind))
            os.symlink(path, self.link(kind))
        except OSError as err:
            listener.close()
            raise HypervisorError(f"cannot make the socket {path}: {err.strerror}") from err
        return listener

    def remove(self) -> None:
        """Remove every file but the logs."""
        for kind in _SUFFIXES:
            remove_if_exists(self.link(kind))
            remove_if_exists(self._own_socket(kind))
        for suffix in _ALL_OF_3_0:
            remove_if_exists(f"{self.paths.kvm_dir}/ctrl/{self.name}.{suffix}")
        remove_if_exists(self.uid_file_of_3_0)
        shutil.rmtree(f"{self.paths.kvm_dir}/nic/{self.name}", ignore_errors=True)
        for path in (self._own_socket("serial"), self.link("serial")):
            remove_if_exists(console_lock(path))
        for path in (self.runtime, self.incoming, self.standstill, self.pid_file):
            remove_if_exists(path)


FILE_PARAMETERS: Final = (
    "cdrom2_image_path",
    "cdrom_image_path",
    "floppy_image_path",
    "initrd_path",
    "kernel_path",
    "spice_password_file",
    "vnc_password_file",
)
DIRECTORY_PARAMETERS: Final = ("mem_path", "vnc_x509_path")
_FILE_BYTES_MAX: Final = 256


def local_file(path: str, paths: Paths) -> str:
    """Return where a file is on this node."""
    if paths.root and path.startswith("/"):
        below = os.path.normpath(paths.root + path)
        if below.startswith(paths.root + "/") and os.path.exists(below):
            return below
    return path


def local_files(params: KvmParams, paths: Paths) -> dict[str, str]:
    """Return {path in a parameter: path on this node}, where the two differ."""
    named = (params.text(name) for name in (*FILE_PARAMETERS, *DIRECTORY_PARAMETERS))
    found = {path: local_file(path, paths) for path in named if path.startswith("/")}
    return {path: local for path, local in found.items() if local != path}


def read_password(parameter: str, path: str, paths: Paths) -> str:
    """Return the first line of a password file; for VNC what its protocol uses of it.

    Viewers cut longer ones in the same way, and instances of Ganeti 3.0 may have them.

    Raises:
        OpPrereqError: it cannot be read, is empty, or longer than SPICE allows.
    """
    try:
        data = read_bytes(local_file(path, paths), _FILE_BYTES_MAX)
    except (OSError, GenericError) as err:
        text = err.message if isinstance(err, GenericError) else err.strerror
        raise missing_here(parameter, f"cannot read {path}: {text}") from err
    password = data.partition(b"\n")[0].decode("utf-8", "replace").strip()
    if not password:
        raise missing_here(parameter, f"there is no password in {path}")
    if parameter == "vnc_password_file":
        return password.encode()[:VNC_PASSWORD_BYTES].decode("utf-8", "ignore")
    if len(password.encode()) > (most := SPICE_PASSWORD_BYTES_MAX):
        raise missing_here(parameter, f"the password in {path} has more than {most} characters")
    return password
