"""The configuration reaches other nodes: a real WConfD and real node daemons."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fakes.large_config import uuid_of
from fakes.metric_page import values_on
from fakes.noded_node import NodedNode, short_directory
from fakes.waiting import wait_until
from fakes.wconfd_node import ALONE, WconfdNode
from msgspec.structs import replace

from ganeti.base.errors import OpExecError
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine.node import Node
from ganeti.protocol.wconfd import ObjectKind
from ganeti.store import config_file, ssconf
from ganeti.store.availability import State, read_state, write_state
from ganeti.system import certificates, clock, files


@dataclass
class Cluster:
    """A master with WConfD, and two other nodes of which the first is a candidate."""

    master: WconfdNode
    candidate: NodedNode
    other: NodedNode


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with short_directory() as base, WconfdNode(candidates=2) as master:
        others = [NodedNode(base, f"node{number}.example.com") for number in (2, 3)]
        make_one_cluster(master, others)
        for node in others:
            node.start()
        try:
            yield Cluster(master, *others)
        finally:
            for node in others:
                node.stop()


def make_one_cluster(master: WconfdNode, others: list[NodedNode]) -> None:
    """Give all nodes the certificates and the configuration of one cluster."""
    server = master.paths.server_pem
    shutil.copy(others[0].paths.server_pem, server)
    others[0].issue(master.paths.client_pem, master.name, 3)
    shutil.copy(server, others[1].paths.server_pem)
    for node in others:
        node.trust(master.paths.client_pem)
    config = master.config()
    pem = Path(master.paths.client_pem).read_bytes()
    digest = certificates.facts(pem, master.paths.client_pem).digest
    config["cluster"]["candidate_certs"] = {uuid_of("node", 1): digest}
    for number, node in enumerate(others, 2):
        wire = config["nodes"][uuid_of("node", number)]
        wire["primary_ip"] = wire["secondary_ip"] = node.address
    files.write_durable(master.paths.config_data, json.dumps(config).encode())


def lacking(paths: Paths, daemon: str) -> Any:
    """Return the candidates that lack something as of now, as a daemon tells the agent."""
    state = read_state(paths)
    assert state is not None
    write_state(paths, replace(state, time=clock.monotonic()))
    data = files.read_bytes_or_none(f"{paths.ha_copies}.{daemon}")
    return ["nothing is told"] if data is None else json.loads(data)["lacking"]


def config_of(node: NodedNode) -> Any:
    data = files.read_bytes_or_none(node.paths.config_data)
    return None if data is None else json.loads(data)


@pytest.mark.shows(
    "backend/config-data/replicated",
    "backend/ssconf/every-node",
    "2.12/overview/wconfd-noded",
    "2.12/wconfd/pushes",
    "2.12/config/distributed",
    "2.0/candidate/only-candidates",
    "2.0/candidate/no-file",
)
def test_candidates_get_all_and_others_the_simple_part(cluster: Cluster) -> None:
    client = cluster.master.start().owner().hold_everything().client
    client.add_tags("cluster", "", ["one"])
    client.flush_config()
    wait_until(
        lambda: [e["error"] for e in client.get_replication_status()] == [None, None], "both"
    )
    on_master = files.read_bytes(cluster.master.paths.config_data)
    wait_until(
        lambda: files.read_bytes_or_none(cluster.candidate.paths.config_data) == on_master,
        "the copy",
    )
    assert os.stat(cluster.candidate.paths.config_data).st_mode & 0o777 == 0o640
    assert not os.path.exists(cluster.other.paths.config_data)
    for node in (cluster.candidate, cluster.other):
        wait_until(
            lambda node=node: ssconf.read_all(node.paths) == ssconf.read_all(cluster.master.paths),
            f"the values on {node.name}",
        )
        assert ssconf.read_key(node.paths, "cluster_tags") == "one"


def test_a_candidate_is_sent_what_changed(cluster: Cluster) -> None:
    client = cluster.master.start().owner().hold_everything().client
    log = Path(cluster.candidate.paths.log_file("ganeti-noded"))
    client.flush_config()  # a change while a node is greeted for the first time is not counted
    for number in range(3):
        client.add_tags("cluster", "", [f"t{number}"])
        client.flush_config()
        wait_until(lambda: config_of(cluster.candidate) == cluster.master.config(), "the copy")
    assert log.read_text().count("upload_file_single") == 1
    assert "copies_patch" in log.read_text(), "the simple values go with the changes"
    told = values_on(client.get_metrics())
    assert told["ganeti_wconfd_candidates_behind",] == 0
    assert told["ganeti_wconfd_replication_seconds_count",] == 3
    Path(cluster.candidate.paths.config_data).write_text("{}")
    client.add_tags("cluster", "", ["last"])
    client.flush_config()
    wait_until(lambda: config_of(cluster.candidate) == cluster.master.config(), "the whole file")
    assert log.read_text().count("upload_file_single") == 2
    assert ssconf.read_all(cluster.candidate.paths) == ssconf.read_all(cluster.master.paths)


def test_a_candidate_that_has_it_already_is_not_sent_the_file_again(cluster: Cluster) -> None:
    """Nor is one whose file somebody changed taken for one that has it."""

    def sent() -> tuple[int, int]:
        text = log.read_text()
        return text.count("upload_file_single"), text.count("config_confirm")

    def change(tag: str) -> None:
        client.add_tags("cluster", "", [tag])
        client.flush_config()
        wait_until(lambda: config_of(cluster.candidate) == cluster.master.config(), "the change")

    log = Path(cluster.candidate.paths.log_file("ganeti-noded"))
    client = cluster.master.start().owner().hold_everything().client
    change("one")
    assert sent() == (1, 0)
    cluster.master.stop()
    cluster.candidate.stop()
    cluster.candidate.start()
    cluster.master.start()
    wait_until(lambda: sent() == (1, 1), "the question")
    change("two")
    assert sent() == (1, 1)
    cluster.master.stop()
    path = Path(cluster.master.paths.config_data)
    path.write_text(path.read_text().replace('"two"', '"too"'))  # by hand: its numbers stay
    cluster.master.start()
    wait_until(lambda: config_of(cluster.candidate) == cluster.master.config(), "the file")
    change("three")
    assert config_of(cluster.candidate)["cluster"]["tags"] == ["one", "too", "three"]
    assert sent() == (2, 2)


def test_a_node_is_sent_the_simple_values_that_changed(cluster: Cluster) -> None:
    client = cluster.master.start().owner().hold_everything().client
    client.flush_config()
    lost = [n.paths.ssconf_file("node_list") for n in (cluster.candidate, cluster.other)]
    for path in lost:
        wait_until(lambda path=path: os.path.exists(path), path)
        os.remove(path)
    for number in range(2):
        client.add_tags("cluster", "", [f"t{number}"])
        client.flush_config()
        for node in (cluster.candidate, cluster.other):
            tags = f"t{number}"
            wait_until(
                lambda node=node, tags=tags: tags in ssconf.read_key(node.paths, "cluster_tags"),
                f"the tags on {node.name}",
            )
    assert not any(map(os.path.exists, lost))  # nobody knows that they are lost
    cluster.other.stop()  # as at a power cut: the master is not told, and sends nothing meanwhile
    cluster.other.start()
    client.add_tags("cluster", "", ["t2"])
    wait_until(lambda: os.path.exists(lost[1]), "all values, which the new daemon asked for")
    client.flush_config()
    assert not os.path.exists(lost[0])


def test_simple_values_that_cannot_be_written_here_are_tried_again(cluster: Cluster) -> None:
    client = cluster.master.start().owner().hold_everything().client
    path = cluster.master.paths.ssconf_file("cluster_tags")
    os.remove(path)
    os.mkdir(path)
    for tag in ("one", "two"):
        client.add_tags("cluster", "", [tag])
        client.flush_config()  # others have it
        assert ssconf.read_key(cluster.other.paths, "cluster_tags").endswith(tag)
    os.rmdir(path)
    wait_until(lambda: os.path.exists(path), "the values")
    assert ssconf.read_all(cluster.master.paths) == ssconf.read_all(cluster.candidate.paths)
    log = cluster.master.log()
    assert log.count("Cannot write the simple values here") == 1
    wait_until(lambda: "can be written here again" in cluster.master.log(), "the log")


def test_a_killed_master_with_a_journal_leaves_all_on_the_candidate(cluster: Cluster) -> None:
    def on_candidate() -> Any:
        return json.loads(config_file.read_config(cluster.candidate.paths))

    options = (*ALONE, "--config-journal")
    client = cluster.master.start(*options).owner().hold_everything().client
    client.flush_config()
    wait_until(lambda: on_candidate() == cluster.master.config(), "the first copy")
    log = Path(cluster.candidate.paths.log_file("ganeti-noded"))
    for number in range(10):
        client.add_tags("cluster", "", [f"t{number}"])
        client.flush_config()
        wait_until(lambda: on_candidate() == cluster.master.config(), "the change")
    assert "config_append" in log.read_text()
    told = values_on(client.get_metrics())
    assert told["ganeti_wconfd_write_seconds_count", "config.journal"] == 10
    assert told["ganeti_wconfd_written_bytes_total", "config.journal"] > 1000
    cluster.master.kill()
    assert len(cluster.master.config()["cluster"]["tags"]) == 10
    assert on_candidate() == cluster.master.config()
    cluster.master.start(*options)
    assert not os.path.exists(cluster.master.paths.config_journal)
    client.add_tags("cluster", "", ["last"])
    wait_until(
        lambda: (
            json.loads(files.read_bytes(cluster.candidate.paths.config_data))
            == cluster.master.config()
        ),
        "the file to follow",
    )
    wait_until(lambda: not os.path.exists(cluster.candidate.paths.config_journal), "it to be empty")
    # One for each start of WConfD; none for the second one if the file had followed before.
    assert log.read_text().count("upload_file_single") in (1, 2)


def test_a_candidate_without_room_for_the_file_takes_records_and_counts(cluster: Cluster) -> None:
    """The other one of three is down: without this one no job could end with success."""
    config = cluster.master.config()
    config["cluster"]["candidate_pool_size"] = 3
    config["nodes"][uuid_of("node", 3)]["master_candidate"] = True
    config["cluster"]["tags"] = [f"{number:0100}" for number in range(200)]
    files.write_durable(cluster.master.paths.config_data, json.dumps(config).encode())
    paths = cluster.candidate.paths
    client = cluster.master.start(*ALONE, "--config-journal").owner().hold_everything().client
    client.flush_config()
    wait_until(lambda: config_of(cluster.candidate) == cluster.master.config(), "the first copy")
    cluster.other.stop()
    log = Path(paths.log_file("ganeti-noded"))
    before = files.read_bytes(paths.config_data)
    room = len(before) - 5000  # journal and log are shorter
    limits = resource.prlimit(cluster.candidate.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(cluster.candidate.pid, resource.RLIMIT_FSIZE, (room, limits[1]))

    def error_of_candidate() -> str | None:
        name = cluster.candidate.name
        [status] = [each for each in client.get_replication_status() if each["node"] == name]
        return status["error"]

    for number in range(3):
        client.add_tags("node", "node1", [f"t{number}"])
        client.flush_config()
        on_candidate = json.loads(config_file.read_config(paths))
        assert on_candidate == cluster.master.config()
        wait_until(lambda: "too large" in str(error_of_candidate()), "the file to be refused")
    assert files.read_bytes(paths.config_data) == before
    assert log.read_text().count("upload_file_single") == 2, "it is sent now and then"
    assert cluster.master.log().count("Cannot bring the configuration to node node2") == 1
    resource.prlimit(cluster.candidate.pid, resource.RLIMIT_FSIZE, limits)
    wait_until(lambda: config_of(cluster.candidate) == cluster.master.config(), "the file")
    wait_until(lambda: not os.path.exists(paths.config_journal), "the journal to go")


@pytest.mark.shows("2.12/noded/from-wconfd")
def test_a_promoted_node_gets_the_configuration(cluster: Cluster) -> None:
    client = cluster.master.start().owner().hold_everything().client
    client.modify(ObjectKind.CLUSTER, "", {"candidate_pool_size": 3})
    assert client.maintain_candidate_pool([])["promoted"] == [uuid_of("node", 3)]
    client.flush_config()
    wait_until(lambda: config_of(cluster.other) == cluster.master.config(), "the copy")


def test_what_was_on_its_way_to_a_candidate_does_not_stay_once_it_is_none(cluster: Cluster) -> None:
    client = cluster.master.start().owner().hold_everything().client
    client.flush_config()
    wait_until(lambda: config_of(cluster.candidate) == cluster.master.config(), "the copy")
    paths = cluster.candidate.paths
    os.kill(cluster.candidate.pid, signal.SIGSTOP)
    try:
        client.add_tags("cluster", "", ["late"])
        client.modify(ObjectKind.NODE, uuid_of("node", 2), {"master_candidate": False})
        Node(NodeContext(paths, cluster.candidate.name)).node_demote_from_mc()  # as its job does
    finally:
        os.kill(cluster.candidate.pid, signal.SIGCONT)
    wait_until(
        lambda: ssconf.read_all(paths) == ssconf.read_all(cluster.master.paths), "the values"
    )
    assert config_of(cluster.candidate) is None


@pytest.mark.shows("2.0/candidate/others-fail")
def test_a_node_that_was_away_gets_it_later_and_is_logged_once(cluster: Cluster) -> None:
    client = cluster.master.start().owner().hold_everything().client
    client.flush_config()
    counted = ("ganeti_wconfd_replication_seconds_count",)
    before = values_on(client.get_metrics())[counted]
    cluster.candidate.stop()
    for number in range(5):
        client.add_tags("cluster", "", [f"t{number}"])
    client.flush_config()  # two candidates need one copy: the master goes on alone
    wait_until(
        lambda: "Cannot bring the configuration to node node2" in cluster.master.log(),
        "the failure to be logged",
    )
    assert values_on(client.get_metrics())["ganeti_wconfd_candidates_behind",] == 1
    cluster.candidate.start()
    wait_until(
        lambda: config_of(cluster.candidate) == cluster.master.config(), "the node to catch up"
    )
    wait_until(
        lambda: "node2.example.com has the configuration again" in cluster.master.log(), "log"
    )
    assert cluster.master.log().count("Cannot bring the configuration to node node2") == 1
    assert values_on(client.get_metrics())[counted] == before  # only nodes that answer count


def test_under_high_availability_both_of_two_candidates_count_until_one_is_alone(
    cluster: Cluster,
) -> None:
    paths = cluster.master.paths
    Path(paths.high_availability).write_text("{}")
    write_state(paths, State(time=clock.monotonic()))
    client = cluster.master.start().owner().hold_everything().client
    client.add_tags("cluster", "", ["one"])
    client.flush_config()
    assert config_of(cluster.candidate) == cluster.master.config()
    cluster.candidate.stop()
    client.add_tags("cluster", "", ["two"])
    with pytest.raises(OpExecError, match="not on enough master candidates; missing are node2"):
        client.flush_config()
    wait_until(lambda: lacking(paths, "ganeti-wconfd") == ["node2.example.com"], "the report")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.flush_config)
        write_state(paths, State(time=clock.monotonic(), alone=cluster.master.name))
        waiting.result()  # as soon as it is written that the master goes on alone
    client.add_tags("cluster", "", ["three"])
    client.flush_config()
    cluster.candidate.start()
    wait_until(lambda: lacking(paths, "ganeti-wconfd") == [], "all to be there")
    assert config_of(cluster.candidate) == cluster.master.config()


def test_too_few_candidates_are_named(cluster: Cluster) -> None:
    config = cluster.master.config()
    config["cluster"]["candidate_pool_size"] = 3
    config["nodes"][uuid_of("node", 3)]["master_candidate"] = True
    files.write_durable(cluster.master.paths.config_data, json.dumps(config).encode())
    client = cluster.master.start().owner().hold_everything().client
    cluster.candidate.stop()
    client.add_tags("cluster", "", ["x"])
    client.flush_config()  # two of three have it
    cluster.other.stop()
    client.add_tags("cluster", "", ["y"])
    with pytest.raises(OpExecError, match=r"node2.*node3.*gnt-node modify --offline"):
        client.flush_config()
    client.modify(ObjectKind.NODE, "node2", {"master_candidate": False, "offline": True})
    client.modify(ObjectKind.NODE, "node3", {"master_candidate": False, "offline": True})
    client.flush_config()


@pytest.mark.shows("backend/locks/distribution")
def test_what_changes_while_a_node_hangs_is_brought_at_once_later(cluster: Cluster) -> None:
    client = cluster.master.start().owner().hold_everything().client
    client.flush_config()
    os.kill(cluster.candidate.pid, signal.SIGSTOP)
    try:
        for number in range(20):
            client.add_tags("cluster", "", [f"t{number}"])
        client.flush_config_group("default")
    finally:
        os.kill(cluster.candidate.pid, signal.SIGCONT)
    client.flush_config()
    wait_until(
        lambda: config_of(cluster.candidate) == cluster.master.config(), "the node to catch up"
    )
    assert len(config_of(cluster.candidate)["cluster"]["tags"]) == 20


def test_a_restarted_master_brings_what_is_missing(cluster: Cluster) -> None:
    client = cluster.master.start().owner().hold_everything().client
    client.add_tags("cluster", "", ["x"])
    cluster.master.kill()
    cluster.master.start()
    wait_until(
        lambda: config_of(cluster.candidate) == cluster.master.config(), "the node to catch up"
    )


def test_a_newer_configuration_on_a_candidate_is_not_replaced(cluster: Cluster) -> None:
    newer = cluster.master.config()
    newer["serial_no"] += 1000
    files.write_durable(cluster.candidate.paths.config_data, json.dumps(newer).encode())
    client = cluster.master.start().owner().hold_everything().client
    wait_until(lambda: client.get_replication_status()[0]["error"], "the refusal")
    assert "older than" in client.get_replication_status()[0]["error"]
    assert config_of(cluster.candidate)["serial_no"] == newer["serial_no"]


def test_what_is_told_after_sending_again_is_of_this_time(cluster: Cluster) -> None:
    client = cluster.master.start().owner().hold_everything().client
    client.flush_config()
    for node in (cluster.candidate, cluster.other):
        node.stop()
    client.redistribute_config()
    wait_until(lambda: all(row["error"] for row in client.get_replication_status()), "the refusals")
    for node in (cluster.candidate, cluster.other):
        node.start()
    client.redistribute_config()
    assert [row["error"] for row in client.get_replication_status()] == [None, None]


@pytest.mark.shows("2.1/redist/configuration")
def test_everything_is_sent_again_when_asked_for(cluster: Cluster) -> None:
    client = cluster.master.start().owner().hold_everything().client
    client.flush_config()
    for node in (cluster.candidate, cluster.other):
        path = node.paths.ssconf_file("master_node")
        wait_until(lambda path=path: os.path.exists(path), f"the values on {node.name}")
        os.remove(path)
    os.remove(cluster.candidate.paths.config_data)
    os.remove(cluster.master.paths.ssconf_file("node_list"))
    client.flush_config()  # all have been served, as far as anybody knows
    assert config_of(cluster.candidate) is None
    client.redistribute_config()
    client.flush_config()
    wait_until(lambda: config_of(cluster.candidate) == cluster.master.config(), "the copy")
    assert config_of(cluster.other) is None
    for node in (cluster.candidate, cluster.other):
        path = node.paths.ssconf_file("master_node")
        wait_until(lambda path=path: os.path.exists(path), f"the values on {node.name}")
        assert ssconf.master_node(node.paths) == cluster.master.name
    assert ssconf.read_key(cluster.master.paths, "node_list")
