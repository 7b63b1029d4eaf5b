"""Locks of a real WConfD over its socket: waiting, fairness, death, restart."""

from __future__ import annotations

import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fakes.large_config import uuid_of
from fakes.metric_page import values_on
from fakes.waiting import wait_until
from fakes.wconfd_node import Owner, WconfdNode

from ganeti.base.errors import GenericError, LockError, NotMasterError, OpPrereqError
from ganeti.clients.wconfd import WConfClient
from ganeti.protocol.envelope import encode_request, frame
from ganeti.protocol.wconfd import ClientId, ObjectKind
from ganeti.store import ssconf
from ganeti.transport.unix_client import AnswerTimeoutError, UnixClient

NODE1, NODE2 = f"node/{uuid_of('node', 1)}", f"node/{uuid_of('node', 2)}"
INST0, INST1 = "instance/inst0.example.com", "instance/inst1.example.com"
WAIT_S = 60.0


@pytest.fixture
def node() -> Iterator[WconfdNode]:
    with WconfdNode() as node:
        yield node.start()


class Call(threading.Thread):
    """A call in the background."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.result: Any = None
        self.error: GenericError | None = None
        self.done_at = 0.0
        self.start()

    def run(self) -> None:
        try:
            self.result = self._call()
        except GenericError as err:
            self.error = err
        self.done_at = time.monotonic()

    def value(self) -> Any:
        self.join(60)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.result


def begin_wait(
    owner: Owner, lock: str, mode: str = "exclusive", priority: int = 0, wait_s: float = WAIT_S
) -> Call:
    call = Call(lambda: owner.client.wait_locks(priority, [(lock, mode)], wait_s))
    reader = WConfClient(owner.paths, owner.id)
    wait_until(lambda: call.done_at or reader.has_pending_request(), "the request to be pending")
    reader.close()
    return call


@pytest.mark.shows(
    "backend/locks/exclusive",
    "2.12/locking/update-whole",
    "2.0/locking-library/several",
    "2.0/locks/exclusive",
    "2.0/async/try",
    "2.1/lock-wait/try",
)
def test_update_is_all_or_nothing(node: WconfdNode) -> None:
    one, two = node.owner(1), node.owner(2)
    assert one.client.try_update_locks([(NODE1, "exclusive")]) == []
    assert two.client.try_update_locks([(NODE2, "shared"), (NODE1, "shared")]) == [one.id]
    assert two.client.list_locks() == []


@pytest.mark.shows(
    "2.12/wconfd/grants", "2.12/locking/processes", "2.0/async/blocks", "2.1/condition/no-polling"
)
def test_a_wait_is_answered_when_granted(node: WconfdNode) -> None:
    one, two = node.owner(1), node.owner(2)
    one.client.try_update_locks([(NODE1, "exclusive")])
    waiting = begin_wait(two, NODE1)
    told = values_on(one.client.get_metrics())
    assert told["ganeti_wconfd_locks_held", "exclusive"] == 1
    assert told["ganeti_wconfd_lock_owners",] == 1
    assert told["ganeti_wconfd_lock_waiters",] == 1
    granted = ("ganeti_wconfd_lock_wait_seconds_count", "granted")
    before = told.get(granted, 0)
    one.client.free_locks()
    assert waiting.value() == ("granted", [])
    assert two.client.list_locks() == [(NODE1, "exclusive")]
    told = values_on(one.client.get_metrics())
    assert told["ganeti_wconfd_lock_waiters",] == 0
    assert told[granted] == before + 1


@pytest.mark.shows("backend/library/timeouts", "2.1/lock-wait/timeout")
def test_a_wait_that_times_out_names_who_is_in_the_way(node: WconfdNode) -> None:
    one, two = node.owner(1), node.owner(2)
    one.client.try_update_locks([(NODE1, "exclusive")])
    assert two.client.wait_locks(0, [(NODE1, "shared")], 0.05) == ("timeout", [one.id])
    assert not two.client.has_pending_request()


@pytest.mark.shows("2.0/locking-library/wrong-order", "2.0/async/blocks")
def test_an_impossible_wait_fails_at_once(node: WconfdNode) -> None:
    one = node.owner(1)
    one.client.try_update_locks([(NODE1, "exclusive")])
    with pytest.raises(LockError, match="out of order"):
        one.client.wait_locks(0, [(INST0, "shared")], WAIT_S)
    assert one.client.list_locks() == [(NODE1, "exclusive")]


@pytest.mark.shows("backend/jobs/between-opcodes", "backend/library/by-priority")
def test_waiters_are_served_by_priority_which_can_change(node: WconfdNode) -> None:
    holder, low, high = node.owner(1), node.owner(2), node.owner(3)
    holder.client.try_update_locks([(NODE1, "exclusive")])
    first, second = begin_wait(low, NODE1, priority=0), begin_wait(high, NODE1, priority=-5)
    assert WConfClient(node.paths, low.id).change_wait_priority(-10)
    holder.client.free_locks()
    assert first.value() == ("granted", [])
    assert second.is_alive()
    low.client.free_locks()
    assert second.value() == ("granted", [])


@pytest.mark.shows(
    "2.12/wconfd/frees", "2.12/death/no-talk", "2.12/death/stale", "2.12/wconfd-details/cleared"
)
def test_locks_of_a_killed_owner_are_freed_without_anybody_asking(node: WconfdNode) -> None:
    dying, waiting = node.owner(1), node.owner(2)
    dying.client.try_update_locks([(NODE1, "exclusive")])
    dying.client.generate_mac(None)
    call = begin_wait(waiting, NODE1)
    dying.die()
    assert call.value() == ("granted", [])
    wait_until(lambda: not os.path.exists(dying.id.livelock), "the lock file to be removed")
    assert waiting.client.snapshot()["reservations"]["tempres"]["mACs"] == []


@pytest.mark.shows("2.12/death/many-owners", "2.12/death/missing-file")
def test_an_owner_that_removes_its_lock_file_is_dead(node: WconfdNode) -> None:
    ending, waiting = node.owner(1), node.owner(2)
    ending.client.try_update_locks([(NODE1, "exclusive")])
    call = begin_wait(waiting, NODE1)
    ending.livelock.release()
    assert call.value() == ("granted", [])


@pytest.mark.shows("2.12/death/many-owners", "2.12/wconfd-details/cleared")
def test_a_dead_waiter_is_passed_over(node: WconfdNode) -> None:
    holder, dead, living = node.owner(1), node.owner(2), node.owner(3)
    holder.client.try_update_locks([(NODE1, "exclusive")])
    begin_wait(dead, NODE1)
    call = begin_wait(living, NODE1)
    dead.die()
    holder.client.free_locks()
    assert call.value() == ("granted", [])


@pytest.mark.shows("2.0/locking-library/asynchronous")
def test_a_wait_is_withdrawn_when_its_client_goes_away(node: WconfdNode) -> None:
    holder, leaving = node.owner(1), node.owner(2)
    holder.client.try_update_locks([(NODE1, "exclusive")])
    wire = frame(encode_request("waitLocks", [leaving.id.to_wire(), 0, [[NODE1, "shared"]], 60.0]))
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(node.paths.wconfd_socket)
        sock.sendall(wire)
        wait_until(leaving.client.has_pending_request, "the request to be pending")
    wait_until(lambda: not leaving.client.has_pending_request(), "the request to be withdrawn")


@pytest.mark.shows("2.12/wconfd/resumes", "2.12/death/stateless", "2.12/wconfd-details/mirrored")
def test_state_survives_kill_and_restart(node: WconfdNode) -> None:
    one, two, three = node.owner(1), node.owner("tool"), node.owner(3)
    one.client.try_update_locks([(NODE1, "exclusive"), (INST0, "shared")])
    two.client.try_update_locks([(NODE2, "shared")])
    mac = two.client.generate_mac(None)
    call = begin_wait(three, NODE1)
    before = one.client.list_locks_waiting_status()
    node.kill()
    node.start()
    assert one.client.list_locks_waiting_status() == before
    assert two.client.snapshot()["reservations"]["tempres"]["mACs"] == [[two.id.to_wire(), [mac]]]
    assert one.client.try_update_locks([(NODE1, "release")]) == []
    assert call.value() == ("granted", [])


@pytest.mark.shows("2.12/wconfd/only-living")
def test_owners_that_died_while_it_was_down_are_freed_at_start(node: WconfdNode) -> None:
    one, two = node.owner(1), node.owner(2)
    one.client.try_update_locks([(NODE1, "exclusive")])
    node.kill()
    one.die()
    node.start()
    assert two.client.try_update_locks([(NODE1, "exclusive")]) == []


@pytest.mark.shows("2.0/add-remove/removed")
def test_the_lock_of_a_removed_object_fails_its_waiters(node: WconfdNode) -> None:
    """They are told to look again: the next one may well want to make an object of that name."""
    one, two = node.owner(1), node.owner(2)
    one.client.try_update_locks([("cluster/BGL", "shared"), (INST0, "exclusive")])
    call = begin_wait(two, INST0)
    one.client.delete(ObjectKind.INSTANCE, "inst0.example.com")
    assert call.value() == ("gone", [])
    assert two.client.has_pending_request() is False
    one.client.free_locks()
    assert two.client.wait_locks(0, [(INST0, "exclusive")], WAIT_S) == ("granted", [])


@pytest.fixture
def hangups() -> Iterator[threading.Event]:
    """Set when this process gets a SIGHUP."""
    got = threading.Event()
    previous = signal.signal(signal.SIGHUP, lambda *_: got.set())
    yield got
    signal.signal(signal.SIGHUP, previous)


@pytest.mark.shows("2.0/locking-library/asynchronous")
def test_old_waiters_get_a_signal(node: WconfdNode, hangups: threading.Event) -> None:
    one, two = node.owner(1), node.owner(2)
    one.client.try_update_locks([(NODE1, "exclusive")])
    assert two.client.update_locks_waiting(0, [(NODE1, "shared")]) == [one.id]
    assert two.client.update_locks_waiting(0, [(NODE1, "shared")]) == [one.id]
    one.client.free_locks()
    wait_until(hangups.is_set, "SIGHUP")
    assert two.client.update_locks_waiting(0, [(NODE1, "shared")]) == []


def test_the_old_lock_of_a_renamed_object_fails_its_waiters(node: WconfdNode) -> None:
    one, two = node.owner(1), node.owner(2)
    one.hold(INST0)
    call = begin_wait(two, INST0)
    one.client.modify_objects([("instance", uuid_of("instance", 0), {"name": "other.example.com"})])
    assert call.value() == ("gone", [])


def test_old_waiters_get_a_signal_after_a_restart(
    node: WconfdNode, hangups: threading.Event
) -> None:
    one, two = node.owner(1), node.owner(2)
    one.client.try_update_locks([(NODE1, "exclusive")])
    assert two.client.update_locks_waiting(0, [(NODE1, "shared")]) == [one.id]
    node.kill()
    node.start()
    one.client.free_locks()
    wait_until(hangups.is_set, "SIGHUP")
    assert two.client.list_locks() == [(NODE1, "shared")]


def test_new_waiters_get_no_signal_after_a_restart(
    node: WconfdNode, hangups: threading.Event
) -> None:
    """Theirs is granted before they are back to ask again."""
    one, two = node.owner(1), node.owner(2)
    one.client.try_update_locks([(NODE1, "exclusive")])
    call = begin_wait(two, NODE1)
    node.kill()
    node.start()
    one.client.free_locks()
    assert call.value() == ("granted", [])
    assert not hangups.is_set()


@pytest.mark.shows("2.1/lock-retry/not-held", "2.1/lock-retry/example")
def test_waiting_for_four_does_not_delay_one_but_is_not_starved(node: WconfdNode) -> None:
    """Ganeti's issue #803 and the stream of small requests."""
    big, holder, small, other = (node.owner(number) for number in range(1, 5))
    holder.client.try_update_locks([(NODE2, "exclusive")])
    locks = sorted([NODE1, NODE2])
    call = Call(lambda: big.client.wait_locks(0, [(lock, "exclusive") for lock in locks], WAIT_S))
    reader = WConfClient(node.paths, big.id)
    wait_until(reader.has_pending_request, "the request to be pending")
    assert small.client.try_update_locks([(NODE1, "exclusive")]) == []
    holder.client.free_locks()
    overtakers = [small, other]
    for turn in range(40):
        taking, leaving = overtakers[turn % 2], overtakers[(turn + 1) % 2]
        taken = taking.client.try_update_locks([(NODE1, "shared")])
        leaving.client.free_locks()
        if taken == [big.id]:
            break
    else:
        pytest.fail("the stream of small requests never ended")
    for owner in overtakers:
        owner.client.free_locks()
    assert call.value() == ("granted", [])


