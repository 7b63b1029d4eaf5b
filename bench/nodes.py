#!/usr/bin/env python3
"""Measures how the cost of everyday work grows with the number of nodes that answer.

    bench/nodes.py [--sizes 10x100,100x1000,1000x10000]

Beside a virtual cluster of three real nodes, one process plays all others, with the real protocol
and the real handlers (`fakes.answering_nodes`); their files are in memory.  It has to share the
machine with the master, so for what asks every node the table has the processor time of both: that
of the master's side is what the master costs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

CHECKOUT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [CHECKOUT, f"{CHECKOUT}/test", f"{CHECKOUT}/bench"]

from fakes.answering_nodes import answering  # noqa: E402 - needs that path
from fakes.large_config import uuid_of  # noqa: E402
from jobs import MASTER, Process, measure_latency, processes_of, virtual_cluster  # noqa: E402
from query import start_masters, stop_masters, with_instances, write_books  # noqa: E402
from report import row  # noqa: E402

from ganeti.base.paths import Paths  # noqa: E402
from ganeti.bootstrap.virtual import lifecycle  # noqa: E402
from ganeti.bootstrap.virtual.layout import VirtualCluster  # noqa: E402
from ganeti.clients.luxi import LuxiClient  # noqa: E402
from ganeti.system import daemon_control, files  # noqa: E402

REAL: Final = 3
JOBS: Final = 20
PER_NETWORK: Final = 250
SPREAD_LOOK_S: Final = 0.05
COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "gnt-node list": ("gnt-node", "list"),
    "gnt-instance list": ("gnt-instance", "list"),
    "gnt-instance list, from the configuration": ("gnt-instance", "list", "-o", "name,pnode"),
    "gnt-instance info --all": ("gnt-instance", "info", "--all"),
    "gnt-cluster verify-disks": ("gnt-cluster", "verify-disks"),
    "gnt-cluster verify": ("gnt-cluster", "verify"),
}


class Grown:
    """The cluster with so many nodes and instances, while it is entered.

    Args:
        directory: for the files of the nodes that are played.
    """

    def __init__(self, cluster: VirtualCluster, directory: str, nodes: int, instances: int) -> None:
        self.paths = cluster.paths_of(MASTER)
        self.cluster = cluster
        names = [f"node{number}.example.com" for number in range(REAL + 1, nodes + 1)]
        first, second, third = map(int, cluster.network.split("."))
        networks = [(third + 1 + number // PER_NETWORK) % 256 for number in range(len(names))]
        self.played = {
            name: f"{first}.{second}.{network}.{number % PER_NETWORK + 1}"
            for number, (name, network) in enumerate(zip(names, networks, strict=True))
        }
        self._directory = directory
        self._instances = instances

    def lay_down(self) -> None:
        """Write the configuration and the hosts files, while the daemons are stopped."""
        config = json.loads(files.read_bytes(self.paths.config_data))
        model = next(node for node in config["nodes"].values() if node["name"] != MASTER)
        for name, address in self.played.items():
            uuid = uuid_of("node", int(name.partition(".")[0].removeprefix("node")))
            config["nodes"][uuid] = {
                **model,
                "name": name,
                "uuid": uuid,
                "primary_ip": address,
                "secondary_ip": address,
                "master_candidate": False,
            }
        config["cluster"]["candidate_pool_size"] = REAL
        filled = with_instances(config, self._instances)
        hosts = "".join(
            f"{address}\t{name} {name.partition('.')[0]}\n" for name, address in self.played.items()
        )
        for name in self.cluster.node_names:
            path = self.cluster.paths_of(name).etc_hosts
            files.write_atomic(path, (self.cluster.hosts_text() + hosts).encode(), 0o644)
        files.write_durable(self.paths.config_data, json.dumps(filled).encode())
        self._config = filled

    def paths_of(self, name: str) -> Paths:
        """Return the paths of a real or a played node."""
        if name in self.played:
            return Paths(f"{self._directory}/{name}")
        return self.cluster.paths_of(name)

    def run_instances(self) -> None:
        """Let all instances run, as far as hypervisor "fake" is concerned, with disks."""
        write_books(self, self._config)
        names = {uuid: node["name"] for uuid, node in self._config["nodes"].items()}
        for disk in self._config["disks"].values():
            path = self.paths_of(names[disk["nodes"][0]]).localize(disk["logical_id"][1])
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.truncate(disk["size"] << 20)


def wait_spread(paths: Paths, played: int) -> None:
    """Wait until all nodes have the simple configuration."""
    from ganeti.clients.wconfd import WConfClient
    from ganeti.protocol.wconfd import ClientId

    client = WConfClient(paths, ClientId("bench", "", 0))

    def is_spread() -> bool:
        rows = client.get_replication_status()
        return sum(bool(each["ssconf_is_current"]) for each in rows) >= played + REAL - 1

    while not is_spread():
        time.sleep(SPREAD_LOOK_S)
    client.close()


class Command:
    """A command line, and what it said."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._argv, self._env = argv, env
        self.status, self.told = 0, ""

    def run(self) -> None:
        done = subprocess.run(
            self._argv, env=self._env, capture_output=True, text=True, check=False
        )
        self.status, self.told = done.returncode, done.stdout


