"""Migration, failover and clean-up: at every cut at most one copy runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from fakes.fake_cluster import FakeCluster, make_group, make_node, uuid_of
from fakes.fake_nodes import NODE_MEMORY_MIB

from ganeti.base.errors import GenericError, JobCanceled, OpExecError, OpPrereqError
from ganeti.clients.node_rpc import RpcResult, Target
from ganeti.hypervisor.fake import Book, FakeHypervisor, Phase
from ganeti.logical_units.instance.moving.failover import Seen, Step, leads_to, plan_cleanup
from ganeti.logical_units.instance.moving.migrate import decide_live, progress_text
from ganeti.objects.hypervisors import MigrationMode
from ganeti.objects.model import Node
from ganeti.protocol.node_rpc import NodeCall

NAME = "web1.example.com"


@pytest.fixture
def running(cluster: FakeCluster) -> FakeCluster:
    """A cluster with one instance that runs on node1."""
    cluster.add_instance()
    return cluster


def primary(cluster: FakeCluster) -> str:
    return str(cluster.config.instance(NAME)["primary_node"])


def migrate(cluster: FakeCluster, **params: Any) -> None:
    cluster.execute(
        "OP_INSTANCE_MIGRATE", **{"instance_name": NAME, "target_node": "node2", **params}
    )


def failover(cluster: FakeCluster, **params: Any) -> None:
    cluster.execute(
        "OP_INSTANCE_FAILOVER", **{"instance_name": NAME, "target_node": "node2", **params}
    )


def where(cluster: FakeCluster) -> dict[str, int]:
    """Return {node number: state} of the nodes that know the instance."""
    return {
        name.partition(".")[0]: node.running[NAME]
        for name, node in cluster.rpc.nodes.items()
        if NAME in node.running
    }


def test_what_could_not_be_recorded_says_where_the_instance_is(running: FakeCluster) -> None:
    running.config.failing["modifyObjects"] = OpPrereqError("no space left on device")
    with pytest.raises(OpExecError, match=r"runs on node 'node2\..* no space left .*--cleanup"):
        migrate(running)
    assert where(running) == {"node1": 1, "node2": 0}
    running.config.failing.clear()
    running.execute("OP_INSTANCE_MIGRATE", instance_name=NAME, cleanup=True)
    assert primary(running) == uuid_of("node2")
    running.config.failing["modifyObjects"] = OpPrereqError("no space left on device")
    with pytest.raises(
        OpExecError, match=r"which is down now, .* no space left .*instance startup"
    ):
        failover(running, target_node="node1")
    assert where(running) == {}


def test_migration_moves_the_instance_and_says_so(running: FakeCluster) -> None:
    running.rpc.migration_states = [
        {"status": "active", "transferred_ram": 1, "total_ram": 4},
        {"status": "completed", "downtime_ms": 12},
    ]
    migrate(running)
    assert where(running) == {"node2": 0}
    assert primary(running) == uuid_of("node2")
    assert running.said("the guest stood still for 12 ms")
    steps = [name for name in running.rpc.names() if "migrat" in name or "accept" in name]
    assert steps == [
        "instance_migratable",
        "migration_info",
        "accept_instance",
        "instance_migrate",
        "instance_get_migration_status",
        "instance_get_migration_status",
        "instance_finalize_migration_dst",
        "instance_finalize_migration_src",
    ]


def test_what_accepting_answers_is_where_the_memory_goes(running: FakeCluster) -> None:
    migrate(running, mode="non-live")
    ((_, args),) = running.rpc.called("instance_migrate")
    assert args[2:] == ["192.0.2.2:8102", False]


def crowd(cluster: FakeCluster, left_mib: int) -> None:
    """Let a guest on node2 have all its memory but this; ours is of 400 MiB, 100 at least."""
    books = cluster.rpc.node("node2").books
    used_mib = NODE_MEMORY_MIB - left_mib
    books.save("other", Book(memory_mib=used_mib, vcpus=1, started_s=1.0, phase=Phase.RUNNING))
    cluster.add_instance(beparams={"minmem": 100, "maxmem": 400})


def memory(cluster: FakeCluster, node: str) -> int | None:
    return cluster.rpc.node(node).memory.get(NAME)


def test_a_guest_gives_back_memory_to_fit_on_the_target(cluster: FakeCluster) -> None:
    crowd(cluster, left_mib=300)
    migrate(cluster)
    assert where(cluster) == {"node2": 0}
    assert memory(cluster, "node2") == 300
    assert cluster.said("300 of 400 MiB are left to it")


@pytest.mark.parametrize(
    ("left_mib", "params"), [(99, {}), (300, {"allow_runtime_changes": False})]
)
def test_a_guest_that_cannot_or_must_not_shrink_stays(
    cluster: FakeCluster, left_mib: int, params: dict[str, Any]
) -> None:
    crowd(cluster, left_mib=left_mib)
    with pytest.raises(OpPrereqError, match="not enough memory on node 'node2"):
        migrate(cluster, **params)
    assert memory(cluster, "node1") == 400


def test_a_guest_that_was_shrunk_in_vain_gets_its_memory_back(cluster: FakeCluster) -> None:
    crowd(cluster, left_mib=300)
    cluster.rpc.fail("accept_instance", text="no route")
    with pytest.raises(OpExecError, match="no route"):
        migrate(cluster)
    assert memory(cluster, "node1") == 400


def test_a_guest_that_keeps_its_memory_is_not_moved(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd(cluster, left_mib=300)
    monkeypatch.setattr(FakeHypervisor, "balloon", lambda *_: None)
    with pytest.raises(OpExecError, match="has not given back"):
        migrate(cluster)
    assert where(cluster) == {"node1": 0}
    assert not cluster.rpc.called("accept_instance")


@pytest.mark.shows("backend/locks/instances-first", "2.12/aims/finer")
def test_the_locks_are_the_instance_and_both_nodes(running: FakeCluster) -> None:
    migrate(running)
    (request,) = running.config.lock_history
    assert request == [
        ("cluster/BGL", "shared"),
        (f"instance/{NAME}", "exclusive"),
        ("node/" + uuid_of("node1"), "shared"),
        ("node/" + uuid_of("node2"), "shared"),
        ("node-res/" + uuid_of("node1"), "shared"),
        ("node-res/" + uuid_of("node2"), "shared"),
    ]


BEFORE_COMMIT = ["accept_instance", "instance_migrate", "instance_get_migration_status"]


@pytest.mark.parametrize("call", BEFORE_COMMIT)
def test_a_failure_on_the_way_leads_back(running: FakeCluster, call: str) -> None:
    running.rpc.fail(call, text="no route")
    with pytest.raises(OpExecError, match=f"call {call}: no route"):
        migrate(running)
    assert where(running) == {"node1": 0}
    assert primary(running) == uuid_of("node1")
    assert not running.rpc.node("node2").receiving
    assert running.said("the migration was undone")


def test_a_failed_transfer_leads_back_with_its_reason(running: FakeCluster) -> None:
    running.rpc.migration_states = [{"status": "failed", "error": "socket closed"}]
    with pytest.raises(OpExecError, match="socket closed"):
        migrate(running)
    assert where(running) == {"node1": 0}


def test_a_transfer_can_be_canceled(running: FakeCluster) -> None:
    running.rpc.migration_states = [{"status": "active"}] * 100
    running.cancel_after = 10
    with pytest.raises(JobCanceled):
        migrate(running)
    assert where(running) == {"node1": 0}
    assert not running.rpc.node("node2").receiving


def test_a_transfer_that_never_ends_is_given_up(running: FakeCluster) -> None:
    running.rpc.migration_states = [{"status": "active"}] * 400_000
    running.context.wait = lambda _seconds: setattr(running, "clock", running.clock + 600)  # type: ignore[assignment]
    with pytest.raises(OpExecError, match="not ended within 4 hours"):
        migrate(running)
    assert where(running) == {"node1": 0}


def test_the_source_stays_stopped_while_the_target_is_not_known_to_be_clear(
    running: FakeCluster,
) -> None:
    running.rpc.failure = lambda node, call, _args: (
        "gone" if node.startswith("node2") and "finalize" in call else None
    )
    running.rpc.migration_states = [{"status": "failed"}]
    with pytest.raises(OpExecError):
        migrate(running)
    assert not running.rpc.called("instance_finalize_migration_src")
    assert running.said(f"gnt-instance migrate --cleanup {NAME}")


def test_an_unknown_end_never_starts_a_second_copy(running: FakeCluster) -> None:
    running.rpc.lost_answer = lambda _node, call, args: (
        "connection reset" if call == "instance_finalize_migration_dst" and args[2] else None
    )
    running.rpc.failure = lambda node, call, _args: (
        "no route" if node.startswith("node2") and call == "instance_info" else None
    )
    with pytest.raises(OpExecError, match="--cleanup"):
        migrate(running)
    assert where(running) == {"node1": 1, "node2": 0}
    running.rpc.failure = running.rpc.lost_answer = lambda *_args: None
    migrate(running, cleanup=True)
    assert where(running) == {"node2": 0}
    assert primary(running) == uuid_of("node2")


def test_a_lost_answer_at_the_end_is_looked_into(running: FakeCluster) -> None:
    running.rpc.lost_answer = lambda _node, call, args: (
        "connection reset" if call == "instance_finalize_migration_dst" and args[2] else None
    )
    migrate(running)
    assert where(running) == {"node2": 0}
    assert primary(running) == uuid_of("node2")
    assert told_to_run(running) == ["node2", "node2"]  # the first may have stopped half-way


def told_to_run(cluster: FakeCluster) -> list[str]:
    calls = cluster.rpc.called("instance_finalize_migration_dst")
    return [node for node, (_instance, _info, success) in calls if success]


class Killed(BaseException):
    """The job is gone: nothing more happens, no undo."""


@pytest.mark.parametrize("named", [None, "node1", "node2", "node3"])
@pytest.mark.parametrize("number", range(20))
def test_killed_anywhere_clean_up_puts_it_right(
    running: FakeCluster, number: int, named: str | None
) -> None:
    """The job dies before its n-th call: nothing more happens, no undo."""

    seen = 0

    def kill(_node: str, call: str, _args: object) -> None:
        nonlocal seen
        if "migrat" in call or "accept" in call:
            seen += 1
            if seen == number + 1:
                raise Killed

    running.rpc.failure = kill  # type: ignore[assignment]  # raises instead of answering
    try:
        migrate(running)
    except Killed:
        running.rpc.failure = lambda *_args: None
        running.config.free_everything()
        assert list(where(running).values()).count(0) <= 1
        migrate(running, cleanup=True, target_node=named)
    assert list(where(running).values()) == [0]
    assert not running.rpc.node("node2").receiving
    assert primary(running) == uuid_of(next(iter(where(running))))


@pytest.mark.parametrize("op", [migrate, failover])
@pytest.mark.parametrize("named", [None, "node1", "node2", "node3"])
def test_clean_up_asks_every_node_whichever_is_named(
    running: FakeCluster, op: Any, named: str | None
) -> None:
    running.rpc.node("node3").running[NAME] = running.rpc.node("node1").running.pop(NAME)
    op(running, cleanup=True, target_node=named)
    assert (primary(running), where(running)) == (uuid_of("node3"), {"node3": 0})
    assert ("node/[lockset]", "shared") in running.config.lock_history[0]
    assert told_to_run(running) == ["node3"]


def test_clean_up_waits_for_every_node_whichever_is_named(running: FakeCluster) -> None:
    running.rpc.node("node2").running[NAME] = 0
    running.rpc.node("node1").running[NAME] = 1
    running.rpc.fail("instance_info", "node2", "no route")
    with pytest.raises(OpExecError, match=r"node2\.example\.com do not answer, so nobody knows"):
        migrate(running, cleanup=True, target_node="node3")
    assert where(running) == {"node1": 1, "node2": 0}
    assert not running.rpc.called("instance_finalize_migration_src")


def break_off(cluster: FakeCluster, call: str, at: str, *, before: bool) -> None:
    """Migrate until the job dies, before or after a call on a node."""

    def kill(node: str, name: str, _args: object) -> None:
        if (name, node.partition(".")[0]) == (call, at):
            raise Killed

    if before:
        cluster.rpc.failure = kill  # type: ignore[assignment]  # raises instead of answering
    else:
        cluster.rpc.lost_answer = kill  # type: ignore[assignment]  # same
    with pytest.raises(Killed):
        migrate(cluster)
    cluster.rpc.failure = cluster.rpc.lost_answer = lambda *_args: None
    cluster.config.free_everything()


def ends_there(cluster: FakeCluster) -> None:
    """The guest, which runs on node2, ends together with its process."""
    cluster.rpc.node("node2").crash()


def node_is_lost(cluster: FakeCluster) -> None:
    cluster.rpc.node("node2").cut_power()
    cluster.config.node(2)["offline"] = True


@pytest.mark.parametrize("lose", [ends_there, node_is_lost])
def test_a_guest_that_has_run_elsewhere_since_does_not_go_on_with_its_old_memory(
    running: FakeCluster, lose: Any
) -> None:
    break_off(running, "instance_finalize_migration_dst", "node2", before=False)
    assert where(running) == {"node1": 1, "node2": 0}
    lose(running)
    migrate(running, cleanup=True)
    assert (primary(running), where(running)) == (uuid_of("node1"), {})
    assert running.said("its memory may be older than its disks")
    assert running.said(f"'gnt-instance startup {NAME}' boots it")
    running.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert where(running) == {"node1": 0}


def test_a_guest_that_was_found_waiting_goes_on_where_it_came_from(running: FakeCluster) -> None:
    break_off(running, "instance_finalize_migration_dst", "node2", before=True)
    assert running.rpc.node("node2").receiving
    migrate(running, cleanup=True)
    assert where(running) == {"node1": 0}
    assert running.said("has not run elsewhere since, letting it go on")


def test_one_that_waits_on_a_third_node_since_long_proves_nothing(running: FakeCluster) -> None:
    break_off(running, "instance_finalize_migration_dst", "node2", before=False)
    ends_there(running)
    books = running.rpc.node("node3").books
    books.save(NAME, Book(memory_mib=128, vcpus=1, started_s=1.0, phase=Phase.INCOMING))
    migrate(running, cleanup=True)
    assert where(running) == {}
    assert not running.rpc.node("node3").receiving


def test_a_node_of_3_0_proves_nothing(running: FakeCluster) -> None:
    break_off(running, "instance_finalize_migration_dst", "node2", before=True)
    running.rpc.answers["instance_finalize_migration_dst"] = None
    migrate(running, cleanup=True)
    assert where(running) == {}


def test_clean_up_leaves_a_guest_that_has_switched_itself_off(running: FakeCluster) -> None:
    running.rpc.node("node1").running[NAME] = 1
    migrate(running, cleanup=True)
    assert where(running) == {"node1": 1}
    assert running.said("has not left node node1.example.com: it is stopped there")


def test_a_target_that_lost_the_guest_after_its_last_answer_does_not_lead_back(
    running: FakeCluster,
) -> None:
    def lose(_node: str, call: str, args: Any) -> str | None:
        if call == "instance_finalize_migration_dst" and args[2]:
            ends_there(running)
            return "connection reset"
        return None

    running.rpc.lost_answer = lose
    with pytest.raises(OpExecError, match="connection reset"):
        migrate(running)
    assert where(running) == {"node1": 1}
    assert running.said("may have run on node2.example.com, and ended there")
    assert running.said("--cleanup")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("op", "params"),
    [
        ("REINSTALL", {}),
        ("RENAME", {"new_name": "web2", "name_check": False, "ip_check": False}),
        ("SET_PARAMS", {"pnode": "node3"}),
        ("SET_PARAMS", {"disks": [("remove", 0, {})]}),
        ("SET_PARAMS", {"disk_template": "file"}),
        ("DEACTIVATE_DISKS", {}),
        ("RECREATE_DISKS", {}),
        ("GROW_DISK", {"disk": 0, "amount": 1}),
    ],
)
def test_what_needs_a_stopped_guest_is_refused_while_it_may_run_elsewhere(
    running: FakeCluster, op: str, params: dict[str, Any], restarts: bool
) -> None:
    break_off(running, "instance_finalize_migration_dst", "node2", before=False)
    if restarts:
        running.rpc.node("node1").crash()
    before = running.config.instance(NAME).copy()
    text = f"may run on the node with the address 192.0.2.2:8102.*migrate --cleanup {NAME}'"
    with pytest.raises(OpPrereqError, match=text):
        running.execute(f"OP_INSTANCE_{op}", instance_name=NAME, **params)
    assert running.config.instance(NAME) == before
    running.config.free_everything()
    migrate(running, cleanup=True)
    assert (primary(running), where(running)) == (uuid_of("node2"), {"node2": 0})


def test_a_node_of_another_version_that_does_not_tell_what_left_keeps_nobody_waiting(
    running: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nodes are upgraded one by one, or with those of Ganeti 3.0."""
    perform, status = running.rpc.perform, 404

    def old(
        call: NodeCall, targets: Mapping[Target, Sequence[object]]
    ) -> dict[str, RpcResult[Any]]:
        if call.name != "instance_departed":
            return perform(call, targets)
        error = f"HTTP status {status}: there is no call '/instance_departed'"
        return {t.name: RpcResult(t.name, error=error, address=t.address) for t in targets}

    monkeypatch.setattr(running.rpc, "perform", old)
    running.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    running.execute("OP_INSTANCE_REINSTALL", instance_name=NAME)
    status = 500
    with pytest.raises(OpPrereqError, match=r"cannot find out where instance .* runs"):
        running.execute("OP_INSTANCE_REINSTALL", instance_name=NAME)


