"""Disks on their way between two nodes: real processes, real TLS."""

from __future__ import annotations

import contextlib
import gzip
import os
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fakes.tls_node import TlsNode
from fakes.waiting import wait_until
from guests.instances import make_instance
from msgspec.structs import replace

from ganeti.base.errors import BlockDeviceError, GenericError, NotSupportedError
from ganeti.base.json import dumps
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.disks.exports import Exports
from ganeti.node_ops.machine.keys import Keys
from ganeti.node_ops.transfers import accepting, calls, main
from ganeti.node_ops.transfers.ends import End
from ganeti.node_ops.transfers.status import Request, TransferFiles, files_of
from ganeti.protocol.node_rpc_values import StreamForm, TransferOptions
from ganeti.transport.tls import client_context

WIRE_PATH = "/srv/ganeti/file-storage/inst1/disk0"
WAIT_S = 60.0
MIB = 1 << 20
TCP_ESTABLISHED = 1  # of the kernel's TCP_INFO


class Node:
    """One node with one disk, and the transfers that were begun on it."""

    def __init__(self, base: Path, name: str, server_pem: bytes | None = None) -> None:
        self.tls = TlsNode(base, name, server_pem)
        self.context = NodeContext(self.tls.paths, name)
        self.disk = Path(self.tls.paths.localize(WIRE_PATH))
        self.disk.parent.mkdir(parents=True)
        self.transfers: list[str] = []
        hosts = Path(self.tls.paths.etc_hosts)
        hosts.parent.mkdir(exist_ok=True)
        hosts.write_text(f"127.0.0.1 {name}\n")

    def make_disk(self, size: int, data: bytes = b"", offset: int = 0) -> None:
        with self.disk.open("wb") as file:
            file.seek(offset)
            file.write(data)
            file.truncate(size)

    def receive(self, **options: Any) -> int:
        """Begin to receive; returns the port."""
        place = ("raw", [WIRE_DISK])
        name = calls.Transfers(self.context).import_start(
            TransferOptions(**{"form": StreamForm.FRAMES, **options}), INSTANCE, "disk0", place
        )
        self.transfers.append(name)
        return int(self.state()["listen_port"])

    def send(self, port: int, **options: Any) -> None:
        place = ("raw", [WIRE_DISK])
        name = calls.Transfers(self.context).export_start(
            TransferOptions(**{"form": StreamForm.FRAMES, **options}),
            "127.0.0.1",
            port,
            INSTANCE,
            "disk0",
            place,
        )
        self.transfers.append(name)

    def state(self) -> Mapping[str, Any]:
        [found] = calls.Transfers(self.context).impexp_status(self.transfers[-1:])
        assert isinstance(found, dict)
        return found

    def end(self) -> Mapping[str, Any]:
        """Wait for the end of the last transfer."""
        wait_until(
            lambda: self.state()["exit_status"] is not None, "the transfer ends", timeout_s=WAIT_S
        )
        return self.state()

    def forget(self) -> None:
        for name in self.transfers:
            calls.Transfers(self.context).impexp_cleanup(name)
        assert not os.path.exists(self.tls.paths.import_export_dir) or not os.listdir(
            self.tls.paths.import_export_dir
        )


WIRE_DISK = {
    "logical_id": ["loop", WIRE_PATH],
    "dev_type": "file",
    "size": 4,
    "uuid": "d1",
    "serial_no": 1,
    "iv_name": "disk/0",
}
INSTANCE = make_instance()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    """Two nodes of one cluster; what is begun on them is ended."""
    first = Node(tmp_path, "node1")
    second = Node(tmp_path, "node2", first.tls.server_pem)
    yield first, second
    first.forget()
    second.forget()


@pytest.mark.parametrize("form", StreamForm)
@pytest.mark.parametrize("compress", ["none", "gzip", "gzip-fast", "gzip-slow"])
def test_what_is_sent_arrives(nodes: tuple[Node, Node], compress: str, form: StreamForm) -> None:
    source, target = nodes
    source.make_disk(4 * MIB, os.urandom(MIB), offset=2 * MIB)
    target.make_disk(4 * MIB, b"old" * 1000)
    port = target.receive(magic="the-word", compress=compress, form=form)
    source.send(port, magic="the-word", compress=compress, form=form)
    assert (source.end()["error_message"], target.end()["error_message"]) == (None, None)
    assert source.state()["progress_percent"] == 100.0
    assert target.disk.read_bytes() == source.disk.read_bytes()


