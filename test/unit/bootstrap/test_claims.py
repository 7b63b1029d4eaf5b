"""Several nodes announce themselves as the next master at the same moment: one goes on."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import chance as chances

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap.failover import Announcement, Failover, FailoverOptions, Outlook
from ganeti.clients.node_rpc import NodeRpcClient, RpcResult, Target
from ganeti.jobs.votes import Answer, Poll, Takeover, may_ask_again
from ganeti.protocol.node_rpc import NodeCall
from ganeti.protocol.node_rpc_values import NodeFacts
from ganeti.store import master_facts
from ganeti.store.master_facts import Claim

SERIAL = 10_017


class Nodes:
    """Nodes that are directories, and a client whose calls reach them in any order."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.names = names
        self.paths = {name: Paths(str(root / name)) for name in names}
        for paths in self.paths.values():
            os.makedirs(paths.data_dir)
            os.makedirs(paths.lock_dir)

    def claims(self) -> dict[str, Claim]:
        return {name: master_facts.read_claim(paths) for name, paths in self.paths.items()}

    def announcement(self, own_name: str, chance: random.Random) -> Announcement:
        facts = {name: master_facts.own_facts(paths) for name, paths in self.paths.items()}
        answers = {name: Answer("old", known) for name, known in facts.items()}
        targets = {name: Target(name, "192.0.2.1") for name in self.names if name != own_name}
        rpc = Calls(self, chance)
        poll = Poll(own_name, list(self.names), answers, {})
        return Announcement(self.paths[own_name], rpc, poll, SERIAL, targets)


class Calls(NodeRpcClient):
    def __init__(self, nodes: Nodes, chance: random.Random) -> None:
        self._nodes = nodes
        self._chance = chance

    def perform(
        self, call: NodeCall, targets: Mapping[Target, Sequence[object]]
    ) -> dict[str, RpcResult[Any]]:
        order = list(targets)
        self._chance.shuffle(order)
        return {each.name: self._one(call.name, each.name, targets[each]) for each in order}

    def _one(self, call: str, node: str, args: Sequence[object]) -> RpcResult[Any]:
        paths = self._nodes.paths[node]
        if call == "master_facts":
            return RpcResult(node, payload=master_facts.own_facts(paths))
        assert call == "master_claim"
        known, serial_no, name = args
        assert isinstance(known, int)
        assert isinstance(serial_no, int)
        try:
            master_facts.take_claim(paths, known_serial=known, claim=Claim(serial_no, str(name)))
        except GenericError as err:
            return RpcResult(node, error=err.message)
        return RpcResult(node, payload=None)


def race(nodes: Nodes, authors: Sequence[str], chance: random.Random) -> dict[str, str]:
    """Let some nodes announce themselves at once; returns why it was refused to whom."""
    made = {name: nodes.announcement(name, random.Random(chance.random())) for name in authors}
    start = threading.Barrier(len(authors))
    refused: dict[str, str] = {}

    def attempt(name: str) -> None:
        start.wait(60)
        try:
            made[name].make(no_voting=False)
        except OpPrereqError as err:
            refused[name] = err.message

    threads = [threading.Thread(target=attempt, args=[name]) for name in authors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return refused


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize(("count", "authors"), [(2, 2), (3, 2), (4, 2), (4, 3), (6, 3), (5, 5)])
def test_of_several_at_once_exactly_one_is_promised_the_majority(
    tmp_path: Path, count: int, authors: int, number: int
) -> None:
    nodes = Nodes(tmp_path, [f"n{number}" for number in range(count)])
    contenders = list(nodes.names)[:authors]
    refused = race(nodes, contenders, random.Random(chances.seed() + number))
    winners = [name for name in contenders if name not in refused]
    assert len(winners) == 1, refused
    holders = [name for name, claim in nodes.claims().items() if claim.name == winners[0]]
    assert len(holders) > count // 2, nodes.claims()
    assert winners[0] in holders
    assert {claim.name for claim in nodes.claims().values()} <= {"", winners[0]}
    for text in refused.values():
        assert "announced itself as the next master" in text


def test_nodes_that_are_gone_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(tmp_path, ["n1", "n2", "n3"])
    announcement = nodes.announcement("n1", random.Random(1))

    def gone(_self: object, _call: str, node: str, _args: object) -> RpcResult:
        return RpcResult(node, error="connection refused", address="192.0.2.1:1811")

    with monkeypatch.context() as patch:
        patch.setattr(Calls, "_one", gone)
        patch.setattr(Announcement, "_may_ask_again", lambda _self: pytest.fail("asked whom?"))
        with pytest.raises(OpPrereqError, match=r"too few nodes agree .* connection refused"):
            announcement.make(no_voting=False)
    assert {claim.name for claim in nodes.claims().values()} == {""}


def test_who_withdraws_takes_back_only_his_own(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, ["n1", "n2", "n3"])
    loser = nodes.announcement("n2", random.Random(1))
    winner = nodes.announcement("n1", random.Random(1))
    winner.make(no_voting=False)
    master_facts.take_claim(nodes.paths["n2"], known_serial=SERIAL, claim=Claim())  # not yet heard
    with pytest.raises(OpPrereqError, match="n1 has announced itself"):
        loser.make(no_voting=False)
    claims = nodes.claims()
    assert (claims["n1"].name, claims["n3"].name) == ("n1", "n1")


CASES = [  # who holds which claim, of serial number; may n2 ask again?
    ([("n2", 9), ("n2", 9), ("n3", 9), ("n3", 9)], True),
    ([("n2", 9), ("n2", 9), ("n1", 9), ("n1", 9)], False),
    ([("n2", 9), ("n3", 9), ("n3", 9), ("n3", 9)], False),
    ([("n2", 9), ("", 0), ("", 0), ("", 0)], True),
    ([("n2", 9), ("n1", 4), ("n1", 4), ("n2", 9)], True),
    ([("n2", 9), ("n1", 12), ("n2", 9), ("n2", 9)], False),
]


@pytest.mark.parametrize(("claims", "expected"), CASES)
def test_only_the_first_of_equals_asks_again(
    claims: Sequence[tuple[str, int]], expected: bool
) -> None:
    facts = [NodeFacts(master_name="old", claim_name=n, claim_serial=s) for n, s in claims]
    assert may_ask_again(facts, own_name="n2", serial_no=9, needed=3) is expected


def outlook(*hand_over: str) -> Outlook:
    plan = Takeover(
        config_from="n1",
        serial_no=SERIAL,
        hand_over=hand_over,
        queue_from=("n1",),
        is_complete=True,
        warnings=(),
    )
    return Outlook(Poll("n1", ["n1"], {}), plan, b"", {})


@pytest.mark.parametrize(("found", "is_late"), [(("n2",), False), ((), False), (("n3",), True)])
def test_who_announced_itself_while_the_old_master_stopped_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Sequence[str], is_late: bool
) -> None:
    paths = Paths(str(tmp_path))
    late = Failover(paths, "n1", NodeRpcClient(paths), FailoverOptions(), print)
    monkeypatch.setattr(late, "_look", lambda: outlook(*found))
    if is_late:
        with pytest.raises(OpPrereqError, match="n3 announced itself"):
            late._look_after_stop(outlook("n2"))
    else:
        assert late._look_after_stop(outlook("n2")) == outlook(*found)
