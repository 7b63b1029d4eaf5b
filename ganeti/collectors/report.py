"""The report of a data collector: its envelope, and the codes of statuses.  Pure.

A collector that cannot do its work still reports: a status collector says so in its status, a
performance collector gives empty data of its usual form and says why under ``status`` beside it.

Source: mond.json, "report" and "status_object".
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final

import msgspec

VERSION: Final = "B"  # built in
_MESSAGE_CHARS_MAX: Final = 500
DEFAULT_CATEGORY: Final = "default"  # in addresses, for collectors without one


class Kind(IntEnum):
    """The kind of a collector."""

    PERFORMANCE = 0
    STATUS = 1


class StatusCode(IntEnum):
    """How something is; of several things the largest counts."""

    OK = 0
    TEMPORARILY_BAD = 1  # it is repairing itself
    UNKNOWN = 2
    BAD = 4


class Health(msgspec.Struct, frozen=True):
    """How something is, and why."""

    code: StatusCode = StatusCode.OK
    message: str = ""


FINE: Final = Health()


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One report; ``timestamp`` is in nanoseconds since the epoch.

    ``status`` is set when a performance collector failed.
    """

    name: str
    version: str
    format_version: int
    timestamp: int
    category: str | None
    kind: Kind
    data: Any
    status: Health | None = None

    @property
    def failure(self) -> str | None:
        """Why there is nothing in it; None unless the collector failed."""
        return None if self.status is None else self.status.message


def presentable(message: str) -> str:
    """Return a message fit to be shown: commands say anything, at any length."""
    shown = message[:_MESSAGE_CHARS_MAX]
    printable = "".join(each if each.isprintable() or each == "\n" else "?" for each in shown)
    return printable + "..." * (len(message) > _MESSAGE_CHARS_MAX)


def worst(statuses: Iterable[Health]) -> StatusCode:
    """Return the code for all of them together."""
    return max((status.code for status in statuses), default=StatusCode.OK)
