"""Text: times, natural order, short names, lists of paths, public keys."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

from ganeti.base.errors import OpPrereqError

T = TypeVar("T")

COLUMN_SEPARATOR: Final = "|"  # of a cluster as text, which the tools for placement read
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION_S_MAX: Final = 36_525 * 86_400  # a hundred years: more is a mistake
_DIGITS_MAX: Final = 10  # such a number of seconds is longer
_DIGITS = re.compile(r"([0-9]+)")
_CERTIFIED_NAME_MAX: Final = 64  # RFC 5280, ub-common-name
_BLANKS: Final = "\t\n\xa0\u202f"
_SHOWN_ALIKE_MAX: Final = 8
_PLUGIN_NAME = re.compile(r"[a-zA-Z0-9_-]+")


def is_plugin_name(name: str) -> bool:
    """Tell whether a name is of letters, digits, ``_`` and ``-`` alone: it leads nowhere else."""
    return _PLUGIN_NAME.fullmatch(name) is not None


def fits_column(text: str) -> bool:
    """Tell whether a column of a cluster as text can hold a text.

    >>> fits_column("rack 2"), fits_column("a|b"), fits_column("a\\nb")
    (True, False, False)
    """
    return COLUMN_SEPARATOR not in text and "".join(text.splitlines()) == text


def fit_for_terminal(text: str) -> str:
    """Return a text without control characters but tabs and line breaks; others are shown.

    >>> fit_for_terminal("a\\x1b[31m b\\r")
    'a\\\\x1b[31m b\\\\r'
    >>> fit_for_terminal("\\0" * 1000 + "a")
    '\\\\x00 (1000 times) a'
    """
    return "".join(_fit_for_terminal(each, len([*run])) for each, run in itertools.groupby(text))


def _fit_for_terminal(character: str, count: int) -> str:
    if character.isprintable() or character in _BLANKS:
        return character * count
    shown = character.encode("unicode_escape").decode()
    return shown * count if count <= _SHOWN_ALIKE_MAX else f"{shown} ({count} times) "


def name_in_certificate(node_name: str) -> str:
    """Return the name that the certificate of a node has: there is no room for a long one."""
    return node_name[:_CERTIFIED_NAME_MAX]


def listed_paths(text: str) -> list[str]:
    """Return the paths of a list: an absolute path on each line, comments after ``#``."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [posixpath.normpath(line) for line in lines if line.startswith("/")]


def utc(seconds: float) -> str:
    """Return a Unix time as people read it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def natural_sort_key(text: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts ``node2`` before ``node10``."""
    return [
        (0, int(part), "") if part[0] in "0123456789" else (1, 0, part)
        for part in _DIGITS.split(text)
        if part
    ]


def natural_sorted(texts: Iterable[str]) -> list[str]:
    """Sort texts in natural order."""
    return sorted(texts, key=natural_sort_key)


def shown(names: Iterable[str], count_max: int = 10) -> str:
    """Return some names in order, and how many there are besides."""
    ordered = natural_sorted(names)
    more = len(ordered) - count_max
    return ", ".join(ordered[:count_max]) + (f" and {more} more" if more > 0 else "")


def match_name_component(key: str, names: Iterable[str]) -> str | None:
    """Find the one name meant by a full or short name (``node1`` for ``node1.example.com``).

    Case does not count, unless two names differ in nothing else.

    Raises:
        OpPrereqError: the short name fits several names (wrong_input); the text lists them.
    """
    candidates = list(names)
    if key in candidates:
        return key
    folded = key.lower()
    matches = [
        name
        for name in candidates
        if name.lower() == folded or name.lower().startswith(folded + ".")
    ]
    exact = [name for name in matches if name.startswith(key + ".")]
    if len(exact) == 1:
        return exact[0]
    if len(matches) > 1:
        raise OpPrereqError(f"the name {key!r} is ambiguous: {', '.join(natural_sorted(matches))}")
    return matches[0] if matches else None


def name_matches(wanted: str, name: str) -> bool:
    """Tell whether a host name is the wanted one or begins with it: node1 for node1.example.com.

    Names are kept in small letters, so capitals that are wanted mean small ones as well.
    """
    if name == wanted or name.startswith(f"{wanted}."):
        return True
    folded = wanted.lower()
    return folded != wanted and name_matches(folded, name)


def meant_by(key: str, by_name: Mapping[str, T]) -> T | None:
    """Return the value whose name is meant by a full or short name, as `match_name_component`."""
    name = match_name_component(key, by_name)
    return None if name is None else by_name[name]


def ssh_key_of(line: str) -> tuple[str, str] | str:
    """Return the kind and the data of a public SSH key; a line without one stands for itself.

    A comment has none, whatever it says.
    """
    words = [] if line.lstrip().startswith("#") else line.split()
    for kind, key in itertools.pairwise(words):
        if kind.startswith(("ssh-", "ecdsa-", "sk-")):
            return kind, key
    return line


def ssh_keys_by_node(text: str) -> dict[str, list[str]]:
    """Return the public SSH keys of a file of lines ``<node uuid> <key>``, a node's newest last."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        uuid, _, key = line.partition(" ")
        if key.strip():
            found.setdefault(uuid, []).append(key.strip())
    return found


def ssh_keys_text(keys: Mapping[str, Sequence[str]]) -> str:
    """Return the content of such a file."""
    return "".join(f"{uuid} {key}\n" for uuid in sorted(keys) for key in keys[uuid])


def parse_duration(text: str) -> int:
    """Parse a time such as 90, 30m, 4h, 2d or 1w to seconds.

    Raises:
        OpPrereqError: it cannot be understood, or is longer than a hundred years.
    """
    number, unit = (text[:-1], text[-1]) if text and text[-1] in _SECONDS else (text, "s")
    if not number.isdecimal():
        raise OpPrereqError(f"{text!r} is not a time such as 90, 30m, 4h, 2d or 1w")
    seconds = int(number[:_DIGITS_MAX]) * _SECONDS[unit]
    if len(number) > _DIGITS_MAX or seconds > _DURATION_S_MAX:
        raise OpPrereqError(f"the time {text[:20]!r} is longer than a hundred years")
    return seconds
