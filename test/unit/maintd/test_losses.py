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
from ganeti.maintd.losses import (
    ATTEMPTS_MAX,
    LOOK_S_MAX,
    LOOK_S_SOON,
    Decision,
    LossJob,
    Pace,
    Scene,
    decide,
    event_of,
    next_rest_s,
    nodes_to_ask,
    read_event,
)

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


def test_memory_is_asked_where_an_instance_may_start_now() -> None:
    assert nodes_to_ask(scene()) == set()
    assert nodes_to_ask(scene(guest("i1", nodes=""))) == set()
    assert nodes_to_ask(scene(guest("i1"), guest("i2", nodes="be"))) == {"a", "b"}
    assert nodes_to_ask(scene(guest("i1"), offline=False)) == set()
    assert nodes_to_ask(scene(guest("i1", priority=None))) == set()
    assert nodes_to_ask(scene(replace(guest("i1"), is_in_work=True))) == set()
    assert nodes_to_ask(scene(guest("i1"), jobs=[job(1, "i1", is_running=True)])) == set()
    failed = scene(guest("i1"), jobs=[job(1, "i1", is_bad=True)], resting=[JobId(1)])
    assert nodes_to_ask(failed) == set()
    assert nodes_to_ask(replace(failed, resting=[])) == {"a", "b"}
    acting = {"d": Mastership(node="d", boot_id="d1")}
    assert nodes_to_ask(scene(guest("i1"), acting=acting)) == set()
    drained = {**scene().nodes, "a": NodeFacts("a", "a", is_drained=True)}
    assert nodes_to_ask(scene(guest("i1"), nodes=drained)) == {"b"}


@given(guests=GUESTS, is_offline=st.booleans(), data=st.data())
def test_nothing_is_decided_by_the_memory_of_other_nodes(
    guests: list[Guest], is_offline: bool, data: st.DataObject
) -> None:
    flags = st.fixed_dictionaries({"is_running": st.booleans(), "is_bad": st.booleans()})
    tried = data.draw(st.lists(st.sampled_from(guests), max_size=5)) if guests else []
    jobs = [
        job(number, each.name, **data.draw(flags)) for number, each in enumerate(tried, start=1)
    ]
    resting = [each.job_id for each in jobs if data.draw(st.booleans())]
    whole = scene(*guests, offline=is_offline, jobs=jobs, resting=resting)
    asked = nodes_to_ask(whole)
    part = replace(whole, free={name: mib for name, mib in whole.free.items() if name in asked})
    assert decide(part, Limits()) == decide(whole, Limits())


def test_a_look_that_finds_the_same_is_repeated_ever_later() -> None:
    stuck = scene(guest("i1", nodes=""), settled=["e"])
    found = decide(stuck, Limits())
    rests = [next_rest_s(0.0, stuck, Decision(), found, is_changing=False)]
    for _ in range(7):
        rests.append(next_rest_s(rests[-1], stuck, found, found, is_changing=False))
    assert rests == [1, 2, 4, 8, 16, 30, 30, LOOK_S_MAX]
    assert next_rest_s(30.0, stuck, found, found, is_changing=True) == LOOK_S_SOON
    assert next_rest_s(30.0, stuck, decide(scene(), Limits()), found, is_changing=False) == 1
    # Free memory is another each time.
    full = scene(guest("i1", memory=200))
    less = replace(full, free=dict.fromkeys("abcd", 99))
    before, after = decide(full, Limits()), decide(less, Limits())
    assert before != after
    assert next_rest_s(30.0, less, before, after, is_changing=False) == LOOK_S_MAX
    in_work = scene(replace(guest("i1"), is_in_work=True))
    found = decide(in_work, Limits())
    assert next_rest_s(30.0, in_work, found, found, is_changing=False) == LOOK_S_SOON


def test_while_something_is_done_there_is_no_rest() -> None:
    starts = scene(guest("i1"))
    found = decide(starts, Limits())
    assert next_rest_s(30.0, starts, found, found, is_changing=False) == 0
    refused = replace(found, is_refused=True)
    assert next_rest_s(4.0, starts, refused, refused, is_changing=False) == LOOK_S_SOON
    running = scene(guest("i1"), jobs=[job(1, "i1", is_running=True)])
    found = decide(running, Limits())
    assert next_rest_s(30.0, running, found, found, is_changing=False) == 0


def test_news_end_a_rest() -> None:
    pace = Pace("losses", "others", looked_s=100.0, rest_s=30.0)
    assert not pace.is_due("losses", "others", 129.0)
    assert pace.is_due("losses", "others", 130.0)
    assert pace.is_due("another", "others", 100.1)
    assert not pace.is_due("losses", "changed", 104.0)
    assert pace.is_due("losses", "changed", 105.0)
    assert replace(pace, until_s=103.0).is_due("losses", "others", 103.0)
    assert Pace().is_due("losses", "others", 0.0)


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
