"""Virtual machines with LVM and DRBD that stay until they are told to go: `make nodes-up` and others.

    python test/rig/nodes.py up DIRECTORY            make and start them
    python test/rig/nodes.py run DIRECTORY N [WORD...]  run a command on node N, or a shell
    python test/rig/nodes.py cut DIRECTORY N         pull the plug of a node
    python test/rig/nodes.py start DIRECTORY N       switch it on again, with its disks
    python test/rig/nodes.py down DIRECTORY          switch all off and remove them

``DIRECTORY/on node1 COMMAND`` runs a command, too, and is what rsync takes for ``--rsh``.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rig.virtual_machines import VirtualMachine, VirtualMachines

COUNT = 3


def _up(directory: Path) -> None:
    directory.mkdir(parents=True)
    machines = VirtualMachines(COUNT, directory)
    try:
        machines.make()
    except BaseException:
        shutil.rmtree(directory)
        raise
    cases = "\n".join(
        f"node{machine.number}|root@node{machine.number}) shift; exec {shlex.join(machine.ssh())} \"$@\";;"
        for machine in machines.machines
    )
    path = directory / "on"
    path.write_text(f'#!/bin/sh\n# on nodeN COMMAND\ncase $1 in\n{cases}\nesac\n')
    path.chmod(0o755)
    print(f"{COUNT} nodes run; {path} node1 COMMAND")


def _of(directory: Path, number: str) -> tuple[VirtualMachines, VirtualMachine]:
    machines = VirtualMachines.of(directory)
    return machines, machines.machines[int(number) - 1]


def _run(directory: Path, number: str, *words: str) -> None:
    _, machine = _of(directory, number)
    argv = machine.ssh("--", *words) if words else machine.ssh("-t")
    os.execvp(argv[0], argv)


def _cut(directory: Path, number: str) -> None:
    machines, machine = _of(directory, number)
    machines.pull_plug(machine)


def _start(directory: Path, number: str) -> None:
    machines, machine = _of(directory, number)
    machines.start(machine)
    machines.wait_for(machine)


def _down(directory: Path) -> None:
    VirtualMachines.of(directory).remove()
    shutil.rmtree(directory)


ACTIONS = {"up": _up, "run": _run, "cut": _cut, "start": _start, "down": _down}

if __name__ == "__main__":
    action, directory, *rest = sys.argv[1:]
    ACTIONS[action](Path(directory).resolve(), *rest)
