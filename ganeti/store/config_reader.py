"""The configuration of this node for daemons that follow it: the file, and the journal if any.

Source: ARCHITECTURE, invariants 4 and 5.
"""

from __future__ import annotations

import os

from ganeti.base.paths import Paths
from ganeti.config.deltas.following import ConfigFollower
from ganeti.config.deltas.journal import Record
from ganeti.config.tables import Tables
from ganeti.store import config_file
from ganeti.store.config_file import Identity


def identity(paths: Paths) -> tuple[Identity, Identity | None]:
    """Return a value that changes whenever the file or its journal does.

    Raises:
        ConfigurationError: there is no file, or it cannot be looked at.
    """
    try:
        found = os.stat(paths.config_journal)
    except OSError:
        return config_file.identity(paths), None
    return config_file.identity(paths), (found.st_ino, found.st_mtime_ns, found.st_size)


class ConfigReader:
    """Reads what changed, of the file and of the journal."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._follower = ConfigFollower()
        self._file: Identity | None = None  # of the newest version
        self._read_file: Identity | None = None

    @property
    def tables(self) -> Tables:
        """The newest version."""
        return self._follower.tables

    def read(self) -> Tables:
        """Return the version that is there; it becomes the newest one by `take`.

        Raises:
            ConfigurationError: there is none, or it cannot be read.
        """
        present = self._present()
        if present is not None and present == self._file:
            records = config_file.read_journal(self._paths)
            if present == config_file.identity(self._paths):  # then no record was trimmed
                tables = self._follower.read(None, _synced(records))
                if tables is not None:
                    self._read_file = present
                    return tables
        while True:
            self._read_file = self._present()
            data, records = config_file.read_state(self._paths)
            if self._read_file == config_file.identity(self._paths):
                break
        tables = self._follower.read(data, _synced(records))
        assert tables is not None
        return tables

    def _present(self) -> Identity | None:
        paths = self._paths
        return config_file.identity(paths) if config_file.has_config(paths) else None

    def take(self, tables: Tables) -> None:
        """Take over the version read last."""
        self._follower.take(tables)
        self._file = self._read_file


def _synced(records: list[Record]) -> list[Record]:
    """Return the records that survive a power cut: the last one that says so, and all before."""
    count = max((n for n, record in enumerate(records, 1) if record.is_synced), default=0)
    return records[:count]
