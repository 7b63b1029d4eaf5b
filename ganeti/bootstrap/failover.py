"""Making this node the master, with the old master alive or dead.

Each node takes note of one announcement of a next master at a time, so of several authors at most
one has the majority.  When nobody has it, the author whose name comes first stays and asks again,
and the others withdraw their announcements: exactly one of them goes on.

A straight recipe, decided in `ganeti.jobs.votes`.  Nothing is changed until the answers allow
it; then the old master, if it answers, becomes idle and stops; the other nodes take note of the
next master; this node takes the jobs that it lacks; the others follow; this node takes the newest
configuration that the followers have, and again the jobs, and writes them; the daemons start here,
and vote once more themselves.  A take-over that is cut off at any point is resumed by doing it
again, on the same node or another one.

An old master that lives, but is not reached from here, may get changes acknowledged until the
others follow, and none after that: so the configuration is written after they were asked what they
have by then, and not before.

Source: ARCHITECTURE, invariant 9.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from ganeti.base.daemons import NODED
from ganeti.base.errors import (
    ConfigurationError,
    GenericError,
    LockError,
    OpExecError,
    X509CertError,
    wrong_state,
)
from ganeti.base.paths import Paths
from ganeti.base.text import natural_sorted
from ganeti.bootstrap.queue_merge import Merged, describe, merge_queue, raise_serial
from ganeti.clients import master_poll
from ganeti.clients.luxi import LuxiClient
from ganeti.clients.node_rpc import NodeRpcClient, RpcResult, Target
from ganeti.config.config_data import (
    find_node,
    nodes_of,
    split_config,
    with_candidate_certs,
    with_master,
)
from ganeti.config.overlay import decode_record
from ganeti.config.ssconf_values import ssconf_values
from ganeti.config.state import ConfigState
from ganeti.jobs import votes
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine.node import Node
from ganeti.objects.model import Cluster, master_network_parameters
from ganeti.protocol.luxi import DrainedBy
from ganeti.protocol.node_calls import NodeCalls
from ganeti.store import config_file, lease, master_facts, ssconf
from ganeti.store.job_files import JobFiles
from ganeti.store.master_facts import Claim
from ganeti.store.notes import restoration
from ganeti.system import clock, daemon_control
from ganeti.transport.tls import digest_of_file

logger = logging.getLogger(__name__)

DRAIN_TIMEOUT_S: Final = 120.0  # how long the old master has to finish its jobs
QUEUE_LOCK_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 30.0
_MARKED_OFFLINE: Final = "marked offline, not asked"
_LOOKS_MAX: Final = 3  # each look at newer lists of nodes may lead to still newer ones

Feedback = Callable[[str], None]


# A rival withdraws within two calls; this long a node that follows him may be busy with others.
PATIENCE_S: Final = 30.0
_ASK_AGAIN_S: Final = 0.2


class Announcement:
    """One node's wish to become master with a configuration of that serial number.

    Args:
        poll: the answers of the nodes from which the serial number was chosen.
        targets: the other nodes.
    """

    def __init__(
        self,
        paths: Paths,
        rpc: NodeRpcClient,
        poll: votes.Poll,
        serial_no: int,
        targets: Mapping[str, Target],
    ) -> None:
        self._paths = paths
        self._rpc = rpc
        self._serial_no = serial_no
        self._own_name = poll.own_name
        self._known = poll.known()
        self._needed = votes.votes_needed(len(poll.nodes))
        self._silent_votes = len(poll.answers) - len(self._known)  # of another release
        self._targets = {name: targets[name] for name in self._known if name in targets}
        self._promised: set[str] = set()

    def make(self, *, no_voting: bool) -> None:
        """Let the nodes take note that this one comes next.

        Raises:
            OpPrereqError: another node announced itself first.
        """
        master_facts.take_claim(
            self._paths,
            known_serial=self._known[self._own_name].claim_serial,
            claim=Claim(self._serial_no, self._own_name),
        )
        deadline = clock.monotonic() + PATIENCE_S
        while refused := self._ask():
            if len(self._promised) + 1 + self._silent_votes >= self._needed or no_voting:
                return
            is_contested = any(map(_is_answer, refused)) and self._may_ask_again()
            if clock.monotonic() >= deadline or not is_contested:
                self.withdraw()
                reasons = "; ".join(result.failure_text for result in refused)
                raise wrong_state(
                    f"too few nodes agree that this one becomes master: {reasons}. Try again, on"
                    " one node at a time"
                )
            clock.pause(_ASK_AGAIN_S)

    def _ask(self) -> list[RpcResult[None]]:
        """Ask all nodes; returns the answers of the nodes that did not agree."""
        args = {
            target: (self._known[name].claim_serial, self._serial_no, self._own_name)
            for name, target in self._targets.items()
        }
        results = self._rpc.call_each(NodeCalls.master_claim, args) if args else {}
        refused = {name: result for name, result in results.items() if result.error is not None}
        self._promised |= results.keys() - refused.keys()
        self._promised -= {name for name, result in refused.items() if _is_answer(result)}
        return list(refused.values())

    def _may_ask_again(self) -> bool:
        found, _ = master_poll.ask_all(self._rpc, list(self._targets.values()))
        facts = [answer.facts for answer in found.values() if answer.facts is not None]
        return votes.may_ask_again(
            [master_facts.own_facts(self._paths), *facts],
            own_name=self._own_name,
            serial_no=self._serial_no,
            needed=self._needed,
        )

    def withdraw(self) -> None:
        """Take the announcement back on the nodes that agreed; a node that misses it does no harm.

        Nobody else is asked: rivals have the same serial number.
        """
        own = self._known[self._own_name]
        before = Claim(own.claim_serial, own.claim_name)
        master_facts.take_claim(self._paths, known_serial=self._serial_no, claim=before)
        args = {
            self._targets[name]: (self._serial_no, facts.claim_serial, facts.claim_name)
            for name, facts in self._known.items()
            if name in self._promised
        }
        if args:
            self._rpc.call_each(NodeCalls.master_claim, args)


def _is_answer(refusal: RpcResult[None]) -> bool:
    """Tell whether a node refused; otherwise it was not reached, and no rival is the reason."""
    return not refusal.address


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverOptions:
    """How to fail over.

    Attributes:
        no_voting: the answers of the other nodes do not count; this node's configuration is used.
        asks_offline: nodes marked offline are asked as well.
        own_is_old: this node's configuration came from a backup, so it is no answer of a candidate.
    """

    no_voting: bool = False
    asks_offline: bool = False
    own_is_old: bool = False


@dataclass(frozen=True, slots=True)
class Outlook:
    """The facts known before a step."""

    poll: votes.Poll
    plan: votes.Takeover
    config: bytes
    targets: Mapping[str, Target]

    @property
    def cluster(self) -> Cluster:
        """The cluster, as the newest configuration has it."""
        return decode_record(split_config(self.config).cluster, Cluster)


@dataclass
class Failover:
    """One attempt to make this node the master."""

    _paths: Paths
    _own_name: str
    _rpc: NodeRpcClient
    _options: FailoverOptions
    _feedback: Feedback
    _gone: dict[str, str] = field(default_factory=dict)
    """The nodes that were not reached, and why."""

    def run(self) -> None:
        """Make this node the master.

        Raises:
            OpPrereqError: this node must not become master as things stand; nothing was changed.
            GenericError: a step failed; the text names the next step.
        """
        daemon_control.start_daemon(self._paths, NODED, hostname=self._own_name)
        outlook = self._look()
        for warning in outlook.plan.warnings:
            self._feedback(f"Warning: {warning}")
        was_idle = not outlook.plan.hand_over
        for name in outlook.plan.hand_over:
            self._stop_old_master(outlook, name)
        if not was_idle:
            outlook = self._look_after_stop(outlook)
        announcement = self._claim(outlook)
        outlook = self._look_again(outlook, announcement)
        config = self._prepare(outlook, prefers_own=was_idle)
        self._announce(outlook, config)
        config = self._take_over(outlook, config, prefers_own=was_idle)
        self._follow_itself(outlook, config)
        self._open_queue()
        self._start()

    # Looking.

    def _look(self, followed: votes.Takeover | None = None) -> Outlook:
        """Ask the nodes, those of the newest configuration, and plan.

        Args:
            followed: the plan by which nodes were told to follow this one.

        Raises:
            OpPrereqError: this node must not become master.
        """
        targets = master_poll.other_nodes(self._paths, self._own_name)
        for _ in range(_LOOKS_MAX):
            poll = self._ask(targets)
            plan = self._plan(poll, followed)
            config = self._read_config(plan.config_from, targets)
            newest = master_poll.nodes_of(config, self._own_name)
            if set(newest) == set(targets):
                break
            targets = newest
        return Outlook(poll, plan, config, {target.name: target for target in targets})

    def _plan(self, poll: votes.Poll, followed: votes.Takeover | None) -> votes.Takeover:
        plan = votes.plan_takeover
        if followed is not None:
            plan = partial(votes.plan_of_followers, before=followed)
        return plan(
            poll,
            no_voting=self._options.no_voting,
            own_is_old=self._options.own_is_old,
            needed=self._answers_needed,
        )

    def _answers_needed(self, candidates: Collection[str]) -> int:
        return lease.answers_needed(self._paths, self._own_name, candidates)

    def _ask(self, targets: list[Target]) -> votes.Poll:
        facts = master_facts.own_facts(self._paths)
        answers = {self._own_name: votes.Answer(facts.master_name, facts)}
        if not self._options.asks_offline:
            self._gone.update((t.name, _MARKED_OFFLINE) for t in targets if t.offline)
        asked = [target for target in targets if target.name not in self._gone]
        if asked:
            found, errors = master_poll.ask_all(self._rpc, asked)
            answers.update(found)
            self._gone.update(errors)
        silent = {name: why for name, why in self._gone.items() if name not in answers}
        names = [self._own_name, *(target.name for target in targets)]
        return votes.Poll(self._own_name, names, answers, silent)

    def _read_config(self, name: str, targets: list[Target]) -> bytes:
        if name == self._own_name:
            return config_file.read_config(self._paths)
        target = next(target for target in targets if target.name == name)
        what = f"cannot take the configuration, of which node {name} has the newest copy"
        config = self._rpc.call_one(NodeCalls.config_read, target).check(what)
        if config is None:
            raise OpExecError(f"{what}: it is gone; try again")
        return config.content

    def _look_after_stop(self, before: Outlook) -> Outlook:
        """Ask the nodes again after the old masters have stopped.

        Raises:
            OpPrereqError: another node that had them stopped as well was faster.
        """
        outlook = self._look()
        rivals = natural_sorted(set(outlook.plan.hand_over) - set(before.plan.hand_over))
        if rivals:
            raise wrong_state(
                f"{', '.join(rivals)} announced itself as the next master meanwhile; try again if"
                " this node is to be master instead"
            )
        return outlook

    def _look_again(self, before: Outlook, announcement: Announcement) -> Outlook:
        """Look whether anything changed since the claim.

        Raises:
            OpExecError: somebody started the master's daemons meanwhile.
        """
        outlook = self._look()
        running = [name for name, facts in outlook.poll.known().items() if facts.daemons]
        if started := [name for name in running if name != self._own_name]:
            announcement.withdraw()
            raise OpExecError(
                f"the master's daemons were started on {', '.join(started)} meanwhile; try again"
            )
        return replace(outlook, plan=before.plan)

    # The old master.

    def _stop_old_master(self, outlook: Outlook, name: str) -> None:
        """Let a master finish its jobs, then stop it.

        Raises:
            OpPrereqError: jobs still run there.
            OpExecError: it cannot be stopped.
        """
        target = _reachable(outlook.targets[name])
        was_drained = self._drain_and_stop(target)
        if self._still_runs_jobs(target):  # one slipped in just before the stop
            self._drain_and_stop(target)
        if not was_drained:  # so that the next master takes jobs again
            self._warn(self._rpc.call_one(NodeCalls.jobqueue_set_drain_flag, target, False))
            JobFiles(self._paths).set_drained(False)
        cluster = outlook.cluster
        self._warn(
            self._rpc.call_one(
                NodeCalls.node_deactivate_master_ip,
                target,
                master_network_parameters(cluster),
                use_external_mip_script=cluster.use_external_mip_script,
            )
        )

    def _drain_and_stop(self, target: Target) -> bool:
        """Return whether the queue took no jobs before this already."""
        self._feedback(f"Waiting for {target.name} to finish its jobs")
        was_drained = self._drain(target)
        self._feedback(f"Stopping the master's daemons on {target.name}")
        self._rpc.call_one(NodeCalls.node_stop_master, target).check(
            "cannot stop the master's daemons; its queue is drained ('gnt-cluster queue undrain'"
            f" on {target.name} lets it go on)"
        )
        return was_drained

    def _still_runs_jobs(self, target: Target) -> bool:
        answer = master_poll.ask_all(self._rpc, [target])[0].get(target.name)
        return answer is not None and answer.facts is not None and bool(answer.facts.running_jobs)

    def _drain(self, target: Target) -> bool:
        """Return whether the queue took no jobs already, once the master is idle."""
        result = self._rpc.call_one(NodeCalls.master_drain, target, DRAIN_TIMEOUT_S)
        drained = result.check(f"the master on {target.name} cannot be asked to become idle")
        if not drained.left:
            return drained.was_drained
        jobs = " ".join(map(str, drained.left))
        text = f"these jobs still run on {target.name}: {jobs}"
        if self._options.no_voting:
            self._feedback(f"Warning: {text}; they are cut off, and will be marked as failed")
            return drained.was_drained
        raise wrong_state(
            f"{text}; wait for them, or cancel them there ('gnt-job cancel {jobs}', with --kill if"
            " they are running), and try again"
        )

    def _warn(self, result: RpcResult[object]) -> None:
        if result.error is not None:
            self._feedback(f"Warning: {result.failure_text}; going on")

    # Announcing.

    def _claim(self, outlook: Outlook) -> Announcement:
        """Let the nodes take note that this one comes next; errors as of `Announcement.make`."""
        targets = {name: _reachable(target) for name, target in outlook.targets.items()}
        announcement = Announcement(
            self._paths, self._rpc, outlook.poll, outlook.plan.serial_no, targets
        )
        announcement.make(no_voting=self._options.no_voting)
        return announcement

    def _announce(self, outlook: Outlook, config: bytes) -> None:
        """Let the others follow this one, but those that follow nobody else.

        Raises:
            OpExecError: too few do.
        """
        self._feedback("Telling all nodes")
        others = outlook.poll.answers.keys() - {self._own_name} - outlook.plan.strays
        following = 1 + self._tell(outlook, config, others)
        if following < votes.votes_needed(len(outlook.poll.nodes)) and not self._options.no_voting:
            raise OpExecError(
                f"only {following} of {len(outlook.poll.nodes)} nodes follow this one; run the"
                f" command again when more of them answer, or use {votes.OVERRIDE}"
            )

    def _tell(self, outlook: Outlook, config: bytes, names: Collection[str]) -> int:
        """Tell nodes to follow this one; returns how many do.

        Nodes that do not answer hear of it later, from WConfD.
        """
        values = ssconf_values(ConfigState(config).durable)
        told = [_reachable(each) for name, each in outlook.targets.items() if name in names]
        old = [each for each in told if outlook.poll.answers[each.name].facts is None]
        new = [each for each in told if each not in old]
        serial_no = outlook.plan.serial_no
        results = self._rpc.call_all(NodeCalls.master_accept, new, serial_no, values)
        results.update(self._rpc.call_all(NodeCalls.write_ssconf_files, old, values))
        for result in results.values():
            self._warn(result)
        return sum(result.error is None for result in results.values())

    def _follow_itself(self, outlook: Outlook, config: bytes) -> None:
        """Let this node follow itself, and those that took themselves for the master.

        What these have counts for nothing, and is older now than what is written here.
        """
        self._tell(outlook, config, outlook.plan.strays - {self._own_name})
        values = ssconf_values(ConfigState(config).durable)
        master_facts.accept_master(self._paths, serial_no=outlook.plan.serial_no, values=values)

    # Taking over.

    def _prepare(self, outlook: Outlook, *, prefers_own: bool) -> bytes:
        """Take the jobs of others, and make the configuration; returns it.

        Raises:
            GenericError: they cannot be had or written; nobody follows this node yet.
        """
        self._feedback(
            f"Taking the configuration of {outlook.plan.config_from} and the job queue of"
            f" {', '.join(outlook.plan.queue_from)}"
        )
        merged = self._take_jobs(outlook, prefers_own=prefers_own)
        self._feedback(f"Taken from other nodes: {describe(merged)}")
        return self._next_config(outlook)

    def _take_jobs(self, outlook: Outlook, *, prefers_own: bool) -> Merged:
        """Merge the queues of others into this node's; errors as of `_prepare`."""
        plan = outlook.plan
        first = [name for name in plan.queue_from if name in plan.hand_over]
        names = [*first, *(name for name in plan.queue_from if name not in first)]
        sources = [_reachable(outlook.targets[name]) for name in names if name in outlook.targets]
        lock = JobFiles(self._paths).lock()
        with _writing():
            JobFiles(self._paths).prepare()
            lock.acquire(timeout_s=QUEUE_LOCK_TIMEOUT_S)
            with lock:
                merged = merge_queue(self._paths, self._rpc, sources, own_first=prefers_own)
                raise_serial(self._paths, self._last_job_id(outlook))
        return merged

    def _take_over(self, before: Outlook, config: bytes, *, prefers_own: bool) -> bytes:
        """Write configuration and queue, with all that the followers have; returns the former.

        They take nothing of the old master any more; a change that it got acknowledged before, one
        of them has.

        Args:
            config: the one to write if they have nothing newer.

        Raises:
            OpExecError: these cannot be had or written.
        """
        try:
            outlook = self._look(before.plan)
            written = self._write_config(outlook, before, config)
            merged = self._take_jobs(outlook, prefers_own=prefers_own)
        except GenericError as err:
            raise OpExecError(
                f"other nodes follow this one now, but it is not the master yet: {err.message}. Run"
                " the command again, here or on another master candidate"
            ) from err
        if merged.changed or merged.archived:
            self._feedback(f"Taken from other nodes meanwhile: {describe(merged)}")
        return written

    def _write_config(self, outlook: Outlook, before: Outlook, config: bytes) -> bytes:
        """Write the newest configuration as this node's; returns it.

        Raises:
            GenericError: it cannot be written, or somebody else has become the master.
        """
        with _writing(), config_file.only_writer(self._paths):
            newest = self._newest_config(outlook)
            if newest != before.config:
                self._feedback("Taking changes that the old master made meanwhile")
                config = self._next_config(replace(outlook, config=newest))
            config_file.write_config(self._paths, config)
            restoration.end(self._paths)
        return config

    def _newest_config(self, outlook: Outlook) -> bytes:
        """Return the newest configuration; a master that reaches this node may still write it here.

        Raises:
            OpPrereqError: another node was faster.
        """
        present = master_facts.own_facts(self._paths).config_serial
        if present >= outlook.plan.serial_no:
            raise wrong_state("another node has become the master meanwhile")
        known, name = outlook.poll.known(), outlook.plan.config_from
        if present > max(known[each].config_serial for each in (self._own_name, name)):
            return config_file.read_config(self._paths)
        return outlook.config

    def _next_config(self, outlook: Outlook) -> bytes:
        """Return the configuration of this node as the master."""
        return with_master(
            self._with_trusted(outlook.config),
            master_name=self._own_name,
            serial_no=outlook.plan.serial_no,
            now=clock.now(),
        )

    def _with_trusted(self, config: bytes) -> bytes:
        """Return a configuration that trusts this node, by which the others know it.

        It does already, unless the old master was lost while it replaced certificates: the lists of
        the nodes that it had told are newer then than the configuration.  And this node's may be
        newer than both; then nobody trusts it until taken in again, by a configuration that does.
        """
        try:
            digest = digest_of_file(self._paths.client_pem)
        except X509CertError as err:
            self._feedback(f"Warning: {err.message}; going on")
            return config
        split = split_config(config)
        listed = ssconf.candidate_certs(self._paths)
        candidates = [node for node in nodes_of(split) if node.master_candidate]
        newer = {node.uuid: listed[node.uuid] for node in candidates if node.uuid in listed}
        own = find_node(split, self._own_name).uuid
        known = decode_record(split.cluster, Cluster).candidate_certs
        if known.get(own) == digest:
            return config
        if newer.get(own) == digest:
            self._feedback("Trusting the certificates that the old master was giving to the nodes")
            return with_candidate_certs(config, newer, now=clock.now())
        if not self._options.no_voting:
            return config
        self._feedback("Trusting the certificate of this node, of which no other one knows yet")
        return with_candidate_certs(config, {**known, own: digest}, now=clock.now())

    def _last_job_id(self, outlook: Outlook) -> int:
        """Return the last job id that may have been given out."""
        unknown = not outlook.plan.is_complete and self._options.no_voting
        return votes.highest_job_id(outlook.poll) + (votes.JOB_ID_LEAP if unknown else 0)

    def _open_queue(self) -> None:
        """Take jobs again if it was a failover that closed the queue, this one or another."""
        queue = JobFiles(self._paths)
        if queue.drained_by() is DrainedBy.FAILOVER:
            queue.set_drained(False)

    def _start(self) -> None:
        """Start the master's daemons here, and see whether they answer.

        A node that fails over too may have had the first of them stopped, and the other one refused
        by its claim, which it takes back when it sees them.

        Raises:
            OpExecError: they do not.
        """
        self._feedback(f"Starting the master's daemons on {self._own_name}")
        try:
            try:
                self._start_daemons()
            except GenericError as err:
                if master_facts.read_claim(self._paths).name != self._own_name:
                    raise
                logger.warning("%s; trying again", err.message)
                self._start_daemons()
        except GenericError as err:
            raise OpExecError(
                f"this node is the master now, but its daemons do not run: {err.message}. Put that"
                " right and run the command again"
            ) from err

    def _start_daemons(self) -> None:
        daemons = Node(NodeContext(self._paths, self._own_name))
        daemons.node_start_master_daemons(no_voting=self._options.no_voting)
        with LuxiClient(self._paths, connect_timeout_s=ANSWER_TIMEOUT_S) as client:
            client.query_cluster_info()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Say of a file that cannot be written what to do.

    Raises:
        GenericError: in place of an error of the operating system.
    """
    try:
        yield
    except OSError as err:
        raise GenericError(
            f"cannot write {err.filename}: {err.strerror}; put that right and run the command again"
        ) from err


def _reachable(target: Target) -> Target:
    """Return a target that is asked even if it is marked offline."""
    return Target(target.name, target.address, target.port)


def fail_over(paths: Paths, own_name: str, options: FailoverOptions, feedback: Feedback) -> None:
    """Make this node the master; errors as of `Failover.run`."""
    if master_facts.own_facts(paths).master_name == "":
        raise ConfigurationError("this node is not part of a cluster")
    lock = master_facts.failover_lock(paths)  # by which the old master sees that it goes on
    try:
        lock.acquire()
    except LockError as err:
        raise wrong_state(f"another fail-over to this node ({own_name}) is at work") from err
    with lock, NodeRpcClient(paths) as rpc:
        if restoration.is_old_copy(paths, master_facts.own_facts(paths).config_serial):
            options = replace(options, own_is_old=True, asks_offline=True)
        Failover(paths, own_name, rpc, options, feedback).run()
