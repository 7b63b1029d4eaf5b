"""A daemon of the master makes sure that its node is the master: at start, and once in a while.

At start the others are asked until enough of them agree, or it is clear that they do not, or the
time is over.  Nodes marked offline are asked only if the others are too few.  Later a slow look at
the other master candidates, a prompt, having been paused, or the end of the other daemon leads to a
new vote; a daemon that is outvoted ends, and so does one whose own node follows another master.

Where high availability is on, the node of the master holds a lease in etcd.  While it does, nobody
else becomes the master.  When it loses it, or etcd is lost, the nodes are asked at once; and
nothing begins that only the master may begin, unless they have just said that it is still this
node.

Source: ARCHITECTURE, invariant 9; constants.json, MASTER_VOTING_RETRIES.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import GenericError, NotMasterError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.clients import master_poll
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.node_rpc import Target
from ganeti.daemon.context import DaemonContext
from ganeti.daemon.main import EXIT_NOTMASTER
from ganeti.daemon.options import MasterOptions
from ganeti.jobs.votes import Answer, Poll, Standing, Verdict, judge
from ganeti.store import lease, master_facts, ssconf
from ganeti.store.lease import CopiesReporter
from ganeti.store.notes import renewal, restoration
from ganeti.system import clock

logger = logging.getLogger(__name__)

VOTING_RETRIES: Final = 6  # constants.json, MASTER_VOTING_RETRIES
VOTING_RETRY_INTERVAL_S: Final = 10.0  # constants.json, MASTER_VOTING_RETRY_INTERVALL
_FIRST_RETRIES_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)  # nodes that start together meet soon
OBJECTIONS_S: Final = 1.0  # the wait for further votes once there are enough
LOOK_INTERVAL_S: Final = 30.0
UNHELD_LOOK_S: Final = 5.0  # the same while the master's lease is not held
VOTE_S: Final = 1.0  # how long a vote is good for
TICK_S: Final = 1.5
PAUSE_S_MIN: Final = 1.0  # a daemon that sleeps so much too long was paused; others may have acted


def check_options(context: DaemonContext) -> bool:
    """Return whether the others are not to be asked.

    Raises:
        OpPrereqError: --no-voting without --yes-do-it.
    """
    options = context.options_as(MasterOptions)
    if options.no_voting and not options.yes_do_it:
        raise OpPrereqError(
            "--no-voting is dangerous: two masters may run; confirm it with --yes-do-it"
        )
    return options.no_voting


async def check_self(context: DaemonContext) -> Poll:
    """Return this node's own answer, unless it names another node as the master.

    Raises:
        NotMasterError: names the master; or it is this node, which is just being restored.
        OpPrereqError: the options contradict each other.
    """
    is_sure = check_options(context)
    own_name = context.hostname
    poll = await _own_poll(context.paths, own_name)
    verdict = judge(poll)
    if verdict.standing is Standing.REFUSED and not is_sure:
        raise NotMasterError(verdict.reason, verdict.master_name)
    if not is_sure and restoration.is_old_copy(context.paths, poll.own.config_serial):
        raise NotMasterError(f"this node is not the master yet: {restoration.HINT}", "")
    return poll


async def confirm(context: DaemonContext) -> Poll:
    """Return the answers of the nodes, once they confirm that this one is the master.

    Raises:
        NotMasterError: it is not, or too few nodes answer; the text has the answers of all.
        OpPrereqError: the options contradict each other.
        ConfigurationError: this node knows no nodes.
    """
    poll = await check_self(context)
    if context.options_as(MasterOptions).no_voting:
        logger.warning("Not asking whether this node is the master, as was wished")
        return poll
    verdict = judge(poll)
    async with AsyncNodeRpcClient(context.paths) as rpc:
        for delay_s in _retry_delays():
            poll = await take_vote(rpc, context.paths, context.hostname)
            verdict = judge(poll)
            if verdict.standing is Standing.CONFIRMED:
                return poll
            if verdict.standing is Standing.REFUSED or delay_s is None:
                break
            logger.info("%s; asking again in %g s", verdict.reason, delay_s)
            if await _stops_within(context, delay_s):
                break
    hint = f"; {renewal.HINT}" if renewal.is_cut_off(context.paths) else ""
    raise NotMasterError(
        f"this node is not the master: {verdict.reason}{hint}", verdict.master_name
    )


def _retry_delays() -> Iterator[float | None]:
    """Yield the wait after each try, in seconds; None after the last one."""
    left_s = VOTING_RETRIES * VOTING_RETRY_INTERVAL_S
    for delay_s in itertools.chain(_FIRST_RETRIES_S, itertools.repeat(VOTING_RETRY_INTERVAL_S)):
        if delay_s > left_s:
            yield None
            return
        left_s -= delay_s
        yield delay_s


async def _stops_within(context: DaemonContext, delay_s: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(context.stopping.wait(), delay_s)
    return context.stopping.is_set()


async def take_vote(rpc: AsyncNodeRpcClient, paths: Paths, own_name: str) -> Poll:
    """Ask the other nodes once; those marked offline only if that may make a difference.

    Raises:
        ConfigurationError: this node knows no nodes.
    """
    others = await asyncio.to_thread(master_poll.other_nodes, paths, own_name)
    poll = await _own_poll(paths, own_name, *(target.name for target in others))
    for is_offline in (False, True):
        targets = [target for target in others if target.offline == is_offline]
        if targets and judge(poll).standing is not Standing.CONFIRMED:
            poll = await _ask(rpc, targets, poll)
            # WConfD here may have written and spread a newer configuration meanwhile.
            own = {own_name: await _own_answer(paths)}
            poll = replace(poll, answers={**poll.answers, **own})
    return poll


async def poll_everybody(rpc: AsyncNodeRpcClient, paths: Paths, own_name: str) -> Poll:
    """Ask all other nodes once, offline ones too, and wait for each.

    Raises:
        ConfigurationError: this node knows no nodes.
    """
    others = await asyncio.to_thread(master_poll.other_nodes, paths, own_name)
    found = await asyncio.gather(*(master_poll.ask_one(rpc, target) for target in others))
    names = [target.name for target in others]
    poll = await _own_poll(paths, own_name, *names)
    return _with_answers(poll, dict(zip(names, found, strict=True)))


async def _own_poll(paths: Paths, own_name: str, *others: str) -> Poll:
    return Poll(own_name, [own_name, *others], {own_name: await _own_answer(paths)})


async def _own_answer(paths: Paths) -> Answer:
    facts = await asyncio.to_thread(master_facts.own_facts, paths)
    return Answer(facts.master_name, facts)


async def _ask(rpc: AsyncNodeRpcClient, targets: Sequence[Target], poll: Poll) -> Poll:
    """Add the answers of these nodes; a slow node whose answer is not needed is not waited for."""
    async with asyncio.TaskGroup() as group:
        tasks = {
            group.create_task(
                master_poll.ask_one(rpc, target), name=f"ask {target.name}"
            ): target.name
            for target in targets
        }
        pending = set(tasks)
        enough_at: float | None = None
        while pending:
            left_s = None if enough_at is None else enough_at + OBJECTIONS_S - clock.monotonic()
            done, pending = await asyncio.wait(
                pending, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )
            poll = _with_answers(poll, {tasks[task]: task.result() for task in done})
            standing = judge(poll).standing
            if not done or standing is Standing.REFUSED:
                break
            if enough_at is None and standing is Standing.CONFIRMED:
                enough_at = clock.monotonic()
        for task in pending:
            task.cancel()
    late = {tasks[task]: "no answer yet" for task in pending}
    return replace(poll, silent={**poll.silent, **late})


def _with_answers(poll: Poll, found: Mapping[str, Answer | str]) -> Poll:
    answers, silent = dict(poll.answers), dict(poll.silent)
    for name, answer in found.items():
        if isinstance(answer, Answer):
            answers[name] = answer
        else:
            silent[name] = answer
    return replace(poll, answers=answers, silent=silent)


class MasterWatch:
    """Ends the daemon once its node is not the master any more.

    Attributes:
        reporter: tells the agent of high availability about the daemon's copies.
    """

    def __init__(self, context: DaemonContext, rpc: AsyncNodeRpcClient) -> None:
        self._context = context
        self._rpc = rpc
        self._prompted = asyncio.Event()
        self._running = frozenset[str]()
        self.reporter: CopiesReporter | None = None
        self._holds_lease = True
        self._voting = asyncio.Lock()
        self._confirmed_s = -math.inf

    def prompt(self) -> None:
        """Have the nodes asked soon: one does not behave as if this node were the master."""
        self._prompted.set()

    async def run(self) -> None:
        """Look for ever: now and then, when prompted, and after having been paused."""
        looked_at = clock.monotonic()
        while not self._is_replaced():
            began = clock.monotonic()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._prompted.wait(), TICK_S)
            self._report()
            now = clock.monotonic()
            is_prompted = self._prompted.is_set() or now > began + TICK_S + PAUSE_S_MIN
            self._prompted.clear()
            is_prompted |= self._has_other_ended() | self._has_lost_lease()
            interval_s = LOOK_INTERVAL_S if self._holds_lease else UNHELD_LOOK_S
            if not is_prompted and now < looked_at + interval_s:
                continue
            looked_at = now
            try:
                if is_prompted or await self._is_doubtful():
                    await self.check()
            except (GenericError, OSError) as err:
                logger.warning("Cannot ask the nodes for the master: %s; ignoring", err)
            if is_prompted:
                await asyncio.sleep(OBJECTIONS_S)  # prompts come by the dozen

    async def only_report(self) -> None:
        """Tell the agent about the copies for ever, where nobody is to be asked."""
        while True:
            await asyncio.sleep(TICK_S)
            self._report()

    def _report(self) -> None:
        if self.reporter is not None:
            self.reporter.report()

    def _is_replaced(self) -> bool:
        """End, and return True, if the node daemon here was told of another master."""
        try:
            master = ssconf.master_node(self._context.paths)
        except (GenericError, OSError) as err:
            logger.warning("Cannot read who is master: %s; ignoring", err)
            return False
        if master in ("", self._context.hostname):
            return False
        self._end(f"this node ({self._context.hostname}) follows {master}")
        return True

    def _has_other_ended(self) -> bool:
        """Tell whether the other daemon has ended since the last look: it may know more."""
        before = self._running
        try:
            self._running = frozenset(master_facts.running_daemons(self._context.paths))
        except OSError as err:
            logger.warning("Cannot look after the other daemon: %s; ignoring", err)
        return not before <= self._running

    def _has_lost_lease(self) -> bool:
        """Tell whether the lease of the master was lost since the last look."""
        held_it = self._holds_lease
        self._holds_lease = lease.is_held(self._context.paths)
        return held_it and not self._holds_lease

    def _end(self, reason: str) -> None:
        if not self._context.stopping.is_set():
            logger.error("This node is not the master any more: %s; ending", reason)
            self._context.stop(EXIT_NOTMASTER)

    async def check(self) -> bool:
        """Ask all nodes; returns whether this one may go on as master.

        The daemon begins to stop, with the exit status for that, once another one is.

        Raises:
            ConfigurationError: this node knows no nodes any more.
        """
        return not (await self._vote()).is_deposed

    async def _vote(self) -> Verdict:
        context = self._context
        verdict = judge(await take_vote(self._rpc, context.paths, context.hostname))
        if verdict.is_deposed:
            self._end(verdict.reason)
        return verdict

    def holds_lease(self) -> bool:
        """Tell whether this node holds the lease of the master; so it does where there is none."""
        return lease.is_held(self._context.paths)

    async def may_act(self) -> bool:
        """Tell whether this node may begin something as the master now.

        It may while it holds the lease, or where there is none; otherwise most nodes have to say
        that it is the master.

        Raises:
            ConfigurationError: this node knows no nodes any more.
        """
        if self.holds_lease():
            return True
        async with self._voting:  # those who wait for the same vote share it
            if clock.monotonic() >= self._confirmed_s + VOTE_S:
                asked_s = clock.monotonic()
                if (await self._vote()).standing is not Standing.CONFIRMED:
                    return False
                self._confirmed_s = asked_s
        return True

    async def _is_doubtful(self) -> bool:
        """Tell whether a master candidate that answers follows somebody else."""
        paths, own_name = self._context.paths, self._context.hostname
        offline = ssconf.offline_nodes(paths)
        targets = [
            Target(node.name, node.ip)
            for node in ssconf.master_candidates(paths)
            if node.name != own_name and node.name not in offline
        ]
        found = await asyncio.gather(*(master_poll.ask_one(self._rpc, each) for each in targets))
        answers = {
            target.name: answer
            for target, answer in zip(targets, found, strict=True)
            if isinstance(answer, Answer)
        }
        answers[own_name] = await _own_answer(paths)
        poll = Poll(own_name, list(answers), answers)
        return judge(poll).standing is Standing.REFUSED or any(
            answer.master_name != own_name for answer in answers.values()
        )
