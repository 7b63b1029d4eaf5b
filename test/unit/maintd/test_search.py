"""Tests of ganeti/maintd/search.py and ganeti/maintd/balance.py."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources.listings import from_listings
from ganeti.maintd.balance import Answer, GroupAnswer, Move, Question, choose, opcodes_of
from ganeti.maintd.search import balance, restricted
from ganeti.opcodes.instance import (
    OpInstanceFailover,
    OpInstanceMigrate,
    OpInstanceReplaceDisks,
    ReplaceDisksMode,
)

POLICY = {"vcpu-ratio": 4.0, "spindle-ratio": 32.0}
QUESTION = Question(busy=[], fixed=[], uses_load=False, moves_disks=False)


def cluster(primaries: str, template: str = "drbd", secondaries: str = "", **more: Any) -> Snapshot:
    """Return nodes a to e with an instance for each letter, the primary node of it.

    Args:
        more: {index of an instance: fields of it}.
    """
    group = {"uuid": "g", "name": "default", "alloc_policy": "preferred"}
    memory = {"mtotal": 32768, "mnode": 1024, "dtotal": 10**6, "dfree": 900000}
    nodes = [
        {
            **memory,
            "name": name,
            "mfree": 31744 - 1024 * primaries.count(name),
            "offline": False,
            "drained": False,
            "vm_capable": True,
            "role": "C",
            "ndparams": {},
            "group.uuid": "g",
            "tags": [],
            "pip": "192.0.2.1",
            "ctotal": 8,
            "cnos": 1,
            "sptotal": 1,
            "spfree": 1,
        }
        for name in "abcde"
    ]
    instances = [
        {
            "name": f"i{number}",
            "status": "running",
            "pnode": primary,
            "snodes": [secondary] if template == "drbd" else [],
            "disk_template": template,
            "disk_usage": 1152,
            "beparams": {"maxmem": 1024, "vcpus": 1, "spindle_use": 1},
            "tags": [],
            "disk.sizes": [1024],
            "disk.spindles": [None],
            "nic.networks": [],
            **more.get(f"i{number}", {}),
        }
        for number, (primary, secondary) in enumerate(
            zip(primaries, secondaries or "b" * len(primaries), strict=True)
        )
    ]
    groups = [{**group, "ipolicy": POLICY, "tags": []}]
    return from_listings({"tags": [], "ipolicy": POLICY}, groups, nodes, instances)


def names(moves: list[Move]) -> list[str]:
    return [f"{move.instance} {' '.join(move.actions)}" for move in moves]


def test_instances_with_a_copy_change_sides_and_move_their_disks_only_if_that_is_wanted() -> None:
    full = cluster("aaaaaa", secondaries="bbccdd")
    [found] = balance(full, QUESTION)
    assert found.group == "default"
    assert len(found.moves) >= 3
    assert {action for move in found.moves for action in move.actions} == {"f"}
    assert [move.score for move in found.moves] == sorted(
        (move.score for move in found.moves), reverse=True
    )
    [more] = balance(full, replace(QUESTION, moves_disks=True))
    assert more.moves[-1].score < found.moves[-1].score
    assert any(action.startswith("r:") for move in more.moves for action in move.actions)


def test_busy_nodes_and_instances_at_rest_are_left_alone() -> None:
    full = cluster("aaaaaaaa", "sharedfile")
    [found] = balance(full, replace(QUESTION, busy=["b", "e"], fixed=["i0", "i1"]))
    assert len(found.moves) >= 3
    for move in found.moves:
        assert not {"b", "e"} & set(move.nodes)
        assert move.instance not in ("i0", "i1")
    [none] = balance(full, replace(QUESTION, busy=["a"]))
    assert none.moves == []


@pytest.mark.parametrize("status", ["ERROR_down", "USER_down", "ERROR_up", "ADMIN_offline"])
def test_who_is_not_as_it_should_be_is_not_moved(status: str) -> None:
    full = cluster("aaa", "sharedfile", i0={"status": status}, i1={"status": "ADMIN_down"})
    found = restricted(full, QUESTION).instances
    assert {name for name, each in found.items() if each.is_movable} == {"i1", "i2"}


def test_what_is_on_a_drained_node_is_its_operators_business() -> None:
    full = cluster("aaaa", "sharedfile")
    drained = {**full.nodes, "a": replace(full.nodes["a"], is_usable=False)}
    [found] = balance(replace(full, nodes=drained), QUESTION)
    assert found.moves == []


def test_a_search_that_takes_too_long_is_broken_off() -> None:
    [found] = balance(cluster("a" * 400, "sharedfile"), replace(QUESTION, limit_s=0.05))
    assert found.is_late


def test_once_a_round_is_full_nobody_searches_on() -> None:
    full = cluster("aaaaaaaa", "sharedfile")
    [all_moves] = balance(full, QUESTION)
    [first] = balance(full, replace(QUESTION, threshold=0.1))
    assert len(all_moves.moves) > 2
    assert first.moves == all_moves.moves[:2]  # the second one leaves the same node
    chosen = choose(Answer([first]), 0.1)
    assert list(chosen.moves) == all_moves.moves[:1]
    [enough] = balance(full, replace(QUESTION, threshold=all_moves.score))
    assert enough.moves == all_moves.moves


def moves(*nodes: str, scores: tuple[float, ...]) -> list[Move]:
    return [
        Move(f"i{number}", list(pair), ["f"], True, score)
        for number, (pair, score) in enumerate(zip(nodes, scores, strict=True))
    ]


def test_the_first_moves_that_share_no_node_make_a_round() -> None:
    found = GroupAnswer("one", 1.0, moves("ab", "cd", "be", "fg", scores=(0.9, 0.8, 0.7, 0.6)))
    chosen = choose(Answer([found], []), 0.1)
    assert [move.instance for move in chosen.moves] == ["i0", "i1"]
    assert chosen.remarks == ()


def test_what_gains_less_than_the_threshold_is_not_done_and_said() -> None:
    one = GroupAnswer("one", 1.0, moves("ab", "cd", scores=(0.96, 0.92)))
    two = GroupAnswer("2", 5.0, [], is_late=True)
    answer = Answer([one, two], ["the load is left out: it is not known of n1"])
    assert choose(answer, 0.1).moves == ()
    assert choose(answer, 0.1).remarks == (
        "the load is left out: it is not known of n1",
        "group one has the score 1.0000: 2 moves gain 0.0800 (threshold 0.1)",
        "group 2 has the score 5.0000: no move gains enough as far as the search got (threshold 0.1)",
    )
    assert len(choose(answer, 0.079).moves) == 2
    assert choose(Answer([two], []), 0.0).moves == ()


def test_an_instance_that_runs_is_never_stopped_for_the_balance() -> None:
    move = Move("i", ["a", "b"], ["f", "r:c"], True, 0.0)
    assert opcodes_of(move) == (
        OpInstanceMigrate(instance_name="i"),
        OpInstanceReplaceDisks(
            instance_name="i", mode=ReplaceDisksMode.NEW_SECONDARY, remote_node="c"
        ),
    )
    assert not OpInstanceMigrate(instance_name="i").allow_failover
    assert opcodes_of(replace(move, actions=["fa:c"], is_running=False)) == (
        OpInstanceFailover(instance_name="i", target_node="c"),
    )
    assert opcodes_of(replace(move, actions=["fa:c"])) == (
        OpInstanceMigrate(instance_name="i", target_node="c"),
    )