@pytest.mark.parametrize(
    ("address", "own", "result"),
    [
        ("192.0.2.2", "192.0.2.2", True),
        ("192.0.2.2:8102", "192.0.2.2", True),
        ("192.0.2.22:8102", "192.0.2.2", False),
        ("[2001:db8::1]:8102", "2001:db8::1", True),
        ("2001:db8::1", "2001:db8::1", True),
        ("2001:db8::1", "2001:db8::2", False),
    ],
)
def test_addresses_of_departures(address: str, own: str, result: bool) -> None:
    node = msgspec.convert(make_node(2, secondary_ip=own), Node)
    assert leads_to(address, node) is result


R, S, A, U = Seen.RUNNING, Seen.STOPPED, Seen.ABSENT, Seen.UNKNOWN


@pytest.mark.parametrize(
    ("seen", "primary_node", "steps"),
    [
        ({"a": R, "b": A}, "a", [("b", Step.CLEAR), ("a", Step.RESUME)]),
        ({"a": S, "b": A}, "a", [("b", Step.CLEAR), ("a", Step.SETTLE)]),
        ({"a": S, "b": S}, "a", [("b", Step.FORGET), ("a", Step.SETTLE)]),
        ({"a": S}, "a", [("a", Step.SETTLE)]),
        ({"a": S, "b": R}, "b", [("a", Step.FORGET), ("b", Step.LET_RUN)]),
        ({"a": A, "b": R}, "b", [("a", Step.CLEAR), ("b", Step.LET_RUN)]),
        ({"a": R, "b": S}, "a", [("b", Step.FORGET), ("a", Step.RESUME)]),
        ({"a": A, "b": S}, "a", [("b", Step.FORGET), ("a", Step.CLEAR)]),
        ({"a": A, "b": A}, "a", [("b", Step.CLEAR), ("a", Step.CLEAR)]),
    ],
)
def test_clean_up_decisions(
    seen: dict[str, Seen], primary_node: str, steps: list[tuple[str, Step]]
) -> None:
    plan = plan_cleanup("a", seen)
    assert (plan.primary, list(plan.steps)) == (primary_node, steps)


