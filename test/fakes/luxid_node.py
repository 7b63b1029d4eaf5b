"""A master node for tests: its files, a WConfD that grants locks, and a real LuxiD process."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

from fakes.fake_wconfd import FakeWConfd
from fakes.sample_config import CONFIG

from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.bootstrap.virtual import lifecycle
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs.record import QueuedJob, decode_job
from ganeti.store import ssconf
from ganeti.store.job_files import JobFiles
from ganeti.system import files
from ganeti.system.process import wait_gone

CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEADLINE_S = 60.0
START_DEADLINE_S = 150.0  # LuxiD asks for a minute who is master, then says why it ends

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.0, "reason": []}


def delay(seconds: float = 0.0, **params: object) -> dict[str, object]:
    """Return an opcode that waits."""
    return {**DELAY, "duration": seconds, **params}


def messages(*texts: str, fail: bool = False) -> dict[str, object]:
    """Return an opcode that logs, then succeeds or fails."""
    return {"OP_ID": "OP_TEST_JQUEUE", "log_messages": list(texts), "fail": fail, "reason": []}


def config_with_master(name: str, address: str) -> dict[str, Any]:
    """Return a configuration whose master node has that name."""
    config = copy.deepcopy(CONFIG)
    node = config["nodes"][config["cluster"]["master_node"]]
    node.update(name=name, primary_ip=address, secondary_ip=address)
    return config


class LuxidNode:
    """One node; `start` runs LuxiD on it."""

    name = "node1.example.com"

    def __init__(self, candidates: Mapping[str, str] | None = None, **cluster: object) -> None:
        self._base = tempfile.mkdtemp(prefix="luxid")  # short: socket paths have 107 bytes
        self.paths = Paths(f"{self._base}/{self.name}")
        self.config = config_with_master(self.name, "127.0.0.1")
        self.config["cluster"].update(cluster)
        self.process: subprocess.Popen[bytes] | None = None
        self._make_files(candidates or {self.name: "127.0.0.1"})
        self.wconfd = FakeWConfd(self.paths).start()
        self.files = JobFiles(self.paths)
        self.files.prepare()

    def _make_files(self, candidates: Mapping[str, str]) -> None:
        paths = self.paths
        for directory in (paths.data_dir, paths.run_dir, paths.socket_dir, paths.lock_dir):
            files.ensure_directory(directory)
        files.ensure_directory(paths.log_dir)
        files.ensure_directory(paths.livelock_dir)
        values = dict.fromkeys(("offline_nodes", "node_list", "online_nodes"), "")
        values["master_node"] = self.name
        values["cluster_name"] = "cluster.example.com"
        ssconf.write_values(paths, values)
        self.set_candidates(candidates)
        self.write_config()

    def set_candidates(self, candidates: Mapping[str, str]) -> None:
        """Say which nodes are master candidates: {name: address}."""
        values = {
            "node_list": "\n".join(candidates),
            "master_candidates": "\n".join(candidates),
            "master_candidates_ips": "\n".join(candidates.values()),
            "node_primary_ips": "\n".join(f"{n} {ip}" for n, ip in candidates.items()),
        }
        ssconf.write_values(self.paths, values)

    def write_config(self) -> None:
        """Replace config.data by `config`."""
        files.write_durable(self.paths.config_data, json.dumps(self.config).encode())

    def __enter__(self) -> LuxidNode:
        return self

    def __exit__(self, *_exc: object) -> None:
        try:
            self.stop()
        finally:
            # Jobs outlive LuxiD, and one whose file says that it has ended may still be ending.
            for each in lifecycle.find_processes(self._base):
                kill_and_wait(each.pid)
            self.wconfd.stop()
            shutil.rmtree(self._base)

    # LuxiD.

    def environment(self) -> dict[str, str]:
        """Return the environment of processes on this node."""
        return {**os.environ, "GANETI_ROOTDIR": self.paths.root, "GANETI_HOSTNAME": self.name}

    def luxid_argv(self) -> list[str]:
        """Return what the interpreter is to run."""
        return [f"{CHECKOUT}/daemons/ganeti-luxid", "-f"]

    def start(self) -> LuxiClient:
        """Run LuxiD; returns a client once it answers."""
        argv = [sys.executable, *self.luxid_argv()]
        with open(f"{self.paths.log_dir}/stderr", "ab") as log:
            self.process = subprocess.Popen(argv, env=self.environment(), stderr=log)
        client = self.client()
        deadline = time.monotonic() + START_DEADLINE_S
        while not _accepts(self.paths.query_socket):
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.01)
        return client

    def client(self) -> LuxiClient:
        """Return a new client; the node's name is in this process's environment then."""
        os.environ["GANETI_HOSTNAME"] = self.name
        return LuxiClient(self.paths, connect_timeout_s=DEADLINE_S)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int | None:
        """End LuxiD; returns its exit status."""
        if self.process is None:
            return None
        self.process.send_signal(number)
        try:
            return self.process.wait(DEADLINE_S)
        finally:
            self.process = None

    def log(self) -> str:
        """Return what was logged, for messages."""
        data = files.read_bytes_or_none(f"{self.paths.log_dir}/stderr") or b""
        jobs = files.read_bytes_or_none(f"{self.paths.log_dir}/jobs.log") or b""
        return (data + jobs).decode()

    # Jobs.

    def job(self, job_id: int) -> QueuedJob:
        """Return a job as its file has it."""
        data = self.files.read(JobId(job_id))
        assert data is not None, f"job {job_id} is gone"
        return decode_job(data, job_id)

    def jobs_on_disk(self) -> list[QueuedJob]:
        """Return all jobs of the queue."""
        return [self.job(job_id) for job_id in self.files.ids()]

    def livelocks(self) -> list[str]:
        """Return the names of the lock files of jobs."""
        return sorted(n for n in os.listdir(self.paths.livelock_dir) if n.startswith("job_"))


def _accepts(path: str) -> bool:
    """Tell whether somebody listens on a socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


def kill_and_wait(pid: int) -> None:
    """Kill a process if it is there, and wait for its end."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    assert wait_gone(pid, DEADLINE_S)


def wait_status(
    client: LuxiClient,
    job_id: int,
    wanted: str | Callable[[str], bool],
    timeout_s: float = DEADLINE_S,
) -> str:
    """Wait until a job has a status; returns it."""
    is_wanted = wanted if callable(wanted) else wanted.__eq__
    return str(wait_field(client, job_id, "status", lambda value: is_wanted(str(value)), timeout_s))


def wait_field(
    client: LuxiClient,
    job_id: int,
    field: str,
    is_wanted: Callable[[object], bool],
    timeout_s: float = DEADLINE_S,
) -> object:
    """Wait until a field of a job is as wanted; returns it."""
    previous: list[object] | None = None
    deadline = time.monotonic() + timeout_s
    while True:
        left_s = deadline - time.monotonic()
        assert left_s > 0, f"{field} of job {job_id} is {previous}"
        change = client.wait_for_job_change(JobId(job_id), [field], previous, 1 << 40, left_s)
        if change is not None and change.fields is not None:
            previous = change.fields
            if is_wanted(previous[0]):
                return previous[0]


def is_final(status: str) -> bool:
    """Tell whether a status is final."""
    return status in ("success", "error", "canceled")
