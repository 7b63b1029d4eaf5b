"""Which locks a change needs."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.large_config import disk, instance, large_config_bytes, uuid_of

from ganeti.base.errors import OpPrereqError
from ganeti.config.state import ConfigState
from ganeti.protocol.wconfd import OWN, WCONFD_METHODS, Effect, LockMode, Need
from ganeti.wconfd.fencing import needed_locks

SHARED, EXCLUSIVE = LockMode.SHARED, LockMode.EXCLUSIVE
BGL = ("cluster/BGL", SHARED)
INST0 = ("instance/inst0.example.com", EXCLUSIVE)
NODE1 = (f"node/{uuid_of('node', 1)}", EXCLUSIVE)
FREE_DISK = disk(7, uuid_of("node", 1))


@pytest.fixture(scope="module")
def state() -> ConfigState:
    return ConfigState(large_config_bytes(2))


def test_every_change_of_our_own_needs_a_lock_but_those_of_filters() -> None:
    without = {
        method.name
        for method in WCONFD_METHODS.values()
        if method.since == OWN and method.effect is Effect.CONFIG and method.needs is Need.NONE
    }
    assert without == {"createFilter", "modifyFilter", "deleteFilter"}


def test_every_change_of_our_own_names_its_owner_first() -> None:
    for method in WCONFD_METHODS.values():
        if method.since == OWN and method.effect is not Effect.READ:
            assert method.client_index == 0, method.name


@pytest.mark.parametrize(
    ("method", "args", "locks"),
    [
        ("modifyCluster", [{}], [BGL]),
        ("modifyNode", ["node1", {}], [NODE1]),
        ("modifyNode", [uuid_of("node", 1), {}], [NODE1]),
        ("modifyNode", ["nowhere", {}], []),
        ("modifyNodeGroup", ["default", {}], [(f"nodegroup/{uuid_of('group', 0)}", EXCLUSIVE)]),
        ("modifyInstance", [uuid_of("instance", 0), {}], [INST0]),
        ("createInstance", [instance(9, "n", []), []], [("instance/inst9.example.com", EXCLUSIVE)]),
        ("createInstance", [{"name": ["no", "name"]}, []], []),
        ("addDisk", ["inst0", FREE_DISK, None], [INST0]),
        ("modifyDisk", [uuid_of("disk", 0), {}], [INST0]),
        ("modifyDisk", ["of nobody", {}], [BGL]),
        ("addTags", ["cluster", "", ["x"]], [BGL]),
        ("addTags", ["node", "node1", ["x"]], [NODE1]),
        ("removeTags", ["instance", "inst0", ["x"]], [INST0]),
        (
            "modifyObjects",
            [[("node", "node1", {}), ("disk", uuid_of("disk", 0), {}), ("cluster", "", {})]],
            [NODE1, INST0, BGL],
        ),
        ("createFilter", [{}], []),
    ],
)
def test_the_lock_is_that_of_the_object_named(
    state: ConfigState, method: str, args: list[Any], locks: list[tuple[str, LockMode]]
) -> None:
    assert needed_locks(state.head, WCONFD_METHODS[method], ["client", *args]) == locks


def test_an_unknown_kind_is_refused(state: ConfigState) -> None:
    with pytest.raises(OpPrereqError, match="unknown kind"):
        needed_locks(state.head, WCONFD_METHODS["addTags"], ["client", "thing", "x", []])
