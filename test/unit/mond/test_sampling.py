"""Tests of ganeti/mond/sampling.py, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from fakes.loop import run_in_virtual_time
from fakes.waiting import until

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.collectors.cluster_facts import Need, Switch
from ganeti.collectors.collector import Collector, NodeView, Timing
from ganeti.collectors.report import Kind, StatusCode
from ganeti.mond import sampling
from ganeti.mond.sampling import FIRST_WAIT_S, IDLE_S, Sampler


class Inline(Executor):
    """Works at once, in the loop's own thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as err:
            future.set_exception(err)
        return future


class Subject:
    """What a test's collector finds, and how often it was asked to."""

    def __init__(self, timing: Timing, kind: Kind = Kind.PERFORMANCE) -> None:
        subject, its_timing, its_kind = self, timing, kind

        class Test(Collector):
            name = "test"
            summary = "a test's"
            kind = its_kind
            timing = its_timing
            needs = frozenset({Need.INSTANCES})

            def __init__(self) -> None:
                subject.made += 1

            def collect(self, _view: NodeView) -> object:
                return subject.collect()

        self.row = Test
        self.collected: list[float] = []
        self.made = 0
        self.result: object = "data"
        self.gate: asyncio.Event | None = None

    def collect(self) -> object:
        self.collected.append(asyncio.get_running_loop().time())
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    async def look_around(self, needs: frozenset[Need]) -> NodeView:
        assert needs == self.row.needs
        if self.gate is not None:
            await self.gate.wait()
        return NodeView(Paths(), "n")


@contextlib.asynccontextmanager
async def at_work(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sampler]:
    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[None]] = []

        def spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
            tasks.append(group.create_task(work, name=name))
            return tasks[-1]

        sampler = Sampler(subject.row, subject.look_around, Inline(), spawn)
        spawn(sampler.run(), "sampler")
        yield sampler
        for task in tasks:
            task.cancel()


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    def run(monkeypatch: pytest.MonkeyPatch) -> None:
        run_in_virtual_time(test(monkeypatch))

    return run


@in_virtual_time
async def test_what_is_read_at_once_is_read_for_each_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject = Subject(Timing.AT_ONCE)
    async with at_work(subject, monkeypatch) as sampler:
        for result in ("one", "two"):
            subject.result = result
            assert (await sampler.report()).data == result
        await asyncio.sleep(100)
        assert len(subject.collected) == 2
        assert subject.made == 1  # it may remember something


@in_virtual_time
async def test_requests_at_the_same_time_share_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(Timing.AT_ONCE)
    subject.gate = asyncio.Event()
    async with at_work(subject, monkeypatch) as sampler:
        asking = [asyncio.ensure_future(sampler.report()) for _ in range(200)]
        await asyncio.sleep(0.1)
        subject.gate.set()
        reports = await asyncio.gather(*asking)
        assert {report.data for report in reports} == {"data"}
        assert len(subject.collected) == 1


@in_virtual_time
async def test_averages_are_kept_whether_anybody_asks_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject = Subject(Timing.STEADY)
    async with at_work(subject, monkeypatch) as sampler:
        assert (await sampler.report()).data == "data"  # waits for the second sample
        assert subject.collected == [0.0, 1.0]
        await asyncio.sleep(2 * IDLE_S)
        assert len(subject.collected) > IDLE_S / 5
        sampler.set_switch(Switch(True, 60.0))
        await asyncio.sleep(0)
        before = len(subject.collected)
        await asyncio.sleep(600)
        assert len(subject.collected) - before in (10, 11)


@in_virtual_time
async def test_what_takes_long_sleeps_until_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(Timing.WHEN_ASKED)
    async with at_work(subject, monkeypatch) as sampler:
        await asyncio.sleep(1000)
        assert subject.collected == []
        assert (await sampler.report()).data == "data"
        await asyncio.sleep(20.5)
        assert subject.collected == [1000, 1005, 1010, 1015, 1020]
        await asyncio.sleep(IDLE_S)
        before = len(subject.collected)
        await asyncio.sleep(1000)
        assert len(subject.collected) == before
        subject.result = "new"
        assert (await sampler.report()).data == "new"


