"""A node of its own below a temporary directory, with a real node daemon on a loopback address."""

import contextlib
import http.client
import itertools
import json
import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from ganeti.base.paths import Paths
from ganeti.noded.child import CALL_NAME
from ganeti.system import certificates, clock, filelock, process
from ganeti.system.environment import node_environment

START_TIMEOUT_S = 60.0
PORT = 1811
_RUN = "import sys; from ganeti.daemon.main import run_daemon; from ganeti.noded.main import SPEC; sys.exit(run_daemon(SPEC))"
_numbers = itertools.count(1)


def free_address() -> str:
    """Return a loopback address that only this test process uses."""
    pid = os.getpid()
    return f"127.{100 + (pid >> 8) % 100}.{pid % 256}.{next(_numbers)}"


@contextlib.contextmanager
def short_directory() -> Iterator[Path]:
    """Make a directory whose path is short enough for sockets below it."""
    with tempfile.TemporaryDirectory(prefix="gnt") as path:
        yield Path(path)


def children_at_work(helper: psutil.Process) -> list[psutil.Process]:
    """Return the children of a node daemon's helper that have a call, without the spare one."""
    found = []
    for child in helper.children():
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie is none either
            if child.name() == CALL_NAME and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found


class NodedNode:
    """Starts a node daemon when entered, and stops it."""

    def __init__(self, base: Path, name: str = "node1.example.com", options: tuple[str, ...] = ()):
        self.name = name
        self.address = free_address()
        self.paths = Paths(str(base / name))
        self.options = options
        self.pid = 0
        for directory in (self.paths.data_dir, self.paths.lock_dir, self.paths.conf_dir):
            os.makedirs(directory)
        Path(self.paths.etc_hosts).write_text(f"{self.address} {name}\n")
        self.make_certificates()

    def make_certificates(self) -> None:
        now = clock.now()
        server = certificates.make_self_signed(now=now)
        Path(self.paths.server_pem).write_bytes(server)
        self.issue(self.paths.client_pem, self.name, 2)
        self.trust(self.paths.client_pem)

    def issue(self, path: str, common_name: str, serial: int, **options: Any) -> str:
        """Have the cluster's certificate issue one; returns where it is."""
        server = Path(self.paths.server_pem).read_bytes()
        options.setdefault("now", clock.now())
        Path(path).write_bytes(certificates.issue(common_name, server, serial=serial, **options))
        return path

    def trust(self, *pem_paths: str) -> None:
        """Let these certificates be those of the master candidates."""
        digests = [certificates.facts(Path(path).read_bytes(), path).digest for path in pem_paths]
        lines = "".join(f"uuid{number}={digest}\n" for number, digest in enumerate(digests))
        path = Path(self.paths.ssconf_file("master_candidates_certs"))
        path.unlink(missing_ok=True)
        path.write_text(lines)

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, **node_environment(self.paths, self.name)}

    def start(self) -> None:
        argv = [sys.executable, "-c", _RUN, *self.options]
        result = process.run(argv, timeout_s=START_TIMEOUT_S, env=self.env)
        assert result.status == 0, result.output
        pid = filelock.running_pid(self.paths.pid_file("ganeti-noded"))
        assert pid is not None
        self.pid = pid

    def stop(self) -> None:
        if self.pid:
            assert process.terminate(self.pid, START_TIMEOUT_S)
            self.pid = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def log(self) -> str:
        return Path(self.paths.log_file("ganeti-noded")).read_text()

    def connect(self, client_pem: str | None = "own") -> http.client.HTTPSConnection:
        """Open a connection; "own" shows this node's client certificate, None shows none."""
        context = ssl.create_default_context(cafile=self.paths.server_pem)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if client_pem is not None:
            context.load_cert_chain(self.paths.client_pem if client_pem == "own" else client_pem)
        return http.client.HTTPSConnection(
            self.address, PORT, context=context, timeout=START_TIMEOUT_S
        )

    def call(
        self, name: str, *args: object, connection: http.client.HTTPSConnection | None = None
    ) -> Any:
        """Make one call and return the whole answer, [success, payload]."""
        used = connection or self.connect()
        used.request("POST", f"/{name}", json.dumps(args))
        response = used.getresponse()
        body = response.read()
        if connection is None:
            used.close()
        assert response.status == 200, (response.status, body)
        assert body.endswith(b"\n")
        return json.loads(body)

    def payload(self, name: str, *args: object) -> Any:
        """Make one call that must succeed and return its payload."""
        success, payload = self.call(name, *args)
        assert success, payload
        return payload

    def failure(self, name: str, *args: object) -> str:
        """Make one call that must fail and return the text."""
        success, text = self.call(name, *args)
        assert not success, text
        return str(text)


def refused_by_handshake(node: NodedNode, client_pem: str | None) -> bool:
    """Tell whether a client with this certificate gets no answer at all."""
    connection = node.connect(client_pem)
    try:
        connection.request("POST", "/version", "[]")
        connection.getresponse()
    except (ssl.SSLError, ConnectionError, http.client.HTTPException, TimeoutError):
        return True
    finally:
        connection.close()
    return False
