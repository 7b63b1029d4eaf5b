"""The filter language that people type, turned into prefix form.

Only command lines need it, and the parser behind it takes long to load; daemons never import this.

Source: query_fields.json, "filter_text_form".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import pyparsing as pp

from ganeti.base.errors import QueryFilterParseError

TEXT_LENGTH_MAX: Final = 100_000
_DIGITS_MAX: Final = 19  # times in nanoseconds have as many
_DELIMITERS: Final = "/#^|"
_KEYWORDS: Final = frozenset({"and", "or", "not", "in"})


def glob_to_regex(glob: str) -> str:
    """Turn a pattern with ``*`` and ``?`` into a regular expression for names.

    Neither crosses a dot, and a pattern without the rest of the domain fits: ``web*`` fits
    ``web1.example.com``.
    """
    parts: list[str] = []
    for character in glob:
        if character == "*":
            parts.append("[^.]*")
        elif character == "?":
            parts.append("[^.]")
        elif character.isalnum() or character in "_-":
            parts.append(character)
        else:
            parts.append(f"\\{character}")
    return f"^{''.join(parts)}(\\..*)?$"


def _regex_literal() -> pp.ParserElement:
    """Return the grammar of ``m/text/flags``; the m may be left out."""
    literals = [_delimited(delimiter) for delimiter in _DELIMITERS]
    return pp.MatchFirst(literals)


def _delimited(delimiter: str) -> pp.ParserElement:
    mark = re.escape(delimiter)
    literal = pp.Regex(rf"m?{mark}(?P<text>(?:\\.|[^\\{mark}])*){mark}(?P<flags>[is]*)")

    def build(tokens: pp.ParseResults) -> str:
        text = tokens["text"].replace(f"\\{delimiter}", delimiter)
        flags = tokens["flags"]
        return f"(?{flags}){text}" if flags else str(text)

    return literal.set_parse_action(build)


def _grammar() -> pp.ParserElement:
    field = pp.Word(pp.alphas, pp.alphanums + "_/.").set_name("field")
    field = ~pp.MatchFirst([pp.Keyword(word) for word in _KEYWORDS]) + field
    integer = pp.Regex(rf"[+-]?[0-9]{{1,{_DIGITS_MAX}}}(?![0-9])")
    integer.set_parse_action(lambda tokens: int(tokens[0]))
    quoted = pp.QuotedString('"', esc_char="\\") | pp.QuotedString("'", esc_char="\\")
    value = (quoted | integer).set_name("value")

    compared = field + pp.one_of("== = != <= < >= >") + value
    compared.set_parse_action(lambda t: [["==" if t[1] == "=" else t[1], t[0], t[2]]])

    contained = value + pp.Keyword("in").suppress() + field
    contained.set_parse_action(lambda t: [["=[]", t[1], t[0]]])
    not_contained = value + (pp.Keyword("not") + pp.Keyword("in")).suppress() + field
    not_contained.set_parse_action(lambda t: [["!", ["=[]", t[1], t[0]]]])

    searched = field + pp.one_of("=~ !~") + _regex_literal()
    searched.set_parse_action(lambda t: [_perhaps_not(t[1], ["=~", t[0], t[2]])])
    globbed = field + pp.one_of("=* !*") + quoted
    globbed.set_parse_action(lambda t: [_perhaps_not(t[1], ["=~", t[0], glob_to_regex(str(t[2]))])])
    truth = field.copy().set_parse_action(lambda t: [["?", t[0]]])

    condition = searched | globbed | compared | not_contained | contained | truth
    return _logic(condition.set_name("condition"))


def _logic(condition: pp.ParserElement) -> pp.ParserElement:
    """Add not, and, or (binding in that order) and parentheses."""
    whole = pp.Forward()
    inner = pp.Suppress("(") + whole + pp.Suppress(")") | condition
    negated = pp.Forward()
    refused = pp.Keyword("not").suppress() + negated
    refused.set_parse_action(lambda t: [["!", t[0]]])
    negated <<= refused | inner
    both = pp.DelimitedList(negated, delim=pp.Keyword("and"))
    either = pp.DelimitedList(both.set_parse_action(_joined("&")), delim=pp.Keyword("or"))
    whole <<= either.set_parse_action(_joined("|"))
    return whole


def _joined(operator: str) -> Callable[[pp.ParseResults], list[object]]:
    def join(tokens: pp.ParseResults) -> list[object]:
        parts = list(tokens)
        return parts if len(parts) == 1 else [[operator, *parts]]

    return join


def _perhaps_not(operator: str, condition: list[object]) -> list[object]:
    return ["!", condition] if operator.startswith("!") else condition


_GRAMMAR: Final = _grammar().parse_with_tabs()  # a tab in quotes is meant as such


def parse_filter(text: str) -> list[object]:
    """Parse a filter such as ``oper_ram >= 512 and not (status == "running" or drained)``.

    Raises:
        QueryFilterParseError: it cannot be understood; the text points to the place.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise QueryFilterParseError(f"a filter can have {TEXT_LENGTH_MAX} characters")
    try:
        (parsed,) = _GRAMMAR.parse_string(text, parse_all=True)
    except pp.ParseBaseException as err:
        raise QueryFilterParseError(
            f"cannot understand the filter {text!r} at character {err.loc + 1}:"
            f" {err.line[err.col - 1 :][:40] or 'it ends too early'}"
        ) from err
    except RecursionError as err:
        raise QueryFilterParseError("the filter is nested too deeply") from err
    assert isinstance(parsed, list)
    return parsed
