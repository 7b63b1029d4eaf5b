#!/usr/bin/env python3
"""Measures what questions to LuxiD cost, on small and on large configurations.

    bench/query.py [--instances 50 1050 5050] [--jobs 5000] [--archived 50000]

Makes a virtual cluster of three nodes below a temporary directory, all of them master candidates,
lays synthetic instances into its configuration (and jobs into its queue), and asks the daemons.
Names asked for are drawn at random, so that no answer is known beforehand.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe, Process
from typing import Any, Protocol

from jobs import CHECKOUT, MASTER, quantile, virtual_cluster
from report import row

from ganeti.base.daemons import MASTER_DAEMONS
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.bootstrap.virtual import lifecycle
from ganeti.bootstrap.virtual.layout import VirtualCluster
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs import changes
from ganeti.jobs.record import encode_job
from ganeti.jobs.submission import make_job
from ganeti.store.job_files import JobFiles
from ganeti.system import daemon_control, files

ETX = b"\x03"
CLIENTS = 4
RATE_S = 3.0
SETTLE_S = 1.5
LUXID = "ganeti-luxid"
BY_NAME_FIELDS = ["name", "pnode", "os", "admin_state"]
CONFIG_FIELDS = [
    "name",
    "hypervisor",
    "os",
    "pnode",
    "snodes",
    "admin_state",
    "disk_template",
    "be/maxmem",
    "be/vcpus",
    "disk.sizes",
    "nic.macs",
    "tags",
]
NODE_FIELDS = ["name", "pinst_cnt", "sinst_cnt", "pinst_list", "group", "role"]
LIVE_FIELDS = ["name", "hypervisor", "os", "pnode", "status", "oper_ram"]  # gnt-instance list
DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.0, "reason": []}


FIRST = "configuration fields of all: first after the start"
AGAIN = "configuration fields of all: median, p95"
CHANGED = "configuration fields of all: after one changed"
BY_NAME = "one instance by name: median, p95"
RATE = f"the same from {CLIENTS} clients"
LIVE = "live list of all instances: median, p95"
START = "LuxiD: start to first answer"
START_BOTH = "LuxiD: the same, WConfD just started"
START_NEW = "LuxiD: the same, WConfD just started, all new"
STARTS = 3
MEMORY = "memory of LuxiD"


# Synthetic configurations and queues.


def uuid_of(kind: str, number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{kind}/{number}"))


def name_of(number: int) -> str:
    return f"instance{number}.example.com"


def _disk(number: int, node: str) -> dict[str, Any]:
    path = f"/srv/ganeti/file-storage/{name_of(number)}/{number}.file.disk0"
    return {
        "logical_id": ["loop", path],
        "dev_type": "file",
        "children": [],
        "nodes": [node],
        "iv_name": "disk/0",
        "size": 1024,
        "mode": "rw",
        "params": {},
        "uuid": uuid_of("disk", number),
        "serial_no": 1,
        "ctime": 1700000000.5,
        "mtime": 1700000000.5,
    }


def _instance(number: int, node: str) -> dict[str, Any]:
    mac = f"aa:00:00:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"
    return {
        "name": name_of(number),
        "primary_node": node,
        "os": "noop",
        "hypervisor": "fake",
        "hvparams": {},
        "beparams": {"maxmem": 512, "minmem": 512, "vcpus": 2},
        "osparams": {},
        "osparams_private": {},
        "admin_state": "up",
        "admin_state_source": "admin",
        "nics": [{"mac": mac, "nicparams": {}, "uuid": uuid_of("nic", number)}],
        "disks": [uuid_of("disk", number)],
        "disks_active": True,
        "uuid": uuid_of("instance", number),
        "serial_no": 1,
        "ctime": 1700000000.75,
        "mtime": 1700000000.75,
        "tags": ["bench"],
    }


class HasPaths(Protocol):
    """A cluster that knows where the files of its nodes are."""

    def paths_of(self, name: str, /) -> Paths:
        """Return the paths of a node."""


def with_instances(config: dict[str, Any], count: int) -> dict[str, Any]:
    """Return the configuration with so many instances, spread over its nodes."""
    nodes = sorted(config["nodes"])
    places = [(number, nodes[number % len(nodes)]) for number in range(count)]
    return {
        **config,
        "serial_no": config["serial_no"] + 1,
        "instances": {uuid_of("instance", n): _instance(n, node) for n, node in places},
        "disks": {uuid_of("disk", n): _disk(n, node) for n, node in places},
    }


def write_books(cluster: HasPaths, config: dict[str, Any]) -> None:
    """Let all instances run, as far as the fake hypervisor is concerned."""
    names = {uuid_: node["name"] for uuid_, node in config["nodes"].items()}
    for name in names.values():
        shutil.rmtree(cluster.paths_of(name).fake_dir, ignore_errors=True)
    book = b'{"memory_mib": 512, "vcpus": 2, "started_s": 1700000000.0, "phase": "running"}'
    for instance in config["instances"].values():
        directory = cluster.paths_of(names[instance["primary_node"]]).fake_dir
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, instance["name"]), "wb") as file:
            file.write(book)


def fill_queue(paths: Paths, queued: int, archived: int) -> None:
    """Lay ended jobs into the queue and the archive."""
    store = JobFiles(paths)
    first = store.last_id() + 1
    for number in range(first, first + queued + archived):
        job_id = JobId(number)
        ended = changes.canceled(make_job(job_id, [DELAY], (1, 1)), "x", (2, 2))
        is_archived = number < first + archived
        path = paths.archived_job_file(job_id) if is_archived else paths.job_file(job_id)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(encode_job(ended))
    store.write_serial(first + queued + archived - 1)


# The daemons.


def stop_masters(paths: Paths) -> None:
    for daemon in reversed(MASTER_DAEMONS):
        daemon_control.stop_daemon(paths, daemon)


def start_masters(paths: Paths) -> float:
    """Start WConfD and LuxiD; returns the seconds from LuxiD's start to its first answer.

    WConfD has just asked the candidates for their copies, and sends what they lack.
    """
    for daemon in MASTER_DAEMONS[:-1]:
        daemon_control.start_daemon(paths, daemon, hostname=MASTER)
    return start_luxid(paths)


def start_luxid(paths: Paths) -> float:
    """Start LuxiD, again if it runs; returns the seconds from the start to its first answer."""
    if daemon_control.running_pid(paths, LUXID) is not None:
        daemon_control.stop_daemon(paths, LUXID)
        time.sleep(SETTLE_S)
    started = time.perf_counter()
    daemon_control.start_daemon(paths, LUXID, hostname=MASTER)
    with LuxiClient(paths) as client:
        client.query_config_values(["cluster_name"])
    return time.perf_counter() - started


def memory_mb(paths: Paths) -> float:
    """Return the resident memory of LuxiD."""
    pid = daemon_control.running_pid(paths, LUXID)
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        kib = next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))
    return kib / 1024


# Asking.


class RawClient:
    """A client that costs as little as can be."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)

    def ask(self, message: bytes) -> bytes:
        """Send a request, return the answer."""
        self._socket.sendall(message)
        answer = self._socket.recv(1 << 20)
        while not answer.endswith(ETX):
            answer += self._socket.recv(1 << 20)
        return answer


