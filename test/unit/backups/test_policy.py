"""Policies of backups: tags and what they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.backups.policy import (
    DAY_S,
    EVERY_S_MIN,
    Chosen,
    Policy,
    age_text,
    choose,
    per_node_of,
    problems_of,
    read_policy,
)
from ganeti.base.errors import OpPrereqError
from ganeti.base.text import parse_duration

HOURS = st.tuples(st.integers(0, 23), st.integers(0, 23)).filter(lambda each: each[0] != each[1])


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    every_s = draw(st.integers(EVERY_S_MIN, 10**7))
    return Policy(
        every_s=every_s,
        nodes=tuple(draw(st.lists(st.sampled_from(["n1", "n2.example.com", "n-3"]), max_size=3))),
        hours=draw(st.none() | HOURS),
        keep=draw(st.integers(0, 9999)),
        late_s=draw(st.just(0) | st.integers(every_s, 10**8)),
        rehearse_s=draw(st.just(0) | st.integers(max(every_s, DAY_S), 10**8)),
        stops=draw(st.booleans()),
    )


@given(policies())
def test_a_tag_says_all_of_a_policy(policy: Policy) -> None:
    assert read_policy(policy.tag) == policy
    assert parse_duration(age_text(policy.every_s)) == policy.every_s
    assert policy.too_old_s >= policy.every_s


@given(st.text(alphabet="every:to1dat2-6keplnsw²+_.", max_size=40))
def test_any_tag_is_a_policy_or_refused(text: str) -> None:
    tag = f"ganeti:backup:{text}"
    try:
        policy = read_policy(tag)
    except OpPrereqError:
        policy = None
        assert problems_of([tag]) or tag.startswith("ganeti:backup:per-node:")
    if policy is not None:
        assert read_policy(policy.tag) == policy


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("to:node3", "does not say every: every:1d"),
        ("every:1x", "every: '1x' is no time such as"),
        ("every:5m", "every 15 minutes at most"),
        ("every:1d:every:2d", "'every' is given twice"),
        ("every:1d:often", "'often' is given twice or no word"),
        ("every:1d:at:6-6", "'6-6' are no hours"),
        ("every:1d:at:22-25", "'22-25' are no hours"),
        ("every:1d:keep:0", "'0' is no number of points"),
        ("every:1d:late:1h", "before the next one is due"),
        ("every:1d:rehearse:12h", "rehearsals are made once a day at most"),
        ("every:1w:rehearse:2d", "there would be no new export for a rehearsal"),
        ("every:1d:rehearse", "rehearse: '' is no time"),
        ("every:1d:to:n1++n2", "has an empty name of a node"),
    ],
)
def test_a_wrong_tag_is_named_with_its_reason(words: str, said: str) -> None:
    with pytest.raises(OpPrereqError, match=said):
        read_policy(f"ganeti:backup:{words}")


def test_the_nearest_object_decides() -> None:
    daily, hourly = "ganeti:backup:every:1d", "ganeti:backup:every:1h"
    day, hour = Policy(86_400), Policy(3_600)
    tags = {"instance": ["web"], "nodegroup": [hourly], "cluster": [daily]}
    assert choose(tags) == Chosen(hour, "nodegroup")
    assert choose({**tags, "instance": [daily]}) == Chosen(day, "instance")
    assert choose({**tags, "instance": ["ganeti:backup:none"]}) == Chosen(None, "instance")
    assert choose({"instance": [], "cluster": ["other", "ganeti:backup:per-node:2"]}) == Chosen()
    both = ["ganeti:backup:none", daily]
    assert choose({**tags, "instance": both}) == Chosen(None, "instance")
    assert choose({"cluster": [daily, hourly]}) == Chosen(hour, "cluster")
    # One that is not understood is passed over.
    assert choose({**tags, "instance": ["ganeti:backup:dayly"]}) == Chosen(hour, "nodegroup")


def test_problems_are_told() -> None:
    [wrong] = problems_of(["ganeti:backup:dayly", "other"])
    assert "'dayly' is given twice or no word" in wrong
    [several] = problems_of(["ganeti:backup:every:2d", "ganeti:backup:every:1d"])
    assert several.endswith("policies of backups: ganeti:backup:every:1d, ganeti:backup:every:2d")
    assert problems_of(["ganeti:backup:per-node:2", "ganeti:backup:none"]) == []


def test_the_limit_of_a_node() -> None:
    assert per_node_of([]) == 1
    assert per_node_of(["ganeti:backup:per-node:3", "ganeti:backup:per-node:2", "x"]) == 2
    assert per_node_of(["ganeti:backup:per-node:0"]) == 0
    assert per_node_of(["ganeti:backup:per-node:many"]) == 1
