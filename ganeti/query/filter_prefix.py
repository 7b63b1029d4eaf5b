"""Filters in prefix form: checked and compiled once, then tried on items.

A filter is tried twice.  First on the facts in the configuration, to find out which nodes must be
asked at all: a field that is not known yet makes the answer unknown (None), and only items whose
answer is certainly false are dropped.  Then on everything: there an item without data for a field
passes that comparison, as 3.0 does.

Source: query_fields.json, "filter_prefix_form".
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base.errors import ParameterError
from ganeti.base.text import name_matches
from ganeti.objects.query_words import FieldKind
from ganeti.query.context import RunContext
from ganeti.query.fields import Absent, AnyField, Comparison, Source
from ganeti.query.regex import Share, bounded_regex

Verdict = bool | None
Test = Callable[[Any, RunContext, bool], Verdict]
"""Arguments: item, context, whether only the configuration is known; None means unknown yet."""
FindField = Callable[[str], AnyField | None]
Comparing = Callable[[AnyField, object], Callable[[object], bool]]
"""Makes the test of a value from a field and the operand."""

DEPTH_MAX: Final = 50  # people nest three or four; more is a mistake or an attack
CONDITIONS_MAX: Final = 20_000  # lists of names become one condition each, up to all instances

_EQUAL_OPS: Final = frozenset({"==", "="})
_NUMBER_KINDS: Final = frozenset(
    {FieldKind.NUMBER, FieldKind.FLOAT, FieldKind.UNIT, FieldKind.TIMESTAMP}
)


class Filter(msgspec.Struct, frozen=True):
    """A compiled filter.

    ``sources`` are all sources of fields it looks at.  ``names``, unless None, are the only values
    of the name field that can pass, and UUIDs: the engine looks them up instead of going through
    all.  With ``only_names`` the filter says nothing else: it is how lists of names are asked for.
    """

    test: Test
    sources: frozenset[Source]
    names: tuple[object, ...] | None = None
    only_names: bool = False


EVERYTHING: Final = Filter(lambda _item, _context, _static: True, frozenset())


def compile_filter(qfilter: object, find: FindField, name_field: str) -> Filter:
    """Check a filter and make it fit to be tried.

    Args:
        find: returns a field by name, None if there is none.

    Raises:
        ParameterError: it is not a filter, names an unknown field, or compares with a value of
            the wrong type; the text shows the part that is wrong.
    """
    if qfilter is None:
        return EVERYTHING
    compiler = _Compiler(find, name_field)
    test = compiler.compile(qfilter, 0)
    listed = _names(qfilter, name_field, with_and=False)
    names = _names(qfilter, name_field, with_and=True) if listed is None else listed
    return Filter(test, frozenset(compiler.sources), names, listed is not None)


def _names(qfilter: object, name_field: str, *, with_and: bool) -> tuple[object, ...] | None:
    """Return the names that alone can pass, None if others can.

    ``with_and`` looks into "&" as well, of which more than the name may be asked.
    """
    match qfilter:
        case ["==" | "=", str(field), str() | int() as value] if field == name_field:
            return (value,)
        case ["|", *parts]:
            found = [_names(part, name_field, with_and=with_and) for part in parts]
            if any(names is None for names in found):
                return None
            return tuple(name for names in found if names is not None for name in names)
        case ["&", *parts] if with_and:
            found = [_names(part, name_field, with_and=True) for part in parts]
            return next((names for names in found if names is not None), None)
    return None


class _Compiler:
    def __init__(self, find: FindField, name_field: str) -> None:
        self._find = find
        self._name_field = name_field
        self._conditions_left = CONDITIONS_MAX
        self._share = Share()
        self.sources: set[Source] = set()

    def _take_one(self) -> None:
        self._conditions_left -= 1
        if self._conditions_left < 0:
            raise ParameterError(f"a filter can have at most {CONDITIONS_MAX} conditions")

    def compile(self, part: object, depth: int) -> Test:
        self._take_one()
        if depth > DEPTH_MAX:
            raise ParameterError(f"a filter can be nested at most {DEPTH_MAX} deep")
        match part:
            case ["&", *parts]:
                return _joined([self.compile(inner, depth + 1) for inner in parts], decisive=False)
            case ["|", *parts]:
                return _joined(self._alternatives(parts, depth + 1), decisive=True)
            case ["!", inner]:
                return _negated(self.compile(inner, depth + 1))
            case ["?", str(name)]:
                field = self._field(name)
                return _compared(field, _truth(field))
            case ["=~", str(name), value]:
                field = self._field(name)
                return _compared(field, _search(field, value, self._share))
            case [str(op), str(name), value] if op in _EQUAL_OPS:
                return self._equal_to_any(name, [value])
            case ["!=", str(name), value] if name == self._name_field:
                return _negated(self._equal_to_any(name, [value]))
            case [str(op), str(name), value] if op in _COMPARISONS:
                field = self._field(name)
                return _compared(field, _COMPARISONS[op](field, value))
        raise ParameterError(f"not a filter: {_shown(part)}")

    def _alternatives(self, parts: Sequence[object], depth: int) -> list[Test]:
        """Compile parts of which one is enough; equal to one of many values is one test.

        That stands where the first of them does: a later part may be wrong for some items.
        """
        tests: list[Test | None] = []
        places: dict[tuple[str, bool], int] = {}
        wanted: dict[tuple[str, bool], list[Any]] = {}
        for part in parts:
            match part:
                case [str(op), str(name), str() | int() | float() as value] if op in _EQUAL_OPS:
                    self._take_one()
                    kind = (name, isinstance(value, str))
                    if kind not in wanted:
                        places[kind] = len(tests)
                        tests.append(None)
                    wanted.setdefault(kind, []).append(value)
                case _:
                    tests.append(self.compile(part, depth))
        for kind, values in wanted.items():
            tests[places[kind]] = self._equal_to_any(kind[0], values)
        return [test for test in tests if test is not None]

    def _equal_to_any(self, name: str, values: Sequence[Any]) -> Test:
        """Compare a field with values; a UUID is a name of what has it."""
        field = self._field(name)
        test = _compared(field, _equal_to_any(field, values))
        return _with_uuids(values, test) if name == self._name_field else test

    def _field(self, name: str) -> AnyField:
        field = self._find(name)
        if field is None:
            raise ParameterError(f"unknown field {name!r} in the filter")
        self.sources.add(field.source)
        return field


def _shown(part: object) -> str:
    text = repr(part)
    return text if len(text) <= 100 else f"{text[:100]}..."


def _joined(tests: Sequence[Test], *, decisive: bool) -> Test:
    """Join tests: the first one with the decisive verdict decides, True for "|", False for "&"."""

    def test(item: object, context: RunContext, static: bool) -> Verdict:
        verdict: Verdict = not decisive
        for inner in tests:
            found = inner(item, context, static)
            if found is decisive:
                return decisive
            if found is None:
                verdict = None
        return verdict

    return test


def _negated(inner: Test) -> Test:
    def test(item: object, context: RunContext, static: bool) -> Verdict:
        found = inner(item, context, static)
        return None if found is None else not found

    return test


def _compared(field: AnyField, passes: Callable[[object], bool]) -> Test:
    get = field.get
    is_static = field.source is Source.CONFIG

    def test(item: object, context: RunContext, static: bool) -> Verdict:
        if static and not is_static:
            return None
        actual = get(item, context)
        return isinstance(actual, Absent) or passes(actual)

    return test


def _with_uuids(uuids: Sequence[Any], by_name: Test) -> Test:
    wanted = frozenset(uuids)

    def test(item: object, context: RunContext, static: bool) -> Verdict:
        return getattr(item, "uuid", None) in wanted or by_name(item, context, static)

    return test


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_operand(field: AnyField, value: object) -> None:
    """Refuse a value that can never be compared with the field."""
    is_time = field.comparison is Comparison.TIMESTAMP
    if field.kind is FieldKind.TEXT:
        fits = isinstance(value, str)
    elif field.kind in _NUMBER_KINDS or is_time:
        fits = _is_number(value)
    elif field.kind is FieldKind.BOOL:
        fits = isinstance(value, bool)
    else:
        fits = isinstance(value, str | int | float)
    if not fits:
        raise ParameterError(
            f"field {field.name!r} of kind {field.kind} cannot be compared with {_shown(value)}"
        )


def _comparable(field: AnyField, actual: object, value: object) -> Any:
    """Return the part of an actual value that is compared.

    Raises:
        ParameterError: the field has a value of another type here.
    """
    if field.comparison is Comparison.TIMESTAMP and isinstance(actual, list | tuple):
        return actual[0]
    if isinstance(actual, str) is isinstance(value, str) and isinstance(actual, str | int | float):
        return actual
    raise ParameterError(
        f"field {field.name!r} holds {_shown(actual)}, "
        f"which cannot be compared with {_shown(value)}"
    )


def _equality(field: AnyField, value: object) -> Callable[[object], bool]:
    _check_operand(field, value)
    if field.comparison is Comparison.HOST_NAME:
        wanted = str(value)
        return lambda actual: isinstance(actual, str) and name_matches(wanted, actual)
    return lambda actual: actual is not None and bool(_comparable(field, actual, value) == value)


def _equal_to_any(field: AnyField, values: Sequence[Any]) -> Callable[[object], bool]:
    """As many times `_equality`, with values that are all texts or all numbers."""
    if len(values) == 1:
        return _equality(field, values[0])
    for value in values:
        _check_operand(field, value)
    if field.comparison is Comparison.HOST_NAME:
        names = frozenset(form for each in values for form in (str(each), str(each).lower()))
        return lambda actual: isinstance(actual, str) and not names.isdisjoint(_forms(actual))
    wanted, first = frozenset(values), values[0]
    return lambda actual: actual is not None and _comparable(field, actual, first) in wanted


def _forms(name: str) -> Iterator[str]:
    """Yield every short form of a name, and the name itself last."""
    end = name.find(".")
    while end >= 0:
        yield name[:end]
        end = name.find(".", end + 1)
    yield name


def _inequality(field: AnyField, value: object) -> Callable[[object], bool]:
    equal = _equality(field, value)
    return lambda actual: not equal(actual)


def _ordered(compare: Callable[[Any, Any], bool]) -> Comparing:
    def order(field: AnyField, value: object) -> Callable[[object], bool]:
        _check_operand(field, value)
        return lambda actual: (
            actual is not None and compare(_comparable(field, actual, value), value)
        )

    return order


def _truth(field: AnyField) -> Callable[[object], bool]:
    if field.kind not in (FieldKind.BOOL, FieldKind.OTHER):
        raise ParameterError(f"field {field.name!r} of kind {field.kind} is not true or false")
    return bool


def _search(field: AnyField, value: object, share: Share) -> Callable[[object], bool]:
    if not isinstance(value, str):
        raise ParameterError(f"a regular expression must be text, got {_shown(value)}")
    if field.kind not in (FieldKind.TEXT, FieldKind.OTHER):
        raise ParameterError(f"field {field.name!r} of kind {field.kind} is not text")
    matches = bounded_regex(value, share)

    def search(actual: object) -> bool:
        if actual is None:
            return False
        if not isinstance(actual, str):
            raise ParameterError(f"field {field.name!r} holds {_shown(actual)}, which is not text")
        return matches(actual)

    return search


def _contains(field: AnyField, value: object) -> Callable[[object], bool]:
    if field.kind is not FieldKind.OTHER:
        raise ParameterError(f"field {field.name!r} of kind {field.kind} is not a list")
    if not isinstance(value, str | int | float):
        raise ParameterError(f"a list cannot be searched for {_shown(value)}")

    def contains(actual: object) -> bool:
        if actual is None:
            return False
        if not isinstance(actual, list | tuple):
            raise ParameterError(f"field {field.name!r} holds {_shown(actual)}, which is no list")
        return value in actual

    return contains


_COMPARISONS: Final[Mapping[str, Comparing]] = {
    "==": _equality,
    "=": _equality,
    "!=": _inequality,
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "=[]": _contains,
}
"""The operators that compare a field with a value; a regular expression takes its share as well."""
