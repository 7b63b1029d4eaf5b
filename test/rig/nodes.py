"""Three virtual machines that are a cluster with LVM and DRBD, until they are told to go.

Run without arguments it says what it can do.  `make nodes-up` and its like are for people;
``DIRECTORY/on node1 COMMAND`` runs a command, too, and is what rsync takes for ``--rsh``.
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

from . import store
from .cluster import make_or_wait, saved
from .containers import containers
from .limited import SECONDS_TO_STOP, run_until
from .virtual_machines import MEMORY_MB, VirtualMachine, VirtualMachines

COUNT = 3
_MEMORY_MB = MEMORY_MB + 1200  # QEMU keeps 1 GB of translated code, and the cache of its disks
_PROGRAMS = ("qemu-system-x86_64", "apt-get", "apt-cache", "dpkg", "ip", "unshare", "mke2fs", "ssh")
_DISK_GB = 6  # Debian with Ganeti, and what three machines write
_SHORT = ("-x", "-m", "short", "test/real/test_storage.py")
# On two processors with nothing else to do: what `make test` takes until then, and the shortest form of
# the tests, with and without a saved cluster.
_MINUTES_BEFORE = 20
_MINUTES_SAVED, _MINUTES_ANEW = 8, 14
_CASE = 'node{0}|root@node{0}) shift; exec {1} "$@";;'
_SCRIPT = """#!/bin/sh
# on nodeN COMMAND...: run a command there
case $1 in
{cases}
*) echo "there are nodes {names}" >&2; exit 1;;
esac
"""
_WELCOME = """
{count} nodes run: a cluster with the volume group xenvg and DRBD; node1 is the master.

    make nodes-shell             a shell there (NODE=2: on another one); try gnt-node list
    {directory}/on node2 COMMAND
    make nodes-cut NODE=2        pull the plug of a node: what its disks did not flush is lost
    make nodes-start NODE=2      switch it on again
    make nodes-down              remove everything
