"""Directories of a node that are shared with a guest.

Each has a tag, by which the guest mounts it (``mount -t virtiofs TAG /mnt``).  The node's own list,
``/etc/ganeti/shared-dir-paths``, names the directories in which shared ones may lie; without it
none is shared.  Where a path really leads counts, so a link in a shared directory, which a guest
may have made, leads nowhere else.

Source: specification of virtio 1.2, "File System Device"; documentation of the kernel, "virtiofs".
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ganeti.base.allowed_directories import is_below, usable_directories
from ganeti.base.paths import Paths
from ganeti.hypervisor.params import missing_here
from ganeti.system.files import read_listed_paths

PARAMETER: Final = "shared_dirs"
MOST: Final = 8  # each takes a place on the guest's PCI bus
_TAG_BYTES_MAX: Final = 36  # of the field that the device has for it
_TAG: Final = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_READ_ONLY: Final = ":ro"


@dataclass(frozen=True, slots=True)
class Share:
    """A directory that a guest sees; ``path`` is that of the wire, without the node's root."""

    tag: str
    path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Directory:
    """What is shared: a directory by its path without links, and as the kernel knows it."""

    path: str
    device: int
    inode: int


def parse(text: str) -> list[Share]:
    """Read ``TAG=/path;TAG=/path:ro``; a text that is wrong gives shares that are wrong."""
    found = []
    for part in filter(None, (each.strip() for each in text.split(";"))):
        tag, _, path = part.partition("=")
        read_only = path.endswith(_READ_ONLY)
        found.append(Share(tag, path.removesuffix(_READ_ONLY), read_only))
    return found


def mistakes(shares: list[Share]) -> Iterator[str]:
    """Find what is wrong with shares, whatever the node."""
    if len(shares) > MOST:
        yield f"{len(shares)} directories, at most {MOST} are possible"
    seen: set[str] = set()
    for share in shares:
        if not _TAG.fullmatch(share.tag):
            yield (
                f"{share.tag!r} is no tag: letters, digits and -._, and a letter or digit first,"
                " as in data=/srv/data;logs=/var/log/web:ro"
            )
        elif len(share.tag) > _TAG_BYTES_MAX:
            yield f"tag {share.tag} has more than {_TAG_BYTES_MAX} characters"
        elif share.tag in seen:
            yield f"tag {share.tag} is there twice"
        elif not _is_plain(share.path):
            yield f"{share.path!r}, of tag {share.tag}, is not an absolute and plain path"
        seen.add(share.tag)


def _is_plain(path: str) -> bool:
    printable = path.isprintable() and not path.startswith("//")
    return path.startswith("/") and posixpath.normpath(path) == path and printable


def find(share: Share, paths: Paths, hostname: str) -> Directory:
    """Find the directory of a share on this node.

    Raises:
        OpPrereqError: it is not there, or this node does not allow it; the text says what to do.
    """
    what = f"node {hostname} does not share {share.path}"
    allowed = usable_directories(read_listed_paths(paths.shared_dir_paths_file) or ())
    local = paths.localize(share.path)
    try:
        descriptor = os.open(local, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as err:
        # Nothing is told about paths that are none of the asker's business.
        text = err.strerror if _lies_in(share.path, allowed) else _not_allowed(allowed)
        raise missing_here(PARAMETER, f"{what}: {text}") from err
    try:
        real = os.readlink(f"/proc/self/fd/{descriptor}")
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    roots = usable_directories(
        _on_wire(os.path.realpath(paths.localize(each)), paths) for each in allowed
    )
    if not _lies_in(_on_wire(real, paths), roots):
        raise missing_here(PARAMETER, f"{what}: {_not_allowed(allowed)}")
    return Directory(real, status.st_dev, status.st_ino)


def _on_wire(real: str, paths: Paths) -> str:
    """Return a path without links in the form for the wire; one outside the root stays itself."""
    root = os.path.realpath(paths.root) if paths.root else ""
    return real.removeprefix(root) if root and is_below(real, root) else real


def _lies_in(path: str, directories: list[str]) -> bool:
    return any(path == each or is_below(path, each) for each in directories)


def _not_allowed(allowed: list[str]) -> str:
    return (
        f"it is not in a directory that /etc/ganeti/shared-dir-paths allows there"
        f" ({', '.join(allowed) or 'none is allowed'})"
    )


def check_here(shares: list[Share], paths: Paths, hostname: str) -> None:
    """Check that this node can share directories with a guest.

    Raises:
        OpPrereqError: names the first that it does not share, why, and what to do.
    """
    for share in shares:
        find(share, paths, hostname)
    if shares and os.geteuid() != 0:
        raise missing_here(PARAMETER, "needs a node daemon that runs as root")
