"""Carrying out opcodes: locks, hooks, results, and that everything is given back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, uuid_of

from ganeti import logical_units
from ganeti.base.errors import GenericError, HooksAbort, JobCanceled, OpPrereqError, OpResultError
from ganeti.logical_units import locks, processor
from ganeti.logical_units.hooks import (
    HookPoint,
    HookRun,
    ObjectType,
    Phase,
    build_environment,
    failures,
)
from ganeti.opcodes.registry import all_op_ids, decode_opcode
from ganeti.protocol.wconfd import ClientId, WConfCalls

NAME = "web1.example.com"


@pytest.mark.shows("2.12/steps/locks-ipc", "2.0/locking-library/transparent")
def test_nothing_costs_one_lock_call_and_one_release(cluster: FakeCluster) -> None:
    cluster.execute("OP_TEST_DELAY", duration=0)
    assert cluster.config.calls == ["waitLocks", "freeLocks"]
    assert cluster.rpc.calls == []


def test_delays_wait_on_master_and_nodes(cluster: FakeCluster) -> None:
    cluster.execute("OP_TEST_DELAY", duration=2.5, on_nodes=["node2", "node3"], repeat=2)
    assert cluster.waits == [2.5, 2.5]
    assert cluster.rpc.called("test_delay") == [("node2", [2.5]), ("node3", [2.5])] * 2


def test_delays_can_be_canceled(cluster: FakeCluster) -> None:
    cluster.cancel_after = 2
    with pytest.raises(JobCanceled):
        cluster.execute("OP_TEST_DELAY", duration=2.5, repeat=9)
    assert len(cluster.waits) < 9


@pytest.mark.shows("2.0/locks/nodes")
def test_delays_lock_nodes_only_if_asked(cluster: FakeCluster) -> None:
    cluster.execute("OP_TEST_DELAY", duration=0, on_nodes=["node2"], no_locks=False)
    assert cluster.config.lock_history[-1][1] == ("node/" + uuid_of("node2"), "exclusive")


@pytest.mark.shows("backend/locks/bgl", "2.0/metalocks/bgl-shared")
def test_the_job_is_told_when_the_locks_are_held(cluster: FakeCluster) -> None:
    seen: list[dict[str, str]] = []
    cluster.context.on_locks_held = lambda: seen.append(dict(cluster.config.held))
    cluster.execute("OP_TEST_DELAY", duration=0)
    assert seen == [{"cluster/BGL": "shared"}]


def test_an_opcode_without_a_unit_is_named(cluster: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match="OP_TEST_DUMMY is not supported"):
        cluster.execute("OP_TEST_DUMMY")
    assert cluster.config.calls == []


@pytest.mark.shows("backend/life/unit")
@pytest.mark.parametrize("key", sorted(processor.all_units()), ids="-".join)
def test_every_unit_is_named_like_its_opcode(key: tuple[str, str]) -> None:
    unit = processor.all_units()[key]
    name = unit.opcode.__name__.replace("Op", "LU", 1)
    assert unit.__name__ == name + ("Remote" if key[1] else "")


@pytest.mark.shows("2.12/steps/unchanged-units")
def test_every_opcode_but_one_has_a_unit() -> None:
    assert set(all_op_ids()) - {op_id for op_id, _ in processor.all_units()} == {"OP_TEST_DUMMY"}


def test_all_modules_are_loaded() -> None:
    folder = Path(logical_units.__path__[0])
    found = {path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py")}
    names = {".".join(path.parts) for path in found if path.name != "__init__"}
    assert names <= {name.removeprefix("ganeti.logical_units.") for name in processor.load_units()}


# The version that an object is expected to have.


@pytest.mark.shows("2.0/rapi-design/etag")
def test_work_on_another_version_than_expected_is_refused(cluster: FakeCluster) -> None:
    uuid = cluster.add_instance(start=False)["uuid"]
    cluster.config.instance(NAME)["serial_no"] = 7
    start = {"instance_name": NAME}
    for gone in (f"{uuid}/6", f"{uuid}/8"):
        with pytest.raises(OpPrereqError, match=f"'{NAME}' was changed.* is 7, not") as caught:
            cluster.execute("OP_INSTANCE_STARTUP", **start, expected_version=gone)
        assert caught.value.ecode == "wrong_state"
    with pytest.raises(OpPrereqError, match="does not exist any more"):
        cluster.execute("OP_INSTANCE_STARTUP", **start, expected_version="none/7")
    assert not cluster.rpc.node("node1").running
    cluster.execute("OP_INSTANCE_STARTUP", **start, expected_version=f"{uuid}/7")
    assert cluster.rpc.node("node1").running


def test_a_version_is_looked_at_when_the_locks_are_held(cluster: FakeCluster) -> None:
    uuid = cluster.add_instance(start=False)["uuid"]
    serial = cluster.config.instance(NAME)["serial_no"]

    def change() -> None:
        cluster.config.instance(NAME)["serial_no"] = serial + 1

    cluster.config.before_grant = [change]
    with pytest.raises(OpPrereqError, match="was changed meanwhile"):
        cluster.execute(
            "OP_INSTANCE_STARTUP", instance_name=NAME, expected_version=f"{uuid}/{serial}"
        )
    assert not cluster.config.held


def test_a_version_of_the_cluster_waits_until_nothing_else_runs(cluster: FakeCluster) -> None:
    about = cluster.config.cluster
    version = f"{about['uuid']}/{about['serial_no']}"
    tags = {"kind": "cluster", "tags": ["new"]}
    cluster.execute("OP_TAGS_SET", **tags, expected_version=version)
    assert cluster.config.lock_history[-1] == [("cluster/BGL", "exclusive")]
    with pytest.raises(OpPrereqError, match="was changed meanwhile"):
        cluster.execute("OP_TAGS_DEL", **tags, expected_version=version)


# The optimistic strategy.


@pytest.mark.shows("2.12/locking/optimistic", "2.12/aims/automatic", "2.0/lock-code/late")
def test_a_world_that_changed_meanwhile_is_read_again(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False)

    def move_away() -> None:
        cluster.config.instance(NAME)["primary_node"] = uuid_of("node3")

    cluster.config.before_grant = [move_away]
    cluster.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    asked = [dict(request) for request in cluster.config.lock_history]
    assert [f"node/{uuid_of('node1')}" in request for request in asked] == [True, False]
    assert cluster.rpc.node("node3").running


@pytest.mark.shows("2.12/aims/automatic", "2.0/add-remove/removed")
def test_a_thing_that_went_away_while_waiting_is_refused(cluster: FakeCluster) -> None:
    uuid = cluster.add_instance(start=False)["uuid"]
    cluster.config.before_grant = [lambda: cluster.config.instances.pop(uuid)]
    with pytest.raises(OpPrereqError, match="not known"):
        cluster.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert not cluster.config.held


@pytest.mark.shows("2.12/locking/optimistic")
def test_a_world_that_never_settles_is_given_up(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False)
    nodes = [uuid_of("node1"), uuid_of("node2")]

    def toggle() -> None:
        instance = cluster.config.instance(NAME)
        instance["primary_node"] = nodes[instance["primary_node"] == nodes[0]]

    cluster.config.before_grant = [toggle] * 100
    with pytest.raises(OpPrereqError, match="kept changing") as caught:
        cluster.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert caught.value.ecode == "temp_insufficient_resources"
    assert len(cluster.config.lock_history) == processor.RESTARTS_MAX


# Waiting for locks.

HOLDER = ClientId(17, "/l17", 17)


def held_by_another(cluster: FakeCluster, times: int) -> list[int]:
    priorities: list[int] = []
    call = WConfCalls.calls["waitLocks"]

    def wait(priority: int, request: Any, timeout_s: float) -> Any:
        priorities.append(priority)
        cluster.clock += timeout_s
        if len(priorities) <= times:
            return ("timeout", [HOLDER])
        return cluster.config.serve(call, [priority, request, timeout_s])

    cluster.config.stand_ins["wait_locks"] = wait
    cluster.config.stand_ins["list_all_locks_owners"] = lambda: [
        ("cluster/BGL", [(HOLDER.to_wire(), "exclusive")]),
        ("node/other", [(HOLDER.to_wire(), "exclusive")]),
    ]
    return priorities


@pytest.mark.shows("backend/jobs/starvation")
def test_waiting_raises_the_priority_and_names_the_holder(cluster: FakeCluster) -> None:
    priorities = held_by_another(cluster, times=3)
    cluster.execute("OP_TEST_DELAY", duration=0)
    assert priorities == [0, -1, -2, -3]
    assert cluster.messages[0] == (
        " - INFO: lock cluster/BGL is held by job 17 (exclusive); waiting for 5 s"
    )


@pytest.mark.shows("2.0/async/endless")
def test_the_wait_has_no_end_and_blocks_once_the_priority_is_the_highest(
    cluster: FakeCluster,
) -> None:
    priorities = held_by_another(cluster, times=27)
    cluster.execute("OP_TEST_DELAY", duration=0)
    assert priorities == [*range(0, -20, -1), *[-20] * 8]
    assert cluster.clock - 1000 > 7 * 24 * 3600
    assert len(cluster.messages) == 27, "one line for each attempt, not for each minute"


def test_the_most_urgent_job_tells_for_whom_it_waits_before_it_blocks(cluster: FakeCluster) -> None:
    held_by_another(cluster, times=2)
    cluster.context.priority = lambda: -20
    cluster.execute("OP_TEST_DELAY", duration=0)
    assert [text.rpartition(" for ")[2] for text in cluster.messages[:2]] == ["5 s", "86405 s"]


def test_a_job_that_stepped_back_goes_on_where_it_was(cluster: FakeCluster) -> None:
    priorities = held_by_another(cluster, times=1)
    cluster.context.attempts_before = 3
    cluster.execute("OP_TEST_DELAY", duration=0)
    assert priorities == [-3, -4]


def test_who_waits_for_a_slot_says_so(cluster: FakeCluster) -> None:
    held_by_another(cluster, times=1)
    cluster.config.stand_ins["list_all_locks_owners"] = lambda: [
        ("cluster/BGL", [(HOLDER.to_wire(), "shared")])
    ]
    cluster.execute("OP_TEST_DELAY", duration=0)
    assert "1 jobs run, as many as may at once" in cluster.messages[0]


def test_who_waits_for_what_a_node_has_says_so(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False)
    held_by_another(cluster, times=1)
    lock = "node-res/" + uuid_of("node2")
    cluster.config.stand_ins["list_all_locks_owners"] = lambda: [
        ("cluster/BGL", [(HOLDER.to_wire(), "shared")]),
        (lock, [(HOLDER.to_wire(), "shared")]),
    ]
    cluster.execute("OP_BACKUP_EXPORT", instance_name=NAME, target_node="node2", shutdown=True)
    assert cluster.said(f"lock {lock} is shared by job")
    assert cluster.said("as many as may at once (gnt-cluster modify --max-disk-transfers)")


def test_the_wait_can_be_canceled(cluster: FakeCluster) -> None:
    held_by_another(cluster, times=10_000)
    cluster.cancel_after = 4
    with pytest.raises(JobCanceled):
        cluster.execute("OP_TEST_DELAY", duration=0)
    assert cluster.config.calls[-1] == "freeLocks"


@pytest.mark.shows("backend/jobs/starvation")
def test_the_highest_priority_is_the_end() -> None:
    assert locks.raised_priority(0, 100) == -20
    assert locks.raised_priority(10, 3) == 7
    assert locks.raised_priority(-21, 3) == -21, "what mends the cluster stays ahead"


# Giving back.


@pytest.mark.shows(
    "backend/granularity/by-unit", "2.0/lock-granularity/by-unit", "2.0/lock-code/always-released"
)
@pytest.mark.parametrize("where", ["plan", "execute"])
def test_locks_go_back_however_it_ends(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def fail(_unit: object, _state: object) -> None:
        raise RuntimeError("bug")

    unit = processor.all_units()["OP_TEST_DELAY", ""]
    monkeypatch.setattr(unit, where, fail)
    with pytest.raises(RuntimeError):
        cluster.execute("OP_TEST_DELAY", duration=0)
    assert not cluster.config.held


@pytest.mark.shows("2.0/lock-code/always-released", "2.0/queue-structure/end-at-once")
def test_a_failure_to_give_back_does_not_hide_the_result(cluster: FakeCluster) -> None:
    cluster.config.failing["freeLocks"] = GenericError("WConfD is gone")
    assert cluster.execute("OP_TEST_JQUEUE") is True
    cluster.config.free_everything()


@pytest.mark.shows("2.0/queue-structure/end-at-once")
def test_what_could_not_be_given_back_is_before_the_next_opcode(cluster: FakeCluster) -> None:
    cluster.config.failing["freeLocks"] = GenericError("WConfD is gone")
    cluster.execute("OP_TEST_JQUEUE")
    assert cluster.config.held
    del cluster.config.failing["freeLocks"]
    del cluster.config.calls[:]
    cluster.execute("OP_TEST_JQUEUE")
    assert [call for call in cluster.config.calls if "Locks" in call] == [
        "freeLocks", "waitLocks", "freeLocks",
    ]  # fmt: skip
    assert not cluster.config.held


def test_the_context_knows_whether_the_configuration_changed(cluster: FakeCluster) -> None:
    cluster.execute("OP_TEST_DELAY", duration=0)
    assert not cluster.context.config_changed
    cluster.execute("OP_TAGS_SET", kind="cluster", tags=["a"], name=None)
    assert cluster.context.config_changed


# Results and dry runs.


def test_a_result_of_another_type_is_our_mistake() -> None:
    op = decode_opcode({"OP_ID": "OP_TEST_JQUEUE"})
    with pytest.raises(OpResultError, match="OP_TEST_JQUEUE"):
        processor.checked_result(op, "yes")


def test_test_messages_are_logged(cluster: FakeCluster) -> None:
    with pytest.raises(GenericError, match="requested"):
        cluster.execute("OP_TEST_JQUEUE", log_messages=["a", "b"], fail=True)
    assert cluster.messages == ["TESTMSG=a", "TESTMSG=b"]


# Hooks.

RUN = HookRun("OP_NODE_ADD", HookPoint("node-add", ObjectType.NODE), "cl", "n1")


def test_the_environment_of_both_phases() -> None:
    pre = build_environment(RUN, Phase.PRE, {"A": True})
    post = build_environment(RUN, Phase.POST, {"A": True}, {"A": None})
    assert pre["GANETI_A"] == "True"
    assert post["GANETI_POST_A"] == "None"
    assert post["GANETI_A"] == "True"
    assert pre["GANETI_HOOKS_PATH"] == "node-add"
    assert pre["GANETI_OBJECT_TYPE"] == "NODE"
    assert pre["GANETI_DATA_DIR"] == "/var/lib/ganeti"
    assert "GANETI_POST_A" not in pre


def test_failures_of_scripts_are_found() -> None:
    answers = {"n1": [["x-pre.d/a", 2, ""], ["x-pre.d/b", 1, "no"]], "n2": [["x-pre.d/c", 0, ""]]}
    assert failures(answers) == [["n1", "x-pre.d/b", "no"]]


def add_master_hook(cluster: FakeCluster, name: str) -> None:
    import os

    directory = f"{cluster.context.paths.hooks_dir}/{name}"
    os.makedirs(directory)
    with open(f"{directory}/script", "w"):
        pass


def test_the_master_alone_is_asked_only_if_it_has_scripts(cluster: FakeCluster) -> None:
    assert cluster.execute("OP_CLUSTER_POST_INIT") is True
    assert not cluster.rpc.called("hooks_runner")
    add_master_hook(cluster, "cluster-init-post.d")
    cluster.execute("OP_CLUSTER_POST_INIT")
    ((node, args),) = cluster.rpc.called("hooks_runner")
    assert (node, args[0], args[1]) == ("node1", "cluster-init", "post")
    assert args[2]["GANETI_OP_TARGET"] == "cluster.example.com"


def test_a_master_without_scripts_is_not_asked_beside_others(cluster: FakeCluster) -> None:
    start = prepared(cluster)
    start()
    asked = [(node, args[1]) for node, args in cluster.rpc.called("hooks_runner")]
    assert asked == [("node2", "pre"), ("node2", "post")]


def test_changes_of_the_configuration_are_told_to_hooks(cluster: FakeCluster) -> None:
    add_master_hook(cluster, "config-update-post.d")
    cluster.execute("OP_TAGS_SET", kind="cluster", tags=["a"], name=None)
    assert [args[0] for _, args in cluster.rpc.called("hooks_runner")] == ["config-update"]
    cluster.rpc.calls.clear()
    cluster.execute("OP_TAGS_GET", kind="cluster")
    assert not cluster.rpc.calls


def prepared(cluster: FakeCluster) -> Callable[[], None]:
    cluster.add_instance(start=False, pnode="node2")
    return lambda: cluster.execute("OP_INSTANCE_STARTUP", instance_name=NAME)


def test_a_pre_hook_that_fails_aborts_with_nothing_changed(cluster: FakeCluster) -> None:
    start = prepared(cluster)
    cluster.rpc.hook_results["node2:instance-start-pre"] = [["instance-start-pre.d/x", 1, "no"]]
    with pytest.raises(HooksAbort) as caught:
        start()
    assert caught.value.args == ([["node2.example.com", "instance-start-pre.d/x", "no"]],)
    assert "modifyObjects" not in cluster.config.calls


def test_a_post_hook_that_fails_is_only_told(cluster: FakeCluster) -> None:
    start = prepared(cluster)
    cluster.rpc.hook_results["node2:instance-start-post"] = [["x", 1, "oops"]]
    start()
    assert cluster.said("post hook x failed on node node2.example.com: oops")


def test_a_node_that_cannot_run_hooks_is_told(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False, pnode="node2")
    cluster.rpc.fail("hooks_runner", "node2", "no route")
    cluster.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert cluster.said("cannot run the pre hooks on node node2.example.com: no route")


@pytest.mark.shows("2.0/offline/rpc-skips")
def test_offline_nodes_run_no_hooks(cluster: FakeCluster) -> None:
    cluster.add_instance(pnode="node2")
    cluster.config.node(2)["offline"] = True
    cluster.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME, ignore_offline_nodes=True)
    assert not cluster.said("cannot run")
