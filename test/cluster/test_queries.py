"""Queries on a cluster where one node is down, one hangs now and then, and one is marked offline."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from fakes.own_fields import OWN_FIELDS
from fakes.sample_config import CONFIG, load_sample
from fakes.virtual_cluster import TestCluster, own_cluster
from fakes.waiting import wait_until

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.clients.luxi import LuxiClient
from ganeti.clients.wconfd import WConfClient
from ganeti.luxid.live_calls import DEADLINE_S, GRACE_S
from ganeti.protocol.luxi import QueryResponse
from ganeti.protocol.wconfd import ClientId, ObjectKind
from ganeti.system import daemon_control
from ganeti.system.filelock import LiveLock

GOLDEN = load_sample("query_fields")
RESOURCES = ("export", "filter", "group", "instance", "job", "lock", "network", "node")
NODATA, UNAVAIL, OFFLINE = 2, 3, 4
DEAD, AWAY = "node2.example.com", "node3.example.com"
SLOW_MACHINE_S = 60.0  # what a loaded machine may add to a list
EXPORT = "saved.example.com"
NETWORK = "11111111-2222-4333-8444-555555555555"
POST_INIT = "CLUSTER_POST_INIT"


def fill(cluster: TestCluster) -> None:
    """Make something of everything that can be asked for."""
    common = "--no-name-check --no-ip-check -H fake -o bootsector+default"
    for number, (name, disks) in enumerate(
        (("a", "--disk 0:size=4 --disk 1:size=8,name=data"), ("b", "--disk 0:size=4"), ("c", ""))
    ):
        template = "-t file" if disks else "-t diskless --no-install"
        node = cluster.nodes[number]
        cluster.gnt(f"instance add {common} {template} {disks} -n {node} {name}.example.com")
    cluster.gnt("instance startup c.example.com")
    cluster.gnt("instance add-tags a.example.com web blue")
    cluster.gnt("node add-tags node1 rack:1")
    cluster.gnt("group add-tags default all")
    cluster.gnt("cluster add-tags site:x")
    cluster.gnt(
        [
            "filter",
            "add",
            "--priority=3",
            '--predicates=[["opcode", ["=", "OP_ID", "OP_NODE_REMOVE"]]]',
            "--action=REJECT",
            "--reason=kept",
        ]
    )
    export = os.path.join(cluster.paths.export_dir, EXPORT)
    os.makedirs(export)
    with open(os.path.join(export, "config.ini"), "w") as file:
        file.write(f"[export]\nversion=0\n[instance]\nname={EXPORT}\n")
    add_network(cluster)


def add_network(cluster: TestCluster) -> None:
    network = {
        **next(iter(CONFIG["networks"].values())),
        "name": "lan",
        "uuid": NETWORK,
        "tags": ["lan-tag"],
    }
    path = f"{cluster.paths.livelock_dir}/test_{os.getpid()}"
    with LiveLock.create(path) as lock:
        owner = ClientId("test", lock.path, os.getpid())
        with WConfClient(cluster.paths, owner) as client:
            outcome, _ = client.wait_locks(0, [("cluster/BGL", "shared")], 60.0)
            assert outcome == "granted"
            client.create(ObjectKind.NETWORK, network)
            client.free_locks()


@pytest.fixture(scope="module")
def queried() -> Iterator[TestCluster]:
    """Instance a runs on node1, b on node2, whose daemon is down, c on node3, which is offline."""
    with own_cluster() as cluster:
        fill(cluster)
        cluster.gnt(f"node modify --offline=yes --force {AWAY}")
        daemon_control.stop_daemon(cluster.paths_of(AWAY), "ganeti-noded")
        daemon_control.stop_daemon(cluster.paths_of(DEAD), "ganeti-noded")
        yield cluster


@pytest.fixture
def client(queried: TestCluster) -> Iterator[LuxiClient]:
    with queried.client() as connected:
        yield connected


# All fields.


def rows_by_name(answer: QueryResponse) -> dict[str, dict[str, tuple[int, Any]]]:
    names = [field.name for field in answer.fields]
    rows = [dict(zip(names, row, strict=True)) for row in answer.data]
    return {str((row.get("name") or row.get("id") or row.get("uuid"))[1]): row for row in rows}


def all_fields(client: LuxiClient, resource: str) -> QueryResponse:
    fields = [field.name for field in client.query_fields(resource).fields]
    assert len(fields) == GOLDEN["counts"][resource] + len(OWN_FIELDS.get(resource, ()))
    return client.query(resource, fields)


OF_KIND = {
    "text": str,
    "bool": bool,
    "number": int,
    "float": (int, float),
    "unit": int,
    "timestamp": (int, float, list),
    "other": object,
}


@pytest.mark.shows("2.12/luxid/queries")
@pytest.mark.parametrize("resource", RESOURCES)
def test_all_fields_of_everything(client: LuxiClient, resource: str) -> None:
    started = time.monotonic()
    answer = all_fields(client, resource)
    assert time.monotonic() - started < SLOW_MACHINE_S
    assert resource == "lock" or answer.data
    for row in answer.data:
        for field, (status, value) in zip(answer.fields, row, strict=True):
            assert status in (0, NODATA, UNAVAIL, OFFLINE), field
            if status != 0:
                assert value is None, field
            else:
                assert isinstance(value, OF_KIND[field.kind]), (field, value)  # type: ignore[arg-type]
                assert field.kind == "bool" or field.kind == "other" or not isinstance(value, bool)


@pytest.mark.shows(
    "backend/roles/offline-harmless", "2.12/overview/luxid-noded", "2.0/offline/instant"
)
def test_every_live_field_says_why_there_is_no_value(client: LuxiClient) -> None:
    live = [each[0] for each in GOLDEN["resources"]["node"] if each[0] in LIVE_NODE_FIELDS]
    assert set(live) == LIVE_NODE_FIELDS
    rows = rows_by_name(all_fields(client, "node"))
    assert {rows[DEAD][name] for name in live} == {(NODATA, None)}
    assert {rows[AWAY][name] for name in live} == {(OFFLINE, None)}
    here = {name for name in live if rows["node1.example.com"][name][0] == 0}
    assert here == LIVE_NODE_FIELDS - {"spfree", "sptotal"}  # there are no volume groups
    instances = rows_by_name(all_fields(client, "instance"))
    statuses = {name: row["status"] for name, row in instances.items()}
    assert statuses == {
        "a.example.com": (0, "running"),
        "b.example.com": (0, "ERROR_nodedown"),
        "c.example.com": (0, "ERROR_nodeoffline"),
    }
    for field in ("oper_state", "oper_ram", "oper_vcpus", "console"):
        assert [row[field][0] for row in instances.values()] == [0, NODATA, OFFLINE]


LIVE_NODE_FIELDS = {
    "bootid",
    "cnodes",
    "cnos",
    "csockets",
    "ctotal",
    "dfree",
    "dtotal",
    "mfree",
    "mnode",
    "mtotal",
    "spfree",
    "sptotal",
}


def test_exports_of_nodes_that_do_not_answer(client: LuxiClient) -> None:
    assert client.query("export", ["node", "export"]).data == [
        [(0, "node1.example.com"), (0, EXPORT)],
        [(0, DEAD), (NODATA, None)],
        [(0, AWAY), (OFFLINE, None)],
    ]


def test_configuration_fields_ask_no_node(client: LuxiClient) -> None:
    started = time.monotonic()
    for _ in range(20):
        client.query("instance", ["name", "pnode", "os"])
    assert time.monotonic() - started < SLOW_MACHINE_S


def test_locks_that_are_held(queried: TestCluster, client: LuxiClient) -> None:
    job_id = queried.submit("debug delay --no-master -l 0")  # once, so that a process is warm
    queried.gnt(f"job wait {job_id}")
    job_id = queried.submit("debug delay -n node1 3600")
    fields = ["name", "mode", "owner", "pending"]
    wait_until(
        lambda: [f"job{job_id}"] in [row[2] for row in client.query("lock", fields).rows()],
        "the job's locks",
    )
    queried.gnt(f"job cancel --kill --yes-do-it {job_id}")


# A node that hangs.


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal processes; one that served a call may have ended meanwhile."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@pytest.mark.shows("2.0/background/node-failures")
def test_a_node_that_hangs_delays_one_list_and_no_more(
    queried: TestCluster, client: LuxiClient
) -> None:
    def listed() -> tuple[list[list[tuple[int, Any]]], float]:
        started = time.monotonic()
        answer = client.query("node", ["name", "mtotal"], ["==", "offline", False])
        return answer.data, time.monotonic() - started

    paths = queried.paths_of(DEAD)
    daemon_control.start_daemon(paths, "ganeti-noded", hostname=DEAD)
    try:
        rows, _ = listed()
        assert [status for _, (status, _) in rows] == [0, 0]
        of_node = [each.pid for each in queried.processes() if DEAD in each.root]
        send(of_node, signal.SIGSTOP)
        try:
            rows, took_s = listed()
            assert [status for _, (status, _) in rows] == [0, NODATA]
            assert took_s < DEADLINE_S + SLOW_MACHINE_S
            for _ in range(2):
                rows, took_s = listed()
                assert [status for _, (status, _) in rows] == [0, NODATA]
                assert took_s < GRACE_S + SLOW_MACHINE_S
        finally:
            send(of_node, signal.SIGCONT)
        deadline = time.monotonic() + DEADLINE_S + SLOW_MACHINE_S
        while [status for _, (status, _) in listed()[0]] != [0, 0]:
            assert time.monotonic() < deadline
    finally:
        daemon_control.stop_daemon(paths, "ganeti-noded")


# The old methods.


def test_old_queries_answer_plain_values(client: LuxiClient) -> None:
    fields = ["name", "status", "oper_ram"]
    assert client.query_instances([], fields) == [
        ["a.example.com", "running", 128],
        ["b.example.com", "ERROR_nodedown", None],
        ["c.example.com", "ERROR_nodeoffline", None],
    ]
    assert client.query_instances(["c", "nobody", "a.example.com"], ["name"]) == [
        ["c.example.com"],
        ["a.example.com"],
    ]
    ((uuid,),) = client.query_instances(["b"], ["uuid"])
    assert client.query_instances([str(uuid)], ["name"]) == [["b.example.com"]]
    assert client.query_nodes(["node3"], ["name", "role", "mtotal"]) == [[AWAY, "O", None]]
    assert client.query_groups([], ["name", "node_cnt"]) == [["default", 3]]
    assert client.query_networks(["lan"], ["name", "tags"]) == [["lan", ["lan-tag"]]]
    assert client.query_exports([]) == [["node1.example.com", EXPORT], [DEAD, None], [AWAY, None]]
    assert client.query_exports(["node1"]) == [["node1.example.com", EXPORT]]
    ((rule, priority),) = client.query_filters(None, ["uuid", "priority"])
    assert priority == 3
    assert client.query_filters([str(rule)], ["action"]) == [["REJECT"]]
    assert client.query_filters(["no-such-rule"], ["action"]) == []


@pytest.mark.parametrize(
    "method", ["query_instances", "query_nodes", "query_groups", "query_networks"]
)
def test_old_queries_name_unknown_fields(client: LuxiClient, method: str) -> None:
    with pytest.raises(OpPrereqError, match="colour") as raised:
        getattr(client, method)([], ["name", "colour"])
    assert raised.value.ecode == ErrorCode.INVAL


def test_old_queries_take_no_locks(queried: TestCluster) -> None:
    from ganeti.transport.unix_client import UnixClient

    with UnixClient(queried.paths.query_socket) as raw:
        for method in ("QueryInstances", "QueryNodes", "QueryGroups", "QueryNetworks"):
            with pytest.raises(OpPrereqError) as raised:
                raw.call(method, [[], ["name"], True])
            assert raised.value.ecode == ErrorCode.INVAL
        with pytest.raises(OpPrereqError):
            raw.call("QueryExports", [[], True])


def test_tags_of_everything(client: LuxiClient) -> None:
    assert client.query_tags("cluster", "") == ["site:x"]
    assert client.query_tags("node", "node1") == ["rack:1"]
    assert sorted(client.query_tags("instance", "a.example.com")) == ["blue", "web"]
    assert client.query_tags("nodegroup", "default") == ["all"]
    assert client.query_tags("network", "lan") == ["lan-tag"]
    for kind, name in (("instance", "nobody"), ("disk", "x")):
        with pytest.raises(OpPrereqError, match=name if kind == "instance" else kind):
            client.query_tags(kind, name)


def test_cluster_info_and_values(queried: TestCluster, client: LuxiClient) -> None:
    info = client.query_cluster_info()
    assert info["name"] == "cluster.example.com"
    assert info["master"] == queried.master
    assert info["default_hypervisor"] == "fake"
    assert info["tags"] == ["site:x"]
    assert info["primary_ip_version"] == 4
    names = ["cluster_name", "watcher_pause", "master_node", "drain_flag", "ssh_key_bits", "x"]
    assert client.query_config_values(names) == [
        "cluster.example.com",
        None,
        queried.master,
        False,
        info["ssh_key_bits"],
        None,
    ]


# Text filters and patterns.


def listed(cluster: TestCluster, program: str, field: str, *words: str) -> list[str]:
    argv = [program, "list", "--no-headers", "-o", field, *words]
    return cluster.gnt(argv).out.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], "abc"),
        (["a"], "a"),
        (["a", "c.example.com"], "ac"),
        (["c", "a", "c"], "ca"),
        (["*"], "abc"),
        (["?.example.*"], "abc"),
        (["a*", "b"], "ab"),
        (["-F", "admin_up"], "abc"),
        (["not admin_up"], ""),
        (['name == "a"'], "a"),
        (['name = "a.example.com"'], "a"),
        (['name != "a"'], "bc"),
        (["disk.count < 1"], "c"),
        (["disk.count <= 1 and disk.count > 0"], "b"),
        (["disk.count >= 2 or disk.size/0 == 4"], "abc"),  # no data passes
        (["name =~ m/^[AB]/i"], "ab"),
        (["name !~ m#^a#"], "bc"),
        (['name =* "b*"'], "b"),
        (['name !* "b*"'], "ac"),
        (['"web" in tags'], "a"),
        (['"web" not in tags'], "bc"),
        (['(name == "a" or name == "b") and not ("blue" in tags)'], "b"),
        (['status == "running"'], "a"),
        (['pnode == "node2"'], "b"),
        (["be/vcpus == 1"], "abc"),
        (["'x' in snodes"], ""),
    ],
)
def test_instances_by_text_filter(queried: TestCluster, words: list[str], found: str) -> None:
    names = listed(queried, "instance", "name", *words)
    assert names == [f"{letter}.example.com" for letter in found]


@pytest.mark.parametrize(
    ("program", "field", "words", "found"),
    [
        ("node", "name", ["node[0-9]*"], []),
        ("node", "name", ["node?"], ["node1.example.com", DEAD, AWAY]),
        ("node", "name", ["offline or master"], ["node1.example.com", AWAY]),
        ("node", "name", ["mtotal > 0"], ["node1.example.com", DEAD, AWAY]),
        ("group", "name", ["def*"], ["default"]),
        ("group", "name", ["node_cnt == 2"], []),
        ("network", "name", ["l?n"], ["lan"]),
        ("network", "name", ['"lan-tag" in tags'], ["lan"]),
        ("job", "id", ["-F", "id == 1"], ["1"]),
        ("job", "id", ['status == "success" and id <= 2'], ["1", "2"]),
        ("job", "id", ["2", "1"], ["2", "1"]),
        (
            "job",
            "id,status,summary",
            ["99999", "1"],
            ["99999", "-", "-", "1", "success", POST_INIT],
        ),
        ("node", "name", ["node3", "node1"], [AWAY, "node1.example.com"]),
        ("network", "name", [NETWORK], ["lan"]),
    ],
)
def test_other_things_by_text_filter(
    queried: TestCluster, program: str, field: str, words: Sequence[str], found: list[str]
) -> None:
    assert listed(queried, program, field, *words) == found


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("instance", "instance 'nobody' is not known; see 'gnt-instance list'"),
        ("node", "node 'nobody' is not known; see 'gnt-node list'"),
        ("group", "node group 'nobody' is not known; see 'gnt-group list'"),
        ("network", "network 'nobody' is not known; see 'gnt-network list'"),
    ],
)
def test_a_uuid_is_a_name_and_a_name_of_nothing_is_refused(
    queried: TestCluster, program: str, text: str
) -> None:
    name, uuid = queried.gnt(f"{program} list --no-headers -o name,uuid").lines[0].split()
    assert listed(queried, program, "name", uuid) == [name]
    for words in ("nobody", f"{name} nobody"):
        outcome = queried.run(f"gnt-{program} list {words}")
        assert (outcome.status, outcome.out) == (1, "")
        assert "unknown_entity" in outcome.err
        assert text in outcome.err


def test_an_unknown_field_has_its_name_as_title(queried: TestCluster) -> None:
    outcome = queried.run("gnt-node list --separator=: -o name,colour node1")
    assert (outcome.status, outcome.lines) == (14, ["Node:colour", "node1.example.com:??"])
    assert "colour" in outcome.err


def test_values_that_scripts_evaluate(queried: TestCluster) -> None:
    words = ["instance", "list", "--no-headers", "--separator=|", "-o", "beparams,nic.names,tags"]
    values, names, tags = queried.gnt([*words, "a"]).lines[0].split("|")
    backend = ast.literal_eval(values)
    assert list(backend)[:3] == ["minmem", "maxmem", "vcpus"]
    assert ast.literal_eval(names) == [None]
    assert sorted(tags.split(",")) == ["blue", "web"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["name =="], "cannot understand"),
        (["-F", "a", "b"], "one filter"),
        (["colour == 5"], "unknown field 'colour'"),
        (["name < 5"], "cannot be compared"),
        (["oper_ram =~ /x/"], "not text"),
        (["name =~ m/(a+)+$/"], "repetition"),
        (["name =~ m/(/"], "regular expression"),
    ],
)
def test_wrong_text_filters(queried: TestCluster, words: list[str], text: str) -> None:
    queried.refused(["instance", "list", *words], text)


# Who saw success also sees the change.


def test_who_saw_success_sees_the_change(queried: TestCluster) -> None:
    rounds = 60
    with queried.client() as writer, queried.client() as reader:
        for number in range(rounds):
            tag = f"round{number}"
            op = {
                "OP_ID": "OP_TAGS_SET",
                "kind": "instance",
                "name": "a.example.com",
                "tags": [tag],
                "reason": [],
            }
            job_id = writer.submit_job([op])
            previous: list[object] | None = None
            while previous is None or previous[0] not in ("success", "error"):
                change = writer.wait_for_job_change(job_id, ["status"], previous, 1 << 40)
                previous = change.fields if change is not None else previous
            assert previous == ["success"]
            row = reader.query("instance", ["tags"], ["==", "name", "a.example.com"]).rows()
            assert tag in row[0][0], f"round {number}"  # type: ignore[operator]
            assert tag in reader.query_tags("instance", "a.example.com")


def test_external_storage_providers(queried: TestCluster) -> None:
    queried.refused("storage diagnose", "no node has an external storage provider")
    directory = os.path.join(queried.paths.es_search_path[-1], "glue")
    os.makedirs(directory)
    diagnosed = queried.run(["gnt-storage", "diagnose"])
    assert diagnosed.status == 1
    assert "Provider: glue [usable in no group]" in diagnosed.lines
    assert "status: INVALID - script(s) create, remove," in diagnosed.out
    for script in ("create", "remove", "grow", "attach", "detach", "setinfo", "verify"):
        with open(os.path.join(directory, script), "w") as file:
            os.fchmod(file.fileno(), 0o755)
    with open(os.path.join(directory, "parameters.list"), "w") as file:
        file.write("pool which pool\n")
    diagnosed = queried.gnt("storage diagnose")
    assert "Provider: glue [usable in default]" in diagnosed.lines
    assert DEAD in diagnosed.out, "it is named that one node does not answer"
    assert "pool: which pool" in queried.gnt("storage info glue").out
    queried.refused("storage info none", "no node has an external storage provider 'none'")
    assert "glue:" in queried.gnt("storage info").lines
