from __future__ import annotations

import json

import pytest

from ganeti.base.errors import ConfigurationError, GenericError
from ganeti.locking.allocation import LockAllocation
from ganeti.locking.serialisation import EMPTY, decode_locks, encode_locks
from ganeti.protocol.wconfd import ClientId, LockMode

JOB = ClientId(1234, "/var/run/ganeti/livelocks/job_001234_1700000000", 4321)
TOOL = ClientId("masterd", "/var/run/ganeti/livelocks/masterd_1", 5)
GOLDEN = (
    b'[[[[1234,"/var/run/ganeti/livelocks/job_001234_1700000000",4321],'
    b'[["cluster/BGL","shared"],["node/[lockset]","exclusive"]]]],'
    b'[[-3,["masterd","/var/run/ganeti/livelocks/masterd_1",5],'
    b'[["node/a","shared"],["cluster/BGL","release"]]]]]'
)


@pytest.mark.shows("2.12/overview/locks-data", "2.12/wconfd/locks-file")
def test_the_file_has_the_shape_of_3_0() -> None:
    locks = LockAllocation()
    locks.try_update(
        JOB, (("cluster/BGL", LockMode.SHARED), ("node/[lockset]", LockMode.EXCLUSIVE))
    )
    locks.wait_update(TOOL, -3, (("node/a", LockMode.SHARED), ("cluster/BGL", LockMode.RELEASE)))
    assert encode_locks(locks) == GOLDEN
    assert encode_locks(decode_locks(GOLDEN)) == GOLDEN
    locks.change_priority(TOOL, 7)
    locks.release(JOB, ["cluster/BGL"])
    assert json.loads(encode_locks(locks))[1][0][0] == 7
    assert b'BGL","shared' not in encode_locks(locks)


def test_nothing_is_written_as_3_0_writes_it() -> None:
    assert encode_locks(LockAllocation()) == EMPTY
    assert encode_locks(decode_locks(EMPTY)) == EMPTY


def test_owners_that_wait_are_served_after_a_restart() -> None:
    locks = decode_locks(GOLDEN)
    assert locks.grantable() is None
    locks.remove_owner(JOB)
    assert locks.grantable() == TOOL


def entry(owner: int, *locks: tuple[str, str]) -> list[object]:
    return [[owner, f"/l/{owner}", 1], [list(lock) for lock in locks]]


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        [[], [], []],
        [[1], []],
        [[[["x"], []]], []],
        [[entry(1, ("node/a", "release"))], []],
        [[entry(1, ("attic/a", "shared"))], []],
        [[entry(1, ("node/a", "exclusive")), entry(2, ("node/a", "shared"))], []],
        [[entry(1, ("node/[lockset]", "shared")), entry(2, ("node/a", "exclusive"))], []],
        [[], [[0, [1, "/l", 1], [["node/a", "x"]]]]],
        [[], [["0", [1, "/l", 1], []]]],
        [[], [[0, [1, "/l", 1], [["node/a", "shared"]]]] * 2],
    ],
)
def test_what_cannot_be_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"locks\.data"):
        decode_locks(json.dumps(value).encode())


def test_broken_json_is_refused_with_its_place() -> None:
    with pytest.raises(GenericError, match="byte 4"):
        decode_locks(b"[[],x")
