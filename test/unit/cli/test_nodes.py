"""Nodes named on a command line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.cli.declaration.parser import Options
from ganeti.cli.node.add import shown_in_the_job
from ganeti.cli.node.leaving import failover
from ganeti.cli.run.listing import rows_of_nodes

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