@pytest.mark.shows("2.12/locking/opportunistic-wait", "2.0/async/some")
def test_opportunistic_union_waits_for_enough(node: WconfdNode) -> None:
    one, two = node.owner(1), node.owner(2)
    one.client.try_update_locks([(NODE1, "exclusive")])
    wanted = [(NODE1, "shared"), (NODE2, "shared")]
    assert two.client.guarded_opportunistic_lock_union(2, wanted) == []
    call = Call(lambda: two.client.wait_opportunistic_union(0, 2, wanted, WAIT_S))
    one.client.free_locks()
    assert call.value() == sorted([NODE1, NODE2])


def test_enough_locks_are_answered_again_when_asked_again(node: WconfdNode) -> None:
    """The first answer may have been lost with a WConfD that was killed."""
    owner = node.owner(1)
    wanted = [(NODE1, "exclusive"), (NODE2, "shared")]
    for _ in range(2):
        assert owner.client.wait_opportunistic_union(0, 2, wanted, WAIT_S) == sorted([NODE1, NODE2])


def test_the_dead_do_not_get_enough_locks(node: WconfdNode) -> None:
    holder, dead, living = node.owner(1), node.owner(2), node.owner(3)
    holder.client.try_update_locks([(NODE1, "exclusive")])
    failing = Call(
        lambda: dead.client.wait_opportunistic_union(-5, 1, [(NODE1, "exclusive")], WAIT_S)
    )
    reader = WConfClient(node.paths, dead.id)
    wait_until(lambda: reader.change_wait_priority(-6), "the request to be known")
    call = Call(lambda: living.client.wait_opportunistic_union(0, 1, [(NODE1, "shared")], WAIT_S))
    other = WConfClient(node.paths, living.id)
    wait_until(lambda: other.change_wait_priority(1), "the request to be known")
    os.close(dead.livelock._descriptor)
    dead.livelock._descriptor = -1
    holder.client.free_locks()
    assert call.value() == [NODE1]
    with pytest.raises(LockError, match="dead"):
        failing.value()


