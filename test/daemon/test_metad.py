"""The metadata daemon over its real sockets: guests at loopback addresses, NodeD at the other."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import signal
import socket
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.noded_node import free_address
from fakes.shell_scripts import write_script

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.metad.main import VIRTUAL_PORT
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.instances import communication
from ganeti.node_ops.machine.node import Node
from ganeti.protocol.node_rpc_values import GuestMetadata, GuestNic, Visibility
from ganeti.system import clock, daemon_control, process
from ganeti.transport.unix_client import UnixClient

DEADLINE_S = 60.0
NAME = "node1.example.com"
PUBLIC, PRIVATE, SECRET = Visibility
SLOW_CLIENTS = 100
MEMORY_BYTES_MAX = 80 << 20


class MetadNode:
    """A node with a metadata daemon, and an operating system."""

    def __init__(self, base: Path) -> None:
        self.paths = Paths(str(base / NAME))
        self.address = free_address()
        for path in (self.paths.data_dir, self.paths.lock_dir, self.paths.conf_dir):
            os.makedirs(path, 0o755)
        Path(self.paths.etc_hosts).write_text(f"{self.address} {NAME}\n")
        self.os_directory = Path(self.paths.os_search_path[0]) / "isolated"
        write_script(self.os_directory / "create_untrusted", "echo installing")
        write_script(self.os_directory / "rename", "true")
        (self.os_directory / "ganeti_api_version").write_text("15\n")
        (self.os_directory / "variants.list").write_text("small\n")
        (self.os_directory / "common.sh").write_text("# shared\n")
        (self.os_directory / "nowhere").symlink_to("/nonexistent")

    def bring(self, guest: GuestMetadata) -> None:
        """Bring metadata as the master has it brought."""
        handler = communication.Communication(NodeContext(self.paths, NAME))
        handler.instance_metadata_modify(guest)

    def get(self, source: str, path: str, method: str = "GET") -> tuple[int, bytes]:
        """Ask from an address."""
        connection = http.client.HTTPConnection(
            self.address, VIRTUAL_PORT, timeout=DEADLINE_S, source_address=(source, 0)
        )
        with contextlib.closing(connection):
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read()

    def text(self, source: str, path: str) -> str:
        """Return the text of a page that must be there."""
        status, body = self.get(source, path)
        assert status == 200, (status, body)
        return body.decode()

    def json(self, source: str, path: str) -> Any:
        """Return the value of a page that must be there."""
        return json.loads(self.text(source, path))

    def control(self, method: str, *args: object) -> object:
        """Ask by the other socket."""
        with UnixClient(self.paths.metad_socket, timeout_s=DEADLINE_S) as client:
            return client.call(method, args)

    @contextlib.contextmanager
    def raw(self, source: str) -> Iterator[socket.socket]:
        """Open a connection."""
        place = (self.address, VIRTUAL_PORT)
        with socket.create_connection(place, DEADLINE_S, (source, 0)) as sock:
            yield sock

    def answer_to(self, source: str, data: bytes) -> bytes:
        """Send bytes and return all that comes back until the daemon closes."""
        received = b""
        with self.raw(source) as sock, contextlib.suppress(ConnectionError):
            sock.sendall(data)
            while chunk := sock.recv(65536):
                received += chunk
        return received

    @property
    def pid(self) -> int:
        """Number of the daemon."""
        pid = daemon_control.running_pid(self.paths, "ganeti-metad")
        assert pid is not None, Path(self.paths.log_file("ganeti-metad")).read_text()
        return pid

    def log(self) -> str:
        return Path(self.paths.log_file("ganeti-metad")).read_text()

    def stop(self) -> None:
        """Stop it."""
        daemon_control.stop_daemon(self.paths, "ganeti-metad", timeout_s=DEADLINE_S)


def guest(name: str, address: str, **parameters: tuple[str, Visibility]) -> GuestMetadata:
    """Return metadata as the master makes them."""
    return GuestMetadata(
        name=name,
        uuid=f"uuid-of-{name}",
        address=address,
        os="isolated+small",
        hypervisor="kvm",
        memory=512,
        vcpus=2,
        tags=("a", "b"),
        nics=(
            GuestNic(mac="aa:00:00:00:00:01", ip="192.0.2.5", network="192.0.2.0/24"),
            GuestNic(mac="52:54:00:00:00:01", ip=address, name=f"ganeti:communication:{name}"),
        ),
        disks=(1024, 64),
        parameters=parameters,
    )


@pytest.fixture(scope="module")
def node() -> Iterator[MetadNode]:
    with tempfile.TemporaryDirectory(prefix="gnt") as directory:
        made = MetadNode(Path(directory))
        try:
            yield made
        finally:
            made.stop()


WEB = free_address()
DB = free_address()
STRANGER = free_address()
KEYS = "ssh-ed25519 AAAA one\n\nssh-rsa BBBB two\n"


@pytest.fixture
def guests(node: MetadNode) -> MetadNode:
    """Two guests; the one has parameters of all kinds."""
    parameters = {
        "ssh_key": (KEYS, PUBLIC),
        "user_data": ("#cloud-config\n{}\n", PUBLIC),
        "password": ("it's private", PRIVATE),
        "token": ("once", SECRET),
    }
    node.bring(guest("web", WEB, **parameters))
    node.bring(guest("db", DB, user_data=("/etc/shadow", PUBLIC)))
    return node


def test_each_guest_is_told_about_itself_alone(guests: MetadNode) -> None:
    found = guests.json(WEB, "/ganeti/latest/meta_data.json")
    assert found["name"] == found["hostname"] == "web"
    assert (found["memory"], found["disks"], found["tags"]) == (512, [1024, 64], ["a", "b"])
    assert "parameters" not in found
    assert guests.json(DB, "/ganeti/latest/meta_data.json")["name"] == "db"
    assert guests.json(WEB, "/ganeti/latest/os/parameters.json") == {
        "ssh_key": [KEYS, "public"],
        "user_data": ["#cloud-config\n{}\n", "public"],
        "password": ["it's private", "private"],
        "token": ["once", "secret"],
    }
    assert "password" not in guests.text(DB, "/ganeti/latest/os/parameters.json")


def test_nobody_else_is_told_anything(guests: MetadNode) -> None:
    for source in (STRANGER, "127.0.0.1", guests.address):
        for path in ("/", "/ganeti/latest/meta_data.json", "/latest/meta-data/"):
            assert guests.get(source, path)[0] == 404
        assert guests.get(source, "/", "POST")[0] == 404


def test_wrong_methods_and_addresses(guests: MetadNode) -> None:
    for method in ("POST", "PUT", "DELETE", "HEAD"):
        assert guests.get(WEB, "/ganeti/latest/meta_data.json", method)[0] == 405
    refused = guests.answer_to(WEB, b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
    assert b"\r\nAllow: GET\r\n" in refused
    for path in (
        "/ganeti/latest/os/scripts/../../../../etc/passwd",
        "/ganeti/latest/os/scripts/verify",
        "/ganeti/latest/os/scripts/common.sh",
        "/ganeti/latest/meta_data.json/more",
        "/nothing",
        "*",
    ):
        assert guests.get(WEB, path)[0] == 404, path
    assert guests.get(DB, "/latest/user-data")[0] == 404, "that is a file of the node"


def test_a_guest_does_not_fill_the_log(guests: MetadNode) -> None:
    line = "Cannot give the OS of db to it"
    before = guests.log().count(line)
    for _ in range(30):
        assert guests.get(DB, "/ganeti/latest/os/scripts/verify")[0] == 404
    assert guests.log().count(line) - before in (1, 2)  # one in a minute


def test_addresses_of_ec2(guests: MetadNode) -> None:
    assert guests.text(WEB, "/").splitlines() == ["2009-04-04/", "ganeti/", "latest/"]
    for version in ("latest", "2009-04-04"):
        names = guests.text(WEB, f"/{version}/meta-data/").splitlines()
        assert {"instance-id", "local-hostname", "network/", "public-keys/"} <= set(names)
        assert guests.text(WEB, f"/{version}/meta-data/instance-id") == "uuid-of-web"
        assert guests.text(WEB, f"/{version}/user-data").startswith("#cloud-config")
    assert guests.text(WEB, "/latest/meta-data/local-ipv4") == "192.0.2.5"
    key = guests.text(WEB, "/latest/meta-data/public-keys/1/openssh-key?x=y")
    assert key == "ssh-rsa BBBB two"
    macs = "/latest/meta-data/network/interfaces/macs"
    place = f"{macs}/aa:00:00:00:00:01/subnet-ipv4-cidr-block"
    assert guests.text(WEB, place) == "192.0.2.0/24"


def test_the_package_installs_elsewhere(guests: MetadNode, tmp_path: Path) -> None:
    _status, body = guests.get(WEB, "/ganeti/latest/os/os-install-package")
    assert guests.get(WEB, "/ganeti/latest/os/package") == (200, body)
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        archive.extractall(tmp_path, filter="data")
    said = process.run([str(tmp_path / "run")], timeout_s=DEADLINE_S)
    assert (said.status, said.stdout) == (0, b"installing\n"), said
    shown = f". {tmp_path}/environment; echo $OSP_PASSWORD:$OS_VARIANT:$INSTANCE_NAME"
    assert process.run(["sh", "-c", shown], timeout_s=DEADLINE_S).stdout == (
        b"it's private:small:web\n"
    )
    script = guests.text(WEB, "/ganeti/latest/os/scripts/create")
    assert script == (guests.os_directory / "create_untrusted").read_text()


def test_a_killed_daemon_has_its_data_again_without_secrets(guests: MetadNode) -> None:
    pid = guests.pid
    os.kill(pid, signal.SIGKILL)
    deadline = clock.monotonic() + DEADLINE_S
    while daemon_control.running_pid(guests.paths, "ganeti-metad") and clock.monotonic() < deadline:
        pass
    Path(guests.paths.metadata_dir, "broken.json").write_text('{"name": 1}')
    daemon_control.start_daemon(guests.paths, "ganeti-metad", hostname=NAME)
    assert guests.pid != pid
    found = guests.json(WEB, "/ganeti/latest/os/parameters.json")
    assert found["password"] == ["it's private", "private"]
    assert "token" not in found
    assert "broken.json: metadata of an instance cannot be used" in guests.log()
    for path in Path(guests.paths.metadata_dir).iterdir():
        assert "once" not in path.read_text()
        assert path.name == "broken.json" or path.stat().st_mode & 0o777 == 0o600


def test_an_address_that_goes_to_another_guest(guests: MetadNode) -> None:
    guests.bring(guest("new", DB))
    assert guests.json(DB, "/ganeti/latest/meta_data.json")["name"] == "new"
    assert guests.control("listInstances") == {"new": DB, "web": WEB}
    guests.bring(guest("new", STRANGER))
    assert guests.get(DB, "/")[0] == 404, "it has another address now"
    assert guests.get(STRANGER, "/")[0] == 200
    communication.forget(guests.paths, "new")
    assert guests.get(STRANGER, "/")[0] == 404
    assert not Path(guests.paths.metadata_dir, "new.json").exists()


def test_the_other_socket(guests: MetadNode) -> None:
    assert guests.control("echo", "hello") == "hello"
    for method, args in (
        ("updateConfig", [{"name": "web"}]),
        ("updateConfig", [guest("../web", WEB).to_wire()]),
        ("forgetInstance", ["../../etc/passwd"]),
        ("updateConfig", ["text"]),
        ("noSuchThing", []),
    ):
        with pytest.raises(GenericError):
            guests.control(method, *args)
    assert guests.text(WEB, "/")
    assert os.stat(guests.paths.metad_socket).st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000, 431),
        (b"GET /" + b"x" * 100_000, 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10, 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"nonsense\r\n\r\n", 400),
    ],
)
def test_requests_that_break_the_rules(guests: MetadNode, data: bytes, status: int) -> None:
    answer = guests.answer_to(WEB, data)
    assert answer.split(b"\r\n")[0].split()[1] == str(status).encode(), answer[:200]
    assert guests.text(WEB, "/")


def test_slow_clients_keep_nobody_waiting(guests: MetadNode) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(SLOW_CLIENTS):
            sock = stack.enter_context(guests.raw(DB))
            sock.sendall(b"GET /latest/meta-data/ HTTP/1.1\r\nHost: x\r\nX: y"[: 1 + number % 40])
        for _ in range(20):
            assert guests.text(WEB, "/latest/meta-data/")
            assert guests.get(WEB, "/ganeti/latest/os/package")[0] == 200
    with open(f"/proc/{guests.pid}/statm", encoding="ascii") as file:
        resident_bytes = int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    assert resident_bytes < MEMORY_BYTES_MAX


def test_it_is_wanted_until_the_master_says_otherwise(guests: MetadNode) -> None:
    def wanted() -> bool:
        return "ganeti-metad" in {daemon.name for daemon in daemon_control.wanted(guests.paths)}

    assert wanted()
    handler = Node(NodeContext(guests.paths, NAME))
    assert handler.node_ensure_daemon("ganeti-metad", run=False)
    assert not wanted()
    assert daemon_control.running_pid(guests.paths, "ganeti-metad") is None
    communication.forget(guests.paths, "web")  # nobody is there, which is no failure
    assert handler.node_ensure_daemon("ganeti-metad", run=True)
    assert wanted()
    assert guests.json(WEB, "/ganeti/latest/meta_data.json")["name"] == "web"
