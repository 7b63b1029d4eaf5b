"""Files that the master distributes: only those that are listed, never an older configuration.

Nor does a node take a configuration of a master that it does not follow any more.

Names of nodes in the hosts file are changed one by one.

Source: node_rpc.json, "upload_file_allowed_paths"; ARCHITECTURE, invariants 4, 8 and 11.
"""

import contextlib
import grp
import logging
import os
import pwd
import stat
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.base.json import loads_as
from ganeti.base.paths import Paths
from ganeti.base.text import listed_paths
from ganeti.config.deltas.journal import records_in
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.node_ops.machine import config_copy
from ganeti.node_ops.machine.config_copy import ConfigHead
from ganeti.node_ops.machine.master_writes import from_master
from ganeti.objects.hypervisors import CONSOLE_PASSWORD_FILES
from ganeti.protocol.node_rpc_values import (
    CompressedText,
    ConfigPatch,
    ConfigVersion,
    FileDetails,
    SsconfPatch,
)
from ganeti.store import ssconf
from ganeti.store.master_facts import keep_ssconf
from ganeti.system import files
from ganeti.system.filelock import FileLock
from ganeti.system.files import Piece

logger = logging.getLogger(__name__)

ALLOWED_PATHS: Final = frozenset(
    {
        "/etc/ganeti/distributed-files",
        "/etc/ganeti/kvm-vif-bridge",
        "/etc/ganeti/lxc-vif-bridge",
        "/etc/ganeti/vnc-cluster-password",
        "/etc/hosts",
        "/etc/xen/scripts/vif-bridge",
        "/etc/xen/xen/xl.conf",
        "/etc/xen/xend-config.sxp",
        "/var/lib/ganeti/cluster-domain-secret",
        "/var/lib/ganeti/config.data",
        "/var/lib/ganeti/ganeti_pub_keys",
        "/var/lib/ganeti/ganeti_revoked_keys",
        "/var/lib/ganeti/high-availability-ca.key",
        "/var/lib/ganeti/hmac.key",
        "/var/lib/ganeti/known_hosts",
        "/var/lib/ganeti/rapi.pem",
        "/var/lib/ganeti/rapi/roles",
        "/var/lib/ganeti/rapi/tokens",
        "/var/lib/ganeti/rapi/users",
        "/var/lib/ganeti/spice-ca.pem",
        "/var/lib/ganeti/spice.pem",
    }
)

_MODE_BITS: Final = 0o777
_WRITABLE_BY_OTHERS: Final = 0o022
_LIST_BYTES_MAX: Final = 1 << 20
_RAPI_DIRECTORY_MODE: Final = 0o750
_HOSTS_MODE: Final = 0o644
_HOSTS_BYTES_MAX: Final = 16 << 20
_HOSTS_LOCK_S: Final = 10.0

# The states of the simple configuration that this process has written last, whole, by data
# directory.  A daemon that starts knows none, as its files may be of before a power cut.
_ssconf_states: Final[dict[str, str]] = {}
_ssconf_lock: Final = threading.Lock()