@pytest.mark.shows("2.12/locking/sets", "2.12/locking/list", "2.12/locking/intersection")
def test_level_operations(node: WconfdNode) -> None:
    one = node.owner(1)
    one.client.try_update_locks([(INST0, "exclusive"), (INST1, "shared"), (NODE1, "exclusive")])
    one.client.down_grade_locks_level("node")
    assert (NODE1, "shared") in one.client.list_locks()
    one.client.intersect_locks([INST0, NODE1])
    assert one.client.list_locks() == [(INST0, "exclusive"), (NODE1, "shared")]
    assert one.client.list_all_locks() == ["instance/[lockset]", INST0, "node/[lockset]", NODE1]
    one.client.free_locks_level("instance")
    assert one.client.list_locks() == [(NODE1, "shared")]
    assert one.client.list_all_locks_owners() == [[NODE1, [[one.id.to_wire(), "shared"]]]]


def test_dead_owners_get_nothing(node: WconfdNode) -> None:
    client = WConfClient(
        node.paths, ClientId(9, f"{node.paths.livelock_dir}/job_000009_1", os.getpid())
    )
    with pytest.raises(LockError, match="dead"):
        client.try_update_locks([(NODE1, "shared")])
    with pytest.raises(LockError, match="dead"):
        client.add_tags("cluster", "", ["x"])
    client.free_locks()