def request(fields: Sequence[str], qfilter: object = None, what: str = "instance") -> bytes:
    args = [what, fields, qfilter]
    message = {"method": "Query", "args": args, "version": 3000000}
    return json.dumps(message).encode() + ETX


def by_name(instances: int, count: int) -> list[bytes]:
    """Return questions for single instances, all different as long as there are enough."""
    numbers = random.choices(range(instances), k=count)
    return [request(BY_NAME_FIELDS, ["==", "name", name_of(number)]) for number in numbers]


def times_ms(path: str, messages: Sequence[bytes]) -> list[float]:
    """Return how long each question took."""
    client = RawClient(path)
    times = []
    for message in messages:
        started = time.perf_counter()
        answer = client.ask(message)
        times.append((time.perf_counter() - started) * 1000)
        assert b'"success":true' in answer[:40], answer[:300]
    return times


def _count_answers(path: str, instances: int, pipe: Any) -> None:
    messages = by_name(instances, 4096)
    client = RawClient(path)
    pipe.send("ready")
    pipe.recv()
    deadline = time.perf_counter() + RATE_S
    done = 0
    while time.perf_counter() < deadline:
        for message in messages[done % 4096 : done % 4096 + 64]:
            client.ask(message)
        done += 64
    pipe.send(done)


