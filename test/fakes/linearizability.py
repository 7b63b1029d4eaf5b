"""Tells whether a history of calls could have been answered by one thing, one call after the other.

A history is linearizable if each call can be put at one moment between its beginning and its end so
that, in the order of these moments, a `Model` gives every answer that was given.  A call that was
never answered may be carried out at any moment from its beginning on, or not at all.

The search is the one of Wing and Gong, with the memory of Lowe: from each state, every call is tried
next that began before any other one ended; a set of calls that led to the same state before is not
tried again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

UNKNOWN: Final = "unknown"  # the answer of a call that was not answered
TRIES_MAX: Final = 200_000

State: TypeAlias = Hashable
# (state, call, answer or UNKNOWN) -> all states after it; none if it cannot be answered so.
Model: TypeAlias = "Callable[[State, tuple[object, ...], object], Iterable[State]]"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a client; ``ended`` is infinite and ``answer`` unknown if it was not answered."""

    what: tuple[object, ...]
    begun: float
    ended: float = math.inf
    answer: object = UNKNOWN

    @property
    def is_look(self) -> bool:
        """Whether it never changes anything: it reads, or was refused."""
        return self.what[0] == "read" or self.answer is False


class NotLinearizableError(AssertionError):
    """No order of the calls explains their answers."""


class TooManyError(AssertionError):
    """Too many calls at once to find out."""


def check(history: Iterable[Call], model: Model, first: State) -> None:
    """Find an order of a history.

    Calls that were not answered cost most: each may be carried out at any moment.

    Raises:
        NotLinearizableError: there is none; the text has the first call that nothing explains.
        TooManyError: it takes too long.
    """
    calls = sorted(history, key=lambda call: (call.begun, call.ended))
    answered = sum(1 << number for number, call in enumerate(calls) if call.ended < math.inf)
    todo: list[tuple[int, State]] = [(0, first)]
    seen = set(todo)
    best, tries = 0, 0
    while todo:
        done, state = todo.pop()
        if done & answered == answered:
            return
        tries += 1
        if tries > TRIES_MAX:
            raise TooManyError(f"gave up after {best.bit_count()} of {len(calls)} calls")
        best = max(best, done, key=lambda mask: (mask & answered).bit_count())
        for found in _moves(calls, done, state, model):
            if found not in seen:
                seen.add(found)
                todo.append(found)
    stuck = [calls[number] for number in _next(calls, best) if calls[number].ended < math.inf]
    raise NotLinearizableError(
        f"after {best.bit_count()} of {len(calls)} calls, none fits: {stuck}"
    )


def _moves(calls: Sequence[Call], done: int, state: State, model: Model) -> list[tuple[int, State]]:
    """Return what one more call may lead to.

    A look that fits comes at once: later it may not fit any more, and nobody notices.  One that was not answered and would change nothing is left out: it may
    still come later, or never.
    """
    found = []
    for number in reversed(_next(calls, done)):
        call = calls[number]
        states = list(model(state, call.what, call.answer))
        if call.ended == math.inf:
            states = [after for after in states if after != state]
        moves = [(done | 1 << number, after) for after in states]
        if states and call.is_look:
            return moves
        found += moves
    return found


def _next(calls: Sequence[Call], done: int) -> list[int]:
    """Return the calls that may come next: begun before any other one that is left has ended."""
    found, first_end = [], math.inf
    number = (~done & (done + 1)).bit_length() - 1  # the first that is left
    while number < len(calls) and calls[number].begun <= first_end:
        if not done >> number & 1:
            found.append(number)
            first_end = min(first_end, calls[number].ended)
        number += 1
    return [number for number in found if calls[number].begun <= first_end]


# Models.


NO_TAGS: Final = (frozenset[str](),)


def tags(state: State, what: tuple[object, ...], answer: object) -> Iterable[State]:
    """One object with tags: ``("add", tag)``, ``("remove", tag)`` and ``("read",)``.

    A tag that is not there cannot be removed; the answer to that is False.

    The state is what enough candidates have, and then what the master's disk has had since.  Readers
    see the last of it.  Whatever is acknowledged, enough candidates have, with all before it.  In
    ``("take over",)`` another node becomes the master: it has that, and as much more as it got.
    """
    assert isinstance(state, tuple)
    seen = state[-1]
    match what:
        case ("add", tag):
            after = seen | {tag}
        case ("remove", tag):
            if answer is False or (answer is not UNKNOWN and tag not in seen):
                return [state] if answer is False and tag not in seen else []
            after = seen - {tag}
        case ("read",):
            return [state] if answer in (UNKNOWN, seen) else []
        case ("take over",):
            return [(each,) for each in dict.fromkeys(reversed(state))]
        case _:
            raise AssertionError(what)
    if answer is not UNKNOWN:
        return [(after,)]
    return [state] if after == seen else [(*state, after), state]


def check_tags(history: Sequence[Call]) -> bool:
    """Find an order of a history of tags; returns whether one order was found for all of them.

    Where that takes too long, as many calls were not answered, there is one for each tag by itself.

    Raises:
        NotLinearizableError: there is none.
    """
    try:
        check(history, tags, NO_TAGS)
    except TooManyError:
        for tag in sorted({str(call.what[1]) for call in history if len(call.what) > 1}):
            check(_about(tag, history), tags, NO_TAGS)
        return False
    return True


def _about(tag: str, history: Iterable[Call]) -> Iterator[Call]:
    """Yield what a history says of one tag."""
    for call in history:
        if isinstance(call.answer, frozenset):
            yield replace(call, answer=call.answer & {tag})
        elif len(call.what) == 1 or call.what[1] == tag:
            yield call


Mode: TypeAlias = Literal["shared", "exclusive"]


def locks(state: State, what: tuple[object, ...], answer: object) -> Iterable[State]:
    """Locks: ``("try", owner, ((lock, mode), ...))``, answered by whether they are granted.

    ``("free", owner)`` gives back all that an owner has, as its death does.
    """
    assert isinstance(state, frozenset)
    match what:
        case ("try", owner, tuple(wanted)):
            others = [held for held in state if held[0] != owner]
            is_free = not any(_conflict(mine, held) for mine in wanted for held in others)
            names = {lock for lock, _ in wanted}
            kept = {held for held in state if held[0] != owner or held[1] not in names}
            granted = frozenset(kept | {(owner, lock, mode) for lock, mode in wanted})
            if answer is UNKNOWN:
                return [granted, state] if is_free else [state]
            if answer:
                return [granted] if is_free else []
            return [] if is_free else [state]
        case ("free", owner):
            return [frozenset(held for held in state if held[0] != owner)]
    raise AssertionError(what)


def _conflict(wanted: tuple[str, Mode], held: tuple[object, str, Mode]) -> bool:
    lock, mode = wanted
    return lock == held[1] and "exclusive" in (mode, held[2])
