"""Instances leave nodes and groups: by which steps, and what stands in the way."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fakes.allocator_questions import Draw, Json, decoded, group, instance, node, question
from fakes.chance import seed
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.allocation.answers import Answer, Question, answer
from ganeti.allocation.model import Rules
from ganeti.allocation.questions import state_of
from ganeti.allocation.state import ClusterState
from ganeti.allocation.tags import meanings_of
from ganeti.base.errors import GenericError
from ganeti.opcodes.registry import decode_opcode

MODES = ("all", "primary-only", "secondary-only")
seeds = st.integers(min_value=0, max_value=1 << 30).map(lambda number: number + seed())


def ask(content: Json, rules: Rules | None = None) -> tuple[ClusterState, Answer]:
    request = decoded(content)
    before = state_of(request)
    asked = Question(before, meanings_of(request.cluster_tags), rules or Rules())
    return before, answer(asked, request.request)


def result(content: Json) -> Any:
    return ask(content)[1].response.result


def evacuation(mode: str, *names: str) -> Json:
    return {"type": "node-evacuate", "instances": list(names), "evac_mode": mode}


def change(*names: str, to: tuple[str, ...] = ()) -> Json:
    return {"type": "change-group", "instances": list(names), "target_groups": list(to)}


def steps(job: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """Return the opcodes of a job, short: (operation, where to)."""
    short = {"OP_INSTANCE_MIGRATE": "switch", "OP_INSTANCE_REPLACE_DISKS": "mirror"}
    return [
        (short[opcode["OP_ID"]], opcode.get("remote_node") or opcode.get("target_node"))
        for opcode in job
    ]


FOUR = {name: node() for name in ("n1", "n2", "n3", "n4")}
ONE = {"i": instance(["n1", "n2"])}


@pytest.mark.shows("backend/primary/of-node")
def test_a_mirrored_instance_leaves_both_nodes_by_three_steps() -> None:
    moved, failed, jobs = result(question(evacuation("all", "i"), FOUR, ONE))
    assert (moved, failed) == ([("i", "default", ["n3", "n4"])], [])
    assert [steps(job) for job in jobs] == [[("mirror", "n3"), ("switch", None), ("mirror", "n4")]]


def test_a_mirrored_instance_leaves_its_primary_node_by_switching() -> None:
    moved, _, jobs = result(question(evacuation("primary-only", "i"), FOUR, ONE))
    assert moved == [("i", "default", ["n2", "n1"])]
    assert [steps(job) for job in jobs] == [[("switch", None)]]


def test_a_mirrored_instance_leaves_its_secondary_node_by_a_new_mirror() -> None:
    moved, _, jobs = result(question(evacuation("secondary-only", "i"), FOUR, ONE))
    assert moved == [("i", "default", ["n1", "n3"])]
    assert [steps(job) for job in jobs] == [[("mirror", "n3")]]


@pytest.mark.parametrize("second", [node(), node(offline=True)])
def test_no_new_mirror_is_made_from_a_node_that_is_offline(second: Json) -> None:
    nodes = FOUR | {"n1": node(offline=True), "n2": second}
    moved, [(_, why)], jobs = result(question(evacuation("secondary-only", "i"), nodes, ONE))
    assert (moved, jobs) == ([], [])
    assert "primary node n1 is offline" in why
    assert "'gnt-instance failover i' first" in why
    _, found = ask(question(relocation("i", "n2"), nodes, ONE))
    assert not found.response.success
    assert "primary node n1 is offline" in found.response.info


def test_from_a_node_that_is_offline_the_mirror_takes_over_first() -> None:
    nodes = FOUR | {"n1": node(offline=True)}
    _, _, jobs = result(question(evacuation("all", "i"), nodes, ONE))
    switches = [("switch", None), ("mirror", "n3"), ("switch", None), ("mirror", "n4")]
    assert [steps(job) for job in jobs] == [switches]


@pytest.mark.parametrize("mode", ["all", "primary-only"])
@pytest.mark.parametrize(
    "template", ["sharedfile", "ext", "rbd", "gluster", "blockdev", "diskless"]
)
def test_an_instance_on_shared_storage_goes_to_another_node(mode: str, template: str) -> None:
    nodes = FOUR | {"n2": node(free_memory=2000)}
    instances = {"i": instance(["n1"], template)}
    moved, failed, jobs = result(question(evacuation(mode, "i"), nodes, instances))
    assert (moved, failed) == ([("i", "default", ["n3"])], [])
    assert [steps(job) for job in jobs] == [[("switch", "n3")]]


@pytest.mark.parametrize(
    ("template", "mode", "reason"),
    [
        (
            "plain",
            "all",
            "its disks .template plain. are on node n1 only; use 'gnt-instance move i'",
        ),
        ("file", "primary-only", "its disks .template file. are on node n1 only"),
        ("ext", "secondary-only", "with disk template ext it has no secondary node"),
    ],
)
def test_what_cannot_be_evacuated_says_why(template: str, mode: str, reason: str) -> None:
    instances = {"i": instance(["n1"], template)}
    moved, [(name, why)], jobs = result(question(evacuation(mode, "i"), FOUR, instances))
    assert (moved, name, jobs) == ([], "i", [])
    assert re.match(reason, why), why


def test_an_unusable_secondary_node_cannot_take_over() -> None:
    nodes = FOUR | {"n2": node(drained=True)}
    _, [(_, why)], _ = result(question(evacuation("primary-only", "i"), nodes, ONE))
    assert why == "its secondary node n2 is offline, drained or not vm_capable"
    nodes = FOUR | {"n2": node(free_memory=300)}
    _, [(_, why)], _ = result(question(evacuation("primary-only", "i"), nodes, ONE))
    assert why == "its secondary node n2 cannot run it: memory"


@pytest.mark.parametrize(
    ("second", "tags", "reason"),
    [(node(total_cpus=0), [], "virtual CPUs"), (node(), ["s:a"], "exclusion tags")],
)
def test_soft_limits_do_not_keep_an_instance_of_a_dead_node_down(
    second: Json, tags: list[str], reason: str
) -> None:
    instances = {"i": instance(["n1", "n2"], tags=tags), "j": instance(["n2", "n3"], tags=tags)}
    wish, more = evacuation("primary-only", "i"), {"cluster_tags": ["htools:iextags:s"]}
    nodes = FOUR | {"n2": second}
    _, [(_, why)], _ = result(question(wish, nodes, instances, **more))
    assert why == f"its secondary node n2 cannot run it: {reason}"
    nodes |= {"n1": node(offline=True)}
    moved, _, [job] = result(question(wish, nodes, instances, **more))
    assert (moved, steps(job)) == ([("i", "default", ["n2", "n1"])], [("switch", None)])
    nodes |= {"n2": second | {"free_memory": 300}}
    _, [(_, why)], _ = result(question(wish, nodes, instances, **more))
    assert why == "its secondary node n2 cannot run it: memory"


@pytest.mark.parametrize(
    "wish", [evacuation("all", "i"), {"type": "relocate", "name": "i", "disk_space_total": 0}]
)
def test_nor_do_they_where_any_node_could_run_it(wish: Json) -> None:
    tags = ["s:a"]
    places = {"i": ["n1"], "j": ["n2"], "k": ["n3"]}
    instances = {name: instance(where, "ext", tags=tags) for name, where in places.items()}
    nodes = {"n1": node(), "n2": node(), "n3": node(free_memory=9000)}
    if wish["type"] == "relocate":
        wish = wish | {"relocate_from": ["n1"]}
    more = {"cluster_tags": ["htools:iextags:s"]}
    _, found = ask(question(wish, nodes, instances, **more))
    assert "exclusion tags: 2" in f"{found.response}"
    nodes["n1"] = node(offline=True)
    _, found = ask(question(wish, nodes, instances, **more))
    assert found.after.instances["i"].nodes == ("n2",)
    del instances["k"]  # a node without a conflict is better
    _, found = ask(question(wish, nodes, instances, **more))
    assert found.after.instances["i"].nodes == ("n3",)


def test_an_instance_in_two_groups_says_how_it_comes_into_one() -> None:
    nodes = FOUR | {"n2": node(group="g2")}
    groups = {"g1": group(), "g2": group("second")}
    _, [(_, why)], _ = result(question(evacuation("all", "i"), nodes, ONE, groups))
    assert "nodes n1 and n2 are in different groups; 'gnt-instance change-group i'" in why


def test_each_move_is_planned_in_the_state_that_those_before_leave() -> None:
    nodes = {"n1": node(free_memory=4000), "n2": node(free_memory=4500), "n3": node()}
    instances = {name: instance(["n1"], "ext", 4000) for name in "abcd"}
    moved, failed, _ = result(question(evacuation("all", *"abcd"), nodes, instances))
    assert [name for name, *_ in moved] == ["a", "b", "c"]
    assert failed == [
        (
            "d",
            (
                "group default: 2 nodes to choose from, refused as primary node (memory: 2); left out"
                " (ruled out by the request: 1)"
            ),
        )
    ]


@pytest.mark.parametrize("opcode", ["switch", "mirror"])
def test_opcodes_have_exactly_the_specified_form(opcode: str) -> None:
    _, _, [job] = result(question(evacuation("all", "i"), FOUR, ONE))
    (found,) = [each for each in job if steps([each])[0][0] == opcode][:1]
    common = {"instance_name": "i", "ignore_ipolicy": False}
    expected = {
        "switch": {
            "OP_ID": "OP_INSTANCE_MIGRATE",
            "allow_runtime_changes": False,
            "cleanup": False,
            "allow_failover": True,
            "ignore_hvversions": True,
        },
        "mirror": {
            "OP_ID": "OP_INSTANCE_REPLACE_DISKS",
            "early_release": False,
            "mode": "replace_new_secondary",
            "disks": [],
            "remote_node": "n3",
        },
    }
    assert found == common | expected[opcode]
    decode_opcode(found)


TWO_GROUPS = {
    "g1": group(),
    "g2": group("second"),
    "g3": group("third", alloc_policy="last_resort"),
}
IN_GROUPS = FOUR | {
    f"{name}{number}": node(group=uuid)
    for name, uuid in (("m", "g2"), ("o", "g3"))
    for number in (1, 2)
}


def test_a_change_of_the_group_goes_to_the_preferred_one() -> None:
    moved, _, jobs = result(question(change("i"), IN_GROUPS, ONE, TWO_GROUPS))
    assert moved == [("i", "second", ["m1", "m2"])]
    assert [steps(job) for job in jobs] == [[("mirror", "m1"), ("switch", None), ("mirror", "m2")]]


@pytest.mark.parametrize(
    ("mirror", "is_offline", "expected"),
    [
        ("m1", False, [("switch", None), ("mirror", "m2")]),
        ("m2", False, [("mirror", "m1"), ("switch", None), ("mirror", "m2")]),
        ("m1", True, [("switch", None), ("mirror", "m2")]),
        ("m2", True, [("switch", None), ("mirror", "m1"), ("switch", None)]),
    ],
)
def test_a_mirror_that_is_in_the_new_group_already_is_not_made_there_again(
    mirror: str, is_offline: bool, expected: Json
) -> None:
    more = {"n1": node(offline=is_offline), "m2": node(group="g2", free_memory=9000)}
    large = node(group="g2", free_memory=20000, total_memory=20000, free_disk=98872)
    nodes = IN_GROUPS | more | {"m1": large}
    instances = {"i": instance(["n1", mirror])}
    wish = change("i", to=("g2",))
    moved, _, jobs = result(question(wish, nodes, instances, TWO_GROUPS))
    assert moved == [("i", "second", ["m1", "m2"])]
    assert [steps(job) for job in jobs] == [expected]


def test_a_change_of_the_group_goes_where_it_was_sent() -> None:
    moved, _, _ = result(question(change("i", to=("g3",)), IN_GROUPS, ONE, TWO_GROUPS))
    assert moved == [("i", "third", ["o1", "o2"])]
    instances = {"i": instance(["n1"], "ext")}
    moved, _, jobs = result(question(change("i", to=("g3",)), IN_GROUPS, instances, TWO_GROUPS))
    assert ([*moved], [steps(job) for job in jobs]) == (
        [("i", "third", ["o1"])],
        [[("switch", "o1")]],
    )


def test_there_must_be_another_group_and_it_must_be_known() -> None:
    _, [(_, why)], _ = result(question(change("i"), FOUR, ONE))
    assert why == "there is no other group that it may go to"
    with pytest.raises(GenericError, match="there is no node group 'g7'"):
        result(question(change("i", to=("g7",)), FOUR, ONE))


def test_a_group_can_be_closed_or_have_other_policies() -> None:
    groups = {"g1": group(), "g2": group("second", alloc_policy="unallocable")}
    nodes = FOUR | {"m1": node(group="g2"), "m2": node(group="g2")}
    _, [(_, why)], _ = result(question(change("i"), nodes, ONE, groups))
    assert why == "group second: closed for new instances (unallocable)"
    assert result(question(change("i", to=("g2",)), nodes, ONE, groups))[0]


def relocation(name: str, *leaving: str) -> Json:
    base = {"type": "relocate", "name": name, "disk_space_total": 1128, "required_nodes": 1}
    return base | {"relocate_from": list(leaving)}


def test_a_relocation_names_one_new_node_of_the_group() -> None:
    assert result(question(relocation("i", "n2"), FOUR, ONE)) == ["n3"]
    assert result(question(relocation("i", "n1"), FOUR, {"i": instance(["n1"], "ext")})) == ["n2"]


@pytest.mark.parametrize(
    ("instances", "leaving", "reason"),
    [
        (ONE, "n1", "only its secondary node n2 can be replaced, not n1"),
        ({"i": instance(["n1"], "plain")}, "n1", "disk template plain has no second node"),
    ],
)
def test_other_relocations_say_what_is_possible(instances: Json, leaving: str, reason: str) -> None:
    _, found = ask(question(relocation("i", leaving), FOUR, instances))
    assert not found.response.success
    assert reason in found.response.info


def test_a_secondary_node_is_found_for_an_instance_without_one() -> None:
    wish = {"type": "allocate-secondary", "name": "i"}
    assert result(question(wish, FOUR, {"i": instance(["n1"], "plain")})) == "n2"
    _, found = ask(question(wish, FOUR, ONE))
    assert "has a secondary node already: n2" in found.response.info
    too_large = {"i": instance(["n1"], "plain", disk=99_900)}  # with metadata it does not fit
    _, found = ask(question(wish, FOUR, too_large))
    assert (
        "no secondary node found: 3 nodes to choose from, refused as secondary node (disk: 3)"
        in (found.response.info)
    )


def test_migration_tags_forbid_targets_unless_they_are_allowed() -> None:
    nodes = FOUR | {"n1": node(tags=["hv:new"]), "n4": node(tags=["hv:newer"])}
    instances = {"i": instance(["n1"], "ext")}
    tags = ["htools:migration:hv"]
    wish = evacuation("all", "i")
    _, [(_, why)], _ = result(question(wish, nodes, instances, cluster_tags=tags))
    assert "(migration tags: 3)" in why
    tags.append("htools:allowmigration:hv:new::hv:newer")
    moved, _, _ = result(question(wish, nodes, instances, cluster_tags=tags))
    assert moved == [("i", "default", ["n4"])]


@given(seeds, st.sampled_from(MODES))
@settings(max_examples=80)
def test_an_evacuation_leaves_nothing_or_says_what_it_left(number: int, mode: str) -> None:
    draw = Draw(number)
    nodes, instances = draw.cluster(draw.random.randint(2, 6), draw.random.randint(1, 15), odd=0.1)
    names = list(instances)
    before, found = ask(question(evacuation(mode, *names), nodes, instances))
    moved, failed, jobs = found.response.result
    assert sorted([name for name, *_ in moved] + [name for name, _ in failed]) == sorted(names)
    assert len(jobs) == len(moved)
    for name, _, where in moved:
        old = before.instances[name].nodes
        left = {"all": old, "primary-only": old[:1], "secondary-only": old[1:]}[mode]
        stays_in = {"all": (), "primary-only": old[:1], "secondary-only": ()}[mode]
        assert where[0] not in (left if mode != "secondary-only" else ())
        assert not set(where) & set(left) - set(stays_in)
        new_ones = set(where) - set(old)
        assert all(before.nodes[node].is_usable for node in new_ones)
        assert found.after.instances[name].nodes == tuple(where)
    assert all(why for _, why in failed)


@given(seeds)
@settings(max_examples=60)
def test_the_score_after_moves_is_that_of_a_new_start(number: int) -> None:
    """Loads and sums are changed step by step; from scratch they must be the same."""
    draw = Draw(number)
    nodes, instances = draw.cluster(5, 12, odd=0.2, tags=("s:a", "s:b"))
    for name, made in nodes.items():
        made["tags"] = [f"rack:{draw.random.randint(1, 2)}", f"name:{name}"]
    tags = ["htools:iextags:s", "htools:nlocation:rack", "htools:desiredlocation:rack"]
    content = question(evacuation("all", *instances), nodes, instances, cluster_tags=tags)
    before, found = ask(content)
    after = found.after
    again = after
    for each in before.instances.values():
        again = again.without_instance(again.instances[each.name]).with_instance(each)
    for uuid, state in before.groups.items():
        assert again.groups[uuid].score == pytest.approx(state.score, abs=1e-9)
        for name, load in state.loads.items():
            assert _values(again.groups[uuid].loads[name]) == _values(load)


def _values(load: Any) -> Any:
    return (
        load.free_memory,
        load.free_disk,
        load.vcpus,
        load.spindle_use,
        load.primaries,
        load.secondaries,
        dict(load.guarded),
        load.reserved,
        dict(load.partners),
        sorted(load.movable),
        dict(load.exclusion),
        load.in_one_domain,
        load.unmet_wishes,
    )
