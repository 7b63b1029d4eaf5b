"""A place where a process waits for one other: a Unix socket of its own, used once.

The other side connects, looks around as long as it wants, and lets go by closing.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Self

from ganeti.system import clock, files


class Rendezvous:
    """A socket that waits for its one visitor.

    Attributes:
        path: where it is; short enough for a socket, under any root directory.
    """

    def __init__(self) -> None:
        # Not by `tempfile`: each job process would carry what that imports.
        parent = os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - a new directory in it, ours alone
        self._directory = f"{parent}/ganeti-{clock.random_bytes(8).hex()}"
        os.mkdir(self._directory, 0o700)
        self.path = f"{self._directory}/socket"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self.path)
        self._socket.listen(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._socket.close()
        files.remove_tree(self._directory)

    def wait(self, come_s: float, leave_s: float = 0.0) -> bool:
        """Wait until the visitor came, and then until it left; returns whether it came.

        Raises:
            TimeoutError: it came but did not leave.
        """
        self._socket.settimeout(come_s)
        try:
            visitor, _ = self._socket.accept()
        except TimeoutError:
            return False
        with visitor:
            deadline = clock.monotonic() + leave_s
            while leave_s > 0:
                visitor.settimeout(max(deadline - clock.monotonic(), 0.001))
                if not visitor.recv(64):
                    break
        return True


@contextlib.contextmanager
def visit(path: str, timeout_s: float) -> Iterator[None]:
    """Go to a rendezvous; the other side goes on when this block is left.

    Raises:
        OSError: nobody waits there.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        connection.connect(path)
        yield
