"""Starting and stopping the daemons of this node.

A daemon started without ``--foreground`` detaches only once it answers, so the exit status of the
program that was called is the answer to "does it run?", and what it printed is the reason why not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import CommandError, GenericError
from ganeti.base.paths import Paths
from ganeti.system import filelock, process
from ganeti.system.environment import HOSTNAME_VARIABLE, node_environment

START_TIMEOUT_S: Final = 90.0  # a daemon may ask for 60 s whether its node is the master
STOP_TIMEOUT_S: Final = 15.0

_CHECKOUT: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PACKAGES: Final = ("site-packages", "dist-packages")  # below PREFIX/lib/python3.N


def installation_prefix(above_package: str = _CHECKOUT) -> str | None:
    """Return the directory that we are installed below; None in a checkout."""
    directory, name = os.path.split(above_package)
    return os.path.dirname(os.path.dirname(directory)) if name in _PACKAGES else None


def program_directories() -> list[str]:
    """Return where our programs lie: in the checkout, or where ``make install`` puts them."""
    prefix = installation_prefix()
    if prefix is None:
        ours = [f"{_CHECKOUT}/daemons", f"{_CHECKOUT}/tools"]
    else:
        ours = [f"{prefix}/sbin", f"{prefix}/bin", f"{prefix}/lib/ganeti/tools"]
    return [*ours, os.path.dirname(sys.executable)]


def executable(name: str) -> str:
    """Return the path of one of our programs.

    Raises:
        GenericError: it is nowhere.
    """
    directories = program_directories()
    for directory in directories:
        path = os.path.join(directory, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise GenericError(f"the program {name} is not installed (looked in {', '.join(directories)})")


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
    argv = command(name, args)
    result = process.run(argv, timeout_s=timeout_s, env=environment_of(paths, hostname))
    if result.status != 0 or result.timed_out:
        tail = result.output_tail() or process.describe_end(result)
        raise CommandError(f"{name} did not start: {tail}", argv, result.status, tail)
    return True


def stop_daemon(paths: Paths, name: str, *, timeout_s: float = STOP_TIMEOUT_S) -> bool:
    """Stop a daemon of this node; returns whether one was running.

    Raises:
        GenericError: it could not be stopped.
    """
    pid = running_pid(paths, name)
    if pid is None:
        return False
    if not process.terminate(pid, timeout_s):
        raise GenericError(f"{name} (process {pid}) cannot be stopped")
    return True


def running_pid(paths: Paths, name: str) -> int | None:
    """Return the process number of a running daemon of this node, or None."""
    return filelock.running_pid(paths.pid_file(name))
