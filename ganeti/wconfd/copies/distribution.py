"""Brings the configuration to the other nodes: whole to the candidates, in parts to all.

A node gets the newest version there is; changes made while it is being called go with the next
call (`clients.couriers`).  The log says once that a node has become unreachable, and once that it
is back.  A node that was away may follow another master by now, so it is asked first: one that is
behind missed the change of the master, one that is ahead follows another one.

Source: ARCHITECTURE, invariants 8 and 9; config.json, "ssconf"; node_rpc.json.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from ganeti.base import metrics
from ganeti.base.errors import GenericError, OpExecError
from ganeti.clients import master_poll
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.couriers import GREETING_S_MAX, Courier, Couriers, Delivery, Spawn
from ganeti.clients.node_rpc import Target
from ganeti.config.deltas.journal import record_of
from ganeti.config.index import NODES
from ganeti.config.state import Flush
from ganeti.copies.node import PATIENCE_S, NodeCopies, Versions, Wanted
from ganeti.copies.quorum import Tally
from ganeti.daemon.master_watch import MasterWatch
from ganeti.daemon.tally import Histogram, written
from ganeti.jobs.votes import Answer
from ganeti.objects.model import Node
from ganeti.store import lease
from ganeti.system import clock
from ganeti.wconfd.copies.own import OwnValues
from ganeti.wconfd.copies.sending import CONFIG, FILE, SSCONF, Sender, SimpleValues
from ganeti.wconfd.keeper import Keeper

logger = logging.getLogger(__name__)

FLUSH_S_MAX: Final = 10.0  # the time for enough candidates
FINISH_S_MAX: Final = 2.0
TRIP_S_MAX: Final = 60.0  # a large configuration over a slow line
_CANDIDATE_DELAY_S_MAX: Final = 1.5  # it is to have everything soon after it is back
_OTHERS_DELAY_S_MAX: Final = 60.0
FILE_REST_S: Final = 15.0  # of a node that refused the file, as `NodeCopies` lets it rest


class Distributor:
    """Keeps the other nodes up to date with every write of the configuration.

    Args:
        watch: asks for the master's name, for nodes that follow another one; None without a vote.
    """

    def __init__(
        self,
        keeper: Keeper,
        rpc: AsyncNodeRpcClient,
        own_name: str,
        spawn: Spawn,
        watch: MasterWatch | None,
    ) -> None:
        self._keeper = keeper
        self._rpc = rpc
        self._own_name = own_name
        self._watch = watch
        self._nodes: dict[str, Node] = {}  # by name
        self._strangers: dict[str, int] = {}  # node -> serial number that was told
        self._couriers = Couriers(self, spawn, files_max=3, trip_s_max=TRIP_S_MAX)
        self._simple = SimpleValues(keeper)
        self._own = OwnValues(keeper.paths, self._simple, spawn)
        self._sender = Sender(keeper, rpc)
        self._due_since: dict[str, float] = {}  # candidate -> the first change that it lacks
        self._former: set[str] = set()  # candidates of before, which may still get what was sent
        # Candidate -> why it did not take the file, and until when it is not sent that again.
        self._no_file: dict[str, tuple[str, float]] = {}
        self._replications = Histogram(metrics.WCONFD_REPLICATION_S)
        self._renew_nodes()
        keeper.on_flush(self.changed)
        keeper.on_file(self.start)

    # The files, and the nodes that should have them.

    def changed(self, flush: Flush) -> None:
        """Note that the configuration was written."""
        if self._keeper.checkpoints is not None:
            self._sender.remember(record_of(flush.base, flush.version, flush.changed))
        if self._simple.follow(flush):
            self._own.follow()
        if any(table == NODES for table, _ in flush.changed):
            self._renew_nodes()
        now = clock.monotonic()
        for each in self._candidates():
            if not each.target.offline:
                self._due_since.setdefault(each.name, now)
        self.start()

    async def finish(self) -> None:
        """Wait a little until the candidates that answer have the whole file, not its journal."""
        assert self._keeper.checkpoints is not None
        serial_no = self._keeper.checkpoints.file_version.serial_no

        def is_done() -> bool:
            return all(
                each.copies.is_missing
                or each.target.offline
                or each.copies.has_version(FILE, serial_no)
                for each in self._candidates()
            )

        await self._couriers.wait_until(FILE, is_done, FINISH_S_MAX)

    def start(self) -> None:
        """Bring every node the files that it lacks."""
        for courier in self._couriers:
            if self._nodes[courier.name].master_candidate:
                courier.copies.want(CONFIG, self._keeper.state.serial_no)
                if self._keeper.checkpoints is not None:
                    courier.copies.want(FILE, self._keeper.checkpoints.file_version.serial_no)
            courier.copies.want(SSCONF, self._simple.state.version)
        self._couriers.start_soon()

    async def begin_again(self) -> None:
        """Bring everything to every node, also the versions that it has.

        Returns when each node that had failed before is back, or has failed again.
        """
        self._own.write_all_again()
        for courier in self._couriers:
            courier.copies.forget([CONFIG, FILE, SSCONF])
        self.start()
        await self._try_failed_again(None)
        await self._own.wait(PATIENCE_S)

    async def _try_failed_again(self, group: str | None) -> None:
        """Return when each node (of that group) that had failed is back, or has failed again."""
        self._couriers.hurry()

        def are_tried() -> bool:
            now = clock.monotonic()
            copies = (each.copies for each in self._couriers if self._is_in(each, group))
            return not any(each.is_missing and not each.rests(now) for each in copies)

        await self._couriers.wait_until(CONFIG, are_tried, GREETING_S_MAX + PATIENCE_S)

    def _is_in(self, courier: Courier, group: str | None) -> bool:
        """Tell whether it is to a node that is online, and of that group."""
        is_of_group = group is None or self._nodes[courier.name].group == group
        return is_of_group and not courier.target.offline

    def _renew_nodes(self) -> None:
        view = self._keeper.durable
        found = {node.name: node for node in map(view.node, view.tables[NODES]) if node is not None}
        found.pop(self._own_name, None)
        for name, node in found.items():
            before = self._nodes.get(name)
            if before is not None and before.uuid != node.uuid:
                self._couriers.remove(name)
                self._sender.forget(name)
                before = None
            target = Target(name, node.primary_ip, offline=node.offline)
            courier = self._couriers.get(name)
            if courier is None:
                courier = self._couriers.add(target, NodeCopies(trips_max=1))
            courier.takes_many = True  # there are few files, and each has its own call
            courier.is_known = True
            courier.target = target
            if before is not None and before.offline and not node.offline:
                courier.copies.forget([SSCONF])  # it may have been reinstalled meanwhile
            if node.master_candidate:
                self._former.discard(name)
            elif before is not None and before.master_candidate:
                self._former.add(name)
            if not node.master_candidate or node.offline:
                courier.copies.forget([CONFIG, FILE])
                self._due_since.pop(name, None)
            courier.is_urgent = node.master_candidate
            courier.copies.silent_delay_s_max = (
                _CANDIDATE_DELAY_S_MAX if node.master_candidate else _OTHERS_DELAY_S_MAX
            )
        for name in self._nodes.keys() - found.keys():
            self._couriers.remove(name)
            self._due_since.pop(name, None)
            self._former.discard(name)
            self._no_file.pop(name, None)
            self._sender.forget(name)
        self._nodes = found

    # The interface for the couriers.

    def may_send(self, _file: str) -> bool:
        """As declared."""
        return True

    async def greet(self, courier: Courier) -> str | None:
        """As declared; a node that follows another master gets nothing."""
        if self._watch is None:
            return None
        answer = await master_poll.ask_one(self._rpc, courier.target)
        if isinstance(answer, str):
            return answer
        if answer.master_name in ("", self._own_name):
            return None
        if await self._may_overrule(answer, self._watch):
            return None
        self._tell_stranger(courier.name, answer)
        return f"it follows {answer.master_name} as the master"

    def _tell_stranger(self, name: str, answer: Answer) -> None:
        """Say once that a node has a configuration that was written apart from the others."""
        serial_no = answer.facts.config_serial if answer.facts is not None else 0
        if self._strangers.get(name) != serial_no:
            self._strangers[name] = serial_no
            logger.warning(
                "Node %s follows %s as the master, with a configuration of serial number %s; it"
                " gets nothing.  'gnt-node modify --offline=yes %s', then '--offline=no', has"
                " that looked at and set aside",
                *(name, answer.master_name, serial_no, name),
            )

    async def _may_overrule(self, answer: Answer, watch: MasterWatch) -> bool:
        facts = answer.facts
        if facts is not None:
            if max(facts.config_serial, facts.claim_serial) <= self._keeper.state.serial_no:
                return True
            watch.prompt()
            return False
        try:
            return await watch.check()
        except GenericError as err:
            logger.warning("Cannot ask who is master: %s; trying again", err.message)
            return False

    async def deliver(self, courier: Courier, versions: Versions) -> Delivery:
        """As declared; the configuration first, and without it nothing."""
        taken: dict[str, int] = {}
        refused: dict[str, str] = {}
        due_s = self._due_since.pop(courier.name, None) if CONFIG in versions else None
        if courier.copies.is_missing:
            due_s = None  # it was away
        if CONFIG in versions or FILE in versions:
            brought = await self._bring_config(courier, versions)
            taken |= brought.taken
            refused |= brought.refused
            if CONFIG in refused:
                return self._delivery(taken, refused)
            if due_s is not None:
                self._replications.add(clock.monotonic() - due_s)
        if courier.name in self._former:
            await self._withdraw(courier)
        if SSCONF in versions and SSCONF not in taken:
            state = self._simple.state
            error = await self._sender.send_simple(courier, state)
            if error is None:
                taken[SSCONF] = state.version
            else:
                refused[SSCONF] = error
        return self._delivery(taken, refused)

    async def _withdraw(self, courier: Courier) -> None:
        """Take the file from a former candidate: it may have arrived after the job that did so."""
        error = await self._sender.withdraw(courier)
        if error is None:
            self._former.discard(courier.name)
        else:
            logger.warning(
                "Node %s is no candidate, and keeps its configuration: %s; ignoring",
                *(courier.name, error),
            )

    async def _bring_config(self, courier: Courier, versions: Versions) -> Delivery:
        """Bring a node records if they are enough, and the file if it is due.

        A node that has no room for the file, which it is sent now and then, takes records all the
        same.
        """
        has = await self._version_by_records(courier, versions)
        error, rests_until_s = self._no_file.get(courier.name, ("", 0.0))
        if has and (FILE not in versions or clock.monotonic() < rests_until_s):
            return Delivery(has, {FILE: error} if error else {})
        simple = self._simple.state if SSCONF in versions else None
        sent = await self._sender.send_file(courier, simple)
        if sent.error is None:
            self._no_file.pop(courier.name, None)
            with_it = {SSCONF: simple.version} if simple is not None and sent.has_simple else {}
            return Delivery({CONFIG: sent.serial_no, FILE: sent.serial_no, **with_it})
        self._no_file[courier.name] = sent.error, clock.monotonic() + FILE_REST_S
        if CONFIG not in versions:
            has = self._version_known(courier)  # as of now
        return Delivery(has, {FILE if has else CONFIG: sent.error})

    async def _version_by_records(self, courier: Courier, versions: Versions) -> Versions:
        """Return the version that a node has without the file, if that is known."""
        if CONFIG not in versions:
            return self._version_known(courier)
        appended = await self._sender.append(courier)
        return {} if appended is None else {CONFIG: appended}

    def _version_known(self, courier: Courier) -> Versions:
        copies = courier.copies
        if CONFIG not in copies.has or CONFIG in copies.wanted or CONFIG in copies.in_doubt:
            return {}
        return {CONFIG: copies.has[CONFIG]}

    def _delivery(self, taken: Versions, refused: Mapping[str, str]) -> Delivery:
        if self._watch is not None and refused.keys() - {FILE}:
            self._watch.prompt()  # the node may follow another master
        return Delivery(taken, refused)

    def on_result(self, courier: Courier, *, was_missing: bool, error_before: str | None) -> None:
        """As declared."""
        error = courier.copies.error
        if was_missing or courier.copies.has_version(CONFIG, self._keeper.state.serial_no):
            self._due_since.pop(courier.name, None)
        if error is not None and error_before is None:
            logger.warning(
                "Cannot bring the configuration to node %s: %s; trying again", courier.name, error
            )
        if was_missing:
            self._sender.forget_facts(courier.name)
        if error is None and error_before is not None:
            logger.info("Node %s has the configuration again", courier.name)

    # Which nodes have it.

    def wanted(self) -> Wanted:
        """Return what other nodes should have and have not; files that follow do not count."""
        return {
            name: {file: version for file, version in versions.items() if file != FILE}
            for name, versions in self._couriers.wanted().items()
        }

    def lacking(self, wanted: Wanted) -> list[str]:
        """Return the nodes that do not answer, or still lack some of that."""
        return self._couriers.lacking(wanted)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the page of metrics about the copies."""
        behind = self._behind(self._keeper.state.serial_no)
        count = sum(not each.target.offline for each in behind)
        yield from written(metrics.WCONFD_BEHIND, {(): count})
        yield from self._replications.lines()

    def status(self) -> list[dict[str, object]]:
        """Return the versions that each other node has, and its errors."""
        return [
            {
                "node": courier.name,
                "candidate": self._nodes[courier.name].master_candidate,
                "offline": courier.target.offline,
                "serial_no": courier.copies.has.get(CONFIG, 0),
                "wanted_serial_no": self._keeper.state.serial_no,
                "ssconf_is_current": courier.copies.has_version(SSCONF, self._simple.state.version),
                "error": courier.copies.error,
            }
            for courier in self._couriers
        ]

    async def flush(self, group: str | None) -> None:
        """Return once enough candidates have the configuration, and a little later.

        Enough is half of them, rounded up, the master counted (invariant 9); where high
        availability is on, both of two, unless the master goes on alone.  Nodes that are slow to
        answer are set aside.

        Args:
            group: wait for the nodes of this group only, however few have it; those that have
                failed are tried again at once.

        Raises:
            OpExecError: not enough candidates could be reached; names the others.
        """
        serial_no, ssconf_version = self._keeper.state.serial_no, self._simple.state.version
        self.start()

        def lacking(file: str, version: int) -> list[Courier]:
            return [
                courier
                for courier in self._couriers
                if self._is_in(courier, group)
                if file == SSCONF or self._nodes[courier.name].master_candidate
                if not courier.copies.has_version(file, version)
            ]

        paths, others = self._keeper.paths, [each.name for each in self._candidates()]
        needs_both = lease.needs_both(paths, others)

        def is_decided() -> bool:
            if self._tally(serial_no).is_enough:
                return True
            if needs_both:
                return False  # within seconds it is back, or the master goes on alone
            now = clock.monotonic()
            return all(each.copies.rests(now) for each in self._behind(serial_no))

        if group is None and not self._tally(serial_no).is_enough:
            self._couriers.hurry()  # then even the failed ones are tried now
            look_s = lease.LOOK_S if needs_both else None
            await self._couriers.wait_until(CONFIG, is_decided, FLUSH_S_MAX, look_s)
        if group is None and not self._tally(serial_no).is_enough:
            raise self._not_enough(serial_no)
        if group is not None:
            await self._try_failed_again(group)
        # One after the other: who waits for a file is woken by that one alone.
        for file, version in ((CONFIG, serial_no), (SSCONF, ssconf_version)):
            await self._couriers.wait_for_all(file, partial(lacking, file, version))
        await self._own.wait(PATIENCE_S)

    def _candidates(self) -> list[Courier]:
        return [each for each in self._couriers if self._nodes[each.name].master_candidate]

    def _behind(self, serial_no: int) -> list[Courier]:
        candidates = self._candidates()
        return [each for each in candidates if not each.copies.has_version(CONFIG, serial_no)]

    def _tally(self, serial_no: int) -> Tally:
        candidates = self._candidates()
        reached = [each.name for each in candidates if each.copies.has_version(CONFIG, serial_no)]
        others = [each.name for each in candidates]
        return lease.tally(self._keeper.paths, self._own_name, others, reached)

    def _not_enough(self, serial_no: int) -> OpExecError:
        missing = "; ".join(
            f"{each.name}: {each.copies.error or 'no answer yet'}"
            for each in self._behind(serial_no)
        )
        return OpExecError(
            f"the configuration is not on enough master candidates; missing are {missing}."
            " Mark nodes that are gone with 'gnt-node modify --offline yes NODE'"
        )
