"""Where the parts of a virtual cluster are: directories, names, addresses.  Pure.

    BASE/vcluster.json                   the record of the cluster
    BASE/node1.example.com/              root directory of a node (GANETI_ROOTDIR)
    BASE/shared/file-storage/            the shared-file-storage of every node
    127.A.B.n                            address of node n; A and B are the cluster's own
    127.A.B.254                          address of the cluster

Source: ARCHITECTURE, "Virtual clusters".
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from ganeti.base import json
from ganeti.base.daemons import FACES
from ganeti.base.errors import ErrorCode, OpPrereqError, ProtocolError
from ganeti.base.paths import UNIX_SOCKET_PATH_BYTES_MAX, VIRTUAL_CLUSTER_RECORD, Paths

DOMAIN: Final = "example.com"
CLUSTER_HOST_NUMBER: Final = 254
NODES_MAX: Final = 200
SHARED_DIRECTORY: Final = "shared/file-storage"
# The longest socket that a node makes for itself; sockets of instances are below, by number.
LONGEST_SOCKET: Final = "/var/run/ganeti/socket/ganeti-wconfd"


class VirtualCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A virtual cluster as its record describes it.

    ``without`` names the daemons that it does not run; all nodes obey it.
    """

    base: str
    network: str  # the first three numbers of all addresses, as 127.83.7
    node_names: tuple[str, ...]
    hypervisor: str
    without: tuple[str, ...] = ()
    version: int = 1

    @property
    def cluster_name(self) -> str:
        """Name of the cluster, which resolves on every node."""
        return f"cluster.{DOMAIN}"

    @property
    def cluster_address(self) -> str:
        """Address of the cluster's name."""
        return f"{self.network}.{CLUSTER_HOST_NUMBER}"

    @property
    def first_node(self) -> str:
        """The node that makes the cluster, its master until a failover."""
        return self.node_names[0]

    @property
    def record_path(self) -> str:
        """Path of the file that describes the cluster."""
        return os.path.join(self.base, VIRTUAL_CLUSTER_RECORD)

    @property
    def shared_directory(self) -> str:
        """Directory behind the shared-file-storage of all nodes."""
        return os.path.join(self.base, SHARED_DIRECTORY)

    def address_of(self, node_name: str) -> str:
        """Return a node's address."""
        return f"{self.network}.{self.node_names.index(node_name) + 1}"

    def paths_of(self, node_name: str) -> Paths:
        """Return the paths of a node."""
        return Paths(os.path.join(self.base, node_name))

    def find_node(self, name: str) -> str:
        """Return the full name of a node given by its full or short name.

        Raises:
            OpPrereqError: no such node; the text names all that exist.
        """
        for known in self.node_names:
            if name in (known, known.partition(".")[0]):
                return known
        raise OpPrereqError(
            f"no node {name!r} in {self.base}; there are: {', '.join(self.node_names)}",
            ErrorCode.NOENT,
        )

    def hosts(self) -> Mapping[str, str]:
        """Return {name: address} of everything that has a name."""
        table = {name: self.address_of(name) for name in self.node_names}
        table[self.cluster_name] = self.cluster_address
        return table

    def hosts_text(self) -> str:
        """Return the content of the hosts file of every node."""
        lines = ["127.0.0.1\tlocalhost"]
        lines += [
            f"{address}\t{name} {name.partition('.')[0]}" for name, address in self.hosts().items()
        ]
        return "\n".join(lines) + "\n"

    def encode(self) -> bytes:
        """Return the content of the record."""
        return msgspec.json.format(json.dumps(msgspec.to_builtins(self)), indent=2) + b"\n"


def node_names(count: int) -> tuple[str, ...]:
    """Return the names of so many nodes.

    Raises:
        OpPrereqError: too few or too many.
    """
    if not 1 <= count <= NODES_MAX:
        raise OpPrereqError(f"a virtual cluster has 1 to {NODES_MAX} nodes, not {count}")
    return tuple(f"node{number}.{DOMAIN}" for number in range(1, count + 1))


def check_without(names: Iterable[str]) -> None:
    """Refuse to leave out a daemon that does not exist or that a cluster needs.

    Raises:
        OpPrereqError: the text lists the daemons that can be left out.
    """
    for name in names:
        if name not in FACES:
            raise OpPrereqError(
                f"a cluster cannot go without {name!r}, only without {', '.join(FACES)}"
            )


def decode_record(data: bytes, base: str) -> VirtualCluster:
    """Read the record of the cluster in a directory, which may have been moved.

    Raises:
        OpPrereqError: it cannot be understood.
    """
    try:
        found = json.loads_as(VirtualCluster, data)
    except ProtocolError as err:
        raise OpPrereqError(
            f"{os.path.join(base, VIRTUAL_CLUSTER_RECORD)} cannot be understood: {err.message}"
        ) from err
    return msgspec.structs.replace(found, base=base)


def check_base(base: str, names: tuple[str, ...]) -> None:
    """Refuse a base directory whose sockets would have names too long for the kernel.

    Raises:
        OpPrereqError: too long; the text says by how much.
    """
    longest = max((os.path.join(base, name) + LONGEST_SOCKET for name in names), key=len)
    length = len(os.fsencode(longest))
    if length > UNIX_SOCKET_PATH_BYTES_MAX:
        excess = length - UNIX_SOCKET_PATH_BYTES_MAX
        raise OpPrereqError(
            f"the base directory {base} ({len(os.fsencode(base))} bytes) is {excess} too many:"
            f" the socket {longest} would have {length} bytes,"
            f" {UNIX_SOCKET_PATH_BYTES_MAX} are possible",
            ErrorCode.ENVIRON,
        )


def candidate_networks(base: str, tries: int) -> Iterator[str]:
    """Yield networks to try for a cluster; the same base begins with the same one.

    127.0.x and the broadcast-like 255 are left out.
    """
    for attempt in range(tries):
        digest = hashlib.sha256(f"{base}#{attempt}".encode()).digest()
        yield f"127.{digest[0] % 254 + 1}.{digest[1] % 254 + 1}"
