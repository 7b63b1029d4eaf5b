"""Directories of one process for what it makes: locked while it works, and gone at its end.

The one of a process that was killed is not locked: others find it so, and remove it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from typing import Final

from ganeti.system.filelock import DirectoryLock, is_alive
from ganeti.system.process_facts import signals_wait

# Of whom a directory is, its name begins with.
RESTORE: Final = ".restore-"  # below the data directory, with all keys of a cluster
OVF: Final = ".ovf-"  # of ovfconverter, with whole disks
_FRESH: Final = ".new"
_INTERRUPTIONS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def working_directory(prefix: str, parent: str) -> Iterator[str]:
    """Make a directory, of mode 0700, and remove it with all that is in it at the end.

    It is never seen unlocked under its name.

    Raises:
        OSError: it cannot be made or removed.
    """
    path = tempfile.mkdtemp(prefix=f"{_FRESH}{prefix}", dir=parent)
    try:
        with DirectoryLock(path):
            locked = os.path.join(parent, os.path.basename(path).removeprefix(_FRESH))
            os.rename(path, locked)
            path = locked
            yield path
    finally:
        with signals_wait(_INTERRUPTIONS):
            shutil.rmtree(path)


def is_used(path: str) -> bool:
    """Tell whether a working directory is somebody's."""
    return os.path.isdir(path) and not os.path.islink(path) and is_alive(path)


def remove_unused(prefix: str, parent: str) -> list[str]:
    """Remove the directories that killed processes left behind; returns their paths.

    Raises:
        OSError: one cannot be removed.
    """
    if not os.path.isdir(parent):
        return []
    with os.scandir(parent) as entries:
        found = [
            each.path
            for each in entries
            if each.name.startswith(prefix) and each.is_dir(follow_symlinks=False)
        ]
    unused = [path for path in sorted(found) if not is_used(path)]
    for path in unused:
        shutil.rmtree(path)
    return unused
