"""Decides from the answers of the nodes whether this one is, or may become, the master.

Theory of operation.  Every node remembers the master's name.  A daemon of the master starts only
if half plus one of all nodes, offline ones included, name this node, and if no node that answered
has a newer configuration; so two groups of nodes that do not see each other never have a
master each.  A newer configuration on a node that follows another master does not count against
such a majority, nor while there may be one: it was written apart from it, and nobody acknowledged
it.

A node that is to take the master's place needs the answers of half plus one of all nodes as well,
and those of more than C - W of the C candidates: a record counts when it is on W of them, so the
answers then include one that has it, and the newest is known (`plan_takeover`); a node that takes
itself for the master, against a majority that names another one, is not believed.  It announces the
serial number of the configuration that it is about to write, well beyond all that are known, to the
others; a node that has taken note of such a *claim* takes note of no other that was planned before
it heard of this one.  So of two nodes that try at once, at most one finds enough others.

The old master may live, out of sight, and get records acknowledged until then.  A node that follows
the new one takes nothing of the old one any more.  So what is to be taken is decided by what the
followers answer (`plan_of_followers`): again half plus one of all nodes, and more than C - W of the
candidates, since fewer than W others take no record that counts.

Source: ARCHITECTURE, invariants 8 and 9.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Final

import msgspec
from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.text import natural_sorted, shown
from ganeti.copies.quorum import copies_needed
from ganeti.protocol.node_rpc_values import NodeFacts

# By how much a new master's first configuration is ahead of all that are known: a master that has
# been cut off starts no jobs, and its running jobs do not make so many changes.
SERIAL_LEAP: Final = 10_000
# The same for job ids, when candidates that may know of higher ones did not answer.
JOB_ID_LEAP: Final = 1000

OVERRIDE: Final = "--no-voting --yes-do-it"
UNTRUSTED: Final = ("is not that of a master candidate", "is not one of this cluster")
"""Words by which a node refuses the certificate of another one, or is refused."""


class Answer(msgspec.Struct, frozen=True):
    """The answer of one node; a node that runs Ganeti 3.0 only names the master."""

    master_name: str
    facts: NodeFacts | None = None


class Poll(msgspec.Struct, frozen=True):
    """The answers of all nodes to one question.

    Attributes:
        nodes: all nodes, this one and those offline included.
        answers: by node name, this one's included.
        silent: why others did not answer, as far as that is known.
    """

    own_name: str
    nodes: Sequence[str]
    answers: Mapping[str, Answer]
    silent: Mapping[str, str] = {}

    @property
    def own(self) -> NodeFacts:
        """The facts of this node itself."""
        facts = self.answers[self.own_name].facts
        assert facts is not None
        return facts

    def known(self) -> dict[str, NodeFacts]:
        """Return the facts of all nodes that told them, those with another cluster's left out."""
        own_uuid = self.own.cluster_uuid
        return {
            name: answer.facts
            for name, answer in self.answers.items()
            if answer.facts is not None
            if not own_uuid or answer.facts.cluster_uuid in ("", own_uuid)
        }


class Standing(Enum):
    """Whether this node is the master."""

    CONFIRMED = auto()
    REFUSED = auto()
    UNDECIDED = auto()  # too few answers


class Verdict(msgspec.Struct, frozen=True):
    """The verdict of the votes: is this node master; if not, why, and which node is, if known.

    ``is_deposed``: another one is for sure, or must be; a daemon that runs has to end.
    """

    standing: Standing
    reason: str = ""
    master_name: str | None = None
    is_deposed: bool = False


def votes_needed(node_count: int) -> int:
    """Return how many nodes must agree: half of them plus one."""
    return node_count // 2 + 1


def judge(poll: Poll) -> Verdict:
    """Decide whether this node is the master."""
    own_name, own = poll.own_name, poll.own
    if own.master_name != own_name:
        return Verdict(
            Standing.REFUSED,
            f"this node ({own_name}) is not the master; as far as it knows, that is"
            f" {own.master_name or 'nobody'}",
            own.master_name or None,
            is_deposed=bool(own.master_name),
        )
    votes = {
        name: _vote(answer, own_name, own.config_serial) for name, answer in poll.answers.items()
    }
    needed = votes_needed(len(poll.nodes))
    mine = sum(name == own_name for name in votes.values())
    coming = len(set(poll.nodes) - poll.answers.keys() - poll.silent.keys())
    others = {name for name in votes.values() if name not in (own_name, "")}
    chosen = [name for name in others if list(votes.values()).count(name) >= needed]
    newer = newer_configuration(poll, of_followers=mine + coming >= needed)
    if newer is not None and not chosen:  # else it is that of the master, and nothing is amiss
        return Verdict(Standing.REFUSED, newer, is_deposed=True)
    if mine >= needed:
        return Verdict(Standing.CONFIRMED)
    undecided = len(poll.nodes) - len(votes)
    reason = (
        f"{mine} of {len(poll.nodes)} nodes say that this node ({own_name}) is the master,"
        f" {needed} are needed: {describe_votes(votes, poll.silent)}"
    )
    if chosen or mine + undecided < needed:
        return Verdict(Standing.REFUSED, reason, next(iter(chosen), None), is_deposed=bool(chosen))
    return Verdict(Standing.UNDECIDED, reason)


