"""When an instance is backed up by itself, and where to, as tags say it.  Pure.

The tag ``ganeti:backup:every:1d:to:node3+node4:at:22-6:keep:7`` of an instance, its node group or
the cluster is a policy; the nearest object that has one decides.  `WORDS` are its words, which may
come in any order; options, the form of the dashboard and all checks are made from them.

``ganeti:backup:none`` says that there are to be no backups.  Of several policies of one object the
most frequent one counts, and ``none`` above all; a tag that is not understood is passed over, and
told.  ``ganeti:backup:per-node:N`` of the cluster says how many may be under way on a node.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from ganeti.base.errors import OpPrereqError
from ganeti.base.text import parse_duration
from ganeti.objects.tags import BACKUP_TAGS

NONE_TAG: Final = f"{BACKUP_TAGS}none"
PER_NODE_TAG: Final = f"{BACKUP_TAGS}per-node:"
PER_NODE_DEFAULT: Final = 1
HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S
EVERY_S_MIN: Final = 900  # the watcher looks each five minutes
_UNITS: Final = {"w": 7 * DAY_S, "d": DAY_S, "h": HOUR_S, "m": 60}
_HOUR: Final = "0*(?:1?[0-9]|2[0-{}])"


class WordKind(StrEnum):
    """Kinds of values of words."""

    AGE = "age"
    HOURS = "hours"
    NODES = "nodes"
    POINTS = "points"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a value: a pattern that reads the same in JavaScript, and what is wrong else.

    Attributes:
        metavar: the name of the value in help texts.
        wrong: reads after a text that does not fit the pattern.
    """

    pattern: str
    metavar: str
    wrong: str


FORMS: Final[Mapping[WordKind, Form]] = {
    WordKind.AGE: Form("[0-9]{1,9}[smhdw]?", "AGE", "is no time such as 4h, 1d or 1w"),
    WordKind.HOURS: Form(  # two that are the same are none, and 24 is 0
        f"(?!0*([0-9]+)-0*\\1$)(?!0+-0*24$){_HOUR.format(3)}-{_HOUR.format(4)}",
        "HOUR-HOUR",
        "are no hours of a day such as 22-6",
    ),
    WordKind.NODES: Form("[^+]+(?:[+][^+]+)*", "NODE,...", "has an empty name of a node"),
    WordKind.POINTS: Form("0*[1-9][0-9]{0,3}", "POINTS", "is no number of points such as 7"),
    WordKind.FLAG: Form("", "", ""),
}


@dataclass(frozen=True, slots=True)
class Least:
    """A lower limit of a time: so many seconds or another word, and what is said below it."""

    than: int | str
    wrong: str


@dataclass(frozen=True, slots=True)
class Word:
    """A word of policies: its name, also that of its option, and the attribute of `Policy`.

    Attributes:
        help: of the option.
        label: of its field in the dashboard.
        hint: below that field.
        example: shown in the field while it is empty.
        start: what the field has at first.
    """

    name: str
    field: str
    kind: WordKind
    help: str
    label: str
    hint: str = ""
    example: str = ""
    start: str = ""
    is_needed: bool = False
    least: tuple[Least, ...] = ()