class Files(NodeHandler):
    """Files that the master distributes, and names in the hosts file."""

    def upload_file(self, file_name: FileDetails) -> None:
        if self.paths.localize(file_name.path) != self.paths.config_data:
            write_distributed(self.paths, file_name)
            return
        with from_master(self.node, lambda: _serial_of(file_name.content.content)):
            write_distributed(self.paths, file_name)

    def upload_file_single(
        self,
        file_name: str,
        content: CompressedText,
        mode: int,
        uid: str,
        gid: str,
        atime: float,
        mtime: float,
    ) -> None:
        self.upload_file(FileDetails(file_name, content, mode, uid, gid, atime, mtime))

    def config_patch(
        self, patch: ConfigPatch, mode: int, uid: str, gid: str, atime: float, mtime: float
    ) -> bool:
        path = self.paths.config_data
        details = FileDetails(path, CompressedText(b""), mode, uid, gid, atime, mtime)
        with from_master(self.node, lambda: patch.version.serial_no):
            return config_copy.patch(self.paths, patch, partial(_write, self.paths, path, details))

    def config_confirm(
        self, version: ConfigVersion, digest: str, mode: int, uid: str, gid: str
    ) -> bool:
        path = self.paths.config_data
        details = FileDetails(path, CompressedText(b""), mode, uid, gid, 0.0, 0.0)
        with (
            from_master(self.node, lambda: version.serial_no),
            contextlib.suppress(FileNotFoundError),
        ):
            return _has_owner(self.paths, details) and config_copy.confirm(
                self.paths, version, digest
            )
        return False

    def config_append(self, lines: CompressedText) -> bool:
        with from_master(self.node, lambda: _newest_serial(lines.content)):
            return config_copy.append(self.paths, lines.content)

    def write_ssconf_files(self, values: Mapping[str, str]) -> None:
        with _ssconf_lock:
            _ssconf_states.pop(self.paths.data_dir, None)
            _log_changed(ssconf.write_values(self.paths, values))

    def ssconf_accept(self, serial_no: int, values: Mapping[str, str]) -> None:
        self.ssconf_patch(serial_no, "", "", values)

    def ssconf_patch(
        self, serial_no: int, base: str, state: str, values: Mapping[str, str]
    ) -> bool:
        with _ssconf_lock:
            before = _ssconf_states.pop(self.paths.data_dir, "")
            if base not in ("", before):
                return False
            _log_changed(keep_ssconf(self.paths, serial_no=serial_no, values=dict(values)))
            _ssconf_states[self.paths.data_dir] = state
        return True

    def copies_patch(
        self,
        patch: ConfigPatch,
        mode: int,
        uid: str,
        gid: str,
        atime: float,
        mtime: float,
        simple: SsconfPatch,
    ) -> tuple[bool, bool]:
        if not self.config_patch(patch, mode, uid, gid, atime, mtime):
            return False, False
        return True, self.ssconf_patch(simple.serial_no, simple.base, simple.state, simple.values)

    def etc_hosts_modify(self, mode: str, name: str, ip: str | None) -> bool:
        if mode == "add":
            if not ip:
                raise GenericError("adding a name to the hosts file needs an address")
            change = partial(with_entry, ip=ip, name=name)
        elif mode == "remove":
            if ip:
                raise GenericError("removing a name from the hosts file takes no address")
            change = partial(without_name, name=name)
        else:
            raise GenericError(f"unknown way to change the hosts file: {mode!r}")
        path = self.paths.etc_hosts
        with _changing_hosts(self.node):
            data = files.read_bytes_or_none(path, _HOSTS_BYTES_MAX) or b""
            before = data.decode("utf-8", "surrogateescape")
            after = change(before)
            if after != before:
                files.write_durable(path, after.encode("utf-8", "surrogateescape"), _HOSTS_MODE)
        return True


def _serial_of(config: bytes) -> int:
    return loads_as(ConfigHead, config).serial_no


def _newest_serial(lines: bytes) -> int:
    """Return the serial number that the records of a journal lead to."""
    return max((each.change.version.serial_no for each in records_in(lines)), default=0)


def _changing_hosts(context: NodeContext) -> FileLock:
    """Return the lock that keeps changes of the hosts file apart, of threads too; it is taken."""
    return FileLock(f"{context.paths.lock_dir}/ganeti-etc-hosts.lock").taken(
        _HOSTS_LOCK_S,
        f"the hosts file of node {context.hostname} is being changed; try again later",
    )


def _log_changed(keys: Sequence[str]) -> None:
    if keys:
        logger.info("ssconf: changed %s", ", ".join(sorted(keys)))


