"""The helper and its children, over their real sockets: one helper process for each test."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import psutil
import pytest
from fakes.noded_node import children_at_work

from ganeti.base.paths import Paths
from ganeti.daemon.partner import LOOK_S, LOOKS_MAX
from ganeti.noded.child import SPARE_NAME, RequestHead
from ganeti.noded.children import Children, HelperHandle, start_helper
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import BROKEN_OFF
from ganeti.system import process_facts
from ganeti.system.process import wait_gone

DEADLINE_S = 60.0
SHORT_S = 2.0  # long enough to see the child
DELAY = NodeCalls.calls["test_delay"]
HEAD = RequestHead("test_delay", "127.0.0.9", 7)


@pytest.fixture
def handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HelperHandle]:
    monkeypatch.setenv("GANETI_ROOTDIR", "/proc/nowhere")
    started = start_helper(Paths(str(tmp_path)), "node1.example.com", ())
    yield started
    started.control.close()
    _gone(started.pid)


def _gone(pid: int) -> None:
    if psutil.pid_exists(pid):
        assert wait_gone(pid, DEADLINE_S)
        if psutil.Process(os.getpid()).children() and psutil.pid_exists(pid):
            os.waitpid(pid, 0)


def run(
    handle: HelperHandle,
    use: Callable[[Children], Awaitable[None]],
    given_up: list[str] | None = None,
) -> list[str]:
    given_up = [] if given_up is None else given_up

    async def main() -> None:
        children = Children(handle, "node1.example.com", given_up.append)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await use(children)
        finally:
            children.close()

    asyncio.run(main())
    return given_up


async def the_child_of(pid: int) -> psutil.Process:
    while not (found := children_at_work(psutil.Process(pid))):  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    return found[0]


async def the_spare_of(pid: int, but: psutil.Process | None = None) -> psutil.Process:
    while True:
        for child in psutil.Process(pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.name() == SPARE_NAME and child != but:
                    return child
        await asyncio.sleep(0)


async def ended(child: psutil.Process) -> None:
    """Wait until a child has ended; its parent may still have to take note of that."""
    with contextlib.suppress(psutil.NoSuchProcess):
        while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def begun(child: psutil.Process) -> None:
    """Wait until a child has its call, and sleeps."""
    while child.name() == SPARE_NAME or child.status() != psutil.STATUS_SLEEPING:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.shows("2.0/noded/children")
def test_a_call_is_answered_by_a_child(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        assert json.loads(await children.call(DELAY, HEAD, b"[0]", 60.0)) == [True, None]

    run(handle, use)


@pytest.mark.shows("2.0/noded/children")
def test_many_calls_run_side_by_side(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        calls = [
            asyncio.ensure_future(children.call(DELAY, HEAD, b"[3600]", 600.0)) for _ in range(10)
        ]
        helper = psutil.Process(handle.pid)
        while len(children_at_work(helper)) < 10:  # noqa: ASYNC110 - nothing tells of them
            await asyncio.sleep(0.01)
        for child in children_at_work(helper):
            child.kill()
        for answer in await asyncio.gather(*calls):
            text = json.loads(answer)[1]
            assert "ended without an answer" in text
            assert text.endswith(BROKEN_OFF)

    run(handle, use)


def test_a_failure_is_an_answer(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        success, text = json.loads(await children.call(DELAY, HEAD, b"[-1]", 60.0))
        assert not success
        assert "negative" in text

    run(handle, use)


def test_a_child_past_its_deadline_is_stopped(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        call = asyncio.ensure_future(children.call(DELAY, HEAD, b"[3600]", SHORT_S))
        child = await the_child_of(handle.pid)
        success, text = json.loads(await call)
        assert not success
        why = "test_delay did not end within 2 s on node node1.example.com and was stopped"
        assert text == why + BROKEN_OFF
        await ended(child)

    run(handle, use)


def test_a_child_whose_caller_hangs_up_is_stopped(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        gone = asyncio.get_running_loop().create_future()
        call = asyncio.ensure_future(children.call(DELAY, HEAD, b"[3600]", 600.0, gone))
        child = await the_child_of(handle.pid)
        gone.set_result(None)
        success, text = json.loads(await call)
        assert not success
        assert text == f"test_delay was stopped, as its caller hung up{BROKEN_OFF}"
        await ended(child)
        gone_before = asyncio.get_running_loop().create_future()
        gone_before.set_result(None)
        assert not json.loads(await children.call(DELAY, HEAD, b"[3600]", 600.0, gone_before))[0]
        assert json.loads(await children.call(DELAY, HEAD, b"[0]", 60.0)) == [True, None]

    run(handle, use)


def test_a_stopped_child_that_does_not_listen_is_killed(
    handle: HelperHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganeti.noded.children.STOP_GRACE_S", 0.3)

    async def use(children: Children) -> None:
        call = asyncio.ensure_future(children.call(DELAY, HEAD, b"[3600]", SHORT_S))
        child = await the_child_of(handle.pid)
        child.send_signal(signal.SIGSTOP)
        success, text = json.loads(await call)
        assert not success
        assert text.endswith(BROKEN_OFF)
        await ended(child)

    run(handle, use)


def test_a_killed_child_is_named_in_the_answer(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        call = asyncio.ensure_future(children.call(DELAY, HEAD, b"[3600]", 60.0))
        (await the_child_of(handle.pid)).kill()
        success, text = json.loads(await call)
        assert not success
        assert "ended without an answer" in text
        assert "SIGKILL" in text

    run(handle, use)


@pytest.mark.shows("2.0/noded/cheap")
def test_a_call_goes_to_the_child_that_waits_for_it(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        spare = await the_spare_of(handle.pid)
        call = asyncio.ensure_future(children.call(DELAY, HEAD, b"[3600]", 600.0))
        assert await the_child_of(handle.pid) == spare
        assert await the_spare_of(handle.pid) != spare
        spare.kill()
        assert "SIGKILL" in json.loads(await call)[1]

    run(handle, use)


def test_a_spare_child_that_died_harms_no_call(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        spare = await the_spare_of(handle.pid)
        spare.kill()
        await ended(spare)
        for _round in range(2):
            assert json.loads(await children.call(DELAY, HEAD, b"[0]", 60.0)) == [True, None]
        assert await the_spare_of(handle.pid) != spare

    run(handle, use)


def test_a_child_that_dies_before_the_helper_has_told_of_it_harms_no_call(
    handle: HelperHandle,
) -> None:
    async def use(children: Children) -> None:
        spare = await the_spare_of(handle.pid)
        spare.suspend()
        children._loop.remove_reader(handle.control.fileno())
        call = asyncio.ensure_future(children.call(DELAY, HEAD, b"[0]", 60.0))
        await the_spare_of(handle.pid, but=spare)  # which has the call by then
        [running] = children._calls.values()
        spare.kill()
        while not running.was_cut_off:  # noqa: ASYNC110 - nothing else tells of it
            await asyncio.sleep(0)
        children._watch_control()
        assert json.loads(await call) == [True, None]
        assert children._helper.pid == handle.pid

    run(handle, use)


def test_the_spare_child_ends_with_a_helper_that_is_killed(handle: HelperHandle) -> None:
    async def use(_children: Children) -> None:
        spare = await the_spare_of(handle.pid)
        os.kill(handle.pid, signal.SIGKILL)
        await ended(spare)

    run(handle, use)


def test_a_dead_helper_is_replaced_and_its_children_still_answer(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        call = asyncio.ensure_future(children.call(DELAY, HEAD, b"[4]", 60.0))
        await the_child_of(handle.pid)
        os.kill(handle.pid, signal.SIGKILL)
        assert json.loads(await call) == [True, None]
        assert json.loads(await children.call(DELAY, HEAD, b"[0]", 60.0)) == [True, None]

    assert run(handle, use) == []


def test_a_child_that_ended_unnoticed_is_sent_no_signal(
    handle: HelperHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody tells of its end when its helper is dead, and its number may be another's by then."""
    monkeypatch.setattr("ganeti.noded.children.STOP_GRACE_S", 1.0)
    signaled: list[tuple[int, bool]] = []

    def watched(send: Callable[[int, int], None]) -> Callable[[int, int], None]:
        def send_watched(pid: int, number: int) -> None:
            signaled.append((pid, process_facts.read(pid) is not None))
            send(pid, number)

        return send_watched

    async def use(children: Children) -> None:
        call = asyncio.ensure_future(children.call(DELAY, HEAD, b"[3600]", SHORT_S))
        child = await the_child_of(handle.pid)
        os.kill(handle.pid, signal.SIGKILL)
        while children._helper.pid == handle.pid:  # noqa: ASYNC110 - nothing else tells of it
            await asyncio.sleep(0)
        monkeypatch.setattr(os, "kill", watched(os.kill))
        monkeypatch.setattr(os, "killpg", watched(os.killpg))
        assert "was stopped" in json.loads(await call)[1]
        await ended(child)
        assert all(is_there for pid, is_there in signaled if pid == child.pid)

    run(handle, use)


