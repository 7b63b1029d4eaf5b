"""Where this process lives: root directory, host name, addresses.

A virtual node is a process environment: ``GANETI_ROOTDIR`` moves every path, ``GANETI_HOSTNAME``
is the node's name, and names are looked up in the hosts file below the root.  Without these
variables the same code runs on a real node.

Source: ARCHITECTURE, "Virtual clusters"; constants.json, "virtual_cluster".
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError, ResolverError
from ganeti.base.paths import UNIX_SOCKET_PATH_BYTES_MAX, Paths

ROOTDIR_VARIABLE: Final = "GANETI_ROOTDIR"
HOSTNAME_VARIABLE: Final = "GANETI_HOSTNAME"
_LOOPBACK_NETWORK: Final = 127
_USUAL_VERSION: Final = 4


def current_paths() -> Paths:
    """Return the paths of the node that this process runs on.

    Raises:
        OpPrereqError: the root is not absolute, or so long that sockets below it cannot be made.
    """
    root = os.environ.get(ROOTDIR_VARIABLE, "")
    if root and not root.startswith("/"):
        raise OpPrereqError(f"{ROOTDIR_VARIABLE}={root!r} is not an absolute path")
    paths = Paths(root)
    check_socket_path(paths.wconfd_socket)
    return paths


def check_socket_path(path: str) -> None:
    """Refuse a Unix socket path that the kernel would not take.

    Raises:
        OpPrereqError: too long; the text says by how much.
    """
    length = len(os.fsencode(path))
    if length > UNIX_SOCKET_PATH_BYTES_MAX:
        raise OpPrereqError(
            f"the socket path {path} has {length} bytes, {UNIX_SOCKET_PATH_BYTES_MAX} are possible;"
            " use a shorter base directory",
            ErrorCode.ENVIRON,
        )


def is_virtual() -> bool:
    """Tell whether this process runs on a virtual node."""
    return bool(os.environ.get(ROOTDIR_VARIABLE))


def architecture() -> tuple[str, str]:
    """Return the width of addresses ("64bits") and the kind of machine ("x86_64")."""
    return f"{sys.maxsize.bit_length() + 1}bits", os.uname().machine


def own_hostname() -> str:
    """Return the full name of this node."""
    name = os.environ.get(HOSTNAME_VARIABLE)
    if name:
        return name
    import socket  # slow to import, and few job processes need to know where they are

    return socket.getfqdn()


def node_environment(paths: Paths, hostname: str) -> dict[str, str]:
    """Return the variables that make a child process run on that virtual node."""
    return {ROOTDIR_VARIABLE: paths.root, HOSTNAME_VARIABLE: hostname}


def parse_hosts(text: str) -> Mapping[str, str]:
    """Return {name: address} of a hosts file; the first line that has a name wins."""
    table: dict[str, str] = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        for name in words[1:]:
            table.setdefault(name.lower(), words[0])
    return table


def resolve(
    name: str, paths: Paths | None = None, *, ip_version: int = _USUAL_VERSION
) -> tuple[str, str]:
    """Look a host name up; returns (full name, address).

    On a virtual node only the node's own hosts file is asked.

    Args:
        ip_version: of the address that is wanted where the name has both.

    Raises:
        ResolverError: no such name.
    """
    paths = current_paths() if paths is None else paths
    return _resolve_virtual(name, paths) if paths.root else _resolve_real(name, ip_version)


def _resolve_virtual(name: str, paths: Paths) -> tuple[str, str]:
    try:
        with open(paths.etc_hosts, encoding="utf-8") as file:
            text = file.read()
    except OSError as err:
        raise ResolverError(name, err.errno, f"{paths.etc_hosts}: {err.strerror}") from err
    table, wanted = parse_hosts(text), name.lower()
    address = table.get(wanted)
    if address is None:
        raise ResolverError(name, None, f"no such name in {paths.etc_hosts}")
    same = [known for known, its in table.items() if its == address]
    full = next((known for known in same if known.startswith(wanted + ".")), None)
    return full or _canonical(text, wanted), address


def _canonical(text: str, wanted: str) -> str:
    """Return the first name in the line of a hosts file that has a name."""
    lines = (line.partition("#")[0].lower().split()[1:] for line in text.splitlines())
    return next(names[0] for names in lines if wanted in names)


def _resolve_real(name: str, ip_version: int) -> tuple[str, str]:
    import socket

    try:
        found = socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM, 0, socket.AI_CANONNAME)
    except socket.gaierror as err:
        raise ResolverError(name, err.errno, err.strerror or str(err)) from err
    except UnicodeError as err:
        raise ResolverError(name, None, "not a host name") from err
    wanted = socket.AF_INET if ip_version == _USUAL_VERSION else socket.AF_INET6
    by_family = sorted(found, key=lambda entry: entry[0] != wanted)
    return found[0][3] or name, str(by_family[0][4][0])


def is_own_address(address: str) -> bool:
    """Tell whether this node can take connections at an address, and has it.

    The kernel may be set to let programs wait at addresses that are elsewhere until a failover
    (``ip_nonlocal_bind``), so one of an interface is meant; the loopback network is a whole.
    """
    import socket

    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        packed = socket.inet_pton(family, address)
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((socket.inet_ntop(family, packed), 0))
    except OSError:
        return False
    if family == socket.AF_INET and packed[0] == _LOOPBACK_NETWORK:
        return True
    import psutil  # takes longer to load than a command line may

    found = (each for own in psutil.net_if_addrs().values() for each in own)
    texts = [each.address.partition("%")[0] for each in found if each.family == family]
    return packed in [socket.inet_pton(family, text) for text in texts]
