"""The context that the skeleton gives to a running daemon; commands beside its tasks."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from ganeti.base.errors import OpPrereqError
from ganeti.base.paths import Paths
from ganeti.daemon import memory
from ganeti.daemon.options import NetworkOptions, Options, OptionsT, TlsOptions
from ganeti.daemon.starter import READY, Report, notify
from ganeti.system import environment, process
from ganeti.transport.addresses import addresses_of

logger = logging.getLogger(__name__)

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - each request is authorised by itself


class DaemonContext:
    """The daemon's surroundings: node, options, tasks, when to stop.

    ``prepared`` is the result of the daemon's ``pre_loop``, ``opened`` that of its ``open_first``;
    callbacks in ``on_reload`` are called
    on SIGHUP, ``on_stop`` when stopping begins.
    """

    def __init__(
        self, paths: Paths, hostname: str, options: Options, report: Report | None = None
    ) -> None:
        self.paths = paths
        self.hostname = hostname
        self.options = options
        self.prepared: Any = None
        self.opened: Any = None
        self.stopping = asyncio.Event()
        self.on_reload: list[Callable[[], None]] = []
        self.on_stop: Callable[[], object] = lambda: None
        self.exit_status = 0
        self._report = report
        self.tasks: asyncio.TaskGroup | None = None  # set by the skeleton
        self._background: set[asyncio.Task[None]] = set()

    def options_as(self, kind: type[OptionsT]) -> OptionsT:
        """Return the options as the kind that this daemon declares."""
        assert isinstance(self.options, kind), f"{self.options} are no {kind.__name__}"
        return self.options

    def ready(self) -> None:
        """Tell the process that started us that we answer."""
        memory.keep_what_is_there()
        memory.give_back()
        gc.enable()
        logger.info("Ready")
        if self._report is not None:
            self._report.send(0)
        notify(READY)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a background task; it is cancelled once ``serve`` has returned.

        An error that it raises ends the daemon.
        """
        assert self.tasks is not None, "tasks live inside serve()"
        task = self.tasks.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def stop(self, exit_status: int = 0) -> None:
        """Begin to stop, as if by SIGTERM."""
        self.exit_status = exit_status
        if not self.stopping.is_set():
            self.on_stop()  # at once: tasks that wake up before others may block the loop
            self.stopping.set()

    def cancel_background(self) -> None:
        """Cancel all background tasks (called by the skeleton)."""
        for task in self._background:
            task.cancel()


def listen_address(context: DaemonContext) -> str:
    """Return where to listen; a virtual node shares its machine with others.

    Raises:
        OpPrereqError: the interface does not exist, or has no address.
        ResolverError: a virtual node's name is not known.
    """
    options = context.options_as(NetworkOptions)
    if options.bind:
        return options.bind
    if isinstance(options, TlsOptions) and options.interface:
        found = addresses_of(options.interface)
        if not found:
            raise OpPrereqError(f"network interface {options.interface!r} has no address here")
        return found[0]
    if context.paths.root:
        return environment.resolve(context.hostname, context.paths)[1]
    return ANY_ADDRESS


async def run_aside(
    argv: Sequence[str], *, timeout_s: float, stdin: bytes, output_bytes_max: int
) -> process.CommandResult:
    """Run a command as `process.run`, while tasks go on; it ends when nobody waits any more."""
    told, telling = os.pipe2(os.O_CLOEXEC)

    def work() -> process.CommandResult:
        try:
            return process.run(
                argv,
                timeout_s=timeout_s,
                stdin=stdin,
                output_bytes_max=output_bytes_max,
                stop_fd=told,
            )
        finally:
            os.close(told)

    try:
        return await asyncio.to_thread(work)
    finally:
        os.close(telling)
