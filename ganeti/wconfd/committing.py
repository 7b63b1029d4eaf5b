"""Group commit: changes that come while the disk is busy share the next write.

A change is computed and checked at once, on top of all that were accepted before; it is answered
once the file that contains it survives a power cut, and only then do readers see it.  A write that
fails fails everything that was accepted since the last good one, and leaves the old file.  If the
disk fails between the two, with the new file there and not known to be safe, nobody is answered:
the daemon ends, and goes on from the file on the disk when it is started again.

Where a journal is kept, a change is durable once its record is (`store.config_file`).  The file
follows within a second of the first change that it lacks, and at the end of the daemon; then its
records leave the journal.  While the file cannot be written, the journal grows, and nothing is
lost.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from ganeti.base import metrics
from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.config.deltas.journal import JournalDamaged, record_of
from ganeti.config.state import ConfigState, Flush
from ganeti.config.transaction import Transaction
from ganeti.daemon.tally import Counter, Histogram
from ganeti.protocol.node_rpc_values import ConfigVersion
from ganeti.store.config_file import JournalFile, MastersFile
from ganeti.system import clock
from ganeti.system.files import NotSyncedError

logger = logging.getLogger(__name__)

T = TypeVar("T")

CONFIG_FILE: Final = "config.data"
JOURNAL_FILE: Final = "config.journal"
DELAY_S: Final = 0.5  # and a file that is written in half a second is there within one
_RETRY_S: Final = 1.0


class Writes:
    """Counts the changes of the configuration, and the writes that they lead to."""

    def __init__(self) -> None:
        self.changes = Counter(metrics.WCONFD_CHANGES)
        self._seconds = Histogram(metrics.WCONFD_WRITE_S)
        self._bytes = Counter(metrics.WCONFD_WRITTEN_BYTES)
        self._failures = Counter(metrics.WCONFD_WRITE_FAILURES)
        self._failures.add((CONFIG_FILE,), 0)  # so that the first one is a rise

    def done(self, file: str, size: int, begun_s: float) -> None:
        """Count a write that is safe on the disk."""
        self._seconds.add(clock.monotonic() - begun_s, (file,))
        self._bytes.add((file,), size)

    def failed(self, file: str) -> None:
        """Count a write that failed."""
        self._failures.add((file,))

    def lines(self) -> Iterator[str]:
        """Yield the lines of the page of metrics."""
        for each in (self.changes, self._seconds, self._bytes, self._failures):
            yield from each.lines()


class Committer:
    """Applies changes and writes them; `run` must be running.

    Args:
        write: makes a change durable, and returns how many bytes it wrote; called in a thread;
            raises OSError.
        written: called after each good write, once the waiting callers have been answered.
    """

    def __init__(
        self,
        state: ConfigState,
        write: Callable[[Flush], int],
        written: Callable[[Flush], None],
        now: Callable[[], float],
        writes: Writes,
        file: str = CONFIG_FILE,
    ) -> None:
        self.state = state
        self._write = write
        self._written = written
        self._now = now
        self._writes = writes
        self._file = file
        self._accepted: asyncio.Future[None] | None = None  # of the changes not yet being written
        self._flushing: asyncio.Future[None] | None = None
        self._work = asyncio.Event()
        self._is_failing = False

    async def apply(self, change: Callable[[Transaction], T]) -> T:
        """Make a change; returns the result of it once it is durable.

        Raises:
            GenericError: any error of the change or its check, or that it cannot be written.
        """
        transaction = self.state.begin(self._now())
        result = change(transaction)
        if not transaction.objects:
            await self.settled()  # the answer may rest on changes that are not durable yet
            return result
        transaction.check()
        self.state.accept(transaction)
        self._writes.changes.add()
        if self._accepted is None:
            self._accepted = asyncio.get_running_loop().create_future()
        accepted = self._accepted
        self._work.set()
        await asyncio.shield(accepted)
        return result

    async def settled(self) -> None:
        """Return once everything accepted so far is durable; raises if it cannot be."""
        future = self._accepted or self._flushing
        if future is not None:
            await asyncio.shield(future)

    async def run(self) -> None:
        """Write the accepted changes as they come, until cancelled.

        Raises:
            NotSyncedError: the state of the disk is not known; nobody must act on the one in
                memory.
        """
        while True:
            await self._work.wait()
            self._work.clear()
            while self.state.has_changes:
                await self._flush_once()

    async def _flush_once(self) -> None:
        self._flushing, self._accepted = self._accepted, None
        flush = self.state.start_flush(self._now())
        begun_s = clock.monotonic()
        try:
            size = await asyncio.to_thread(self._write, flush)
        except NotSyncedError as err:
            logger.critical("The disk failed with the new configuration written: %s; ending", err)
            raise
        except OSError as err:
            self._fail(err)
            return
        self._writes.done(self._file, size, begun_s)
        self.state.flush_done()
        if self._is_failing:
            logger.info("The configuration can be written again")
            self._is_failing = False
        done, self._flushing = self._flushing, None
        if done is not None:
            done.set_result(None)
        asyncio.get_running_loop().call_soon(self._written, flush)  # after the answers

    def _fail(self, error: OSError) -> None:
        """Drop everything since the last good write."""
        self.state.flush_failed()
        self._writes.failed(self._file)
        if not self._is_failing:
            logger.error("Cannot write the configuration: %s; nothing was changed", error)
            self._is_failing = True
        text = f"cannot write the configuration: {error.strerror or error}; nothing was changed"
        for future in (self._flushing, self._accepted):
            if future is not None:
                future.set_exception(GenericError(text))
                future.exception()  # the caller may be gone
        self._flushing = self._accepted = None


class Checkpoints:
    """Writes records at once and the file later; `run` must be running.

    Args:
        file_version: of the file; it has not all changes if it could not be written at the start.
        on_file: hears that the file has a new version.
    """

    def __init__(
        self,
        paths: Paths,
        file: MastersFile,
        file_version: ConfigVersion,
        state: ConfigState,
        on_file: Callable[[], None],
        writes: Writes,
    ) -> None:
        self._file = file
        self._state = state
        self._journal = JournalFile(paths)
        self._on_file = on_file
        self._writes = writes
        self._wanted = asyncio.Event()
        self._is_failing = False
        self._mutex = threading.Lock()
        self._written_no = file_version.serial_no
        self.file_version = file_version
        if file_version != state.version:
            self._wanted.set()

    def append(self, flush: Flush) -> int:
        """Make a change durable by its record.

        Raises:
            OSError: as of `JournalFile.append`, or the journal is damaged.
        """
        line = record_of(flush.base, flush.version, flush.changed).line
        try:
            with self._file.kept():
                self._journal.append([line])
        except JournalDamaged as err:
            raise OSError(errno.EIO, err.message) from err
        return len(line)

    def follow(self, _flush: Flush) -> None:
        """Note that the file lacks a change."""
        self._wanted.set()

    async def run(self) -> None:
        """Let the file follow, until cancelled."""
        while True:
            await self._wanted.wait()
            await asyncio.sleep(DELAY_S)
            self._wanted.clear()
            if not await self.write():
                self._wanted.set()
                await asyncio.sleep(_RETRY_S)

    async def write(self) -> bool:
        """Bring the file to the newest version; returns whether it has that."""
        version, pieces = self._state.version, self._state.pieces
        if version == self.file_version:
            return True
        begun_s = clock.monotonic()
        try:
            await asyncio.to_thread(self._write, pieces, version)
        except OSError as err:
            self._failed(err)
            return False
        self._writes.done(CONFIG_FILE, sum(map(len, pieces)), begun_s)
        if self._is_failing:
            logger.info("The configuration file can be written again")
            self._is_failing = False
        self.file_version = version
        self._on_file()
        return True

    def _failed(self, error: OSError) -> None:
        self._writes.failed(CONFIG_FILE)
        if not self._is_failing:
            logger.error("Cannot write the configuration file: %s; its journal has all", error)
            self._is_failing = True

    def _write(self, pieces: list[bytes], version: ConfigVersion) -> None:
        with self._mutex:
            if version.serial_no > self._written_no:  # one that was given up may end late
                self._file.write(pieces)
                self._written_no = version.serial_no
            with self._file.kept():
                self._journal.trim(version)