WORDS: Final = (
    Word(
        "every",
        "every_s",
        WordKind.AGE,
        "how old the newest export may become: 4h, 1d, 1w",
        "Every",
        "How old the newest export may become: 4h, 1d, 1w.",
        start="1d",
        is_needed=True,
        least=(Least(EVERY_S_MIN, "backups are made every 15 minutes at most"),),
    ),
    Word(
        "to",
        "nodes",
        WordKind.NODES,
        "nodes that may have the export; any without it",
        "To nodes",
        "Any node without them.",
    ),
    Word(
        "at",
        "hours",
        WordKind.HOURS,
        "hours of the master's clock between which backups and rehearsals begin",
        "Between hours",
        "Of the master's clock; all day without them.",
        "22-6",
    ),
    Word(
        "keep",
        "keep",
        WordKind.POINTS,
        "make incremental exports, and keep so many points at least",
        "Incremental, points that are kept",
        "Full exports without a number, of which there is one.",
        "7",
    ),
    Word(
        "late",
        "late_s",
        WordKind.AGE,
        "the age from which on an export is too old",
        "Too old after",
        "Twice the time above without it, and a day more with hours.",
        "3d",
        least=(Least("every", "an export would be too old before the next one is due"),),
    ),
    Word(
        "rehearse",
        "rehearse_s",
        WordKind.AGE,
        "how old the last rehearsal may become: 1w, 30d",
        "Rehearse every",
        "The newest export is brought back beside the instance, started, looked at and removed;"
        " never without a time.",
        "30d",
        least=(
            Least(DAY_S, "rehearsals are made once a day at most"),
            Least("every", "there would be no new export for a rehearsal"),
        ),
    ),
    Word("stop", "stops", WordKind.FLAG, "stop the instance for it", "Stop the instance for it"),
)
_WORDS: Final = {word.name: word for word in WORDS}


@dataclass(frozen=True, slots=True)
class Policy:
    """When and how an instance is backed up.

    Attributes:
        every_s: how old the newest export may become.
        nodes: those that may have it; empty for any.
        hours: between which exports begin, of the day; they may go over midnight.
        keep: how many points of a chain are kept; 0 for full exports, of which there is one.
        late_s: 0 for the default.
        rehearse_s: how old the last rehearsal may become; 0 for none by schedule.
        stops: whether the instance is stopped for it.
    """

    every_s: int
    nodes: tuple[str, ...] = ()
    hours: tuple[int, int] | None = None
    keep: int = 0
    late_s: int = 0
    rehearse_s: int = 0
    stops: bool = False

    @property
    def too_old_s(self) -> int:
        """The age from which on an export is too old."""
        return self.late_s or 2 * self.every_s + self._wait_s

    @property
    def rehearsal_too_old_s(self) -> int:
        """The age from which on the last rehearsal is too old."""
        return 2 * self.rehearse_s + self._wait_s

    @property
    def _wait_s(self) -> int:
        return 0 if self.hours is None else DAY_S

    @property
    def tag(self) -> str:
        """The tag that says it."""
        values = {word: getattr(self, word.field) for word in WORDS}
        said = (_said(word, value) for word, value in values.items() if value)
        return BACKUP_TAGS + ":".join(said)

    @property
    def text(self) -> str:
        """Its words for people."""
        return self.tag.removeprefix(BACKUP_TAGS).replace(":", " ")


def age_text(age_s: int) -> str:
    """Return a time as tags have it: 1d for 86400."""
    for unit, seconds in _UNITS.items():
        if age_s and age_s % seconds == 0:
            return f"{age_s // seconds}{unit}"
    return str(age_s)


def _hours(text: str) -> tuple[int, int]:
    begin, _, end = text.partition("-")
    return int(begin), int(end) % 24


_WRITE: Final[Mapping[WordKind, Callable[[Any], str]]] = {
    WordKind.AGE: age_text,
    WordKind.HOURS: lambda value: f"{value[0]}-{value[1]}",
    WordKind.NODES: "+".join,
    WordKind.POINTS: str,
}
_READ: Final[Mapping[WordKind, Callable[[str], object]]] = {
    WordKind.AGE: parse_duration,
    WordKind.HOURS: _hours,
    WordKind.NODES: lambda text: tuple(text.split("+")),
    WordKind.POINTS: int,
    WordKind.FLAG: lambda _: True,
}


