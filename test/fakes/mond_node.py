"""A node of its own with real daemons: MonD, and RConfD for what MonD asks."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fakes.confd_config import DB, confd_config, encoded
from fakes.noded_node import free_address

from ganeti.base.paths import Paths
from ganeti.store import ssconf
from ganeti.system import daemon_control, files, process

DEADLINE_S = 60.0
PORT = 1815
KEY = b"0123456789abcdef0123456789abcdef01234567\n"
NAME = "node2.example.com"  # a master candidate in that configuration, and primary node of "db"


class MondNode:
    """Starts both daemons when entered; ``with_confd`` false leaves RConfD out.

    ``instances`` are instead of the one that it has by default.
    """

    def __init__(
        self, *, with_confd: bool = True, instances: Mapping[str, Any] | None = None, **cluster: Any
    ) -> None:
        self._base = tempfile.mkdtemp(prefix="gnt")
        self._with_confd = with_confd
        self.paths = Paths(f"{self._base}/{NAME}")
        self.address = free_address()
        for path in (self.paths.data_dir, self.paths.lock_dir, self.paths.diagnose_commands_dir):
            os.makedirs(path, 0o755)
        Path(self.paths.etc_hosts).write_text(f"{self.address} {NAME}\n")
        files.write_atomic(self.paths.hmac_key, KEY)
        self.config = confd_config()
        self.config["cluster"].update(cluster)
        self.config["instances"][DB]["hypervisor"] = "kvm"
        if instances is not None:
            self.config["instances"] = dict(instances)
        self.write_config()
        hypervisors = "\n".join(self.config["cluster"]["enabled_hypervisors"])
        values = {
            "cluster_name": "cluster.example.com",
            "hypervisor_list": hypervisors,
            "instance_list": "db.example.com\nweb.example.com",
            "master_candidates": NAME,
            "master_candidates_ips": self.address,
            "master_node": "node1.example.com",
            "offline_nodes": "",
        }
        ssconf.write_values(self.paths, values)

    def write_config(self) -> None:
        """Replace the configuration by what `config` is now."""
        files.write_atomic(self.paths.config_data, encoded(self.config))

    def start(self, *daemons: str) -> None:
        """Start daemons; returns when they answer."""
        for name in daemons:
            daemon_control.start_daemon(self.paths, name, hostname=NAME)

    def stop(self, *daemons: str) -> None:
        """Stop daemons that run."""
        for name in daemons:
            daemon_control.stop_daemon(self.paths, name, timeout_s=DEADLINE_S)

    def __enter__(self) -> Self:
        self.start(*["ganeti-confd"] * self._with_confd, "ganeti-mond")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop("ganeti-mond", "ganeti-confd")
        process.run(["rm", "-rf", self._base], timeout_s=DEADLINE_S)

    @property
    def pid(self) -> int:
        """Number of the monitoring daemon."""
        pid = daemon_control.running_pid(self.paths, "ganeti-mond")
        assert pid is not None, self.log()
        return pid

    def log(self) -> str:
        return Path(self.paths.log_file("ganeti-mond")).read_text()

    def get(self, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
        """Make one request; returns status and body."""
        connection = http.client.HTTPConnection(self.address, PORT, timeout=DEADLINE_S)
        with contextlib.closing(connection):
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.read()

    def json(self, path: str) -> Any:
        """Return the answer to a request that must succeed."""
        status, body = self.get(path)
        assert status == 200, (status, body)
        return json.loads(body)

    @contextlib.contextmanager
    def raw(self) -> Iterator[socket.socket]:
        """Open a connection."""
        with socket.create_connection((self.address, PORT), timeout=DEADLINE_S) as sock:
            yield sock

    def answer_to(self, data: bytes) -> bytes:
        """Send bytes and return all that comes back until the daemon closes."""
        with self.raw() as sock:
            with contextlib.suppress(ConnectionError):
                sock.sendall(data)
            received = b""
            with contextlib.suppress(ConnectionError):
                while chunk := sock.recv(65536):
                    received += chunk
            return received
