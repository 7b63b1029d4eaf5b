"""How a daemon asks whether its node is the master: retries, latecomers, the outvoted."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import NotMasterError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.node_rpc import RpcResult, Target, read_answer
from ganeti.daemon import master_watch
from ganeti.daemon.context import DaemonContext
from ganeti.daemon.master_watch import MasterWatch, confirm, poll_everybody, take_vote
from ganeti.daemon.options import MasterOptions
from ganeti.jobs.votes import Standing, judge
from ganeti.protocol.node_rpc import NodeCall, encode_result
from ganeti.store import availability, ssconf
from ganeti.store.availability import State
from ganeti.store.notes import renewal, restoration
from ganeti.system import clock

OWN = "n1"
Says = Callable[[], Awaitable[object]]


async def nothing() -> object:
    await asyncio.Event().wait()
    raise AssertionError


class FakeRpc(AsyncNodeRpcClient):
    """Nodes that answer what a table says: a payload, or an error for None."""

    def __init__(self, says: dict[str, object]) -> None:
        self.says = says
        self.asked: list[tuple[str, str]] = []

    async def __aexit__(self, *_exc_info: object) -> None:
        pass

    async def perform(
        self, call: NodeCall, targets: Mapping[Target, Sequence[object]]
    ) -> dict[str, RpcResult[Any]]:
        return {target.name: await self._one(call, target) for target in targets}

    async def _one(self, call: NodeCall, target: Target) -> RpcResult[Any]:
        assert not target.offline, "it would not be asked"
        self.asked.append((target.name, call.name))
        answer = self.says.get(target.name)
        if callable(answer):
            answer = await answer()
        if answer is None:
            return RpcResult(target.name, error="connection refused", address="a:1811")
        if isinstance(answer, str) and call.name == "master_facts":
            return RpcResult(target.name, error="HTTP status 404: no such call", address="a:1811")
        return read_answer(call, target.name, encode_result(answer))


def facts(master: str, **more: object) -> dict[str, object]:
    return {"master_name": master, **more}


def make_context(
    tmp_path: Path, *, nodes: int = 3, offline: str = "", **options: bool
) -> DaemonContext:
    paths = Paths(str(tmp_path))
    os.makedirs(paths.data_dir)
    os.makedirs(paths.lock_dir)
    names = [f"n{number}" for number in range(1, nodes + 1)]
    values = {
        "master_node": OWN,
        "offline_nodes": offline,
        "node_primary_ips": "\n".join(f"{name} 192.0.2.{name[1:]}" for name in names),
        "master_candidates": "\n".join(names),
        "master_candidates_ips": "\n".join(f"192.0.2.{name[1:]}" for name in names),
    }
    ssconf.write_values(paths, values)
    return DaemonContext(paths, OWN, MasterOptions(**options))


@pytest.fixture
def rpc(monkeypatch: pytest.MonkeyPatch) -> FakeRpc:
    fake = FakeRpc({})
    monkeypatch.setattr(master_watch, "AsyncNodeRpcClient", lambda _paths: fake)
    monkeypatch.setattr(master_watch, "_FIRST_RETRIES_S", (0.001,))
    monkeypatch.setattr(master_watch, "VOTING_RETRY_INTERVAL_S", 0.001)
    monkeypatch.setattr(master_watch, "OBJECTIONS_S", 0.05)
    monkeypatch.setattr(master_watch, "TICK_S", 0.005)
    return fake


def test_a_single_node_asks_nobody(tmp_path: Path, rpc: FakeRpc) -> None:
    asyncio.run(confirm(make_context(tmp_path, nodes=1)))
    assert not rpc.asked


@pytest.mark.shows("2.0/startup/nodes-asked")
def test_a_majority_confirms_and_who_is_slow_is_not_waited_for(
    tmp_path: Path, rpc: FakeRpc
) -> None:
    rpc.says = {"n2": facts(OWN), "n3": nothing}
    poll = asyncio.run(confirm(make_context(tmp_path)))
    assert set(poll.answers) == {"n1", "n2"}
    assert poll.silent == {"n3": "no answer yet"}


def test_who_objects_is_heard_although_there_are_enough_votes(tmp_path: Path, rpc: FakeRpc) -> None:
    async def late() -> object:
        await asyncio.sleep(0.01)
        return facts(OWN, cluster_uuid="c", config_serial=9)

    rpc.says = {"n2": facts(OWN), "n3": late}
    with pytest.raises(NotMasterError, match="n3 has a newer configuration"):
        asyncio.run(confirm(make_context(tmp_path)))


def test_a_configuration_that_was_just_spread_from_here_is_no_newer_one(
    tmp_path: Path, rpc: FakeRpc
) -> None:
    context = make_context(tmp_path)
    config = Path(context.paths.config_data)
    config.write_text('{"serial_no":8,"cluster":{"uuid":"c"}}')

    async def after_the_next_change() -> object:
        config.write_text('{"serial_no":9,"cluster":{"uuid":"c"}}')
        return facts(OWN, cluster_uuid="c", config_serial=9)

    rpc.says = {"n2": after_the_next_change, "n3": after_the_next_change}
    asyncio.run(confirm(context))


def test_old_nodes_are_asked_the_old_way(tmp_path: Path, rpc: FakeRpc) -> None:
    rpc.says = {"n2": OWN}
    asyncio.run(confirm(make_context(tmp_path)))
    assert ("n2", "master_node_name") in rpc.asked


def test_who_was_cut_off_while_certificates_were_replaced_hears_how_to_go_on(
    tmp_path: Path, rpc: FakeRpc
) -> None:
    context = make_context(tmp_path)
    renewal.begin(context.paths)
    with pytest.raises(
        NotMasterError, match=r"does not answer .*; certificates were being replaced"
    ):
        asyncio.run(confirm(context))


def test_a_restoration_that_was_cut_off_does_not_end_as_an_ordinary_start(
    tmp_path: Path, rpc: FakeRpc
) -> None:
    """The name of the master is this machine's: the others would confirm it with its old copy."""
    rpc.says = {"n2": facts(OWN), "n3": facts(OWN)}
    context = make_context(tmp_path)
    Path(context.paths.config_data).write_text('{"serial_no": 7}')
    restoration.begin(context.paths, 7)
    with pytest.raises(NotMasterError, match=r"from a backup.*'gnt-cluster master-failover'"):
        asyncio.run(confirm(context))
    assert not rpc.asked
    Path(context.paths.config_data).write_text('{"serial_no": 8}')  # a later one than it tells of
    asyncio.run(confirm(context))