def _said(word: Word, value: object) -> str:
    return word.name if word.kind is WordKind.FLAG else f"{word.name}:{_WRITE[word.kind](value)}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The policy in force for an instance.

    Attributes:
        policy: None for no backups.
        origin: the kind of object that has it; "" if none has one.
    """

    policy: Policy | None = None
    origin: str = ""


def is_limit(tag: str) -> bool:
    """Tell whether a tag says how many backups may be under way on a node."""
    return tag.startswith(PER_NODE_TAG)


def is_policy(tag: str) -> bool:
    """Tell whether a tag is about backups of its object."""
    return tag.startswith(BACKUP_TAGS) and not is_limit(tag)


@functools.lru_cache  # many instances have the same
def read_policy(tag: str) -> Policy | None:
    """Return the policy that a tag says; None for no backups.

    Raises:
        OpPrereqError: it is not understood.
    """
    if tag == NONE_TAG:
        return None
    words = iter(tag.removeprefix(BACKUP_TAGS).split(":"))
    given: dict[str, str] = {}
    for name in words:
        word = _WORDS.get(name)
        if word is None or name in given:
            raise OpPrereqError(f"tag {tag!r}: {name!r} is given twice or no word of a policy")
        given[name] = "" if word.kind is WordKind.FLAG else next(words, "")
    for problem in _problems(given):
        raise OpPrereqError(f"tag {tag!r}: {problem}")
    values: dict[str, Any] = {
        _WORDS[name].field: _READ[_WORDS[name].kind](text) for name, text in given.items()
    }
    return Policy(**values)


def tag_of(given: Mapping[str, str]) -> str:
    """Return the tag of a policy, {word: its value}.

    Raises:
        OpPrereqError: it makes no sense.
    """
    said = [
        word.name if word.kind is WordKind.FLAG else f"{word.name}:{given[word.name]}"
        for word in WORDS
        if word.name in given
    ]
    tag = BACKUP_TAGS + ":".join(said)
    read_policy(tag)
    return tag


def _problems(given: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the values of words, first of each by itself."""
    for word in WORDS:
        if word.is_needed and word.name not in given:
            yield f"it does not say {word.name}: {word.name}:{word.start}"
        text, form = given.get(word.name), FORMS[word.kind]
        if text is not None and not re.fullmatch(form.pattern, text):
            yield f"{word.name}: {text!r} {form.wrong}"
    for word in WORDS:
        for least in word.least if word.name in given else ():
            limit = least.than if isinstance(least.than, int) else parse_duration(given[least.than])
            if parse_duration(given[word.name]) < limit:
                yield f"{word.name}: {least.wrong}"


def rules() -> dict[str, object]:
    """Return the words and what is checked of them, for pages with a form of policies."""
    return {
        "prefix": BACKUP_TAGS,
        "none": NONE_TAG,
        "limit": PER_NODE_TAG,
        "seconds": {"s": 1, **_UNITS},
        "words": [
            {
                "name": word.name,
                "kind": word.kind,
                "label": word.label,
                "hint": word.hint,
                "example": word.example,
                "start": word.start,
                "is_needed": word.is_needed,
                "pattern": FORMS[word.kind].pattern,
                "wrong": FORMS[word.kind].wrong,
                "least": [{"than": each.than, "wrong": each.wrong} for each in word.least],
            }
            for word in WORDS
        ],
    }


def choose(tags: Mapping[str, Sequence[str]]) -> Chosen:
    """Return the policy in force.

    Args:
        tags: {kind of object: its tags}, the nearest first.
    """
    for origin, found in tags.items():
        policies: list[Policy] = []
        for tag in filter(is_policy, found):
            try:
                policy = read_policy(tag)
            except OpPrereqError:
                continue
            if policy is None:
                return Chosen(None, origin)
            policies.append(policy)
        if policies:
            return Chosen(min(policies, key=lambda each: (each.every_s, each.tag)), origin)
    return Chosen()


def problems_of(tags: Iterable[str]) -> list[str]:
    """Return what is wrong with the tags of one object."""
    known, problems = list(filter(is_policy, tags)), []
    for tag in known:
        try:
            read_policy(tag)
        except OpPrereqError as err:
            problems.append(err.message)
    if len(known) > 1:
        problems.append(f"there are several policies of backups: {', '.join(sorted(known))}")
    return problems


def per_node_of(cluster_tags: Iterable[str]) -> int:
    """Return how many backups may be under way on a node; of several tags the lowest counts."""
    words = [each.removeprefix(PER_NODE_TAG) for each in cluster_tags if is_limit(each)]
    numbers = [int(word) for word in words if word.isdecimal()]
    return min(numbers, default=PER_NODE_DEFAULT)
