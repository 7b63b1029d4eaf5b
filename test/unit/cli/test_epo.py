"""The way back from an emergency power-off."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from fakes.luxi_client import FakeLuxiClient

from ganeti.cli.cluster import epo
from ganeti.cli.declaration.parser import parse
from ganeti.cli.programs import named
from ganeti.cli.run.context import Context, Terminal

NODES = ("node2", "node3")


class DarkClient(FakeLuxiClient):
    """Two nodes that are off, with an instance each; the helper fails for the first one."""

    def query_nodes(self, _names: object, fields: Sequence[str]) -> list[list[object]]:
        values = {"master": False, "offline": True, "powered": False, "group": "default"}
        more = [{"name": name, "pinst_list": [f"on-{name}"], "pip": name} for name in NODES]
        return [[{**values, **each}[field] for field in fields] for each in more]

    def query_instances(self, names: Sequence[str], _fields: Sequence[str]) -> list[list[object]]:
        return [[name, "up"] for name in names]

    def ops(self, op_id: str) -> list[Mapping[str, Any]]:
        """Return the opcodes of a kind."""
        return [op for job in self.submitted for op in job if op["OP_ID"] == op_id]


def test_a_node_that_stays_offline_keeps_no_other_dark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epo, "_is_up", lambda _node: True)
    rows = [[[0, "node2"], [2, None]], [[0, "node3"], [0, None]]]
    client = DarkClient(
        ("success", [rows], []),
        ("error", [["OpPrereqError", ["it is recorded as switched off", "wrong_state"]]], []),
        ("success", [None], []),
    )
    line = parse(named("gnt-cluster"), ["epo", "--on", "-f", *NODES], {})
    terminal = Terminal(io.StringIO(), err := io.StringIO(), io.StringIO())
    context = Context("gnt-cluster", line.command, line.options, terminal)
    context._client = client  # type: ignore[assignment]  # the fake
    assert epo.epo(context, line.options, line.args) == 1
    assert [op["node_name"] for op in client.ops("OP_NODE_SET_PARAMS")] == [*NODES]
    assert [op["instance_name"] for op in client.ops("OP_INSTANCE_STARTUP")] == ["on-node3"]
    assert err.getvalue().startswith("Node node2 stays offline: Failure: prerequisites not met")