def test_an_empty_disk_arrives_each_time(nodes: tuple[Node, Node]) -> None:
    source, target = nodes
    source.make_disk(4 * MIB)
    target.make_disk(4 * MIB)
    for _ in range(5):
        source.send(target.receive())
        assert (source.end()["error_message"], target.end()["error_message"]) == (None, None)


@pytest.mark.parametrize("form", StreamForm)
def test_who_does_not_know_the_word_is_refused(nodes: tuple[Node, Node], form: StreamForm) -> None:
    source, target = nodes
    source.make_disk(4 * MIB, b"new")
    target.make_disk(4 * MIB, b"old")
    port = target.receive(magic="the-word", form=form, connect_timeout=5)
    source.send(port, magic="another", form=form)
    assert source.end()["exit_status"] == 1
    why = "127.0.0.1 tried, and was refused: the peer said another word than was agreed"
    assert target.end()["error_message"] == f"nobody connected in time; {why}"
    assert target.disk.read_bytes().startswith(b"old")


def test_a_node_of_another_cluster_is_refused(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    _, target = nodes
    stranger = Node(tmp_path, "node3")
    stranger.make_disk(4 * MIB, b"new")
    target.make_disk(4 * MIB, b"old")
    stranger.send(target.receive(connect_timeout=5))
    assert target.end()["exit_status"] == 1
    assert stranger.end()["exit_status"] == 1
    assert target.disk.read_bytes().startswith(b"old")
    stranger.forget()


def test_strangers_do_not_hinder_a_transfer(nodes: tuple[Node, Node]) -> None:
    source, target = nodes
    source.make_disk(4 * MIB, b"new")
    target.make_disk(4 * MIB, b"old")
    port = target.receive(magic="the-word")
    with contextlib.ExitStack() as strangers:
        for _ in range(5):  # of whom nothing comes
            address = ("127.0.0.1", port)
            strangers.enter_context(socket.create_connection(address, WAIT_S))
        with socket.create_connection(address, WAIT_S) as scanner:
            scanner.sendall(b"GET / HTTP/1.0\r\n\r\n")
        source.send(port, magic="another")
        assert source.end()["exit_status"] == 1
        source.send(port, magic="the-word")
        assert (source.end()["error_message"], target.end()["error_message"]) == (None, None)
    assert target.disk.read_bytes() == source.disk.read_bytes()


class Accepting:
    """A receiver that waits in a thread for its peer, of another node of its cluster."""

    def __init__(self, node: Node, **options: Any) -> None:
        pem = node.tls.paths.server_pem
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        request = Request(
            End(kind="raw", path=str(node.disk)),
            TransferOptions(magic="the-word", **options),
            certificate=pem,
            authority=pem,
            listener=listener.detach(),
        )
        self._threads = ThreadPoolExecutor(1)
        self._found = self._threads.submit(accepting.accept, request)

    def stranger(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), WAIT_S)

    def __enter__(self) -> Accepting:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._threads.shutdown()

    def read(self, count: int) -> bytes:
        """Return what comes from the peer, once there is one."""
        connection, incoming = self._found.result(WAIT_S)
        with contextlib.closing(connection):
            return incoming.read(count)


