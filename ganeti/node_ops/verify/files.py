"""The checks of `verify` in the file system of this node."""

import hashlib
import os
import stat
from typing import Final

from ganeti.base.allowed_directories import refused_directories
from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.storage import allowed_paths
from ganeti.store import accounts
from ganeti.system import files, programs

# Source: constants.json, "verify": SSL_CERT_EXPIRATION_ERROR and SSL_CERT_EXPIRATION_WARN.
_EXPIRATION_ERROR_DAYS: Final = 7
_EXPIRATION_WARN_DAYS: Final = 30
_SECONDS_PER_DAY: Final = 86400
_PEM_BYTES_MAX: Final = 1 << 20
_FILE_BYTES_MAX: Final = 16 << 20  # of those that the master sends
_STORED_FILES_MAX: Final = 100_000  # some three times the disks of a large shared directory
_CLIENT_PEM_MODES: Final = frozenset({0o440, 0o400})


class NothingToSayError(Exception):
    """The result has no key for this check: all is well, or another node is to look."""


def fingerprints(node: NodeContext, wire_paths: list[str]) -> dict[str, str]:
    """Return {path: SHA-1 of its content}; what cannot be read, or is no file, is left out."""
    found: dict[str, str] = {}
    for wire_path in wire_paths:
        try:
            local = os.path.realpath(node.paths.localize(wire_path))
            content = files.read_regular(local, _FILE_BYTES_MAX)
        except (OSError, GenericError):
            continue
        if content is not None:
            found[wire_path] = hashlib.sha1(content, usedforsecurity=False).hexdigest()
    return found


def client_certificate(paths: Paths, now: float) -> tuple[str | None, str]:
    """Return (null, digest) of the node's client certificate, or (severity, message)."""
    from ganeti.system import certificates  # many milliseconds, and rarely needed

    path = paths.client_pem
    pem = files.read_bytes_or_none(path, _PEM_BYTES_MAX)
    if pem is None:
        return "ERROR", f"client certificate {path} does not exist"
    facts = certificates.facts(pem, path)
    left_days = (facts.not_after - now) / _SECONDS_PER_DAY
    if left_days <= _EXPIRATION_ERROR_DAYS:
        return "ERROR", f"client certificate {path}: {_expiry_text(left_days)}"
    if left_days <= _EXPIRATION_WARN_DAYS:
        return "WARNING", f"client certificate {path}: {_expiry_text(left_days)}"
    if stat.S_IMODE(os.stat(path).st_mode) not in _CLIENT_PEM_MODES:
        return "WARNING", f"client certificate {path} can be read or changed by others"
    return None, facts.digest


def not_executable(node: NodeContext, wire_paths: list[str]) -> list[str]:
    """Return the programs that cannot be run here."""
    return [path for path in wire_paths if not programs.is_runnable(node.paths.localize(path))]


def oob_programs(node: NodeContext, wire_paths: list[str]) -> list[str | None]:
    """Return for each out-of-band program null, or its problem."""
    answers: list[str | None] = []
    for path in wire_paths:
        local = node.paths.localize(path)
        if not os.path.exists(local):
            answers.append(f"out-of-band program {path} does not exist")
        elif not programs.is_runnable(local):
            answers.append(f"out-of-band program {path} is not executable")
        else:
            answers.append(None)
    return answers


def storage_directory(node: NodeContext, path: str) -> str:
    """Return the problem of a storage directory, or nothing.

    Raises:
        NothingToSayError: it is as it should be.
    """
    return _said(allowed_paths.storage_directory_problem(path, node.paths))


def mount_point(node: NodeContext, path: str) -> str:
    """Do the same for a directory that is made when something is mounted there."""
    return _said(allowed_paths.storage_directory_problem(path, node.paths, must_exist=False))


def _said(message: str | None) -> str:
    if message is None:
        raise NothingToSayError
    return message


def forbidden_storage_paths(node: NodeContext, who: str) -> list[str]:
    """Return the allowed file storage paths that lie in the system's directories.

    Raises:
        NothingToSayError: another node is to look at them.
    """
    if who != node.hostname:
        raise NothingToSayError
    return refused_directories(allowed_paths.load_allowed_paths(node.paths))


def stored_disks(node: NodeContext, wire_directories: list[str]) -> list[str]:
    """Return the files in storage directories and below, as their paths are on the wire.

    Raises:
        GenericError: there are too many.
    """
    paths = node.paths
    allowed = frozenset(allowed_paths.load_allowed_paths(paths))
    found: list[str] = []
    for wire_directory in wire_directories:
        if wire_directory not in allowed:
            continue  # told by its own check; nothing else of this node is to be listed
        for directory, _subdirectories, names in os.walk(paths.localize(wire_directory)):
            found += (paths.globalize(os.path.join(directory, name)) for name in names)
            if len(found) > _STORED_FILES_MAX:
                text = f"holds more than {_STORED_FILES_MAX} files, too many to list"
                raise GenericError(f"{wire_directory} {text}")
    return sorted(found)


_STRANGERS_MAX: Final = 5


def node_setup(node: NodeContext) -> list[str]:
    """Return the programs and files that a node needs and this machine lacks, and wrong owners."""
    strangers = _strangers(node.paths) if accounts.has_accounts(node.paths) else []
    if node.paths.root:
        return strangers
    missing = [path for path in ("/proc/sys", "/proc/sysrq-trigger") if not os.path.exists(path)]
    lacking = [
        f"{path} does not exist, so the node cannot be restarted by force" for path in missing
    ]
    return [*lacking, *strangers]


def _strangers(paths: Paths) -> list[str]:
    """Return files with another owner or mode than in 3.0; some by name, the others by number."""
    found = list(accounts.differences(paths))
    shown = [
        f"{paths.globalize(each.path)} is {each.found}, not {each.wanted}; 'ensure-dirs' there"
        " puts that right"
        for each in found[:_STRANGERS_MAX]
    ]
    if len(found) > len(shown):
        shown.append(f"{len(found) - len(shown)} more files belong to others than they should")
    return shown


def _expiry_text(left_days: float) -> str:
    """Say when a certificate ends."""
    return "it has expired" if left_days <= 0 else f"it expires in about {left_days:.0f} days"
