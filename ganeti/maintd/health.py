"""The health of nodes, as their reports tell it one after the other.  Pure.

Theory of operation.  A report counts only if it is newer than the last one of its node, so that an
old one shown again changes nothing.  Nobody acts on an object at once: the node has to report
the same one twice (`is_steady`), and a node whose object changes again and again is *flapping*, on
which nobody acts until it has rested.  Whatever cannot be read makes the health unknown, and begins
the count anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from ganeti.protocol.confd import CLOCK_SKEW_S_MAX
from ganeti.protocol.maintenance.diagnosis import Diagnosis, Unknown

STEADY_REPORTS: Final = 2
FLAPPING_WINDOW_S: Final = 900.0
CHANGES_MAX: Final = 5  # within the window; a repair and its end are two

SWITCHED_OFF: Final = Unknown("the collector 'diagnose' is switched off")

_canonical: Final = msgspec.json.Encoder(order="sorted")


def canonical(original: Mapping[str, object]) -> bytes:
    """Return the text by which objects are compared: the same for any order of keys."""
    return _canonical.encode(original)


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of a node.

    Attributes:
        report: the last report, or why there is none.
        count: how many reports in a row had that object.
        signed_s: when the last report that counted was signed, by the node's clock.
        changed_s: when the object changed, within the window.
    """

    report: Diagnosis | Unknown = Unknown("the node was not asked yet")  # noqa: RUF009 - frozen
    count: int = 0
    signed_s: int = 0
    last: bytes | None = None
    changed_s: tuple[float, ...] = ()

    @property
    def is_flapping(self) -> bool:
        """Whether the node changes its mind too often."""
        return len(self.changed_s) > CHANGES_MAX

    @property
    def is_steady(self) -> bool:
        """Whether the last report may be acted on."""
        return self.count >= STEADY_REPORTS and not self.is_flapping

    def reports(self, original: Mapping[str, object]) -> bool:
        """Tell whether the node reports that very object now."""
        known = self.report
        return isinstance(known, Diagnosis) and canonical(known.original) == canonical(original)


def heard(health: Health, report: Diagnosis | Unknown, now_s: float) -> Health:
    """Return the health of a node after another report."""
    recent = tuple(each for each in health.changed_s if 0 <= now_s - each < FLAPPING_WINDOW_S)
    health = replace(health, changed_s=recent)
    if isinstance(report, Unknown):
        return replace(health, report=report, count=0)
    # No report is believed that is further ahead: that one was signed while clocks were wrong.
    if report.time_s < health.signed_s <= now_s + CLOCK_SKEW_S_MAX:
        older = Unknown("the report is older than the one before: somebody shows it again")
        return replace(health, report=older, count=0)
    text = canonical(report.original)
    if text != health.last:
        changes = recent if health.last is None else (*recent, now_s)
        return Health(report, 1, report.time_s, text, changes)
    is_new = report.time_s > health.signed_s or health.count == 0
    return replace(health, report=report, count=health.count + is_new, signed_s=report.time_s)