def newer_configuration(poll: Poll, *, of_followers: bool = False) -> str | None:
    """Return the problem and its remedy if a node has a newer configuration, else None.

    Args:
        of_followers: look only at nodes for which this one is the master.
    """
    serial, name = max(
        (facts.config_serial, name)
        for name, facts in poll.known().items()
        if not of_followers or facts.master_name == poll.own_name
    )
    if serial <= poll.own.config_serial:
        return None
    return (
        f"node {name} has a newer configuration (serial number {serial}) than this one"
        f" ({poll.own_name}: {poll.own.config_serial}); 'gnt-cluster master-failover', there or"
        " here, takes the newest"
    )


def newer_jobs(poll: Poll) -> list[str]:
    """Return the nodes that know of higher job ids than this one."""
    own = poll.own.last_job_id
    return [name for name, facts in poll.known().items() if facts.last_job_id > own]


def highest_job_id(poll: Poll) -> int:
    """Return the highest job id that any node knows of."""
    return max(facts.last_job_id for facts in poll.known().values())


def may_ask_again(
    facts: Iterable[NodeFacts], *, own_name: str, serial_no: int, needed: int
) -> bool:
    """Decide whether a node may ask again after too few others took note of its announcement.

    Of several authors at once, none with a majority, the first by name may: the others withdraw.

    Args:
        facts: the present facts of the nodes, this one included.
        serial_no: of the configuration that this one announced; rivals have no lower one.
        needed: how many nodes are a majority.
    """
    claims = [each.claim_name for each in facts if each.claim_serial >= serial_no]
    rivals = set(claims) - {own_name}
    if any(claims.count(name) >= needed for name in rivals):
        return False
    return natural_sorted([own_name, *rivals])[0] == own_name


def _vote(answer: Answer, own_name: str, own_serial: int) -> str:
    """Return the node that one votes for: the author of a newer configuration, or the master."""
    facts = answer.facts
    if facts is not None and facts.claim_serial > own_serial and facts.claim_name != own_name:
        return facts.claim_name
    return answer.master_name


_SILENT_NAMED_MAX: Final = 3


def describe_votes(votes: Mapping[str, str], silent: Mapping[str, str]) -> str:
    """Return the answers of all nodes as one line for messages."""
    parts = [
        f"{shown(n for n, vote in votes.items() if vote == name)}"
        f" {'names' if list(votes.values()).count(name) == 1 else 'name'} {name or 'nobody'}"
        for name in natural_sorted(set(votes.values()))
    ]
    reasons = {name: f"({reason})" for name, reason in silent.items()}
    if len(silent) <= _SILENT_NAMED_MAX:
        parts += [f"{name} does not answer {reasons[name]}" for name in natural_sorted(silent)]
    else:
        named = shown((f"{name} {reason}" for name, reason in reasons.items()), _SILENT_NAMED_MAX)
        parts.append(f"{len(silent)} of {len({*silent, *votes})} nodes do not answer: {named}")
    return "; ".join(parts)


# Taking over.


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """The steps by which a node becomes master.

    Attributes:
        config_from: has the newest configuration; preferably this node.
        serial_no: of the configuration that this node is to write.
        hand_over: nodes that answer and are, or take themselves for, the master: they stop first.
        queue_from: nodes with copies of the job queue to merge, this one included.
        strays: nodes whose configuration was written apart from the cluster.
        is_complete: every candidate answered, so no job id is unknown.
        warnings: sentences for the operator.
    """

    config_from: str
    serial_no: int
    hand_over: tuple[str, ...]
    queue_from: tuple[str, ...]
    strays: frozenset[str] = frozenset()
    is_complete: bool
    warnings: tuple[str, ...] = ()


def answers_needed(candidates: Collection[str]) -> int:
    """Return how many candidates have to answer, this one included, so that one has each record."""
    return len(candidates) - copies_needed(len(candidates)) + 1


def answers_beside_old_copy(candidates: Collection[str], needed: int) -> int:
    """Return how many candidates have to answer one whose copy came from a backup, itself included.

    One more than are needed otherwise: each record that counts, and that this one lacks, must be on
    another one that answers.
    """
    return min(len(candidates), needed + 1)


