"""A node call is a declaration and a handler: the recipe of doc/development.md, followed."""

from __future__ import annotations

import json
from pathlib import Path

from fakes.grown_tree import GrownTree

DECLARATION = '''
    @rpc.changes(rpc.NORMAL_S, rpc.Place.CHILD)
    def dummy_greeting(self, name: str, times: int, *, text: CompressedText) -> list[str]:
        """Greet somebody."""

'''
HANDLER = """
    def dummy_greeting(self, name, times, *, text):
        if times < 0:
            raise GenericError(f"cannot greet {name} {times} times on {self.hostname}")
        return [f"{self.hostname}: {text.content.decode()} {name}"] * times

"""
SCRIPT = """
import json

from fakes.noded_node import PORT, NodedNode, short_directory

from ganeti.base.errors import OpExecError, OpPrereqError
from ganeti.clients.node_rpc import NodeRpcClient, Target
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import CompressedText

with (
    short_directory() as base,
    NodedNode(base) as node,
    NodeRpcClient(node.paths) as client,
):
    target = Target(node.name, node.address, PORT)
    wrong, text = {}, CompressedText("good morning, " * 1000)
    for calls in (client.on(target, "greet"), client.check(target, "greet")):
        try:
            calls.dummy_greeting("Ada", -1, text=text)
        except (OpExecError, OpPrereqError) as err:
            wrong[type(err).__name__] = err.message
    answers = client.call_all(NodeCalls.dummy_greeting, [target], "Ada", 1, text=text)
    print(json.dumps({
        "done": client.on(target, "greet").dummy_greeting("Ada", 2, text=text),
        "all": answers[node.name].payload,
        "wrong": wrong,
    }))
"""


def test_a_node_call_is_a_declaration_and_a_handler(tmp_path: Path) -> None:
    tree = GrownTree(tmp_path)
    tree.add_row(
        "ganeti/protocol/node_calls.py",
        "    @rpc.reads(rpc.DELAY_MARGIN_S, extra_s=rpc.DELAY_MARGIN_S)\n    def test_delay(",
        DECLARATION,
    )
    tree.add_row("ganeti/node_ops/machine/node.py", "    def test_delay(", HANDLER)
    told = json.loads(tree.run(SCRIPT))
    greeting = "node1.example.com: " + "good morning, " * 1000 + " Ada"
    assert told["done"] == [greeting] * 2
    assert told["all"] == [greeting]
    refusal = "cannot greet Ada -1 times on node1.example.com"
    assert all(refusal in text for text in told["wrong"].values())
    assert set(told["wrong"]) == {"OpExecError", "OpPrereqError"}
