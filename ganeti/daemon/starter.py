"""How a daemon tells its starter that it runs: the program that was called, or systemd.

The program that was called waits until the daemon answers: it forks twice and reads one report from
a pipe, with the exit status and the text for standard error.  So ``ganeti-luxid && gnt-job list``
works, and a daemon that cannot start says why where it was started.

systemd gets the datagrams of sd_notify(3), and where its unit has a watchdog, one again and again
from the event loop: a daemon whose loop hangs is killed, and started anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Mapping
from typing import Final

logger = logging.getLogger(__name__)

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
WATCHDOG: Final = "WATCHDOG=1"
STATUS: Final = "STATUS"  # shown by systemctl status
_REPORT_BYTES_MAX: Final = 65536
_SIGNS_IN_TIME: Final = 3  # one may be late, and another lost
_STANDARD_DESCRIPTORS: Final = (0, 1, 2)


class Report:
    """The daemon's end of the pipe to the program that was called; may be used once."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # A helper forked later must not keep the caller waiting.
        os.register_at_fork(after_in_child=self.forget)

    def send(self, status: int, text: str = "") -> None:
        """Let the program that was called exit with this status, and print this text."""
        if self._descriptor < 0:
            return
        with contextlib.suppress(BrokenPipeError):  # it did not wait
            os.write(self._descriptor, f"{status}\n{text}".encode()[:_REPORT_BYTES_MAX])
        self.forget()

    def forget(self) -> None:
        """Close the pipe."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1


def detach(name: str) -> Report:
    """Go on as a daemon, in a forked process; this one ends with the status that is reported.

    Must be called before there are threads.
    """
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid:
        os.close(write_end)
        _exit_as_reported(name, pid, read_end)
    os.close(read_end)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in _STANDARD_DESCRIPTORS:
        os.dup2(null, descriptor)
    os.close(null)
    return Report(write_end)


def _exit_as_reported(name: str, pid: int, read_end: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    with open(read_end, "rb") as pipe:
        status, _, text = pipe.read().decode("utf-8", "replace").partition("\n")
    if not status:
        status, text = "1", "it ended before it was ready; its log may say why"
    if text:
        sys.stderr.write(f"{name}: {text}\n")
        sys.stderr.flush()
    os._exit(int(status))


def notify(state: str) -> None:
    """Send a state to the process that started us, if it asked for it; a failure is logged only."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # Linux's abstract names begin with a zero byte
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.sendto(state.encode(), address)
    except OSError as err:
        logger.warning("Cannot tell %r to %s: %s; ignoring", state, address, err)


def watchdog_period_s(environment: Mapping[str, str], pid: int) -> float | None:
    """Return how often a process has to give a sign of life; None if nobody waits for one.

    Source: sd_watchdog_enabled(3).
    """
    limit_us, whose = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not limit_us.isdecimal() or int(limit_us) == 0 or whose not in ("", str(pid)):
        return None
    return int(limit_us) / 1e6 / _SIGNS_IN_TIME


async def give_signs_of_life(period_s: float) -> None:
    """Tell systemd again and again that the event loop runs."""
    while True:
        notify(WATCHDOG)
        await asyncio.sleep(period_s)
