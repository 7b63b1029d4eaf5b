"""Waiting for a peer that does not read: with a bound on what is kept for it, and on patience.

Used by the servers' connections, which forward ``pause_writing`` and ``resume_writing`` to it.
Also here: not waiting for what nobody will hear of, and not dying of what one connection does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator

logger = logging.getLogger(__name__)


class ReadingWatch:
    """Pauses whoever writes to a slow peer, and drops a peer that reads nothing for too long."""

    def __init__(self, transport: asyncio.Transport, unread_s_max: float, peer: object) -> None:
        self._transport = transport
        self._unread_s_max = unread_s_max
        self._peer = peer
        self._writable: asyncio.Future[None] | None = None
        # Most timers are put off again and again: the loop hears only of one that rings sooner.
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._callback: Callable[[], None] | None = None
        self._unread_bytes = 0

    @property
    def is_paused(self) -> bool:
        """True while `drain` would wait."""
        return self._writable is not None

    def pause(self) -> None:
        """Make `drain` wait: the transport's buffer is full."""
        self._writable = asyncio.get_running_loop().create_future()
        if not self._transport.is_closing():
            self._watch()

    def resume(self) -> None:
        """Let `drain` return: the peer has read."""
        if self._writable is None:
            return
        if not self._transport.is_closing():
            self.stop()
        if not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    async def drain(self) -> None:
        """Return once more may be written, or the peer is gone."""
        if self._writable is not None:
            await self._writable

    def close(self) -> None:
        """Close the transport once all is written, or the peer does not read on.

        To be called after `drain`, so that little is left to be written.  A closed TLS transport
        answers no questions any more, but ends by itself within asyncio's limit for its farewell.
        """
        if not self._transport.is_closing():
            self._transport.close()
            self.start_timer(self._unread_s_max, self._transport.abort)

    def end_writing(self) -> None:
        """Tell the peer that nothing more comes, while it may go on sending; TLS cannot do that."""
        if self._transport.can_write_eof():
            try:
                self._transport.write_eof()
            except OSError:  # what was written just now found nobody
                self._transport.abort()

    def lost(self) -> None:
        """Stop waiting: the connection is gone."""
        self.stop()
        self._drop_timer()
        self.resume()

    def start_timer(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back after so long, instead of anything set before."""
        loop = asyncio.get_running_loop()
        self._due = loop.time() + seconds
        self._callback = callback
        if self._timer is None or self._timer.when() > self._due:
            self._drop_timer()
            self._timer = loop.call_at(self._due, self._ring)

    def stop(self) -> None:
        """Stop the clock."""
        self._callback = None

    def _ring(self) -> None:
        """Call back, unless that was put off since the loop was asked: then ask it again."""
        self._timer = None
        loop = asyncio.get_running_loop()
        if self._callback is not None and loop.time() < self._due:
            self._timer = loop.call_at(self._due, self._ring)
        elif self._callback is not None:
            callback, self._callback = self._callback, None
            callback()

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        self._unread_bytes = self._transport.get_write_buffer_size()
        self.start_timer(self._unread_s_max, self._check)

    def _check(self) -> None:
        if self._transport.get_write_buffer_size() < self._unread_bytes:
            self._watch()
            return
        logger.warning(
            "Dropping %s: it has not read its answer for %g s", self._peer, self._unread_s_max
        )
        self._transport.abort()


async def contained(
    work: Coroutine[object, object, None], drop: Callable[[], None], peer: object
) -> None:
    """Do the work of one connection; an error in it drops that connection and no other."""
    try:
        await work
    except Exception:
        logger.exception("Internal error, dropping %s", peer)
        drop()


@contextlib.contextmanager
def canceled_by(event: asyncio.Future[None]) -> Iterator[None]:
    """Cancel the current task inside this block once something has happened."""
    task = asyncio.current_task()
    assert task is not None

    def cancel(_event: asyncio.Future[None]) -> None:
        task.cancel()

    event.add_done_callback(cancel)
    try:
        yield
    finally:
        event.remove_done_callback(cancel)
