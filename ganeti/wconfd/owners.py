"""Which owners live: the lock files behind client identities.

Source: ARCHITECTURE, invariants 2 and 7; wconfd.json, "client_id" and "death_detection".
"""

from __future__ import annotations

import os.path

from ganeti.base.errors import LockError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.protocol.wconfd import ClientId
from ganeti.system import files
from ganeti.system.filelock import is_alive


class Owners:
    """Answers which owners live; lock files must lie in the directory for them."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._directory = os.path.normpath(paths.livelock_dir)
        self._local: dict[str, str] = {}

    def local_path(self, client: ClientId) -> str:
        """Return where the lock file of a client is.

        Raises:
            OpPrereqError: it does not lie in the directory for lock files.
        """
        path = self._local.get(client.livelock)
        if path is None:
            path = self._find(client.livelock)
            if len(self._local) > 10_000:  # files come and go; keep no list of the past
                self._local.clear()
            self._local[client.livelock] = path
        return path

    def _find(self, livelock: str) -> str:
        for candidate in (livelock, self._paths.root + livelock):
            directory, name = os.path.split(candidate)
            named = name not in ("", ".", "..") and "\0" not in name
            if named and os.path.normpath(directory) == self._directory:
                return os.path.join(self._directory, name)
        raise OpPrereqError(f"lock file {livelock!r:.300} does not lie in {self._directory}")

    def is_alive(self, client: ClientId) -> bool:
        """Tell whether a client holds its lock file; one elsewhere proves nothing."""
        try:
            path = self.local_path(client)
        except OpPrereqError:
            return False
        return is_alive(path)

    def remove_file(self, client: ClientId) -> None:
        """Remove the lock file of a dead client."""
        try:
            path = self.local_path(client)
        except OpPrereqError:
            return
        if not is_alive(path):
            files.remove_if_exists(path)

    def check_alive(self, client: ClientId) -> None:
        """Refuse a client that is dead.

        Raises:
            LockError: nobody holds its lock file.
        """
        path = self.local_path(client)
        if not is_alive(path):
            raise LockError(f"{client} is dead: nobody holds its lock file {path}")
