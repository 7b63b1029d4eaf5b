"""Job processes as LuxiD knows them: forked from a template, kept ahead of need, used up by a job.

The template is started when it is needed (`ganeti.jobexec.template`, `ganeti.system.nursery`).  By
the option ``--exec-jobs`` each process is a program of its own instead (`Programs`).  A few
processes wait ahead of need: lock file held, blocked on us, each for exactly one job
(`ganeti.protocol.job_start` has the messages).

Source: ARCHITECTURE, "The life of a job".
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

import ganeti
from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.daemon.partner import LOOK_S, Patience, look
from ganeti.luxid.queue.job_process import JobProcess, ProcessGoneError
from ganeti.luxid.tasks import Tasks
from ganeti.protocol import job_start
from ganeti.system import files, nursery, process
from ganeti.system.process_facts import ExitWatcher

logger = logging.getLogger(__name__)

# A template that has loaded everything forks within milliseconds; each that is ended for having
# taken longer leaves the next one twice the time, as the machine may be that busy.
FORK_S_MAX: Final = 2.0
# It imports and rehearses for half a second, on a busy machine for ten times that.
READY_S_MAX: Final = 60.0
# As `FORK_S_MAX`, for a process that imports everything for itself.
START_S_MAX: Final = 5.0
# A process that waits ahead of need answers at once.  One that does not is killed, and the job goes
# to another; the last one that is tried has the whole time, as the machine may be that busy.
ASSIGN_S_MAX: Final = 1.0
WARM_DEFAULT: Final = 4  # enough for bursts of that many jobs to start at once
WARM_LOW: Final = 2
STARTING_MAX: Final = 8
FAILURES_TOLERATED: Final = 3  # in a row, before we say that none can be started
RETRY_DELAY_S_MAX: Final = 60.0
REFILL_DELAY_S: Final = 0.05  # leave the processor to the job that was just started

ALONE: Final = "job"
"""The word after which the launched program is one job process, and no template."""


def launch_argv(*words: str) -> list[str]:
    """Return the command line of the template, or with `ALONE` of a job process."""
    package = os.path.dirname(os.path.abspath(ganeti.__file__))
    libraries = os.path.dirname(os.path.dirname(os.path.abspath(msgspec.__file__)))
    directories = dict.fromkeys([os.path.dirname(package), libraries, *_library_directories()])
    path = os.path.join(package, "jobexec", "launch.py")
    return [sys.executable, "-I", "-S", path, ":".join(directories), *words]


def _library_directories() -> list[str]:
    """Return the directories of installed packages, which ``-S`` leaves out."""
    return [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]


@dataclass(eq=False, slots=True)
class Template:
    """The template, and the job processes that it has forked and that live.

    When it dies the processes go on, and the next fork starts another one.  One that does not fork
    although it is asked to is killed.

    Args:
        argv: its command line.
        log: descriptor of the file that its last words go to.
        on_exit: called for each process that has ended.
        on_lost: called when the template has let go of us, not by our wish.
        on_end: called when it has ended.
    """

    _argv: Sequence[str]
    _log: int
    _exits: ExitWatcher
    _on_exit: Callable[[JobProcess], None]
    _on_lost: Callable[[], None]
    _on_end: Callable[[], None]
    _control: socket.socket | None = None
    _numbers: Iterator[int] = field(default_factory=partial(itertools.count, 1))
    _living: dict[int, JobProcess] = field(default_factory=dict)
    _pid: int = 0
    _is_ready: bool = False
    _fork_s_max: float = FORK_S_MAX

    def fork(self) -> JobProcess:
        """Return a new job process; it will say when it is ready.

        Raises:
            GenericError: the template cannot be started, or takes no more requests now.
            OSError: there are too few descriptors at the moment.
        """
        if self._control is None:
            self._control = self._start()
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            with theirs:
                nursery.send_request(self._control, number, theirs)
        except OSError as err:
            ours.close()
            raise ProcessGoneError(f"the template of job processes does not answer: {err}") from err
        self._living[number] = made = JobProcess(ours)
        if self._is_ready:
            self._look_after(made)
        return made

    def _look_after(self, made: JobProcess) -> None:
        asyncio.get_running_loop().call_later(self._fork_s_max, self._check, made, self._control)

    def _check(self, made: JobProcess, control: socket.socket | None) -> None:
        if control is None or control is not self._control:
            return
        self.take_reports()
        if control is self._control and not made.pid:
            logger.warning("The template of job processes hangs, it is killed")
            self._fork_s_max *= 2
            self._exits.signal(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Let the template end.  May be called again."""
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
            self._control = None
            if not self._is_ready:  # it may hang, and would not see that we are gone
                self._exits.signal(self._pid, signal.SIGKILL)
        self._living.clear()
        self._is_ready = False

    def _start(self) -> socket.socket:
        nursery.check_parent()  # LuxiD's loop runs in the main thread
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            with theirs:
                child = process.spawn(self._argv, stdin=theirs.fileno(), stderr=self._log)
            self._exits.watch(child.pid, lambda: self._on_template_end(child))
        except (GenericError, OSError):
            ours.close()
            raise
        self._pid = child.pid
        asyncio.get_running_loop().add_reader(ours, self.take_reports)
        self._look_soon(ours, Patience(), asyncio.get_running_loop().time() + READY_S_MAX)
        return ours

    def _look_soon(self, control: socket.socket, patience: Patience, until: float) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(LOOK_S, self._check_ready, control, patience, until)

    def _check_ready(self, control: socket.socket, patience: Patience, until: float) -> None:
        """Kill a template that does nothing before it is ready, or takes too long."""
        if control is not self._control or self._is_ready:
            return
        if patience.ends(look(self._pid)) or asyncio.get_running_loop().time() >= until:
            logger.warning("The template of job processes does not get ready, it is killed")
            self._exits.signal(self._pid, signal.SIGKILL)
        else:
            self._look_soon(control, patience, until)

    def _on_template_end(self, child: process.Child) -> None:
        status = child.poll()
        logger.debug("Template %s of job processes ended with status %s", child.pid, status)
        self._on_end()

    def take_reports(self) -> None:
        """Take the reports that have come, or find out that the template is gone."""
        while self._control is not None:
            try:
                report = nursery.receive_report(self._control)
            except BlockingIOError:
                return
            if report is None:
                self._lose()
            else:
                self._take(report)

    def _lose(self) -> None:
        logger.warning("The template of job processes ended; the next job starts another one")
        for made in self._living.values():
            made.is_orphan = not made.livelock
        self.close()
        self._on_lost()

    def _take(self, report: nursery.Report) -> None:
        if report.number == nursery.READY:
            self._is_ready = True
            for made in self._living.values():
                self._look_after(made)
            return
        forked = self._living.get(report.number)
        if forked is None:
            return
        self._fork_s_max = FORK_S_MAX
        forked.pid = report.pid
        if report.wait_status is not None:
            del self._living[report.number]
            forked.is_gone = True
            self._on_exit(forked)


