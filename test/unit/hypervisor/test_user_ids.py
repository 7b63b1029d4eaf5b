"""User ids locked from the pool."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import OpPrereqError
from ganeti.base.paths import Paths
from ganeti.hypervisor.user_ids import (
    in_random_order,
    pool_of,
    release_uid,
    request_unused_uid,
    uids_in_use,
)
from ganeti.objects.uid_pool import count, normal_form, uid_at
from ganeti.store.ssconf import write_values

RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)).map(lambda p: (p[0], sum(p))))
FREE = 4_000_000_000  # nobody has these


@pytest.mark.shows("2.1/uid-locks/random")
@given(RANGES)
def test_every_place_of_a_pool_has_its_id(ranges: list[tuple[int, int]]) -> None:
    pool = normal_form(ranges)
    expected = sorted({uid for low, high in ranges for uid in range(low, high + 1)})
    assert [uid_at(pool, index) for index in range(count(pool))] == expected
    if pool:
        assert sorted(in_random_order(pool)) == expected


def paths(tmp_path: Path, pool: str) -> Paths:
    found = Paths(str(tmp_path))
    os.makedirs(os.path.dirname(found.ssconf_file("uid_pool")))
    os.makedirs(os.path.dirname(found.ssconf_lock))
    write_values(found, {"uid_pool": pool})
    return found


def files(found: Paths) -> list[str]:
    return sorted(os.listdir(found.uid_pool_dir))


@pytest.mark.shows(
    "2.1/uid/not-in-use",
    "2.1/uid-locks/lock-file",
    "2.1/uid-locks/file-stays",
    "2.1/uid-locks/released",
)
def test_an_id_is_lent_to_one_at_a_time(tmp_path: Path) -> None:
    found = paths(tmp_path, f"{FREE}-{FREE + 1}")
    first, second = request_unused_uid(found), request_unused_uid(found)
    assert {first.uid, second.uid} == {FREE, FREE + 1}
    with pytest.raises(OpPrereqError, match="all 2 user ids of the pool are in use"):
        request_unused_uid(found)
    first.release()
    assert files(found) == [str(second.uid)]
    assert request_unused_uid(found).uid == first.uid
    second.in_use()
    assert str(second.uid) in files(found)
    release_uid(found, second.uid)
    assert str(second.uid) not in files(found)
    release_uid(found, second.uid)  # it is back already


@pytest.mark.shows("2.1/uid/not-in-use", "2.1/uid-locks/checked-process")
def test_ids_of_processes_are_not_lent(tmp_path: Path) -> None:
    mine = os.getuid()
    assert mine in uids_in_use()
    with pytest.raises(OpPrereqError, match="all 1 user ids"):
        request_unused_uid(paths(tmp_path, str(mine)))


@pytest.mark.shows("2.1/uid-locks/released")
def test_an_id_that_is_lent_again_is_not_released(tmp_path: Path) -> None:
    found = paths(tmp_path, str(FREE))
    locked = request_unused_uid(found)
    release_uid(found, FREE)  # by whoever had it before
    assert files(found) == [str(FREE)]
    locked.release()


@pytest.mark.shows("2.1/uid-init/disabled")
def test_an_empty_pool_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OpPrereqError, match="--add-uids"):
        pool_of(paths(tmp_path, ""))
