"""Files that the master distributes: only those that are listed, never an older configuration.

Names of nodes in the hosts file are changed one by one.

Source: node_rpc.json, "upload_file_allowed_paths"; ARCHITECTURE, invariants 4, 8 and 11.
"""

import grp
import logging
import os
import pwd
import threading
from collections.abc import Mapping
from typing import Final

import msgspec

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.json import loads_as
from ganeti.base.paths import Paths
from ganeti.base.text import listed_paths
from ganeti.node_ops.context import NodeHandler
from ganeti.objects.hypervisors import CONSOLE_PASSWORD_FILES
from ganeti.protocol.node_rpc_values import CompressedText, FileDetails
from ganeti.store import ssconf
from ganeti.system import files

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


class _ClusterHead(msgspec.Struct, frozen=True):
    """The identity of a cluster."""

    uuid: str = ""


class ConfigHead(msgspec.Struct, frozen=True):
    """The age of a configuration; everything else is skipped when it is read."""

    serial_no: int
    cluster: _ClusterHead


class Files(NodeHandler):
    """Files that the master distributes, and names in the hosts file."""

    def upload_file(self, file_name: FileDetails) -> None:
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

    def write_ssconf_files(self, values: Mapping[str, str]) -> None:
        changed = ssconf.write_values(self.paths, values)
        if changed:
            logger.info("ssconf: changed %s", ", ".join(sorted(changed)))

    def etc_hosts_modify(self, mode: str, name: str, ip: str | None) -> bool:
        path = self.paths.etc_hosts
        data = files.read_bytes_or_none(path, _HOSTS_BYTES_MAX) or b""
        before = data.decode("utf-8", "surrogateescape")
        if mode == "add":
            if not ip:
                raise GenericError("adding a name to the hosts file needs an address")
            after = with_entry(before, ip, name)
        elif mode == "remove":
            if ip:
                raise GenericError("removing a name from the hosts file takes no address")
            after = without_name(before, name)
        else:
            raise GenericError(f"unknown way to change the hosts file: {mode!r}")
        if after != before:
            files.write_durable(path, after.encode("utf-8", "surrogateescape"), _HOSTS_MODE)
        return True


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
    if path == paths.config_data:
        with _config_mutex:
            text = refusal(_present_head(path), loads_as(ConfigHead, details.content.content))
            if text is not None:
                raise GenericError(text)
            _write(paths, path, details)
    else:
        _write(paths, path, details)


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


def refusal(present: ConfigHead | None, incoming: ConfigHead) -> str | None:
    """Decide whether one configuration may replace another; returns why not.

    The configuration of another cluster, left over on this node, has no say.
    """
    if present is None or present.cluster != incoming.cluster:
        return None
    if incoming.serial_no < present.serial_no:
        return (
            f"the configuration sent has serial number {incoming.serial_no}, older than"
            f" {present.serial_no} on this node; not replaced"
        )
    return None


_config_mutex = threading.Lock()
_present_heads: dict[tuple[str, int, int, int], ConfigHead] = {}


def _present_head(path: str) -> ConfigHead | None:
    """Return the age of the configuration on disk; None when there is no readable one."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    key = (path, status.st_ino, status.st_mtime_ns, status.st_size)
    if key not in _present_heads:
        try:
            head = loads_as(ConfigHead, files.read_bytes(path))
        except ProtocolError as err:
            logger.warning("%s is unreadable and will be replaced: %s", path, err.message)
            return None
        _present_heads.clear()
        _present_heads[key] = head
    return _present_heads[key]


def _write(paths: Paths, path: str, details: FileDetails) -> None:
    """Write the file with mode, owner and times."""
    if os.path.dirname(path) == paths.rapi_dir:
        files.ensure_directory(paths.rapi_dir, _RAPI_DIRECTORY_MODE)
    files.write_durable(
        path,
        details.content.content,
        details.mode & _MODE_BITS,
        owner=_owner(paths, details),
        times=(details.atime, details.mtime),
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