def queries_per_second(path: str, instances: int) -> float:
    """Let several processes ask for single instances as fast as they can."""
    pipes, processes = [], []
    for _ in range(CLIENTS):
        ours, theirs = Pipe()
        processes.append(Process(target=_count_answers, args=(path, instances, theirs)))
        pipes.append(ours)
    for each in processes:
        each.start()
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    total = sum(pipe.recv() for pipe in pipes)
    for each in processes:
        each.join()
    return float(total / RATE_S)


def shell_times_ms(base: str, count: int) -> list[float]:
    """Return how long `gnt-instance list` takes from prompt to prompt."""
    cluster = lifecycle.load(base)
    env = lifecycle.command_environment(cluster, MASTER)
    argv = [lifecycle.find_program("gnt-instance", env), "list"]
    times = []
    for _ in range(count):
        started = time.perf_counter()
        subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL)
        times.append((time.perf_counter() - started) * 1000)
    return times


# The tables.


# The tables: each line with what it is meant to be at most (rates: at least).

ANY_SIZE = {BY_NAME: "0.15 ms", RATE: "15000 per second"}
TARGETS = {
    50: {FIRST: "0.4 ms", AGAIN: "0.4 ms", LIVE: "20 ms"},
    1050: {FIRST: "8 ms", AGAIN: "8 ms"},
    5050: {FIRST: "40 ms", AGAIN: "40 ms"},
    20000: {START: "400 ms", START_BOTH: "400 ms"},
}
QUEUE_TARGETS = {START: "3 s", MEMORY: "250 MB"}


def line(text: str, value: str, targets: Mapping[str, str]) -> None:
    """Print a figure, and the target if there is one."""
    row(text, value, targets.get(text, ""))


def _pair(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3f} ms, {quantile(list(values), 0.95):.3f} ms"


def fill(cluster: VirtualCluster, config: dict[str, Any], instances: int) -> None:
    """Lay instances into the configuration while the daemons are stopped."""
    path = cluster.paths_of(MASTER).config_data
    present = json.loads(files.read_bytes(path))  # a configuration must not become older
    filled = with_instances({**config, "serial_no": present["serial_no"]}, instances)
    write_books(cluster, filled)
    files.write_durable(path, json.dumps(filled).encode())
    print(f"--- {instances} instances, configuration of {os.path.getsize(path) / 1e6:.1f} MB")


def tag_one(paths: Paths, number: int) -> None:
    """Change one instance, by a job."""
    opcode = {"OP_ID": "OP_TAGS_SET", "kind": "instance", "name": name_of(number), "tags": ["new"]}
    with LuxiClient(paths) as client:
        job_id = client.submit_job([opcode])
        while client.query_jobs([job_id], ["status"]) != [["success"]]:
            client.wait_for_job_change(job_id, ["status"], None, None)


