"""Nodes to be switched off or on: what leaves is empty, what stays has room."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.allocation.capacity.squeezing import Room, Squeezed, squeeze
from ganeti.allocation.capacity.tiers import Size
from ganeti.allocation.limits import Obstacle, obstacle
from ganeti.allocation.model import Rules
from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources.text_data import from_text

STANDARD = Size(1024, 1024, 1, 1)


def cluster(roles: str, instances: list[tuple[int, str]]) -> Snapshot:
    """Return a cluster: a letter for each node (M, N, Y or S: offline and on standby)."""
    taken = Counter(node for node, _ in instances)
    nodes = "".join(
        f"n{place}|16000|0|{16000 - 2000 * taken[place]}|100000|100000|8|{role.replace('S', 'Y')}|uuid|1"
        f"|{'htools:standby:auto' if role == 'S' else ''}|N|0|1|1.0\n"
        for place, role in enumerate(roles)
    )
    lines = "".join(
        f"i{number}|2000|1024|1|running|Y|n{node}||{template}||1\n"
        for number, (node, template) in enumerate(instances)
    )
    return from_text(
        f"default|uuid|preferred||\n\n{nodes}\n{lines}\n\n"
        "|1024,1,1024,1,1,1|1,1,1,1,1,1;32768,8,1048576,16,8,12|ext,plain|4.0|32.0\n"
    )


def check(found: Squeezed, room: Room) -> None:
    online = {name for name, node in found.snapshot.nodes.items() if node.is_usable}
    assert online
    if found.leave:
        used = {name for each in found.after.instances.values() for name in each.nodes}
        assert used.isdisjoint(found.leave)
        assert not any(found.snapshot.nodes[name].is_master for name in found.leave)
    size = Size(int(1024 * room.target), int(1024 * room.target), int(room.target), 0)
    wanted, rules = size.instance("ext"), Rules(checks_capacity=False)
    if found.leave:
        for load in found.after.loads:
            if load.node.name in online:
                why = obstacle(load, load.with_primary(wanted, None), rules)
                assert why in (None, Obstacle.REDUNDANCY)


def test_the_master_stays_and_so_do_nodes_with_disks_of_their_own() -> None:
    found = squeeze(cluster("MNN", [(1, "plain"), (2, "ext")]), Room(1, 1))
    assert (found.may_leave, found.leave) == (["n2"], ["n2"])
    assert {each.primary for each in found.after.instances.values()} <= {"n0", "n1"}


def test_a_node_always_stays() -> None:
    assert len(squeeze(cluster("NNN", []), Room(0, 0)).leave) == 2


def test_none_leaves_without_room() -> None:
    assert squeeze(cluster("MNN", [(1, "ext")]), Room(1, 15.9)).leave == ()


@pytest.mark.parametrize(
    ("least", "come", "is_short"), [(13, ["n1"], False), (15.7, ["n1", "n2"], True)]
)
def test_nodes_on_standby_come_back_as_far_as_needed(
    least: float, come: list[str], is_short: bool
) -> None:
    found = squeeze(cluster("MSSY", [(0, "ext"), (0, "ext")]), Room(least, least))
    assert (found.may_come, found.come, found.is_short) == (["n1", "n2"], come, is_short)
    assert found.lacks_room


@settings(max_examples=40, deadline=None)
@given(
    st.text("NSY", min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["ext", "plain"])), max_size=8),
    st.floats(0, 12),
    st.floats(0, 12),
)
def test_what_leaves_is_empty_and_what_stays_has_room(
    roles: str, instances: list[tuple[int, str]], least: float, more: float
) -> None:
    places = [(node % (len(roles) + 1), template) for node, template in instances]
    room = Room(least, least + more)
    found = squeeze(cluster(f"M{roles}", places), room)
    check(found, room)
    assert not (found.leave and found.come)
    assert set(found.leave) <= set(found.may_leave)
    assert set(found.come) <= set(found.may_come)
    assert sorted(found.after.instances) == sorted(found.snapshot.instances)