def is_sent_away(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_stranger_has_a_few_seconds_in_all(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = nodes
    monkeypatch.setattr(accepting, "HANDSHAKE_S", 0.5)
    with Accepting(target, form=StreamForm.PLAIN) as receiver, receiver.stranger() as stranger:
        peer = Peer3_0(source, receiver.port)  # whose script needs longer for its first bytes
        stranger.sendall(b"\x16\x03\x01\x40\x00")  # a handshake, of which one byte comes at a time

        def is_gone() -> bool:
            try:
                stranger.sendall(b"x")
            except OSError:
                return True
            return False

        wait_until(is_gone, "the stranger is sent away", timeout_s=WAIT_S)
        peer.connection.sendall(b"M=the-word" + b"data")
        assert receiver.read(4) == b"data"
        peer.connection.close()


def test_of_too_many_strangers_the_oldest_has_to_go(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = nodes
    monkeypatch.setattr(accepting, "GUESTS_MAX", 3)
    monkeypatch.setattr(accepting, "HANDSHAKE_S", 2 * WAIT_S)
    with Accepting(target, form=StreamForm.PLAIN) as receiver, contextlib.ExitStack() as closed:
        peer = Peer3_0(source, receiver.port)
        strangers = [closed.enter_context(receiver.stranger()) for _ in range(6)]
        assert [is_sent_away(each) for each in strangers[:4]] == [True] * 4
        peer.connection.sendall(b"M=the-word" + b"data")
        assert receiver.read(4) == b"data"
        peer.connection.close()


def test_the_right_peer_comes_once(nodes: tuple[Node, Node]) -> None:
    source, target = nodes
    with Accepting(target, form=StreamForm.PLAIN) as receiver:
        second, first = (Peer3_0(source, receiver.port) for _ in range(2))
        first.connection.sendall(b"M=the-word" + b"first")
        assert receiver.read(5) == b"first"
        with contextlib.suppress(OSError):
            second.connection.sendall(b"M=the-word" + b"second")
        assert is_sent_away(second.connection)
        with pytest.raises(ConnectionRefusedError):
            receiver.stranger()
        first.connection.close()
        second.connection.close()


def test_a_disk_that_is_too_small_is_told_by_the_receiver(nodes: tuple[Node, Node]) -> None:
    source, target = nodes
    source.make_disk(4 * MIB, b"x", offset=3 * MIB)
    target.make_disk(2 * MIB)
    source.send(target.receive())
    said = "the disk has 2 MiB here, 4 MiB are to be written; if the one that is read is a volume"
    assert target.end()["error_message"].startswith(said)
    assert source.end()["exit_status"] == 1


# In plain bytes, as 3.0 sends them.


def test_a_plain_disk_that_does_not_fit_fails_on_both_sides(nodes: tuple[Node, Node]) -> None:
    source, target = nodes
    for here, there, says in (
        (4, 2, "the disk has 2 MiB here, more are to be written; if the one that is read"),
        (2, 4, "the stream ended early"),
    ):
        source.make_disk(here * MIB, b"x" * MIB, offset=(here - 1) * MIB)
        target.make_disk(there * MIB)
        source.send(target.receive(form="plain"), form="plain")
        assert target.end()["error_message"].startswith(says)
        assert source.end()["exit_status"] == 1


def test_zeroes_beyond_the_end_of_a_plain_disk_are_not_missed(nodes: tuple[Node, Node]) -> None:
    source, target = nodes
    source.make_disk(4 * MIB, os.urandom(MIB))
    target.make_disk(2 * MIB)
    source.send(target.receive(form="plain"), form="plain")
    assert (source.end()["error_message"], target.end()["error_message"]) == (None, None)
    assert target.disk.read_bytes() == source.disk.read_bytes()[: 2 * MIB]


class Peer3_0:
    """A sender of 3.0, played by hand: its bytes, and what it learns at the end."""

    def __init__(self, node: Node, port: int) -> None:
        context = client_context(node.tls.paths.client_pem, node.tls.paths.server_pem)
        plain = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self.connection = context.wrap_socket(plain, suppress_ragged_eofs=False)

    def learns_success(self) -> bool:
        """End its half, and wait for the other."""
        with contextlib.closing(self.connection):
            try:
                self.connection.unwrap()
            except ConnectionResetError:
                return False
        return True


def test_a_sender_of_3_0_learns_whether_everything_was_written(nodes: tuple[Node, Node]) -> None:
    source, target = nodes
    data = os.urandom(4 * MIB)
    for count, is_complete in ((len(data), True), (MIB, False)):
        target.make_disk(4 * MIB)
        peer = Peer3_0(source, target.receive(form="plain", magic="the-word"))
        peer.connection.sendall(b"M=the-word" + data[:count])
        assert peer.learns_success() is is_complete
        assert (target.end()["exit_status"] == 0) is is_complete
    packed = gzip.compress(b"M=the-word" + data)
    for count, is_complete in ((len(packed), True), (len(packed) - 10, False)):
        target.make_disk(4 * MIB)
        options = {"form": "plain", "magic": "the-word", "compress": "gzip"}
        peer = Peer3_0(source, target.receive(**options))
        peer.connection.sendall(packed[:count])
        assert peer.learns_success() is is_complete
        assert (target.disk.read_bytes() == data) is is_complete
        assert (target.end()["exit_status"] == 0) is is_complete


def test_why_it_failed_is_written_down_before_the_peer_can_see_it(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = nodes
    target.make_disk(2 * MIB)
    say, seen = main.Reporter.say, list[int]()

    def look_and_say(reporter: main.Reporter, **changes: object) -> None:
        if changes.get("exit_status") == 1:
            seen.append(peer.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0])
        say(reporter, **changes)

    monkeypatch.setattr(main.Reporter, "say", look_and_say)
    listener, pem = socket.create_server(("127.0.0.1", 0)), target.tls.paths.server_pem
    port = listener.getsockname()[1]
    files = TransferFiles.make(str(target.disk.parent), "import")
    request = Request(
        End(kind="raw", path=str(target.disk)),
        TransferOptions(magic="the-word"),
        certificate=pem,
        authority=pem,
        listener=listener.detach(),
    )
    files.save_request(dumps(request))
    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(main.run, files.directory)
        peer = Peer3_0(source, port)
        with contextlib.suppress(OSError):
            peer.connection.sendall(b"M=the-word" + b"x" * 4 * MIB)
            peer.learns_success()
        assert ended.result() == 1
    peer.connection.close()
    assert seen == [TCP_ESTABLISHED]


def test_a_plain_stream_that_breaks_off_is_not_complete(nodes: tuple[Node, Node]) -> None:
    source, target = nodes
    target.make_disk(4 * MIB)
    peer = Peer3_0(source, target.receive(form="plain", magic="the-word"))
    peer.connection.sendall(b"M=the-word" + bytes(4 * MIB))
    peer.connection.close()  # without the end of TLS: the connection broke
    assert target.end()["exit_status"] == 1


def test_a_receiver_does_not_wait_for_ever(nodes: tuple[Node, Node]) -> None:
    _, target = nodes
    target.make_disk(4 * MIB)
    target.receive(connect_timeout=1)
    assert target.end()["error_message"] == "nobody connected in time"


def test_a_transfer_can_be_stopped_and_forgotten(nodes: tuple[Node, Node]) -> None:
    _, target = nodes
    target.make_disk(4 * MIB)
    target.receive()
    assert target.state()["exit_status"] is None
    name = target.transfers[-1]
    calls.Transfers(target.context).impexp_abort(name)
    assert "ended early" in target.end()["error_message"]
    calls.Transfers(target.context).impexp_cleanup(name)
    calls.Transfers(target.context).impexp_cleanup(name)
    assert calls.Transfers(target.context).impexp_status([name]) == [None]


def test_a_receiver_that_is_stopped_when_the_sender_may_know_of_its_success_has_succeeded(
    nodes: tuple[Node, Node],
) -> None:
    source, target = nodes
    source.make_disk(4 * MIB)
    target.make_disk(4 * MIB)
    source.send(target.receive())
    target.end()
    [name] = target.transfers
    files = files_of(target.tls.paths, name)
    status = files.load_status()
    assert status is not None
    assert status.written
    assert "written" not in target.state()
    calls.Transfers(target.context).impexp_abort(name)
    files.save_status(replace(status, exit_status=None))
    assert target.state()["exit_status"] == 0
    files.save_status(replace(status, exit_status=None, written=False))
    assert target.state()["exit_status"] == 1


def test_a_transfer_whose_job_died_makes_way_for_the_next(nodes: tuple[Node, Node]) -> None:
    source, target = nodes
    source.make_disk(4 * MIB, b"new")
    target.make_disk(4 * MIB)
    target.receive()
    [left] = target.transfers
    source.send(target.receive())
    assert (source.end()["error_message"], target.end()["error_message"]) == (None, None)
    assert calls.Transfers(target.context).impexp_status([left]) == [None]
    assert target.disk.read_bytes() == source.disk.read_bytes()


@pytest.mark.parametrize("begins_by", ["remove", "note"])
@pytest.mark.parametrize("left", ["merge", "receive"])
def test_what_a_dead_job_left_in_an_export_is_ended_by_the_next_one(
    nodes: tuple[Node, Node], left: str, begins_by: str
) -> None:
    _, target = nodes
    partial = Path(target.tls.paths.export_dir, "inst1+new")
    partial.mkdir(parents=True)
    transfers = calls.Transfers(target.context)
    if left == "merge":
        name = transfers.export_merge("inst1", 1)
    else:
        place = ("file", [target.context.wire_path(f"{partial}/d1.dump")])
        name = transfers.import_start(TransferOptions(), INSTANCE, "disk0", place)
    other = transfers.export_merge("inst10", 1)
    target.transfers += [name, other]
    if begins_by == "remove":
        Exports(target.context).export_remove("inst1+new")
        assert not partial.exists()
    else:
        Exports(target.context).export_note("inst1+new", "stopped")
    gone, goes_on = transfers.impexp_status([name, other])
    assert gone is None
    assert goes_on is not None


def test_what_cannot_be_begun_is_refused(nodes: tuple[Node, Node]) -> None:
    source, _ = nodes
    with pytest.raises(BlockDeviceError, match="does not exist"):
        source.receive()
    source.make_disk(4 * MIB)
    with pytest.raises(NotSupportedError, match="compression 'lzop' is not supported"):
        source.receive(compress="lzop")
    for name in ("", "../x", ".x"):
        with pytest.raises(GenericError, match="is not the name of a transfer"):
            calls.Transfers(source.context).impexp_abort(name)


def test_nodes_of_two_clusters_know_each_other_by_certificates_made_for_this(
    nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    _, target = nodes
    other = Node(tmp_path, "node3")  # of another cluster
    other.make_disk(4 * MIB, b"new")
    target.make_disk(4 * MIB, b"old")
    own, there = (Keys(node.context).x509_cert_create(3600) for node in (target, other))
    stranger = Keys(other.context).x509_cert_create(3600)
    try:
        port = target.receive(key_name=own[0], ca_pem=there[1], magic="the-word")
        with socket.create_connection(("127.0.0.1", port), WAIT_S) as knocking:
            knocking.sendall(b"GET / HTTP/1.0\r\n\r\n")
        other.send(port, key_name=stranger[0], ca_pem=own[1], magic="the-word")
        assert other.end()["exit_status"] == 1
        other.send(port, key_name=there[0], ca_pem=own[1], magic="another")
        assert other.end()["exit_status"] == 1
        assert target.state()["exit_status"] is None, "it still waits for the right one"
        assert target.disk.read_bytes().startswith(b"old")
        other.send(port, key_name=there[0], ca_pem=own[1], magic="the-word")
        assert (other.end()["error_message"], target.end()["error_message"]) == (None, None)
        assert target.disk.read_bytes() == other.disk.read_bytes()
        with pytest.raises(GenericError, match="there is no certificate 'x509-none'"):
            target.receive(key_name="x509-none", ca_pem=there[1])
        with pytest.raises(GenericError, match="belong together"):
            target.receive(key_name=own[0])
    finally:
        other.forget()


def test_a_transfer_that_nobody_asks_for_forgets_itself(nodes: tuple[Node, Node]) -> None:
    _, target = nodes
    target.make_disk(4 * MIB)
    target.receive(connect_timeout=1)
    target.end()
    [name] = target.transfers
    files = files_of(target.tls.paths, name)
    asked = files.last_interest()
    assert asked is not None
    os.utime(files.request, (0, 0))  # the job that began it died long ago
    wait_until(lambda: not os.path.exists(files.directory), "its files are gone", timeout_s=WAIT_S)
    assert calls.Transfers(target.context).impexp_status([name]) == [None]
