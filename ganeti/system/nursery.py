"""A nursery: a small single-threaded process that forks a child for each request it is sent.

A daemon with an event loop and threads must not fork: a child may find a lock held by a thread that
it does not have.  So another process does, which has imported the children's modules once, and then
only waits on its control socket (Unix, sequenced packets).  A request is a number of the daemon's
choice, and a descriptor that goes to a fresh child.  The reports that come back say which process
the child is, and later how it ended.

A nursery may fork one child ahead of need, so that no request waits for that: the spare child waits
on a socket of its own for the descriptor of the next request.  It is a child like any other, used
up by one request, and ends when the nursery does.  Where it has died, a child is forked at once.

The nursery ends when the daemon is gone, which it sees as the end of the control socket; the kernel
ends one that cannot look, as it is stopped or hangs.  Children at work then go on by themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import select
import signal
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple, NoReturn

from ganeti.system.process_facts import signals_wait

logger = logging.getLogger(__name__)

_REQUEST: Final = struct.Struct("!q")  # number of the request; a descriptor comes with it
_REPORT: Final = struct.Struct("!qqi")  # number of the request, of the process, wait status
_STILL_RUNNING: Final = -1  # in the place of a wait status
READY: Final = 0  # in the place of the number of a request: the nursery takes requests now
_EXIT_CRASHED: Final = 70
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OURS: Final = (signal.SIGCHLD, *_IGNORED)  # signals that mean something else in children
_PR_SET_PDEATHSIG: Final = 1  # prctl(2)
_HANDED_OVER: Final = b"."  # the byte that is sent with a descriptor to the spare child


class Report(NamedTuple):
    """A report of the nursery on a child: ``wait_status`` is None while it lives."""

    number: int
    pid: int
    wait_status: int | None


def check_parent() -> None:
    """Make sure, right before a nursery is started, that this is the daemon's main thread.

    The kernel ends a nursery with the thread that started it, and not only with the process.
    """
    assert threading.current_thread() is threading.main_thread(), "it would end with this thread"


def _end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends; what it forks is not concerned."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def send_request(control: socket.socket, number: int, channel: socket.socket) -> None:
    """Ask for a child that gets this end of a channel.

    Raises:
        OSError: nobody is there, or the nursery has too much to do.
    """
    socket.send_fds(control, [_REQUEST.pack(number)], [channel.fileno()])


def receive_report(control: socket.socket) -> Report | None:
    """Return the next report, or None when the nursery is gone.

    Raises:
        BlockingIOError: there is none now.
    """
    try:
        data = control.recv(_REPORT.size)
    except ConnectionError:
        return None
    if len(data) != _REPORT.size:
        return None
    number, pid, status = _REPORT.unpack(data)
    return Report(number, pid, None if status == _STILL_RUNNING else status)


def report_ready(control: socket.socket) -> None:
    """Tell the daemon that requests are answered at once from now on."""
    with contextlib.suppress(OSError):  # it is gone
        control.send(_REPORT.pack(READY, os.getpid(), _STILL_RUNNING))


class _Spare(NamedTuple):
    """A child that waits for its request; our end of the socket to it."""

    pid: int
    link: socket.socket


class Nursery:
    """The children, and the way to the daemon.

    Args:
        control: our end of the control socket.
        live: the work of a child with its channel; it never returns.
        refuse: called, in the nursery, with the channel of a child that cannot be forked.
        get_ready: the work of a child before it has its channel; when given, a spare child is kept.
        ignored: signals that children go on to ignore, as the nursery does.
    """

    def __init__(
        self,
        control: socket.socket,
        live: Callable[[socket.socket], NoReturn],
        refuse: Callable[[socket.socket, OSError], None],
        *,
        get_ready: Callable[[], object] | None = None,
        ignored: Collection[signal.Signals] = (),
    ) -> None:
        self._control = control
        # Programs would inherit that we ignore them.
        self._heeded = [number for number in _OURS if number not in ignored]
        self._get_ready = get_ready
        self._spare: _Spare | None = None
        self._live = live
        self._refuse = refuse
        self._numbers: dict[int, int] = {}  # of the requests, by process

    def run(self, preparation: Iterable[object] = ()) -> None:
        """Fork children until the daemon has closed its end.

        Args:
            preparation: taken step by step before anything is waited for; requests that come
                meanwhile go first.
        """
        _end_with_parent()
        signal.signal(signal.SIGCHLD, lambda _number, _frame: self._reap())
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        for _step in preparation:
            while poller.poll(0):
                if not self._serve_one():
                    return
        self._fork_spare()
        while self._serve_one():
            self._fork_spare()

    def _serve_one(self) -> bool:
        """Wait for one request and carry it out; returns whether the daemon is still there."""
        token, descriptors, _flags, _address = socket.recv_fds(
            self._control, _REQUEST.size, 1, socket.MSG_CMSG_CLOEXEC
        )
        if len(token) != _REQUEST.size:
            return False
        for descriptor in descriptors:
            with socket.socket(fileno=descriptor) as channel:
                self._serve(_REQUEST.unpack(token)[0], channel)
        return True

    def _serve(self, number: int, channel: socket.socket) -> None:
        """Give the channel to the spare child, or to one that is forked now."""
        with signals_wait([signal.SIGCHLD]):  # not looked for before its number is written down
            pid = self._take_spare(channel)
            if pid is None:
                try:
                    pid = self._fork(lambda: self._live(channel))
                except OSError as err:
                    logger.warning("cannot fork: %s", err)
                    self._refuse(channel, err)
                    return
            self._numbers[pid] = number
            self._report(number, pid, _STILL_RUNNING)

    def _take_spare(self, channel: socket.socket) -> int | None:
        """Hand the channel to the spare child; None if there is none, or it is dead."""
        spare, self._spare = self._spare, None
        if spare is None:
            return None
        with spare.link:
            try:
                socket.send_fds(spare.link, [_HANDED_OVER], [channel.fileno()])
            except OSError as err:
                logger.warning("spare child %d is gone: %s; forking another", spare.pid, err)
                return None
        return spare.pid

    def _fork_spare(self) -> None:
        """Have a child ready; without one, the next request forks its own."""
        if self._get_ready is None or self._spare is not None:
            return
        try:
            self._spare = self._forked_ahead()
        except OSError as err:
            logger.warning("cannot fork ahead: %s; going on without", err)

    def _forked_ahead(self) -> _Spare:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                return _Spare(self._fork(lambda: self._wait_and_live(ours, theirs)), ours)
            except OSError:
                ours.close()
                raise

    def _wait_and_live(self, ours: socket.socket, theirs: socket.socket) -> None:
        """Be the spare child: wait for the channel, unless the nursery ends before."""
        ours.close()
        with theirs:
            _token, descriptors, _flags, _address = socket.recv_fds(
                theirs, len(_HANDED_OVER), 1, socket.MSG_CMSG_CLOEXEC
            )
        for descriptor in descriptors:
            self._live(socket.socket(fileno=descriptor))
        os._exit(0)

    def _fork(self, live: Callable[[], object]) -> int:
        # A child that never collects the objects made until now never writes to their pages, so
        # they stay shared.
        gc.freeze()
        pid = os.fork()
        if pid == 0:
            self._be_child(live)
        return pid

    def _be_child(self, live: Callable[[], object]) -> NoReturn:
        try:
            os.setsid()
            self._control.close()
            for number in self._heeded:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            if self._get_ready is not None:
                self._get_ready()
            live()
        finally:
            os._exit(_EXIT_CRASHED)  # never back into the nursery's own loop

    def _reap(self) -> None:
        """Collect ended children and tell the daemon how they ended."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                number = self._numbers.pop(pid, None)
                if number is not None:
                    self._report(number, pid, status)

    def _report(self, number: int, pid: int, status: int) -> None:
        with contextlib.suppress(OSError):  # the daemon is gone, or does not read: its loss
            self._control.send(_REPORT.pack(number, pid, status), socket.MSG_DONTWAIT)


def ignore_signals() -> None:
    """Let the daemon alone decide when this process ends."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
