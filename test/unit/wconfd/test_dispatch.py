"""How requests are read, and which locks a change needs."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.large_config import disk, instance, large_config_bytes, uuid_of

from ganeti.base.errors import OpPrereqError
from ganeti.config.state import ConfigState
from ganeti.protocol.wconfd import ClientId, LockMode, WConfCalls
from ganeti.wconfd.dispatch import needed_locks, read_arguments

CLIENT = ClientId(7, "/run/l", 1)
SHARED, EXCLUSIVE = LockMode.SHARED, LockMode.EXCLUSIVE
BGL = ("cluster/BGL", SHARED)
INST0 = ("instance/inst0.example.com", EXCLUSIVE)
NODE1 = (f"node/{uuid_of('node', 1)}", EXCLUSIVE)
GROUP0 = (f"nodegroup/{uuid_of('group', 0)}", EXCLUSIVE)
FREE_DISK = disk(7, uuid_of("node", 1))


@pytest.fixture(scope="module")
def state() -> ConfigState:
    return ConfigState(large_config_bytes(2))


@pytest.mark.parametrize(
    ("method", "args", "locks"),
    [
        ("modifyObjects", [[["cluster", "", {}]]], [BGL]),
        ("modifyObjects", [[["node", "node1", {}]]], [NODE1]),
        ("modifyObjects", [[["node", uuid_of("node", 1), {}]]], [NODE1]),
        ("modifyObjects", [[["node", "nowhere", {}]]], []),
        ("modifyObjects", [[["nodegroup", "default", {}]]], [GROUP0]),
        ("modifyObjects", [[["instance", uuid_of("instance", 0), {}]]], [INST0]),
        ("modifyObjects", [[["disk", uuid_of("disk", 0), {}]]], [INST0]),
        ("modifyObjects", [[["disk", "of nobody", {}]]], [BGL]),
        ("modifyObjects", [[["filter", "any", {}]]], []),
        (
            "modifyObjects",
            [[["node", "node1", {}], ["disk", uuid_of("disk", 0), {}], ["cluster", "", {}]]],
            [NODE1, INST0, BGL],
        ),
        ("createInstance", [instance(9, "n", []), []], [("instance/inst9.example.com", EXCLUSIVE)]),
        ("createInstance", [{"name": ["no", "name"]}, []], []),
        ("createObject", ["node", {}], [BGL]),
        ("createObject", ["filter", {}], []),
        ("deleteObject", ["instance", "inst0"], [INST0]),
        ("deleteObject", ["node", "node1"], [NODE1]),
        ("addDisk", ["inst0", FREE_DISK, None], [INST0]),
        ("addTags", ["cluster", "", ["x"]], [BGL]),
        ("addTags", ["node", "node1", ["x"]], [NODE1]),
        ("removeTags", ["instance", "inst0", ["x"]], [INST0]),
    ],
)
def test_the_lock_is_that_of_the_object_named(
    state: ConfigState, method: str, args: list[Any], locks: list[tuple[str, LockMode]]
) -> None:
    call = WConfCalls.calls[method]
    client, read = read_arguments(call, [CLIENT.to_wire(), *args])
    assert client == CLIENT
    assert needed_locks(state.head, call, read) == locks


@pytest.mark.parametrize(
    ("method", "args", "text"),
    [
        ("echo", [], r"echo takes 1 arguments \(text\), not 0"),
        ("addInstance", [{}, True], r"takes 3 arguments \(instance, client, replace\), not 2"),
        ("addInstance", [{}, "x", True], "client must be"),
        ("updateLocksWaiting", [[1, "x", 10**12], 0, []], "with a pid from 0 to 2147483647, not"),
        ("tryUpdateLocks", [[1, "x", 2**31], []], "with a pid from 0 to 2147483647, not"),
        ("freeLocks", [[1, "x", -1]], "with a pid from 0 to 2147483647, not"),
        ("addTags", [[1, "x", 1], "thing", "x", []], "addTags: wrong argument kind: .*thing"),
        ("getNodes", [[1]], "getNodes: wrong argument keys: Expected `str`, got `int`"),
        ("allocatePort", [None], r"takes 0 arguments \(none\)"),
    ],
)
def test_wrong_arguments_are_named(method: str, args: list[Any], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        read_arguments(WConfCalls.calls[method], args)