def plan_takeover(
    poll: Poll,
    *,
    no_voting: bool = False,
    own_is_old: bool = False,
    needed: Callable[[Collection[str]], int] = answers_needed,
) -> Takeover:
    """Decide how this node becomes master.

    Args:
        needed: how many of a cluster's candidates have to answer.
        no_voting: the answers of others do not count; this node's configuration is used.
        own_is_old: this node's copy came from a backup, so it is no answer of a candidate.

    Raises:
        OpPrereqError: it must not; the text names the missing nodes and the remedy.
    """
    known = poll.known()
    _check_own(poll, known)
    strays = _strays(poll)
    followed = {name: facts for name, facts in known.items() if name not in strays}
    newest = poll.own_name if no_voting else _newest(poll, followed or known)
    _check_is_candidate(poll, known, newest)
    if not no_voting:
        _check_votes(poll)
        _check_candidates(poll, followed, needed, own_is_old=own_is_old)
    serials = [max(facts.config_serial, facts.claim_serial) for facts in known.values()]
    candidates = frozenset(name for facts in known.values() for name in facts.candidates)
    return Takeover(
        config_from=newest,
        serial_no=max(serials) + SERIAL_LEAP,
        hand_over=_masters_to_stop(poll),
        queue_from=tuple(natural_sorted(known)),
        strays=strays,
        is_complete=candidates <= known.keys(),
        warnings=tuple(_warnings(poll, known, newest)),
    )


def plan_of_followers(
    poll: Poll,
    before: Takeover,
    *,
    no_voting: bool = False,
    own_is_old: bool = False,
    needed: Callable[[Collection[str]], int] = answers_needed,
) -> Takeover:
    """Decide what to take, once nodes were told to follow this one: the newest that they have.

    Args:
        before: the plan by which they were told.
        needed, no_voting, own_is_old: as of `plan_takeover`.

    Raises:
        OpPrereqError: too few of them answer; the text names the others.
    """
    votes = {
        name: _vote(answer, poll.own_name, before.serial_no)
        for name, answer in poll.answers.items()
        if name != poll.own_name
    }
    others = {
        name: f"it follows {v or 'nobody'}" for name, v in votes.items() if v != poll.own_name
    }
    followers = {name: answer for name, answer in poll.answers.items() if name not in others}
    heard = Poll(poll.own_name, poll.nodes, followers, {**poll.silent, **others})
    known = heard.known()
    believed = {name: facts for name, facts in known.items() if name not in before.strays} or known
    if not no_voting:
        _check_votes(heard)
        _check_candidates(heard, believed, needed, own_is_old=own_is_old)
    return replace(
        before,
        config_from=poll.own_name if no_voting else _newest(poll, believed),
        queue_from=tuple(natural_sorted(known)),
    )


def _newest(poll: Poll, known: Mapping[str, NodeFacts]) -> str:
    """Return the node with the newest configuration, this one among equals."""
    return max(known, key=lambda name: (known[name].config_serial, name == poll.own_name))


def _strays(poll: Poll) -> frozenset[str]:
    """Return nodes that take themselves for the master while most nodes name another one.

    What they wrote, however new, was written apart from the cluster: nobody acknowledged it.
    """
    named = [answer.master_name for answer in poll.answers.values()]
    chosen = {name for name in named if named.count(name) >= votes_needed(len(poll.nodes))}
    if not chosen:
        return frozenset()
    return frozenset(
        name
        for name, answer in poll.answers.items()
        if answer.master_name == name and name not in chosen
    )


def _check_own(poll: Poll, known: Mapping[str, NodeFacts]) -> None:
    own = poll.own
    if own.daemons:
        is_master = own.master_name == poll.own_name
        raise OpPrereqError(
            f"this node ({poll.own_name}) is the master already: {' and '.join(own.daemons)} run"
            " here; this command is for the node that is to become master"
            if is_master
            else f"{' and '.join(own.daemons)} run on this node ({poll.own_name}), although the"
            f" master is {own.master_name or 'unknown'}; stop them first",
            ErrorCode.STATE,
        )
    if not own.config_serial:
        raise OpPrereqError(
            f"this node ({poll.own_name}) has no copy of the configuration, so it cannot become"
            f" master; {_better_nodes(poll, known)}",
            ErrorCode.STATE,
        )


def _check_votes(poll: Poll) -> None:
    needed = votes_needed(len(poll.nodes))
    if len(poll.answers) >= needed:
        return
    raise OpPrereqError(
        f"{len(poll.answers)} of {len(poll.nodes)} nodes answer, {needed} are needed:"
        f" {shown(poll.answers)} answered;"
        f" {_not_answering(poll, set(poll.nodes) - set(poll.answers))}."
        f" {_remedy(poll)}",
        ErrorCode.ENVIRON,
    )