@pytest.mark.parametrize(
    ("seen", "text"),
    [({"a": R, "b": R}, "more than one node: a, b"), ({"a": R, "b": U}, "b do not answer")],
)
def test_clean_up_does_nothing_when_in_doubt(seen: dict[str, Seen], text: str) -> None:
    with pytest.raises(OpExecError, match=text):
        plan_cleanup("a", seen)


@pytest.mark.parametrize(
    ("mode", "live", "default", "result"),
    [
        (None, None, "live", True),
        (None, None, "non-live", False),
        (None, None, None, True),
        (MigrationMode.NONLIVE, None, "live", False),
        (None, False, "live", False),
        (None, True, "non-live", True),
    ],
)
def test_live_or_not(
    mode: MigrationMode | None, live: bool | None, default: object, result: bool
) -> None:
    assert decide_live(mode, live, default) is result


def test_progress_is_a_share_of_the_memory() -> None:
    assert progress_text({"transferred_ram": 1, "total_ram": 3}).endswith("33.33 %")
    assert progress_text({}) == "* memory transfer in progress"


def test_both_ways_of_saying_live_are_refused(running: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match="only one of"):
        migrate(running, mode="live", live=True)


@pytest.mark.parametrize("move", [migrate, failover])
def test_a_target_is_needed(running: FakeCluster, move: Any) -> None:
    running.config.cluster["default_iallocator"] = ""
    with pytest.raises(OpPrereqError, match="no default allocator; give one"):
        move(running, target_node=None)


