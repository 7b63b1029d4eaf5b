#!/usr/bin/env python3
"""Measures RConfD: a small and a large cluster side by side, and a bare echo of datagrams.

    bench/confd.py [--rounds 10] [--nodes 200] [--instances 5000]

The questions are signed beforehand and the answers only counted, so the client costs little.  What
is compared takes turns in rounds, for the machine may be quiet now and busy the next moment.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import random
import socket
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [CHECKOUT, f"{CHECKOUT}/test"]

from fakes.confd_node import KEY, OWN_NAME, ConfdNode  # noqa: E402 - needs that path
from fakes.large_config import large_config  # noqa: E402
from jobs import quantile, row  # noqa: E402

from ganeti.protocol.confd import Signer, request_packet  # noqa: E402
from ganeti.protocol.confd_queries import QueryType  # noqa: E402

ADDRESS = "127.0.0.1"
ONE_BY_ONE = 500
OUTSTANDING = 64
MANY = 5000
SIGNER = Signer(KEY)
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


@dataclass
class Subject:
    """Somebody who answers: where, which process, what he is asked, and how he did."""

    text: str
    port: int
    pid: int
    questions: list[bytes]
    times_us: list[float] = field(default_factory=list)
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

    def one_by_one(self, count: int) -> None:
        send, receive, clock = self.socket.send, self.socket.recv, time.perf_counter
        for question in itertools.islice(self.endless, count):
            begun = clock()
            send(question)
            receive(65536)
            self.times_us.append((clock() - begun) * US)

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
        median, p99 = statistics.median(self.times_us), quantile(self.times_us, 0.99)
        is_echo = self is echo
        ratio = median / statistics.median(echo.times_us)
        print(f"--- {self.text}")
        targets = [""] * 5
        if not is_echo:
            targets = [
                f"at most {TARGET_RATIO} times the echo",
                f"under {TARGET_P99_US} us",
                f"at least {TARGET_RATE}",
                "",
                f"at most {TARGET_CPU_US} us",
            ]
        row("one at a time: median", f"{median:.1f} us ({ratio:.2f})", targets[0])
        row("one at a time: p99", f"{p99:.1f} us", targets[1])
        row(f"{OUTSTANDING} outstanding: best round", f"{max(self.rates):.0f} /s", targets[2])
        row(f"{OUTSTANDING} outstanding: median", f"{statistics.median(self.rates):.0f} /s")
        row(
            "processor per answer: best, median",
            f"{min(self.cpu_us):.1f}, {statistics.median(self.cpu_us):.1f} us",
            targets[4],
        )


def echo(port: int) -> None:
    """Be the bare echo."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((ADDRESS, port))
        while True:
            data, peer = sock.recvfrom(65536)
            sock.sendto(data, peer)


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((ADDRESS, 0))
        port: int = probe.getsockname()[1]
        return port


def measure(small: ConfdNode, large: ConfdNode, nodes: int, instances: int, rounds: int) -> None:
    rng = random.Random(1)
    names = [f"node{rng.randrange(nodes) + 1}.example.com" for _ in range(2000)]
    addresses = [{"1": ip_of(rng.randrange(instances))} for _ in range(5000)]
    master = packets(QueryType.CLUSTER_MASTER, [None] * 500)
    port = free_port()
    process = multiprocessing.Process(target=echo, args=(port,), daemon=True)
    process.start()
    assert process.pid is not None
    assert small.process is not None
    assert large.process is not None
    few, big = small.process.pid, large.process.pid
    bare = Subject("bare echo", port, process.pid, master)
    subjects = [
        bare,
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
    row("load average", f"{os.getloadavg()[0]:.2f}")
    for subject in subjects:
        subject.one_by_one(len(subject.questions))  # the first answers of a configuration
        subject.times_us.clear()
    for _ in range(rounds):
        for subject in subjects:
            subject.one_by_one(ONE_BY_ONE)
            subject.many(MANY)
    for subject in subjects:
        subject.show(bare)
    print("--- both")
    row("memory, small", f"{small.memory_kb() / 1024:.1f} MB", f"under {TARGET_MB} MB")
    row("memory, large", f"{large.memory_kb() / 1024:.1f} MB", f"under {TARGET_MB} MB")
    row("load average after", f"{os.getloadavg()[0]:.2f}")
    process.terminate()


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
        measure(small, large, options.nodes, options.instances, options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
