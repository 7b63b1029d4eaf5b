"""Nodes named on a command line."""

from __future__ import annotations

import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError, TransportError
from ganeti.base.paths import Paths
from ganeti.bootstrap.node_setup import NodeSetup
from ganeti.cli.cluster.remote import destinations
from ganeti.cli.declaration.parser import Options, parse
from ganeti.cli.instance import life
from ganeti.cli.node.add import add, port_of, set_up, shown_in_the_job
from ganeti.cli.node.leaving import failover
from ganeti.cli.node.power import _chosen_nodes, power
from ganeti.cli.programs import named
from ganeti.cli.run.context import Context, Terminal
from ganeti.cli.run.failures import NodeSetupError
from ganeti.cli.run.listing import rows_of_chosen, rows_of_nodes
from ganeti.protocol.luxi import JobChange
from ganeti.system import environment

KNOWN = ["node1.example.com", "node2.example.com"]


def context() -> Any:
    def query_nodes(names: list[str], _fields: list[str]) -> list[list[object]]:
        return [[each] for each in KNOWN if not names or each.partition(".")[0] in names]

    return SimpleNamespace(client=SimpleNamespace(query_nodes=query_nodes))


def test_all_or_those_that_are_named() -> None:
    assert rows_of_nodes(context(), [], ["name"]) == [[each] for each in KNOWN]
    assert rows_of_nodes(context(), ["node2", "node2"], ["name"]) == [[KNOWN[1]]]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["node9"], "node 'node9' is not known; see 'gnt-node list'"),
        (["node9", "node1", "nod"], "nodes 'node9', 'nod' are not known"),
    ],
)
def test_unknown_ones_are_named(names: list[str], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        rows_of_nodes(context(), names, ["name"])


GROUPS = {"g1": KNOWN[:1], "g2": KNOWN[1:]}


class GroupedClient:
    """Two groups of one node each; node2 is offline, and web1 runs on node1."""

    def query_nodes(self, names: Sequence[str], fields: Sequence[str]) -> list[list[object]]:
        rows = []
        for group, [node] in GROUPS.items():
            values = {"name": node, "offline": node == KNOWN[1], "group": group, "tags": []}
            values |= {"pinst_list": ["web1"] * (node == KNOWN[0]), "sinst_list": []}
            if not names or node.partition(".")[0] in names:
                rows.append([values.get(field) for field in fields])
        return rows

    def query_groups(self, names: Sequence[str], _fields: object) -> list[list[object]]:
        return [[each] for each in GROUPS if each in names]


def grouped_context() -> Any:
    return SimpleNamespace(client=GroupedClient())


def test_nodes_of_a_group_are_chosen() -> None:
    assert rows_of_chosen(grouped_context(), [], "g1") == [[KNOWN[0], False, "g1"]]
    assert rows_of_chosen(grouped_context(), ["node2"], "g2") == [[KNOWN[1], True, "g2"]]
    assert len(rows_of_chosen(grouped_context(), [], None, ["tags"])) == 2


@pytest.mark.parametrize(
    ("names", "group", "text", "ecode"),
    [
        ([], "nix", "node group 'nix' is not known; see 'gnt-group list'", "unknown_entity"),
        (["nix"], None, "node 'nix' is not known; see 'gnt-node list'", "unknown_entity"),
        (["node1"], "g2", f"node '{KNOWN[0]}' is not in node group 'g2'", "wrong_input"),
    ],
)
def test_wrong_names_in_a_choice_are_named(
    names: list[str], group: str | None, text: str, ecode: str
) -> None:
    options = Options({"nodes": names, "node_group": group})
    for choose in (
        lambda: rows_of_chosen(grouped_context(), names, group),
        lambda: _chosen_nodes(grouped_context(), names, group),
        lambda: destinations(grouped_context(), options),
    ):
        with pytest.raises(OpPrereqError) as caught:
            choose()
        assert (caught.value.message, caught.value.ecode) == (text, ecode)


def test_a_group_that_is_offline_is_named() -> None:
    with pytest.raises(OpPrereqError, match="not offline in node group 'g2'"):
        _chosen_nodes(grouped_context(), [], "g2")


@pytest.mark.parametrize("mode", ["nodes", "nodes-pri", "nodes-sec"])
def test_a_node_whose_instances_are_meant_is_known(mode: str) -> None:
    with pytest.raises(OpPrereqError, match="node 'nix' is not known"):
        life._find(grouped_context(), mode, ["nix"])
    found = life._find(grouped_context(), mode, ["node1"])
    assert found == ([] if mode == "nodes-sec" else ["web1"])


def test_planned_instances_are_not_failed_over() -> None:
    said: list[str] = []
    client = SimpleNamespace(
        query_nodes=lambda _names, _fields: [[KNOWN[0], ["b10", "b9"]]],
        query_instances=lambda names, _fields: [[name, True] for name in names],
    )
    cli: Any = SimpleNamespace(client=client, terminal=SimpleNamespace(error=said.append))
    options: Any = SimpleNamespace(force=True)
    assert failover(cli, options, ["node1"]) == 0
    assert [line.split(":")[0] for line in said] == [
        "Warning",
        "Warning",
        f"Node {KNOWN[0]} has no primary instances, nothing to do.",
    ]
    assert "'gnt-instance add --commit -n NODE b9'" in said[0]


def test_a_job_that_adds_a_node_shows_what_it_will_be() -> None:
    given = {"readd": False, "vm_capable": False, "secondary_ip": None}
    assert shown_in_the_job(Options(given), "192.0.2.4") == {
        "primary_ip": "192.0.2.4", "secondary_ip": "192.0.2.4", "node_setup": False,
        "master_capable": True, "hv_state": {}, "disk_state": {},
    }  # fmt: skip
    again = shown_in_the_job(Options({**given, "readd": True}), "192.0.2.4")
    assert again == {"primary_ip": "192.0.2.4", "node_setup": False}


class PortsClient:
    """A node, the master, on a port of its own; groups on theirs."""

    groups: ClassVar = {"g1": 2222, "g2": 2223}

    def query_nodes(self, _names: object, fields: list[str]) -> list[list[object]]:
        node = {"name": KNOWN[0], "master": True, "ndp/ssh_port": 2200, "group": "g2"}
        return [[node[field] for field in fields]]

    def query_groups(self, names: list[str], _fields: object) -> list[list[object]]:
        return [[name, port] for name, port in self.groups.items() if not names or name in names]


def ports_context() -> Any:
    return SimpleNamespace(client=PortsClient(), paths=Paths())


@pytest.mark.parametrize(
    ("ndparams", "group", "readd", "port"),
    [
        ({"ssh_port": "24"}, "g1", False, 24),
        ({"ssh_port": "default"}, "g1", False, 2222),
        ({"spindle_count": "1"}, "g2", False, 2223),
        (None, None, False, 22),  # of two groups; the job refuses it
        (None, None, True, 2200),
        ({"ssh_port": "default"}, None, True, 2223),
    ],
)
def test_a_machine_is_reached_on_the_port_of_its_group_or_its_own(
    ndparams: Any, group: str | None, readd: bool, port: int
) -> None:
    assert port_of(ports_context(), KNOWN[0], ndparams, group, readd=readd) == port


def test_the_only_group_tells_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PortsClient, "groups", {"default": 2222})
    assert port_of(ports_context(), "node9") == 2222


