"""Job filters.

Source: config.json, object "FilterRule"; luxi.json, "filter_rule".
"""

from __future__ import annotations

from ganeti.objects.json_value import JsonValue
from ganeti.objects.record import Record


class FilterRule(Record, frozen=True, kw_only=True):
    """A rule about which jobs may start.

    ``predicates`` are pairs of a name (jobid, opcode, reason) and a filter in prefix form, all of
    which must match; ``action`` is ACCEPT, PAUSE, REJECT, CONTINUE or [RATE_LIMIT, n]; rules are
    tried in the order of (priority, watermark, uuid).
    """

    watermark: int
    priority: int
    predicates: list[list[JsonValue]]
    action: str | list[JsonValue]
    reason_trail: list[list[JsonValue]] = []
    uuid: str
