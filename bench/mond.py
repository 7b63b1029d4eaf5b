#!/usr/bin/env python3
"""Measures MonD: reports and metrics on kept and on new connections, slow clients, memory.

    bench/mond.py [--requests 300]

A real daemon asks a real RConfD; the node has no instances, so what is measured is the daemon, the
kernel's files and the encoding.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import sys
import threading
import time
from collections.abc import Iterator

CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [CHECKOUT, f"{CHECKOUT}/test"]

from fakes.mond_node import PORT, MondNode  # noqa: E402 - needs that path
from jobs import quantile  # noqa: E402
from report import row  # noqa: E402

from ganeti.system import process_facts  # noqa: E402

TARGET_MS, TARGET_MB = 20, 60
SLOW_CLIENTS = 200
CLIENTS = 8
SETTLE_S = 3.0  # until averages and answers of RConfD are there


def once(node: MondNode, path: str) -> float:
    """Return how long a request on a new connection takes, in ms."""
    began = time.perf_counter()
    status, _ = node.get(path)
    assert status == 200, status
    return (time.perf_counter() - began) * 1000


def kept(node: MondNode, path: str, count: int) -> list[float]:
    """Return how long requests on a kept connection take, in ms."""
    connection = http.client.HTTPConnection(node.address, PORT, timeout=60)
    times = []
    with contextlib.closing(connection):
        for _ in range(count):
            began = time.perf_counter()
            connection.request("GET", path)
            connection.getresponse().read()
            times.append((time.perf_counter() - began) * 1000)
    return times


def at_once(node: MondNode, path: str, count: int) -> float:
    """Return how many requests a second several clients get answered together."""
    began = time.perf_counter()
    threads = [threading.Thread(target=kept, args=(node, path, count)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return CLIENTS * count / (time.perf_counter() - began)


@contextlib.contextmanager
def slow_clients(node: MondNode) -> Iterator[None]:
    """Have clients around that never come to the end of their request."""
    with contextlib.ExitStack() as stack:
        for _ in range(SLOW_CLIENTS):
            stack.enter_context(node.raw()).sendall(b"GET /1/report/all HTTP/1.1\r\nX: ")
        yield


def show(what: str, times: list[float], target: str = "") -> None:
    """Print the middle and the end of a distribution."""
    middle, end = quantile(times, 0.5), quantile(times, 0.99)
    row(f"{what}: p50, p99", f"{middle:.2f}, {end:.2f} ms", target)


def usage(node: MondNode) -> process_facts.ProcessFacts:
    """Return what the daemon uses."""
    found = process_facts.read(node.pid)
    assert found is not None
    return found


def measure(node: MondNode, count: int) -> None:
    """Print the table."""
    small = f"at most {TARGET_MB} MB"
    row("memory after the start", f"{usage(node).resident_bytes >> 20} MB", small)
    first = once(node, "/1/report/all")
    row("/1/report/all, the first one of all", f"{first:.0f} ms")
    time.sleep(SETTLE_S)
    target = f"under {TARGET_MS} ms"
    began_s = usage(node).cpu_s
    show("/1/report/all, kept connection", kept(node, "/1/report/all", count), target)
    row("processor time for each", f"{(usage(node).cpu_s - began_s) / count * 1000:.2f} ms")
    times = [once(node, "/1/report/all") for _ in range(count)]
    show("/1/report/all, new connections", times, target)
    show("/metrics, kept connection", kept(node, "/metrics", count))
    with slow_clients(node):
        times = kept(node, "/1/report/all", count)
        show(f"/1/report/all, {SLOW_CLIENTS} slow clients", times, target)
    rate = at_once(node, "/1/report/all", count)
    row(f"/1/report/all, {CLIENTS} clients together", f"{rate:.0f}/s")
    row("memory at the end", f"{usage(node).resident_bytes >> 20} MB", small)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=300)
    options = parser.parse_args()
    with MondNode() as node:
        measure(node, options.requests)
    return 0


if __name__ == "__main__":
    sys.exit(main())
