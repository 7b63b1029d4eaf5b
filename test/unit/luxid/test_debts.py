"""What candidates missed is sent to them as soon as they answer, and nobody is pestered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ganeti.clients.node_rpc import Target
from ganeti.luxid import debts as debts_module
from ganeti.luxid.debts import Debts
from ganeti.luxid.tasks import Tasks

N2 = Target("n2", "192.0.2.2")
NEVER_S = 3600.0
OFTEN = 5
ROUNDS = 50  # of the loop: enough for everything that does not wait


class Candidates:
    """One candidate that is up or down, and takes some files and not others."""

    def __init__(self) -> None:
        self.targets = {"n2": N2}
        self.is_up = True
        self.missing: set[str] = set()
        self.others_files: set[str] = set()
        self.refused: set[str] = set()
        self.asked = 0
        self.asked_often = asyncio.Event()
        self.tried: list[str] = []
        self.taken: list[str] = []
        self.debts: Debts

    def candidate(self, name: str) -> Target | None:
        return self.targets.get(name)

    def is_missing(self, name: str) -> bool:
        return name in self.missing

    def is_ours(self, path: str) -> bool:
        return path not in self.others_files

    async def ask(self, target: Target) -> bool:
        self.asked += 1
        if self.asked == OFTEN:
            self.asked_often.set()
        await asyncio.sleep(0)
        if self.is_up:
            self.missing.discard(target.name)
        return self.is_up

    async def send_again(self, target: Target, path: str) -> bool:
        self.tried.append(path)
        await asyncio.sleep(0)
        if self.is_up and path not in self.refused:
            self.taken.append(path)
            self.missing.discard(target.name)
            self.debts.paid(target.name, path)
            return True
        self.fails(path)
        return False

    def fails(self, path: str) -> None:
        """Note what any failed write leads to."""
        self.missing.add("n2")
        self.debts.add("n2", [path])
        self.debts.look_after("n2")


async def rounds() -> None:
    for _ in range(ROUNDS):
        await asyncio.sleep(0)


def play(script: Callable[[Candidates, Debts], Awaitable[None]]) -> Candidates:
    async def run() -> Candidates:
        candidates = Candidates()
        async with asyncio.TaskGroup() as group:
            tasks = Tasks(group)
            candidates.debts = Debts(candidates, tasks)
            await script(candidates, candidates.debts)
            tasks.cancel()
        return candidates

    return asyncio.run(run())


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debts_module, "_PAUSE_S_MIN", NEVER_S)
    monkeypatch.setattr(debts_module, "_PAUSE_S_MAX", NEVER_S)


@pytest.fixture
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debts_module, "_PAUSE_S_MIN", 0.0)
    monkeypatch.setattr(debts_module, "_PAUSE_S_MAX", 0.001)


async def all_done() -> None:
    """Wait until no task but this one runs; whoever calls this is sure that they end."""
    this = asyncio.current_task()
    assert this is not None
    while others := asyncio.all_tasks() - {this}:
        _, late = await asyncio.wait(others, timeout=60)
        assert not late


@pytest.mark.usefixtures("_hasty")
def test_what_failed_is_tried_again_until_it_is_there_and_then_nothing_runs() -> None:
    async def script(candidates: Candidates, debts: Debts) -> None:
        candidates.is_up = False
        candidates.fails("job-1")
        await candidates.asked_often.wait()
        assert not candidates.tried, "as long as it does not answer, nothing is sent"
        candidates.is_up = True
        await all_done()
        assert debts._looking == {}

    assert play(script).taken == ["job-1"]


@pytest.mark.usefixtures("_patient")
def test_new_debts_are_paid_at_once() -> None:
    async def script(candidates: Candidates, debts: Debts) -> None:
        debts.add("n2", ["job-1", "job-2"])
        debts.pay("n2")
        await all_done()

    candidates = play(script)
    assert candidates.taken == ["job-1", "job-2"]
    assert candidates.asked == 0


@pytest.mark.usefixtures("_patient")
def test_a_file_that_is_not_ours_is_sent_once_it_is() -> None:
    async def script(candidates: Candidates, debts: Debts) -> None:
        candidates.others_files = {"job-1"}
        debts.add("n2", ["job-1"])
        debts.pay("n2")
        await all_done()
        assert not candidates.tried
        candidates.others_files = set()
        debts.pay_file("job-1")
        await all_done()

    assert play(script).taken == ["job-1"]


@pytest.mark.usefixtures("_patient")
def test_one_that_refuses_is_not_tried_on_and_on() -> None:
    async def script(candidates: Candidates, debts: Debts) -> None:
        candidates.refused = {"job-1"}
        debts.add("n2", ["job-1", "job-2"])
        debts.pay("n2")
        await rounds()
        before = list(candidates.tried)
        debts.add("n2", ["job-1"])  # as a comparison would find again
        debts.pay("n2")
        await rounds()
        assert candidates.tried == before

    candidates = play(script)
    assert candidates.taken == ["job-2"], "what it does take is not held up"
    assert candidates.tried.count("job-1") == 2, "once more after it had taken something"


@pytest.mark.usefixtures("_patient")
def test_many_refusals_are_enough_for_one_go() -> None:
    async def script(candidates: Candidates, debts: Debts) -> None:
        paths = [f"job-{number}" for number in range(100)]
        candidates.refused = set(paths)
        debts.add("n2", paths)
        debts.pay("n2")
        await rounds()

    assert len(play(script).tried) == debts_module._REFUSALS_MAX


@pytest.mark.usefixtures("_patient")
def test_a_file_that_it_takes_ends_the_pause() -> None:
    async def script(candidates: Candidates, debts: Debts) -> None:
        candidates.fails("job-1")
        await rounds()
        assert not candidates.tried
        debts.paid("n2", "job-7")
        await all_done()

    assert play(script).taken == ["job-1"]


@pytest.mark.usefixtures("_hasty")
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_candidate_no_more_is_left_alone(when: str) -> None:
    async def script(candidates: Candidates, debts: Debts) -> None:
        candidates.is_up = False
        if when == "before":
            candidates.targets.clear()
        candidates.fails("job-1")
        candidates.targets.clear()
        await all_done()
        candidates.is_up = True
        debts.pay("n2")
        await all_done()

    candidates = play(script)
    assert candidates.tried == []
    assert candidates.asked == 0


def test_pauses_grow_and_begin_anew_after_a_quiet_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, pauses = [0.0], []

    class Timeout:
        def __init__(self, delay_s: float) -> None:
            pauses.append(delay_s)
            now[0] += delay_s

        async def __aenter__(self) -> None:
            raise TimeoutError

        async def __aexit__(self, *_exc_info: object) -> None:
            return

    async def script(candidates: Candidates, debts: Debts) -> None:
        candidates.is_up = False
        monkeypatch.setattr("ganeti.luxid.debts.clock.monotonic", lambda: now[0])
        monkeypatch.setattr("ganeti.luxid.debts.asyncio.timeout", Timeout)
        candidates.fails("job-1")
        await rounds()
        candidates.is_up = True
        await rounds()
        assert candidates.taken == ["job-1"]
        now[0] += 3600
        known = len(pauses)
        candidates.fails("job-1")
        await rounds()
        assert pauses[known] == pauses[0]

    play(script)
    assert pauses[:7] == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
