"""The job process's side of the talk with LuxiD."""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from ganeti.base.errors import ProtocolError
from ganeti.protocol.envelope import ETX, MessageSplitter
from ganeti.protocol.job_start import MESSAGE_BYTES_MAX, Copied, Copy, Dialog, Message, Progress

# A LuxiD that hangs must not hold up the end of a job for long.
COPY_TIMEOUT_S: Final = 5.0
_READ_BYTES: Final = 65536


class LuxidGoneError(Exception):
    """LuxiD went away; before it has confirmed, that means that the job must not start here."""


class LuxidLink:
    """One stream, one dialog."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._dialog = Dialog("process")
        self._splitter = MessageSplitter(MESSAGE_BYTES_MAX)
        self._heard: deque[bytes] = deque()

    def say(self, message: Message) -> None:
        """Send a message.

        Raises:
            LuxidGoneError: nobody is there to hear it.
        """
        try:
            self._stream.sendall(self._dialog.send(message) + ETX)
        except OSError as err:
            raise LuxidGoneError from err

    def hear(self) -> Message:
        """Wait for the next message.

        Raises:
            LuxidGoneError: the stream ended instead.
        """
        while not self._heard:
            try:
                chunk = self._stream.recv(_READ_BYTES)
            except OSError as err:
                raise LuxidGoneError from err
            if not chunk:
                raise LuxidGoneError
            self._heard += self._splitter.feed(chunk)
        return self._dialog.receive(self._heard.popleft())

    def is_spoken_to(self, within_s: float) -> bool:
        """Wait for the next message for so long; returns whether one has come, or the end."""
        return bool(self._heard or select.select([self._stream], [], [], within_s)[0])

    def tell(self, content: str) -> bool:
        """Have LuxiD send a version of the job file to the candidates; returns whether it will."""
        return self._stream.fileno() >= 0 and self._ask(Progress(content))

    def copy(self, content: str, wait_s: float = 0.0) -> Callable[[], Copied | None]:
        """Let LuxiD carry a version of the job file to the candidates.

        Args:
            wait_s: how long LuxiD may wait for a candidate to come back before it answers.

        Returns:
            The wait for its answer, which is None if LuxiD does not do it.
        """
        is_asked = self._stream.fileno() >= 0 and self._ask(Copy(content, wait_s), wait_s)
        return self._hear_copied if is_asked else lambda: None

    def _hear_copied(self) -> Copied | None:
        try:
            copied = self.hear()
        except (LuxidGoneError, ProtocolError):
            self._stream.close()  # never asked again
            return None
        assert isinstance(copied, Copied)
        return copied

    def _ask(self, message: Message, wait_s: float = 0.0) -> bool:
        try:
            self._stream.settimeout(COPY_TIMEOUT_S + wait_s)
            self.say(message)
        except (LuxidGoneError, ProtocolError):
            self._stream.close()  # never asked again
            return False
        return True
