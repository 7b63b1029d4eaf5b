"""The plan for a group: who is started, and who is left alone."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.objects.model import InstanceStatus
from ganeti.watcher.planning import (
    TRIES_EXPIRE_S,
    TRIES_MAX,
    Facts,
    InstanceRecord,
    InstanceSeen,
    NodeRecord,
    NodeSeen,
    Plan,
    State,
    Step,
    Work,
    plan_activation,
    plan_group,
    without_refused,
)

NOW = 1_800_000_000.0
PERIOD_S = 300.0
DOWN = InstanceSeen("ERROR_down", "up", True)
RUNNING = InstanceSeen("running", "up", True)


def facts(
    instance: InstanceSeen = DOWN, *, now: float = NOW, busy: str = "", **nodes: NodeSeen
) -> Facts:
    return Facts(nodes, {"web": instance}, {"web": busy} if busy else {}, now)


def texts(plan: Plan) -> str:
    return "\n".join(text for _, text in plan.notes)


def test_an_instance_that_should_run_is_started() -> None:
    plan = plan_group(State(), facts())
    assert plan.steps == (Step(Work.RESTART, "web"),)
    assert plan.state.instance["web"] == InstanceRecord(1, NOW)
    assert "web is ERROR_down: trying to start it again (try 1 of 5)" in texts(plan)


@pytest.mark.parametrize(
    "status", [*sorted({*InstanceStatus} - {"ERROR_down", "USER_down"}), "", "new"]
)
def test_in_no_other_state_anything_is_done(status: str) -> None:
    assert plan_group(State(), facts(InstanceSeen(status, "up", True))).steps == ()


@pytest.mark.parametrize("admin_state", ["down", "offline"])
@pytest.mark.parametrize("status", list(InstanceStatus))
def test_an_instance_that_is_not_meant_to_run_is_left_alone(status: str, admin_state: str) -> None:
    booted = {"n2": NodeSeen("new", False)}
    seen = InstanceSeen(status, admin_state, True, ("n2",))
    assert plan_group(State(), facts(seen, **booted)).steps == ()


def test_an_instance_that_its_user_shut_down_stays_down() -> None:
    plan = plan_group(State(), facts(InstanceSeen("USER_down", "up", True)))
    assert plan.steps == (Step(Work.CLEAN_UP, "web"),)
    assert plan.state.instance["web"] == InstanceRecord(cleanup_count=1, cleanup_when=NOW)


@pytest.mark.parametrize("status", ["ERROR_down", "USER_down"])
def test_an_instance_that_a_job_is_about_is_left_alone_and_no_try_is_counted(status: str) -> None:
    plan = plan_group(State(), facts(InstanceSeen(status, "up"), busy="job 7 is about it"))
    assert (plan.steps, plan.state.instance) == ((), {})
    assert "Leaving web alone: job 7 is about it" in texts(plan)


def runs(count: int, *, seen: InstanceSeen = DOWN) -> tuple[list[int], str, State]:
    """Return in which of so many runs an instance was started, what the log says, the state."""
    state, started, said = State(), [], ""
    for number in range(count):
        plan = plan_group(state, facts(seen, now=NOW + number * PERIOD_S))
        started += [number] * len(plan.steps)
        state, said = plan.state, texts(plan)
    return started, said, state


def test_five_tries_and_no_more_until_eight_hours_later() -> None:
    started, said, _ = runs(8)
    assert (started, said) == ([0, 1, 2, 3, 4], "web is ERROR_down, its tries are used up")
    started, _, _ = runs(110)
    # Given up in run 5, from which eight hours are counted.
    again = 5 + int(TRIES_EXPIRE_S / PERIOD_S)
    assert started == [*range(5), *range(again, again + 5)]


def test_to_be_seen_running_ends_the_count() -> None:
    _, _, state = runs(4)
    plan = plan_group(state, facts(RUNNING, now=NOW + 4 * PERIOD_S))
    assert plan.state.instance == {}
    assert texts(plan) == "web is running again"


@pytest.mark.parametrize("status", ["ERROR_nodedown", "ERROR_nodeoffline", ""])
def test_tries_are_kept_while_it_cannot_be_told_whether_it_runs(status: str) -> None:
    _, _, state = runs(3)
    plan = plan_group(state, facts(InstanceSeen(status, "up"), now=NOW + 3 * PERIOD_S))
    assert plan.state.instance == state.instance


def test_records_of_removed_instances_go() -> None:
    state = State({"gone": InstanceRecord(2, NOW)}, {"gone": NodeRecord("x")})
    plan = plan_group(state, facts())
    assert set(plan.state.instance) == {"web"}
    assert plan.state.node == {}


def test_a_clock_that_was_ahead_does_not_keep_an_instance_down_for_years() -> None:
    state = State({"web": InstanceRecord(TRIES_MAX + 1, NOW + 1e9)})
    plan = plan_group(state, facts())
    assert plan.steps == ()
    later = NOW + TRIES_EXPIRE_S
    assert plan_group(plan.state, facts(now=later)).steps == (Step(Work.RESTART, "web"),)


MIRRORED = InstanceSeen("running", "up", True, ("n2",))


def test_disks_are_activated_when_a_node_with_a_copy_has_booted() -> None:
    state = State(node={"n2": NodeRecord("old")})
    plan = plan_group(state, facts(MIRRORED, n2=NodeSeen("new", False)))
    assert plan.steps == (Step(Work.ACTIVATE, "web"),)
    assert plan.state.node == {"n2": NodeRecord("new")}
    assert "Node n2 has booted" in texts(plan)
    assert plan_group(plan.state, facts(MIRRORED, n2=NodeSeen("new", False))).steps == ()


def test_a_start_activates_the_disks_itself() -> None:
    seen = InstanceSeen("ERROR_down", "up", True, ("n2",))
    plan = plan_group(State(), facts(seen, n2=NodeSeen("new", False)))
    assert plan.steps == (Step(Work.RESTART, "web"),)


@pytest.mark.parametrize(
    ("seen", "n3", "reason"),
    [
        (MIRRORED, NodeSeen("", False), ""),
        (InstanceSeen("running", "up", False, ("n2",)), NodeSeen("z", False), "not meant"),
        (InstanceSeen("running", "up", True, ("n2", "n3")), NodeSeen("", True), "n3, which has"),
        (InstanceSeen("running", "up", True, ("n2", "n3")), NodeSeen("", False), "n3, which has"),
        (InstanceSeen("ERROR_nodedown", "up", True, ("n2",)), NodeSeen("z", False), "away"),
    ],
)
def test_disks_are_left_alone(seen: InstanceSeen, n3: NodeSeen, reason: str) -> None:
    plan = plan_group(
        State(node={"n3": NodeRecord("z")}), facts(seen, n2=NodeSeen("b", False), n3=n3)
    )
    assert (plan.steps == ()) == bool(reason)
    assert reason in texts(plan)


def test_a_node_that_does_not_answer_keeps_its_boot_id() -> None:
    state = State(node={"n2": NodeRecord("old")})
    plan = plan_group(state, facts(MIRRORED, n2=NodeSeen("", False)))
    assert plan.state.node == state.node
    assert "Node n2 does not answer; leaving it alone" in texts(plan)
    assert plan_group(state, facts(MIRRORED, n2=NodeSeen("old", False))).steps == ()


def test_what_the_queue_refuses_is_taken_back() -> None:
    before = State({"web": InstanceRecord(2, NOW - 9)}, {"n2": NodeRecord("old")})
    seen = {"web": DOWN, "db": DOWN, "mail": MIRRORED}
    plan = plan_group(before, Facts({"n2": NodeSeen("new", False)}, seen, {}, NOW))
    assert len(plan.steps) == 3
    assert without_refused(before, plan, plan.steps) == before
    assert without_refused(before, plan, []) == plan.state
    [db] = [step for step in plan.steps if step.instance == "db"]
    kept = without_refused(before, plan, [db])
    assert set(kept.instance) == {"web"}
    assert kept.node == {"n2": NodeRecord("new")}


def test_the_file_is_that_of_3_0() -> None:
    text = b'{"instance":{"web":{"restart_count":2,"restart_when":1790000000.5}},"node":{"n1":{"bootid":"b"}}}'
    state = msgspec.json.decode(text, type=State)
    assert state.instance["web"] == InstanceRecord(2, 1790000000.5)
    assert msgspec.json.encode(state) == text


def test_verified_disks_of_unknown_or_busy_instances_are_left_alone() -> None:
    steps, notes = plan_activation(["web", "gone"], facts(RUNNING))
    assert steps == [Step(Work.ACTIVATE, "web")]
    assert "gone, or was moved" in notes[0][1]
    assert plan_activation(["web"], facts(RUNNING, busy="job 1 is about it"))[0] == []


# Laws

NAMES = st.sampled_from(["a", "b", "c"])
NODES = st.sampled_from(["n1", "n2"])
SEEN = st.builds(
    InstanceSeen,
    st.sampled_from([*InstanceStatus, "ERROR_down", "ERROR_down", ""]),
    st.sampled_from(["up", "up", "down", "offline"]),
    st.booleans(),
    st.lists(NODES, unique=True, max_size=2).map(tuple),
)
WORLD = st.tuples(
    st.dictionaries(NODES, st.builds(NodeSeen, st.sampled_from(["", "x", "y"]), st.booleans())),
    st.dictionaries(NAMES, SEEN),
    st.dictionaries(NAMES, st.just("job 1 is about it")),
    st.floats(0, TRIES_EXPIRE_S / 3),
)


@given(st.lists(WORLD, max_size=40))
def test_never_an_action_on_an_instance_to_be_left_alone(worlds: list) -> None:  # type: ignore[type-arg]
    state, now = State(), NOW
    for nodes, instances, busy, passed_s in worlds:
        now += passed_s
        plan = plan_group(state, Facts(nodes, instances, busy, now))
        state = plan.state
        names = [step.instance for step in plan.steps]
        assert len(names) == len(set(names)), "two jobs on one instance"
        for name in names:
            assert instances[name].admin_state == "up"
            assert instances[name].status not in ("ERROR_nodeoffline", "ERROR_nodedown", "")
            assert name not in busy


@given(st.lists(WORLD, max_size=60))
def test_never_more_tries_than_the_limit(worlds: list) -> None:  # type: ignore[type-arg]
    state, now = State(), NOW
    tries: dict[str, list[float]] = {}
    for nodes, instances, busy, passed_s in worlds:
        now += passed_s
        plan = plan_group(state, Facts(nodes, instances, busy, now))
        state = plan.state
        for name in {"a", "b", "c"}:
            seen = instances.get(name)
            if seen is None or (
                seen.status
                and (
                    seen.status
                    not in ("ERROR_down", "USER_down", "ERROR_nodedown", "ERROR_nodeoffline")
                    or (seen.admin_state != "up" and not seen.status.startswith("ERROR_node"))
                )
            ):
                tries.pop(name, None)  # seen running, or not meant to run
        for step in plan.steps:
            if step.work is Work.RESTART:
                tries.setdefault(step.instance, []).append(now)
                recent = [t for t in tries[step.instance] if t > now - TRIES_EXPIRE_S]
                assert len(recent) <= TRIES_MAX
