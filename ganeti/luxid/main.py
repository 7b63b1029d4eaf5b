"""The start of LuxiD: while the nodes are asked whether this one is the master, all is loaded.

The vote waits for the network, and what is loaded needs the processor; each takes as long as the
other.  Nothing is touched before the vote has been won.

Source: ARCHITECTURE, invariant 9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from ganeti.base.paths import Paths
from ganeti.daemon.context import DaemonContext
from ganeti.daemon.main import DaemonSpec
from ganeti.daemon.master_watch import confirm
from ganeti.daemon.partner import give_signs_of_life
from ganeti.jobs.votes import Poll
from ganeti.luxid.options import NAME, Options


async def serve(context: DaemonContext) -> None:
    """Run LuxiD until it is to stop."""
    context.spawn(give_signs_of_life(context, NAME), "signs of life for WConfD")
    async with asyncio.TaskGroup() as both:
        voting = both.create_task(confirm(context))
        loading = both.create_task(asyncio.to_thread(_load, context.paths))
    run = loading.result()
    await run(context, voting.result())


def _load(paths: Paths) -> Callable[[DaemonContext, Poll], Awaitable[None]]:
    """Return the daemon's work, with all that it needs in memory."""
    from ganeti.luxid import daemon  # two thirds of all modules: beside the vote, not before it

    return partial(daemon.run, reader=daemon.load(paths))


SPEC: Final = DaemonSpec(
    name=NAME,
    description="Runs the job queue and answers queries, on the master node.",
    serve=serve,
    options=Options,
)