_OLD_COPY: Final = (
    " (one more than otherwise, as the configuration here is from a backup, put here by"
    " 'gnt-cluster restore')"
)


def _check_candidates(
    poll: Poll,
    known: Mapping[str, NodeFacts],
    answers: Callable[[Collection[str]], int],
    *,
    own_is_old: bool,
) -> None:
    """Refuse unless the candidates that answered have every record that counts.

    The lists of candidates of all nodes that answered are checked: this one's own may be old.
    """
    views = {frozenset(facts.candidates) for facts in known.values()} - {frozenset[str]()}
    for view in sorted(views, key=sorted):
        reached = view & known.keys()
        needed = answers(view)
        if own_is_old:
            needed = answers_beside_old_copy(view, needed)
        if len(reached) >= needed:
            continue
        raise OpPrereqError(
            f"the newest configuration and job queue may be on nodes that do not answer: of the"
            f" master candidates {shown(view)} {needed} must answer"
            f"{_OLD_COPY if own_is_old else ''}, and only"
            f" {shown(reached) or 'none'} did;"
            f" {_not_answering(poll, view - reached)}. {_remedy(poll)}",
            ErrorCode.ENVIRON,
        )


def _check_is_candidate(poll: Poll, known: Mapping[str, NodeFacts], newest: str) -> None:
    candidates = known[newest].candidates
    if poll.own_name not in candidates:
        raise OpPrereqError(
            f"this node ({poll.own_name}) is not a master candidate, as of the newest"
            f" configuration (serial number {known[newest].config_serial}, on node {newest});"
            f" {_better_nodes(poll, known)}",
            ErrorCode.STATE,
        )


def _better_nodes(poll: Poll, known: Mapping[str, NodeFacts]) -> str:
    """Name the nodes that could become master.

    Nodes answer only master candidates; another node has to go by its own facts.
    """
    newest = max(known, key=lambda name: known[name].config_serial)
    masters = {facts.master_name for facts in known.values()} | {poll.own_name}
    others = [name for name in known[newest].candidates if name not in masters]
    if not others:
        return "no other master candidate is known"
    best = sorted(others, key=lambda name: name not in known or -known[name].config_serial)
    return f"run it on {best[0]}" + (f" (or {', '.join(best[1:])})" if best[1:] else "")


def _not_answering(poll: Poll, names: Iterable[str]) -> str:
    texts = [
        f"{name} ({poll.silent.get(name, 'it does not say what it has')})"
        for name in natural_sorted(names)
    ]
    return f"missing: {shown(texts)}"


def _remedy(poll: Poll) -> str:
    remedy = (
        "Start the node daemons there; or, if you are sure that no master runs there and can do"
        f" without the changes that only they know, use {OVERRIDE}"
    )
    if not any(words in reason for reason in poll.silent.values() for words in UNTRUSTED):
        return remedy
    return (
        "Some have other certificates than this node, as when the master is lost while it replaces"
        " them; another master candidate may be trusted by more nodes."
        f" {remedy}, and take them in again by 'gnt-node add --readd NODE'"
    )


def _masters_to_stop(poll: Poll) -> tuple[str, ...]:
    """Return the nodes that have to give up the master role first.

    Raises:
        OpPrereqError: one cannot be asked to, as its release is too old.
    """
    named: set[str] = set()
    for name, answer in poll.answers.items():
        named.add(answer.master_name)
        if answer.facts is not None:
            named.add(answer.facts.claim_name)
            if answer.facts.daemons:
                named.add(name)
    alive = natural_sorted((named & poll.answers.keys()) - {poll.own_name})
    for name in alive:
        if poll.answers[name].facts is None:
            raise OpPrereqError(
                f"node {name} may be master and runs another release, which cannot be asked to"
                " hand over: stop its node daemon and the daemons of the master there first",
                ErrorCode.STATE,
            )
    return tuple(alive)


def _warnings(poll: Poll, known: Mapping[str, NodeFacts], newest: str) -> list[str]:
    found = []
    for name in sorted(_dead_masters(poll)):
        why = poll.silent.get(name, "unknown node")
        found.append(
            f"{name}, which was the master, does not answer ({why}): should it still run, keep it"
            " from doing so"
        )
    newer = [
        name
        for name in natural_sorted(known)
        if known[name].config_serial > known[newest].config_serial
    ]
    found += [
        f"the configuration on {name} (serial number {known[name].config_serial}) is newer than"
        f" the one used ({known[newest].config_serial}), and is overwritten"
        for name in newer
    ]
    return found


def _dead_masters(poll: Poll) -> Collection[str]:
    named = {answer.master_name for answer in poll.answers.values()} - {""}
    return named - poll.answers.keys()