def measured(base: str, played: Process, work: Callable[[], object]) -> tuple[float, float, float]:
    """Return the seconds that work took, and those of processor of the cluster and of the rest."""
    before, before_own = _used(processes_of(base)), sum(os.times()[:4])
    before_played, started = _used([played]), time.perf_counter()
    work()
    took_s = time.perf_counter() - started
    found = _used(processes_of(base))
    here_s = sum(found[pid] - before[pid] for pid in found.keys() & before.keys())
    own_s = sum(os.times()[:4]) - before_own
    return took_s, here_s + own_s, _used([played])[played.pid] - before_played[played.pid]


def _used(processes: Iterable[Process]) -> dict[int, float]:
    """Return the seconds of processor of processes and their ended children, by their numbers."""
    found = {}
    for each in processes:
        with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
            found[each.pid] = sum(each.cpu_s())
    return found


def measure(base: str, grown: Grown, played: Process, nodes: int) -> None:
    """Print all figures of one size."""
    paths = grown.paths

    def tell(text: str, seconds: float, more: str = "") -> None:
        curve = f"{text.partition(',')[0]} by nodes"
        point = (f"{curve}: seconds", nodes, seconds)
        row(f"{text}, {nodes} nodes", f"{seconds:.3f} s{more}", point=point)

    tell("LuxiD's first answer", start_masters(paths))
    started = time.perf_counter()
    wait_spread(paths, len(grown.played))
    tell("simple configuration everywhere", time.perf_counter() - started)
    with LuxiClient(paths) as client:
        measure_latency(client, 3, 0.1)
        tell(
            "a job that does nothing",
            statistics.median(measure_latency(client, JOBS, 0.1)[1]) / 1e3,
        )
    for text, argv in COMMANDS.items():
        env = lifecycle.command_environment(grown.cluster, MASTER)
        command = [lifecycle.find_program(argv[0], env), *argv[1:]]
        done = Command(command, env)
        seconds = measured(base, played, done.run)
        more = f" ({seconds[1]:.1f} + {seconds[2]:.1f} processor)"
        tell(text, seconds[0], more)
        if done.status:
            print(f"    exit status {done.status}: {done.told[-300:]}")
    for daemon in ("ganeti-luxid", "ganeti-wconfd"):
        pid = daemon_control.running_pid(paths, daemon)
        assert pid is not None
        row(f"{daemon}, {nodes} nodes", f"{Process(pid, daemon).memory_kib()[0] / 1024:.1f} MB")


def main() -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="10x100,100x1000,1000x10000", help="nodes x instances")
    options = parser.parse_args()
    os.environ["GANETI_HOSTNAME"] = MASTER
    for size in options.sizes.split(","):
        nodes, instances = map(int, size.split("x"))
        row(f"--- {nodes} nodes, {instances} instances", "")
        with (
            virtual_cluster(REAL, "--hypervisor", "fake") as base,
            tempfile.TemporaryDirectory(prefix="gnt-nodes", dir="/dev/shm") as directory,
        ):
            cluster = lifecycle.load(base)
            stop_masters(cluster.paths_of(MASTER))
            grown = Grown(cluster, directory, nodes, instances)
            grown.lay_down()
            with answering(directory, grown.played, cluster.paths_of(cluster.node_names[1])) as pid:
                grown.run_instances()
                measure(base, grown, Process(pid, "played nodes"), nodes)
                stop_masters(cluster.paths_of(MASTER))
    return 0


if __name__ == "__main__":
    sys.exit(main())
