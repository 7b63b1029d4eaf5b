"""A watchdog of a virtual node: a named pipe, and a thread that ends the node if nobody feeds it.

It is fed once more when it is closed without having been ended, as the kernel does it.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from pathlib import Path
from typing import Final

from fakes.failing_cluster import FailingCluster

DEVICE: Final = "/dev/watchdog"
END: Final = b"V"
_LOOK_S: Final = 0.1


class Dog(threading.Thread):
    """Guards one node.

    Attributes:
        bitten_s: when it has ended the node, by the monotonic clock; None if it has not.
    """

    def __init__(self, cluster: FailingCluster, node: str, timeout_s: float) -> None:
        super().__init__(daemon=True, name=f"dog of {node}")
        self._cluster, self._node, self._timeout_s = cluster, node, timeout_s
        path = Path(cluster.paths_of(node).localize(DEVICE))
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)
        self._pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._is_over = threading.Event()
        self.bitten_s: float | None = None
        self.start()

    def run(self) -> None:
        """Wait for food; it counts from the first time."""
        fed_s: float | None = None
        is_open = False
        while not self._is_over.is_set():
            select.select([self._pipe], [], [], _LOOK_S)
            with contextlib.suppress(BlockingIOError):
                food = os.read(self._pipe, 4096)
                if food:
                    is_open = not food.endswith(END)
                    fed_s = time.monotonic() if is_open else None
                elif is_open:
                    is_open, fed_s = False, time.monotonic()
                else:
                    time.sleep(_LOOK_S)  # nobody has it open: it goes on waiting all the same
            if fed_s is not None and time.monotonic() > fed_s + self._timeout_s:
                self._cluster.cut_power(self._node)
                self.bitten_s, fed_s = time.monotonic(), None

    def stop(self) -> None:
        """Let it go."""
        self._is_over.set()
        self.join()
        os.close(self._pipe)
