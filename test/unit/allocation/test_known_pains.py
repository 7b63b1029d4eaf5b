"""What users of other allocators suffered from, each named after its symptom."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.allocator_questions import Json, decoded, instance, new, node, question

from ganeti.allocation.answers import Question, answer
from ganeti.allocation.model import Rules
from ganeti.allocation.questions import state_of
from ganeti.allocation.tags import meanings_of
from ganeti.protocol.iallocator import AllocatorResponse

EXCLUSION = ["htools:iextags:service"]


def ask(content: Json, **rules: Any) -> AllocatorResponse:
    request = decoded(content)
    meanings = meanings_of(request.cluster_tags)
    return answer(Question(state_of(request), meanings, Rules(**rules)), request.request).response


@pytest.mark.parametrize("template", ["ext", "plain", "diskless"])
def test_51_n_plus_1_fails_although_the_placement_makes_nothing_worse(template: str) -> None:
    """One instance has been too large for all other nodes before; a small new one changes nothing."""
    nodes = {
        "n1": node(free_memory=1000),
        "n2": node(free_memory=8000),
        "n3": node(free_memory=8000),
    }
    instances = {"large": instance(["n1"], "ext", 9000)}
    found = ask(question(new(template=template, memory=500), nodes, instances))
    assert found.success, found.info
    assert found.result in (["n2"], ["n3"])


def test_51_instances_that_cannot_run_elsewhere_anyway_need_no_room_elsewhere() -> None:
    nodes = {"n1": node(free_memory=5000), "n2": node(free_memory=3000)}
    instances = {"local": instance(["n1"], "plain", 5000), "other": instance(["n2"], "file", 7000)}
    assert ask(question(new(template="plain", memory=4000), nodes, instances)).result == ["n1"]


@pytest.mark.parametrize("template", ["ext", "plain"])
def test_1851_an_n_plus_1_violation_is_not_missed(template: str) -> None:
    """The room that the instances of the other node would need must stay free."""
    nodes = {"n1": node(free_memory=4100), "n2": node(free_memory=5100)}
    instances = {"a": instance(["n1"], "ext", 5000), "b": instance(["n2"], "ext", 4000)}
    found = ask(question(new(template=template, memory=2000), nodes, instances))
    assert not found.success
    assert "N+1: 2" in found.info
    assert ask(
        question(new(template=template, memory=2000), nodes, instances), checks_capacity=False
    ).success


def test_1851_a_mirror_goes_to_no_node_that_could_not_take_over() -> None:
    nodes = {
        "n1": node(free_memory=4000),
        "n2": node(free_memory=7000),
        "n3": node(free_memory=900),
    }
    instances = {"a": instance(["n1", "n2"], memory=6000)}
    found = ask(question(new(memory=2000), nodes, instances))
    assert not found.success, found.result
    assert "N+1" in found.info


@pytest.mark.parametrize(
    "tags", [["htools:nlocation:"], ["htools:nlocation:rack"], ["htools:nlocation:a:b", "htools:"]]
)
def test_1238_location_tags_crash_nothing_and_keep_mirrors_apart(tags: list[str]) -> None:
    nodes = {
        "n1": node(tags=["rack:1", "a:b:x"]),
        "n2": node(tags=["rack:1", "a:b:x"]),
        "n3": node(tags=["rack"], free_memory=9000),  # no location: nothing stands after the colon
        "n4": node(free_memory=8500, tags=["rack:1", "a:b:x"]),
    }
    found = ask(question(new(), nodes, cluster_tags=tags))
    assert found.success
    if tags != ["htools:nlocation:"]:
        assert "n3" in found.result


def test_855_the_tags_of_a_new_instance_count() -> None:
    nodes = {"n1": node(), "n2": node(free_memory=4000)}
    instances = {"dns1": instance(["n1"], "plain", 10, tags=["service:dns"])}
    wish = new(template="plain", tags=["service:dns"])
    assert ask(question(wish, nodes, instances, cluster_tags=EXCLUSION)).result == ["n2"]
    alone = {"n1": nodes["n1"]}
    found = ask(question(wish, alone, instances, cluster_tags=EXCLUSION))
    assert "exclusion tags: 1" in found.info


def test_855_only_tags_that_the_cluster_names_count() -> None:
    nodes = {"n1": node(), "n2": node(free_memory=4000)}
    instances = {
        "dns1": instance(["n1"], "plain", 10, tags=["service:dns", "services:x"]),
        "other": instance(["n2"], "plain", 10),
    }
    wish = new(template="plain", tags=["service:dns", "services:x"])
    assert ask(question(wish, nodes, instances)).result == ["n1"]
    other = ["htools:iextags:", "htools:iextags:serv", "htools:iextags:dns"]
    assert ask(question(wish, nodes, instances, cluster_tags=other)).result == ["n1"]


def test_855_instances_of_one_kind_are_kept_apart_within_failure_domains_too() -> None:
    nodes = {
        "n1": node(tags=["rack:1"]),
        "n2": node(tags=["rack:1"]),
        "n3": node(tags=["rack:2"], free_memory=9000),
    }
    instances = {"dns1": instance(["n1"], "plain", 10, tags=["service:dns"])}
    wish = new(template="plain", tags=["service:dns"])
    tags = [*EXCLUSION, "htools:nlocation:rack"]
    assert ask(question(wish, nodes, instances, cluster_tags=tags)).result == ["n3"]


def test_an_instance_goes_where_it_wants_to_be_if_that_is_possible() -> None:
    nodes = {"n1": node(), "n2": node(tags=["power:b"], free_memory=7000), "n3": node()}
    tags = ["htools:desiredlocation:power", "htools:nlocation:power"]
    wish = new(template="ext", tags=["power:b"])
    assert ask(question(wish, nodes, cluster_tags=tags)).result == ["n2"]
    small = nodes | {"n2": node(tags=["power:b"], free_memory=100)}
    assert ask(question(wish, small, cluster_tags=tags)).success


def test_1386_a_kvm_node_keeps_what_it_reports_and_not_a_fixed_amount() -> None:
    nodes = {"n1": node(free_memory=9000), "n2": node(free_memory=9000)}
    content = question(new(template="ext", memory=7000), nodes, enabled_hypervisors=["kvm"])
    assert ask(content).success
