#!/usr/bin/env python3
"""Measures the remote API: requests on kept connections, handshakes, lists, memory.

    bench/rapi.py [--instances 50 1000 5000]

The clients are processes that send prepared bytes and look at no more of an answer than its length,
so that on a small machine the server gets what processor there is.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import ssl
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from jobs import MASTER, virtual_cluster
from query import fill, start_masters, stop_masters
from report import row

from ganeti.bootstrap.virtual import lifecycle
from ganeti.protocol.rapi.values import DEFAULT_PORT
from ganeti.system import daemon_control, environment, files

DAEMON = "ganeti-rapi"
PROCESSES = 2
CLIENTS_EACH = 4
RATE_S = 3.0
LISTS = 7


def context() -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.check_hostname = False
    found.verify_mode = ssl.CERT_NONE
    return found


def request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def receive(sock: ssl.SSLSocket) -> int:
    """Take one answer; returns the size of its body."""
    data = sock.recv(1 << 16)
    while b"\r\n\r\n" not in data:
        data += sock.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head[:200]
    size = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
    got = len(body)
    while got < size:
        got += len(sock.recv(1 << 18))
    return size


def connect(address: str, tls: ssl.SSLContext) -> ssl.SSLSocket:
    return tls.wrap_socket(socket.create_connection((address, DEFAULT_PORT)))


def keep_asking(address: str, path: str, pipe: Connection) -> None:
    """Ask on several kept connections, one question open on each."""
    tls, message = context(), request(path)
    socks = [connect(address, tls) for _ in range(CLIENTS_EACH)]
    pipe.send("ready")
    pipe.recv()
    for sock in socks:
        sock.sendall(message)
    deadline, done = time.perf_counter() + RATE_S, 0
    while time.perf_counter() < deadline:
        for sock in socks:
            receive(sock)
            sock.sendall(message)
        done += len(socks)
    pipe.send(done)


def keep_connecting(address: str, path: str, pipe: Connection) -> None:
    """Make a connection with a full handshake for each question."""
    tls, message = context(), request(path)
    pipe.send("ready")
    pipe.recv()
    deadline, done = time.perf_counter() + RATE_S, 0
    while time.perf_counter() < deadline:
        with connect(address, tls) as sock:
            sock.sendall(message)
            receive(sock)
        done += 1
    pipe.send(done)


def rate(work: Callable[[str, str, Connection], None], address: str, path: str) -> float:
    """Let processes work at the same time; returns what they got done per second."""
    pipes, processes = [], []
    for _ in range(PROCESSES):
        ours, theirs = multiprocessing.Pipe()
        processes.append(multiprocessing.Process(target=work, args=(address, path, theirs)))
        pipes.append(ours)
    for process in processes:
        process.start()
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    total = sum(pipe.recv() for pipe in pipes)
    for process in processes:
        process.join()
    return float(total) / RATE_S


def list_times_ms(address: str, path: str) -> tuple[list[float], int]:
    """Return how long a list takes on a kept connection, and how large it is."""
    size = 0
    times = []
    with connect(address, context()) as sock:
        for _ in range(LISTS):
            started = time.perf_counter()
            sock.sendall(request(path))
            size = receive(sock)
            times.append((time.perf_counter() - started) * 1000)
    return times, size


def memory_mb(base: str) -> float:
    pid = daemon_control.running_pid(lifecycle.load(base).paths_of(MASTER), DAEMON)
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) / 1024


def measure(base: str, sizes: list[int]) -> None:
    """Print the table."""
    os.environ["GANETI_HOSTNAME"] = MASTER
    cluster = lifecycle.load(base)
    paths = cluster.paths_of(MASTER)
    address = environment.resolve(MASTER, paths)[1]
    daemon_control.start_daemon(paths, DAEMON, hostname=MASTER)
    row("memory after the start (at most 60 MB)", f"{memory_mb(base):.0f} MB")
    clients = PROCESSES * CLIENTS_EACH
    for path in ("/version", "/2/info"):
        found = rate(keep_asking, address, path)
        row(f"{path}, {clients} kept connections (at least 1500/s)", f"{found:.0f}/s")
    found = rate(keep_connecting, address, "/version")
    row(f"/version, {PROCESSES} clients, full handshakes (at least 300/s)", f"{found:.0f}/s")
    config = json.loads(files.read_bytes(paths.config_data))
    for count in sizes:
        stop_masters(paths)
        fill(cluster, config, count)
        start_masters(paths)
        times, size = list_times_ms(address, "/2/instances?bulk=1")
        text = f"/2/instances?bulk=1, {count} instances, {size / 1e6:.1f} MB: median, first"
        row(text, f"{statistics.median(times):.0f}, {times[0]:.0f} ms")
    row("memory at the end (at most 60 MB)", f"{memory_mb(base):.0f} MB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--instances", type=int, nargs="+", default=[50, 1000, 5000])
    parser.add_argument("--base", help="use this virtual cluster, and spoil it")
    options = parser.parse_args()
    if options.base:
        measure(options.base, options.instances)
        return 0
    with virtual_cluster(3, "--hypervisor", "fake") as base:
        measure(base, options.instances)
    return 0


if __name__ == "__main__":
    sys.exit(main())
