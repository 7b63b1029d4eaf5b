"""Starting and stopping the daemons of this node.

A daemon started without ``--foreground`` detaches only once it answers, so the exit status of the
program that was called tells whether it runs, and its output why not.  More arguments for it are in
/etc/default/ganeti, as ``WCONFD_ARGS="--config-journal"``, which units of systemd read themselves.
Where systemd has units for the daemons, it is asked to do both, and knows that they run.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ganeti.base import json
from ganeti.base.daemons import AGENT, DAEMONS, MEMBER, Daemon, Place
from ganeti.base.errors import CommandError, GenericError
from ganeti.base.paths import Paths
from ganeti.system import filelock, files, process, systemd
from ganeti.system.environment import HOSTNAME_VARIABLE, node_environment
from ganeti.system.programs import CHECKOUT as _CHECKOUT
from ganeti.system.programs import installation_prefix, is_runnable

START_TIMEOUT_S: Final = 300.0  # as systemd has; an emulated or swapping machine takes minutes
STOP_TIMEOUT_S: Final = 15.0
UNIT_STOP_TIMEOUT_S: Final = 120.0  # systemd itself gives up after 90 s, and kills

_EVERYWHERE: Final = frozenset(Place)


def program_directories() -> list[str]:
    """Return where our programs lie: in the checkout, or where ``make install`` puts them."""
    prefix = installation_prefix()
    if prefix is None:
        ours = [f"{_CHECKOUT}/{name}" for name in ("daemons", "tools", "tools/iallocators")]
    else:
        ours = [f"{prefix}/{name}" for name in ("sbin", "bin", *_BELOW_LIBRARY)]
    return [*ours, os.path.dirname(sys.executable)]


_BELOW_LIBRARY: Final = ("lib/ganeti/tools", "lib/ganeti/iallocators")


def bundled(in_checkout: str, in_prefix: str) -> str:
    """Return the path of something that comes with the programs."""
    prefix = installation_prefix()
    return f"{_CHECKOUT}/{in_checkout}" if prefix is None else f"{prefix}/{in_prefix}"


def executable(name: str) -> str:
    """Return the path of one of our programs.

    Raises:
        GenericError: it is nowhere.
    """
    path = _find_executable(name)
    if path is None:
        directories = ", ".join(program_directories())
        raise GenericError(f"the program {name} is not installed (looked in {directories})")
    return path


def _find_executable(name: str) -> str | None:
    paths = (os.path.join(directory, name) for directory in program_directories())
    return next(filter(is_runnable, paths), None)


def command(name: str, args: Sequence[str] = ()) -> list[str]:
    """Return the arguments that run one of our Python programs with this very interpreter."""
    return [sys.executable, executable(name), *args]


def environment_of(paths: Paths, hostname: str | None = None) -> dict[str, str]:
    """Return our environment, moved to the node with these paths."""
    env = dict(os.environ)
    if paths.root:
        env.update(node_environment(paths, hostname or os.environ.get(HOSTNAME_VARIABLE, "")))
    return env


def start_daemon(
    paths: Paths,
    name: str,
    args: Sequence[str] = (),
    *,
    hostname: str | None = None,
    timeout_s: float = START_TIMEOUT_S,
) -> bool:
    """Start a daemon of this node, unless it runs; returns when it answers.

    Returns:
        Whether it had to be started.

    Raises:
        CommandError: it did not come up; its own words are in the text.
    """
    if running_pid(paths, name) is not None:
        return False
    unit = systemd.unit_of(paths, name)
    if unit is None:
        _start_program(paths, name, args, hostname, timeout_s)
    else:
        _start_unit(paths, name, unit, args, timeout_s)
    return True


def _start_program(
    paths: Paths, name: str, args: Sequence[str], hostname: str | None, timeout_s: float
) -> None:
    argv = command(name, with_defaults(default_arguments(paths, name), args))
    result = process.run(argv, timeout_s=timeout_s, env=environment_of(paths, hostname))
    if result.status != 0 or result.timed_out:
        tail = result.output_tail() or process.describe_end(result)
        raise CommandError(f"{name} did not start: {tail}", argv, result.status, tail)


def default_arguments(paths: Paths, name: str) -> list[str]:
    """Return the arguments that a node's administrator gives a daemon each time.

    Raises:
        GenericError: their file cannot be read or understood.
    """
    variable = f"{name.removeprefix('ganeti-').upper()}_ARGS="
    found: list[str] = []
    try:
        text = (files.read_bytes_or_none(paths.default_arguments) or b"").decode()
        for line in text.splitlines():
            if line.lstrip().startswith(variable):
                found = shlex.split(shlex.split(line, comments=True)[0].removeprefix(variable))
    except (OSError, ValueError) as err:
        raise GenericError(f"cannot use {paths.default_arguments}: {err}") from err
    return found


def with_defaults(defaults: Sequence[str], args: Sequence[str]) -> list[str]:
    """Return the arguments of a daemon that is started, or started again with those it had."""
    has_them = list(args[: len(defaults)]) == list(defaults)
    return [*args] if has_them else [*defaults, *args]


def _start_unit(paths: Paths, name: str, unit: str, args: Sequence[str], timeout_s: float) -> None:
    reason = systemd.start(paths, name, unit, args, timeout_s=timeout_s)
    if running_pid(paths, name) is None:
        reason = reason or systemd.last_words(unit)
        raise CommandError(f"{name} did not start: {reason}", ["systemctl", "start", unit])


def stop_daemon(
    paths: Paths, name: str, *, timeout_s: float = STOP_TIMEOUT_S, waits: bool = True
) -> bool:
    """Stop a daemon of this node; returns whether one was running, or about to be.

    One that has died, and is started anew by systemd, has no process for a moment.

    Args:
        waits: for its end; else it is only told.

    Raises:
        GenericError: it could not be stopped.
    """
    pid = running_pid(paths, name)
    unit = systemd.unit_of(paths, name)
    if unit is not None and (systemd.is_up(unit) if pid is None else systemd.runs(unit, pid)):
        systemd.stop(unit, timeout_s=UNIT_STOP_TIMEOUT_S, waits=waits)
    elif pid is None:
        return False
    elif not waits:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    elif not process.terminate(pid, timeout_s):
        raise GenericError(f"{name} (process {pid}) cannot be stopped")
    return True


class _Record(msgspec.Struct):
    """The part of the record of a virtual cluster that is about daemons."""

    without: tuple[str, ...] = ()


def wanted(paths: Paths, places: frozenset[Place] = _EVERYWHERE) -> list[Daemon]:
    """Return the daemons that a node is to run in such places, in the order in which they start.

    Faces that are not installed, that the virtual cluster goes without, or whose settings the node
    does not have, are not wanted.

    Raises:
        GenericError: the record of the virtual cluster cannot be understood.
    """
    left_out = _left_out(paths)
    return [
        daemon
        for daemon in DAEMONS
        if daemon.place in places
        and has_settings(paths, daemon)
        and (
            daemon.is_essential
            or (daemon.name not in left_out and _find_executable(daemon.name) is not None)
        )
    ]


def has_settings(paths: Paths, daemon: Daemon) -> bool:
    """Tell whether the node has the file without which a daemon is not wanted."""
    return not daemon.only_with or os.path.exists(getattr(paths, daemon.only_with))


def _left_out(paths: Paths) -> tuple[str, ...]:
    record = paths.virtual_cluster_record
    data = None if record is None else files.read_bytes_or_none(record)
    return () if data is None else json.loads_as(_Record, data).without


def start_wanted(
    paths: Paths,
    places: frozenset[Place],
    report: Callable[[str], None],
    *,
    hostname: str | None = None,
    master_args: Sequence[str] = (),
) -> None:
    """Start the daemons of some places that do not run yet; returns when they answer.

    A face that does not come up is reported, and the others are started all the same.

    Args:
        master_args: for the daemons that make a node the master.

    Raises:
        CommandError: an essential one did not come up; its own words are in the text.
    """
    for daemon in wanted(paths, places):
        args = master_args if daemon.is_essential and daemon.place is Place.MASTER else ()
        try:
            if start_daemon(paths, daemon.name, args, hostname=hostname):
                report(f"started {daemon.name}")
        except CommandError as err:
            if daemon.is_essential:
                raise
            report(f"{err.message}; going on without")


def stop_all(
    paths: Paths,
    places: frozenset[Place],
    report: Callable[[str], None],
    *,
    but: Sequence[str] = (),
) -> None:
    """Stop the daemons of some places, the last started first, all but some.

    The agent of high availability is told first, so that it does not take a master that stops for a
    lost one.  It is waited for last, with its etcd: only without a master here it can say that no
    job runs here.

    Raises:
        GenericError: some could not be stopped; the others were.
    """
    failed = []
    names = [each.name for each in reversed(DAEMONS) if each.place in places]
    names = [name for name in names if name not in but]
    with contextlib.suppress(GenericError):  # it is told again below
        if AGENT in names and stop_daemon(paths, AGENT, waits=False):
            report(f"told {AGENT} to stop")
            names.sort(key=(AGENT, MEMBER).__contains__)
    for name in names:
        try:
            if stop_daemon(paths, name):
                report(f"stopped {name}")
        except GenericError as err:
            failed.append(err.message)
    if failed:
        raise GenericError("; ".join(failed))


def running_pid(paths: Paths, name: str) -> int | None:
    """Return the process number of a running daemon of this node, or None."""
    return filelock.running_pid(paths.pid_file(name))
