"""Questions about jobs: bounded, and no hindrance to others."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.base.ids import JobId
from ganeti.base.json import dumps
from ganeti.jobs.submission import make_job
from ganeti.luxid import slices
from ganeti.luxid.job_methods import JobMethods
from ganeti.luxid.queue.known_jobs import KnownJob, KnownJobs, Phase
from ganeti.query import limits
from ganeti.query.limits import FIELDS_MAX, REPEATS_MAX

JOBS = 20


@pytest.fixture
def methods() -> JobMethods:
    known = KnownJobs()
    for number in range(1, JOBS + 1):
        job = make_job(JobId(number), [{"OP_ID": "OP_TEST_DELAY", "duration": 0.0}], (1, 1))
        known.add(KnownJob(job, Phase.QUEUED))
    parts: list[Any] = [None, None, None]
    return JobMethods(known, *parts)


def wire(answer: object) -> Any:
    return json.loads(dumps(answer))


def test_rows_come_in_the_order_asked(methods: JobMethods) -> None:
    rows = asyncio.run(methods.query_jobs([3, "1", 3], ["id", "status", "id"]))
    assert wire(rows) == [[3, "queued", 3], [1, "queued", 1], [3, "queued", 3]]
    rows = asyncio.run(methods.query_jobs(None, ["id"], 2))
    assert wire(rows) == [[JOBS - 1], [JOBS]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (["id"] * (REPEATS_MAX + 1), "'id' is asked for 5 times, 4 are possible"),
        (["id"] * (FIELDS_MAX + 1), "at most 1000 fields"),
    ],
)
def test_fields_are_not_repeated_without_end(
    methods: JobMethods, fields: list[str], message: str
) -> None:
    for question in (
        methods.query_jobs(None, fields),
        methods.wait_for_job_change(1, fields, None, None, 0.0),
    ):
        with pytest.raises(OpPrereqError, match=message):
            asyncio.run(question)


def test_an_answer_that_is_too_large_is_refused(
    methods: JobMethods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ANSWER_BYTES_MAX", 1000)
    assert wire(asyncio.run(methods.query_jobs([1], ["id"]))) == [[1]]
    with pytest.raises(OpPrereqError, match="ask for fewer things"):
        asyncio.run(methods.query_jobs([1] * 100, ["id"]))
    monkeypatch.setattr(limits, "ANSWER_BYTES_MAX", 10)
    with pytest.raises(OpPrereqError, match="ask for fewer things"):
        asyncio.run(methods.wait_for_job_change(1, ["id"], None, None, 0.0))


def test_others_get_their_turn_meanwhile(
    methods: JobMethods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)

    async def ask() -> int:
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.ensure_future(take_turns())
        await methods.query_jobs(None, ["id"])
        other.cancel()
        return turns

    assert asyncio.run(ask()) >= JOBS // 2


def test_a_change_is_told_once(methods: JobMethods) -> None:
    fields = ["id", "status"]
    told = wire(asyncio.run(methods.wait_for_job_change(7, fields, None, None, 0.0)))
    assert told == [[7, "queued"], []]
    again = asyncio.run(methods.wait_for_job_change(7, fields, told[0], None, 0.0))
    assert wire(again) == [told[0], []]
