"""Five virtual nodes that a campaign plays with, and whoever keeps their daemons running.

Disks are mirrored pairs; LVM and the driver of DRBD are played by programs (`fakes.drbd_programs`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fakes import drbd_programs, lvm_programs
from fakes.drbd_programs import Drivers
from fakes.failing_cluster import FailingCluster, failing_cluster
from fakes.linearizability import Call
from fakes.rapi import USERS
from fakes.waiting import wait_until

from ganeti.base.daemons import Place
from ganeti.base.errors import GenericError
from ganeti.base.ids import JobId
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs.status import FINAL, Status
from ganeti.system import daemon_control, failpoints, files, process_facts

NODES = 5
WITHOUT = ("ganeti-etcd", "ganeti-ha")  # test_ha_partitions plays with these
WITH_JOURNAL = "WCONFD_ARGS=--config-journal\n"
TEMPLATES = "drbd,plain,diskless"
RECOVERED_S_MAX = 400.0  # on a machine that does ten other things
_LOOK_S = 0.25


@dataclass
class World:
    """The cluster, and what is wrong with it.

    Attributes:
        term: how often the master role has moved.
        off: nodes without power.
        busy: held while nothing may be started or submitted: the master role moves.
        journal: whether WConfD keeps a journal beside the configuration.
        changes_of_master: when the role moved; what no candidate has by then may be lost.
    """

    cluster: FailingCluster
    drivers: Drivers
    term: int = 0
    off: set[str] = field(default_factory=set)
    busy: threading.RLock = field(default_factory=threading.RLock)
    journal: bool = False
    changes_of_master: list[Call] = field(default_factory=list)

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.cluster.nodes

    @property
    def master(self) -> str:
        return self.cluster.master

    def others(self) -> list[str]:
        """Return the nodes that have power, but for the master."""
        return [node for node in self.cluster.others if node not in self.off]

    def rule(self, node: str, *words: str) -> Path:
        """Return the file of a rule for failpoints."""
        return Path(self.cluster.paths_of(node).root, failpoints.DIRECTORY, ",".join(words))

    def cut_power(self, node: str) -> None:
        self.off.add(node)
        self.cluster.cut_power(node)
        self.drivers.switch_off(self.cluster.paths_of(node).root)

    def switch_on(self, node: str) -> None:
        self.cluster.switch_on(node)
        self.off.discard(node)

    def fail_over(self, node: str) -> str:
        """Make a node the master; returns how long that took.  To be called while `busy` is held."""
        begun = time.monotonic()
        with self._taken_over():
            self.cluster.fail_over(node)
        return f"{node} takes over in {time.monotonic() - begun:.1f} s"

    def fail_over_to_one_of(self, nodes: Sequence[str]) -> str:
        """Try to make several nodes the master at once; returns the one that it is then."""
        with self._taken_over():
            return self.cluster.fail_over_to_one_of(nodes)

    @contextlib.contextmanager
    def _taken_over(self) -> Iterator[None]:
        begun = time.monotonic()
        self.term += 1
        yield
        self.changes_of_master.append(Call(("take over",), begun, time.monotonic(), True))

    def client(self) -> LuxiClient:
        """Return a client of the present master, which gives up soon."""
        paths = self.cluster.paths
        return LuxiClient(paths, connect_timeout_s=0.3, answer_timeout_s=20.0)

    def wait_works(self) -> None:
        """Return once a job that changes the configuration succeeds."""

        self.run_job(tag_job("OP_TAGS_SET", "probe"))

    def run_job(self, opcodes: Sequence[dict[str, object]]) -> None:
        """Have a job done, again and again until it succeeds."""

        def works() -> bool:
            with contextlib.suppress(GenericError), self.client() as client:
                return run_job(client, opcodes) == Status.SUCCESS
            return False

        wait_until(works, "a job to succeed", timeout_s=RECOVERED_S_MAX, step_s=0.05)

    def mend(self) -> None:
        """Start the daemons that have ended, as systemd or the watcher would."""
        with self.busy:
            for node in self.nodes:
                if node not in self.off:
                    places = frozenset(
                        {Place.NODE, *([Place.MASTER] if node == self.master else [])}
                    )
                    with contextlib.suppress(GenericError):  # the next time
                        paths = self.cluster.paths_of(node)
                        daemon_control.start_wanted(paths, places, lambda _: None, hostname=node)


class Keeper(threading.Thread):
    """Mends the cluster all the time."""

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        self._world = world
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(_LOOK_S):
            self._world.mend()

    def stop(self) -> None:
        self._over.set()
        self.join(RECOVERED_S_MAX)
        assert not self.is_alive()


def tag_job(kind: str, *tags: str) -> list[dict[str, object]]:
    """Return a job that sets or removes tags of the group that all nodes are in."""
    return [{"OP_ID": kind, "kind": "nodegroup", "name": "default", "tags": list(tags)}]


def run_job(client: LuxiClient, opcodes: Sequence[dict[str, object]]) -> str:
    """Have a job done; returns how it ended."""
    return wait_ended(client, client.submit_job(list(opcodes)))


def wait_ended(client: LuxiClient, job_id: int) -> str:
    """Wait until a job has ended; returns how."""
    status: list[object] | None = None
    end = time.monotonic() + RECOVERED_S_MAX
    while time.monotonic() < end:
        change = client.wait_for_job_change(JobId(job_id), ["status"], status, 1 << 40, 10.0)
        if change is not None and change.fields is not None:
            status = change.fields
            if status[0] in FINAL:
                return str(status[0])
    raise AssertionError(f"job {job_id} is {status} for ever")


@contextlib.contextmanager
def make_world(directory: Path, *, journal: bool) -> Iterator[World]:
    """Make the cluster, and leave nothing of it behind."""
    lvm_programs.install(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
        patch.setenv(failpoints.VARIABLE, "1")
        patch.setenv("GANETI_HOSTNAME", "client.example.com")  # it is none of the nodes
        with failing_cluster(NODES, without=WITHOUT) as cluster:
            roots = [cluster.paths_of(node).root for node in cluster.nodes]
            for root in roots:
                lvm_programs.make_group(root, "xenvg", {"/dev/none/sda1": 30000})
                os.mkdir(f"{root}/{failpoints.DIRECTORY}")
                if journal:
                    files.ensure_directory(f"{root}/etc/default")
                    Path(f"{root}/etc/default/ganeti").write_text(WITH_JOURNAL)
                files.ensure_directory(f"{root}/var/lib/ganeti/rapi")
                Path(f"{root}/var/lib/ganeti/rapi/users").write_text(USERS)
            with drbd_programs.installed(directory, roots) as drivers:
                helper = f"--drbd-usermode-helper={drbd_programs.HELPER}"
                both = f"--enabled-disk-templates={TEMPLATES} --ipolicy-disk-templates={TEMPLATES}"
                cluster.gnt(f"cluster modify --vg-name=xenvg {helper} {both}")
                world = World(cluster, drivers, journal=journal)
                daemon_control.stop_daemon(cluster.paths, "ganeti-wconfd")
                world.mend()
                _check_journal(world)
                try:
                    yield world
                except BaseException:
                    _keep_logs(cluster)
                    raise


def _check_journal(world: World) -> None:
    """Check that WConfD of the master keeps a journal if it is to."""
    pid = daemon_control.running_pid(world.cluster.paths, "ganeti-wconfd")
    assert pid is not None
    assert ("--config-journal" in process_facts.arguments(pid)) == world.journal


def _keep_logs(cluster: FailingCluster) -> None:
    """Copy logs and queues to the directory that GANETI_TEST_LOGS names, if it does."""
    if target := os.environ.get("GANETI_TEST_LOGS"):
        for node in cluster.nodes:
            paths = cluster.paths_of(node)
            places = (paths.log_dir, paths.queue_dir, paths.livelock_dir, paths.luxid_message_dir)
            for place in places:
                name = os.path.basename(place)
                if os.path.isdir(place):
                    shutil.copytree(place, f"{target}/{node}/{name}", dirs_exist_ok=True)
            shutil.copy(paths.locks_data, f"{target}/{node}/") if node == cluster.master else None
            pids = [str(each.pid) for each in cluster.processes_of(node)]
            shown = (
                "ps",
                "-o",
                "pid,ppid,stat,etime,wchan:30,comm,args",
                "-p",
                ",".join(pids) or "0",
            )
            told = subprocess.run(shown, capture_output=True, check=False).stdout
            Path(target, node, "processes").write_bytes(told)


def processes_named(cluster: FailingCluster, node: str, name: str) -> list[int]:
    """Return the processes of a node that show a name that begins so."""
    found = []
    for each in cluster.processes_of(node):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{each.pid}/comm").read_text().startswith(name):
                found.append(each.pid)
    return found