def test_many_calls_leave_no_descriptor(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        before = len(os.listdir("/proc/self/fd"))
        for _round in range(3):
            success, _text = json.loads(await children.call(DELAY, HEAD, b"[-1]", 60.0))
            assert not success
            children._let_all_go()
        while len(os.listdir("/proc/self/fd")) > before:  # noqa: ASYNC110 - they are let go later
            await asyncio.sleep(0.01)

    run(handle, use)


def test_a_helper_that_hangs_is_replaced_and_no_call_is_lost(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        begun = asyncio.ensure_future(children.call(DELAY, HEAD, b"[1]", 60.0))
        await the_child_of(handle.pid)
        os.kill(handle.pid, signal.SIGSTOP)
        calls = [children.call(DELAY, HEAD, b"[0]", 60.0) for _ in range(3)]
        assert [json.loads(each) for each in await asyncio.gather(*calls)] == [[True, None]] * 3
        assert children._helper.pid != handle.pid
        assert json.loads(await begun) == [True, None]

    assert run(handle, use) == []


def test_a_call_passes_by_a_spare_child_that_hangs(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        spare = await the_spare_of(handle.pid)
        spare.suspend()
        body = b"[" + b" " * (1 << 20) + b"0]"  # more than the channel takes at once, and less
        for each in (b"[0]", body):
            assert json.loads(await children.call(DELAY, HEAD, each, 60.0)) == [True, None]
            with contextlib.suppress(psutil.NoSuchProcess):  # its large call was its last
                spare = await the_spare_of(handle.pid)
                spare.suspend()
        with contextlib.suppress(psutil.NoSuchProcess):
            spare.resume()
        assert children._helper.pid == handle.pid

    assert run(handle, use) == []


def test_a_child_that_hangs_at_work_is_left_to_its_deadline(
    handle: HelperHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganeti.noded.children.STOP_GRACE_S", 0.3)

    async def use(children: Children) -> None:
        limit_s = 2 * (LOOKS_MAX + 1) * LOOK_S
        call = asyncio.ensure_future(children.call(DELAY, HEAD, b"[3600]", limit_s))
        child = await the_child_of(handle.pid)
        await begun(child)
        child.suspend()
        assert "did not end within 6 s" in json.loads(await call)[1]
        await ended(child)

    run(handle, use)


async def looked(children: Children, body: bytes = b"[0]") -> None:
    assert json.loads(await children.call(DELAY, HEAD, body, 60.0)) == [True, None]


async def kept_by(children: Children) -> list[psutil.Process]:
    """Return the children that wait for another look, once it is known which they are."""
    found = []
    for each in list(children._kept):
        while each.pid is None:  # noqa: ASYNC110 - the helper tells of it
            await asyncio.sleep(0)
        found.append(psutil.Process(each.pid))
        while found[-1].name() != SPARE_NAME:  # noqa: ASYNC110 - it has answered, and goes on
            await asyncio.sleep(0)
    return found


@pytest.mark.shows("2.0/noded/cheap")
def test_a_child_that_only_looked_takes_the_next_look(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        spare = await the_spare_of(handle.pid)
        for _round in range(3):
            await looked(children)
        assert await kept_by(children) == [spare]
        call = asyncio.ensure_future(children.call(DELAY, HEAD, b"[1]", 60.0))
        assert await the_child_of(handle.pid) == spare
        assert children._kept == []
        await looked(children)  # beside it, by another one
        assert json.loads(await call) == [True, None]
        other, last = await kept_by(children)
        assert last == spare
        assert other != spare

    run(handle, use)


def test_what_changes_the_node_has_a_child_of_its_own(handle: HelperHandle) -> None:
    change = NodeCalls.calls["file_storage_dir_remove"]

    async def use(children: Children) -> None:
        await looked(children)
        before = await kept_by(children)
        head = RequestHead(change.name, "127.0.0.9")
        assert not json.loads(await children.call(change, head, b'["/nowhere"]', 60.0))[0]
        assert await kept_by(children) == before

    run(handle, use)


def test_a_failure_at_a_look_leaves_the_child_in_order(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        for body in (b"[-1]", b"[", b"{}", b"[0,1,2]"):
            assert not json.loads(await children.call(DELAY, HEAD, body, 60.0))[0]
            assert len(children._kept) == 1
        await looked(children)

    run(handle, use)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_a_kept_child_that_died_or_hangs_harms_no_call(
    handle: HelperHandle, number: signal.Signals
) -> None:
    async def use(children: Children) -> None:
        await looked(children)
        [kept] = await kept_by(children)
        kept.send_signal(number)
        await looked(children)
        assert kept not in await kept_by(children)
        await ended(kept)
        assert children._helper.pid == handle.pid

    run(handle, use)


def test_of_many_kept_children_that_hang_one_is_waited_for(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        call = [asyncio.ensure_future(looked(children, b"[1]")) for _ in range(4)]
        await asyncio.gather(*call)
        kept = await kept_by(children)
        assert len(kept) == 4
        for each in kept:
            each.send_signal(signal.SIGSTOP)
        await looked(children)
        assert not set(kept) & set(await kept_by(children))
        for each in kept:
            await ended(each)
        assert children._helper.pid == handle.pid

    run(handle, use)


def test_the_end_of_a_kept_child_is_noted(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        await looked(children)
        [kept] = await kept_by(children)
        kept.kill()
        while children._kept:  # noqa: ASYNC110 - nothing else tells of it
            await asyncio.sleep(0)
        await looked(children)

    run(handle, use)


def test_a_look_that_a_kept_child_has_begun_is_not_repeated(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        await looked(children)
        [kept] = await kept_by(children)
        call = asyncio.ensure_future(children.call(DELAY, HEAD, b"[3600]", 60.0))
        child = await the_child_of(handle.pid)
        assert child == kept
        await begun(child)
        child.kill()
        success, text = json.loads(await call)
        assert (success, "killed by SIGKILL" in text) == (False, True)

    run(handle, use)


def test_a_child_is_kept_for_some_calls_only(
    handle: HelperHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganeti.noded.children._CALLS_MAX", 3)

    async def use(children: Children) -> None:
        kept = []
        for _round in range(4):
            await looked(children)
            kept += await kept_by(children)
        assert kept == [kept[0]] * 3  # the fourth call was its last one
        await ended(kept[0])
        await looked(children, b"[" + b" " * (1 << 20) + b"0]")  # which makes it a fat one
        assert children._kept == []

    run(handle, use)


def test_a_child_is_kept_for_a_while_only(
    handle: HelperHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganeti.noded.children._KEPT_S", 1.0)

    async def use(children: Children) -> None:
        for is_stopped in (False, True):
            await looked(children)
            [kept] = await kept_by(children)
            if is_stopped:
                kept.send_signal(signal.SIGSTOP)
            await ended(kept)
            assert children._kept == []

    run(handle, use)


def test_kept_children_end_with_the_daemon_and_with_their_helper(handle: HelperHandle) -> None:
    async def use(children: Children) -> None:
        await looked(children)
        [first] = await kept_by(children)
        os.kill(handle.pid, signal.SIGKILL)
        await ended(first)
        await looked(children)
        second.extend(await kept_by(children))

    second: list[psutil.Process] = []
    run(handle, use)
    asyncio.run(ended(second[0]))


def test_a_helper_that_dies_again_and_again_ends_the_daemon(
    handle: HelperHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganeti.noded.children._RESTART_WINDOW_S", 3600.0)  # of a slow machine

    async def use(children: Children) -> None:
        for _round in range(6):  # once more than it is started again
            pid = children._helper.pid
            os.kill(pid, signal.SIGKILL)
            while children._helper.pid == pid and not given_up:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0)
        success, text = json.loads(await children.call(DELAY, HEAD, b"[0]", 60.0))
        assert not success
        assert "the helper process takes no calls" in text

    given_up: list[str] = []
    run(handle, use, given_up)
    assert given_up == ["the helper process died 6 times in a minute"]


def test_the_helper_ends_when_the_daemon_does(handle: HelperHandle) -> None:
    handle.control.close()
    assert wait_gone(handle.pid, DEADLINE_S)


KILLED_DAEMON = """
import asyncio, os, signal, sys, time
from ganeti.base.paths import Paths
from ganeti.noded.child import RequestHead
from ganeti.noded.children import Children, start_helper
from ganeti.protocol.node_calls import NodeCalls

DELAY = NodeCalls.calls["test_delay"]
handle = start_helper(Paths(sys.argv[1]), "node1.example.com", ())

async def main():
    children = Children(handle, "node1.example.com", print)
    if sys.argv[2] == "replaced":
        os.kill(handle.pid, signal.SIGKILL)
        while children._helper.pid == handle.pid:
            await asyncio.sleep(0)
    call = asyncio.ensure_future(children.call(DELAY, RequestHead("test_delay"), b"[3600]", 600.0))
    while not any(each.pid for each in children._calls.values()):
        await asyncio.sleep(0)
    (running,) = children._calls.values()
    print(children._helper.pid, running.pid, flush=True)
    await call

asyncio.run(main())
"""


@pytest.mark.parametrize("which", ["first", "replaced"])
def test_a_helper_that_hangs_ends_with_a_daemon_that_is_killed(tmp_path: Path, which: str) -> None:
    argv = [sys.executable, "-c", KILLED_DAEMON, str(tmp_path), which]
    env = {**os.environ, "GANETI_ROOTDIR": "/proc/nowhere", "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        helper, child = (psutil.Process(int(each)) for each in daemon.stdout.readline().split())
        asyncio.run(begun(child))
        helper.suspend()
        daemon.kill()
    try:
        assert wait_gone(helper.pid, DEADLINE_S)
        assert child.is_running()
        assert child.status() == psutil.STATUS_SLEEPING  # it finishes by itself
    finally:
        child.kill()
