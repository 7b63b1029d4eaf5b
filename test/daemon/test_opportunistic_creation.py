"""Two creations at once with opportunistic locking: a real WConfD, real units, nodes in memory."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes.fake_nodes import FakeRpc
from fakes.waiting import wait_until
from fakes.wconfd_node import Owner, WconfdNode

from ganeti.base.errors import OpPrereqError
from ganeti.clients.node_rpc import RpcResult, Target
from ganeti.clients.wconfd import WConfClient
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.processor import execute_opcode
from ganeti.opcodes.registry import decode_opcode
from ganeti.protocol.node_rpc import NodeCall
from ganeti.system import clock

DEADLINE_S = 60.0
Choose = Callable[[list[str]], list[str]]


class Nodes(FakeRpc):
    """Nodes in memory, whose parts are put in place for one call at a time."""

    _turn = threading.Lock()

    def perform(
        self, call: NodeCall, targets: Mapping[Target, Sequence[object]]
    ) -> dict[str, RpcResult[Any]]:
        if call.name != "iallocator_runner":
            with self._turn:
                return super().perform(call, targets)
        ((target, (_name, question, options)),) = targets.items()
        said = self.allocators["hail"](json.loads(str(question)), options)  # type: ignore[arg-type]
        return {target.name: RpcResult(target.name, payload=said, call=call.name)}


class Creation(threading.Thread):
    """A job that makes an instance; it stops while its allocator chooses, until told to go on."""

    def __init__(
        self, owner: Owner, root: Path, name: str, choose: Choose = lambda names: names[:1]
    ):
        super().__init__(daemon=True)
        self.name = name
        self.owner = owner
        self.choosing, self.go_on = threading.Event(), threading.Event()
        self.choice: list[str] = []
        self.held: dict[str, str] = {}
        self.result: Any = None
        self._choose = choose
        self._rpc = Nodes(str(root / name))
        self._rpc.allocators["hail"] = self._answer
        self.start()

    def _answer(self, question: dict[str, Any], _options: dict[str, Any]) -> str:
        self.choice = question["request"]["restrict-to-nodes"]
        self.held = dict(self.owner.client.list_locks())
        self.choosing.set()
        assert self.go_on.wait(DEADLINE_S)
        return json.dumps({"success": True, "info": "", "result": self._choose(self.choice)})

    def run(self) -> None:
        context = JobContext(
            paths=self.owner.paths,
            job_id=1,
            config=self.owner.client,
            rpc=self._rpc,  # type: ignore[arg-type]  # plays the same part
            feedback=lambda _message, kind="message": None,
            check_canceled=lambda: None,
            wait=lambda _seconds: None,
            priority=lambda: 0,
            on_locks_held=lambda: None,
            submit_jobs=lambda _jobs: [],
            interruptible=contextlib.nullcontext,
            monotonic=clock.monotonic,
        )
        op = {
            "OP_ID": "OP_INSTANCE_CREATE",
            "instance_name": self.name,
            "mode": "create",
            "iallocator": "hail",
            "opportunistic_locking": True,
            "disk_template": "file",
            "disks": [{"size": 64}],
            "nics": [],
            "os_type": "debian",
            "hypervisor": "fake",
            "start": False,
            "name_check": False,
            "ip_check": False,
        }
        try:
            self.result = execute_opcode(context, decode_opcode(op))
        except OpPrereqError as err:
            self.result = err

    def end(self) -> Any:
        self.go_on.set()
        self.join(DEADLINE_S)
        assert not self.is_alive()
        return self.result


@pytest.fixture
def node() -> Iterator[WconfdNode]:
    with WconfdNode() as node:
        yield node.start()


def locks_of(creation: Creation, level: str) -> list[str]:
    return [name for name in creation.held if name.startswith(f"{level}/")]


@pytest.mark.shows("backend/opportunistic/available", "backend/opportunistic/allocator")
def test_two_creations_at_once_look_at_different_nodes(node: WconfdNode, tmp_path: Path) -> None:
    first = Creation(node.owner(1), tmp_path, "one.example.com")
    assert first.choosing.wait(DEADLINE_S)
    assert (
        len(first.choice) == len(locks_of(first, "node")) == len(locks_of(first, "node-res")) == 3
    )
    assert {first.held[lock] for lock in locks_of(first, "node-res")} == {"exclusive"}
    second = Creation(node.owner(2), tmp_path, "two.example.com")
    kept = first.choice[0]
    looker = WConfClient(node.paths, second.owner.id)  # nothing is left while the first chooses
    wait_until(lambda: looker.change_wait_priority(1), "the second to wait")
    looker.close()
    first.go_on.set()
    assert second.choosing.wait(DEADLINE_S)
    assert set(second.choice) == set(first.choice) - {kept}
    assert second.end() == second.choice[:1]
    assert first.end() == [kept]
    assert node.owner(3).client.list_all_locks() == []


def test_nodes_that_are_all_busy_are_told_as_a_thing_of_the_moment(
    node: WconfdNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganeti.logical_units.allocator.placing.CHOOSING_S_MAX", 0.2)
    first = Creation(node.owner(1), tmp_path, "one.example.com")
    assert first.choosing.wait(DEADLINE_S)
    late = Creation(node.owner(2), tmp_path, "two.example.com").end()
    assert isinstance(late, OpPrereqError)
    assert late.ecode == "temp_insufficient_resources"
    assert late.message == (
        "instance 'two.example.com': every node is locked by other jobs just now; try again, or"
        " without --opportunistic-locking"
    )
    assert first.end() == first.choice[:1]
    # The error was of that moment: the same again works.
    assert Creation(node.owner(4), tmp_path, "two.example.com").end()


def test_nobody_takes_the_chosen_node_between_the_choice_and_the_work(
    node: WconfdNode, tmp_path: Path
) -> None:
    """Another job waits for every node while the allocator chooses: it comes after the work."""
    creation = Creation(node.owner(1), tmp_path, "one.example.com")
    assert creation.choosing.wait(DEADLINE_S)
    other = node.owner(2)
    wanted = [(lock, "exclusive") for lock in sorted(creation.held) if lock.startswith("node")]
    outcome: list[Any] = []
    waiter = threading.Thread(
        target=lambda: outcome.append(other.client.wait_locks(-10, wanted, DEADLINE_S))
    )
    waiter.start()
    watcher = node.owner(3)
    wait_until(lambda: watcher.client.list_locks_waiting_status()[1], "the other job to wait")
    assert creation.end() == creation.choice[:1]
    waiter.join(DEADLINE_S)
    assert outcome[0][0] == "granted"
