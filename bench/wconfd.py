"""Measures WConfD: locks, changes of the configuration by size, group commit, start, memory.

``python bench/wconfd.py`` prints a table by size, then every target beside the figure reached;
``--sizes 100,5000`` measures fewer sizes.  A real daemon, clients in processes of their own,
everything below a temporary directory (``TMPDIR``).
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
from dataclasses import dataclass
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [ROOT, os.path.join(ROOT, "test")]

from fakes.large_config import MASTER, large_config, large_config_bytes, uuid_of  # noqa: E402 - needs that path
from fakes.wconfd_node import WconfdNode  # noqa: E402
from report import record  # noqa: E402

from ganeti.base.paths import Paths  # noqa: E402
from ganeti.clients.wconfd import WConfClient  # noqa: E402
from ganeti.config import changes  # noqa: E402
from ganeti.config.state import ConfigState  # noqa: E402
from ganeti.protocol.wconfd import ClientId, ObjectKind  # noqa: E402
from ganeti.system import files  # noqa: E402
from ganeti.system.filelock import LiveLock  # noqa: E402

SIZES = (100, 1_000, 5_000, 20_000)
NODES = 200
CHANGES = 200
WRITERS = 16
OWNERS, LOCKS, WAITERS = 500, 10_000, 500
MB = 1e6
TARGET_SIZE = 5_000  # the instances that the targets speak of
CPU_GROWTH_MAX, CPU_MS_PER_MB_MAX = 1.5, 2.5


class Report:
    """Targets and what was reached."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def at_most(self, what: str, limit: float, reached: float, unit: str) -> None:
        self._add(what, f"<= {limit:g}", reached, unit, met=reached <= limit)

    def at_least(self, what: str, limit: float, reached: float, unit: str) -> None:
        self._add(what, f">= {limit:g}", reached, unit, met=reached >= limit)

    def _add(self, what: str, limit: str, reached: float, unit: str, *, met: bool) -> None:
        verdict = "" if met else "   MISSED"
        self._lines.append(f"  {what:55} {limit:>8} {reached:9.3g} {unit}{verdict}")
        record(what, f"{reached:.3g} {unit}", limit)

    def show(self) -> None:
        print(f"\n  {'targets':55} {'wanted':>8} {'reached':>9}")
        print("\n".join(self._lines))


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


def timed(call: Callable[[int], object], count: int, first: int = 0) -> list[float]:
    """Return how long each call took, in ms, sorted."""
    found = []
    for number in range(first, first + count):
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


def measure_locks(report: Report) -> None:
    with SizedNode(100) as node:
        client = node.start().owner(1).client
        timed(lambda _: client.echo("x"), 200)
        times = timed(lambda _: client.echo("x"), 2000)
        print(f"  echo, round trip                       {p50_p95(times)}")
        times = timed(_toggle_lock(client, f"node/{uuid_of('node', 1)}"), 3000)
        print(f"  lock update, uncontended               {p50_p95(times)}")
        report.at_most("lock update, uncontended, p50", 0.3, statistics.median(times), "ms")


def measure_many_locks(report: Report) -> None:
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
        print(f"  grant after release, 10,000 locks      {p50_p95(times)}")
        what = f"grant after release, {LOCKS} locks, {WAITERS} waiters, p50"
        report.at_most(what, 5, statistics.median(times), "ms")
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


def measure_death(report: Report) -> None:
    """From the end of an owner that is killed until its lock is granted to the next one."""
    with SizedNode(100) as node:
        node.start()
        waiting = node.owner("waiting")
        times = sorted(_death_ms(node, waiting) for _ in range(20))
        print(f"  lock of a killed owner granted         {p50_p95(times)}")
        report.at_most("lock of a killed owner granted, slowest of 20", 2000, times[-1], "ms")


def _death_ms(node: WconfdNode, waiting: Any) -> float:
    lock = [("node/n", "exclusive")]
    here, there = multiprocessing.Pipe()
    path = f"{node.paths.livelock_dir}/dying_{node.next_number()}"
    process = multiprocessing.Process(target=_hold, args=(node.paths.root, path, lock, there))
    process.start()
    here.recv()
    begun = time.monotonic()
    process.kill()
    outcome, _ = waiting.client.wait_locks(0, lock, 30.0)
    ended = time.monotonic()
    assert outcome == "granted"
    waiting.client.free_locks()
    process.join()
    return (ended - begun) * 1000


def _hold(root: str, path: str, lock: list[tuple[str, str]], there: Any) -> None:
    livelock = LiveLock.create(path)
    with WConfClient(Paths(root), ClientId("dying", livelock.path, os.getpid())) as client:
        assert client.try_update_locks(lock) == []
        there.send("held")
        time.sleep(60)