def test_too_few_answers_are_asked_for_again_until_the_time_is_over(
    tmp_path: Path, rpc: FakeRpc
) -> None:
    with pytest.raises(NotMasterError, match=r"1 of 3 nodes say .* n2 does not answer"):
        asyncio.run(confirm(make_context(tmp_path)))
    tries = sum(name == "n2" for name, _ in rpc.asked)
    assert tries == master_watch.VOTING_RETRIES + 1


def test_nodes_that_come_up_meanwhile_count(tmp_path: Path, rpc: FakeRpc) -> None:
    async def second_time() -> object:
        return facts(OWN) if len(rpc.asked) > 2 else None

    rpc.says = {"n2": second_time}
    asyncio.run(confirm(make_context(tmp_path)))


def test_the_outvoted_need_not_try_again(tmp_path: Path, rpc: FakeRpc) -> None:
    rpc.says = {"n2": facts("n2"), "n3": facts("n2")}
    with pytest.raises(NotMasterError, match="n2, n3 name n2") as refused:
        asyncio.run(confirm(make_context(tmp_path)))
    assert refused.value.master_name == "n2"
    assert len(rpc.asked) == 2


def test_a_node_that_follows_another_asks_nobody(tmp_path: Path, rpc: FakeRpc) -> None:
    context = make_context(tmp_path)
    ssconf.write_values(context.paths, {"master_node": "n2"})
    with pytest.raises(NotMasterError, match="as far as it knows, that is n2"):
        asyncio.run(confirm(context))
    assert not rpc.asked


