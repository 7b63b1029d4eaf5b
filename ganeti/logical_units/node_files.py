"""Files that nodes need besides the configuration: keys, certificates, known hosts, hypervisors'.

Which file goes to which nodes is a table.  The administrator adds to it by a list on the master,
``/etc/ganeti/distributed-files``, which is distributed itself.  Only files that are there on the
master are sent, and a node takes only the files that it accepts.

Source: node_rpc.json, "upload_file_allowed_paths"; design-2.0, "master candidates"; design-2.1,
"Redistribute Config" and "VNC Console Password".
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ganeti.base.errors import GenericError, LockError
from ganeti.base.paths import Paths
from ganeti.base.text import listed_paths
from ganeti.logical_units import lookup
from ganeti.logical_units.context import JobContext, alone
from ganeti.objects.hypervisors import CONSOLE_PASSWORD_FILES, Hypervisor
from ganeti.objects.model import Cluster, Instance, Node
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import CompressedText, FileDetails
from ganeti.system import files
from ganeti.system.filelock import FileLock

FILE_BYTES_MAX: Final = 16 << 20


class Audience(Enum):
    """Which nodes need a file."""

    ALL = "all nodes"
    WITH_INSTANCES = "nodes that are vm-capable"
    CANDIDATES = "master candidates"

    def includes(self, node: Node) -> bool:
        """Tell whether a node needs the file."""
        if self is Audience.CANDIDATES:
            return node.master_candidate
        return self is Audience.ALL or node.vm_capable


@dataclass(frozen=True, slots=True)
class NodeFile:
    """A file that should be the same on the master and on some nodes.

    ``path`` stands without a root.  Files not ``sent`` are put on nodes by the administrator, who
    alone decides on their contents; they are compared, but never overwritten.
    """

    path: str
    audience: Audience
    sent: bool = True
    is_expected: bool = False  # on the master; its absence is told


_ALWAYS: Final[Mapping[str, Audience]] = {  # names of well-known paths
    **dict.fromkeys(("hmac_key", "known_hosts", "cluster_domain_secret"), Audience.ALL),
    **dict.fromkeys(("rapi_pem", "spice_pem", "spice_ca_pem"), Audience.ALL),
    "distributed_files_list": Audience.ALL,
    **dict.fromkeys(("ssh_pub_keys", "ssh_revoked_keys", "rapi_users"), Audience.CANDIDATES),
    **dict.fromkeys(("rapi_roles", "rapi_tokens"), Audience.CANDIDATES),
    "ha_authority_key": Audience.CANDIDATES,
}
_PASSWORD_FILES: Final = ("vnc_password_file", "spice_password_file")


def files_of(cluster: Cluster, instances: Iterable[Instance] = ()) -> list[NodeFile]:
    """Return the files that a cluster with these settings and instances has."""
    paths = Paths()
    found = [NodeFile(getattr(paths, name), audience) for name, audience in _ALWAYS.items()]
    if cluster.modify_etc_hosts:
        found.append(NodeFile(paths.etc_hosts, Audience.ALL))
    of_hypervisors = dict.fromkeys(
        path for name in cluster.enabled_hypervisors for path in Hypervisor(name).traits.files
    )
    found += [NodeFile(path, Audience.WITH_INSTANCES) for path in of_hypervisors]
    passwords = set(password_files(cluster, instances)) - set(of_hypervisors)
    found += [NodeFile(path, Audience.WITH_INSTANCES) for path in sorted(passwords)]
    if any(each.traits.is_file for each in cluster.enabled_disk_templates):
        found.append(NodeFile(paths.file_storage_paths_file, Audience.WITH_INSTANCES, sent=False))
    return found


def password_files(cluster: Cluster, instances: Iterable[Instance] = ()) -> Iterator[str]:
    """Yield the files of console passwords of the cluster, operating systems and instances.

    Instances move between nodes, so these are to be the same everywhere.  Of an instance, which may
    be a user's, only those count that have a name of such files: no other file of the master is
    read for it.
    """
    for hypervisors in (cluster.hvparams, *cluster.os_hvp.values()):
        for name in cluster.enabled_hypervisors:
            yield from _password_files(hypervisors.get(name, {}))
    for instance in instances:
        for path in _password_files(instance.hvparams):
            if CONSOLE_PASSWORD_FILES.fullmatch(path):
                yield path


def _password_files(hvparams: Mapping[str, object]) -> Iterator[str]:
    return (str(hvparams[key]) for key in _PASSWORD_FILES if hvparams.get(key))


def _content(path: str) -> bytes | None:
    """Read a file, or that to which the administrator linked it; None if there is none.

    Raises:
        OSError: it cannot be read.
        GenericError: it is too large, or no file.
    """
    return files.read_regular(os.path.realpath(path), FILE_BYTES_MAX)


def _reason(err: OSError | GenericError) -> str:
    return err.message if isinstance(err, GenericError) else err.strerror or str(err)


def _files_here(
    paths: Paths,
    cluster: Cluster,
    instances: Iterable[Instance],
    tell: Callable[[str, str], object],
) -> list[NodeFile]:
    """Return all files, also those that the administrator listed on this node, the master.

    Args:
        tell: gets the path and the reason if the administrator's list cannot be read.
    """
    found = files_of(cluster, instances)
    try:
        text = _content(paths.distributed_files_list) or b""
    except (OSError, GenericError) as err:
        tell(paths.globalize(paths.distributed_files_list), _reason(err))
        return found
    listed = dict.fromkeys(listed_paths(text.decode("utf-8", "replace")))
    known = {file.path for file in found}
    return found + [
        NodeFile(path, Audience.ALL, is_expected=True) for path in listed if path not in known
    ]


def read_details(paths: Paths, path: str) -> FileDetails | None:
    """Read a local file as arguments for upload_file; None if there is none.

    Raises:
        OSError: it cannot be read.
        GenericError: it is too large, or no file.
    """
    content = _content(path)
    if content is None:
        return None
    status = os.stat(path)
    return FileDetails(
        paths.globalize(path),
        CompressedText(content),
        status.st_mode & 0o7777,
        *files.owner_names(status),
        status.st_atime,
        status.st_mtime,
    )


@dataclass(frozen=True, slots=True)
class Distribution:
    """How many files there were to send, and the names of nodes, those that lack one after it."""

    files: int
    nodes: frozenset[str]
    failed: frozenset[str]


def distribute(context: JobContext, cluster: Cluster, nodes: Iterable[Node]) -> Distribution:
    """Send the files of the cluster to nodes; a file that a node does not take is only told.

    Returns:
        The files and the nodes.
    """
    others = _others(cluster, nodes)
    names = frozenset(node.name for node in others)
    lock = _sending_alone(context) if others else None
    if lock is None:
        return Distribution(0, names, names)
    count = 0
    failed: set[str] = set()
    instances = lookup.all_instances(context.config)
    tell = functools.partial(_tell_unreadable, context)
    with lock:
        for file in _files_here(context.paths, cluster, instances, tell):
            targets = [node for node in others if file.audience.includes(node)]
            details = _read(context, file) if file.sent and targets else None
            if details is not None:
                count += 1
                failed |= _upload(context, details, targets)
    return Distribution(count, names, frozenset(failed))


def send_hosts(context: JobContext, cluster: Cluster, nodes: Iterable[Node]) -> None:
    """Send the hosts file, in which a node came or went, to other nodes."""
    if cluster.modify_etc_hosts:
        send(context, context.paths.etc_hosts, _others(cluster, nodes))


def _others(cluster: Cluster, nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes to which files are sent: the online ones but the master."""
    return [node for node in nodes if node.uuid != cluster.master_node and not node.offline]