def measure(base: str, config: dict[str, Any], instances: int) -> None:
    """Measure with so many instances."""
    cluster = lifecycle.load(base)
    paths = cluster.paths_of(MASTER)
    targets = {**ANY_SIZE, **TARGETS.get(instances, {})}
    stop_masters(paths)
    fill(cluster, config, instances)
    new_s = start_masters(paths)
    time.sleep(SETTLE_S)  # the configuration is sent, job processes are made ready
    both_s, alone_s = [], []
    for _ in range(STARTS):
        stop_masters(paths)
        both_s.append(start_masters(paths))
        time.sleep(SETTLE_S)
        alone_s.append(start_luxid(paths))
        time.sleep(SETTLE_S)
    line(START, f"{statistics.median(alone_s) * 1000:.0f} ms", targets)
    line(START_BOTH, f"{statistics.median(both_s) * 1000:.0f} ms", targets)
    line(START_NEW, f"{new_s * 1000:.0f} ms", targets)
    ask, everything = paths.query_socket, request(CONFIG_FIELDS)
    line(FIRST, f"{times_ms(ask, [everything])[0]:.3f} ms", targets)
    line(AGAIN, _pair(times_ms(ask, [everything] * 20)), targets)
    tag_one(paths, instances // 2)
    line(CHANGED, f"{times_ms(ask, [everything])[0]:.3f} ms", targets)
    times_ms(ask, by_name(instances, 200))
    line(BY_NAME, _pair(times_ms(ask, by_name(instances, 2000))), targets)
    line(RATE, f"{queries_per_second(ask, instances):.0f} per second", targets)
    times_ms(ask, [request(LIVE_FIELDS)] * 3)
    line(LIVE, _pair(times_ms(ask, [request(LIVE_FIELDS)] * 20)), targets)
    nodes = request(NODE_FIELDS, what="node")
    line("nodes with their instances: median, p95", _pair(times_ms(ask, [nodes] * 20)), targets)
    line("gnt-instance list in a shell: median, p95", _pair(shell_times_ms(base, 5)), targets)
    line(MEMORY, f"{memory_mb(paths):.1f} MB", targets)


def measure_queue(base: str, config: dict[str, Any], jobs: int, archived: int) -> None:
    """Measure the start with many jobs, and many instances."""
    cluster = lifecycle.load(base)
    paths = cluster.paths_of(MASTER)
    stop_masters(paths)
    fill(cluster, config, 5000)
    fill_queue(paths, jobs - len(JobFiles(paths).ids()), archived)
    print(f"--- the same, {jobs} jobs in the queue, {archived} archived")
    line(START, f"{start_masters(paths):.2f} s", QUEUE_TARGETS)
    times_ms(paths.query_socket, [request(CONFIG_FIELDS)] * 2)
    with LuxiClient(paths) as client:
        started = time.perf_counter()
        found = client.query("job", ["id", "status", "summary"])
        took_ms = (time.perf_counter() - started) * 1000
        line(f"list of {len(found.data)} jobs", f"{took_ms:.0f} ms", QUEUE_TARGETS)
    line(MEMORY, f"{memory_mb(paths):.1f} MB", QUEUE_TARGETS)


def run(base: str, options: argparse.Namespace) -> None:
    """Measure everything, and print tables."""
    os.environ["GANETI_HOSTNAME"] = MASTER
    paths = lifecycle.load(base).paths_of(MASTER)
    config = json.loads(files.read_bytes(paths.config_data))
    print(f"{'':<52}{'reached':>24}   target")
    for instances in options.instances:
        line("load average", f"{os.getloadavg()[0]:.2f}", {})
        measure(base, config, instances)
    if options.jobs:
        measure_queue(base, config, options.jobs, options.archived)
    line("load average after", f"{os.getloadavg()[0]:.2f}", {})


def main() -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", help="a running virtual cluster to measure on; it is spoilt")
    parser.add_argument("--instances", type=int, nargs="*", default=[50, 1050, 5050])
    parser.add_argument("--jobs", type=int, default=5000, help="jobs in the queue; 0: leave out")
    parser.add_argument("--archived", type=int, default=50000, help="jobs in the archive")
    options = parser.parse_args()
    if options.base:
        run(os.path.realpath(options.base), options)
        return 0
    with virtual_cluster(3, "--hypervisor", "fake") as base:
        run(os.path.realpath(base), options)
    return 0


if __name__ == "__main__":
    assert CHECKOUT
    sys.exit(main())