@pytest.mark.shows("2.0/drained/no-allocation", "2.0/any-node/shared")
@pytest.mark.parametrize("move", [migrate, failover])
@pytest.mark.parametrize(
    ("params", "flags", "text"),
    [
        ({"target_node": "node1"}, {}, "primary node of instance"),
        ({"target_node": "nix"}, {}, "not known"),
        ({"iallocator": "hail"}, {}, "give one of them"),
        ({}, {"offline": True}, "marked offline"),
        ({}, {"drained": True}, "is drained"),
        ({}, {"vm_capable": False}, "not vm_capable"),
    ],
)
def test_targets_that_will_not_do(
    running: FakeCluster, move: Any, params: dict[str, Any], flags: dict[str, Any], text: str
) -> None:
    running.config.node(2).update(flags)
    with pytest.raises(OpPrereqError, match=text):
        move(running, **params)


@pytest.mark.parametrize("move", [migrate, failover])
def test_disks_of_one_node_cannot_move(cluster: FakeCluster, move: Any) -> None:
    cluster.add_instance(disk_template="file")
    with pytest.raises(OpPrereqError, match="disk template 'file'") as caught:
        move(cluster)
    assert caught.value.ecode == "wrong_state"


def test_one_that_does_not_run_is_failed_over_only_if_allowed(running: FakeCluster) -> None:
    running.rpc.node("node1").running.clear()
    with pytest.raises(OpPrereqError, match=r"it does not run; use 'gnt-instance failover"):
        migrate(running)
    migrate(running, allow_failover=True)
    assert where(running) == {"node2": 0}
    assert primary(running) == uuid_of("node2")


