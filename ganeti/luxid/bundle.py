"""Keeps the bundle from which job processes load their modules, as new as the modules are.

The bundle is made by a process like theirs, into memory that only LuxiD and its children can reach.
While there is none, because it is just being made or cannot be, job processes start without.

Source: `ganeti.jobexec.bundle` for what it is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ganeti.base.errors import GenericError
from ganeti.system import clock, process
from ganeti.system.exits import ExitWatcher

logger = logging.getLogger(__name__)

CHECK_S: Final = 1.0  # how old the knowledge may be that no module has changed
_LINE_BYTES_MAX: Final = 1 << 20

Sources = dict[str, tuple[int, int]]


class _Line(msgspec.Struct, frozen=True):
    """What a bundle begins with: all files that it was made of, {path: (time in ns, size)}."""

    head_bytes: int
    sources: Sources


class Bundle:
    """The bundle of this LuxiD.

    Args:
        argv: the command that writes it to its standard output.
        log: descriptor of the file that the command's complaints go to.

    Attributes:
        is_being_made: whether the command runs.
    """

    def __init__(self, argv: Sequence[str], log: int, exits: ExitWatcher) -> None:
        self._argv = argv
        self._log = log
        self._exits = exits
        self._file: int | None = None
        self._place = ""
        self._sources: Sources = {}
        self._checked_at = 0.0
        self.is_being_made = False
        self._is_closed = False

    def for_process(self) -> tuple[list[str], list[int]]:
        """Return what a job process gets: arguments, and descriptors to pass."""
        self._check()
        return ([], []) if self._file is None else ([self._place], [self._file])

    def make(self) -> None:
        """Begin to make the bundle, unless that is being done."""
        if self.is_being_made or self._is_closed:
            return
        self.is_being_made = True
        output = os.memfd_create("job-modules", os.MFD_CLOEXEC)
        try:
            child = process.spawn(self._argv, stdout=output, stderr=self._log)
        except GenericError as err:
            os.close(output)
            self.is_being_made = False
            logger.warning("%s; jobs start without a bundle of modules", err.message)
            return
        self._exits.watch(child.pid, lambda: self._on_made(child.poll, output))

    def close(self) -> None:
        """Let the bundle go."""
        self._is_closed = True
        self._drop()

    def _on_made(self, poll: Callable[[], int | None], output: int) -> None:
        status = poll()
        self.is_being_made = False
        if self._is_closed or status != 0:
            os.close(output)
            if status:
                logger.warning("The bundle of modules cannot be made, see the log of the jobs")
            return
        line, _, _ = os.pread(output, _LINE_BYTES_MAX, 0).partition(b"\n")
        try:
            found = msgspec.json.decode(line, type=_Line)
        except msgspec.MsgspecError as err:
            os.close(output)
            logger.warning("The bundle of modules cannot be understood: %s; going without", err)
            return
        self._drop()
        self._file, self._sources = output, found.sources
        self._place = f"{output}:{len(line) + 1}:{found.head_bytes}"
        self._checked_at = clock.monotonic()

    def _check(self) -> None:
        """Drop the bundle, and make another, if a module has changed."""
        now = clock.monotonic()
        if self._file is None or now < self._checked_at + CHECK_S:
            return
        self._checked_at = now
        if not all(map(_is_as_it_was, self._sources, self._sources.values())):
            logger.info("Modules of job processes have changed")
            self._drop()
            self.make()

    def _drop(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None


def _is_as_it_was(path: str, stamp: tuple[int, int]) -> bool:
    try:
        state = os.stat(path)
    except OSError:
        return False
    return (state.st_mtime_ns, state.st_size) == stamp
