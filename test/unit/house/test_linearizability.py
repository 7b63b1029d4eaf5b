"""The checker of histories: it takes every good one and no bad one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from fakes.linearizability import (
    NO_TAGS,
    UNKNOWN,
    Call,
    Model,
    NotLinearizableError,
    State,
    check,
    check_tags,
    locks,
    tags,
)
from hypothesis import given, settings
from hypothesis import strategies as st

NONE: frozenset[object] = frozenset()


def add(tag: str, begun: float, ended: float = math.inf) -> Call:
    return Call(("add", tag), begun, ended, None if ended < math.inf else UNKNOWN)


def remove(tag: str, begun: float, ended: float, *, refused: bool = False) -> Call:
    return Call(("remove", tag), begun, ended, False if refused else None)


def died(call: Call) -> Call:
    """Return a call that ended, but nobody knows whether it was carried out."""
    return replace(call, answer=UNKNOWN)


def read(begun: float, ended: float, found: str) -> Call:
    return Call(("read",), begun, ended, frozenset(found))


def take_over(begun: float, ended: float) -> Call:
    return Call(("take over",), begun, ended, True)


def take(owner: str, begun: float, ended: float, granted: object, *wanted: str) -> Call:
    modes = tuple((lock.lower(), "exclusive" if lock.isupper() else "shared") for lock in wanted)
    return Call(("try", owner, modes), begun, ended, granted)


def free(owner: str, begun: float, ended: float = math.inf) -> Call:
    return Call(("free", owner), begun, ended, None if ended < math.inf else UNKNOWN)


GOOD_TAGS = {
    "one after the other": [add("a", 0, 1), read(2, 3, "a"), remove("a", 4, 5), read(6, 7, "")],
    "two at once, either order": [
        add("a", 0, 9),
        add("b", 0, 9),
        read(1, 2, "b"),
        read(3, 4, "ab"),
    ],
    "set again beside its removal": [
        *(add("a", 0, 1), remove("a", 2, 5), add("a", 3, 6), read(7, 8, "a"))
    ],
    "a read beside a write sees it": [add("a", 0, 9), read(1, 2, "a"), read(3, 4, "a")],
    "a read beside a write does not see it": [add("a", 0, 9), read(1, 2, ""), read(3, 4, "a")],
    "not answered and never done": [add("a", 0), read(1, 2, ""), read(3, 4, "")],
    "died, and was done": [died(add("a", 0, 1)), read(2, 3, "a")],
    "died, and was not done": [died(add("a", 0, 1)), read(2, 3, ""), read(4, 5, "")],
    "refused, as it was not there": [remove("a", 0, 1, refused=True), add("a", 2, 3)],
    "not answered and done late": [add("a", 0), read(1, 2, ""), read(100, 101, "a")],
    "seen on the master's disk, and lost with it": [
        *(add("a", 0), read(1, 2, "a"), take_over(3, 4), read(5, 6, ""))
    ],
    "two were seen, the second is lost": [
        *(add("a", 0), read(1, 2, "a"), died(add("b", 3, 9)), read(4, 5, "ab")),
        *(take_over(6, 7), read(8, 9, "a")),
    ],
    "a removal is lost": [
        *(add("a", 0, 1), died(remove("a", 2, 9)), read(3, 4, ""), take_over(5, 6)),
        *(read(7, 8, "a"), remove("a", 9, 10)),
    ],
}
BAD_TAGS = {
    "lost": [add("a", 0, 1), read(2, 3, "")],
    "seen, then not": [add("a", 0, 9), read(1, 2, "a"), read(3, 4, "")],
    "not answered, seen, then not": [add("a", 0), read(1, 2, "a"), read(3, 4, "")],
    "from nowhere": [read(0, 1, "a"), add("a", 2, 3)],
    "one of two lost": [add("a", 0, 1), add("b", 0, 1), read(2, 3, "b")],
    "two readers, two orders": [
        *(add("a", 0, 9), add("b", 0, 9)),
        *(read(1, 2, "a"), read(3, 4, "ab"), read(1, 2, "b")),
    ],
    "died, and was done later": [died(add("a", 0, 1)), read(2, 3, ""), read(4, 5, "a")],
    "refused though it was there": [add("a", 0, 1), remove("a", 2, 3, refused=True)],
    "removed what was not there": [remove("a", 0, 1), add("a", 2, 3)],
    "lost with the master": [add("a", 0, 1), take_over(2, 3), read(4, 5, "")],
    "lost with the master, before what was acknowledged": [
        *(add("a", 0), read(1, 2, "a"), add("b", 3, 4), take_over(5, 6), read(7, 8, "b"))
    ],
    "seen, then not, and the master went later": [
        *(add("a", 0), read(1, 2, "a"), read(3, 4, ""), take_over(5, 6))
    ],
    "seen after the change of the master, then not": [
        *(add("a", 0), read(1, 2, "a"), take_over(3, 4), read(5, 6, "a"), read(7, 8, ""))
    ],
    "the first of two is lost, the second is not": [
        *(add("a", 0), read(1, 2, "a"), add("b", 3), read(4, 5, "ab")),
        *(take_over(6, 7), read(8, 9, "b")),
    ],
}
GOOD_LOCKS = {
    "in turn": [take("x", 0, 1, True, "A"), free("x", 2, 3), take("y", 4, 5, True, "A")],
    "shared": [take("x", 0, 1, True, "a"), take("y", 2, 3, True, "a")],
    "refused while held": [take("x", 0, 1, True, "A"), take("y", 2, 3, False, "a", "B")],
    "given back meanwhile": [
        *(take("x", 0, 1, True, "A"), free("x", 2, 9)),
        *(take("y", 3, 4, False, "A"), take("y", 5, 6, True, "A")),
    ],
    "its owner died at some moment": [
        take("x", 0, 1, True, "A"),
        free("x", 2),
        take("y", 100, 101, True, "A"),
    ],
    "granted and not heard of": [take("x", 0, math.inf, UNKNOWN, "A"), take("y", 1, 2, False, "A")],
    "downgraded": [
        *(take("x", 0, 1, True, "A"), take("x", 2, 3, True, "a"), take("y", 4, 5, True, "a"))
    ],
}
BAD_LOCKS = {
    "granted twice": [take("x", 0, 1, True, "A"), take("y", 2, 3, True, "A")],
    "shared and exclusive": [take("x", 0, 1, True, "a"), take("y", 2, 3, True, "A")],
    "granted in part": [
        *(take("x", 0, 1, True, "A"), take("y", 2, 3, True, "B")),
        *(take("z", 4, 5, True, "A", "C"),),
    ],
    "refused though free": [take("x", 0, 1, False, "A")],
    "held by nobody": [take("x", 0, 1, True, "A"), free("x", 2, 3), take("y", 4, 5, False, "A")],
    "free only after it was granted": [
        *(take("x", 0, 1, True, "A"), take("y", 2, 3, True, "A"), free("x", 4, 5))
    ],
}


@pytest.mark.parametrize("name", GOOD_TAGS)
def test_good_histories_of_tags(name: str) -> None:
    check(GOOD_TAGS[name], tags, NO_TAGS)


@pytest.mark.parametrize("name", GOOD_LOCKS)
def test_good_histories_of_locks(name: str) -> None:
    check(GOOD_LOCKS[name], locks, NONE)


@pytest.mark.parametrize("name", BAD_TAGS)
def test_bad_histories_of_tags(name: str) -> None:
    with pytest.raises(NotLinearizableError):
        check(BAD_TAGS[name], tags, NO_TAGS)


@pytest.mark.parametrize("name", BAD_LOCKS)
def test_bad_histories_of_locks(name: str) -> None:
    with pytest.raises(NotLinearizableError):
        check(BAD_LOCKS[name], locks, NONE)


def has_order(history: Sequence[Call], model: Model, first: State) -> bool:
    """Try all orders of all calls that were answered and some of the others: slow and plain."""
    open_calls = [call for call in history if call.ended == math.inf]
    rest = [call for call in history if call.ended < math.inf]
    for count in range(len(open_calls) + 1):
        for some in itertools.combinations(open_calls, count):
            for order in itertools.permutations([*rest, *some]):
                pairs = itertools.combinations(order, 2)
                if all(later.ended >= sooner.begun for sooner, later in pairs):
                    states = [first]
                    for call in order:
                        states = [
                            after
                            for state in states
                            for after in model(state, call.what, call.answer)
                        ]  # type: ignore[misc]
                    if states:
                        return True
    return False


TIMES = st.tuples(st.integers(0, 6), st.integers(0, 6)).map(sorted)
CALLS = st.one_of(
    st.builds(lambda t, tag: add(tag, *t), TIMES, st.sampled_from("ab")),
    st.builds(lambda t, tag: add(tag, t[0]), TIMES, st.sampled_from("ab")),
    st.builds(
        lambda t, tag, refused: remove(tag, *t, refused=refused),
        TIMES,
        st.sampled_from("ab"),
        st.booleans(),
    ),
    st.builds(lambda t, tag: died(add(tag, *t)), TIMES, st.sampled_from("ab")),
    st.builds(lambda t, found: read(*t, found), TIMES, st.sampled_from(["", "a", "b", "ab"])),
    st.builds(lambda t: take_over(*t), TIMES),
)


def many_open(count: int) -> list[Call]:
    """Return changes of all kinds that were not answered, any of which may come at any moment."""
    return [
        add(tag, 0) if number % 2 else replace(remove(tag, 0, 1), ended=math.inf, answer=UNKNOWN)
        for number in range(count)
        for tag in "abcdef"
    ]


def test_where_one_order_of_all_takes_too_long_there_is_one_for_each_tag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fakes.linearizability.TRIES_MAX", 2000)
    reads = [read(10 * n, 10 * n + 1, "abcdef"[: n % 7]) for n in range(1, 40)]
    assert check_tags([add("a", 0, 1), read(2, 3, "a")])
    assert not check_tags([*many_open(30), *reads, read(500, 501, "fa")])
    lost = [add("g", 0, 1), read(2, 3, "")]
    with pytest.raises(NotLinearizableError):
        check_tags([*many_open(30), *reads, *lost])


@settings(max_examples=300)
@given(st.lists(CALLS, max_size=5))
def test_it_finds_an_order_where_trying_all_finds_one(history: list[Call]) -> None:
    try:
        check(history, tags, NO_TAGS)
    except NotLinearizableError:
        assert not has_order(history, tags, NO_TAGS)
    else:
        assert has_order(history, tags, NO_TAGS)


def test_a_long_history_of_few_at_once_is_quick() -> None:
    history = [
        call
        for n in range(2000)
        for call in (add(f"t{n % 7}", n, n + 3.5), remove(f"t{n % 7}", n + 3.6, n + 4.2))
    ]
    check(history, tags, NO_TAGS)


def test_many_who_died_are_no_burden() -> None:
    """Each leaves a call without an answer, which a plain search would put in every place."""
    history: list[Call] = []
    for n in range(60):
        owner = f"p{n}"
        history += [take(owner, 10 * n, 10 * n + 1, True, "A"), free(owner, 10 * n + 2)]
        history += [take(owner, 10 * n + 2, math.inf, UNKNOWN, "B")]
        history += [take(f"q{n}", 10 * n + 3, 10 * n + 4, False, "A")] * (n % 3)
    check(history, locks, NONE)
