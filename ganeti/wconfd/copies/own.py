"""The simple values on this node: its files follow the configuration, beside everything else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.clients.couriers import Spawn
from ganeti.store import ssconf
from ganeti.wconfd.copies.sending import SimpleValues, SsconfState

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0


class OwnValues:
    """Writes what differs from the files here; a write that fails is tried again until it succeeds.

    Args:
        simple: the values that the files are to have.
    """

    def __init__(self, paths: Paths, simple: SimpleValues, spawn: Spawn) -> None:
        self._paths = paths
        self._simple = simple
        self._spawn = spawn
        self._written: Mapping[str, str] = {}  # what the files have for certain
        self._version = 0  # of the newest state that they have
        self._is_at_work = False
        self._is_failing = False
        self._trial_over = asyncio.Event()
        self._tried(simple.state, self._error(simple.state, self._written))
        self.follow()

    def follow(self) -> None:
        """Have the newest values written soon."""
        if not self._is_at_work and self._version < self._simple.state.version:
            self._is_at_work = True
            self._spawn(self._work(), "simple values of this node")

    def write_all_again(self) -> None:
        """Have all values written soon, whatever the files have."""
        self._written, self._version = {}, 0
        self.follow()

    async def wait(self, timeout_s: float) -> None:
        """Return once the files have the newest values, or cannot have them now; not later."""
        version = self._simple.state.version
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._version < version and not self._is_failing:
                    await self._trial_over.wait()

    async def _work(self) -> None:
        try:
            while self._version < self._simple.state.version:
                state, before = self._simple.state, self._written
                error = await asyncio.to_thread(self._error, state, before)
                if self._written is not before:
                    continue  # all is to be written again meanwhile
                self._tried(state, error)
                if self._is_failing:
                    await asyncio.sleep(RETRY_S)
        finally:
            self._is_at_work = False

    def _error(self, state: SsconfState, before: Mapping[str, str]) -> Exception | None:
        """Write what differs; returns why that failed."""
        changed = {key: value for key, value in state.values.items() if before.get(key) != value}
        try:
            ssconf.write_values(self._paths, changed)
        except (OSError, GenericError) as err:
            return err
        return None

    def _tried(self, state: SsconfState, error: Exception | None) -> None:
        if error is None:
            self._written, self._version = state.values, state.version
            if self._is_failing:
                logger.info("The simple values can be written here again")
        else:
            self._written = {}  # some may be new
            if not self._is_failing:
                logger.warning("Cannot write the simple values here: %s; trying again", error)
        self._is_failing = error is not None
        self._trial_over.set()
        self._trial_over.clear()  # whoever waits for it has heard it
