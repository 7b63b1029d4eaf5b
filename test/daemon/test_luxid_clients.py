"""Many clients that connect and hang, in every way a client can hang: others are served as before.

The number of clients is 1,000; GANETI_TEST_CLIENTS asks for another, such as 5000.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from fakes.luxid_node import LuxidNode, delay, is_final, messages, wait_status
from fakes.waiting import wait_until

from ganeti.clients.luxi import LuxiClient

CLIENTS = int(os.environ.get("GANETI_TEST_CLIENTS", "1000"))
ETX = b"\x03"
ANSWER_S_MAX = 60.0
CONNECT_S_MAX = 60.0
MEMORY_KIB_MAX = 60  # per client; a client that hangs is a few buffers
DESCRIPTORS_SPARE = 200
DESCRIPTORS_OTHER = 50  # of job processes that come and go; a leak is as many as there are clients


@pytest.fixture(scope="module", autouse=True)
def _enough_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CLIENTS + DESCRIPTORS_SPARE
    if soft < needed:
        if hard < needed:
            pytest.skip(f"{CLIENTS} clients need {needed} descriptors, {hard} are allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


@pytest.fixture(scope="module")
def node() -> Iterator[LuxidNode]:
    with LuxidNode() as started:
        started.start()
        yield started
        assert started.stop() == 0, started.log()


@pytest.fixture
def client(node: LuxidNode) -> Iterator[LuxiClient]:
    with node.client() as connected:
        yield connected


def request(method: str, *args: object) -> bytes:
    return json.dumps({"method": method, "args": args}).encode() + ETX


def connected(node: LuxidNode) -> socket.socket:
    """Return a new connection; waits while the kernel's queue is full."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(node.paths.query_socket)
    sock.settimeout(CONNECT_S_MAX)
    return sock


def silent(sock: socket.socket, job_id: int) -> None:
    """Say nothing at all."""


def half_a_request(sock: socket.socket, job_id: int) -> None:
    sock.sendall(b'{"method": "Query')


def waiting(sock: socket.socket, job_id: int) -> None:
    """Wait for a job that does not end."""
    sock.sendall(request("WaitForJobChange", job_id, ["status"], ["running"], 1 << 30, 60))


def not_reading(sock: socket.socket, job_id: int) -> None:
    """Ask again and again for much, and read nothing."""
    sock.sendall(request("QueryFields", "instance", None) * 20)


def half_closed(sock: socket.socket, job_id: int) -> None:
    """Ask, send no more, and stay."""
    sock.sendall(request("QueryClusterInfo"))
    sock.shutdown(socket.SHUT_WR)


def memory_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize("hang", [silent, half_a_request, waiting, half_closed])
def test_clients_that_hang_delay_nobody(
    node: LuxidNode, client: LuxiClient, hang: Callable[[socket.socket, int], None]
) -> None:
    assert node.process is not None
    pid = node.process.pid
    endless = client.submit_job([delay(300)])
    wait_status(client, endless, "running")
    before = memory_kib(pid), descriptors(pid)
    started = time.monotonic()
    with ExitStack() as hanging:
        for _ in range(CLIENTS):
            sock = hanging.enter_context(connected(node))
            hang(sock, endless)
        assert time.monotonic() - started < CONNECT_S_MAX
        client.query_config_values(["cluster_name"])  # until those before it are taken
        started = time.monotonic()
        client.query_cluster_info()
        assert time.monotonic() - started < ANSWER_S_MAX
        job_id = client.submit_job([messages("x")])
        assert wait_status(client, job_id, is_final) == "success"
        assert memory_kib(pid) - before[0] < CLIENTS * MEMORY_KIB_MAX + 10_000
    allowed = before[1] + DESCRIPTORS_OTHER
    wait_until(lambda: descriptors(pid) <= allowed, "descriptors of clients to be closed")
    assert client.cancel_job(endless, kill=True)[0]


def test_clients_that_do_not_read_cost_what_was_asked_once(
    node: LuxidNode, client: LuxiClient
) -> None:
    """Each has asked for megabytes; only what the kernel and one answer hold is made."""
    assert node.process is not None
    pid = node.process.pid
    clients = min(CLIENTS, 500)
    before = memory_kib(pid)
    with ExitStack() as hanging:
        for _ in range(clients):
            sock = hanging.enter_context(connected(node))
            not_reading(sock, 0)
        started = time.monotonic()
        client.query_cluster_info()
        assert time.monotonic() - started < CONNECT_S_MAX
        started = time.monotonic()
        client.query_cluster_info()
        assert time.monotonic() - started < ANSWER_S_MAX
        assert memory_kib(pid) - before < clients * 256


def test_a_burst_of_short_clients(node: LuxidNode, client: LuxiClient) -> None:
    assert node.process is not None
    before = descriptors(node.process.pid)
    for _ in range(CLIENTS):
        connected(node).close()
    with node.client() as another:
        another.query_cluster_info()
    allowed = before + DESCRIPTORS_OTHER
    wait_until(lambda: descriptors(node.process.pid) <= allowed, "descriptors to be closed")
