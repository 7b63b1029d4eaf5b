"""What drivers of networked storage share: running programs, and disks that only QEMU opens."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import CommandError, StorageError
from ganeti.protocol.qemu.images import image_from_uri
from ganeti.storage.interface import DiskLike, StorageEnv
from ganeti.storage.qcow2 import RawView, place_of_view
from ganeti.system import process

_SYSTEM_PATH: Final = "/usr/sbin:/sbin:/usr/bin:/bin"


def environment() -> dict[str, str]:
    """Return the environment of such a program: ours, with the system's programs, in English."""
    path = os.pathsep.join(filter(None, (os.environ.get("PATH"), _SYSTEM_PATH)))
    return {**os.environ, "PATH": path, "LC_ALL": "C"}


def run_tool(argv: Sequence[str], *, package: str, timeout_s: float) -> process.CommandResult:
    """Run a program to its end, however it ends.

    Args:
        package: the Debian package that brings it, for the message.

    Raises:
        StorageError: this node does not have it.
    """
    try:
        return process.run(argv, timeout_s=timeout_s, env=environment(), cwd="/")
    except CommandError as err:
        raise StorageError(f"{err.message}; install package {package} on this node") from err


def raw_view_of(uri: str, disk: DiskLike, env: StorageEnv, *, read_only: bool = False) -> RawView:
    """Return how the bytes of a disk or snapshot are shown that QEMU reaches at an address."""
    place = place_of_view(env.paths, disk.uuid, uri)
    return RawView(uri, place, image_from_uri(uri), read_only)