@pytest.mark.shows("backend/roles/offline-votes", "2.0/offline/votes")
def test_offline_nodes_are_asked_only_if_the_others_are_too_few(
    tmp_path: Path, rpc: FakeRpc
) -> None:
    rpc.says = {"n2": facts(OWN), "n3": facts(OWN)}
    context = make_context(tmp_path, offline="n3")
    asyncio.run(confirm(context))
    assert [name for name, _ in rpc.asked] == ["n2"]
    rpc.says = {"n3": facts(OWN)}
    asyncio.run(confirm(context))
    assert [name for name, _ in rpc.asked] == ["n2", "n2", "n3"]


def test_the_override_asks_nobody_but_wants_to_be_confirmed(tmp_path: Path, rpc: FakeRpc) -> None:
    context = make_context(tmp_path, no_voting=True)
    with pytest.raises(OpPrereqError, match="--yes-do-it"):
        asyncio.run(confirm(context))
    context.options = MasterOptions(no_voting=True, yes_do_it=True)
    asyncio.run(confirm(context))
    assert not rpc.asked


def test_who_is_to_stop_asks_no_longer(tmp_path: Path, rpc: FakeRpc) -> None:
    context = make_context(tmp_path)
    context.stop()
    with pytest.raises(NotMasterError):
        asyncio.run(confirm(context))
    assert len(rpc.asked) == 2


@pytest.mark.shows("2.0/startup/nodes-asked")
def test_everybody_is_asked_where_it_matters(tmp_path: Path, rpc: FakeRpc) -> None:
    rpc.says = {"n2": facts("n9"), "n3": facts(OWN)}
    context = make_context(tmp_path, offline="n3")
    poll = asyncio.run(poll_everybody(rpc, context.paths, OWN))
    assert {name: answer.master_name for name, answer in poll.answers.items()} == {
        "n1": OWN,
        "n2": "n9",
        "n3": OWN,
    }


def run_watch(
    context: DaemonContext, rpc: FakeRpc, *, prompt: bool, timeout_s: float = 60.0
) -> None:
    """Let a daemon watch until it is to stop, or for so long."""

    async def scene() -> None:
        watch = MasterWatch(context, rpc)
        if prompt:
            watch.prompt()
        task = asyncio.ensure_future(watch.run())
        stopped = asyncio.ensure_future(context.stopping.wait())
        await asyncio.wait([task, stopped], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        assert not task.done()
        for each in (task, stopped):
            each.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)

    asyncio.run(scene())


@pytest.mark.parametrize("prompt", [False, True])
def test_a_running_daemon_that_is_outvoted_ends(
    tmp_path: Path, rpc: FakeRpc, monkeypatch: pytest.MonkeyPatch, prompt: bool
) -> None:
    monkeypatch.setattr(master_watch, "LOOK_INTERVAL_S", 10 if prompt else 0.01)
    context = make_context(tmp_path)
    rpc.says = {"n2": facts("n2"), "n3": facts("n2")}
    run_watch(context, rpc, prompt=prompt)
    assert context.exit_status == 11


def test_a_running_daemon_ends_when_its_own_node_follows_another_one(
    tmp_path: Path, rpc: FakeRpc, caplog: pytest.LogCaptureFixture
) -> None:
    context = make_context(tmp_path)
    ssconf.write_values(context.paths, {"master_node": "n2"})
    asyncio.run(MasterWatch(context, rpc).run())
    assert context.exit_status == 11
    assert not rpc.asked
    [line] = [each.message for each in caplog.records if each.levelno >= logging.ERROR]
    assert line == "This node is not the master any more: this node (n1) follows n2; ending"


