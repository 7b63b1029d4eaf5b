"""Job filters: the operator's rules about which jobs may come in and start.

Rules are tried in the order of (priority, watermark, UUID); the first whose predicates all match
and whose action is not CONTINUE decides.  Predicates are filters in prefix form, on the job's id,
on any of its opcodes, or on any step of their reason trails.

The cost of rules is bounded for each job.  A job that they take too long for is refused, or held
back where it was accepted already: a rule is a brake, which nobody gets past by a long text.

Source: luxi.json, "filter_rule".
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base.errors import JobQueueError, OpPrereqError, ParameterError
from ganeti.jobs.record import QueuedJob
from ganeti.jobs.scheduler import Hold
from ganeti.objects.model import FilterRule
from ganeti.objects.query_words import FieldKind
from ganeti.protocol.luxi import RATE_LIMIT_PREFIX
from ganeti.query.fields import AnyField, FieldSpec
from ganeti.query.filter_prefix import FindField, compile_filter
from ganeti.query.regex import TooCostlyError
from ganeti.system import clock

logger = logging.getLogger(__name__)

ACTIONS: Final = ("ACCEPT", "PAUSE", "REJECT", "CONTINUE", "RATE_LIMIT")
# Processor time for one job and all rules: a thousand times that of usual rules.
EFFORT_S_MAX: Final = 0.2
WATERMARK: Final = "watermark"  # in a jobid predicate: the last job when the rule was made

Items = Callable[[QueuedJob], Iterable[Any]]
Match = Callable[[QueuedJob, "Effort"], bool]


class Verdict(msgspec.Struct, frozen=True):
    """The decision of the rules about a job: refused, or held back, or neither."""

    rejected_by: str | None = None
    hold: Hold | None = None
    is_too_costly: bool = False  # to say more; it is held back meanwhile

    def check(self) -> None:
        """Refuse the job if a rule says so, or cannot say.

        Raises:
            JobQueueError: names the rule.
        """
        if self.is_too_costly and self.hold is not None:
            raise JobQueueError(too_costly_text(self.hold.rule_uuid))
        if self.rejected_by is not None:
            raise JobQueueError(rejection_text(self.rejected_by))


FREE: Final = Verdict()


def rejection_text(rule_uuid: str) -> str:
    """Say which rule refuses a job."""
    return f"rejected by job filter {rule_uuid}; 'gnt-filter info {rule_uuid}' shows it"


def too_costly_text(rule_uuid: str) -> str:
    """Say which rule takes too long to be tried."""
    return (
        f"job filter {rule_uuid} takes too long to be tried on this job; use simpler regular"
        f" expressions in it ('gnt-filter info {rule_uuid}'), or fewer opcodes in a job"
    )


class Effort:
    """The processor time that one job may take.

    Args:
        spent_s: tells the processor time spent so far.
    """

    def __init__(self, spent_s: Callable[[], float]) -> None:
        self._spent_s = spent_s
        self._limit_s = spent_s() + EFFORT_S_MAX

    def check(self) -> None:
        """Go on only while there is some left; raises TooCostlyError."""
        if self._spent_s() > self._limit_s:
            raise TooCostlyError("the time for this job is over")


def _fields(get: Callable[[Any, str], object], names: Sequence[str] | None = None) -> FindField:
    """Find the fields of one kind of item: named ones, or all that an opcode has."""

    def find(name: str) -> AnyField | None:
        if names is not None and name not in names:
            return None
        return FieldSpec(name, name, FieldKind.OTHER, name, lambda item, _context: get(item, name))

    return find


_REASON_FIELDS: Final = ("source", "reason", "timestamp")


def _reason_part(step: Sequence[object], name: str) -> object:
    index = _REASON_FIELDS.index(name)
    return step[index] if index < len(step) else None


def _reason_steps(job: QueuedJob) -> Iterator[Sequence[object]]:
    for op in job.ops:
        trail = op.input.get("reason")
        if isinstance(trail, list):
            yield from (step for step in trail if isinstance(step, list))


_RATE_LIMIT: Final = re.compile(RATE_LIMIT_PREFIX + r"([1-9]\d{0,8}):(.+)", re.DOTALL | re.ASCII)


def limits_of(job: QueuedJob) -> tuple[Hold, ...]:
    """Return the limits that a job brings itself: reasons as ``rate-limit:NUMBER:LABEL``.

    So many jobs with that label run at once; the smallest of the numbers for a label counts.
    """
    limits: dict[str, int] = {}
    for step in _reason_steps(job):
        found = _RATE_LIMIT.fullmatch(str(_reason_part(step, "reason")))
        if found:
            number, label = int(found[1]), found[2]
            limits[label] = min(number, limits.get(label, number))
    return tuple(Hold(RATE_LIMIT_PREFIX + label, number) for label, number in limits.items())


# predicate -> the fields of its items, and the items of a job
_PREDICATES: Final[Mapping[str, tuple[FindField, Items]]] = {
    "jobid": (_fields(lambda job, _name: job.id, ("id",)), lambda job: [job]),
    "opcode": (
        _fields(lambda values, name: values.get(name)),
        lambda job: [op.input for op in job.ops],
    ),
    "reason": (_fields(_reason_part, _REASON_FIELDS), _reason_steps),
}


class Rule:
    """A rule, checked and fit to be tried.

    Raises:
        OpPrereqError: unknown action or predicate (wrong_input).
        ParameterError: a predicate's filter is wrong.
    """

    def __init__(self, rule: FilterRule) -> None:
        self.uuid = rule.uuid
        self.order = (rule.priority, rule.watermark, rule.uuid)
        self.action, self.running_max = parse_action(rule.action)
        self._matches = [_predicate(each, rule.watermark) for each in rule.predicates]

    def matches(self, job: QueuedJob, effort: Effort) -> bool:
        """Tell whether all predicates match; raises TooCostlyError."""
        return all(match(job, effort) for match in self._matches)

    def verdict(self) -> Verdict:
        """Return the decision of this rule about a job that it matches."""
        match self.action:
            case "REJECT":
                return Verdict(rejected_by=self.uuid)
            case "PAUSE":
                return Verdict(hold=Hold(self.uuid, 0))
            case "RATE_LIMIT":
                return Verdict(hold=Hold(self.uuid, self.running_max))
        return FREE


def parse_action(action: object) -> tuple[str, int]:
    """Return the name of an action and its number (0 if it has none).

    Raises:
        OpPrereqError: it is not one (wrong_input).
    """
    match action:
        case "ACCEPT" | "PAUSE" | "REJECT" | "CONTINUE":
            return str(action), 0
        case ["RATE_LIMIT", int(count)] if not isinstance(count, bool) and count > 0:
            return "RATE_LIMIT", count
    raise OpPrereqError(
        f"{action!r} is not a filter action; known are ACCEPT, PAUSE, REJECT, CONTINUE and"
        " [RATE_LIMIT, number above 0]"
    )


def _predicate(predicate: Sequence[object], watermark: int) -> Match:
    match predicate:
        case [str(kind), qfilter] if kind in _PREDICATES:
            fields, items = _PREDICATES[kind]
        case _:
            raise OpPrereqError(
                f"{predicate!r} is not a predicate: [{'|'.join(_PREDICATES)}, filter] is needed"
            )
    if kind == "jobid":
        qfilter = _with_watermark(qfilter, watermark)
    test = compile_filter(qfilter, fields, "id").test

    def matches(job: QueuedJob, effort: Effort) -> bool:
        for item in items(job):
            effort.check()
            try:
                if test(item, _NO_CONTEXT, False):
                    return True
            except TooCostlyError:
                raise
            except ParameterError as err:  # a value of another type is no match; others may be
                logger.debug("Job filter on job %s: %s; ignoring", job.id, err)
        return False

    return matches


_NO_CONTEXT: Final[Any] = None  # the fields of jobs look at nothing else


def _with_watermark(qfilter: object, watermark: int) -> object:
    if qfilter == WATERMARK:
        return watermark
    if isinstance(qfilter, list) and qfilter:
        return [qfilter[0], *(_with_watermark(each, watermark) for each in qfilter[1:])]
    return qfilter


class JobFilters:
    """All rules, in the order in which they are tried."""

    def __init__(
        self,
        rules: Iterable[FilterRule] = (),
        *,
        spent_s: Callable[[], float] = clock.processor_time,
    ) -> None:
        self._rules: list[Rule] = []
        self._spent_s = spent_s
        for rule in rules:
            try:
                self._rules.append(Rule(rule))
            except (OpPrereqError, ParameterError) as err:
                logger.warning("Job filter %s is wrong: %s; ignoring", rule.uuid, err)
        self._rules.sort(key=lambda rule: rule.order)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def judge(self, job: QueuedJob) -> Verdict:
        """Return the decision of all rules about a job."""
        if not self._rules:
            return FREE
        effort = Effort(self._spent_s)
        for rule in self._rules:
            try:
                if rule.action != "CONTINUE" and rule.matches(job, effort):
                    return rule.verdict()
            except TooCostlyError as err:
                logger.warning("Job %s: %s: %s", job.id, too_costly_text(rule.uuid), err.message)
                return Verdict(hold=Hold(rule.uuid, 0), is_too_costly=True)
        return FREE
