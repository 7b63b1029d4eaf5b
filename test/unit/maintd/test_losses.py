"""What is done about nodes that are proved dead: in order, within limits, once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ganeti.availability.records import Loss, Mastership, Proof
from ganeti.availability.restarts import Guest, Limits
from ganeti.base.ids import JobId
from ganeti.maintd.incidents import NodeFacts
from ganeti.maintd.losses import ATTEMPTS_MAX, LossJob, Scene, decide, event_of, read_event

NODES = ("a", "b", "c", "d", "e")
LOSS = Loss(uuid="boot@7", node="e", boot_id="boot", proof=Proof.WATCHDOG)
FREE = dict.fromkeys("abcd", 100)


def guest(name: str, *, nodes: str = "ab", memory: int = 10, priority: int | None = 0) -> Guest:
    return Guest(name, "e", memory, tuple(nodes), priority)


def scene(*guests: Guest, offline: bool = True, **more: object) -> Scene:
    nodes = {name: NodeFacts(name, name, is_offline=offline and name == "e") for name in NODES}
    found = Scene("a", {"e": LOSS}, {}, {}, nodes, guests, FREE)
    return replace(found, **more)


def job(number: int, instance: str | None = None, **more: bool) -> LossJob:
    return LossJob(JobId(number), LOSS.uuid, "b" if instance else "e", instance, **more)


def test_a_dead_node_is_set_offline_before_anything_starts_elsewhere() -> None:
    found = decide(scene(guest("i1"), offline=False), Limits())
    assert (found.goes_offline, found.restarts, found.over) == (["e"], (), [])
    running = scene(guest("i1"), offline=False, jobs=[job(1, is_running=True)])
    found = decide(running, Limits())
    assert (found.goes_offline, found.restarts) == ([], ())
    assert found.waits == {"e": "it is being set offline"}
    found = decide(scene(guest("i1")), Limits())
    assert [each.guest.name for each in found.restarts] == ["i1"]
    assert found.waits == {"e": "1 of its instances do not run elsewhere yet"}


def test_a_loss_is_over_when_nothing_is_left_to_do() -> None:
    assert decide(scene(), Limits()).waits == {"e": "it was set offline a moment ago"}
    assert decide(scene(settled=["e"]), Limits()).over == ["e"]
    never = scene(guest("i1", priority=None), settled=["e"])
    assert decide(never, Limits()).over == ["e"]
    assert decide(never, Limits()).left == {"i1": "it is never to be restarted by itself"}
    busy = scene(jobs=[job(3, "i1", is_running=True)], settled=["e"])
    assert decide(busy, Limits()).over == []


def test_a_node_that_is_back_and_online_is_no_loss_any_more() -> None:
    back = scene(guest("i1"), offline=False, present={"e": "boot2"})
    assert decide(back, Limits()).over == ["e"]
    assert not decide(replace(back, jobs=[job(3, "i1", is_running=True)]), Limits()).over
    # Nobody has taken it back: it stays offline, and its instances start elsewhere.
    found = decide(scene(guest("i1"), present={"e": "boot2"}), Limits())
    assert [each.guest.name for each in found.restarts] == ["i1"]
    # The boot that is dead is none.
    assert decide(scene(offline=False, present={"e": "boot"}), Limits()).goes_offline == ["e"]
    gone = scene(nodes={name: NodeFacts(name, name) for name in "abcd"})
    assert decide(gone, Limits()).over == ["e"]


def test_who_was_master_before_has_to_be_dead() -> None:
    acting = {"d": Mastership(node="d", boot_id="d1")}
    found = decide(scene(guest("i1"), offline=False, acting=acting), Limits())
    assert (found.goes_offline, found.restarts, found.over) == ([], (), [])
    assert "node d was the master" in found.left["i1"]
    own = {"a": Mastership(node="a", boot_id="a1"), "e": Mastership(node="e", boot_id="boot")}
    assert decide(scene(guest("i1"), acting=own), Limits()).restarts


def test_what_failed_rests_and_is_given_up_at_last() -> None:
    failed = [job(4, "i1", is_bad=True)]
    found = decide(scene(guest("i1"), jobs=failed, resting=[JobId(4)]), Limits())
    assert found.left == {"i1": "job 4 failed; it is tried again"}
    assert decide(scene(guest("i1"), jobs=failed), Limits()).restarts
    often = [job(number, "i1", is_bad=True) for number in range(ATTEMPTS_MAX)]
    found = decide(scene(guest("i1"), jobs=often), Limits())
    assert "type 'gnt-instance failover --ignore-consistency i1'" in found.left["i1"]
    often = [job(number, is_bad=True) for number in range(ATTEMPTS_MAX)]
    found = decide(scene(offline=False, jobs=often), Limits())
    assert "type 'gnt-node modify --offline=yes e'" in found.waits["e"]


@given(uuid=st.text(), node=st.sampled_from(NODES))
def test_a_job_tells_what_it_is_for(uuid: str, node: str) -> None:
    loss = Loss(uuid=uuid, node=node)
    assert read_event(event_of(loss, node)) == (uuid, node)


@given(event=st.text())
def test_other_reasons_are_left_alone(event: str) -> None:
    assert read_event(event) is None or event.startswith("ha:")


GUESTS = st.lists(
    st.builds(
        guest,
        st.uuids().map(str),
        nodes=st.sampled_from(["a", "ab", "abcd", "d", ""]),
        memory=st.integers(1, 120),
        priority=st.none() | st.integers(-3, 3),
    ),
    max_size=30,
    unique_by=lambda each: each.name,
)


@given(guests=GUESTS, chance=st.randoms())
def test_each_instance_starts_once_where_it_fits_and_the_loss_ends(guests, chance) -> None:  # type: ignore[no-untyped-def]
    limits = Limits()
    free = dict.fromkeys("abcd", 400)
    waiting = {each.name: each for each in guests}
    jobs: dict[JobId, LossJob] = {}
    starts: Counter[str] = Counter()
    is_offline, is_over = False, False
    for _turn in range(300):
        found = decide(
            scene(
                *waiting.values(),
                offline=is_offline,
                jobs=list(jobs.values()),
                free=free,
                settled=["e"],
            ),
            limits,
        )
        for _ in found.goes_offline:
            jobs[JobId(len(jobs))] = job(len(jobs), is_running=True)
        for restart in found.restarts:
            assert is_offline
            name = restart.guest.name
            starts[name] += 1
            number = JobId(len(jobs))
            jobs[number] = LossJob(number, LOSS.uuid, restart.node, name, is_running=True)
        running = [each for each in jobs.values() if each.is_running]
        busy = Counter(each.node for each in running if each.instance)
        assert sum(busy.values()) <= limits.starts_max
        assert max(busy.values(), default=0) <= limits.per_node_max
        if found.over:
            is_over = True
            break
        for each in running:
            if chance.random() < 0.5:
                jobs[each.job_id] = replace(each, is_running=False)
                if each.instance is None:
                    is_offline = True
                else:
                    free[each.node] -= waiting.pop(each.instance).memory
                    assert free[each.node] >= 0
    assert set(starts.values()) <= {1}
    never = {each.name for each in guests if each.priority is None}
    assert is_over == (waiting.keys() <= never)
    left = decide(scene(*waiting.values(), free=free), limits).left
    assert waiting.keys() <= left.keys(), "what does not fit is named"
