"""The daemon's side of the helper: hand a call over, wait for its answer, enforce its deadline.

For each call the daemon makes a pair of sockets, passes one end to the helper and talks to the
child over the other.  How a child ended comes from the helper.  When the helper itself dies, the
children it made go on and still answer; a new helper is started by exec, which is safe in a process
with threads.  If that happens too often the daemon gives up, loudly.

A helper that hangs is ended and replaced in the same way.  It hangs if it tells of no child at all
for some seconds while a call waits for one, or longer while it starts.  Calls that it had not
given to a child go to the next one.  That they were not begun is certain: nobody had read the
request when the last holder of its channel was gone.

The same goes for a child that dies before it has read its call, or was made ahead and hangs when
that comes.  One that has begun is left to its deadline.

A child whose call only looked is kept for a moment and takes the next such call, as a fork and the
end of a process cost more than most looks.  Where it has died before it read the call, or hangs, a
fresh child takes that, and no other one that was kept is trusted any more.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import GenericError, TransportError
from ganeti.base.paths import Paths
from ganeti.daemon import memory
from ganeti.daemon.partner import LOOK_S, Patience, look
from ganeti.noded import child, helper
from ganeti.protocol.node_rpc import NodeCall, encode_broken_off, encode_failure
from ganeti.system import nursery, process, process_facts
from ganeti.transport.flow import canceled_by

logger = logging.getLogger(__name__)

# How long a child may clean up after its deadline: killing a script's process group is quick.
STOP_GRACE_S: Final = 5.0
_STOP_TRIES: Final = 10
# How long the helper may tell of no child while a call waits; it takes less than a millisecond.
HELPER_S_MAX: Final = 3.0
_NEW_HELPER_S_MAX: Final = 60.0  # that has to load everything, on a slow machine
_LOOKS: Final = 2  # in that time: when all was paused, the helper needs a moment as well
_TRIES: Final = 4  # of a call that no child has begun
# How long to wait for the helper's report about a child that ended without an answer.
_END_REPORT_TIMEOUT_S: Final = 2.0
# More deaths of the helper than this within the window mean that a restart does not help.
_RESTARTS_MAX: Final = 5
_RESTART_WINDOW_S: Final = 60.0
_READ_CHUNK_BYTES: Final = 1 << 16  # a larger buffer is a mapping of its own, each time
_ANSWER_BYTES_MAX: Final = 256 << 20
# Children are kept for another call: so many, so long, for so many calls, as long as they are slim.
_KEPT_MAX: Final = 4
_KEPT_S: Final = 10.0
_END_S_MAX: Final = 2.0  # for one that is let go
_CALLS_MAX: Final = 200
_SLIM_BYTES_MAX: Final = 1 << 20  # of a request and its answer


@dataclass(frozen=True, slots=True)
class HelperHandle:
    """The helper as the daemon knows it.

    Attributes:
        child: a helper that was started by exec; as long as it is kept nobody else collects it.
    """

    pid: int
    control: socket.socket
    child: process.Child | None = None


def start_helper(paths: Paths, hostname: str, kept: Iterable[int]) -> HelperHandle:
    """Fork the helper; to be called while this process has no event loop and no threads.

    Args:
        kept: descriptors that the helper keeps: the log.
    """
    nursery.check_parent()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        helper.close_all_but({0, 1, 2, theirs.fileno(), *kept})
        helper.serve(theirs, paths, hostname)
    theirs.close()
    return HelperHandle(pid, ours)


def _start_new_helper() -> HelperHandle:
    """Start a helper by exec, which a process with threads may do at any time, in its main thread.

    Raises:
        CommandError: it cannot be started.
    """
    nursery.check_parent()  # the loop, which notices that the helper died, runs in the main thread
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        lock = "lock" if memory.is_enabled() else "nolock"
        argv = [sys.executable, "-m", helper.__name__, str(theirs.fileno()), lock]
        started = process.spawn(argv, stderr=2, pass_fds=(theirs.fileno(),))
    return HelperHandle(started.pid, ours, started)


class _Running:
    """A child with the call that it has; one that is kept has had others before, or waits.

    Args:
        helper_pid: of the helper, which tells of its end.
        helper_gone: done once another helper is there.
    """

    def __init__(
        self,
        number: int,
        channel: socket.socket,
        helper_pid: int,
        helper_gone: asyncio.Future[None],
    ) -> None:
        self.number = number
        self.channel = channel
        self.helper_pid = helper_pid
        self.helper_gone = helper_gone
        self.calls_before = 0
        self.let_go: asyncio.TimerHandle | None = None  # when it has waited for too long
        self.received = bytearray()
        self.pid: int | None = None
        self._descriptor: int | None = None  # of the process; None once that is gone
        self.wait_status: int | None = None
        self.was_cut_off = False
        self.ended = asyncio.Event()

    @property
    def is_complete(self) -> bool:
        """Whether the whole answer is here."""
        return self.received.endswith(child.END_OF_REPLY)

    @property
    def was_never_begun(self) -> bool:
        """Whether it went under with the helper, or with a child, before a child had read it."""
        return self.was_cut_off and not self.received

    def may_stay_after(self, call: NodeCall) -> bool:
        """Tell whether it may have another call after this one: it must leave nothing behind."""
        return not call.rules.changes and self.calls_before < _CALLS_MAX

    def stop_waiting(self) -> None:
        """Drop the limit of the time for which it waits."""
        if self.let_go is not None:
            self.let_go.cancel()

    def take_process(self, pid: int) -> None:
        """Take note of its process: nobody may tell of its end, and another get its number."""
        self.pid = pid
        with contextlib.suppress(OSError):  # it has ended
            self._descriptor = os.pidfd_open(pid)

    def close(self) -> None:
        """Let go of it.  May be called again."""
        self.channel.close()
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def signal_group(self, number: signal.Signals, *, leader_only: bool = False) -> bool:
        """Send a signal to the child, or to it and all of its group, unless it has ended.

        Returns:
            Whether it may be there.
        """
        if self.pid is None:
            return True
        if self._descriptor is None or self.ended.is_set():
            return False
        ended = select.poll()
        ended.register(self._descriptor, select.POLLIN)
        if ended.poll(0):
            return False
        with contextlib.suppress(ProcessLookupError):
            if not leader_only:
                os.killpg(self.pid, number)
        with contextlib.suppress(ProcessLookupError):  # it may have been no group's leader yet
            signal.pidfd_send_signal(self._descriptor, number)
        return True

    async def wait_end(self, timeout_s: float) -> bool:
        """Wait until the helper says that the child has ended; returns whether it did."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.ended.wait()
        return self.ended.is_set()