def test_failover_stops_and_starts(running: FakeCluster) -> None:
    failover(running)
    assert where(running) == {"node2": 0}
    assert primary(running) == uuid_of("node2")


def test_failover_of_one_that_is_down_only_moves_it(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False)
    failover(cluster)
    assert where(cluster) == {}
    assert primary(cluster) == uuid_of("node2")


@pytest.mark.shows("backend/overview/recovery")
def test_failover_from_a_node_marked_offline(running: FakeCluster) -> None:
    running.config.node(1)["offline"] = True
    failover(running)
    assert primary(running) == uuid_of("node2")
    assert running.said("make sure that it is switched off")


def lose_primary(cluster: FakeCluster, *, offline: bool) -> None:
    """Let node1 be gone, after the guest has left it for node3 and nobody recorded that."""
    cluster.rpc.node("node3").running[NAME] = cluster.rpc.node("node1").running.pop(NAME)
    cluster.config.node(1)["offline"] = offline
    cluster.rpc.fail("instance_shutdown", "node1", "no route")


@pytest.mark.parametrize(
    ("offline", "ignore_consistency"), [(True, False), (True, True), (False, True)]
)
def test_failover_does_not_start_a_second_copy_beside_one_on_a_third_node(
    running: FakeCluster, *, offline: bool, ignore_consistency: bool
) -> None:
    lose_primary(running, offline=offline)
    text = r"runs on node3\.example\.com, .* nothing was changed: 'gnt-instance migrate --cleanup"
    with pytest.raises(OpExecError, match=text):
        failover(running, ignore_consistency=ignore_consistency)
    assert (primary(running), where(running)) == (uuid_of("node1"), {"node3": 0})
    failover(running, target_node="node3", ignore_consistency=ignore_consistency)
    assert (primary(running), where(running)) == (uuid_of("node3"), {"node3": 0})