def _toggle_tag(client: WConfClient, tag: str) -> Callable[[int], object]:
    def call(turn: int) -> object:
        change = client.remove_tags if turn % 2 else client.add_tags
        return change(ObjectKind.CLUSTER, "", [tag])

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


@dataclass
class Growth:
    """What one change costs at one size, in ms."""

    size_mb: float
    cpu: float  # of the daemon, everything
    deciding: float  # time to compute, check and accept the change, no waiting in it
    writing: float  # time to join and write the file


def measure_steps(instances: int) -> tuple[float, float]:
    """Measure the steps of a change in this process; returns ms.

    Deciding takes so little that what else the machine does would hide any growth: the fastest
    tenth counts, and nothing is written meanwhile, which would empty the processor's caches.  Of
    joining and writing it is the median.
    """
    state = ConfigState(large_config_bytes(instances, NODES))

    def decide(turn: int) -> None:
        change = changes.remove_tags if turn % 2 else changes.add_tags
        transaction = state.begin(1700000000.5 + turn)
        change(transaction, "cluster", "", ["tag"])
        transaction.check()
        state.accept(transaction)

    deciding, writing = [], []
    for turn in range(CHANGES):
        deciding += timed(decide, 1, turn)
        state.start_flush(0.0)
        state.flush_done()
    with tempfile.TemporaryDirectory() as directory:

        def write(_number: int) -> None:
            flush = state.start_flush(0.0)
            files.write_durable(f"{directory}/config.data", flush.pieces)

        for turn in range(CHANGES):
            decide(turn)
            writing += timed(write, 1)
            state.flush_done()
    return sorted(deciding)[len(deciding) // 10], statistics.median(writing)


def measure_size(instances: int, report: Report) -> Growth:
    """Measure one size, and print a line of the table."""
    deciding, writing = measure_steps(instances)
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
            f"{deciding:.3f}",
            f"{writing:.2f}",
            f"{one:.0f}",
            f"{many:.0f}",
            f"{many / one:.1f}",
            f"{whole:.0f}",
            f"{start_s:.2f}",
            f"{node.memory_mb():.0f}",
        )
        print(f"  {instances:9d}" + "".join(f"{value:>9}" for value in values))
        if instances == TARGET_SIZE:
            of = f"{instances} instances: "
            report.at_most(f"{of}tag added, p50", 20, statistics.median(times), "ms")
            report.at_least(f"{of}16 writers over one", 4, many / one, "times")
            report.at_most(f"{of}start", 1, start_s, "s")
            report.at_most(f"{of}memory", 150, node.memory_mb(), "MB")
        return Growth(node.size_bytes / MB, cpu, deciding, writing)


def compare(small: Growth, large: Growth, report: Report) -> None:
    """Report how the cost of a change grows from the smallest to the largest size."""
    report.at_most(
        "growth of what deciding a change takes",
        CPU_GROWTH_MAX,
        large.deciding / small.deciding,
        "x",
    )
    per_mb = (large.writing - small.writing) / (large.size_mb - small.size_mb)
    report.at_most("joining and writing, for each MB more", CPU_MS_PER_MB_MAX, per_mb, "ms")
    allowed = CPU_GROWTH_MAX * small.cpu + CPU_MS_PER_MB_MAX * large.size_mb
    what = f"CPU of the daemon, {CPU_GROWTH_MAX} x {small.cpu:.2f} ms + "
    what += f"{CPU_MS_PER_MB_MAX} x {large.size_mb:.1f} MB"
    report.at_most(what, round(allowed, 1), large.cpu, "ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    sizes = [int(size) for size in parser.parse_args().sizes.split(",")]
    report = Report()
    load = os.getloadavg()[0]
    print(f"fsync of 4 KB: {fsync_ms():.2f} ms; load before: {load:.1f}; cores: {os.cpu_count()}")
    print("\nlocks")
    measure_locks(report)
    measure_many_locks(report)
    measure_death(report)
    print(f"\na tag set on the cluster, {NODES} nodes; dec: deciding; j+w: joining and writing")
    columns = ["MB", "p50 ms", "p95 ms", "CPU ms", "dec ms", "j+w ms"]
    columns += ["1 wr/s", "16 wr/s", "factor", "read ms", "start s", "RSS MB"]
    print("  instances" + "".join(f"{column:>9}" for column in columns))
    found = [measure_size(size, report) for size in sizes]
    if len(found) > 1:
        compare(found[0], found[-1], report)
    report.show()


if __name__ == "__main__":
    main()
