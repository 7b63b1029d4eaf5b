"""Regular expressions from outside, with a bound on their cost.

The matcher of the standard library goes back and forth and can take for ever.  So we look at the
parsed expression first: a part that repeats without limit must not itself be made of choices or of
repetitions of varying length (exponential cost), and the more such repetitions stand in one
expression, the shorter a text it may be tried on (polynomial cost).  The expressions of one filter
have one bound together, as all of them may be tried on the same item.

Expressions are those of 3.0, of PCRE.  What the standard library does not know it refuses; only the
named classes of characters, ``[[:digit:]]``, it would take for something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import comb, log
from re import _constants as sre  # type: ignore[attr-defined]  # the parsed form has no public name
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

from ganeti.base.errors import ParameterError

PATTERN_LENGTH_MAX: Final = 1000
OPEN_REPEATS_MAX: Final = 8
_SHORT_REPEAT: Final = 8  # a repetition up to this often counts as limited
_LOG_NESTED_MAX: Final = log(10_000)  # ways to match small repetitions inside each other
_STEPS_MAX: Final = 1_000_000  # some 10 ms: ways to share a text among the repetitions

_CLASS: Final = re.compile(r"\[:(\^?)([a-z]+):\]")
_MEMBERS: Final = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t-\r ",
    "upper": "A-Z",
    "word": "a-zA-Z0-9_",
    "xdigit": "0-9a-fA-F",
}
_REPEATS: Final = frozenset({sre.MAX_REPEAT, sre.MIN_REPEAT})
_COSTLY: Final = frozenset({sre.BRANCH, sre.GROUPREF, sre.GROUPREF_EXISTS})


class TooCostlyError(ParameterError):
    """An expression could take too long on a text that it was to be tried on."""

    wire_name = "ParameterError"


class Share:
    """The bound on the cost of all expressions of one filter, in equal parts."""

    def __init__(self) -> None:
        self.expressions = 0

    @property
    def steps_max(self) -> int:
        """How many steps one of them may take for one text."""
        return _STEPS_MAX // max(1, self.expressions)


def bounded_regex(pattern: str, share: Share | None = None) -> Callable[[str], bool]:
    """Return a function that searches a text (not anchored).

    Args:
        share: of the filter that the expression is part of; it may grow later on.

    Raises:
        ParameterError: not a regular expression, or one that could take too long; the function
            raises TooCostlyError for a text that is too long for it.
    """
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise ParameterError(f"a regular expression can have {PATTERN_LENGTH_MAX} characters")
    spelt_out = _with_members(pattern)
    try:
        compiled = re.compile(spelt_out)
        open_repeats = _count_open_repeats(parser.parse(spelt_out))
    except (re.error, OverflowError, RecursionError) as err:
        raise ParameterError(f"cannot use the regular expression {pattern!r}: {err}") from err
    if open_repeats > OPEN_REPEATS_MAX:
        raise ParameterError(
            f"the regular expression {pattern!r} has more than {OPEN_REPEATS_MAX} repetitions"
        )

    share = share or Share()
    share.expressions += 1

    def search(text: str) -> bool:
        if comb(len(text), open_repeats) > share.steps_max:
            raise TooCostlyError(
                f"the regular expression {pattern!r} could take too long on {text[:100]!r}"
            )
        return compiled.search(text) is not None

    return search


def _with_members(pattern: str) -> str:
    """Return the pattern with the members of named classes in their place.

    Raises:
        ParameterError: there is no class of that name, or it is negated.
    """
    parts: list[str] = []
    position, first = 0, -1  # of the members of the set around; -1 outside of one
    while position < len(pattern):
        part = pattern[position]
        found = _CLASS.match(pattern, position) if first >= 0 else None
        if found is not None:
            part = _members_of(found)
        elif part == "\\":
            part = pattern[position : position + 2]
        elif part == "[" and first < 0:
            first = position + 1 + (pattern[position + 1 : position + 2] == "^")
        elif part == "]" and position > first:
            first = -1
        parts.append(part)
        position = position + len(part) if found is None else found.end()
    return "".join(parts)


def _members_of(found: re.Match[str]) -> str:
    negation, name = found.groups()
    if negation or name not in _MEMBERS:
        raise ParameterError(
            f"the regular expression has {found[0]!r}; known are: {', '.join(_MEMBERS)}"
        )
    return _MEMBERS[name]


def _parts(argument: Any) -> Iterator[Any]:
    """Give the parsed expressions inside an operator's argument."""
    if isinstance(argument, parser.SubPattern):
        yield argument
    elif isinstance(argument, list | tuple):
        for item in argument:
            yield from _parts(item)


def _count_open_repeats(parsed: Any, times: int = 1) -> int:
    """Count repetitions of varying length; refuse one inside another unless both are small.

    ``times`` is the greatest number of repetitions of the part around this one.
    """
    count = 0
    for op, argument in parsed:
        if times > _SHORT_REPEAT and op in _COSTLY:
            raise ParameterError("the regular expression has a choice inside a repetition")
        inner_times = times
        if op in _REPEATS:
            low, high, _inner = argument
            choices = high - low + 1
            if times > 1 and choices > 1 and min(times, 20) * log(choices) > _LOG_NESTED_MAX:
                raise ParameterError("the regular expression has a repetition inside another")
            count += choices > 1 and high > _SHORT_REPEAT
            inner_times = times * high
        for inner in _parts(argument):
            count += _count_open_repeats(inner, inner_times)
    return count
