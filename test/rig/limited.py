"""A run of tests that ends in time, with every process and all else that the rig has made for it.

Tests that are stopped by an exception wait for their machines first, for minutes perhaps.  So everything is
killed here, also what has left its parents, and then the names are removed that the kernel and the disk keep.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil

from . import store
from .containers import NAMESPACE, NAMESPACES, remove_control_groups

SECONDS_TO_STOP: Final = 20.0  # what it takes to kill machines and to remove their files
_PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h
_PAUSE_S: Final = 0.05


def run_until(argv: Sequence[str], end: float, **environment: str) -> int | None:
    """Run a command and return its exit status; None if the time came before its end.

    Nothing that it has started lives afterwards: all other children of this process are killed, too.

    Args:
        end: when it has to end, in seconds since the epoch.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    with tempfile.TemporaryDirectory(prefix="gnt-") as temporary:
        environment = {**os.environ, **environment, "TMPDIR": temporary}
        before = signal.signal(signal.SIGINT, lambda *_: None)  # for the command, which ends then
        process = subprocess.Popen(argv, env=environment)
        status = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(None if end == float("inf") else max(0.0, end - time.time()))
        _kill_all()
        signal.signal(signal.SIGINT, before)
        _forget(process.pid)
    return status


def _kill_all() -> None:
    """Kill all processes below this one until there is none; orphans come here."""
    while living := psutil.Process().children(recursive=True):
        for process in living:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(living, _PAUSE_S)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _forget(process: int) -> None:
    """Remove networks, control groups and directories that a dead process has made."""
    networks = store.own_name(NAMESPACE, process)
    for path in Path(NAMESPACES).glob(f"{networks}*"):
        store.run("ip", "netns", "delete", path.name)
    remove_control_groups(f"{networks}*")
    for path in store.DIRECTORY.glob(f"{store.own_name(store.RUN, process)}*"):
        shutil.rmtree(path)
