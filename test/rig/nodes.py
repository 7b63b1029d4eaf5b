"""Three virtual machines that are a cluster with LVM and DRBD, until they are told to go.

Run without arguments it says what it can do.  `make nodes-up` and its like are for people;
``DIRECTORY/on node1 COMMAND`` runs a command, too, and is what rsync takes for ``--rsh``.
"""

from __future__ import annotations

import contextlib
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
from .virtual_machines import MEMORY_MB, VirtualMachine, VirtualMachines

COUNT = 3
_MEMORY_MB = MEMORY_MB + 1200  # QEMU keeps 1 GB of translated code, and the cache of its disks
_PROGRAMS = ("qemu-system-x86_64", "apt-get", "apt-cache", "dpkg", "ip", "unshare", "mke2fs", "ssh")
_DISK_GB = 6  # Debian with Ganeti, and what three machines write
# Of the shortest form of the tests, on two processors with some other work.
_MINUTES_SAVED, _MINUTES_ANEW = 10, 18
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


def why_not_now(begun: float, limit_minutes: int) -> str:
    """Return why the shortest form of the tests has no time left, "" if it has.

    Args:
        begun: when the run began, in seconds since the epoch.
    """
    spent = (time.time() - begun) / 60
    needed = _MINUTES_SAVED if saved(COUNT) else _MINUTES_ANEW
    if spent + needed <= limit_minutes:
        return ""
    return f"{spent:.0f} of {limit_minutes} minutes are over (TEST_MINUTES), and they take {needed}"


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
        case ["possible", *limits]:
            reason = why_not() or (limits and why_not_now(*map(int, limits))) or why_not_made()
            print(reason)
            sys.exit(bool(reason))
        case [name, where, *rest] if name in ACTIONS:
            ACTIONS[name](Path(where).resolve(), *rest)
        case _:
            print(__doc__)
            print(
                "    python -m rig.nodes possible [BEGUN MINUTES]  Say why there can be none, or not in that time."
            )
            for name, action in ACTIONS.items():
                print(f"    python -m rig.nodes {name} DIRECTORY [N [WORD...]]  {action.__doc__}")
            sys.exit(1)
