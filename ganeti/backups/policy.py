"""When an instance is backed up by itself, and where to, as tags say it.  Pure.

The tag ``ganeti:backup:every:1d:to:node3+node4:at:22-6:keep:7`` of an instance, its node group or
the cluster is a policy; the nearest object that has one decides.  Its words, in any order:

    every:AGE   how old the newest export may become
    to:NODES    the nodes that may have the export; any if it is left out
    at:HOURS    of the master's clock, between which backups begin
    keep:N      incremental exports, of which N points are kept; full ones if it is left out
    late:AGE    from when on an export is too old; twice as long as ``every`` if it is left out
    stop        the instance is stopped for it; a running one goes on otherwise

``ganeti:backup:none`` says that there are to be none.  Of several policies of one object the most
frequent one counts, and ``none`` above all; a tag that is not understood is passed over, and told.
``ganeti:backup:per-node:N`` of the cluster says how many may be under way on a node.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.base.text import parse_duration
from ganeti.objects.tags import BACKUP_TAGS

NONE_TAG: Final = f"{BACKUP_TAGS}none"
PER_NODE_TAG: Final = f"{BACKUP_TAGS}per-node:"
PER_NODE_DEFAULT: Final = 1
EVERY_S_MIN: Final = 900  # the watcher looks each five minutes
HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S
_UNITS: Final = {"w": 7 * DAY_S, "d": DAY_S, "h": HOUR_S, "m": 60}


@dataclass(frozen=True, slots=True)
class Policy:
    """When and how an instance is backed up.

    Attributes:
        every_s: how old the newest export may become.
        nodes: those that may have it; empty for any.
        hours: between which exports begin, of the day; they may go over midnight.
        keep: how many points of a chain are kept; 0 for full exports, of which there is one.
        late_s: 0 for the default.
        stops: whether the instance is stopped for it.
    """

    every_s: int
    nodes: tuple[str, ...] = ()
    hours: tuple[int, int] | None = None
    keep: int = 0
    late_s: int = 0
    stops: bool = False

    @property
    def too_old_s(self) -> int:
        """The age from which on an export is too old."""
        wait_s = 0 if self.hours is None else DAY_S
        return self.late_s or 2 * self.every_s + wait_s

    @property
    def tag(self) -> str:
        """The tag that says it."""
        words = [f"every:{age_text(self.every_s)}"]
        words += [f"to:{'+'.join(self.nodes)}"] if self.nodes else []
        words += [f"at:{self.hours[0]}-{self.hours[1]}"] if self.hours else []
        words += [f"keep:{self.keep}"] if self.keep else []
        words += [f"late:{age_text(self.late_s)}"] if self.late_s else []
        words += ["stop"] if self.stops else []
        return BACKUP_TAGS + ":".join(words)

    @property
    def text(self) -> str:
        """Its words for people."""
        return self.tag.removeprefix(BACKUP_TAGS).replace(":", " ")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The policy in force for an instance.

    Attributes:
        policy: None for no backups.
        origin: the kind of object that has it; "" if none has one.
    """

    policy: Policy | None = None
    origin: str = ""


def age_text(age_s: int) -> str:
    """Return a time as tags have it: 1d for 86400."""
    for unit, seconds in _UNITS.items():
        if age_s and age_s % seconds == 0:
            return f"{age_s // seconds}{unit}"
    return str(age_s)


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
    for word in words:
        if word in given or word not in ("every", "to", "at", "keep", "late", "stop"):
            raise OpPrereqError(f"tag {tag!r}: {word!r} is given twice or no word of a policy")
        given[word] = "" if word == "stop" else next(words, "")
    if "every" not in given:
        raise OpPrereqError(f"tag {tag!r} does not say how often: every:1d")
    return _policy_of(tag, given)


def _policy_of(tag: str, given: Mapping[str, str]) -> Policy:
    try:
        policy = Policy(
            every_s=parse_duration(given["every"]),
            nodes=tuple(given["to"].split("+")) if "to" in given else (),
            hours=read_hours(given["at"]) if "at" in given else None,
            keep=_number(given["keep"]) if "keep" in given else 0,
            late_s=parse_duration(given["late"]) if "late" in given else 0,
            stops="stop" in given,
        )
    except OpPrereqError as err:
        raise OpPrereqError(f"tag {tag!r}: {err.message}") from err
    if policy.every_s < EVERY_S_MIN:
        raise OpPrereqError(f"tag {tag!r}: backups are made every {EVERY_S_MIN} s at most")
    if "late" in given and policy.late_s < policy.every_s:
        raise OpPrereqError(f"tag {tag!r}: an export is too old before the next one is due")
    if not all(policy.nodes):
        raise OpPrereqError(f"tag {tag!r}: the name of a node is empty")
    return policy


def read_hours(text: str) -> tuple[int, int]:
    """Return the hours that a text such as 22-6 says.

    Raises:
        OpPrereqError: it cannot be understood.
    """
    first, _, last = text.partition("-")
    if first.isdecimal() and last.isdecimal():
        begin, end = int(first), int(last) % 24
        if begin < 24 and int(last) <= 24 and begin != end:
            return begin, end
    raise OpPrereqError(f"{text!r} are no hours of a day such as 22-6")


def _number(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 10_000:
        raise OpPrereqError(f"{text!r} is no number of points such as 7")
    return int(text)


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
