"""LuxiD's way to the template that job processes are forked from: started when it is needed.

Source: `ganeti.jobexec.template` for what it is, `ganeti.system.nursery` for how one talks to it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence

import msgspec

import ganeti
from ganeti.base.errors import GenericError
from ganeti.luxid.job_process import JobProcess, ProcessGoneError
from ganeti.system import nursery, process
from ganeti.system.exits import ExitWatcher

logger = logging.getLogger(__name__)


def launch_argv() -> list[str]:
    """Return the command line of the template."""
    package = os.path.dirname(os.path.abspath(ganeti.__file__))
    libraries = os.path.dirname(os.path.dirname(os.path.abspath(msgspec.__file__)))
    directories = dict.fromkeys([os.path.dirname(package), libraries, *_library_directories()])
    path = os.path.join(package, "jobexec", "launch.py")
    return [sys.executable, "-I", "-S", path, ":".join(directories)]


def _library_directories() -> list[str]:
    """Return the directories of installed packages: what ``-S`` leaves out."""
    return [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]


class Template:
    """The template, and the job processes that it has forked and that live.

    When it dies the processes go on, and the next fork starts another one.

    Args:
        argv: its command line.
        log: descriptor of the file that its last words go to.
        on_exit: called for each process that has ended.
        on_lost: called when the template has ended, not by our wish.
    """

    def __init__(
        self,
        argv: Sequence[str],
        log: int,
        exits: ExitWatcher,
        on_exit: Callable[[JobProcess], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._argv = argv
        self._log = log
        self._exits = exits
        self._on_exit = on_exit
        self._on_lost = on_lost
        self._control: socket.socket | None = None
        self._numbers = itertools.count(1)
        self._living: dict[int, JobProcess] = {}

    def fork(self) -> JobProcess:
        """Return a new job process; it will say when it is ready.

        Raises:
            GenericError: the template cannot be started, or takes no more requests now.
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
        return made

    def close(self) -> None:
        """Let the template end.  May be called again."""
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
            self._control = None
        self._living.clear()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            with theirs:
                child = process.spawn(self._argv, stdin=theirs.fileno(), stderr=self._log)
        except GenericError:
            ours.close()
            raise
        self._exits.watch(child.pid, lambda: self._bury(child))
        asyncio.get_running_loop().add_reader(ours, self._on_report)
        return ours

    def _bury(self, child: process.Child) -> None:
        status = child.poll()
        logger.debug("Template %s of job processes ended with status %s", child.pid, status)

    def _on_report(self) -> None:
        """Take one report, or find out that the template is gone."""
        assert self._control is not None
        try:
            report = nursery.receive_report(self._control)
        except BlockingIOError:
            return
        if report is None:
            logger.warning("The template of job processes ended; the next job starts another one")
            self.close()
            self._on_lost()
            return
        made = self._living.get(report.number)
        if made is None:
            return
        made.pid = report.pid
        if report.wait_status is not None:
            del self._living[report.number]
            made.is_gone = True
            self._on_exit(made)