@pytest.mark.shows("2.12/death/tells-path")
@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "", "/var/run/ganeti/livelocks/../x"])
def test_lock_files_elsewhere_are_refused(node: WconfdNode, path: str) -> None:
    client = WConfClient(node.paths, ClientId(9, path, os.getpid()))
    with pytest.raises(OpPrereqError, match="does not lie in"):
        client.try_update_locks([(NODE1, "shared")])
    assert client.list_locks() == [], "it has none, and the list never fails"
    client.intersect_locks([])


@pytest.mark.shows("2.12/locking/named")
@pytest.mark.parametrize(
    "request_", [[("nodes/x", "shared")], [("node", "shared")], [("config/x", "shared")]]
)
def test_unknown_locks_are_refused(node: WconfdNode, request_: Any) -> None:
    with pytest.raises(LockError, match="no lock"):
        node.owner(1).client.try_update_locks(request_)


@pytest.mark.shows("2.12/wconfd/locks-file")
def test_locks_that_cannot_be_written_are_not_granted(node: WconfdNode) -> None:
    one, two = node.owner(1), node.owner(2)
    one.client.try_update_locks([(NODE1, "exclusive")])
    assert node.process is not None
    limits = resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
    with pytest.raises(GenericError, match="cannot write"):
        two.client.try_update_locks([(NODE2, "exclusive")])
    with pytest.raises(GenericError, match="cannot write"):
        one.client.free_locks()
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, limits)
    assert two.client.list_locks() == []
    assert one.client.list_locks() == [(NODE1, "exclusive")]
    assert two.client.try_update_locks([(NODE2, "exclusive")]) == []


