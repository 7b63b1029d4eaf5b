"""RConfD in a cluster: on every candidate, whatever becomes of the master."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from fakes.virtual_cluster import Outcome, TestCluster, own_cluster
from fakes.waiting import wait_until

from ganeti.base.daemons import FACES, MASTER_DAEMONS, NODED
from ganeti.base.errors import TransportError
from ganeti.bootstrap.virtual import lifecycle
from ganeti.clients.confd import ConfdClient, read_key
from ganeti.protocol.confd_queries import QueryType
from ganeti.store import ssconf
from ganeti.system import daemon_control

CONFD = "ganeti-confd"
DEADLINE_S = 60.0
WEB = "web.example.com"


@pytest.fixture(scope="module")
def three() -> Iterator[TestCluster]:
    """Three candidates with RConfD and no other face."""
    with own_cluster(3, without=tuple(name for name in FACES if name != CONFD)) as cluster:
        yield cluster


def ask(cluster: TestCluster, words: str, node: str | None = None) -> Outcome:
    return cluster.run(["confd-client", *words.split(), "--timeout", "60"], node=node)


def answered_by(cluster: TestCluster, node: str) -> int | None:
    """Return the serial number with which a node answers, or None while it does not."""
    address = cluster.layout.address_of(node)
    with ConfdClient(read_key(cluster.paths), [address], timeout_s=0.3) as client:
        try:
            return client.ask(QueryType.CLUSTER_MASTER).serial
        except TransportError:
            return None


@pytest.mark.shows(
    "backend/confd/candidates",
    "2.12/overview/rconfd-door",
    "2.12/rconfd/candidates",
    "2.1/confd/every-node",
    "2.1/confd/candidates",
)
def test_every_candidate_answers_by_the_same_configuration(three: TestCluster) -> None:
    for node in three.nodes:
        wait_until(
            lambda: answered_by(three, node) == answered_by(three, three.master) is not None,  # noqa: B023
            f"{node} to be up to date",
            timeout_s=DEADLINE_S,
        )
    assert ask(three, "test --requests 3", node=three.nodes[2]).status == 0
    found = ask(three, "candidate-ips --no-headers -a node3", node=three.nodes[1])
    assert found.lines == [node.ip for node in ssconf.master_candidates(three.paths)]


@pytest.mark.shows("2.12/wconfd/pushes")
def test_changes_arrive_everywhere(three: TestCluster) -> None:
    three.gnt(
        f"instance add --no-name-check --no-ip-check -t file -s 8 -o bootsector+default"
        f" -n node2 {WEB}"
    )
    for node in three.nodes:
        words = (
            f"node-instances node2 --no-headers --separator=| -a {three.layout.address_of(node)}"
        )
        wait_until(
            lambda: ask(three, words).out.startswith(f"{WEB}|primary|up|"),  # noqa: B023
            f"{node} to know the instance",
            timeout_s=DEADLINE_S,
        )
    on_node2 = ask(three, "primary-nodes --no-headers --separator=|", node=three.nodes[2])
    assert on_node2.lines == [f"{WEB}|node2.example.com"]
    disks = json.loads(ask(three, f"instance-disks {WEB} --json", node=three.nodes[2]).out)
    assert [disk["size"] for disk in disks["answer"]] == [8]
    three.gnt(f"instance remove -f --shutdown-timeout=1 {WEB}")


@pytest.mark.shows("2.12/rconfd/available", "2.1/confd/no-single-point")
def test_answers_come_while_the_master_is_away(three: TestCluster) -> None:
    stopped = (*reversed(MASTER_DAEMONS), NODED, CONFD)
    for daemon in stopped:
        assert daemon_control.stop_daemon(three.paths, daemon)
    try:
        for words, text in (
            ("master --no-headers", "node1.example.com"),
            ("node-role node3 --no-headers", "candidate"),
            ("config /cluster/cluster_name --no-headers", '"cluster.example.com"'),
        ):
            assert text in ask(three, words, node=three.nodes[1]).out
    finally:
        lifecycle.start(three.layout, lambda _text: None)


@pytest.mark.shows("backend/cluster-node/daemons", "2.12/rconfd/candidates", "2.1/confd/candidates")
def test_a_node_that_is_no_candidate_any_more_is_silent(three: TestCluster) -> None:
    node = three.nodes[2]
    three.gnt(["cluster", "modify", "--candidate-pool-size=2"])
    three.gnt(["node", "modify", "--master-candidate=no", node])
    wait_until(lambda: answered_by(three, node) is None, "silence", timeout_s=DEADLINE_S)
    assert daemon_control.running_pid(three.paths_of(node), CONFD) is not None
    others = [three.layout.address_of(name) for name in three.nodes[:2]]
    words = "ping --all --no-headers --separator=|"
    wait_until(
        lambda: sorted(x.partition("|")[0] for x in ask(three, words, node=node).lines) == others,
        "answers of the others",
        timeout_s=DEADLINE_S,
    )
    wait_until(
        lambda: ask(three, f"node-role {node} --no-headers").out.split()[1] == "regular",
        "the others to know it",
        timeout_s=DEADLINE_S,
    )
    three.gnt(["cluster", "modify", "--candidate-pool-size=10"])
    three.gnt(["node", "modify", "--master-candidate=yes", node])
    wait_until(lambda: answered_by(three, node) is not None, "answers", timeout_s=DEADLINE_S)


@pytest.mark.shows("2.1/confd-wire/answer-status")
def test_questions_that_fail_say_why(three: TestCluster) -> None:
    for words, text in (
        ("node-role nosuch", "there is no such entry"),
        ("config nosuch", "there is nothing at this path"),
        ("ping -a 127.0.0.9 --timeout 0.2", "no RConfD answered within 0.2 s"),
        ("ping --hmac wrong --timeout 0.2", "is the key the same?"),
        ("ping --timeout 0", "--timeout must be more than 0"),
        ("test --requests 0", "--requests must be at least 1"),
        ("ping -a nosuch.example.com", "nosuch.example.com"),
        ("nosuch", "unknown command"),
    ):
        outcome = three.run(["confd-client", *words.split()])
        assert outcome.status == 1
        assert text in outcome.err
        assert "Traceback" not in outcome.err


def test_nodes_have_no_drbd_devices(three: TestCluster) -> None:
    assert three.gnt("node list-drbd --no-headers node2").lines == []
    three.refused("node list-drbd node9", "node 'node9' is not known")
