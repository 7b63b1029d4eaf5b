"""The simple configuration: one small text file per key, the same on every node.

The facts that a node needs while the master is away: the master's name, the nodes and candidates,
and the certificates of the nodes that may give it orders.  WConfD composes the values; this module
reads and writes the files.

Source: config.json, "ssconf"; constants.json, "ssconf".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ganeti.base.errors import ConfigurationError, GenericError, OpPrereqError
from ganeti.base.paths import SSCONF_BYTES_MAX, Paths
from ganeti.system import files
from ganeti.system.filelock import FileLock

FILE_MODE: Final = 0o444
LOCK_TIMEOUT_S: Final = 10.0  # as long as the job queue's lock is waited for

KEYS: Final = frozenset(
    {
        "cluster_name",
        "cluster_tags",
        "enabled_user_shutdown",
        "file_storage_dir",
        "gluster_storage_dir",
        "hvparams_chroot",
        "hvparams_fake",
        "hvparams_kvm",
        "hvparams_lxc",
        "hvparams_xen-hvm",
        "hvparams_xen-pvm",
        "hypervisor_list",
        "instance_list",
        "maintain_node_health",
        "master_candidates",
        "master_candidates_certs",
        "master_candidates_ips",
        "master_ip",
        "master_netdev",
        "master_netmask",
        "master_node",
        "networks",
        "node_list",
        "node_primary_ips",
        "node_secondary_ips",
        "node_vm_capable",
        "nodegroups",
        "offline_nodes",
        "online_nodes",
        "primary_ip_family",
        "release_version",
        "shared_file_storage_dir",
        "ssh_ports",
        "uid_pool",
    }
)


class NodeAddress(NamedTuple):
    """A node as the simple configuration knows it."""

    name: str
    ip: str


def read_key(paths: Paths, key: str) -> str:
    """Return the value of a key, without its final newline.

    Raises:
        ConfigurationError: there is no such file, or it cannot be read or understood.
    """
    value = read_key_or_none(paths, key)
    if value is None:
        path = paths.ssconf_file(key)
        raise ConfigurationError(f"{path} does not exist; is this node part of a cluster?")
    return value


def read_key_or_none(paths: Paths, key: str) -> str | None:
    """Return the value of a key, or None if it was never written on this node.

    Raises:
        ConfigurationError: the file is there but cannot be read or understood.
    """
    _check_key(key)
    path = paths.ssconf_file(key)
    try:
        data = files.read_bytes_or_none(path, SSCONF_BYTES_MAX)
        return None if data is None else data.decode().removesuffix("\n")
    except OSError as err:
        raise ConfigurationError(f"cannot read {path}: {err.strerror}") from err
    except UnicodeDecodeError as err:
        raise ConfigurationError(f"{path} is not UTF-8 (byte {err.start})") from err
    except GenericError as err:
        raise ConfigurationError(err.message) from err


def read_all(paths: Paths) -> dict[str, str]:
    """Return every key that is there; errors as of `read_key_or_none`."""
    found = ((key, read_key_or_none(paths, key)) for key in sorted(KEYS))
    return {key: value for key, value in found if value is not None}


def encode_values(values: Mapping[str, str]) -> dict[str, bytes]:
    """Return the content of the file of each key: a newline is added unless the value is empty.

    Raises:
        OpPrereqError: an unknown key, or a value too long; nothing is to be written then.
    """
    contents: dict[str, bytes] = {}
    for key, value in values.items():
        _check_key(key)
        if not isinstance(value, str):
            raise OpPrereqError(f"ssconf value of {key} is not a text")
        content = value if not value or value.endswith("\n") else value + "\n"
        data = content.encode()
        if len(data) > SSCONF_BYTES_MAX:
            raise OpPrereqError(
                f"ssconf value of {key} has {len(data)} bytes, {SSCONF_BYTES_MAX} are allowed"
            )
        contents[key] = data
    return contents


def write_values(paths: Paths, values: Mapping[str, str]) -> list[str]:
    """Write the files of these keys, under the lock; return the keys with a changed value.

    All values are checked before the first is written, and all are durable when this returns.

    Raises:
        OpPrereqError: see `encode_values`.
        LockError: another process kept the lock for too long.
        OSError: a file could not be written; those before it are.
    """
    contents = encode_values(values)
    changed: list[str] = []
    lock = FileLock(paths.ssconf_lock)
    lock.acquire(timeout_s=LOCK_TIMEOUT_S)
    try:
        for key, data in contents.items():
            path = paths.ssconf_file(key)
            if files.read_bytes_or_none(path) != data:
                files.write_durable(path, data, FILE_MODE, syncs_directory=False)
                changed.append(key)
        if changed:
            files.fsync_directory(paths.data_dir)
    finally:
        lock.release()
    return changed


def master_node(paths: Paths) -> str:
    """Return the name of the master node; errors as of `read_key`."""
    return read_key(paths, "master_node")


def cluster_name(paths: Paths) -> str:
    """Return the name of the cluster; errors as of `read_key`."""
    return read_key(paths, "cluster_name")


def master_candidates(paths: Paths) -> list[NodeAddress]:
    """Return the master candidates (the master is one) with their primary addresses.

    Raises:
        ConfigurationError: a file is missing, or the two lists do not fit together.
    """
    names = master_candidate_names(paths)
    ips = _lines(read_key(paths, "master_candidates_ips"))
    if len(names) != len(ips):
        raise ConfigurationError(
            f"ssconf_master_candidates has {len(names)} names, ssconf_master_candidates_ips"
            f" {len(ips)} addresses"
        )
    return [NodeAddress(name, ip) for name, ip in zip(names, ips, strict=True)]


def master_candidate_names(paths: Paths) -> list[str]:
    """Return the names of the master candidates; errors as of `read_key`."""
    return _lines(read_key(paths, "master_candidates"))


def node_list(paths: Paths) -> list[str]:
    """Return the names of all nodes."""
    return _lines(read_key(paths, "node_list"))


def offline_nodes(paths: Paths) -> frozenset[str]:
    """Return the names of the nodes marked offline."""
    return frozenset(_lines(read_key(paths, "offline_nodes")))


def node_primary_ips(paths: Paths) -> dict[str, str]:
    """Return {node name: primary address}."""
    return parse_map("node_primary_ips", read_key(paths, "node_primary_ips"), " ")


def candidate_certs(paths: Paths) -> dict[str, str]:
    """Return {node UUID: SHA-1 digest of its client certificate}; empty if never written."""
    value = read_key_or_none(paths, "master_candidates_certs") or ""
    return parse_map("master_candidates_certs", value, "=")


def parse_map(key: str, value: str, separator: str) -> dict[str, str]:
    """Read lines of ``<name><separator><value>``.

    Raises:
        ConfigurationError: a line without the separator; the text names it.
    """
    table: dict[str, str] = {}
    for line in _lines(value):
        name, found, its_value = line.partition(separator)
        if not found:
            raise ConfigurationError(f"ssconf_{key}: no {separator!r} in line {line!r}")
        table[name] = its_value
    return table


def _lines(value: str) -> list[str]:
    return [line for line in value.split("\n") if line]


def _check_key(key: str) -> None:
    if key not in KEYS:
        raise OpPrereqError(f"unknown ssconf key {key!r}")