def write_distributed(paths: Paths, details: FileDetails) -> None:
    """Write one distributed file durably.

    Raises:
        GenericError: the file is not on the list, or this node has a newer configuration.
    """
    path = paths.localize(details.path)
    if not _is_accepted(paths, paths.globalize(path)):
        raise GenericError(
            f"file {details.path!r} is not one that this node accepts from the master; its"
            f" administrator can list it in {Paths().accepted_files_list} there"
        )
    content = details.content.content
    if path == paths.config_data:
        config_copy.replace(paths, content, partial(_write, paths, path, details))
    else:
        _write(paths, path, details, [content])


def _is_accepted(paths: Paths, path: str) -> bool:
    """Tell whether a file may come from the master: by our list, or by that of this node.

    Raises:
        GenericError: others than the administrator could write the node's list.
    """
    if path in ALLOWED_PATHS or CONSOLE_PASSWORD_FILES.fullmatch(path):
        return True
    own_list = paths.accepted_files_list
    text = files.read_bytes_or_none(own_list, _LIST_BYTES_MAX)
    if text is None or path == paths.globalize(own_list):
        return False
    status = os.stat(own_list)
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & _WRITABLE_BY_OTHERS:
        raise GenericError(
            f"{paths.globalize(own_list)} must belong to root and be writable by nobody else; no"
            " file that it lists is accepted"
        )
    return path in listed_paths(text.decode("utf-8", "replace"))


def _write(paths: Paths, path: str, details: FileDetails, pieces: Sequence[Piece]) -> None:
    """Write the file with mode, owner and times."""
    if os.path.dirname(path) == paths.rapi_dir:
        files.ensure_directory(paths.rapi_dir, _RAPI_DIRECTORY_MODE)
    files.write_durable(
        path,
        pieces,
        details.mode & _MODE_BITS,
        owner=_owner(paths, details),
        times=(details.atime, details.mtime),
    )


def _has_owner(paths: Paths, details: FileDetails) -> bool:
    """Tell whether a file has mode and owner as they would be written.

    Raises:
        FileNotFoundError: there is none.
    """
    status = os.stat(details.path)
    return stat.S_IMODE(status.st_mode) == details.mode & _MODE_BITS and _owner(paths, details) in (
        None,
        (status.st_uid, status.st_gid),
    )


def _owner(paths: Paths, details: FileDetails) -> tuple[int, int] | None:
    """Return user and group id; None where files belong to the user of the daemon.

    Raises:
        GenericError: this node does not know the user or the group.
    """
    if paths.root or os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(details.owner).pw_uid, grp.getgrnam(details.group).gr_gid
    except KeyError as err:
        raise GenericError(f"file {details.path}: {err.args[0]} on this node") from err


def with_entry(text: str, ip: str, name: str) -> str:
    """Return a hosts file where a full name and its short form stand for one address.

    Other names of that address stay on its line; the name is taken off other lines.
    """
    names = list(dict.fromkeys([name, name.partition(".")[0]]))
    lines = without_names(text, names).splitlines()
    for index, line in enumerate(lines):
        entry, hash_sign, comment = line.partition("#")
        words = entry.split()
        if words and words[0] == ip:
            joined = "\t".join([ip, " ".join([*names, *words[1:]])])
            lines[index] = f"{joined} #{comment}" if hash_sign else joined
            return "\n".join(lines) + "\n"
    return "\n".join([*lines, f"{ip}\t{' '.join(names)}"]) + "\n"


def without_name(text: str, name: str) -> str:
    """Return a hosts file that knows neither a full name nor its short form."""
    return without_names(text, [name, name.partition(".")[0]])


def without_names(text: str, names: list[str]) -> str:
    """Return a hosts file without some names; lines left without a name go."""
    lines = []
    for line in text.splitlines():
        entry, hash_sign, comment = line.partition("#")
        words = entry.split()
        left = [word for word in words[1:] if word not in names]
        if len(left) == len(words[1:]):
            lines.append(line)
        elif left:
            joined = "\t".join([words[0], " ".join(left)])
            lines.append(f"{joined} #{comment}" if hash_sign else joined)
    return "".join(line + "\n" for line in lines)
