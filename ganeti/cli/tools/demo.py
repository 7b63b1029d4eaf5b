"""``make demo``: makes a virtual cluster and shows a first tour of it.

Every command is printed as a person would type it, then run for real on the first node.  The
cluster is left running.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import GenericError, OpExecError
from ganeti.bootstrap.virtual import lifecycle
from ganeti.bootstrap.virtual.layout import VirtualCluster
from ganeti.cli.run.failures import EXIT_INTERRUPTED, explain
from ganeti.system import clock, process

BASE_VARIABLE: Final = "DEMO_BASE"
NODES_VARIABLE: Final = "NODES"
COMMAND_TIMEOUT_S: Final = 120.0
_WIDTH: Final = 88


def main() -> int:
    """Run the demo; returns its exit status."""
    base = os.environ.get(BASE_VARIABLE) or ".demo"
    started = clock.monotonic()
    try:
        cluster = lifecycle.plan(
            lifecycle.absolute_base(base), node_count(os.environ.get(NODES_VARIABLE)), None
        )
        tour = Tour(cluster)
        tour.make()
        tour.show()
    except GenericError as err:
        text, status = explain(err)
        _say(f"\nThe demo failed: {text}\n'{stop_command(base)}' removes the rest of it.")
        return status
    except KeyboardInterrupt:
        _say(f"\nInterrupted.\n'{stop_command(base)}' removes the rest of it.")
        return EXIT_INTERRUPTED
    _say(
        f"\nDone in {clock.monotonic() - started:.0f} s.  The cluster in {base} is left running."
        f"\n  enter it:  tools/vcluster shell {base}"
        f"\n  stop it:   {stop_command(base)}"
    )
    return 0


def node_count(text: str | None) -> int:
    """Return how many nodes to make.

    Raises:
        OpExecError: not a number.
    """
    if not text:
        return 3
    if not text.isdigit():
        raise OpExecError(f"{NODES_VARIABLE}={text!r} is not a number")
    return int(text)


def stop_command(base: str) -> str:
    """Return the command line that removes the demo's cluster."""
    return "make demo-stop" + ("" if base == ".demo" else f" {BASE_VARIABLE}={base}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def wrap_command(argv: Sequence[str]) -> str:
    """Return a command as it is typed, long ones on several lines."""
    lines = ["$"]
    for word in argv:
        quoted = shlex.quote(word)
        if len(lines[-1]) + len(quoted) + 1 > _WIDTH and lines[-1].strip() != "$":
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {quoted}"
    return "\n".join(lines)


class Tour:
    """The tour of one cluster."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster

    def make(self) -> None:
        """Make the cluster."""
        count = len(self.cluster.node_names)
        _say(f"--- A virtual cluster of {count} nodes in {self.cluster.base}")
        _say(f"    nodes at {self.cluster.network}.1 to .{count}, each with its own daemons")
        if self.cluster.hypervisor == "kvm":
            _say(f"    hypervisor: kvm, real guests by {lifecycle.find_qemu()}")
        else:
            _say("    hypervisor: fake, because no QEMU binary is installed")
        lifecycle.create(self.cluster, runner=self._run_on)

    def show(self) -> None:
        """Go around."""
        first, *others = self.cluster.node_names
        web, mail = "web1.example.com", "mail1.example.com"
        second = others[0] if others else first
        self._title("The nodes, and the operating systems")
        self._run("gnt-node list")
        self._run("gnt-os list")
        self._title("Two instances, each with a disk and an operating system")
        self._run(
            f"gnt-instance add -t sharedfile --disk 0:size=16 -o bootsector+default -B memory=32"
            f" --no-name-check --no-ip-check -n {first} {web}"
        )
        self._run(
            f"gnt-instance add -t file --disk 0:size=16 -o bootsector+default -B memory=32"
            f" --no-name-check --no-ip-check -n {second} {mail}"
        )
        self._run("gnt-instance list")
        self._run(f"gnt-instance info {web}")
        if others:
            self._title("The first one moves to another node while it runs")
            self._run(f"gnt-instance migrate -f -n {second} {web}")
            self._run("gnt-instance list -o name,pnode,status,oper_ram")
        self._title("A job, submitted first and then watched live")
        if others:
            job_id = self._submit(
                f"gnt-instance failover -f --submit --print-jobid -n {first} {web}"
            )
        else:
            job_id = self._submit(f"gnt-instance reboot --submit --print-jobid {web}")
        self._run(f"gnt-job watch {job_id}")
        self._title("The second instance is removed")
        self._run(f"gnt-instance remove -f {mail}")
        self._run("gnt-instance list")
        self._run("gnt-job list")

    def _title(self, text: str) -> None:
        _say(f"\n--- {text}")

    def _run(self, line: str) -> None:
        self._run_on(self.cluster.first_node, shlex.split(line))

    def _run_on(self, node_name: str, argv: Sequence[str]) -> None:
        """Print a command, run it on a node and let its output through.

        Raises:
            OpExecError: it failed.
        """
        _say(wrap_command(argv))
        environment = lifecycle.command_environment(self.cluster, node_name)
        program = lifecycle.find_program(argv[0], environment)
        child = process.spawn(
            [program, *argv[1:]],
            env=environment,
            stdout=sys.stdout.fileno(),
            stderr=sys.stderr.fileno(),
        )
        status = child.wait(COMMAND_TIMEOUT_S)
        if status != 0:
            raise OpExecError(f"'{' '.join(argv[:2])}' ended with exit status {status}")

    def _submit(self, line: str) -> int:
        """Run a command with ``--submit --print-jobid``; returns the number of the job.

        Raises:
            OpExecError: it failed.
        """
        argv = shlex.split(line)
        _say(wrap_command(argv))
        output = lifecycle.run_checked(self.cluster, self.cluster.first_node, argv)
        _say(output.rstrip())
        number = output.partition("\n")[0]  # that of the job, before what is said of it
        if not number.isdigit():
            raise OpExecError(f"'{line}' printed no job number")
        return int(number)
