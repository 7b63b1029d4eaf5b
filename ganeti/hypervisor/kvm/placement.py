"""Where a virtual machine is put: what differs from node to node and from start to start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ganeti.hypervisor.interface import AssembledDisk
from ganeti.netdev.backends import NicBackend


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a machine is put: everything that belongs to one node or one start.

    ``files`` says where a file named in a parameter is on this node, if not at that very path.

    ``sockets`` are the descriptors of listening sockets that QEMU inherits: control and info, two
    monitors; serial, the console; agent, that of the guest.  ``console_address`` is where VNC or
    SPICE listens: an address, or for VNC the path of a socket.  ``spice_files`` are certificate
    authority, certificate and key.  ``run_as`` is the user, by name or "uid:gid", that QEMU becomes
    once it has opened all files.
    """

    binary: str
    pid_file: str
    serial_log: str
    sockets: Mapping[str, int] = field(default_factory=dict)
    disks: Mapping[str, AssembledDisk] = field(default_factory=dict)  # by UUID
    nics: Mapping[str, NicBackend] = field(default_factory=dict)  # by UUID
    console_address: str = ""
    console_password: bool = False
    spice_files: tuple[str, str, str] = ("", "", "")
    incoming: bool = False
    run_as: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    def local(self, path: str) -> str:
        """Return where a file named in a parameter is on this node."""
        return self.files.get(path, path)
