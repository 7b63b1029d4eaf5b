"""Who may be master: examples, and laws over any groups of nodes that see each other or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ganeti.base.errors import OpPrereqError
from ganeti.copies.quorum import copies_needed
from ganeti.jobs.votes import (
    SERIAL_LEAP,
    Answer,
    Poll,
    Standing,
    describe_votes,
    highest_job_id,
    judge,
    newer_jobs,
    plan_of_followers,
    plan_takeover,
    votes_needed,
)
from ganeti.protocol.node_rpc_values import NodeFacts

UUID = "cluster"


def facts(master: str = "n1", serial: int = 5, **more: object) -> NodeFacts:
    values: dict[str, object] = {"cluster_uuid": UUID, "last_job_id": 7, **more}
    return NodeFacts(master_name=master, config_serial=serial, **values)  # type: ignore[arg-type]


def poll(own: str, count: int, known: Mapping[str, NodeFacts | str]) -> Poll:
    """Make a poll; a text stands for the answer of a node that knows nothing else."""
    nodes = [f"n{number}" for number in range(1, count + 1)]
    answers = {
        name: Answer(value) if isinstance(value, str) else Answer(value.master_name, value)
        for name, value in known.items()
    }
    return Poll(own, nodes, answers, dict.fromkeys(set(nodes) - set(known), "no connection"))


@pytest.mark.shows("backend/masterd/half-plus-one", "2.0/startup/quorum")
@pytest.mark.parametrize(
    ("count", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)]
)
def test_half_plus_one_must_agree(count: int, needed: int) -> None:
    assert votes_needed(count) == needed


# Starting.


@pytest.mark.shows("2.0/startup/no-election")
def test_a_single_node_is_its_own_majority() -> None:
    assert judge(poll("n1", 1, {"n1": facts()})).standing is Standing.CONFIRMED


def test_nodes_of_another_release_vote_too() -> None:
    assert judge(poll("n1", 3, {"n1": facts(), "n3": "n1"})).standing is Standing.CONFIRMED


@pytest.mark.shows("2.0/startup/quorum")
def test_too_few_answers_decide_nothing() -> None:
    verdict = judge(poll("n1", 3, {"n1": facts()}))
    assert verdict.standing is Standing.UNDECIDED
    assert verdict.reason == (
        "1 of 3 nodes say that this node (n1) is the master, 2 are needed: n1 names n1; n2 does not"
        " answer (no connection); n3 does not answer (no connection)"
    )


def test_of_many_silent_nodes_some_are_named_and_the_rest_is_counted() -> None:
    silent = {f"fnode{number}": "connection refused" for number in range(200)}
    text = describe_votes({"n1": "n1", "n2": "n1", "n3": "n1"}, silent)
    assert text == (
        "n1, n2, n3 name n1; 200 of 203 nodes do not answer: fnode0 (connection refused), fnode1"
        " (connection refused), fnode2 (connection refused) and 197 more"
    )


@pytest.mark.shows("2.0/startup/designated")
def test_the_outvoted_hear_who_said_what() -> None:
    verdict = judge(poll("n1", 3, {"n1": facts(), "n2": facts("n2"), "n3": facts("n2")}))
    assert verdict.standing is Standing.REFUSED
    assert verdict.master_name == "n2"
    assert verdict.is_deposed
    assert "n1 names n1; n2, n3 name n2" in verdict.reason


def test_a_former_master_that_is_back_hears_who_follows_it() -> None:
    """And not that a fail-over is needed, though all others have a newer configuration."""
    verdict = judge(poll("n1", 3, {"n1": facts(), "n2": facts("n2", 6), "n3": facts("n2", 6)}))
    assert (verdict.standing, verdict.master_name) == (Standing.REFUSED, "n2")
    assert verdict.is_deposed
    assert "n2, n3 name n2" in verdict.reason
    assert "master-failover" not in verdict.reason


def test_a_node_that_knows_better_need_not_ask() -> None:
    verdict = judge(poll("n1", 3, {"n1": facts("n2")}))
    assert (verdict.standing, verdict.master_name) == (Standing.REFUSED, "n2")
    verdict = judge(poll("n1", 3, {"n1": facts("")}))
    assert (verdict.standing, verdict.master_name) == (Standing.REFUSED, None)


def test_a_majority_outweighs_a_newer_configuration_of_somebody_elses() -> None:
    back = {"n1": facts(), "n2": facts(), "n3": facts("n3", 60_000)}
    assert judge(poll("n1", 3, back)).standing is Standing.CONFIRMED
    apart = judge(poll("n1", 3, {"n1": facts(), "n3": facts("n3", 60_000)}))
    assert (apart.standing, apart.is_deposed) == (Standing.REFUSED, True), "n2 may follow it"


def test_the_first_answer_does_not_depose_while_others_come() -> None:
    """As when the stray node is the fastest to answer."""
    first = poll("n1", 3, {"n1": facts(), "n3": facts("n3", 60_000)})
    verdict = judge(replace(first, silent={}))
    assert (verdict.standing, verdict.is_deposed) == (Standing.UNDECIDED, False)
    follower = poll("n1", 3, {"n1": facts(), "n3": facts(serial=6)})
    assert judge(replace(follower, silent={})).is_deposed, "no vote helps against that"


@pytest.mark.shows("2.0/startup/newest-config")
def test_a_newer_configuration_outweighs_all_votes() -> None:
    verdict = judge(poll("n1", 3, {"n1": facts(), "n2": facts(), "n3": facts(serial=6)}))
    assert verdict.standing is Standing.REFUSED
    assert verdict.is_deposed
    assert "node n3 has a newer configuration (serial number 6)" in verdict.reason
    other = facts(serial=6, cluster_uuid="another")
    found = judge(poll("n1", 3, {"n1": facts(), "n2": facts(), "n3": other}))
    assert found.standing is Standing.CONFIRMED, "left over from another cluster"


def test_a_hopeless_vote_is_not_waited_for() -> None:
    known = {"n1": facts(), "n2": facts("n3"), "n3": facts("n4"), "n4": facts("n2")}
    verdict = judge(poll("n1", 5, known))
    assert verdict.standing is Standing.REFUSED
    assert not verdict.is_deposed, "nobody else is master, so what runs may go on"


def test_who_has_announced_itself_counts_as_master() -> None:
    claimed = facts(claim_serial=99, claim_name="n2")
    verdict = judge(poll("n1", 3, {"n1": facts(), "n2": claimed, "n3": claimed}))
    assert (verdict.standing, verdict.master_name) == (Standing.REFUSED, "n2")
    old = facts(serial=100, claim_serial=99, claim_name="n2")
    known = {"n1": facts(serial=100), "n2": old, "n3": old}
    assert judge(poll("n1", 3, known)).standing is Standing.CONFIRMED, "that is long over"


@pytest.mark.shows("2.0/startup/newest-jobs")
def test_nodes_with_more_jobs_are_known() -> None:
    found = poll("n1", 3, {"n1": facts(), "n2": facts(last_job_id=9), "n3": facts(last_job_id=3)})
    assert judge(found).standing is Standing.CONFIRMED
    assert newer_jobs(found) == ["n2"]
    assert highest_job_id(found) == 9


# Taking over.

THREE = ("n1", "n2", "n3")


def test_the_newest_configuration_is_taken() -> None:
    known = {"n2": facts(candidates=THREE), "n3": facts(serial=8, candidates=THREE)}
    plan = plan_takeover(poll("n2", 3, known))
    assert plan.config_from == "n3"
    assert plan.serial_no == 8 + SERIAL_LEAP
    assert plan.hand_over == ()
    assert plan.queue_from == ("n2", "n3")
    assert not plan.is_complete
    assert plan.warnings == (
        (
            "n1, which was the master, does not answer (no connection): should it still run, keep it"
            " from doing so"
        ),
    )


def test_a_node_that_takes_itself_for_the_master_is_not_believed() -> None:
    five = {"n2": facts(), "n3": facts(serial=6), "n4": facts(), "n5": facts("n5", 60_000)}
    plan = plan_takeover(
        poll("n2", 5, {name: with_candidates(each) for name, each in five.items()})
    )
    assert plan.config_from == "n3"
    assert plan.serial_no == 60_000 + SERIAL_LEAP
    assert "the configuration on n5 (serial number 60000) is newer" in " ".join(plan.warnings)


def test_without_a_majority_for_another_the_newest_counts_whoever_wrote_it() -> None:
    """As when a new master told two of five nodes before it lost its power, and is back."""
    five = {"n2": facts(), "n3": facts(), "n4": facts("n5", 60_000), "n5": facts("n5", 60_000)}
    plan = plan_takeover(
        poll("n2", 5, {name: with_candidates(each) for name, each in five.items()})
    )
    assert plan.config_from in ("n4", "n5")


def test_a_node_that_is_not_believed_does_not_count_as_a_candidate_that_answers() -> None:
    """It may have the only copy that is left of what was acknowledged before it went astray."""
    names = {**dict.fromkeys(["n2", "n3", "n6", "n7"], facts()), "n5": facts("n5", 60_000)}
    seven = poll("n2", 7, {name: with_candidates(each) for name, each in names.items()})
    with pytest.raises(OpPrereqError, match=r"3 must answer, and only n2, n3 did; missing: .*n5"):
        plan_takeover(seven)


def with_candidates(each: NodeFacts) -> NodeFacts:
    return replace(each, candidates=("n1", "n2", "n3", "n4", "n5"))


def test_the_own_copy_is_as_good_as_an_equal_one() -> None:
    known = {"n1": facts(candidates=THREE), "n2": facts(candidates=THREE)}
    assert plan_takeover(poll("n2", 3, known)).config_from == "n2"


def test_a_living_master_hands_over_first() -> None:
    known = {
        "n1": facts(candidates=THREE, daemons=("ganeti-luxid",)),
        "n2": facts(candidates=THREE),
        "n3": facts(candidates=THREE),
    }
    plan = plan_takeover(poll("n2", 3, known))
    assert plan.hand_over == ("n1",)
    assert plan.is_complete


def test_whoever_runs_the_daemons_hands_over_whatever_others_think() -> None:
    known = {
        "n1": facts("n1", candidates=THREE),
        "n2": facts("n1", candidates=THREE),
        "n3": facts("n1", candidates=THREE, daemons=("ganeti-wconfd",)),
    }
    assert plan_takeover(poll("n2", 3, known)).hand_over == ("n1", "n3")


def test_a_copy_from_a_backup_is_no_answer_of_a_candidate() -> None:
    """The lost master and one that does not answer may have been the only two with a record."""
    known = {"n1": facts("n1", 3, candidates=THREE), "n3": facts("n1", 5, candidates=THREE)}
    two_answer = poll("n1", 3, known)
    assert plan_takeover(two_answer).config_from == "n3"
    with pytest.raises(OpPrereqError) as raised:
        plan_takeover(two_answer, own_is_old=True)
    text = raised.value.message
    assert "3 must answer (one more than otherwise, as the configuration here is from a" in text
    assert "n2" in text
    assert "--no-voting --yes-do-it" in text
    assert plan_takeover(two_answer, no_voting=True, own_is_old=True).config_from == "n1"
    everybody = {**known, "n2": facts("n1", 7, candidates=THREE)}
    plan = plan_takeover(poll("n1", 3, everybody), own_is_old=True)
    assert plan.config_from == "n2"
    followers = {
        name: facts("n1", serial, candidates=THREE, claim_serial=plan.serial_no, claim_name="n1")
        for name, serial in (("n1", 3), ("n3", 5))
    }
    with pytest.raises(OpPrereqError, match="3 must answer"):
        plan_of_followers(poll("n1", 3, followers), plan, own_is_old=True)


def test_serial_numbers_that_were_announced_are_passed_as_well() -> None:
    known = {
        "n2": facts(candidates=THREE),
        "n3": facts(candidates=THREE, claim_serial=700, claim_name="n3"),
    }
    plan = plan_takeover(poll("n2", 3, known))
    assert plan.serial_no == 700 + SERIAL_LEAP
    assert plan.hand_over == ("n3",)


# What the followers have, once they were told.

BEFORE = plan_takeover(
    poll("n2", 3, {"n2": facts(candidates=THREE), "n3": facts(candidates=THREE)})
)


def follower(serial: int = 5, **more: object) -> NodeFacts:
    claim = {"claim_serial": BEFORE.serial_no, "claim_name": "n2"}
    return facts("n2", serial, **{"candidates": THREE, **claim, **more})


OWN = facts(candidates=THREE, claim_serial=BEFORE.serial_no, claim_name="n2")


@pytest.mark.parametrize("old", [{}, {"n1": facts(serial=9, candidates=THREE)}])
def test_what_a_follower_took_of_the_old_master_meanwhile_is_taken(
    old: Mapping[str, NodeFacts],
) -> None:
    plan = plan_of_followers(poll("n2", 3, {**old, "n2": OWN, "n3": follower(7)}), BEFORE)
    assert plan == replace(BEFORE, config_from="n3"), "what the old one has alone counts nowhere"
    assert plan_of_followers(poll("n2", 3, {"n2": OWN, "n3": follower()}), BEFORE) == BEFORE


LEFT = [
    ({"n2": OWN}, "n3 (no connection)"),
    ({"n2": OWN, "n3": facts(candidates=THREE)}, "n3 (it follows n1)"),
    (
        {"n2": OWN, "n3": follower(claim_serial=BEFORE.serial_no + 1, claim_name="n3")},
        "n3 (it follows n3)",
    ),
    ({"n2": OWN, "n3": "n2"}, "n3 (it does not say what it has)"),
]


@pytest.mark.parametrize(("known", "text"), LEFT)
def test_too_few_followers_decide_nothing(known: Mapping[str, NodeFacts | str], text: str) -> None:
    found = poll("n2", 3, known)
    with pytest.raises(OpPrereqError) as refused:
        plan_of_followers(found, BEFORE)
    assert text in refused.value.message
    assert plan_of_followers(found, BEFORE, no_voting=True).config_from == "n2"


def test_nodes_that_follow_but_hold_no_copies_do_not_replace_a_candidate() -> None:
    known = {"n2": OWN, "n4": follower(0), "n5": follower(0), "n3": facts(candidates=THREE)}
    with pytest.raises(OpPrereqError, match=r"2 must answer, and only n2 did; .*n3 \(it follows"):
        plan_of_followers(poll("n2", 5, known), BEFORE)


@pytest.mark.parametrize("stray", ["n2", "n4"])
def test_a_configuration_written_apart_is_not_taken_afterwards_either(stray: str) -> None:
    known = {name: facts(candidates=THREE) for name in ("n1", "n2", "n3", "n5", "n4")}
    known[stray] = facts(stray, 50_000, candidates=THREE)
    before = plan_takeover(poll("n2", 5, known))
    assert before.strays == {stray}
    told = {name: replace(each, master_name="n2") for name, each in known.items()}
    plan = plan_of_followers(poll("n2", 5, told), before)
    assert told[plan.config_from].config_serial == 5


REFUSALS = [
    (
        "without enough votes",
        poll("n2", 3, {"n2": facts(candidates=THREE)}),
        (
            "1 of 3 nodes answer, 2 are needed: n2 answered; missing: n1 (no connection),"
            " n3 (no connection). Start the node daemons there; or, if you are sure"
        ),
    ),
    (
        "where another node has other certificates",
        replace(
            poll("n2", 3, {"n2": facts(candidates=THREE)}),
            silent={"n3": "the certificate of 'n2' is not that of a master candidate"},
        ),
        (
            "another master candidate may be trusted by more nodes. Start the node daemons there;"
            " or, if you are sure that no master runs there and can do without the changes that"
            " only they know, use --no-voting --yes-do-it, and take them in again by 'gnt-node add"
            " --readd NODE'"
        ),
    ),
    (
        "the second of two nodes",
        poll("n2", 2, {"n2": facts(candidates=("n1", "n2"))}),
        "missing: n1 (no connection)",
    ),
    (
        "without enough candidates",
        poll("n2", 5, {"n2": facts(candidates=THREE), "n4": facts(), "n5": facts()}),
        "2 must answer, and only n2 did; missing: n1 (no connection), n3 (no connection)",
    ),
    (
        "where others know other candidates",
        poll(
            "n2",
            5,
            {
                "n2": facts(candidates=THREE),
                "n3": facts(candidates=THREE),
                "n5": facts(candidates=("n1", "n2", "n4")),
            },
        ),
        "n1, n2, n4 2 must answer, and only n2 did",
    ),
    (
        "a candidate that runs Ganeti 3.0",
        poll("n2", 3, {"n2": facts(candidates=THREE), "n3": "n1"}),
        "n3 (it does not say what it has)",
    ),
    (
        "on a node that is no candidate",
        poll(
            "n3",
            3,
            {"n3": facts(candidates=("n1", "n2")), "n2": facts(candidates=("n1", "n2"), serial=9)},
        ),
        (
            "this node (n3) is not a master candidate, as of the newest configuration (serial number 9,"
            " on node n2); run it on n2"
        ),
    ),
    (
        "on a node without a configuration",
        poll("n3", 3, {"n3": facts(serial=0), "n2": facts(candidates=("n1", "n2"))}),
        "has no copy of the configuration, so it cannot become master; run it on n2",
    ),
    (
        "on the master",
        poll("n1", 3, {"n1": facts(daemons=("ganeti-luxid",)), "n2": facts(), "n3": facts()}),
        "this node (n1) is the master already: ganeti-luxid run here",
    ),
    (
        "from a master that runs Ganeti 3.0",
        poll("n2", 3, {"n1": "n1", "n2": facts(candidates=("n2",)), "n3": facts()}),
        "node n1 may be master and runs another release",
    ),
]


@pytest.mark.shows("backend/roles/from-candidates", "2.0/startup/refused")
@pytest.mark.parametrize(("found", "text"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS])
def test_it_refuses(found: Poll, text: str) -> None:
    with pytest.raises(OpPrereqError) as refused:
        plan_takeover(found)
    assert text in refused.value.message


@pytest.mark.parametrize("found", [REFUSALS[0][1], REFUSALS[1][1], REFUSALS[2][1]])
def test_every_refusal_for_want_of_answers_names_the_override_which_helps(found: Poll) -> None:
    with pytest.raises(OpPrereqError, match="--no-voting --yes-do-it"):
        plan_takeover(found)
    assert plan_takeover(found, no_voting=True).config_from == found.own_name


@pytest.mark.shows("2.0/startup/override-copies")
def test_the_override_uses_the_own_configuration_and_says_what_it_overwrites() -> None:
    known = {"n2": facts(candidates=THREE), "n3": facts(serial=8, candidates=THREE)}
    plan = plan_takeover(poll("n2", 3, known), no_voting=True)
    assert plan.config_from == "n2"
    assert plan.serial_no > 8
    assert (
        "the configuration on n3 (serial number 8) is newer than the one used (5)"
        in (plan.warnings[-1])
    )


# Laws.


def group(names: Iterable[str], views: Mapping[str, NodeFacts], own: str, count: int) -> Poll:
    return poll(own, count, {name: views[name] for name in names})


@st.composite
def divided_clusters(draw: st.DrawFn) -> tuple[int, list[str], list[str], dict[str, NodeFacts]]:
    """Return a cluster cut in two, each node with a view of its own."""
    count = draw(st.integers(2, 7))
    nodes = [f"n{number}" for number in range(1, count + 1)]
    left = draw(st.lists(st.sampled_from(nodes), unique=True, min_size=1, max_size=count - 1))
    candidates = draw(st.lists(st.sampled_from(nodes), unique=True, min_size=1))
    masters = st.sampled_from(nodes)
    views = {
        name: facts(
            draw(masters),
            draw(st.integers(1, 9)),
            candidates=tuple(candidates),
            claim_serial=draw(st.sampled_from([0, 20])),
            claim_name=draw(masters),
        )
        for name in nodes
    }
    return count, left, [name for name in nodes if name not in left], views


def can_start(names: list[str], views: Mapping[str, NodeFacts], count: int) -> list[str]:
    return [
        own
        for own in names
        if judge(group(names, views, own, count)).standing is Standing.CONFIRMED
    ]


def can_take_over(names: list[str], views: Mapping[str, NodeFacts], count: int) -> list[str]:
    found = []
    for own in names:
        try:
            plan_takeover(group(names, views, own, count))
        except OpPrereqError:
            continue
        found.append(own)
    return found


@pytest.mark.shows("backend/roles/one-master")
@given(divided_clusters())
def test_of_two_groups_apart_at_most_one_has_a_master(
    cluster: tuple[int, list[str], list[str], dict[str, NodeFacts]],
) -> None:
    count, left, right, views = cluster
    assert not (can_start(left, views, count) and can_start(right, views, count))
    assert not (can_take_over(left, views, count) and can_take_over(right, views, count))
    assert not (can_start(left, views, count) and can_take_over(right, views, count))
    assert len(can_start(left + right, views, count)) <= 1


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, dict[str, NodeFacts], int, list[str]]:
    """Return a cluster whose master wrote configurations, and the newest that was acknowledged."""
    count = draw(st.integers(1, 7))
    nodes = [f"n{number}" for number in range(1, count + 1)]
    candidates = nodes[: draw(st.integers(1, count))]
    has = dict.fromkeys(nodes, 0)
    acknowledged = 0
    for serial in range(1, draw(st.integers(1, 5)) + 1):
        reached = draw(st.lists(st.sampled_from(candidates), unique=True))
        reached = ["n1", *(name for name in reached if name != "n1")]
        for name in reached:
            has[name] = serial
        if len(reached) >= copies_needed(len(candidates)):
            acknowledged = serial
    views = {
        name: facts("n1", has[name], candidates=tuple(candidates) if has[name] else ())
        for name in nodes
    }
    answering = draw(st.lists(st.sampled_from(nodes), unique=True, min_size=1))
    return count, views, acknowledged, answering


@given(histories())
def test_a_new_master_has_everything_that_was_acknowledged(
    history: tuple[int, dict[str, NodeFacts], int, list[str]],
) -> None:
    count, views, acknowledged, answering = history
    for own in answering:
        found = group(answering, views, own, count)
        try:
            plan = plan_takeover(found)
        except OpPrereqError:
            continue
        assert views[plan.config_from].config_serial >= acknowledged
        assert plan.serial_no > max(view.config_serial for view in views.values())


@given(histories())
def test_nobody_starts_with_less_than_another_who_answers(
    history: tuple[int, dict[str, NodeFacts], int, list[str]],
) -> None:
    count, views, _, answering = history
    for own in answering:
        if judge(group(answering, views, own, count)).standing is Standing.CONFIRMED:
            assert views[own].config_serial == max(views[name].config_serial for name in answering)