def test_failover_from_a_dead_node_waits_for_a_third_one_that_is_silent(
    running: FakeCluster,
) -> None:
    lose_primary(running, offline=True)
    running.rpc.fail("instance_info", "node3", "no route")
    text = (
        r"node3\.example\.com do not answer, .*--offline yes node3.*, or use --ignore-consistency"
    )
    with pytest.raises(OpExecError, match=text):
        failover(running)
    assert primary(running) == uuid_of("node1")
    running.rpc.node("node3").running.clear()
    failover(running, ignore_consistency=True)
    assert running.said("node3.example.com do not answer, so nobody knows")
    assert (primary(running), where(running)) == (uuid_of("node2"), {"node2": 0})


def test_no_third_node_is_asked_where_the_primary_one_answers_or_all_are_offline(
    running: FakeCluster,
) -> None:
    failover(running)
    assert not running.rpc.called("instance_info")
    running.config.node(2)["offline"] = running.config.node(3)["offline"] = True
    failover(running, target_node="node1")
    assert not running.rpc.called("instance_info")
    assert primary(running) == uuid_of("node1")


def test_failover_from_a_silent_node_needs_to_be_insisted_on(running: FakeCluster) -> None:
    running.rpc.fail("instance_shutdown", "node1", "no route")
    with pytest.raises(OpExecError, match="nothing was changed"):
        failover(running)
    assert primary(running) == uuid_of("node1")
    failover(running, ignore_consistency=True)
    assert primary(running) == uuid_of("node2")


