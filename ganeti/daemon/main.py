"""The skeleton of every daemon: options, pid file, log, detaching, signals, stopping.

A daemon is a service function plus a table of settings:

    SPEC = DaemonSpec(name="ganeti-luxid", description="...", serve=serve, options=MasterOptions)

The module ``main`` of its package holds that table, and `ganeti.base.daemons` names the package.

Theory of operation.  STARTING: options are parsed, the process detaches, takes its pid file, opens
its log, calls ``pre_loop`` (no event loop and no thread exists yet) and runs ``serve`` in an event
loop.  ``serve`` calls `DaemonContext.ready` once it answers: the program that was called exits with
status 0, or systemd is told.  RUNNING lasts until SIGTERM or SIGINT set `DaemonContext.stopping`.
STOPPING: ``serve`` finishes the work it has begun and returns; if it has not within
``stop_timeout_s`` it is cancelled, and if even that takes too long the kernel ends the process.

A daemon ends by itself when ``serve`` or a task of it raises.  The error is logged, and reported to
the program that still waits for the start.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import logging
import math
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final

from ganeti.base.daemons import PERIODIC, daemon_of
from ganeti.base.errors import (
    ConfigurationError,
    GenericError,
    NotMasterError,
    OpPrereqError,
    failing_as,
)
from ganeti.base.paths import Paths
from ganeti.daemon import log, memory
from ganeti.daemon.context import DaemonContext
from ganeti.daemon.options import Options, parse
from ganeti.daemon.starter import (
    READY,
    STATUS,
    STOPPING,
    Report,
    detach,
    give_signs_of_life,
    notify,
    watchdog_period_s,
)
from ganeti.store import accounts
from ganeti.system import environment, files
from ganeti.system.filelock import PidFile
from ganeti.system.process_facts import show_name

logger = logging.getLogger(__name__)

EXIT_SUCCESS: Final = 0
EXIT_FAILURE: Final = 1
EXIT_CONFIGURATION: Final = 2
EXIT_NOTMASTER: Final = 11

_OPEN_FILES_MAX: Final = 65536  # 16,384 clients, three descriptors each, and room
# A thread that comes back from the disk needs the interpreter for microseconds, and would wait for
# the loop to be idle, or for 5 ms.
_SWITCH_S: Final = 0.0001

_UMASK: Final = 0o022

# Made at start where missing: /var/run and /var/lock are empty after a boot.
_DIRECTORIES: Final = (
    ("run_dir", 0o775),
    ("socket_dir", 0o770),
    ("lock_dir", 0o755),
    ("log_dir", 0o770),
)


@dataclass(frozen=True, slots=True)
class DaemonSpec:
    """The settings that make one daemon different from the others.

    ``serve`` runs until `DaemonContext.stopping` is set.  ``pre_loop`` runs before event loop and
    threads exist; its result is `DaemonContext.prepared`.  ``open_first`` opens what only root may,
    before the process becomes the daemon's user; its result is `DaemonContext.opened`.
    ``stop_timeout_s`` passes from SIGTERM to being cancelled, then ``kill_after_s`` to being
    killed.  ``runs_as_root``: the others run as the owner of the data directory, or as their users
    where the installation has them.
    """

    name: str
    description: str
    serve: Callable[[DaemonContext], Coroutine[Any, Any, None]]
    options: type[Options] = Options
    pre_loop: Callable[[DaemonContext], object] | None = None
    open_first: Callable[[Paths, Options], object] | None = None
    stop_timeout_s: float = 10.0
    kill_after_s: float = 5.0
    runs_as_root: bool = False


def main() -> int:
    """Run the daemon, or the periodic program, that has the name of the program."""
    name = os.path.basename(sys.argv[0])
    if name in PERIODIC:
        status: int = import_module(f"ganeti.{PERIODIC[name]}").main()
        return status
    spec: DaemonSpec = import_module(f"ganeti.{daemon_of(name).package}.main").SPEC
    return run_daemon(spec)


def run_daemon(spec: DaemonSpec, argv: Sequence[str] | None = None) -> int:
    """Run a daemon; returns its exit status."""
    options = parse(
        spec.name, spec.description, spec.options, sys.argv[1:] if argv is None else argv
    )
    try:
        paths = environment.current_paths()
        opened = None if spec.open_first is None else spec.open_first(paths, options)
        if not options.no_user_checks:
            _be_the_right_user(spec, paths)
    except GenericError as err:
        return _fail(spec, None, err)
    report = None if options.foreground else detach(spec.name)
    context = DaemonContext(paths, environment.own_hostname(), options, report)
    context.opened = opened
    try:
        return _run(spec, context)
    except GenericError as err:
        return _fail(spec, report, err)
    except Exception as err:
        logger.exception("Internal error")
        return _fail(spec, report, GenericError(f"internal error: {type(err).__name__}: {err}"))


def exit_status_of(error: GenericError) -> int:
    """Return the exit status of a daemon that cannot go on because of this error."""
    if isinstance(error, NotMasterError):
        return EXIT_NOTMASTER
    return EXIT_CONFIGURATION if isinstance(error, ConfigurationError) else EXIT_FAILURE


def _fail(spec: DaemonSpec, report: Report | None, error: GenericError) -> int:
    status = exit_status_of(error)
    has_log = bool(logging.getLogger().handlers)
    if has_log:
        logger.error("Cannot go on: %s", error.message)
    if status == EXIT_NOTMASTER:
        # To end before having been ready is a failure to systemd, and this is none.
        notify(f"{READY}\n{STATUS}={' '.join(error.message.split())}")
    if report is not None:
        report.send(status, error.message)
    elif not has_log:
        sys.stderr.write(f"{spec.name}: {error.message}\n")
    return status


def _be_the_right_user(spec: DaemonSpec, paths: Paths) -> None:
    """Become the daemon's user, or refuse to leave files that their owner cannot use.

    Where the installation has users for the daemons, root gives everything to its owner first; a
    face that stays root has no need of that, and may lack the right.
    """
    has_accounts = accounts.has_accounts(paths)
    if not os.path.isdir(paths.data_dir) or (paths.root and not has_accounts):
        return
    if not has_accounts:
        wanted = 0 if spec.runs_as_root else os.stat(paths.data_dir).st_uid
    else:
        daemon = daemon_of(spec.name)
        wanted = accounts.user_of(daemon)
        if os.geteuid() == 0 and (wanted or daemon.is_essential):
            _make_directories(paths)
            with failing_as(GenericError, "cannot give files to the users of the daemons"):
                log.make(paths.log_file(spec.name))
                accounts.settle(paths)
                if wanted:
                    accounts.become(daemon)
    if os.geteuid() != wanted:
        raise OpPrereqError(
            f"must run as user id {wanted}, not {os.geteuid()} (--no-user-checks overrides)"
        )


def _run(spec: DaemonSpec, context: DaemonContext) -> int:
    memory.return_large_buffers()
    os.umask(_UMASK)
    show_name(spec.name)
    _raise_open_files_limit()
    with contextlib.ExitStack() as cleanup:
        _make_directories(context.paths)
        cleanup.callback(_take_pid_file(spec, context.paths).release)
        options = context.options
        handler = log.set_up(
            spec.name,
            context.paths.log_file(spec.name),
            debug=options.debug,
            console=options.foreground,
            syslog=options.syslog,
            fallback=log.console_of(context.paths) if spec.runs_as_root else "",
        )
        if handler is not None:
            context.on_reload.append(handler.reopen)
        logger.info("Starting on %s", context.hostname)
        if spec.pre_loop is not None:
            context.prepared = spec.pre_loop(context)
        sys.setswitchinterval(_SWITCH_S)
        gc.disable()  # what is made now stays; `DaemonContext.ready` looks through it once
        asyncio.run(_main(spec, context))
        logger.info("Stopped")
        return context.exit_status


def _take_pid_file(spec: DaemonSpec, paths: Paths) -> PidFile:
    pid_file = PidFile(paths.pid_file(spec.name))
    try:
        pid_file.acquire()
    except OSError as err:
        raise GenericError(f"cannot use pid file {pid_file.path}: {err.strerror}") from err
    return pid_file


def _make_directories(paths: Paths) -> None:
    try:
        for name, mode in _DIRECTORIES:
            files.ensure_directory(getattr(paths, name), mode)
    except OSError as err:
        raise GenericError(f"cannot make directory {err.filename}: {err.strerror}") from err


def _raise_open_files_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _main(spec: DaemonSpec, context: DaemonContext) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_loop_error)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, context.stop)
    loop.add_signal_handler(signal.SIGHUP, _reload, context)
    # SIGALRM ends the process even when the event loop or a thread hangs.
    kill_after_s = math.ceil(spec.stop_timeout_s + spec.kill_after_s)
    context.on_stop = partial(signal.alarm, kill_after_s)
    try:
        async with asyncio.TaskGroup() as tasks:
            context.tasks = tasks
            serving = tasks.create_task(spec.serve(context), name="serve")
            context.spawn(_guard_stop(spec, context, serving), "guard of stopping")
            if period_s := watchdog_period_s(os.environ, os.getpid()):
                faulthandler.enable()  # the signal of the watchdog shows where the loop hangs
                context.spawn(give_signs_of_life(period_s), "signs of life")
            await asyncio.wait([serving])
            context.cancel_background()
    except BaseExceptionGroup as group:
        raise _most_telling(group) from None  # its own traceback says where
    finally:
        signal.alarm(0)


async def _guard_stop(
    spec: DaemonSpec, context: DaemonContext, serving: asyncio.Task[None]
) -> None:
    """Enforce the deadline for stopping."""
    await context.stopping.wait()
    logger.info("Stopping")
    notify(STOPPING)
    await asyncio.wait([serving], timeout=spec.stop_timeout_s)
    if not serving.done():
        logger.warning("Not stopped within %g s, cancelling the rest", spec.stop_timeout_s)
        serving.cancel()


def _reload(context: DaemonContext) -> None:
    for callback in context.on_reload:
        callback()
    logger.info("Reopened the log")


def _log_loop_error(_loop: asyncio.AbstractEventLoop, details: dict[str, Any]) -> None:
    """Log an error that belongs to no task."""
    error = details.get("exception")
    logger.error("Event loop: %s", details.get("message"), exc_info=error)


def _most_telling(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of ours, else the first error at all; the others are logged."""
    leaves = list(_leaves(group))
    ours = [error for error in leaves if isinstance(error, GenericError)]
    chosen = (ours or leaves)[0]
    for error in leaves:
        if error is not chosen:
            logger.error("Another error at the same time", exc_info=error)
    return chosen


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
