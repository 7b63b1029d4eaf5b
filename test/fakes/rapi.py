"""The remote API of a virtual cluster, and a client that shows all of an answer."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fakes.virtual_cluster import TIMEOUT_S, TestCluster
from fakes.waiting import wait_until

from ganeti.base.paths import Paths
from ganeti.protocol.rapi import users as rapi_users
from ganeti.protocol.rapi.values import DEFAULT_PORT
from ganeti.system import daemon_control, environment, files

DAEMON = "ganeti-rapi"
SALT = b"0123456789abcdef"
USERS = "".join(
    f"{line}\n"
    for line in (
        "# users of the tests",
        "writer {CLEARTEXT}secret write,read",
        "reader secret read",
        "nobody secret",
        f"hashed {rapi_users.hash_password('secret', SALT)} write",
        "limited secret role:webs",
        "tokens {NONE} write",
    )
)


@dataclass(frozen=True)
class Answer:
    """One answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RapiClient:
    """Asks the remote API at one address, each time on a new connection or on a kept one."""

    def __init__(self, address: str, port: int = DEFAULT_PORT) -> None:
        self.address = address
        self.port = port
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.tls.check_hostname = False
        self.tls.verify_mode = ssl.CERT_NONE
        self._kept: http.client.HTTPSConnection | None = None

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            self.address, self.port, timeout=TIMEOUT_S, context=self.tls
        )

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: str | None = "writer",
        password: str = "secret",
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request; ``raw`` is a body that is no JSON."""
        sent = dict(headers or {})
        if user is not None:
            word = base64.b64encode(f"{user}:{password}".encode()).decode()
            sent.setdefault("Authorization", f"Basic {word}")
        data = raw
        if body is not None:
            data = json.dumps(body).encode()
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        for _ in range(2):  # a kept connection may have been closed
            connection, self._kept = self._kept or self.connect(), None
            try:
                connection.request(method, path, data, sent)
                response = connection.getresponse()
                answer = Answer(
                    response.status, {**response.headers}, response.read() if method else b""
                )
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                connection.close()
                continue
            if response.will_close:
                connection.close()
            else:
                self._kept = connection
            return answer
        raise AssertionError(f"{method} {path}: the server closes the connection")

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def wait_job(rapi: RapiClient, job_id: int) -> str:
    """Wait for a job by long poll; returns its status."""
    seen: list[str] | None = None
    while seen is None or seen[0] not in ("success", "error", "canceled"):
        body = {"fields": ["status"], "previous_job_info": seen}
        change = rapi.ask("GET", f"/2/jobs/{job_id}/wait", body).json
        if change is not None:
            seen = change["job_info"]
    return seen[0]


def create_instance(rapi: RapiClient, cluster: TestCluster, name: str, *tags: str) -> None:
    """Make a small instance that is not started."""
    body = {
        "__version__": 1,
        "name": name,
        "mode": "create",
        "disk_template": "diskless",
        "disks": [],
        "nics": [],
        "os": "test",
        "no_install": True,
        "pnode": cluster.master,
        "hypervisor": "fake",
        "ip_check": False,
        "name_check": False,
        "start": False,
        "tags": list(tags),
    }
    answer = rapi.ask("POST", "/2/instances", body)
    assert answer.status == 200, answer
    assert wait_job(rapi, answer.json) == "success", rapi.ask("GET", f"/2/jobs/{answer.json}").json


def write_users(paths: Paths, text: str = USERS) -> None:
    """Write the file of users in one step."""
    files.ensure_directory(paths.rapi_dir, 0o750)
    files.write_atomic(paths.rapi_users, text.encode())


@contextmanager
def rapi_of(cluster: TestCluster, *options: str) -> Iterator[RapiClient]:
    """Run the daemon on the master of a cluster."""
    paths = cluster.paths
    write_users(paths)
    daemon_control.start_daemon(paths, DAEMON, options, hostname=cluster.master)
    client = RapiClient(environment.resolve(cluster.master, paths)[1])
    try:
        # One that ran before has to see the new files first.
        wait_until(lambda: client.ask("GET", "/2/features").status != 401, "it knows its users")
        yield client
    finally:
        client.close()
        daemon_control.stop_daemon(paths, DAEMON)
        for name in (paths.rapi_users, paths.rapi_roles, paths.rapi_tokens):
            files.remove_if_exists(name)
