"""Tests of ganeti/daemon/context.py: commands beside the tasks of a daemon."""

from __future__ import annotations

import asyncio
import os

import pytest

from ganeti.daemon.context import run_aside
from ganeti.system import process


def test_a_command_aside_ends_when_nobody_waits_for_it() -> None:
    read_end, write_end = os.pipe()
    argv = ["sh", "-c", f"echo $$ > /proc/{os.getpid()}/fd/{write_end}; exec sleep 1000"]

    async def leave() -> int:
        aside = run_aside(argv, timeout_s=100, stdin=b"", output_bytes_max=100)
        task = asyncio.create_task(aside)
        pid = int(await asyncio.to_thread(os.read, read_end, 20))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return pid

    try:
        assert process.wait_gone(asyncio.run(leave()), 10)
    finally:
        os.close(read_end)
        os.close(write_end)


def test_a_command_aside_leaves_the_loop_free_and_has_a_deadline() -> None:
    async def both() -> process.CommandResult:
        aside = run_aside(["cat"], timeout_s=30, stdin=b"in", output_bytes_max=100)
        late = run_aside(["sleep", "60"], timeout_s=0.1, stdin=b"", output_bytes_max=100)
        found, ended = await asyncio.gather(aside, late)
        assert ended.timed_out
        return found

    assert asyncio.run(both()).check().stdout == b"in"
