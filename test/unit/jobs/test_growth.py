"""Facts of jobs, and the weeks that follow from them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ganeti.base.ids import JobId
from ganeti.jobs.growth import WEEK_S, Fact, Kind, facts_of, growth
from ganeti.jobs.record import QueuedJob, QueuedOp
from ganeti.jobs.status import Status
from ganeti.protocol.luxi import Week

NOW = 1_800_000_000


def op(name: str, age_weeks: float, status: Status = Status.SUCCESS, **params: Any) -> QueuedOp:
    result = params.pop("result", None)
    wire = {"OP_ID": f"OP_INSTANCE_{name}", "instance_name": "web1.example.com", **params}
    ended = (NOW - int(age_weeks * WEEK_S), 0)
    return QueuedOp(wire, status, result=result, end_timestamp=ended)


def weeks(*ops: QueuedOp, count: int = 2, shuffled: int | None = None) -> list[tuple[int, ...]]:
    """Return (created, removed, memory, disk, unknown) of each week, the oldest first."""
    jobs = [QueuedJob(JobId(number), (each,)) for number, each in enumerate(ops)]
    facts = [fact for job in jobs for fact in facts_of(job)]
    if shuffled is not None:
        random.Random(shuffled).shuffle(facts)
    found = growth(facts, now=NOW, weeks=count, default_memory_mib=128)
    assert [week.begins for week in found] == [NOW - n * WEEK_S for n in range(count, 0, -1)]
    return [(w.created, w.removed, w.memory, w.disk, w.unknown) for w in found]


CREATE = op("CREATE", 1.5, disks=[{"size": 1024}, {"size": "1g"}], beparams={"maxmem": "1g"})


def test_what_is_made_counts_in_its_week_and_what_is_removed_takes_its_size_along() -> None:
    assert weeks(CREATE) == [(1, 0, 1024, 2048, 0), (0, 0, 0, 0, 0)]
    assert weeks(CREATE, op("REMOVE", 0.5)) == [(1, 0, 1024, 2048, 0), (0, 1, -1024, -2048, 0)]
    assert weeks(op("CREATE", 0.1, disks=[])) == [(0, 0, 0, 0, 0), (1, 0, 128, 0, 0)]
    plain = op("CREATE", 0.1, disks=[{"adopt": "x"}], beparams={"memory": 64, "maxmem": "default"})
    assert weeks(plain)[1] == (1, 0, 64, 0, 0)


@pytest.mark.parametrize(
    ("changes", "last"),
    [
        ([op("GROW_DISK", 0.5, amount="512", disk=0)], (0, 0, 0, 512, 0)),
        ([op("GROW_DISK", 0.5, amount=9000, absolute=True)], (0, 0, 0, 0, 1)),
        ([op("SET_PARAMS", 0.5, beparams={"maxmem": 2048})], (0, 0, 1024, 0, 0)),
        (
            [op("SET_PARAMS", 0.5, beparams={"memory": 512}), op("REMOVE", 0.1)],
            (0, 1, -1024, -2048, 0),
        ),
        ([op("SET_PARAMS", 0.5, disks=[["add", -1, {"size": 7}]])], (0, 0, 0, 7, 0)),
        ([op("SET_PARAMS", 0.5, disks=[["remove", 0, {}]])], (0, 0, 0, 0, 1)),
        ([op("SET_PARAMS", 0.5, disks=[["modify", 0, {"mode": "ro"}]])], (0, 0, 0, 0, 0)),
        ([op("SET_PARAMS", 0.5, nics=[["add", -1, {}]])], (0, 0, 0, 0, 0)),
    ],
)
def test_sizes_that_change(changes: list[QueuedOp], last: tuple[int, ...]) -> None:
    assert weeks(CREATE, *changes)[1] == last


def test_what_is_older_than_the_jobs_is_counted_as_unknown() -> None:
    assert weeks(op("REMOVE", 0.5))[1] == (0, 1, 0, 0, 1)
    assert weeks(op("SET_PARAMS", 0.5, beparams={"maxmem": 5}))[1] == (0, 0, 0, 0, 1)
    assert weeks(op("GROW_DISK", 0.5, amount=5))[1] == (0, 0, 0, 5, 0)
    # Jobs before the weeks asked for still tell sizes.
    assert weeks(CREATE, op("REMOVE", 0.5), count=1) == [(0, 1, -1024, -2048, 0)]


def test_what_changed_nothing_does_not_count() -> None:
    create = {"disks": [{"size": 1}]}
    assert (
        weeks(
            op("CREATE", 0.5, Status.ERROR, **create),
            op("CREATE", 0.5, Status.CANCELED, **create),
            op("CREATE", 0.5, dry_run=True, **create),
            op("CREATE", 0.5, forthcoming=True, **create),
            op("STARTUP", 0.5),
        )
        == [(0, 0, 0, 0, 0)] * 2
    )


def test_a_planned_instance_counts_once_it_is_made() -> None:
    plan = op("CREATE", 1.5, forthcoming=True, disks=[{"size": 10}], beparams={"maxmem": 256})
    assert weeks(plan, op("CREATE", 0.5, commit=True, disks=[])) == [
        (0, 0, 0, 0, 0),
        (1, 0, 256, 10, 0),
    ]
    assert weeks(op("CREATE", 0.5, commit=True, disks=[]))[1] == (1, 0, 128, 0, 1)


def test_names_may_lack_their_domain_and_may_change() -> None:
    rename = op("RENAME", 0.8, new_name="db1", result="db1.example.com")
    for name in ("db1", "db1.example.com"):
        found = weeks(CREATE, rename, op("REMOVE", 0.5, instance_name=name))
        assert found[1] == (0, 1, -1024, -2048, 0)
    assert weeks(CREATE, op("REMOVE", 0.5, instance_name="web1"))[1] == (0, 1, -1024, -2048, 0)
    other = op("REMOVE", 0.5, instance_name="web1.example.org")
    assert weeks(CREATE, other)[1] == (0, 1, 0, 0, 1)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_in_which_jobs_are_read_does_not_matter(seed: int) -> None:
    ops = (CREATE, op("SET_PARAMS", 1.2, beparams={"maxmem": 2048}), op("REMOVE", 0.5))
    assert weeks(*ops, shuffled=seed) == weeks(*ops)


def test_values_that_make_no_sense_are_passed_over() -> None:
    odd = op("CREATE", 0.5, disks=[None, {"size": "much"}, {}], beparams=[], instance_name="x")
    assert weeks(odd)[1] == (1, 0, 128, 0, 0)
    assert weeks(op("SET_PARAMS", 0.5, disks=[[], 7, ["add"]]))[1][-1] == 1
    assert weeks(op("REMOVE", 0.5, instance_name=None)) == [(0, 0, 0, 0, 0)] * 2
    ahead = Fact(NOW + 1000, Kind.CREATED, "x", 1, 1)  # of a node whose clock was ahead
    assert growth([ahead], now=NOW, weeks=1, default_memory_mib=0) == [
        Week(NOW - WEEK_S, created=1, memory=1, disk=1)
    ]
