"""The quick search for many places: the same as one search after the other, and every place legal."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise

import pytest
from fakes.text_clusters import LOCAL, Shape, made_up
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.allocation.capacity.filling import fill
from ganeti.allocation.capacity.search import Filled, Search, new_names
from ganeti.allocation.capacity.tiers import Range, Size, fill_tiered
from ganeti.allocation.limits import Redundancy, obstacle
from ganeti.allocation.model import Instance, Rules
from ganeti.allocation.sources.text_data import from_text
from ganeti.allocation.sources.text_data import made_up as simulated
from ganeti.allocation.state import ClusterState, make_state
from ganeti.objects.disk_templates import DiskTemplate

NUMBERS = st.integers(0, 10_000)
SIZES = st.builds(
    Size,
    memory=st.sampled_from([128, 700, 4000]),
    disk=st.sampled_from([1024, 9000, 30000]),
    vcpus=st.integers(1, 4),
    spindle_use=st.integers(1, 3),
)
TEMPLATES = st.sampled_from(["drbd", "plain", "ext", "file", "diskless"])
ALL_RULES = Rules()


def cluster_of(number: int, groups: int = 1) -> ClusterState:
    templates = LOCAL if number % 2 else Shape().templates
    shape = Shape(nodes=(2, 6), groups=groups, templates=templates, is_consistent=number % 3 > 0)
    return make_state(from_text(made_up(number, shape)))


def everywhere(cluster: ClusterState, rules: Rules = ALL_RULES) -> Search:
    return Search(rules, list(cluster.groups))


def check_places(cluster: ClusterState, placed: list[Instance], rules: Rules) -> ClusterState:
    """Place the instances one by one; each must be within the limits then."""
    for each in placed:
        after = cluster.with_instance(each)
        changed = {name: after.load(name) for name in each.nodes}
        for name, load in changed.items():
            assert load.node.is_usable, name
            assert obstacle(cluster.load(name), load, rules) is None, (each.name, name)
        if rules.checks_capacity:
            redundancy = Redundancy(cluster.group_of(each.primary).loads)
            assert not redundancy.gets_worse(changed), each.name
        assert len({cluster.nodes[name].group for name in each.nodes}) == 1
        assert len(set(each.nodes)) == each.node_count
        cluster = after
    return cluster


def check_same_places(cluster: ClusterState, quick: list[Instance], slow: list[Instance]) -> None:
    """Compare the places up to the first that are equally good but for the last digits."""
    for ours, theirs in zip(quick, slow, strict=False):
        if ours.nodes != theirs.nodes:
            ways = [
                cluster.with_instance(each).group_of(each.primary).score for each in (ours, theirs)
            ]
            assert ways[0] == pytest.approx(ways[1], abs=1e-9)
            return
        cluster = cluster.with_instance(ours)
    assert len(quick) == len(slow)


@settings(max_examples=60, deadline=None)
@given(NUMBERS, SIZES, TEMPLATES, st.integers(1, 2), st.booleans())
def test_it_places_as_many_as_one_search_after_the_other(
    number: int, size: Size, template: str, groups: int, checks_capacity: bool
) -> None:
    cluster = cluster_of(number, groups)
    rules = Rules(checks_capacity=checks_capacity)
    search = everywhere(cluster, rules)
    instance = size.instance(template)
    quick = fill(cluster, search, instance, new_names(), 60)
    slow = search.fill(cluster, instance, new_names(), 60)
    check_same_places(cluster, quick.placed, slow.placed)
    assert bool(quick.text or quick.refused) <= (len(quick.placed) < 60)


@settings(max_examples=60, deadline=None)
@given(NUMBERS, SIZES, TEMPLATES)
def test_every_place_is_legal_and_not_one_more_fits(number: int, size: Size, template: str) -> None:
    cluster = cluster_of(number)
    search, instance = everywhere(cluster), size.instance(template)
    filled = fill(cluster, search, instance, new_names(), 200)
    after = check_places(cluster, filled.placed, search.rules)
    assert after.instances == filled.after.instances
    for uuid, state in after.groups.items():
        assert filled.after.groups[uuid].loads == state.loads
        assert filled.after.groups[uuid].score == pytest.approx(state.score, abs=1e-6)
    if len(filled.placed) < 200:
        assert not search.fill(after, instance, new_names(), 1).placed


@settings(max_examples=40, deadline=None)
@given(NUMBERS, TEMPLATES)
def test_tiers_stay_within_the_policy_and_get_smaller(number: int, template: str) -> None:
    cluster = cluster_of(number)
    search = everywhere(cluster)
    span = Range(Size(32768, 1 << 20, 8, 12), Size(1024, 2048, 1, 1))
    filled = fill_tiered(search, cluster, [span], template, new_names(), 40)
    check_places(cluster, filled.placed, search.rules)
    sizes = [
        Size(each.memory, sum(each.spec.disk_sizes_mib), each.vcpus, each.spec.spindles)
        for each in filled.placed
    ]
    for before, now in pairwise(sizes):
        fields = before.__struct_fields__
        assert any(getattr(now, name) < getattr(before, name) for name in fields) or now == before
    for size in sizes:
        for name in size.__struct_fields__:
            assert getattr(span.least, name) <= getattr(size, name) <= getattr(span.largest, name)
    if len(filled.placed) < 40:
        assert not search.fill(filled.after, span.least.instance(template), new_names(), 1).placed


def test_tiers_go_through_all_ranges_of_a_policy() -> None:
    cluster = make_state(simulated(["p,4,100g,16g,8,4"]))
    ranges = [
        Range(Size(8192, 20480, 2, 1), Size(8192, 20480, 2, 1)),
        Range(Size(2048, 10240, 1, 1), Size(2048, 10240, 1, 1)),
    ]
    filled = fill_tiered(everywhere(cluster), cluster, ranges, "plain", new_names(), 1000)
    tiers = Counter(each.memory for each in filled.placed)
    assert set(tiers) == {8192, 2048}


def test_names_that_are_taken_are_left_out() -> None:
    cluster = make_state(simulated(["p,2,100g,16g,8,4"]))
    search, instance = everywhere(cluster), Size(128, 1024, 1, 1).instance("plain")
    first = fill(cluster, search, instance, new_names(), 2).after
    again = fill(first, search, instance, new_names(), 2)
    assert [each.name for each in again.placed] == ["new-2", "new-3"]
    assert len(again.after.instances) == 4


def test_reasons_are_counted_by_pairs() -> None:
    cluster = make_state(simulated(["p,4,100g,16g,8,4"]))
    search = everywhere(cluster)
    huge = Size(128, 1 << 20, 1, 1)
    assert fill(cluster, search, huge.instance("drbd"), new_names(), 1).refused.total() == 12
    assert fill(cluster, search, huge.instance("plain"), new_names(), 1).refused.total() == 4


def placed_in(seconds: float, nodes: int, template: DiskTemplate, count: int) -> Filled:
    cluster = make_state(simulated([f"p,{nodes},4t,192g,32,8"]))
    instance = Size(2048, 20480, 1, 1).instance(template)
    started = time.process_time()
    filled = fill(cluster, everywhere(cluster), instance, new_names(), count)
    assert time.process_time() - started < seconds
    return filled


def test_a_large_group_is_filled_in_a_millisecond_or_so_for_each_instance() -> None:
    """200 nodes within 30 s, that is for 12,000 instances; here a tenth, with room to spare."""
    assert len(placed_in(6.0, 200, DiskTemplate.DRBD, 1200).placed) == 1200
