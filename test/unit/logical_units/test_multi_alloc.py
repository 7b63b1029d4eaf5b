"""Several instances at once."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster
from fakes.pairs import UP, nodes_of, sides

from ganeti.base.errors import OpPrereqError
from ganeti.logical_units.instance.creation import multi_alloc

NEW: dict[str, Any] = {
    "mode": "create",
    "instance_name": "a.example.com",
    "pnode": "node1.example.com",
    "disk_template": "diskless",
    "disks": [],
    "nics": [],
}


def test_each_is_a_job_of_its_own(cluster: FakeCluster) -> None:
    other = {**NEW, "instance_name": "b.example.com", "OP_ID": "OP_INSTANCE_CREATE"}
    result = cluster.execute("OP_INSTANCE_MULTI_ALLOC", instances=[NEW, other])
    assert result == {
        "jobs": [(True, 100), (True, 101)],
        "allocatable": ["a.example.com", "b.example.com"],
        "failed": [],
    }
    assert [job[0].instance_name for job in cluster.jobs] == ["a.example.com", "b.example.com"]


def test_instances_with_copies_are_made_on_both_nodes(pairs: FakeCluster) -> None:
    new = {**NEW, "disk_template": "drbd", "disks": [{"size": 64}], "no_install": True}
    named = [{**new, "pnode": "node1", "snode": "node2", "name_check": False, "ip_check": False}]
    pairs.execute("OP_INSTANCE_MULTI_ALLOC", instances=named)
    [[op]] = pairs.jobs
    assert (op.pnode, op.snode) == ("node1", "node2")
    pairs.execute("OP_INSTANCE_CREATE", **named[0])
    assert nodes_of(pairs, "a.example.com") == ["node1", "node2"]
    assert sides(pairs) == UP


def test_a_setting_that_cannot_be_is_told_with_the_instance(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multi_alloc, "choose_allocator", lambda *_args: object())
    placeless = {**NEW, "pnode": None}
    for wrong in ({"disk_template": "file"}, {"beparams": {"vcpus": "x"}}):
        with pytest.raises(OpPrereqError, match=r"^instance 'a\.example\.com': ") as caught:
            cluster.execute("OP_INSTANCE_MULTI_ALLOC", instances=[{**placeless, **wrong}])
        assert caught.value.message.count("a.example.com") == 1


@pytest.mark.parametrize(
    ("params", "error", "text"),
    [
        ({"instances": []}, OpPrereqError, "no instances"),
        ({"instances": [3]}, OpPrereqError, "must be a list of parameters"),
        ({"instances": [{**NEW, "x": 1}]}, OpPrereqError, "'x' is unknown"),
        ({"instances": [NEW, NEW]}, OpPrereqError, "more than once: a.example.com"),
        ({"instances": [{**NEW, "pnode": None}]}, OpPrereqError, "'hail' is not in"),
        ({"instances": [NEW], "iallocator": "hail"}, OpPrereqError, "has nothing to do"),
        ({"instances": [{**NEW, "iallocator": "hail"}]}, OpPrereqError, "name it once"),
    ],
)
def test_what_cannot_be(
    cluster: FakeCluster, params: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        cluster.execute("OP_INSTANCE_MULTI_ALLOC", **params)
    assert not cluster.jobs
