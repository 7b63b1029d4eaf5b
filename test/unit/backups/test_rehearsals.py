"""Rehearsals by schedule: when they are due, what is warned of, and what a dead one left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.backups.policy import DAY_S, HOUR_S, Chosen, Policy
from ganeti.backups.rehearsals import RehearsalStanding, judge, left_over
from ganeti.objects.model import Rehearsal
from ganeti.objects.tags import REHEARSAL_TAG, inherited, rehearsal_job_tag

NOW = 1_000.0 * DAY_S
MONTHLY = Chosen(Policy(DAY_S, rehearse_s=30 * DAY_S), "cluster")
COPY = "rehearsal.web"
MARKED = [REHEARSAL_TAG, rehearsal_job_tag(7), "ganeti:backup:none"]


def result(age_s: float, failure: str = "") -> Rehearsal:
    exported = NOW - age_s - HOUR_S
    return Rehearsal(ended=NOW - age_s, job=3, node="n2", exported=exported, failure=failure)


def standing(
    last: Rehearsal | None, chosen: Chosen = MONTHLY, made: float = NOW
) -> RehearsalStanding:
    return judge(chosen, last, made=made, now=NOW, local=float)


@pytest.mark.parametrize("chosen", [Chosen(), Chosen(Policy(DAY_S), "cluster")])
def test_without_a_policy_nothing_is_due_and_nothing_warned_of(chosen: Chosen) -> None:
    assert standing(result(0, "no memory"), chosen, made=0.0) == RehearsalStanding()


def test_the_next_one_is_due_when_the_last_one_is_old_enough() -> None:
    assert standing(None).due == 0.0
    assert standing(result(DAY_S)).due == NOW + 29 * DAY_S
    assert standing(result(DAY_S / 2, "no memory")).due == NOW + DAY_S / 2, (
        "a failure is tried again"
    )


def test_it_begins_in_the_hours_of_the_policy() -> None:
    nightly = Chosen(Policy(DAY_S, hours=(22, 6), rehearse_s=30 * DAY_S), "cluster")
    assert standing(None, nightly).due == NOW - 2 * HOUR_S, "it is midnight"
    assert standing(result(29 * DAY_S), nightly).due == NOW + 22 * HOUR_S
    daily = Chosen(Policy(DAY_S, hours=(8, 9), rehearse_s=DAY_S), "cluster")
    assert standing(None, daily).due == NOW + 8 * HOUR_S


def test_warnings() -> None:
    assert standing(result(60 * DAY_S)).problem == ""
    assert standing(result(61 * DAY_S)).problem == (
        "its last rehearsal is 61 days old, which is too old by the policy of its cluster (60d)"
    )
    assert standing(result(DAY_S, "it stopped within 3 s")).problem == (
        "the rehearsal of its export of 1972-09-25 23:00:00 UTC on n2 failed (job 3): it stopped"
        " within 3 s"
    )
    assert standing(None, made=NOW - 60 * DAY_S).problem == ""
    never = standing(None, made=NOW - 61 * DAY_S).problem
    assert never == "no export of it was ever rehearsed, and the policy of its cluster wants that"


@pytest.mark.parametrize(
    ("name", "tags", "unfinished", "busy"),
    [
        (COPY, MARKED, {7}, {}),
        (COPY, MARKED, {8}, {COPY: "job 8 is about it"}),
        ("web", MARKED, set(), {}),
        (COPY, [REHEARSAL_TAG], set(), {}),
        (COPY, [rehearsal_job_tag(7)], set(), {}),
        (COPY, [*MARKED, rehearsal_job_tag(8)], set(), {}),
        (COPY, [REHEARSAL_TAG, f"{REHEARSAL_TAG}:job-x"], set(), {}),
        (COPY, [], set(), {}),
    ],
)
def test_what_is_not_the_rest_of_a_rehearsal_stays(
    name: str, tags: list[str], unfinished: set[int], busy: dict[str, str]
) -> None:
    assert left_over([(name, "u1", tags)], unfinished, busy) == []


def test_what_a_rehearsal_left_goes() -> None:
    found = [(COPY, "u1", MARKED), ("rehearsal.db", "u2", [REHEARSAL_TAG, rehearsal_job_tag(9)])]
    assert left_over(found, {9}, {"web": "job 9 is about it"}) == [(COPY, "u1")]


TAGS = st.sampled_from(["web", "ganeti:backup:every:1d", *MARKED, "ganeti:rehearsals"])


@given(st.lists(TAGS), st.booleans())
def test_an_import_inherits_all_tags_but_those_of_backups_and_rehearsals(
    tags: list[str], is_other: bool
) -> None:
    kept, left = inherited(tags, is_other=is_other)
    assert sorted(kept + left) == sorted(tags)
    assert left_over([(COPY, "u1", kept)], (), {}) == []
    assert ("web" in kept) is ("web" in tags)
    assert ("ganeti:rehearsals" in kept) is ("ganeti:rehearsals" in tags)
    policies = [tag for tag in tags if tag.startswith("ganeti:backup:")]
    assert [tag for tag in kept if tag in policies] == ([] if is_other else policies)