@pytest.mark.parametrize("text", ["x", "\u00b2", "1" * 5000, "-1", "", True])
def test_a_port_that_is_no_number_is_refused(text: object) -> None:
    with pytest.raises(OpPrereqError, match="is not a number"):
        port_of(ports_context(), "node9", {"ssh_port": text})


def test_an_unknown_group_is_refused_before_the_machine_is_touched() -> None:
    with pytest.raises(OpPrereqError, match="node group 'nix' is not known"):
        port_of(ports_context(), "node9", None, "nix")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"group": None}, "node1.example.com is the master; it cannot be re-added"),
        ({"group": "g1"}, "a group cannot be given when a node is re-added"),
    ],
)
def test_a_readd_that_cannot_be_is_refused_before_the_machine_is_touched(
    given: dict[str, object], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given["group"]:
        monkeypatch.setattr(
            PortsClient, "query_nodes", lambda _self, _names, _fields: [[KNOWN[0], False]]
        )
    monkeypatch.setattr(
        environment, "resolve", lambda name, _paths, **_version: (name, "192.0.2.1")
    )
    options = Options({"readd": True, "ndparams": None, **given})
    with pytest.raises(OpPrereqError, match=text):
        add(ports_context(), options, [KNOWN[0]])


class Machine:
    """A transport that notes the programs that are run."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.words: list[str] = []

    def run(self, argv: Sequence[str], **_more: object) -> Any:
        self.words += argv
        self.ran += [word for word in argv if word.rpartition("/")[2] in PROGRAMS]
        return SimpleNamespace(check=lambda: SimpleNamespace(stdout=b""))

    def describe(self) -> str:
        return "magic"


PROGRAMS = ("node-daemon-setup", "node-cleanup")


def set_up_and_fail(
    error: GenericError, *, readd: bool = False, force_join: bool = False, **known: Any
) -> tuple[bool, str]:
    """Set a machine up that cannot be entered; tell whether it was cleaned up, and what was said.

    Args:
        known: ``jobs`` and ``nodes`` of the cluster, and jobs that are still ``waiting_for``.
    """

    def answer(name: str) -> Any:
        rows = known.get(name, [])
        if isinstance(rows, GenericError):
            raise rows
        return rows

    def fail() -> None:
        raise error

    machine, said = Machine(), list[str]()
    client = SimpleNamespace(
        query_jobs=lambda _ids, _fields: answer("jobs"),
        query_nodes=lambda _names, _fields: answer("nodes"),
    )
    cli: Any = SimpleNamespace(
        client=client,
        terminal=SimpleNamespace(error=said.append),
        waiting_for=known.get("waiting_for", []),
    )
    setup = NodeSetup(
        node_name="node4",
        cluster_name="cluster",
        node_daemon_certificate="",
        ssconf={},
        force_join=force_join,
    )
    with pytest.raises(type(error)) as caught:
        set_up(cli, machine, setup, fail, readd=readd)
    assert caught.value is error
    assert len(machine.ran) in (1, 2)
    assert ("--no-backup" in machine.words) is (len(machine.ran) == 2 and not force_join)
    return len(machine.ran) == 2, "\n".join(said)


def test_a_node_that_is_taken_in_again_may_have_missed_new_ssh_keys() -> None:
    def refuse(*_args: object, **_more: object) -> Any:
        raise GenericError("permission denied")

    machine: Any = SimpleNamespace(run=refuse)
    cli: Any = SimpleNamespace(paths=Paths())
    setup = NodeSetup(
        node_name="node4", cluster_name="cluster", node_daemon_certificate="", ssconf={}
    )
    for readd in (False, True):
        with pytest.raises(NodeSetupError, match="permission denied\nRoot of this node") as caught:
            set_up(cli, machine, setup, lambda: None, readd=readd)
        assert ("'gnt-node modify --offline=no node4'" in caught.value.message) is readd


ADDED_BY_2 = [[1, "running", ["NODE_ADD(node3)"]], [2, "waiting", ["NODE_ADD(node4)"]]]


@pytest.mark.parametrize(
    ("error", "known", "text"),
    [
        (OpPrereqError("already there", "already_exists"), {"nodes": [["node4"]]}, "--readd node4"),
        (OpExecError("late"), {"nodes": [["node1"], ["node4"]]}, "it is in the cluster"),
        (OpExecError("canceled"), {"jobs": ADDED_BY_2}, "job 2 is to add it; 'gnt-job watch 2'"),
        (TransportError("away"), {"waiting_for": [7]}, "job 7 is not known to have ended"),
        (TransportError("away"), {}, "may have been submitted; 'gnt-job list'"),
        (OpExecError("no"), {"nodes": TransportError("away")}, "cannot be asked about it: away"),
    ],
)
def test_a_machine_that_may_be_a_node_is_not_cleaned_up(
    error: GenericError, known: dict[str, Any], text: str
) -> None:
    was_cleaned, said = set_up_and_fail(error, **known)
    assert not was_cleaned
    assert said.startswith("Node node4 is left as it is: ")
    assert text in said
    assert "'node-cleanup --yes-do-it'" in said


def test_a_machine_that_did_not_become_a_node_is_cleaned_up() -> None:
    others = [
        [1, "error", ["NODE_ADD(node4)"]],
        [2, "running", ["NODE_ADD(node5)"]],
        [3, "?", None],
    ]
    known: dict[str, Any] = {"jobs": others, "nodes": [["node1"]]}
    was_cleaned, said = set_up_and_fail(OpExecError("no"), **known)
    assert was_cleaned
    assert said == "Node node4 was not added; its new files are removed again"
    assert set_up_and_fail(OpExecError("no"), readd=True, **known) == (False, "")
    was_cleaned, said = set_up_and_fail(OpExecError("no"), force_join=True, **known)
    assert was_cleaned
    assert said.endswith(f"again, those of before are in {Paths().backup_dir} there")


class PowerlessClient:
    """A LuxiD with two nodes, of which the first has a helper; jobs mark nodes and then fail."""

    def __init__(self, *, error: list[object] | None, helpers: Sequence[str] = KNOWN) -> None:
        self.offline = dict.fromkeys(KNOWN, False)
        self.helpers = helpers
        self.error = error
        self.master = ""

    def query_nodes(self, names: list[str], fields: list[str]) -> list[list[object]]:
        return [
            [
                {
                    "name": name,
                    "offline": self.offline[name],
                    "ndparams": {"oob_program": "/oob" if name in self.helpers else ""},
                    "master": name == self.master,
                }[field]
                for field in fields
            ]
            for name in KNOWN
            if name in names or name.partition(".")[0] in names
        ]

    def submit_job(self, opcodes: list[dict[str, Any]]) -> int:
        marks = [each["node_name"] for each in opcodes if each["OP_ID"] == "OP_NODE_SET_PARAMS"]
        for name in marks:
            self.offline[f"{name}.example.com"] = True
        return 7

    def wait_for_job_change(self, *_: object) -> JobChange:
        return JobChange(["success", None, None], [])

    def query_jobs(self, _ids: object, _fields: object) -> list[list[object]]:
        if self.error:
            return [["error", ["success", "error"], [[], self.error]]]
        rows = [[[0, KNOWN[0]], [0, None]], [[0, KNOWN[1]], [2, None]]]
        return [["success", ["success"] * 3, [[], [], rows]]]


def switch_off(client: PowerlessClient, *names: str) -> tuple[int | GenericError, str]:
    """Run the command; returns its status, or the error that it raised, and its errors."""
    line = parse(named("gnt-node"), ["power", "-f", "off", *names], {})
    out, err = io.StringIO(), io.StringIO()
    terminal = Terminal(out, err, io.StringIO())
    context = Context("gnt-node", line.command, line.options, terminal)
    context._client = client  # type: ignore[assignment]
    try:
        return power(context, line.options, line.args), err.getvalue()
    except GenericError as error:
        return error, err.getvalue()


def test_no_node_is_marked_offline_where_one_cannot_be_switched_off() -> None:
    client = PowerlessClient(error=None, helpers=KNOWN[:1])
    error, _ = switch_off(client, "node1", "node2")
    assert isinstance(error, OpPrereqError)
    assert error.message.startswith(f"no out-of-band helper is set for {KNOWN[1]}, so nothing")
    assert not any(client.offline.values())


def test_no_node_is_marked_offline_where_one_is_the_master() -> None:
    client = PowerlessClient(error=None)
    client.master = KNOWN[1]
    error, _ = switch_off(client, "node1", "node2")
    assert isinstance(error, OpPrereqError)
    assert error.message.startswith(f"node {KNOWN[1]} is the master node")
    assert not any(client.offline.values())


@pytest.mark.parametrize(
    ("error", "marked"), [(None, KNOWN[1:]), (["OpExecError", ["the helper broke"]], KNOWN)]
)
def test_nodes_that_were_marked_and_still_have_power_are_named(
    error: list[object] | None, marked: list[str]
) -> None:
    _, err = switch_off(PowerlessClient(error=error), "node1", "node2")
    assert err.splitlines() == [
        f"Node {name} was marked offline: 'gnt-node modify --offline=no {name}' takes that back"
        for name in marked
    ]


def test_a_node_that_was_offline_before_is_not_named() -> None:
    client = PowerlessClient(error=None)
    client.offline[KNOWN[1]] = True
    assert switch_off(client, "node1", "node2") == (1, "")