@in_virtual_time
async def test_nobody_waits_long_for_what_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(Timing.WHEN_ASKED, Kind.STATUS)
    subject.gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with at_work(subject, monkeypatch) as sampler:
        report = await sampler.report()
        assert loop.time() == pytest.approx(FIRST_WAIT_S)
        assert report.data["status"].code == StatusCode.TEMPORARILY_BAD
        assert "no report yet" in report.data["status"].message
        await sampler.report()
        assert loop.time() == pytest.approx(FIRST_WAIT_S)  # the next ones do not wait again
        subject.gate.set()
        assert (await sampler.report()).data == "data"


@in_virtual_time
async def test_a_failure_is_a_report_and_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(Timing.AT_ONCE)
    async with at_work(subject, monkeypatch) as sampler:
        for error, text in (
            (GenericError("no such file"), "no such file"),
            (ValueError("bug"), "internal error: ValueError: bug"),
        ):
            subject.result = error
            report = await sampler.report()
            assert report.data == {}
            assert report.failure == sampler.tally.failure == text
        assert sampler.tally.errors == 2
        subject.result = "data"
        report = await sampler.report()
        assert (report.data, report.status) == ("data", None)
        assert sampler.tally.failure is None
        assert sampler.tally.collected_s is not None


@in_virtual_time
async def test_a_collector_that_is_switched_off_rests_and_forgets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject = Subject(Timing.STEADY)
    async with at_work(subject, monkeypatch) as sampler:
        await sampler.report()
        sampler.set_switch(Switch(False, 5.0))
        await asyncio.sleep(0.1)
        before = len(subject.collected)
        await asyncio.sleep(100)
        assert len(subject.collected) == before
        sampler.set_switch(Switch(True, 5.0))
        await until(lambda: subject.made == 2)
        assert (await sampler.report()).data == "data"


@in_virtual_time
async def test_a_tiny_interval_does_not_keep_the_node_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(Timing.STEADY)
    async with at_work(subject, monkeypatch) as sampler:
        sampler.set_switch(Switch(True, 1e-6))
        await asyncio.sleep(10)
        assert 90 < len(subject.collected) < 110


@in_virtual_time
async def test_an_interval_is_cut_where_reports_grow_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(Timing.WHEN_ASKED)
    monkeypatch.setattr(sampling, "IDLE_S", 1e9)
    monkeypatch.setattr(subject.row, "interval_s_max", 120.0)
    async with at_work(subject, monkeypatch) as sampler:
        sampler.set_switch(Switch(True, 3600.0))
        await sampler.report()
        await asyncio.sleep(1200)
        assert len(subject.collected) in (10, 11)


@in_virtual_time
async def test_what_somebody_relies_on_never_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(Timing.ALWAYS)
    async with at_work(subject, monkeypatch) as sampler:
        await asyncio.sleep(3 * IDLE_S)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert (await sampler.report()).data == "data"
        assert loop.time() == began_s
        assert len(subject.collected) >= 3 * IDLE_S / 5


@in_virtual_time
async def test_a_report_by_a_former_command_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(Timing.ALWAYS)
    loop = asyncio.get_running_loop()
    async with at_work(subject, monkeypatch) as sampler:
        sampler.set_switch(Switch(True, 100.0, "old"))
        subject.result = "of old"
        assert (await sampler.report()).data == "of old"
        began_s = loop.time()
        subject.result = "of new"
        sampler.set_switch(Switch(True, 100.0, "new"))
        assert (await sampler.report()).data == "of new"
        assert loop.time() == began_s
        # A run that is under way belongs to the command that it began with.
        subject.gate = asyncio.Event()
        subject.result = "of old"
        await asyncio.sleep(150)
        sampler.set_switch(Switch(True, 100.0, "newest"))
        gate, subject.gate = subject.gate, asyncio.Event()
        gate.set()
        await asyncio.sleep(10)
        assert subject.collected[-1] == loop.time() - 10
        assert "no report yet" in str((await sampler.report()).failure)
        subject.result = "of newest"
        subject.gate.set()
        await asyncio.sleep(0.1)
        assert (await sampler.report()).data == "of newest"
