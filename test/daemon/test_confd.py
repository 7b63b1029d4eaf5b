"""RConfD over its socket: when it answers, what it drops, how it follows its files."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.confd_config import WEB, confd_config
from fakes.confd_node import CANDIDATES, CHECKOUT, DEADLINE_S, KEY, OWN_NAME, ConfdNode, RawClient
from fakes.large_config import large_config, uuid_of
from fakes.waiting import wait_until

from ganeti.base.errors import ConfdClientError, TransportError
from ganeti.clients.confd import AsyncConfdClient, ConfdClient
from ganeti.protocol.confd import (
    DATAGRAM_BYTES_MAX,
    Answer,
    Asked,
    Event,
    EventKind,
    Reply,
    ReplyStatus,
    Signer,
    open_reply,
    request_packet,
)
from ganeti.protocol.confd_queries import QueryType
from ganeti.system import files

PACKETS_VARIABLE = "GANETI_TEST_CONFD_PACKETS"
PACKETS = int(os.environ.get(PACKETS_VARIABLE, "20000"))
ROUND = 25  # packets that fit into the buffer of a socket
GROWTH_KB_MAX = 4096  # what the allocator may round up; a leak of 20 bytes a packet is more


@pytest.fixture(scope="module")
def node() -> Iterator[ConfdNode]:
    """A node that answers; tests leave it as it was."""
    with ConfdNode() as made:
        yield made.start()


@pytest.fixture
def own() -> Iterator[ConfdNode]:
    """A node to do with what one likes, not started."""
    with ConfdNode() as made:
        yield made


def serial_of(node: ConfdNode) -> int:
    with node.client() as client:
        return client.ask(QueryType.CLUSTER_MASTER).serial


# Answers.


@pytest.mark.shows("2.12/rconfd/static", "2.1/confd-wire/type", "2.1/confd-wire/query-missing")
def test_every_query_is_answered(node: ConfdNode) -> None:
    questions: dict[QueryType, object] = {
        QueryType.NODE_ROLE: "node3",
        QueryType.NODE_PIP_BY_INSTANCE_IP: {"1": "198.51.100.1"},
        QueryType.NODE_DRBD: OWN_NAME,
        QueryType.NODE_INSTANCES: OWN_NAME,
        QueryType.NODE_INSTANCE_SERIALS: OWN_NAME,
        QueryType.NODE_DRBD_PART: OWN_NAME,
        QueryType.INSTANCE_DISKS: "web",
        QueryType.CONFIG_QUERY: "/cluster/cluster_name",
        QueryType.CONFIG_PART: "/nodes/0",
    }
    with node.client() as client:
        for kind in QueryType:
            answer = client.ask(kind, questions.get(kind))
            assert answer.status is ReplyStatus.OK, answer
            assert answer.serial == node.config["serial_no"]
        refused = client.ask(QueryType.INSTANCE_DISKS, "removed")
        assert (refused.status, refused.serial) == (ReplyStatus.ERROR, node.config["serial_no"])


def test_many_clients_at_once(node: ConfdNode) -> None:
    with RawClient(node) as one, RawClient(node) as other:
        for client in (one, other):
            for _ in range(64):
                client.socket.send(client.packet(QueryType.CLUSTER_MASTER))
        for client in (one, other):
            salts = {client.receive()[0] for _ in range(64)}
            assert salts == {f"s{number}" for number in range(1, 65)}


def test_the_same_packet_again_is_answered_again(node: ConfdNode) -> None:
    with RawClient(node) as client:
        packet = client.packet(QueryType.NODE_ROLE, "node1")
        for _ in range(2):
            client.socket.send(packet)
            assert client.receive() == ("s1", Reply(ReplyStatus.OK, 0, 42))


def test_ipv6() -> None:
    if not _has_ipv6():
        pytest.skip("this machine has no IPv6 loopback address")
    with ConfdNode(address="::1") as node:
        node.start()
        assert node.value(QueryType.CLUSTER_MASTER) == "node1.example.com"
        with ConfdClient(KEY, ["0::1"], port=node.port) as client:
            assert client.value(QueryType.PING) == 3000000


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


# What gets no answer.


@pytest.mark.shows("2.1/confd/replay")
def test_old_future_and_wrongly_signed_packets_get_no_answer(node: ConfdNode) -> None:
    with RawClient(node) as client:
        packet = client.packet(0)
        client.answers_nothing_to(
            client.packet(0, off_s=-330),
            client.packet(0, off_s=330),
            packet.replace(b'"hmac": "', b'"hmac": "0'),
            request_packet(Signer(b"other key\n"), 0, None, rsalt="x", now_s=1),
            client.packet(99),
            client.packet(1, [1]),
            client.packet(2, {"9": "x"}),
            packet.ljust(DATAGRAM_BYTES_MAX + 1),
            b" " * 65507,
            b"",
        )
        client.socket.send(packet.ljust(DATAGRAM_BYTES_MAX))
        assert client.receive()[0] == "s1"


def test_rubbish_leaves_it_serving_with_the_memory_it_had(own: ConfdNode) -> None:
    own.start()
    rng = random.Random(7)
    with RawClient(own) as client:
        _send_rubbish(client, rng, PACKETS // 4)  # what it takes once, it takes now
        before_kb = own.memory_kb()
        _send_rubbish(client, rng, PACKETS - PACKETS // 4)
        assert own.memory_kb() - before_kb < GROWTH_KB_MAX
    assert own.value(QueryType.CLUSTER_MASTER) == "node1.example.com"
    assert own.stop() == 0
    assert "Traceback" not in own.log()


def _send_rubbish(client: RawClient, rng: random.Random, count: int) -> None:
    """Send random and mutated packets, in rounds that the daemon can keep up with."""
    for sent in range(0, count, ROUND):
        rubbish = [_rubbish(client, rng) for _ in range(min(ROUND, count - sent))]
        client.answers_only_own(*rubbish)


def _rubbish(client: RawClient, rng: random.Random) -> bytes:
    kind = rng.randrange(5)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 2000))
    if kind == 1:
        return b"plj0" + rng.randbytes(rng.randrange(300))
    packet = bytearray(
        client.packet(rng.choice(list(QueryType)), rng.choice([None, "x", {"1": "y"}]))
    )
    if kind == 2:
        del packet[rng.randrange(len(packet)) :]
    for _ in range(rng.randrange(1, 4)):
        if packet:
            packet[rng.randrange(len(packet))] = rng.randrange(256)
    return bytes(packet) or b"x"


def test_the_log_says_what_is_dropped(own: ConfdNode) -> None:
    own.start("-d")
    with RawClient(own) as client:
        client.answers_nothing_to(client.packet(0, off_s=-5000), b"x")
    assert own.stop() == 0
    assert "Dropped 2 packets, the last from 127.0.0.1: does not begin with plj0" in own.log()


# Following the files.


@pytest.mark.shows("backend/confd/reloads")
def test_changes_are_followed(own: ConfdNode) -> None:
    own.start()
    for serial in (43, 44, 50):
        own.config["serial_no"] = serial
        own.write_config()
        wait_until(lambda: serial_of(own) == serial, "the new configuration")  # noqa: B023


@pytest.mark.shows("backend/confd/memory")
@pytest.mark.parametrize("bad", [b"", b"{", b"[]", b'{"cluster": {}}', b"\xff"])
def test_a_bad_configuration_leaves_the_old_one(own: ConfdNode, bad: bytes) -> None:
    own.start()
    assert serial_of(own) == 42
    files.write_atomic(own.paths.config_data, bad)
    own.wait_log("answering from the old one (serial number 42)")
    assert serial_of(own) == 42
    own.config["serial_no"] = 43
    own.write_config()
    wait_until(lambda: serial_of(own) == 43, "the good configuration")
    assert own.log().count("answering from the old one") == 1


def test_no_candidate_is_silent_and_says_so_once() -> None:
    with ConfdNode(candidates=["node1.example.com"]) as own:
        own.start()
        assert "Not answering: this node is not a master candidate" in own.log()
        with (
            own.client(timeout_s=0.3) as client,
            pytest.raises(TransportError, match="no RConfD answered"),
        ):
            client.ask(QueryType.PING)
        own.write_config()  # what it does not answer from may change
        own.set_candidates(CANDIDATES)
        own.wait_log("Answering; the configuration has serial number 42")
        assert serial_of(own) == 42
        own.set_candidates(["node1.example.com"])
        own.wait_log("Not answering", times=2)
        own.set_candidates(CANDIDATES)
        own.wait_log("Answering; the configuration", times=2)
        assert own.log().count("Not answering") == 2


def test_a_node_without_a_cluster_waits_for_one(own: ConfdNode) -> None:
    key, config = own.paths.hmac_key, own.paths.config_data
    own.set_candidates([])
    os.unlink(key)
    os.unlink(config)
    own.start()
    own.set_candidates(CANDIDATES)
    own.wait_log("Not answering: cannot read")
    files.write_atomic(key, KEY)
    own.wait_log("Not answering: cannot read", times=2)  # the configuration now
    own.write_config()
    assert serial_of(own) == 42


@pytest.mark.shows("backend/certificates/hmac")
def test_a_new_key_is_used(own: ConfdNode) -> None:
    own.start()
    new = b"another key\n"
    files.write_atomic(own.paths.hmac_key, new)
    with own.client(key=new) as client:
        assert client.value(QueryType.PING) == 3000000
    with own.client(timeout_s=0.3) as client, pytest.raises(TransportError):
        client.ask(QueryType.PING)


def test_a_port_that_is_taken_is_named(node: ConfdNode, own: ConfdNode) -> None:
    argv = [sys.executable, f"{CHECKOUT}/daemons/ganeti-confd", "-b", "127.0.0.1"]
    env = {**os.environ, "GANETI_ROOTDIR": own.paths.root, "GANETI_HOSTNAME": OWN_NAME}
    for port, text in ((node.port, "Address already in use"), (99999, "cannot listen on")):
        done = subprocess.run(
            [*argv, "-p", str(port)], env=env, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 1
        assert text in done.stderr.decode()
        assert f"127.0.0.1:{port}" in done.stderr.decode()


# Clients.


@pytest.fixture(scope="module")
def three() -> Iterator[list[ConfdNode]]:
    """Three candidates on one port: an old one, a new one, and one that does not answer."""
    with ConfdNode() as old, ConfdNode(address="127.0.0.2") as new:
        new.config = confd_config()
        new.config["serial_no"] = 77
        new.config["cluster"]["cluster_name"] = "new"
        del new.config["instances"][WEB]
        new.write_config()
        old.start()
        new.start("-p", str(old.port))
        yield [old, new]


ADDRESSES = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]  # nobody is at the third
NAME = "/cluster/cluster_name"


@pytest.mark.shows("2.12/rconfd/freshest", "2.1/confd/several", "2.1/confd/stale")
def test_the_newest_answer_is_taken(three: list[ConfdNode]) -> None:
    with ConfdClient(
        KEY, ADDRESSES[:2], port=three[0].port, timeout_s=DEADLINE_S, settle_s=DEADLINE_S
    ) as client:
        answers = client.ask_all(QueryType.CONFIG_QUERY, NAME)
    assert [answer.serial for answer in answers] == [77, 42]
    assert answers[0].check() == "new"


def test_an_instance_that_was_removed_stays_removed(three: list[ConfdNode]) -> None:
    """A candidate that is behind still has it, and answers, but the refusal is newer."""
    with ConfdClient(
        KEY, ADDRESSES[:2], port=three[0].port, timeout_s=DEADLINE_S, settle_s=DEADLINE_S
    ) as client:
        answers = client.ask_all(QueryType.INSTANCE_DISKS, "web.example.com")
    assert [answer.status for answer in answers] == [ReplyStatus.ERROR, ReplyStatus.OK]


@pytest.mark.shows("2.12/rconfd/available")
def test_candidates_that_are_away_cost_little(three: list[ConfdNode]) -> None:
    with ConfdClient(
        KEY, ADDRESSES[1:], port=three[0].port, timeout_s=DEADLINE_S, settle_s=0.05
    ) as client:
        assert client.value(QueryType.CONFIG_QUERY, NAME) == "new"


@pytest.mark.shows("2.1/confd-wire/maybe-none")
def test_nobody_there_is_said(three: list[ConfdNode]) -> None:
    with (
        ConfdClient(KEY, ADDRESSES[2:], port=three[0].port, timeout_s=0.2) as client,
        pytest.raises(TransportError, match=r"asked: 127\.0\.0\.3"),
    ):
        client.ask(QueryType.PING)


@pytest.mark.shows("2.12/overview/rconfd-door")
def test_programs_with_an_event_loop(three: list[ConfdNode]) -> None:
    async def talk() -> None:
        client = AsyncConfdClient(
            KEY, ADDRESSES[:2], port=three[0].port, timeout_s=DEADLINE_S, settle_s=DEADLINE_S
        )
        try:
            answers = await asyncio.gather(
                *(client.ask(QueryType.CONFIG_QUERY, NAME) for _ in range(20))
            )
            assert {answer.value for answer in answers} == {"new"}
            events: list[Event] = []
            is_over = asyncio.Event()

            def on_event(event: Event) -> None:
                events.append(event)
                if event.kind is EventKind.ENDED:
                    is_over.set()

            client.send(QueryType.NODE_ROLE, "nosuch", on_event)
            await asyncio.wait_for(is_over.wait(), 2 * DEADLINE_S)
            assert [event.kind for event in events] == [EventKind.ANSWER] * 2 + [EventKind.ENDED]
            assert events[-1].answer is not None
            assert events[-1].answer.status is ReplyStatus.ERROR
        finally:
            client.close()

    asyncio.run(talk())


def test_an_event_loop_is_told_that_nobody_answers(three: list[ConfdNode]) -> None:
    async def talk() -> None:
        client = AsyncConfdClient(KEY, ADDRESSES[2:], port=three[0].port, timeout_s=0.2)
        try:
            with pytest.raises(TransportError, match="no RConfD answered"):
                await client.ask(QueryType.PING)
        finally:
            client.close()

    asyncio.run(talk())


# Lists in pages.

MANY = 20_000


@pytest.fixture(scope="module")
def many() -> Iterator[ConfdNode]:
    """A node of a cluster with 20,000 instances; every third of its 300 nodes is offline."""
    config = large_config(MANY, nodes=300, candidates=2)
    for number, made in enumerate(config["nodes"].values()):
        made["offline"] = number % 3 == 2
    with ConfdNode(config) as made:
        yield made.start()


def lists_of(config: dict[str, Any]) -> dict[QueryType, list[Any]]:
    """Return what the questions that are answered in pages are answered with."""
    nodes = {uuid: node["name"] for uuid, node in config["nodes"].items()}
    instances = config["instances"].values()
    return {
        QueryType.OFFLINE_NODES: [
            node["name"] for node in config["nodes"].values() if node["offline"]
        ],
        QueryType.INSTANCE_LIST: [one["name"] for one in instances],
        QueryType.INSTANCE_PRIMARY_NODES: [
            [one["name"], nodes[one["primary_node"]]] for one in instances
        ],
    }


@pytest.mark.shows("2.1/confd/offline-nodes", "2.1/confd/instance-list", "2.1/confd/primary-nodes")
def test_lists_of_twenty_thousand_are_read_to_the_end(many: ConfdNode) -> None:
    lists = lists_of(many.config)
    with many.client() as client:
        for kind, entries in lists.items():
            answer = client.read_list(kind)
            assert answer.check() == entries
            assert answer.serial == many.config["serial_no"]

    async def talk() -> dict[QueryType, object]:
        client = AsyncConfdClient(KEY, [many.address], port=many.port, timeout_s=DEADLINE_S)
        try:
            answers = await asyncio.gather(*(client.read_list(kind) for kind in lists))
        finally:
            client.close()
        return {answer.type: answer.value for answer in answers}

    assert asyncio.run(talk()) == lists


def test_each_page_is_one_datagram(many: ConfdNode) -> None:
    first: object = 0
    names: list[str] = []
    with RawClient(many) as raw:
        while first is not None:
            raw.socket.send(raw.packet(QueryType.INSTANCE_LIST, f"/{first}"))
            data = raw.socket.recv(65536)
            assert len(data) <= DATAGRAM_BYTES_MAX
            answer = open_reply(Signer(KEY), data)[1].answer
            assert isinstance(answer, list)
            entries, first = answer
            names += entries
    assert len(names) == len(set(names)) == MANY


def test_a_list_that_no_datagram_holds_names_its_pages(many: ConfdNode) -> None:
    with (
        many.client() as client,
        pytest.raises(ConfdClientError, match=r"pages by 'instances' \(query type 103\) or 'prim"),
    ):
        client.value(QueryType.CONFIG_QUERY, "/instances")


def test_the_command_shows_whole_lists(many: ConfdNode) -> None:
    for kind, entries in lists_of(many.config).items():
        done = confd_client(many, kind.label, "--no-headers", "--separator=|")
        rows = ["|".join(entry) if isinstance(entry, list) else entry for entry in entries]
        assert (done.stdout.splitlines(), done.stderr, done.returncode) == (rows, "", 0)
    told = json.loads(confd_client(many, "instances", "--json").stdout)
    assert (len(told["answer"]), told["serial"]) == (MANY, many.config["serial_no"])


def confd_client(node: ConfdNode, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, f"{CHECKOUT}/tools/confd-client", *words]
    env = {**os.environ, "GANETI_ROOTDIR": node.paths.root, "GANETI_HOSTNAME": OWN_NAME}
    where = ("-a", node.address, "-p", str(node.port), "--timeout", str(DEADLINE_S))
    return subprocess.run(
        [*argv, *where], env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def test_a_change_between_two_pages_begins_the_list_again(own: ConfdNode) -> None:
    """The client never joins pages of two configurations."""
    own.config = large_config(5000)
    own.start()
    seen: list[str] = []

    class Slow(ConfdClient):
        """Waits for a change of the configuration before it asks for the second page."""

        def _begin(self, query_type: QueryType, query: object, *rest: Any) -> Asked:
            seen.append(str(query))
            if len(seen) == 2:
                removed = own.config["instances"].pop(uuid_of("instance", 0))
                own.config["disks"].pop(removed["disks"][0])
                own.config["serial_no"] += 1
                own.write_config()
                wait_until(lambda: serial_of(own) == own.config["serial_no"], "the change")
            return super()._begin(query_type, query, *rest)

    own.config["serial_no"] = 50
    own.write_config()
    wait_until(lambda: serial_of(own) == 50, "the configuration")
    with Slow(KEY, [own.address], port=own.port, timeout_s=DEADLINE_S) as client:
        answer = client.read_list(QueryType.INSTANCE_LIST)
    assert answer.serial == 51
    assert answer.value == [f"inst{number}.example.com" for number in range(1, 5000)]
    assert seen[:3] == ["/0", seen[1], "/0"]


def test_pages_wait_for_no_candidate_that_is_away(many: ConfdNode) -> None:
    """Only the first waits for newer answers of others; nobody is at the second address."""
    addresses = [many.address, "127.0.0.3"]
    settle_s, kind = 2.0, QueryType.INSTANCE_PRIMARY_NODES

    async def talk() -> Answer:
        client = AsyncConfdClient(KEY, addresses, port=many.port, settle_s=settle_s)
        try:
            return await client.read_list(kind)
        finally:
            client.close()

    def wait() -> Answer:
        with ConfdClient(KEY, addresses, port=many.port, settle_s=settle_s) as client:
            return client.read_list(kind)

    for read in (wait, lambda: asyncio.run(talk())):
        begun_s = time.monotonic()
        assert read().value == lists_of(many.config)[kind]
        assert time.monotonic() - begun_s < 15.0  # two seconds for each page are more than 30


def test_a_list_is_that_of_the_newest_configuration(three: list[ConfdNode]) -> None:
    with ConfdClient(
        KEY, ADDRESSES[:2], port=three[0].port, timeout_s=DEADLINE_S, settle_s=DEADLINE_S
    ) as client:
        answer = client.read_list(QueryType.INSTANCE_LIST)
    assert (answer.value, answer.serial) == (["db.example.com"], 77)
