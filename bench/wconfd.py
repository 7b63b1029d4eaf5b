"""Measures WConfD: locks, changes of the configuration by size, group commit, start, memory.

``python bench/wconfd.py`` prints the table; ``--sizes 100,5000`` measures fewer sizes.  A real
daemon, clients in processes of their own, everything below a temporary directory (``TMPDIR``).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [ROOT, os.path.join(ROOT, "test")]

from fakes.large_config import MASTER, large_config, uuid_of  # noqa: E402 - needs that path
from fakes.wconfd_node import WconfdNode  # noqa: E402

from ganeti.base.paths import Paths  # noqa: E402
from ganeti.clients.wconfd import WConfClient  # noqa: E402
from ganeti.protocol.wconfd import ClientId  # noqa: E402
from ganeti.system import files  # noqa: E402
from ganeti.system.filelock import LiveLock  # noqa: E402

SIZES = (100, 1_000, 5_000, 20_000)
NODES = 200
CHANGES = 200
WRITERS = 16
OWNERS, LOCKS, WAITERS = 500, 10_000, 500
MB = 1e6
CPU_GROWTH_MAX, CPU_MS_PER_MB_MAX = 1.5, 2.5


class SizedNode(WconfdNode):
    """A master with many instances; the other nodes are offline, so nothing goes out."""

    def __init__(self, instances: int) -> None:
        super().__init__()
        config = large_config(instances, NODES)
        for node in config["nodes"].values():
            node["offline"] = node["name"] != MASTER
        data = json.dumps(config, separators=(",", ":")).encode()
        files.write_durable(self.paths.config_data, data)
        self.size_bytes = len(data)

    def cpu_ms(self) -> float:
        assert self.process is not None
        with open(f"/proc/{self.process.pid}/schedstat", encoding="ascii") as file:
            main_ns = int(file.read().split()[0])
        total_ns = 0
        for task in os.listdir(f"/proc/{self.process.pid}/task"):
            with open(f"/proc/{self.process.pid}/task/{task}/schedstat", encoding="ascii") as file:
                total_ns += int(file.read().split()[0])
        return max(main_ns, total_ns) / 1e6

    def memory_mb(self) -> float:
        assert self.process is not None
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            line = next(line for line in file if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


def timed(call: Callable[[int], object], count: int) -> list[float]:
    """Return how long each call took, in ms, sorted."""
    found = []
    for number in range(count):
        begun = time.perf_counter()
        call(number)
        found.append((time.perf_counter() - begun) * 1000)
    return sorted(found)


def p50_p95(times: list[float]) -> str:
    return f"p50 {statistics.median(times):7.3f}   p95 {times[int(len(times) * 0.95)]:7.3f} ms"


def fsync_ms() -> float:
    """Return the median time of writing and syncing 4 KB."""
    with tempfile.TemporaryFile() as file:

        def write(_number: int) -> None:
            os.pwrite(file.fileno(), b"x" * 4096, 0)
            os.fsync(file.fileno())

        return statistics.median(timed(write, 200))


def _toggle_lock(client: WConfClient, lock: str) -> Callable[[int], object]:
    return lambda turn: client.try_update_locks([(lock, "release" if turn % 2 else "shared")])


def measure_locks() -> None:
    with SizedNode(100) as node:
        client = node.start().owner(1).client
        timed(lambda _: client.echo("x"), 200)
        times = timed(lambda _: client.echo("x"), 2000)
        print(f"  echo, round trip                       {p50_p95(times)}")
        times = timed(_toggle_lock(client, f"node/{uuid_of('node', 1)}"), 3000)
        print(f"  lock update, uncontended (0.3)         {p50_p95(times)}")


def measure_many_locks() -> None:
    """Grant after release, with many owners and waiters.

    Owners are loaded from ``locks.data``; the last waiter is a real client that waits for a lock
    of the first owner.
    """
    with SizedNode(100) as node:
        first, last = node.owner("first"), node.owner("last")
        crowd = LiveLock.create(f"{node.paths.livelock_dir}/crowd_1")
        owners = [ClientId(number, crowd.path, 0).to_wire() for number in range(OWNERS)]
        per_owner = LOCKS // OWNERS
        held = [
            [owner, [[f"instance/i{index * per_owner + n}", "exclusive"] for n in range(per_owner)]]
            for index, owner in enumerate(owners)
        ]
        waiting = [
            [0, ClientId(f"w{number}", crowd.path, 0).to_wire(), _request(number)]
            for number in range(WAITERS)
        ]
        files.write_atomic(node.paths.locks_data, json.dumps([held, waiting]).encode())
        node.start()
        times = sorted(_grant_ms(node, first, last, turn) for turn in range(100))
        print(f"  grant after release, 10,000 locks (5)  {p50_p95(times)}")
        times = timed(_toggle_lock(first.client, "node/free"), 500)
        print(f"  lock update, 10,000 locks held         {p50_p95(times)}")
        crowd.release()


def _request(number: int) -> list[list[str]]:
    return [[f"instance/i{(number * 37 + n * 101) % LOCKS}", "exclusive"] for n in range(4)]


def _grant_ms(node: WconfdNode, first: Any, last: Any, turn: int) -> float:
    lock = [(f"node/n{turn}", "exclusive")]
    first.client.try_update_locks(lock)
    with multiprocessing.Pool(1) as pool:
        granted = pool.apply_async(_wait_for_lock, (node.paths.root, last.id, lock))
        while not last.client.has_pending_request():
            time.sleep(0.001)
        begun = time.monotonic()
        first.client.free_locks()
        ended: float = granted.get(30)
    last.client.free_locks()
    return (ended - begun) * 1000


def _wait_for_lock(root: str, owner: ClientId, lock: list[tuple[str, str]]) -> float:
    with WConfClient(Paths(root), owner) as client:
        client.wait_locks(0, lock, 30.0)
        return time.monotonic()


def _toggle_tag(client: WConfClient, tag: str) -> Callable[[int], object]:
    def call(turn: int) -> object:
        change = client.remove_tags if turn % 2 else client.add_tags
        return change("cluster", "", [tag])

    return call


def _writer(root: str, owner: ClientId, begin: Any, count: int) -> None:
    with WConfClient(Paths(root), owner) as client:
        call = _toggle_tag(client, str(owner.identifier))
        client.echo("x")
        begin.wait()
        for turn in range(count):
            call(turn)


def writers_per_second(node: SizedNode, writers: int) -> float:
    """Return changes per second of so many clients at once."""
    count = CHANGES if writers == 1 else 50
    owners = [node.owner(f"writer{writers}-{number}").hold() for number in range(writers)]
    begin = multiprocessing.Barrier(writers + 1)
    processes = [
        multiprocessing.Process(target=_writer, args=(node.paths.root, owner.id, begin, count))
        for owner in owners
    ]
    for process in processes:
        process.start()
    begin.wait()
    begun = time.monotonic()
    for process in processes:
        process.join()
    return writers * count / (time.monotonic() - begun)


def measure_size(instances: int) -> tuple[float, float]:
    """Measure one size; returns CPU per change (ms) and size (MB)."""
    with SizedNode(instances) as node:
        begun = time.monotonic()
        node.start()
        start_s = time.monotonic() - begun
        client = node.owner(1).hold().client
        timed(_toggle_tag(client, "warm"), 10)
        cpu = node.cpu_ms()
        times = timed(_toggle_tag(client, "tag"), CHANGES)
        cpu = (node.cpu_ms() - cpu) / CHANGES
        one, many = writers_per_second(node, 1), writers_per_second(node, WRITERS)
        whole = statistics.median(timed(lambda _: client.read_config(), 5))
        values = (
            f"{node.size_bytes / MB:.1f}",
            f"{statistics.median(times):.2f}",
            f"{times[int(len(times) * 0.95)]:.2f}",
            f"{cpu:.2f}",
            f"{one:.0f}",
            f"{many:.0f}",
            f"{many / one:.1f}",
            f"{whole:.0f}",
            f"{start_s:.2f}",
            f"{node.memory_mb():.0f}",
        )
        print(f"  {instances:9d}" + "".join(f"{value:>9}" for value in values))
        return cpu, node.size_bytes / MB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    sizes = [int(size) for size in parser.parse_args().sizes.split(",")]
    load = os.getloadavg()[0]
    print(f"fsync of 4 KB: {fsync_ms():.2f} ms; load before: {load:.1f}; cores: {os.cpu_count()}")
    print("\nlocks (limit in brackets)")
    measure_locks()
    measure_many_locks()
    print(f"\na tag set on the cluster, {NODES} nodes")
    print("limits for 5,000 instances: p50 20 ms, factor 4, start 1 s, RSS 150 MB")
    columns = ("MB", "p50 ms", "p95 ms", "CPU ms", "1 wr/s", "16 wr/s", "factor", "read ms")
    print("  instances" + "".join(f"{column:>9}" for column in (*columns, "start s", "RSS MB")))
    found = [measure_size(size) for size in sizes]
    (cpu, _), (cpu_large, size_mb) = found[0], found[-1]
    allowed = CPU_GROWTH_MAX * cpu + CPU_MS_PER_MB_MAX * size_mb
    print(
        f"\nCPU per change grows from {cpu:.2f} to {cpu_large:.2f} ms; allowed are"
        f" {CPU_GROWTH_MAX} x {cpu:.2f} + {CPU_MS_PER_MB_MAX} x {size_mb:.1f} MB = {allowed:.1f} ms"
    )


if __name__ == "__main__":
    main()
