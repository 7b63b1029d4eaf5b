"""The watchdog of a node: a device that resets it when nobody writes to it for a while.

A named pipe may stand for the device where there is none to try things with: whoever reads it then
resets the node.  The device goes on when it is closed without the letter V, also by the death of
the agent; that is what makes it a proof.  The kernel feeds it once more at such a close, so a node
whose agent dies lives on for the whole time of the watchdog; proofs reckon with that.  They do not
reckon with a process that stands still between a look at the clock and the feeding: it dies then.

Source: the Linux Watchdog API (kernel documentation, watchdog/watchdog-api).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import math
import os
import signal
import stat
import struct
from collections.abc import Iterator
from typing import Final, Self

from ganeti.base.errors import OpPrereqError
from ganeti.system import clock

logger = logging.getLogger(__name__)

_SET_TIMEOUT: Final = 0xC0045706  # WDIOC_SETTIMEOUT
_GET_SUPPORT: Final = 0x80285700  # WDIOC_GETSUPPORT
_SUPPORT: Final = struct.Struct("=II32s")
_CAN_SET_TIMEOUT: Final = 0x0080  # WDIOF_SETTIMEOUT
_CAN_END: Final = 0x0100  # WDIOF_MAGICCLOSE
_FEED: Final = b"\0"
_END: Final = b"V"
_HALF_S_MAX: Final = 3600.0


class Watchdog:
    """One that runs.

    Attributes:
        identity: what the driver calls it.
        timeout_s: from the last feeding to the reset.
    """

    def __init__(self, descriptor: int, identity: str, timeout_s: float) -> None:
        self._descriptor: int | None = descriptor
        self.identity = identity
        self.timeout_s = timeout_s

    @classmethod
    def arm(cls, path: str, timeout_s: float, until_s: float = math.inf) -> Self:
        """Let it run; that feeds it.

        Args:
            until_s: as of `feed`.

        Raises:
            OpPrereqError: there is none, it is in use, it cannot be as quick as that, or it is too
                late.
        """
        with _by(until_s) as is_in_time:
            if not is_in_time:
                raise OpPrereqError(f"watchdog {path}: this node has no good answer any more")
            return cls._armed(path, timeout_s)

    @classmethod
    def _armed(cls, path: str, timeout_s: float) -> Self:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as err:
            raise OpPrereqError(_explain(path, err)) from err
        try:
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.write(descriptor, _FEED)  # a device counts from when it is opened
                return cls(descriptor, "named pipe", timeout_s)
            identity, given_s = _prepare(descriptor, path, timeout_s)
            return cls(descriptor, identity, given_s)
        except OSError as err:
            os.close(descriptor)
            raise OpPrereqError(f"watchdog {path}: {err.strerror}") from err
        except OpPrereqError:
            with contextlib.suppress(OSError):
                os.write(descriptor, _END)
            os.close(descriptor)
            raise

    def feed(self, until_s: float) -> None:
        """Let it wait from now on again.

        Args:
            until_s: by the monotonic clock; the process dies rather than feed it later.
        """
        try:
            with _by(until_s) as is_in_time:
                if is_in_time and self._descriptor is not None:
                    os.write(self._descriptor, _FEED)
        except OSError as err:
            logger.warning("Cannot feed the watchdog: %s", err.strerror)

    def change(self, timeout_s: float, until_s: float) -> None:
        """Let it wait longer, or less long, if the driver lets it; that may feed it, too."""
        try:
            with _by(until_s) as is_in_time:
                if not is_in_time or self._descriptor is None:
                    return
                is_pipe = stat.S_ISFIFO(os.fstat(self._descriptor).st_mode)
                given_s = timeout_s if is_pipe else _set_timeout(self._descriptor, timeout_s)
        except OSError as err:
            logger.warning("The watchdog keeps its %g s: %s", self.timeout_s, err.strerror)
        else:
            self.timeout_s = given_s

    def end(self) -> None:
        """Stop it, where the driver lets it be stopped, and close it."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.write(self._descriptor, _END)
        self.let_go()

    def let_go(self) -> None:
        """Close it, so that nothing feeds it after this, not even the death of this process."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextlib.contextmanager
def _by(until_s: float) -> Iterator[bool]:
    """Do something by a time of the monotonic clock; tells whether there is any left.

    The process may be stopped, or get no processor, at any point.  A timer of the kernel ends it,
    by SIGALRM, before it goes on after that time.  The timer counts from when it is set, which may
    be later than the look at the clock; so it gets half of the time, and must have been set within
    the other half.
    """
    now_s = clock.monotonic()
    half_s = min((until_s - now_s) / 2, _HALF_S_MAX)
    if half_s <= 0:
        yield False
        return
    before_s, _ = signal.setitimer(signal.ITIMER_REAL, half_s)
    try:
        yield clock.monotonic() - now_s <= half_s
    finally:
        signal.setitimer(signal.ITIMER_REAL, before_s)  # of a daemon that is told to end


def _set_timeout(descriptor: int, timeout_s: float) -> float:
    """Set the time of a device; returns the time that it took."""
    time = bytearray(struct.pack("=i", int(timeout_s)))
    fcntl.ioctl(descriptor, _SET_TIMEOUT, time)
    [given_s] = struct.unpack("=i", time)
    return float(given_s)


def _prepare(descriptor: int, path: str, timeout_s: float) -> tuple[str, float]:
    """Set the time of a device; returns its name and the time that it took.

    Raises:
        OSError: it is no watchdog.
        OpPrereqError: it takes longer than that, or does not outlive its feeder.
    """
    buffer = bytearray(_SUPPORT.size)
    fcntl.ioctl(descriptor, _GET_SUPPORT, buffer)
    options, _firmware, name = _SUPPORT.unpack(buffer)
    identity = name.split(b"\0")[0].decode("ascii", "replace")
    if not options & _CAN_SET_TIMEOUT:
        raise OpPrereqError(f"watchdog {path} ({identity}): its time cannot be set")
    if not options & _CAN_END:  # then the kernel stops it whenever it is closed
        raise OpPrereqError(
            f"watchdog {path} ({identity}): its driver stops it when the agent dies, so it is no"
            " proof; load softdog and name its device, or do without ('gnt-cluster ha-enable"
            " --watchdog=none')"
        )
    given_s = _set_timeout(descriptor, timeout_s)
    if given_s > timeout_s:
        raise OpPrereqError(
            f"watchdog {path} ({identity}): its shortest time is {given_s:g} s, and"
            f" {timeout_s:g} s are asked for"
        )
    return identity, given_s


def _explain(path: str, error: OSError) -> str:
    match error.errno:
        case errno.ENOENT | errno.ENXIO | errno.ENODEV:
            return f"there is no watchdog at {path}; load its driver, or softdog"
        case errno.EBUSY:
            return f"watchdog {path} is in use; stop what uses it (systemd: RuntimeWatchdogSec=0)"
        case _:
            return f"watchdog {path}: {error.strerror}"
