"""Finds out which owners are dead, and cleans up after them.

inotify prompts a look: the kernel closes the lock file of a process that ends.  The event names the
file as it was called when it was opened, which is not its name any more, so every event is a prompt
to look at all owners; and it may come a moment before the lock is dropped, so the look is repeated
shortly after.  A slow sweep finds deaths that no event told.  Only the locks decide.

Source: ARCHITECTURE, invariants 2 and 7; wconfd.json, "death_detection".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.system import clock, files, process_facts
from ganeti.system.filelock import is_alive
from ganeti.system.inotify import Kind, Watcher
from ganeti.wconfd.keeper import Keeper

logger = logging.getLogger(__name__)

SWEEP_INTERVAL_S: Final = 1.0  # a dead owner's locks are free within 2 s, even if an event is lost
STALE_FILES_INTERVAL_S: Final = 5.0
STALE_S: Final = 5.0  # 3.0 makes its lock files first and locks them a moment later
STALE_TEMPORARY_S: Final = 3600.0  # a lock file in the making lives for milliseconds
_LOOK_AGAIN_S: Final = (0.0, 0.02, 0.2)
_REST_FACTOR: Final = 5  # looking takes a sixth of the time at most, however many events come


class DeathWatch:
    """Watches the lock files of owners."""

    def __init__(self, keeper: Keeper, own_path: str) -> None:
        self._keeper = keeper
        self._own_path = own_path
        self._directory = keeper.paths.livelock_dir
        self._prompted = asyncio.Event()
        self._timers: dict[float, asyncio.TimerHandle] = {}
        self._watcher = Watcher()
        self._watcher.watch(self._directory, ("close_write", "delete"), self._on_event)

    def close(self) -> None:
        """Stop watching."""
        self._watcher.close()

    def _on_event(self, _name: str, _kind: Kind) -> None:
        for delay_s in _LOOK_AGAIN_S:
            if delay_s not in self._timers:
                loop = asyncio.get_running_loop()
                self._timers[delay_s] = loop.call_later(delay_s, self._prompt, delay_s)

    def _prompt(self, delay_s: float) -> None:
        del self._timers[delay_s]
        self._prompted.set()

    async def run(self) -> None:
        """Look when prompted, and once in a while at all, until cancelled."""
        stale_files_at = clock.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_INTERVAL_S):
                    await self._prompted.wait()
            self._prompted.clear()
            begun = clock.monotonic()
            await self._guarded_sweep()
            if begun >= stale_files_at:
                stale_files_at = begun + STALE_FILES_INTERVAL_S
                try:
                    self._remove_stale_files()
                except OSError as err:
                    logger.warning("Cannot remove stale lock files: %s; trying again", err)
            await asyncio.sleep((clock.monotonic() - begun) * _REST_FACTOR)

    async def _guarded_sweep(self) -> None:
        try:
            await self.sweep()
        except (GenericError, OSError) as err:  # a full disk, or no descriptor left to look with
            logger.warning("Cannot clean up after dead owners: %s; trying again", err)

    async def sweep(self) -> None:
        """Free everything of owners that are dead, and remove their lock files.

        Raises:
            GenericError: the new state could not be written.
        """
        owners = self._keeper.owners
        dead = [client for client in self._keeper.clients() if not owners.is_alive(client)]
        for client in dead:
            logger.info("Freeing locks and reservations of dead %s (%s)", client, client.livelock)
            await self._keeper.remove_owner(client)
            owners.remove_file(client)
        if not dead:
            await self._keeper.locks.save()

    def _remove_stale_files(self) -> None:
        """Remove lock files that nobody holds, of owners of nothing."""
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._directory):
                with contextlib.suppress(FileNotFoundError):
                    if entry.path == self._own_path or not entry.is_file(follow_symlinks=False):
                        continue
                    age_s = clock.now() - entry.stat(follow_symlinks=False).st_mtime
                    if age_s < (STALE_TEMPORARY_S if _is_being_made(entry.name) else STALE_S):
                        continue
                    if not is_alive(entry.path):
                        logger.info("Removing stale lock file %s", entry.path)
                        files.remove_if_exists(entry.path)


def _is_being_made(name: str) -> bool:
    """Tell whether a process that lives is making this lock file, as `LiveLock.create` does."""
    if not name.startswith("."):
        return False
    pid = name.removesuffix(".tmp").rpartition(".")[2]
    return not pid.isdigit() or process_facts.read(int(pid)) is not None