@dataclass(frozen=True, slots=True)
class _Asked:
    """One call as the daemon was asked for it; ``end_s``: its deadline, on the loop's clock."""

    call: NodeCall
    head: child.RequestHead
    body: bytes
    deadline_s: float
    end_s: float
    gone: asyncio.Future[None] | None

    def not_run(self, err: Exception, hostname: str) -> bytes:
        """Return the answer for a call that cannot be given to a child."""
        logger.warning("%s was not run: %s", self.call.name, err)
        return encode_failure(f"{self.call.name} was not run on node {hostname}: {err}")


class Children:
    """Runs calls in children of the helper."""

    def __init__(
        self, helper_handle: HelperHandle, hostname: str, on_give_up: Callable[[str], None]
    ) -> None:
        self._hostname = hostname
        self._on_give_up = on_give_up
        self._numbers = itertools.count(1)
        self._calls: dict[int, _Running] = {}
        self._kept: list[_Running] = []  # that wait for another call; the last one takes it
        self._restarts: deque[float] = deque(maxlen=_RESTARTS_MAX)
        self._loop = asyncio.get_running_loop()
        self._helper = helper_handle
        self._helper_s_max = HELPER_S_MAX
        self._told_s = 0.0  # when it told of a child last
        self._replaced: asyncio.Future[None] = self._loop.create_future()
        self._watch_control()

    async def call(
        self,
        call: NodeCall,
        head: child.RequestHead,
        body: bytes,
        deadline_s: float,
        gone: asyncio.Future[None] | None = None,
    ) -> bytes:
        """Run one call in a child and return the body of its answer.

        Args:
            gone: once done, nobody waits for the answer any more, and the child is stopped.

        Never raises for an error of the child: a crash or a deadline is an answer too.
        """
        asked = _Asked(call, head, body, deadline_s, self._loop.time() + deadline_s, gone)
        running: _Running | None = self._take_kept(call)
        for _ in range(_TRIES):
            try:
                running = running or self._new_child()
            except (OSError, TransportError) as err:
                return asked.not_run(err, self._hostname)
            try:
                answer = await self._ask(running, asked)
            finally:
                self._keep_or_forget(running, asked)
            if answer:
                return answer
            if running.calls_before:
                self._let_all_go()
            running = None
        why = f"no child of the helper on {self._hostname} has taken it"
        return encode_failure(f"{call.name} was not run: {why}")

    async def _ask(self, running: _Running, asked: _Asked) -> bytes:
        """As `call`; nothing if no child has begun it, and another one may."""
        name, gone = asked.call.name, asked.gone
        try:
            async with asyncio.timeout_at(asked.end_s):
                with canceled_by(gone) if gone is not None else contextlib.nullcontext():
                    stays = running.may_stay_after(asked.call)
                    request = child.encode_request(asked.head, asked.body, stays=stays)
                    await self._converse(running, request)
                    if running.was_never_begun:
                        await _end_or_new_helper(running)
                        return b""
            return await self._answer(asked.call, running)
        except TimeoutError:
            why = f"did not end within {asked.deadline_s:g} s on node {self._hostname}"
            return await self._stop(running, f"{name} {why} and was stopped")
        except asyncio.CancelledError:
            if gone is None or not gone.done():
                raise  # the daemon ends; its children do not
            _remain_at_work()
            return await self._stop(running, f"{name} was stopped, as its caller hung up")
        except (OSError, TransportError) as err:
            return asked.not_run(err, self._hostname)

    def close(self) -> None:
        """Let the helper end; children at work finish by themselves.  May be called again."""
        for running in list(self._kept):
            self._forget(running)
        if self._helper.control.fileno() >= 0:
            self._loop.remove_reader(self._helper.control.fileno())
            self._helper.control.close()

    def _new_child(self) -> _Running:
        """Let the helper make a child, or give the one that it has; begin to look whether it hangs.

        Raises:
            TransportError: it takes no calls.
            OSError: no channel can be made.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        running = _Running(next(self._numbers), ours, self._helper.pid, self._replaced)
        self._calls[running.number] = running
        try:
            with theirs:
                nursery.send_request(self._helper.control, running.number, theirs)
        except OSError as err:
            self._forget(running)
            raise TransportError(f"the helper process takes no calls: {err}") from err
        self._look_later(self._helper, running.number, _LOOKS)
        return running

    def _take_kept(self, call: NodeCall) -> _Running | None:
        """Return a child that waits for another call, if there is one and the call only looks."""
        if call.rules.changes or not self._kept:
            return None
        running = self._kept.pop()
        running.stop_waiting()
        running.received = bytearray()
        self._look_at_child_later(running.number, Patience())
        return running

    def _keep_or_forget(self, running: _Running, asked: _Asked) -> None:
        """Let a child that has answered wait for another call, unless enough of them do."""
        is_slim = len(asked.body) + len(running.received) <= _SLIM_BYTES_MAX
        is_well = running.is_complete and not running.ended.is_set()
        is_watched = running.helper_pid == self._helper.pid
        has_room = len(self._kept) < _KEPT_MAX
        if running.may_stay_after(asked.call) and is_slim and is_well and is_watched and has_room:
            running.calls_before += 1
            running.let_go = self._loop.call_later(_KEPT_S, self._let_go, running)
            self._kept.append(running)
        else:
            self._forget(running)

    def _forget(self, running: _Running) -> None:
        """Let a child go; its end is nobody's business any more.  May be called again."""
        running.stop_waiting()
        if running in self._kept:
            self._kept.remove(running)
        self._calls.pop(running.number, None)
        running.close()

    def _let_go(self, running: _Running) -> None:
        """Let a child that waits for a call end; one that hangs is killed."""
        running.stop_waiting()
        self._kept.remove(running)
        running.channel.close()
        self._loop.call_later(_END_S_MAX, self._end, running)

    def _let_all_go(self) -> None:
        for running in list(self._kept):
            self._let_go(running)

    def _end(self, running: _Running) -> None:
        running.signal_group(signal.SIGKILL, leader_only=True)
        self._forget(running)

    async def _converse(self, running: _Running, request: bytes) -> None:
        """Send the request, then read until the reply is complete or the child has ended."""
        try:  # an error: it died, and its reply is cut short
            await self._loop.sock_sendall(running.channel, request)
        except ConnectionError:
            running.was_cut_off = True
        try:
            while not running.is_complete and len(running.received) <= _ANSWER_BYTES_MAX:
                chunk = await self._loop.sock_recv(running.channel, _READ_CHUNK_BYTES)
                if not chunk:
                    return
                running.received += chunk
        except ConnectionError:  # it had not read all of the request
            running.was_cut_off = True

    def _look_later(self, handle: HelperHandle, number: int, looks: int) -> None:
        """Look, so many times from now on, whether a helper has told the child of a call."""
        pause_s = self._helper_s_max / _LOOKS
        self._loop.call_later(pause_s, self._look, handle, number, looks - 1)

    def _look(self, handle: HelperHandle, number: int, looks: int) -> None:
        running = self._calls.get(number)
        if running is None or running.pid is not None or handle is not self._helper:
            return
        if self._told_s > self._loop.time() - self._helper_s_max:
            looks = _LOOKS  # it is busy
        if looks:
            self._look_later(handle, number, looks)
            return
        logger.critical("the helper process %d hangs, it is killed", handle.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(handle.pid, signal.SIGKILL)  # its end is seen on the control socket

    def _look_at_child_later(self, number: int, patience: Patience) -> None:
        self._loop.call_later(LOOK_S, self._look_at_child, number, patience)

    def _look_at_child(self, number: int, patience: Patience) -> None:
        """Kill the child of a call if it hangs and has not begun with it."""
        running = self._calls.get(number)
        if running is None or running.pid is None or running.ended.is_set() or running.received:
            return
        if process_facts.name_of(running.pid) != child.SPARE_NAME:
            return
        if patience.ends(look(running.pid)):
            logger.critical("the spare child %d hangs, it is killed", running.pid)
            running.signal_group(signal.SIGKILL, leader_only=True)
            return
        self._look_at_child_later(number, patience)

    async def _answer(self, call: NodeCall, running: _Running) -> bytes:
        """Return the answer of the child, or a failure when there is none."""
        if running.is_complete:
            return bytes(running.received)
        if len(running.received) > _ANSWER_BYTES_MAX:
            running.signal_group(signal.SIGKILL)
        await running.wait_end(_END_REPORT_TIMEOUT_S)
        status = running.wait_status
        how = "in an unknown way" if status is None else _describe_status(status)
        logger.error("child %s of %s ended without an answer, %s", running.pid, call.name, how)
        text = f"ended without an answer on node {self._hostname}, {how}"
        return encode_broken_off(f"{call.name} {text}; the node daemon's log may say why")

    async def _stop(self, running: _Running, why: str) -> bytes:
        """End a child, and with it the program that it waits for; returns the answer for it."""
        logger.warning("%s", why)
        for _ in range(_STOP_TRIES):  # one that was just born does not listen yet
            is_there = running.signal_group(signal.SIGTERM, leader_only=True)
            if not is_there or await running.wait_end(STOP_GRACE_S / _STOP_TRIES):
                break
        else:
            running.signal_group(signal.SIGKILL)
            await running.wait_end(STOP_GRACE_S)
        return encode_broken_off(why)

    def _watch_control(self) -> None:
        """Begin to read the helper's reports."""
        self._helper.control.setblocking(False)
        self._loop.add_reader(self._helper.control.fileno(), self._on_control)

    def _on_control(self) -> None:
        """Take one report, or find out that the helper is gone."""
        try:
            report = nursery.receive_report(self._helper.control)
        except BlockingIOError:
            return
        if report is None:
            self._restart()
            return
        self._helper_s_max, self._told_s = HELPER_S_MAX, self._loop.time()
        running = self._calls.get(report.number)
        if running is None:
            return  # answered and forgotten
        if running.pid is None:
            running.take_process(report.pid)
            self._look_at_child_later(report.number, Patience())
        if report.wait_status is not None:
            running.wait_status = report.wait_status
            running.ended.set()
            if running in self._kept:
                self._forget(running)

    def _restart(self) -> None:
        """Start a new helper in place of a dead one, or give up."""
        self.close()  # and with it children that are kept: the new helper would not tell of them
        now_s = self._loop.time()
        if len(self._restarts) == _RESTARTS_MAX and now_s - self._restarts[0] < _RESTART_WINDOW_S:
            self._on_give_up(f"the helper process died {_RESTARTS_MAX + 1} times in a minute")
            return
        self._restarts.append(now_s)
        logger.critical("the helper process %d died; starting a new one", self._helper.pid)
        _end_for_certain(self._helper.pid)
        try:
            self._helper = _start_new_helper()
        except GenericError as err:
            self._on_give_up(f"no new helper process can be started: {err.message}")
            return
        self._helper_s_max = _NEW_HELPER_S_MAX
        self._watch_control()
        self._replaced.set_result(None)
        self._replaced = self._loop.create_future()


async def _end_or_new_helper(running: _Running) -> None:
    """Wait until the helper has told of the end of a child, which is late at times, or is gone."""
    ended = asyncio.ensure_future(running.ended.wait())
    try:
        await asyncio.wait((ended, running.helper_gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended.cancel()


def _remain_at_work() -> None:
    """Take the request to cancel the current task as dealt with."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()


def _end_for_certain(pid: int) -> None:
    """Make sure that a process of ours is dead and forgotten."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _describe_status(status: int) -> str:
    """Return the meaning of a wait status in words."""
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"with exit status {os.waitstatus_to_exitcode(status)}"