def test_a_failed_start_on_the_target_says_where_things_are(running: FakeCluster) -> None:
    running.rpc.fail("instance_start", "node2", "no kvm")
    with pytest.raises(GenericError, match=r"no kvm; the instance is down, its primary node is"):
        failover(running)
    assert primary(running) == uuid_of("node2")
    assert where(running) == {}


def test_a_target_that_did_not_take_over_is_cleared(running: FakeCluster) -> None:
    running.rpc.failure = lambda _node, call, args: (
        "no memory" if call == "instance_finalize_migration_dst" and args[2] else None
    )
    with pytest.raises(OpExecError, match="no memory"):
        migrate(running)
    assert where(running) == {"node1": 0}
    assert primary(running) == uuid_of("node1")
    assert not running.rpc.node("node2").receiving


def test_what_is_left_at_the_source_is_told(running: FakeCluster) -> None:
    running.rpc.fail("instance_finalize_migration_src")
    migrate(running)
    assert primary(running) == uuid_of("node2")
    assert running.said("--cleanup")


def test_a_restart_of_the_node_daemon_is_waited_for(running: FakeCluster) -> None:
    failures = ["connection refused"] * 3
    running.rpc.failure = lambda _node, call, _args: (
        failures.pop() if "migration_status" in call and failures else None
    )
    migrate(running)
    assert where(running) == {"node2": 0}


def test_progress_is_told_now_and_then(running: FakeCluster) -> None:
    active = {"status": "active", "transferred_ram": 30, "total_ram": 40}
    running.rpc.migration_states = [*[active] * 100, {"status": "completed"}]
    migrate(running)
    told = [message for message in running.messages if "75.00 %" in message]
    assert 1 <= len(told) <= 5


def test_one_that_must_always_be_failed_over(running: FakeCluster) -> None:
    running.config.instance(NAME)["beparams"] = {"always_failover": True}
    migrate(running)
    assert running.said("always_failover' is set; failing over instead")
    assert not running.rpc.called("instance_migrate")


def test_a_node_that_cannot_migrate_says_why(running: FakeCluster) -> None:
    running.rpc.fail("instance_migratable", text="chroot cannot")
    with pytest.raises(OpPrereqError, match="chroot cannot"):
        migrate(running)


def test_another_group_has_its_own_policy(running: FakeCluster) -> None:
    running.config.nodegroups["g2"] = make_group(
        "other", "g2", ipolicy={"disk-templates": ["file"]}
    )
    running.config.node(2)["group"] = "g2"
    with pytest.raises(OpPrereqError, match=r"node group 'other'.*sharedfile is not allowed"):
        migrate(running)
    migrate(running, ignore_ipolicy=True)
    assert primary(running) == uuid_of("node2")


def test_disks_written_with_a_node_follow_the_instance(running: FakeCluster) -> None:
    (disk,) = running.config.disks.values()
    disk["nodes"] = [uuid_of("node1")]
    failover(running)
    (disk,) = running.config.disks.values()
    assert disk["nodes"] == [uuid_of("node2")]


def test_networks_that_the_other_group_lacks_are_named(running: FakeCluster) -> None:
    config = running.config
    config.networks["n1"] = {"name": "lan", "network": "10.0.0.0/24", "uuid": "n1", "serial_no": 1}
    config.nodegroups["g2"] = make_group("other", "g2")
    config.node(2)["group"] = "g2"
    nic = {"mac": "aa:00:00:00:00:01", "uuid": "u", "network": "n1", "ip": "10.0.0.5"}
    config.instance(NAME)["nics"] = [nic]
    migrate(running)
    assert running.said("not connected to network(s) lan")
