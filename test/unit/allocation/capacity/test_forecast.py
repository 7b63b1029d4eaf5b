"""How long there is room: growth of the last weeks against what fits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.allocation.capacity.filling import fill
from ganeti.allocation.capacity.forecast import Forecast, forecast, pace_of
from ganeti.allocation.capacity.search import Search, new_names
from ganeti.allocation.capacity.tiers import Size
from ganeti.allocation.limits import Obstacle
from ganeti.allocation.model import Rules
from ganeti.allocation.placing import refusal
from ganeti.allocation.sources.text_data import made_up
from ganeti.allocation.state import ClusterState, make_state
from ganeti.protocol.luxi import Week

USUAL = Size(1024, 10240, 1, 1)
WEEKS = st.lists(
    st.builds(
        Week,
        begins=st.just(0),
        created=st.integers(0, 9),
        removed=st.integers(0, 9),
        memory=st.integers(-5000, 20000),
        disk=st.integers(-50000, 90000),
    ),
    max_size=6,
)


def cluster_of(nodes: int) -> ClusterState:
    return make_state(made_up([f"p,{nodes},200g,16g,8,4"]))


def told(cluster: ClusterState, weeks: list[Week]) -> Forecast:
    search = Search(Rules(), list(cluster.groups))
    return forecast(cluster, search, weeks, USUAL, "plain")


def test_a_steady_growth_fills_the_cluster_at_its_pace() -> None:
    weeks = [Week(0, created=3, removed=1, memory=4096, disk=4096)] * 4
    found = told(cluster_of(2), weeks)
    assert found.pace is not None
    assert (found.pace.per_week, found.pace.size.memory) == (2.0, 2048)
    assert found.count == 14  # 7 on each node: one more would leave no memory
    assert found.weeks == 7.0
    assert found.lacking is Obstacle.MEMORY


def test_growth_of_instances_that_are_there_makes_the_new_ones_larger() -> None:
    weeks = [Week(0, created=1, memory=1024, disk=1024), Week(0, memory=3072)]
    pace = pace_of(weeks, USUAL)
    assert pace is not None
    assert (pace.per_week, pace.size) == (0.5, Size(4096, 1024, 1, 1))


@pytest.mark.parametrize("weeks", [[], [Week(0)], [Week(0, created=1, removed=2, memory=9000)]])
def test_a_cluster_that_does_not_grow_has_room_for_ever(weeks: list[Week]) -> None:
    assert told(cluster_of(2), weeks) == Forecast(None)


@settings(max_examples=60, deadline=None)
@given(WEEKS, st.integers(1, 3))
def test_as_many_fit_as_are_told_and_a_larger_cluster_lasts_longer(
    weeks: list[Week], nodes: int
) -> None:
    small, large = told(cluster_of(nodes), weeks), told(cluster_of(nodes + 1), weeks)
    assert (small.pace is None) == (sum(each.created - each.removed for each in weeks) <= 0)
    if small.pace is None:
        return
    assert small.weeks is not None
    assert large.weeks is not None
    assert small.weeks <= large.weeks
    assert small.weeks * small.pace.per_week == pytest.approx(small.count)
    cluster = cluster_of(nodes)
    search = Search(Rules(), list(cluster.groups))
    instance = small.pace.size.instance("plain")
    [group] = [each.group for each in cluster.groups.values()]
    is_refused = refusal(group, instance, is_explicit=search.is_explicit) is not None
    assert (small.lacking is None) == is_refused, "no node lacks anything where the policy refuses"
    assert len(fill(cluster, search, instance, new_names(), small.count + 1).placed) == small.count
    faster = told(cluster_of(nodes), [*weeks, *weeks])
    assert faster.weeks == pytest.approx(small.weeks)
