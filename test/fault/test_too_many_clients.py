"""Clients without any right, who open what they can and say nothing or never end: others are served.

Each attack is made over real sockets, on real daemons, from the address at which others are, too.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from fakes.luxid_node import CHECKOUT, delay, is_final, wait_status
from fakes.noded_node import PORT as NODED_PORT
from fakes.noded_node import NodedNode, short_directory
from fakes.rapi import RapiClient, rapi_of
from fakes.virtual_cluster import TestCluster

from ganeti.base.daemons import FACES
from ganeti.bootstrap.virtual import lifecycle
from ganeti.system import filelock

FILES_MAX = 320  # of each daemon of the cluster
MIB = 1 << 20
SHORT = "No more clients can be served"


@pytest.fixture(scope="module", autouse=True)
def _many_sockets() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    """One node, whose daemons may open few files."""
    directory = tempfile.mkdtemp(prefix="gnt-")
    base = os.path.join(directory, "vc")
    create = f"{sys.executable} {CHECKOUT}/tools/vcluster create {base} --nodes 1 --hypervisor fake"
    without = [name for name in FACES if name not in ("ganeti-rapi", "ganeti-mond")]
    if without:
        create += f" --without {','.join(without)}"
    try:
        made = subprocess.run(
            ["sh", "-c", f"ulimit -n {FILES_MAX} && exec {create}"],
            check=False,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        yield TestCluster(lifecycle.load(base))
    finally:
        with contextlib.suppress(Exception):
            lifecycle.destroy(lifecycle.load(base))
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def noded() -> Iterator[NodedNode]:
    with short_directory() as base, NodedNode(base) as node:
        yield node


def process_of(cluster: TestCluster, daemon: str) -> psutil.Process:
    pid = filelock.running_pid(cluster.paths.pid_file(daemon))
    assert pid is not None, f"{daemon} does not run"
    return psutil.Process(pid)


def own_memory(process: psutil.Process) -> int:
    """What is kept for this process alone."""
    return int(process.memory_full_info().uss)


@contextlib.contextmanager
def survived_by(cluster: TestCluster, daemon: str) -> Iterator[psutil.Process]:
    """The daemon goes on, says once what is the matter, and does its work afterwards."""
    process = process_of(cluster, daemon)
    yield process
    assert process_of(cluster, daemon).pid == process.pid
    log = Path(cluster.paths.log_file(daemon)).read_text()
    assert log.count(SHORT) == 1, log
    assert "Traceback" not in log
    with cluster.client() as client:
        job_id = client.submit_job([delay()])
        assert wait_status(client, job_id, is_final) == "success"


@contextlib.contextmanager
def opened(connect: Callable[[], socket.socket], count: int) -> Iterator[None]:
    with contextlib.ExitStack() as sockets:
        for _ in range(count):
            sockets.enter_context(connect())
        yield


def tcp(address: str, port: int) -> Callable[[], socket.socket]:
    return lambda: socket.create_connection((address, port), timeout=60)


def saying(connect: Callable[[], socket.socket], data: bytes) -> Callable[[], socket.socket]:
    def made() -> socket.socket:
        sock = connect()
        sock.sendall(data)
        return sock

    return made


def client_hello() -> bytes:
    """The first message of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def test_silent_connections_cost_the_node_daemon_little(noded: NodedNode) -> None:
    process = psutil.Process(noded.pid)
    assert noded.payload("version")
    before = own_memory(process)
    with opened(tcp(noded.address, NODED_PORT), 2500):
        assert noded.payload("version")
        assert own_memory(process) - before < 24 * MIB
    assert noded.payload("version")
    assert "Traceback" not in noded.log()


def test_handshakes_that_stop_in_the_middle_keep_nobody_out(noded: NodedNode) -> None:
    process = psutil.Process(noded.pid)
    before = own_memory(process)
    connect = saying(tcp(noded.address, NODED_PORT), client_hello())
    with opened(connect, 1000):
        assert noded.payload("version")
        assert own_memory(process) - before < 64 * MIB
    assert "Traceback" not in noded.log()


@pytest.fixture(scope="module")
def rapi(cluster: TestCluster) -> Iterator[RapiClient]:
    with rapi_of(cluster) as client:
        yield client


def tls(rapi: RapiClient) -> Callable[[], socket.socket]:
    return lambda: rapi.tls.wrap_socket(
        socket.create_connection((rapi.address, rapi.port), timeout=60)
    )


def test_trailers_without_end_are_refused(cluster: TestCluster, rapi: RapiClient) -> None:
    process = process_of(cluster, "ganeti-rapi")
    assert rapi.ask("GET", "/2/info").status == 200
    before = own_memory(process)
    head = b"PUT /2/modify HTTP/1.1\r\nHost: x\r\nAuthorization: Basic d3JpdGVyOng=\r\n"
    head += b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    connect = saying(tls(rapi), head + b"2\r\n{}\r\n0\r\n")
    for trailers in (b"X: " + b"y" * 1000 + b"\r\n", b"z" * 1000):
        with connect() as sock:
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                for _ in range(50_000):
                    sock.sendall(trailers)
            assert sock.recv(100).startswith(b"HTTP/1.1 431 ")
            assert own_memory(process) - before < 16 * MIB
    assert rapi.ask("GET", "/2/info").status == 200


def test_heads_that_come_slowly_keep_nobody_out(cluster: TestCluster, rapi: RapiClient) -> None:
    """They are more than there are descriptors for."""
    rapi.close()
    slow = saying(tls(rapi), b"GET /2/info HTTP/1.1\r\nX-Slow: ")
    with survived_by(cluster, "ganeti-rapi") as process:
        before = own_memory(process)
        with opened(slow, FILES_MAX):
            assert rapi.ask("GET", "/2/info").status == 200
            assert own_memory(process) - before < 64 * MIB


def test_silent_clients_keep_nobody_out_of_mond(cluster: TestCluster) -> None:
    address = cluster.layout.address_of(cluster.master)
    with survived_by(cluster, "ganeti-mond"), opened(tcp(address, 1815), FILES_MAX + 100):
        connection = http.client.HTTPConnection(address, 1815, timeout=60)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()


def unix(path: str) -> Callable[[], socket.socket]:
    def made() -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(60)
        sock.connect(path)
        return sock

    return made


def test_luxid_goes_on_when_it_can_open_nothing_more(cluster: TestCluster) -> None:
    with survived_by(cluster, "ganeti-luxid"), cluster.client() as client:
        assert client.query("node", ["name"]).rows()
        with opened(unix(cluster.paths.query_socket), FILES_MAX + 100):
            job_id = client.submit_job([delay()])
            assert wait_status(client, job_id, is_final) == "success"


def test_wconfd_goes_on_when_it_can_open_nothing_more(cluster: TestCluster) -> None:
    with survived_by(cluster, "ganeti-wconfd"), cluster.client() as client:
        with opened(unix(cluster.paths.wconfd_socket), FILES_MAX + 100):
            job_id = client.submit_job([delay(), delay()])  # waits for its turn, if need be
        assert wait_status(client, job_id, is_final) == "success"


def test_the_node_daemon_goes_on_when_it_can_open_nothing_more(cluster: TestCluster) -> None:
    address = cluster.layout.address_of(cluster.master)
    with survived_by(cluster, "ganeti-noded"), opened(tcp(address, NODED_PORT), FILES_MAX + 100):
        cluster.gnt("cluster command true")
        cluster.gnt("node list -o name,mfree")