def test_the_end_of_the_other_daemon_leads_to_a_vote(
    tmp_path: Path, rpc: FakeRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([("ganeti-luxid", "ganeti-wconfd")] * 2)
    monkeypatch.setattr(
        master_watch.master_facts,
        "running_daemons",
        lambda _paths: next(answers, ("ganeti-wconfd",)),
    )
    context = make_context(tmp_path)
    rpc.says = {"n2": facts("n2"), "n3": facts("n2")}
    run_watch(context, rpc, prompt=False)
    assert context.exit_status == 11


def test_a_running_daemon_outlives_silence_and_single_voices(
    tmp_path: Path, rpc: FakeRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_watch, "LOOK_INTERVAL_S", 0.01)
    context = make_context(tmp_path)
    run_watch(context, rpc, prompt=True, timeout_s=0.2)
    rpc.says = {"n2": facts("n2"), "n3": facts(OWN)}
    run_watch(context, rpc, prompt=False, timeout_s=0.2)
    assert not context.stopping.is_set()


def test_a_vote_without_enough_answers_is_undecided(tmp_path: Path, rpc: FakeRpc) -> None:
    context = make_context(tmp_path)
    poll = asyncio.run(take_vote(rpc, context.paths, OWN))
    assert judge(poll).standing is Standing.UNDECIDED


# --- high availability


def switch_on(paths: Paths, *, held_s: float) -> None:
    """Switch high availability on, with a lease that is held for so long, or lost since."""
    os.makedirs(paths.run_dir, exist_ok=True)
    Path(paths.high_availability).write_text("{}")
    now_s = clock.monotonic()
    availability.write_state(paths, State(time=now_s, master_until=now_s + held_s))


def may_act(context: DaemonContext, rpc: FakeRpc, times: int = 1) -> list[bool]:
    async def scene() -> list[bool]:
        watch = MasterWatch(context, rpc)
        return list(await asyncio.gather(*(watch.may_act() for _ in range(times))))

    return asyncio.run(scene())


def test_without_a_lease_most_nodes_have_to_confirm_the_master(
    tmp_path: Path, rpc: FakeRpc
) -> None:
    context = make_context(tmp_path)
    assert may_act(context, rpc) == [True]  # high availability is off
    switch_on(context.paths, held_s=3600)
    assert may_act(context, rpc) == [True]
    assert not rpc.asked, "who holds the lease asks nobody"
    switch_on(context.paths, held_s=0)
    assert may_act(context, rpc) == [False], "nobody answers"
    rpc.asked.clear()
    rpc.says = {"n2": facts(OWN)}
    assert may_act(context, rpc, 8) == [True] * 8, "etcd is lost, and the cluster goes on"
    assert [name for name, _ in rpc.asked].count("n2") == 1, "one vote for all who wait"
    os.unlink(context.paths.ha_state)  # the agent does not run
    rpc.says = {}
    assert may_act(context, rpc) == [False]
    assert not context.stopping.is_set()


def test_who_lost_the_lease_to_another_one_ends(tmp_path: Path, rpc: FakeRpc) -> None:
    context = make_context(tmp_path)
    switch_on(context.paths, held_s=0)
    rpc.says = {"n2": facts("n2"), "n3": facts("n2")}
    assert may_act(context, rpc) == [False]
    assert context.exit_status == 11


def test_the_loss_of_the_lease_leads_to_a_vote(
    tmp_path: Path, rpc: FakeRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_watch, "LOOK_INTERVAL_S", 3600)
    context = make_context(tmp_path)
    switch_on(context.paths, held_s=0.1)
    rpc.says = {"n2": facts("n2"), "n3": facts("n2")}
    run_watch(context, rpc, prompt=False)
    assert context.exit_status == 11


def test_while_the_lease_is_held_or_where_there_is_none_nobody_is_asked(
    tmp_path: Path, rpc: FakeRpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_watch, "UNHELD_LOOK_S", 0.01)
    context = make_context(tmp_path)
    rpc.says = {"n2": facts("n2"), "n3": facts("n2")}
    run_watch(context, rpc, prompt=False, timeout_s=0.1)
    switch_on(context.paths, held_s=3600)
    run_watch(context, rpc, prompt=False, timeout_s=0.1)
    assert not rpc.asked


@pytest.mark.parametrize(
    "daemon", ["ganeti.luxid.daemon", "ganeti.wconfd.main", "ganeti.maintd.main"]
)
def test_nothing_of_it_is_loaded_where_it_is_off(tmp_path: Path, daemon: str) -> None:
    code = (
        f"import sys, {daemon}; from ganeti.store import lease; from ganeti.base.paths import Paths\n"
        f"assert lease.is_held(Paths({str(tmp_path)!r}))\n"
        "print([n for n in sys.modules if 'availability' in n or 'etcd' in n])"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