def send(context: JobContext, path: str, nodes: Iterable[Node]) -> None:
    """Send one local file to nodes; errors are told as by `distribute`."""
    lock = _sending_alone(context)
    if lock is None:
        return
    with lock:
        details = _read_local(context, path)
        if details is not None:
            _upload(context, details, nodes)


def _sending_alone(context: JobContext) -> FileLock | None:
    """Take the lock under which files are read and sent, or say that another job has it.

    Without it what was read first, and is older, could arrive last.
    """
    try:
        return alone(context, "sent-files", "sends files to nodes")
    except LockError as err:
        context.warn(
            f"files are not sent to nodes: {err.message}; type 'gnt-cluster redist-conf' later"
        )
        return None


def _tell_unreadable(context: JobContext, path: str, reason: str) -> None:
    context.warn(f"cannot read file {path}, which nodes need: {reason}")


def _read_local(context: JobContext, path: str) -> FileDetails | None:
    """Read a local file that nodes need; tells why it cannot be read, and that alone."""
    try:
        return read_details(context.paths, path)
    except (OSError, GenericError) as err:
        _tell_unreadable(context, context.paths.globalize(path), _reason(err))
        return None


def _read(context: JobContext, file: NodeFile) -> FileDetails | None:
    local = context.paths.localize(file.path)
    details = _read_local(context, local)
    if details is None and file.is_expected and not os.path.exists(local):
        context.warn(f"file {file.path} is to be distributed, but it is not on the master")
    return details


def _upload(context: JobContext, details: FileDetails, targets: Iterable[Node]) -> set[str]:
    """Send a file to nodes; returns the names of those that did not take it."""
    failed = set()
    for name, result in context.nodes.call_all(NodeCalls.upload_file, targets, details).items():
        if result.error is not None:
            failed.add(name)
            context.warn(
                f"cannot send file {details.path} to node {name}, call upload_file: {result.error}"
            )
    return failed


@dataclass(frozen=True, slots=True)
class FileSums:
    """SHA-1 of the files as the master has them, in hex; (path, reason) of those it cannot read."""

    sums: Sequence[tuple[NodeFile, str]]
    unreadable: Sequence[tuple[str, str]] = ()

    @property
    def paths(self) -> list[str]:
        """The files that nodes are asked about."""
        return sorted(file.path for file, _ in self.sums)

    def of(self, node: Node) -> dict[str, str]:
        """Return {path: sum} of the files that a node should have, as the master has them."""
        return {file.path: digest for file, digest in self.sums if file.audience.includes(node)}


def file_sums(paths: Paths, cluster: Cluster, instances: Iterable[Instance]) -> FileSums:
    """Read the files of this node, the master."""
    sums = []
    unreadable: dict[str, str] = {}
    for file in _files_here(paths, cluster, instances, unreadable.__setitem__):
        try:
            content = _content(paths.localize(file.path))
        except (OSError, GenericError) as err:
            unreadable[file.path] = _reason(err)
            continue
        if content is not None:
            sums.append((file, hashlib.sha1(content, usedforsecurity=False).hexdigest()))
    return FileSums(sums, tuple(unreadable.items()))