def test_nobody_waits_for_a_wconfd_that_ended_since_another_node_is_master(
    node: WconfdNode,
) -> None:
    owner = node.owner()
    assert owner.client.list_locks() == []
    node.kill()
    ssconf.write_values(node.paths, {"master_node": "node2.example.com"})
    with pytest.raises(NotMasterError, match=r"this node follows node2\.example\.com"):
        owner.client.list_locks()


def test_a_client_in_a_hurry_shares_the_connection_and_gives_up_soon(
    node: WconfdNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = []
    connect = UnixClient._connect

    def counted(self: UnixClient, timeout_s: float) -> socket.socket:
        connections.append(self.path)
        return connect(self, timeout_s)

    monkeypatch.setattr(UnixClient, "_connect", counted)
    owner = node.owner()
    owner.client.wait_locks(0, [(INST0, "exclusive")], WAIT_S)
    owner.client.hurried(WAIT_S).free_locks()
    assert owner.client.list_locks() == []
    own = node.paths.wconfd_socket  # threads of earlier tests may still talk to other daemons
    assert connections.count(own) == 1

    owner.client.wait_locks(0, [(INST0, "exclusive")], WAIT_S)
    assert node.process is not None
    node.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(AnswerTimeoutError):
            owner.client.hurried(0.2).free_locks()
    finally:
        node.process.send_signal(signal.SIGCONT)
    # The answer that came too late is nobody's: this one comes by another connection.
    assert owner.client.list_locks() == []
    assert connections.count(own) == 2
