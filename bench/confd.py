#!/usr/bin/env python3
"""Measures RConfD: a small and a large cluster side by side, and a bare echo of datagrams.

    bench/confd.py [--rounds 10] [--nodes 200] [--instances 5000]

The questions are signed beforehand and the answers only counted, so the client costs little.  What
is compared takes turns in rounds, for the machine may be quiet now and busy the next moment.

One question at a time mostly measures how a core is woken.  Whether client and server share one is
the scheduler's choice: that makes a factor of five, and may fall differently for two servers in one
run.  So it is measured with both on one core, on a core each, and as the scheduler likes.  The echo
is a process of its own: a fork of the client would find the client's memory in the cache.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [CHECKOUT, f"{CHECKOUT}/test"]

from fakes.confd_node import KEY, OWN_NAME, ConfdNode  # noqa: E402 - needs that path
from fakes.large_config import large_config  # noqa: E402
from jobs import quantile  # noqa: E402
from report import row  # noqa: E402

from ganeti.protocol.confd import Signer, request_packet  # noqa: E402
from ganeti.protocol.confd_queries import QueryType  # noqa: E402

ADDRESS = "127.0.0.1"
ONE_BY_ONE = 500
WARM_UP = 50  # answers after a move to another core
OUTSTANDING = 64
MANY = 5000
SIGNER = Signer(KEY)
ECHO = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind((sys.argv[1], int(sys.argv[2])))
while True:
    data, peer = sock.recvfrom(65536)
    sock.sendto(data, peer)
"""
US = 1e6
TARGET_RATE, TARGET_CPU_US, TARGET_P99_US, TARGET_RATIO, TARGET_MB = 50_000, 15, 200, 1.25, 60


def packets(kind: QueryType, questions: Sequence[object]) -> list[bytes]:
    """Return signed questions; they are good for five minutes."""
    now_s = int(time.time())
    return [
        request_packet(SIGNER, kind, question, rsalt=f"{number:036}", now_s=now_s)
        for number, question in enumerate(questions)
    ]


def ip_of(number: int) -> str:
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def config_of(nodes: int, instances: int) -> dict[str, object]:
    config = large_config(instances, nodes, candidates=3)
    for number, instance in enumerate(config["instances"].values()):
        instance["nics"][0]["ip"] = ip_of(number)
    return config


CORES = sorted(os.sched_getaffinity(0))


class Placement(NamedTuple):
    """Where client and server may run."""

    text: str
    client: Sequence[int]
    server: Sequence[int]


PLACEMENTS = (
    Placement("on one core", CORES[:1], CORES[:1]),
    *[Placement("on two cores", CORES[:1], CORES[1:2])] * (len(CORES) > 1),
    Placement("as it comes", CORES, CORES),
)


