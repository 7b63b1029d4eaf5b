"""The output of Xen's tools, as data.  Pure.

Source: xl(1), subcommands list and uptime; xentop(1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ganeti.base.errors import GenericError

DOMAIN_0: Final = "Domain-0"
XENTOP: Final = ("xentop", "--batch", "--full-name", "--iterations=1")


class DomainState(StrEnum):
    """The state of a domain."""

    RUNNING = "running"
    BLOCKED = "blocked"  # waits for input, or sleeps
    PAUSED = "paused"
    SHUTDOWN = "shutdown"
    CRASHED = "crashed"
    DYING = "dying"


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain that Xen has."""

    state: DomainState
    uptime: str | None = None


_LIST_COLUMNS: Final = 6
# The first that is set counts: a domain that crashed is also shut down.
_FLAGS: Final = (
    ("c", DomainState.CRASHED),
    ("d", DomainState.DYING),
    ("s", DomainState.SHUTDOWN),
    ("p", DomainState.PAUSED),
    ("b", DomainState.BLOCKED),
    ("r", DomainState.RUNNING),
)


def parse_list(text: str, uptimes: Mapping[str, str]) -> dict[str, Domain]:
    """Return the domains that ``xl list`` printed, without the node's own.

    Raises:
        GenericError: a line cannot be understood; the text shows it.
    """
    found = {}
    for line in _rows(text, "Name"):
        words = line.rsplit(maxsplit=_LIST_COLUMNS - 1)
        if len(words) != _LIST_COLUMNS:
            raise GenericError(f"cannot understand what Xen lists: {line[:200]!r}")
        name, flags = words[0].strip(), words[4]
        if name != DOMAIN_0:
            found[name] = Domain(_state(flags), uptimes.get(name))
    return found


def _state(flags: str) -> DomainState:
    # A domain without any flag waits for a processor: it runs.
    return next((state for flag, state in _FLAGS if flag in flags), DomainState.RUNNING)


def parse_uptime(text: str) -> dict[str, str]:
    """Return {domain: how long it has run} of what ``xl uptime`` printed."""
    found = {}
    for line in _rows(text, "Name"):
        name, _number, uptime = [*line.split(maxsplit=2), "", ""][:3]
        found[name] = uptime.strip()
    return found


def parse_xentop(text: str) -> dict[str, float]:
    """Return {domain: seconds of processor time} of what xentop printed, without the node's own.

    Raises:
        GenericError: a line cannot be understood; the text shows it.
    """
    used_s = {}
    for line in _rows(text, "NAME"):
        words = line.split()
        try:
            name, seconds = words[0], float(words[2])
        except (IndexError, ValueError) as err:
            raise GenericError(f"cannot understand what xentop prints: {line[:200]!r}") from err
        if name != DOMAIN_0:
            used_s[name] = seconds
    return used_s


def _rows(text: str, title: str) -> list[str]:
    """Return the lines after the titles."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.split()[:1] == [title]]
    first = starts[0] + 1 if starts else 0
    return [line for line in lines[first:] if line.strip()]
