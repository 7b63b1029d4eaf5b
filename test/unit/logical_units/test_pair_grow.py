"""Disks with copies grow on both nodes; a try that failed goes on where it stopped."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster
from fakes.pairs import NAME, UP, add_pair, sides

from ganeti.base.errors import GenericError, OpPrereqError


def grow(cluster: FakeCluster, **params: Any) -> None:
    values = {"instance_name": NAME, "disk": 0, "amount": 2048, "absolute": True, **params}
    cluster.execute("OP_INSTANCE_GROW_DISK", **values)


def sizes(cluster: FakeCluster) -> list[int]:
    return [
        mib
        for name in ("node1", "node2")
        for volume, mib in cluster.rpc.node(name).sizes.items()
        if volume.endswith("_data")
    ]


def test_both_volumes_grow_then_the_disk(pairs: FakeCluster) -> None:
    add_pair(pairs)
    grow(pairs)
    [disk] = pairs.config.disks.values()
    assert [disk["size"], *(child["size"] for child in disk["children"])] == [2048, 2048, 128]
    assert sizes(pairs) == [2048, 2048]
    done = [
        (node, args[2], args[3]) for node, args in pairs.rpc.called("blockdev_grow") if not args[2]
    ]
    assert done == [("node1", False, True), ("node2", False, True), ("node1", False, False)]
    assert sides(pairs) == UP


def test_closed_disks_are_closed_again(pairs: FakeCluster) -> None:
    add_pair(pairs, start=False)
    grow(pairs)
    assert sides(pairs) == {}
    assert sizes(pairs) == [2048, 2048]


def test_a_secondary_node_that_is_offline_cannot_grow(pairs: FakeCluster) -> None:
    add_pair(pairs)
    pairs.config.node(2)["offline"] = True
    with pytest.raises(OpPrereqError, match=r"grow disk 0 .* on node 'node2.example.com': it is"):
        grow(pairs)


@pytest.mark.parametrize("after", [False, True])
def test_a_failure_anywhere_is_mended_by_the_same_command(
    pairs: FakeCluster, *, after: bool
) -> None:
    add_pair(pairs)
    pairs.rpc.calls.clear()
    size_mib = 2048
    grow(pairs, amount=size_mib)
    for number in range(len(pairs.rpc.calls)):
        size_mib += 64
        seen = iter(range(10**6))

        def failure(
            _node: str, _call: str, _args: Any, number: int = number, seen: Any = seen
        ) -> str | None:
            return "it broke" if next(seen) == number else None

        setattr(pairs.rpc, "lost_answer" if after else "failure", failure)
        try:
            grow(pairs, amount=size_mib)
        except GenericError:
            setattr(pairs.rpc, "lost_answer" if after else "failure", lambda *_args: None)
            [disk] = pairs.config.disks.values()
            if disk["size"] != size_mib:
                grow(pairs, amount=size_mib)
        assert sizes(pairs) == [size_mib, size_mib]
        assert sides(pairs) == UP