@dataclass
class Subject:
    """Somebody who answers: where, which process, what he is asked, and how he did."""

    text: str
    port: int
    pid: int
    questions: list[bytes]
    times_us: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect((ADDRESS, self.port))
        self.socket.settimeout(10)
        self.endless: Iterator[bytes] = itertools.cycle(self.questions)

    def cpu_s(self) -> float:
        with open(f"/proc/{self.pid}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[0]) / 1e9

    def place(self, placement: Placement) -> None:
        os.sched_setaffinity(0, placement.client)
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            os.sched_setaffinity(int(thread), placement.server)

    def one_by_one(self, count: int) -> list[float]:
        """Return how long each answer took, in us."""
        send, receive, clock = self.socket.send, self.socket.recv, time.perf_counter
        times_us = []
        for question in itertools.islice(self.endless, count):
            begun = clock()
            send(question)
            receive(65536)
            times_us.append((clock() - begun) * US)
        return times_us

    def many(self, count: int) -> None:
        send, receive = self.socket.send, self.socket.recv
        questions = list(itertools.islice(self.endless, count))
        cpu_s, begun = self.cpu_s(), time.perf_counter()
        for question in questions[:OUTSTANDING]:
            send(question)
        for question in questions[OUTSTANDING:]:
            receive(65536)
            send(question)
        for _ in range(OUTSTANDING):
            receive(65536)
        self.rates.append(count / (time.perf_counter() - begun))
        self.cpu_us.append((self.cpu_s() - cpu_s) / count * US)

    def show(self, echo: Subject) -> None:
        print(f"--- {self.text}")
        is_echo = self is echo

        def line(what: str, reached: str, target: str = "") -> None:
            row(what, reached, "" if is_echo else target)

        for where, times_us in self.times_us.items():
            median, p99 = statistics.median(times_us), quantile(times_us, 0.99)
            ratio = median / statistics.median(echo.times_us[where])
            wanted = f"p99 under {TARGET_P99_US} us"
            if where != PLACEMENTS[-1].text:  # there, the echo may have been placed otherwise
                wanted = f"at most {TARGET_RATIO} times the echo, {wanted}"
            what = f"one at a time, {where}: median (of echo), p99"
            line(what, f"{median:.1f} us ({ratio:.2f}), {p99:.0f} us", wanted)
        line(
            f"{OUTSTANDING} outstanding: best round",
            f"{max(self.rates):.0f} /s",
            f"at least {TARGET_RATE}",
        )
        line(f"{OUTSTANDING} outstanding: median", f"{statistics.median(self.rates):.0f} /s")
        line(
            "processor per answer: best, median",
            f"{min(self.cpu_us):.1f}, {statistics.median(self.cpu_us):.1f} us",
            f"at most {TARGET_CPU_US} us",
        )


@contextlib.contextmanager
def bare_echo() -> Iterator[tuple[int, int]]:
    """Have a bare echo; yields its port and its process."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-I", "-c", ECHO, ADDRESS, str(port)])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((ADDRESS, port))
            probe.settimeout(0.1)
            while True:  # until it listens
                with contextlib.suppress(OSError):
                    probe.send(b"?")
                    probe.recv(1)
                    break
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((ADDRESS, 0))
        port: int = probe.getsockname()[1]
        return port


def subjects_of(
    small: ConfdNode, large: ConfdNode, nodes: int, instances: int, echo: tuple[int, int]
) -> list[Subject]:
    """Return who is compared; the echo first."""
    rng = random.Random(1)
    names = [f"node{rng.randrange(nodes) + 1}.example.com" for _ in range(2000)]
    addresses = [{"1": ip_of(rng.randrange(instances))} for _ in range(5000)]
    master = packets(QueryType.CLUSTER_MASTER, [None] * 500)
    assert small.process is not None
    assert large.process is not None
    few, big = small.process.pid, large.process.pid
    return [
        Subject("bare echo", *echo, master),
        Subject("3 nodes, 0 instances: master", small.port, few, master),
        Subject(
            "3 nodes, 0 instances: role of a node by name",
            small.port,
            few,
            packets(QueryType.NODE_ROLE, [OWN_NAME] * 500),
        ),
        Subject(f"{nodes} nodes, {instances} instances: master", large.port, big, master),
        Subject(
            f"{nodes} nodes, {instances} instances: role of a node by name",
            large.port,
            big,
            packets(QueryType.NODE_ROLE, names),
        ),
        Subject(
            f"{nodes} nodes, {instances} instances: node by address of an instance",
            large.port,
            big,
            packets(QueryType.NODE_PIP_BY_INSTANCE_IP, addresses),
        ),
    ]


def measure(subjects: Sequence[Subject], rounds: int) -> None:
    for subject in subjects:
        subject.one_by_one(len(subject.questions))  # the first answers of a configuration
    for _, placement, subject in itertools.product(range(rounds), PLACEMENTS, subjects):
        subject.place(placement)
        subject.one_by_one(WARM_UP)
        subject.times_us[placement.text] += subject.one_by_one(ONE_BY_ONE)
        if placement is PLACEMENTS[-1]:
            subject.many(MANY)


def main() -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--instances", type=int, default=5000)
    options = parser.parse_args()
    print(f"{'':<54}{'reached':>22}  target")
    with (
        ConfdNode(config_of(3, 0)) as small,
        ConfdNode(config_of(options.nodes, options.instances)) as large,
    ):
        small.start()
        large.start()
        row("load average", f"{os.getloadavg()[0]:.2f}")
        with bare_echo() as echo:
            subjects = subjects_of(small, large, options.nodes, options.instances, echo)
            measure(subjects, options.rounds)
        for subject in subjects:
            subject.show(subjects[0])
        print("--- both")
        row("memory, small", f"{small.memory_kb() / 1024:.1f} MB", f"under {TARGET_MB} MB")
        row("memory, large", f"{large.memory_kb() / 1024:.1f} MB", f"under {TARGET_MB} MB")
        row("load average after", f"{os.getloadavg()[0]:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
