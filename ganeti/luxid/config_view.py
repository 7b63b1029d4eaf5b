"""The configuration in LuxiD's memory, following ``config.data`` and its journal.

The file is split into one raw value per object; an object is decoded when it is first looked at,
and stays decoded as long as its text stays the same.  WConfD replaces the file in one step; its
event and those of the job files come through one watcher, so a client that sees the success of a
job sees the change as well.

Source: ARCHITECTURE, "Rules that keep it fast".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from ganeti.base.errors import ConfigurationError, ErrorCode, OpPrereqError
from ganeti.base.ids import NodeUuid
from ganeti.base.paths import Paths
from ganeti.config.index import WHAT
from ganeti.config.tables import NO_TABLES, Table, Tables
from ganeti.objects.model import Cluster, FilterRule, Node
from ganeti.objects.query_words import QueryResource
from ganeti.objects.record import Record
from ganeti.query.engine import prepare
from ganeti.query.kept_rows import KeptRows
from ganeti.query.view import View
from ganeti.store.config_reader import ConfigReader

logger = logging.getLogger(__name__)


class ConfigView:
    """The configuration as of the last event.

    Args:
        on_changed: hears of each new version.
        reader: one that may have read the configuration already.
    """

    def __init__(
        self,
        paths: Paths,
        on_changed: Callable[[], None] = lambda: None,
        reader: ConfigReader | None = None,
    ) -> None:
        self._is_stale = True
        self._error = "no configuration loaded"
        self._reader = reader or ConfigReader(paths)
        self.kept_rows = KeptRows()
        self._on_changed = on_changed

    @property
    def tables(self) -> Tables:
        """The configuration as it was read last."""
        return self._reader.tables

    @property
    def cluster(self) -> Cluster:
        """The cluster object.

        Raises:
            ConfigurationError: no configuration could be read so far.
        """
        self.refresh()
        if self.tables is NO_TABLES:
            raise ConfigurationError(self._error)
        return self.tables.cluster

    @property
    def master(self) -> Node:
        """The master node."""
        uuid = self.cluster.master_node  # this reads a new file
        return self.tables.nodes[uuid]

    @property
    def nodes(self) -> Table[NodeUuid, Node]:
        """All nodes."""
        return self.tables.nodes

    @property
    def filters(self) -> Table[str, FilterRule]:
        """All job filters."""
        return self.tables.filters

    def on_file_event(self, name: str, _kind: str) -> None:
        """Take note that the file or its journal has changed (or that events were lost)."""
        if name in ("config.data", "config.journal", ""):
            self._is_stale = True

    def refresh(self) -> bool:
        """Read the file again if it changed; returns whether it did.

        A file that cannot be read leaves the view as it was.
        """
        if not self._is_stale:
            return False
        self._is_stale = False
        try:
            self._take(self._reader.read())
        except ConfigurationError as err:
            self._error = err.message
            logger.warning("Cannot read the configuration: %s; going on with the old one", err)
            return False
        self._on_changed()
        return True

    def _take(self, tables: Tables) -> None:
        """Take over a new version, as a whole or not at all."""
        assert tables.cluster is not None  # it can be decoded
        kept_rows = self.kept_rows.after(self.tables, tables)
        self._reader.take(tables)
        self.kept_rows = kept_rows

    def prepared(self) -> Iterator[None]:
        """Do in small steps the work that questions about instances would have to wait for.

        That includes the rows of the lists that were asked for last.

        Raises:
            ConfigurationError: an object is not of its type.
        """
        yield from self.tables.prepared()
        for fields in self.kept_rows.lists:
            plan = prepare(QueryResource.INSTANCE, fields)
            yield from plan.prepared(self.snapshot())

    def snapshot(self) -> View:
        """Return the view for queries, as it is now."""
        self.refresh()
        if self.tables is NO_TABLES:
            raise ConfigurationError(self._error)
        return View(config=self.tables, kept_rows=self.kept_rows)

    def require(self, table: str, key: str) -> Record:
        """Return the object of that UUID or name.

        Raises:
            OpPrereqError: unknown_entity.
        """
        found = self.tables.by_name[table].find(key)
        if found is None:
            raise OpPrereqError(f"{WHAT[table]} {key!r} not found", ErrorCode.NOENT)
        record: Record = self.tables.by_name[table][found]
        return record
