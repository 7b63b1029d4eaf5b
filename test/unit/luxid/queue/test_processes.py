"""The pool of job processes, where no process is needed to show it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from ganeti.base.paths import Paths
from ganeti.luxid.queue import processes
from ganeti.luxid.queue.job_process import JobProcess, ProcessGoneError
from ganeti.luxid.queue.processes import FAILURES_TOLERATED, Pool, Template
from ganeti.luxid.tasks import Tasks
from ganeti.system.process_facts import ExitWatcher


def test_a_process_that_never_gets_ready_is_hung_up_on_and_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths(str(tmp_path))
    os.makedirs(paths.log_dir)
    theirs: list[socket.socket] = []
    hung: list[subprocess.Popen[bytes]] = []

    def fork(_template: Template) -> JobProcess:
        ours, other = socket.socketpair()
        other.settimeout(60)
        theirs.append(other)
        hung.append(subprocess.Popen(["sleep", "600"]))
        made = JobProcess(ours)
        made.pid = hung[-1].pid if len(hung) > 1 else 0  # of the first one nobody has told
        return made

    async def hang(process: JobProcess) -> None:
        raise ProcessGoneError(f"job process {process.pid} does not answer")

    async def take() -> None:
        async with asyncio.TaskGroup() as group:
            exits, tasks = ExitWatcher(asyncio.get_running_loop()), Tasks(group)
            pool = Pool(paths, 0, tasks, exits)
            with pytest.raises(ProcessGoneError, match="does not answer"):
                await pool.take()
            pool.close()
            exits.close()
            tasks.cancel()

    monkeypatch.setattr(Template, "fork", fork)
    monkeypatch.setattr(JobProcess, "wait_ready", hang)
    asyncio.run(take())
    assert len(theirs) == FAILURES_TOLERATED
    for each in theirs:
        assert each.recv(1) == b""
        each.close()
    first, *others = hung
    assert {each.wait(60) for each in others} == {-signal.SIGKILL}
    assert first.poll() is None
    first.kill()
    first.wait(60)


@pytest.mark.parametrize("by_exec", [False, True])
def test_a_shortage_of_descriptors_is_a_process_that_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_exec: bool
) -> None:
    paths = Paths(str(tmp_path))
    os.makedirs(paths.log_dir)
    tries: list[int] = []

    def watch(_exits: ExitWatcher, pid: int, _callback: object) -> bool:
        tries.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def spawn(*_args: object, **_how: object) -> SimpleNamespace:
        return SimpleNamespace(pid=1)

    async def take() -> None:
        async with asyncio.TaskGroup() as group:
            exits, tasks = ExitWatcher(asyncio.get_running_loop()), Tasks(group)
            pool = Pool(paths, 0, tasks, exits, by_exec=by_exec)
            with pytest.raises(ProcessGoneError, match="Too many open files"):
                await pool.take()
            pool.close()
            exits.close()
            tasks.cancel()

    monkeypatch.setattr(ExitWatcher, "watch", watch)
    monkeypatch.setattr(processes.process, "spawn", spawn)
    asyncio.run(take())
    assert tries == [1] * FAILURES_TOLERATED


@pytest.mark.parametrize("by_closing", [False, True])
def test_a_template_that_hangs_before_it_is_ready_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_closing: bool
) -> None:
    monkeypatch.setattr(processes, "LOOK_S", 0.01)

    async def run() -> int:
        loop, lost = asyncio.get_running_loop(), asyncio.Event()
        exits = ExitWatcher(loop)
        template = Template(
            ["sleep", "600"], os.open(os.devnull, os.O_WRONLY), exits, print, lost.set, print
        )
        template.fork()
        ended = loop.create_future()
        exits.watch(template._pid, lambda: ended.set_result(os.waitpid(template._pid, 0)[1]))
        if by_closing:
            template.close()
        async with asyncio.timeout(60):
            status: int = await ended
        exits.close()
        return status

    assert os.WTERMSIG(asyncio.run(run())) == signal.SIGKILL
