"""Writes ``locks.data`` and ``tempres.data``: atomically, before anybody is answered.

Changes of one turn of the event loop share one write.  Nothing is synced to the disk: after a power
cut all owners are dead anyway.  A write that fails takes the state back to the last one written.

Source: ARCHITECTURE, invariant 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.store.swap_file import SwapFile

FILE_MODE: Final = 0o600


class VolatileFile:
    """One file.

    Args:
        content: the present content of the file.
        encode: returns the content that it should have.
        restore: takes the state back to the content of the file.
        written: called when the file has the content that `encode` returned.
    """

    def __init__(
        self,
        path: str,
        content: bytes,
        encode: Callable[[], bytes],
        restore: Callable[[bytes], None],
        written: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self._file = SwapFile(path, FILE_MODE)
        self.content = content  # as last written
        self._encode = encode
        self._restore = restore
        self._on_written = written
        self._written: asyncio.Future[None] | None = None

    async def save(self) -> None:
        """Return once the state as it is now is in the file.

        Raises:
            GenericError: it could not be written; the state was taken back.
        """
        await asyncio.shield(self.begin_save())

    def begin_save(self) -> asyncio.Future[None]:
        """Have the state written soon, with all other changes until then."""
        if self._written is None:
            loop = asyncio.get_running_loop()
            self._written = loop.create_future()
            loop.call_soon(self._write)
        return self._written

    def close(self) -> None:
        """Stop using the file, which stays."""
        self._file.close()

    def _write(self) -> None:
        written, self._written = self._written, None
        assert written is not None
        try:
            self._write_for(written)
        finally:
            if not written.done():  # a mistake of ours, which must not leave callers waiting
                _fail(written, f"cannot write {self.path}: internal error")

    def _write_for(self, written: asyncio.Future[None]) -> None:
        data = self._encode()
        try:
            if data != self.content:
                self._file.write(data)
        except OSError as err:
            self._restore(self.content)
            _fail(written, f"cannot write {self.path}: {err.strerror}; nothing was changed")
            return
        self.content = data
        try:
            self._on_written()
        finally:
            written.set_result(None)


def _fail(written: asyncio.Future[None], text: str) -> None:
    written.set_exception(GenericError(text))
    written.exception()  # the caller may be gone