"""


def up(directory: Path) -> None:
    """Make the nodes and start them."""
    if directory.exists():
        sys.exit(f"{directory} exists: run 'make nodes-down' first, or name another by DIR=")
    directory.mkdir(parents=True)
    with contextlib.ExitStack() as undo:
        undo.callback(shutil.rmtree, directory)
        nodes = undo.enter_context(VirtualMachines(COUNT, directory, saved(COUNT)))
        make_or_wait(nodes)
        undo.pop_all()
    cases = [_CASE.format(node.number, shlex.join(node.ssh())) for node in nodes.machines]
    names = " ".join(f"node{node.number}" for node in nodes.machines)
    script = directory / "on"
    script.write_text(_SCRIPT.format(cases="\n".join(cases), names=names))
    script.chmod(0o755)
    print(_WELCOME.format(count=COUNT, directory=directory))


def _of(directory: Path, number: str) -> tuple[VirtualMachines, VirtualMachine]:
    if not (directory / "machines").exists():
        sys.exit(f"there are no nodes in {directory}: run 'make nodes-up', or name them by DIR=")
    nodes = VirtualMachines.of(directory)
    found = [node for node in nodes.machines if str(node.number) == number]
    if not found:
        sys.exit(f"there is no node {number}: NODE is 1 to {len(nodes.machines)}")
    return nodes, found[0]


def shell(directory: Path, number: str, *words: str) -> None:
    """Run a command on node N, or a shell."""
    _, node = _of(directory, number)
    if not node.processes():
        sys.exit(f"node{number} is off: run 'make nodes-start NODE={number}'")
    argv = node.ssh("--", *words) if words else node.ssh("-t")
    os.execvp(argv[0], argv)


def cut(directory: Path, number: str) -> None:
    """Pull the plug of node N."""
    nodes, node = _of(directory, number)
    nodes.pull_plug(node)


def start(directory: Path, number: str) -> None:
    """Switch node N on again."""
    nodes, node = _of(directory, number)
    if node.processes():
        sys.exit(f"node{number} is on")
    nodes.start(node)
    nodes.wait_for(node)


def down(directory: Path) -> None:
    """Switch all nodes off and remove them."""
    nodes, _ = _of(directory, "1")
    nodes.remove()
    shutil.rmtree(directory)


def why_not() -> str:
    """Return why this machine cannot have nodes, "" if it can."""
    if os.geteuid():
        return "it needs root"
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"there is no {' and no '.join(missing)}"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    try:
        store.kernel_name()
    except (RuntimeError, IndexError):
        return (
            f"apt knows no package {store.KERNEL}: run 'apt-get update', with the archive of Debian"
        )
    if (free_mb := psutil.virtual_memory().available >> 20) < COUNT * _MEMORY_MB:
        return f"it needs {COUNT * _MEMORY_MB} MB of memory, and {free_mb} are free"
    store.DIRECTORY.mkdir(parents=True, exist_ok=True)
    if (free_gb := psutil.disk_usage(str(store.DIRECTORY)).free >> 30) < _DISK_GB:
        return f"it needs {_DISK_GB} GB of disk, and {free_gb} are free in {store.DIRECTORY}"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "true"], capture_output=True, check=False
    )
    return "" if tried.returncode == 0 else tried.stderr.decode().strip()


def why_not_now(spent: float, limit: float, *, is_saved: bool) -> str:
    """Return why the shortest form of the tests has no time left, "" if it has.

    A machine that was slow until now is taken to stay as slow.

    Args:
        spent: the minutes that `make test` has taken until now.
        limit: the minutes that it may take.
        is_saved: whether a cluster is there to go on with.
    """
    slowness = max(1.0, spent / _MINUTES_BEFORE)
    needed = slowness * (_MINUTES_SAVED if is_saved else _MINUTES_ANEW)
    if spent + needed <= limit:
        return ""
    return (
        f"{spent:.0f} of {limit:.0f} minutes are over (TEST_MINUTES),"
        f" and here they would take {needed:.0f}"
    )


def short(begun: float = 0.0, limit: float = math.inf) -> int:
    """Run the shortest form of the tests, if it can be and is likely to end in time.

    Args:
        begun: when `make test` began, in seconds since the epoch.
        limit: the minutes after which they are stopped, done or not.

    Returns:
        The exit status: 0 too if there was no time, or no machine for them.
    """
    spent = (time.time() - begun) / 60
    why = why_not() or why_not_now(spent if begun else 0.0, limit, is_saved=bool(saved(COUNT)))
    if why := why or why_not_made():
        print(f"--- no tests on real nodes: {why}")
        return 0
    print("--- tests on three real nodes: DRBD, live migration, power cuts", flush=True)
    argv = [sys.executable, "-m", "pytest", *_SHORT]
    status = run_until(argv, begun + limit * 60 - SECONDS_TO_STOP, GANETI_TEST_REAL="1")
    if status is not None:
        return status
    print(
        f"--- the tests on real nodes were stopped: {limit:.0f} minutes (TEST_MINUTES) are over;"
        " run the rest by 'make test-nodes'"
    )
    return 0


def why_not_made() -> str:
    """Make what comes from outside and try a container of it; returns why that failed, or ""."""
    try:
        with containers(1) as running:
            running.machines[0].run("true")
    except (RuntimeError, AssertionError, OSError, subprocess.SubprocessError) as err:
        return f"the machines cannot be made: {err}"
    return ""


ACTIONS = {action.__name__: action for action in (up, shell, cut, start, down)}

if __name__ == "__main__":
    match sys.argv[1:]:
        case ["short", *limits]:
            sys.exit(short(*map(float, limits)))
        case [name, where, *rest] if name in ACTIONS:
            ACTIONS[name](Path(where).resolve(), *rest)
        case _:
            print(__doc__)
            print(
                "    python -m rig.nodes short [BEGUN MINUTES]  Run the shortest form of the tests."
            )
            for name, action in ACTIONS.items():
                print(f"    python -m rig.nodes {name} DIRECTORY [N [WORD...]]  {action.__doc__}")
            sys.exit(1)
