"""An opcode is its class and its unit: the recipe of doc/development.md, followed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.grown_tree import GrownTree

OPCODE = '''
class OpTestGreeting(OpCode, frozen=True, kw_only=True):
    """Greet a node."""

    SUMMARY_FIELD = "node_name"
    RESULT = list[str]

    node_name: NonEmptyStr
    times: NonNegativeInt = 1


'''
UNIT = '''
"""Operations that greet."""

from __future__ import annotations

from ganeti.base.errors import OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive
from ganeti.objects.model import Node
from ganeti.opcodes.test import OpTestGreeting


class LUTestGreeting(LogicalUnit[OpTestGreeting, Node, Node]):
    """Greet a node."""

    def resolve(self) -> Node:
        return lookup.require_nodes(self.config, [self.op.node_name])[0]

    def locks(self, found: Node) -> LockNeed:
        return exclusive(LockLevel.NODE, [found.uuid])

    def plan(self, found: Node) -> Node:
        if not self.op.times:
            raise OpPrereqError("a greeting of no words is none")
        return found

    def execute(self, plan: Node) -> list[str]:
        version = self.context.nodes.on(plan, "greet it").version()
        return [f"good morning, {plan.name}, of {version}"] * self.op.times
'''
SCRIPT = """
import json, sys

from fakes.fake_cluster import FakeCluster

from ganeti.base.errors import GenericError
from ganeti.opcodes.registry import decode_opcode
from ganeti.opcodes.summary import summary

cluster = FakeCluster(sys.argv[1])
refusals = []
for settings in ({"node_name": "node1", "times": 0}, {"node_name": "nobody"}, {"times": 1}):
    try:
        cluster.execute("OP_TEST_GREETING", **settings)
    except GenericError as err:
        refusals.append(err.message)
result = cluster.execute("OP_TEST_GREETING", node_name="node1", times=2)
print(json.dumps({
    "summary": summary(decode_opcode({"OP_ID": "OP_TEST_GREETING", "node_name": "node1"})),
    "result": result,
    "refusals": refusals,
    "locked": str(cluster.config.lock_history),
}))
"""


@pytest.mark.shows("2.0/locking-library/transparent", "2.0/lock-code/documented")
def test_an_opcode_is_its_class_and_its_unit(tmp_path: Path) -> None:
    tree = GrownTree(tmp_path)
    tree.add_row("ganeti/opcodes/test.py", "class OpTestDummy(", OPCODE)
    tree.add_file("ganeti/logical_units/greetings.py", UNIT)
    told = json.loads(tree.run(SCRIPT, str(tmp_path / "cluster")))
    assert told["summary"] == "TEST_GREETING(node1)"
    greeting = "good morning, node1.example.com, of 3000000"
    assert told["result"] == [greeting, greeting]
    no_words, no_node, no_name = told["refusals"]
    assert no_words == "a greeting of no words is none"
    assert "nobody" in no_node
    assert "node_name" in no_name
    assert "node/" in told["locked"]
