"""Running commands from an event loop, without blocking it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ganeti.system.process import CommandResult, run


async def run_async(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdin: bytes | None = None,
) -> CommandResult:
    """Run a command in a thread; arguments, result and errors as of `ganeti.system.process.run`."""
    return await asyncio.to_thread(run, argv, timeout_s=timeout_s, env=env, cwd=cwd, stdin=stdin)