@dataclass(eq=False, slots=True)
class Programs:
    """Job processes by a fork and an exec for each, which a site may confine one by one.

    Each imports all that jobs need before it says that it is ready.

    Args:
        argv, log, on_exit: as of `Template`.
    """

    _argv: Sequence[str]
    _log: int
    _exits: ExitWatcher
    _on_exit: Callable[[JobProcess], None]
    _start_s_max: float = START_S_MAX

    def fork(self) -> JobProcess:
        """Return a new job process; errors as of `Template.fork`."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            with theirs:
                child = process.spawn(self._argv, stdin=theirs.fileno(), stderr=self._log)
            self._exits.watch(child.pid, lambda: self._on_end(child, made))
        except (GenericError, OSError):
            ours.close()
            raise
        made = JobProcess(ours)
        made.pid = child.pid
        asyncio.get_running_loop().call_later(self._start_s_max, self._check, made)
        return made

    def _check(self, made: JobProcess) -> None:
        """End a process that does not get ready: if it hangs, it would not see that it should."""
        if made.livelock:
            self._start_s_max = START_S_MAX
        elif self._exits.signal(made.pid, signal.SIGKILL):
            logger.warning("Job process %s hangs, it is killed", made.pid)
            self._start_s_max *= 2

    def _on_end(self, child: process.Child, made: JobProcess) -> None:
        status = child.poll()
        logger.debug("Job process %s ended with status %s", child.pid, status)
        made.is_gone = True
        self._on_exit(made)

    def take_reports(self) -> None:
        """There is nobody else to report."""

    def close(self) -> None:
        """Each process sees by itself that nobody wants it."""


def remove_rehearsals(paths: Paths) -> None:
    """Remove what processes left that were killed while they played a job."""
    for name in os.listdir(paths.luxid_message_dir):
        pid = name.removeprefix(job_start.REHEARSAL_PREFIX)
        if pid != name and pid.isdecimal() and process.wait_gone(int(pid), 0.0):
            files.remove_tree(f"{paths.luxid_message_dir}/{name}")


class Pool:
    """The warm processes.

    Args:
        size: how many to keep.
        tasks: the processes are started there.
        exits: tells when processes end.
        by_exec: each process is a program of its own.
    """

    def __init__(
        self, paths: Paths, size: int, tasks: Tasks, exits: ExitWatcher, *, by_exec: bool = False
    ) -> None:
        self._paths = paths
        self._size = size
        self._tasks = tasks
        self._warm: deque[JobProcess] = deque()
        self._starting = 0
        self._wanted: deque[asyncio.Future[JobProcess]] = deque()
        self._closed = False
        self._failures = 0
        self._log = os.open(
            f"{paths.log_dir}/jobs.log",
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC,
            0o600,
        )
        self._source: Template | Programs = (
            Programs(launch_argv(ALONE), self._log, exits, self._on_exit)
            if by_exec
            else Template(
                launch_argv(), self._log, exits, self._on_exit, self._on_lost, self._clean_up
            )
        )

    def has_warm(self) -> bool:
        """Tell whether a process waits for its job."""
        return bool(self._warm)

    async def take(self) -> JobProcess:
        """Return a process that waits for its job.

        Raises:
            ProcessGoneError: none can be started.
        """
        while self._warm:
            candidate = self._warm.popleft()
            self._refill_soon()
            if not candidate.is_gone:
                return candidate
        future: asyncio.Future[JobProcess] = asyncio.get_running_loop().create_future()
        self._wanted.append(future)
        self.fill()
        try:
            return await future
        finally:
            if future in self._wanted:
                self._wanted.remove(future)

    def fill(self) -> None:
        """Start as many processes as are missing, a few at a time."""
        missing = self._size + len(self._wanted) - len(self._warm) - self._starting
        for _ in range(min(missing, STARTING_MAX - self._starting)):
            if not self._closed:
                self._starting += 1
                self._tasks.create_task(self._start_one(), name="start a job process")

    def close(self) -> None:
        """Let the warm processes go.  May be called again."""
        self._drop_warm()
        if not self._closed:
            self._closed = True
            self._source.close()
            os.close(self._log)

    def end(self, hung: JobProcess) -> None:
        """Do without a process that was not confirmed, and kill it: it may hang."""
        hung.drop()
        self._source.take_reports()
        if hung.pid and not hung.is_gone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(hung.pid, signal.SIGKILL)

    def _drop_warm(self) -> None:
        while self._warm:
            self._warm.popleft().drop()

    def _on_lost(self) -> None:
        """Nobody tells us any more when these end: have others from the next template."""
        self._drop_warm()
        self._on_failure(ProcessGoneError("their template ended"))

    def _on_exit(self, ended: JobProcess) -> None:
        if not ended.has_job:
            self._clean_up(ended.pid)
        if ended in self._warm:
            logger.warning("Warm job process %s ended", ended.pid)
            self._warm.remove(ended)
            ended.drop()
            self._refill_soon()

    def _clean_up(self, pid: int = 0) -> None:
        """Remove what a process left that had no job; the next start removes what stays."""
        try:
            self._remove_lock_of(pid)
            remove_rehearsals(self._paths)
        except OSError as err:
            logger.warning("Cannot remove what job processes left: %s; ignoring", err)

    def _remove_lock_of(self, pid: int) -> None:
        """Remove the lock file of a process that ended before it had a job."""
        for name in os.listdir(self._paths.livelock_dir):
            if name.lstrip(".").startswith(f"{job_start.WARM_LOCK_PREFIX}_{pid}_"):
                files.remove_if_exists(os.path.join(self._paths.livelock_dir, name))

    def _refill_soon(self) -> None:
        """Make up for a process taken: at once if few are left, else when that job had its turn."""
        if len(self._warm) < WARM_LOW:
            self.fill()
        else:
            asyncio.get_running_loop().call_later(REFILL_DELAY_S, self.fill)

    async def _start_one(self) -> None:
        started: JobProcess | None = None
        try:
            started = self._source.fork()
            await started.wait_ready()
        except (GenericError, OSError) as err:
            self._starting -= 1
            if started is not None:
                self._source.take_reports()  # the end of the template may be why
                if started.is_orphan:
                    started.drop()
                else:
                    self.end(started)
            if started is None or not started.is_orphan:
                logger.warning("A job process did not start: %s", err)
                self._on_failure(err)
            elif self._failures < FAILURES_TOLERATED:
                self.fill()
            return
        except BaseException:
            if started is not None:
                started.drop()
            raise
        self._starting -= 1
        self._failures = 0
        if self._closed:
            started.drop()
            return
        while self._wanted:
            future = self._wanted.popleft()
            if not future.done():
                future.set_result(started)
                break
        else:
            self._warm.append(started)
        self.fill()

    def _on_failure(self, error: GenericError | OSError) -> None:
        """Try again, at first at once, then ever more rarely; tell clients that wait by then."""
        self._failures += 1
        if self._failures < FAILURES_TOLERATED:
            self.fill()
            return
        self._source.close()  # perhaps another one does better
        while self._wanted:
            future = self._wanted.popleft()
            if not future.done():
                future.set_exception(ProcessGoneError(f"no job process can be started: {error}"))
        delay_s = min(RETRY_DELAY_S_MAX, 2.0 ** (self._failures - FAILURES_TOLERATED))
        asyncio.get_running_loop().call_later(delay_s, self.fill)
