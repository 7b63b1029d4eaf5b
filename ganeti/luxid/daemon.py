"""The master daemon that runs the job queue and answers questions.

Theory of operation.  One loop.  Requests come over the LUXI socket; jobs are taken in, scheduled
and handed to processes of their own, which are then only watched: their files through inotify,
their lives through their lock files.  One watcher brings the events of the configuration and of
the job files, in the order in which they happened.

Stopping: no new jobs are taken or started, hand-overs that have begun are finished, waiting clients
are answered.  Running jobs go on by themselves; the next LuxiD finds them.

Source: daemons-2.12, "LUXI daemon"; ARCHITECTURE.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Final, NoReturn

from ganeti.base.daemons import ASKING_LUXID
from ganeti.base.errors import ConfigurationError, GenericError, NotMasterError, ProtocolError
from ganeti.base.paths import Paths
from ganeti.bootstrap.queue_merge import describe, merge_queue, raise_serial
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.master_poll import other_nodes
from ganeti.clients.node_rpc import NodeRpcClient, RpcResult, Target
from ganeti.daemon import memory
from ganeti.daemon.audit import AuditLog, Entry, entries_of_call, program_of
from ganeti.daemon.context import DaemonContext
from ganeti.daemon.master_watch import MasterWatch, poll_everybody
from ganeti.daemon.partner import look_after
from ganeti.daemon.tally import Counter
from ganeti.daemon.users import UserNames, strangers
from ganeti.jobs.scheduler import LimitChanged, QuorumChanged, tracked_limit
from ganeti.jobs.votes import Poll, Standing, highest_job_id, judge, newer_jobs
from ganeti.luxid.cluster_methods import ClusterMethods
from ganeti.luxid.config_view import ConfigView
from ganeti.luxid.console_methods import ConsoleMethods
from ganeti.luxid.growth_methods import GrowthMethods
from ganeti.luxid.job_methods import JobMethods
from ganeti.luxid.live_calls import LiveCalls
from ganeti.luxid.options import NAME, Options
from ganeti.luxid.query_methods import QueryMethods
from ganeti.luxid.queue.commands import JobCommands
from ganeti.luxid.queue.filters import JobFilters
from ganeti.luxid.queue.follower import Follower
from ganeti.luxid.queue.job_store import JobStore
from ganeti.luxid.queue.known_jobs import KnownJob, KnownJobs, Phase
from ganeti.luxid.queue.metrics import QueueMetrics
from ganeti.luxid.queue.processes import WARM_DEFAULT, Pool, remove_rehearsals
from ganeti.luxid.queue.replication import Replication
from ganeti.luxid.queue.starter import JobStarter
from ganeti.luxid.queue.submission import Submissions
from ganeti.luxid.tasks import Tasks
from ganeti.objects.model import FilterRule, master_network_parameters
from ganeti.opcodes.registry import all_op_ids
from ganeti.protocol.envelope import Request, RequestError
from ganeti.protocol.job_start import WARM_LOCK_PREFIX
from ganeti.protocol.luxi import MESSAGE_BYTES_MAX, SOCKET_MODE, DrainedBy, LuxiCalls, Rules
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.service import Call, handlers_of
from ganeti.protocol.wconfd import ClientId
from ganeti.store.config_reader import ConfigReader
from ganeti.store.job_files import JobFiles, job_id_of
from ganeti.store.lease import CopiesReporter
from ganeti.system import clock, files
from ganeti.system.filelock import LiveLock, is_alive
from ganeti.system.inotify import Kind, Watcher
from ganeti.system.process_facts import ExitWatcher
from ganeti.transport.unix_server import Connection, UnixLimits, serve_unix

logger = logging.getLogger(__name__)

QUEUE_LOCK_TIMEOUT_S: Final = 10.0
SETTLE_TIMEOUT_S: Final = 3.0
# A fail-over that closes the queue can be seen from before that until its end.
DRAIN_LOOK_S: Final = 2.0
_DRAIN_LOOKS: Final = 2  # an answer may have been under way when it began
ADDRESS_PAUSE_S: Final = 5.0
_BRING_UP: Final = "bring up the cluster's address"
_OUR_LOCKS: Final = (WARM_LOCK_PREFIX, "luxi-daemon_", "job_")
_LIVELOCK_MODE: Final = 0o750
_CONFIG_DELAY_S: Final = 0.02  # several changes at once are read once; a question reads at once


class LuxiDaemon:
    """All parts of LuxiD, put together."""

    def __init__(
        self, context: DaemonContext, livelock: LiveLock, tasks: Tasks, reader: ConfigReader
    ) -> None:
        paths = context.paths
        self._context = context
        self._paths = paths
        self._tasks = tasks
        self._exits = ExitWatcher(asyncio.get_running_loop())
        self._watcher = Watcher()
        self._rpc = AsyncNodeRpcClient(paths)
        self._view = ConfigView(paths, self._on_config_changed, reader)
        self._known_jobs = KnownJobs()
        self._config_changed = asyncio.Event()
        self._rules: list[FilterRule] = []
        self._watch = MasterWatch(context, self._rpc)
        self._replication = Replication(
            paths,
            context.hostname,
            self._rpc,
            tasks,
            self._known_jobs,
            on_quorum=self._on_quorum_changed,
            on_refused=self._watch.prompt,
            confirm=self._confirm,
            pass_over=self._pass_over,
        )
        self._watch.reporter = CopiesReporter(
            paths, NAME, self._replication.wanted, self._replication.lacking
        )
        self._store = JobStore(paths, self._replication)
        self._follower = Follower(
            paths, self._known_jobs, self._store, self._exits, tasks, self._on_ended, self._on_moved
        )
        self._pool = Pool(
            paths, WARM_DEFAULT, tasks, self._exits, by_exec=context.options_as(Options).exec_jobs
        )
        metrics = QueueMetrics()
        self._starter = JobStarter(
            self._known_jobs,
            self._store,
            self._pool,
            self._follower,
            tasks,
            self._may_start,
            self._may_start_at_once,
            metrics,
        )
        self._submissions = Submissions(
            self._known_jobs, self._store, self._starter, self._follower, tasks
        )
        owner = ClientId(f"luxid-{os.getpid()}", livelock.path, os.getpid())
        self._jobs = JobMethods(self._known_jobs, self._store, self._submissions, metrics)
        queue = (self._known_jobs, self._store, self._submissions, self._starter, self._follower)
        live = LiveCalls(self._rpc, tasks)
        self._commands = JobCommands(paths, *queue)
        servers = (
            self._jobs,
            self._commands,
            QueryMethods(paths, self._view, live, self._known_jobs, self._store, owner),
            ClusterMethods(paths, self._view, self._submissions, self._replication, owner),
            GrowthMethods(self._view, self._known_jobs, self._store),
            ConsoleMethods(paths, self._view),
        )
        audit = AuditLog(f"{paths.log_dir}/audit.log")
        context.on_reload.append(audit.reopen)
        self.dispatch = Dispatch(servers, self._view, audit, metrics.calls)

    def start(self, poll: Poll) -> None:
        """Read configuration and queue, and begin to follow both.

        Args:
            poll: the answers of the nodes to the question for the master.
        """
        self._watcher.watch(
            self._paths.data_dir, ("moved_to", "close_write"), self._on_config_event
        )
        self._watcher.watch(self._paths.queue_dir, ("moved_to",), self._on_queue_event)
        self._watcher.watch(self._paths.luxid_message_dir, ("modify",), self._follower.on_log_event)
        self._watcher.watch(self._paths.livelock_dir, ("delete",), self._follower.on_livelock_event)
        self._view.refresh()
        self._submissions.load()
        self._follower.remove_old_logs()
        self._replication.start(poll)
        self._tasks.create_task(self._follower.sweep(), name="sweep of running jobs")
        self._tasks.create_task(self._end_drain_left_behind(), name="watch over the drain flag")
        self._pool.fill()
        self._tasks.create_task(self._take_master_ip(), name="take the master address")
        asks_nobody = self._context.options_as(Options).no_voting
        watch = self._watch.only_report() if asks_nobody else self._watch.run()
        self._tasks.create_task(watch, name="watch over the master role")
        partner = look_after(self._context, "ganeti-wconfd")
        self._tasks.create_task(partner, name="watch over WConfD")

    def prepare(self) -> None:
        """Begin to look at everything before somebody asks."""
        self._tasks.create_task(self._prepare_answers(), name="prepare answers")

    async def stop(self) -> None:
        """Finish the work that has begun, within a short time."""
        self._starter.stop()
        self._jobs.stop()
        deadline = clock.monotonic() + SETTLE_TIMEOUT_S
        for known in self._known_jobs.in_phase(Phase.STARTING):
            left_s = deadline - clock.monotonic()
            if left_s > 0:
                await wait_for_turn(known.turn, left_s)
        self._pool.close()

    def close(self) -> None:
        """Let everything go."""
        self._pool.close()
        self._store.close()
        self._tasks.cancel()
        self._watcher.close()
        self._exits.close()

    def _on_ended(self, known: KnownJob) -> None:
        self._store.on_process_ended(known.job.id, known.lagging, known.brought)
        self._starter.on_ended(known)

    def _on_moved(self, known: KnownJob) -> None:
        self._starter.on_moved(known)

    def _on_config_event(self, name: str, kind: Kind) -> None:
        if name.startswith("ssconf_") or not name:
            self._replication.on_candidates_changed()
        if name not in ("config.data", "config.journal", ""):
            return  # locks.data changes with every job
        self._view.on_file_event(name, kind)
        asyncio.get_running_loop().call_later(_CONFIG_DELAY_S, self._view.refresh)

    def _pass_over(self, job_id: int) -> None:
        self._submissions.pass_over(job_id)

    async def _confirm(self) -> bool:
        return self._context.options_as(Options).no_voting or await self._watch.check()

    async def _may_start(self) -> bool:
        return self._context.options_as(Options).no_voting or await self._watch.may_act()

    def _may_start_at_once(self) -> bool:
        """Tell whether no other node needs to be asked before."""
        return self._context.options_as(Options).no_voting or self._watch.holds_lease()

    def _on_quorum_changed(self, is_lost: bool) -> None:
        self._starter.tell(QuorumChanged(is_lost))

    async def _end_drain_left_behind(self) -> None:
        """Take jobs again when the fail-over that closed the queue is gone and changed nothing."""
        looks = 0
        seen: object = None
        while True:
            await asyncio.sleep(DRAIN_LOOK_S)
            try:
                flag = self._store.files.drain_mark()
                is_left = await self._is_drain_left_behind()
                # Whoever set the flag anew meanwhile, an operator or a fail-over, keeps it.
                looks = looks + 1 if is_left and flag == (seen or flag) else 0
                seen = flag if looks else None
                if looks >= _DRAIN_LOOKS and flag == self._store.files.drain_mark():
                    await self._commands.set_drain_flag(False)
                    logger.info("The queue takes jobs again: the fail-over that closed it is gone")
            except (GenericError, OSError) as err:
                logger.warning("Cannot look whether a fail-over goes on: %s; ignoring", err)

    async def _is_drain_left_behind(self) -> bool:
        if self._store.files.drained_by() is not DrainedBy.FAILOVER:
            return False
        poll = await poll_everybody(self._rpc, self._paths, self._context.hostname)
        if any(facts.fails_over for facts in poll.known().values()):
            return False
        return (
            self._context.options_as(Options).no_voting
            or judge(poll).standing is Standing.CONFIRMED
        )

    async def _take_master_ip(self) -> None:
        """Bring the cluster's address up on this node, unless it is.

        The node daemon may be starting too, and take its time: it is asked until it answers.
        """
        is_told = False
        try:
            while (result := await self._ask_for_master_ip()).address:
                if not is_told:
                    logger.warning("%s; trying again", result.explain(_BRING_UP))
                is_told = True
                await asyncio.sleep(ADDRESS_PAUSE_S)
            if result.error is not None:
                logger.warning("%s; going on without", result.explain(_BRING_UP))
        except GenericError as err:
            logger.warning("cannot %s: %s; going on without", _BRING_UP, err.message)

    async def _ask_for_master_ip(self) -> RpcResult[object]:
        cluster, own = self._view.cluster, self._view.master
        return await self._rpc.call_one(
            NodeCalls.node_activate_master_ip,
            Target(own.name, own.primary_ip),
            master_network_parameters(cluster),
            use_external_mip_script=cluster.use_external_mip_script,
        )

    def _preparation(self) -> Iterator[None]:
        """Decode changes of the configuration before anybody asks, in small steps."""
        try:
            yield from self._view.prepared()
        except ConfigurationError as err:
            logger.warning("%s; questions about it will fail", err.message)

    async def _prepare_answers(self) -> None:
        with memory.of_what_stays():
            await self._prepare_once()
        while True:
            await self._prepare_once()

    async def _prepare_once(self) -> None:
        await self._config_changed.wait()
        self._config_changed.clear()
        for _step in self._preparation():
            await asyncio.sleep(0)  # others first
            if self._config_changed.is_set():
                break

    def _on_config_changed(self) -> None:
        self._config_changed.set()
        cluster = self._view.cluster
        limit = tracked_limit(
            running_max=cluster.max_running_jobs, tracked_max=cluster.max_tracked_jobs
        )
        self._starter.tell(LimitChanged(limit))
        try:
            rules = list(self._view.filters.values())
        except ConfigurationError as err:
            logger.warning("Cannot read the job filters: %s; the old ones stay", err)
            return
        if rules != self._rules:
            self._rules = rules
            self._submissions.set_filters(JobFilters(rules))

    def _on_queue_event(self, name: str, kind: Kind) -> None:
        if kind == "overflow":
            self._follower.on_overflow()
            return
        job_id = job_id_of(name)
        if job_id is not None:
            self._view.refresh()  # the configuration before the job
            self._follower.on_file_changed(job_id)


class Dispatch:
    """Answers requests; made for `ganeti.transport.unix_server`.

    Args:
        servers: objects with a method for each call, which returns the answer or a coroutine.
    """

    def __init__(
        self, servers: Sequence[object], view: ConfigView, audit: AuditLog, calls: Counter
    ) -> None:
        self._handlers: dict[str, Callable[..., object]] = {}
        for server in servers:
            self._handlers |= handlers_of(LuxiCalls, server)
        missing = LuxiCalls.calls.keys() - self._handlers.keys()
        assert not missing, f"nobody serves {missing}"
        self._view = view
        self._audit = audit
        self._users = UserNames()
        self._calls = calls

    def __call__(self, request: Request, connection: Connection) -> object:
        """Answer one request, or return the coroutine that does.

        Raises:
            RequestError: unknown call or wrong arguments; the connection is closed after it.
        """
        call: Call[Rules] | None = LuxiCalls.calls.get(request.method)
        if call is None:
            raise RequestError(f"unknown method {request.method!r:.100}")
        self._calls.add((call.name,))
        try:
            args = call.read(request.args)
        except ProtocolError as err:
            if call.rules.changes:
                return self._refuse(_about(call, connection), connection.peer_uid, err)
            raise RequestError(err.message) from err
        self._view.refresh()
        if call.rules.changes:
            logger.info("%s asks for %s", connection, call.name)
            return self._change(_about(call, connection), connection.peer_uid, args)
        answer = self._handlers[call.name](*args)
        if call.rules.waits and isinstance(answer, Coroutine):
            return _while_connected(answer, connection)
        return answer

    async def _refuse(self, about: Entry, uid: int, err: ProtocolError) -> NoReturn:
        """Refuse a call that would change something, and write that down."""
        about.user = await self._users.name_of(uid)
        self._audit.write(*entries_of_call(about, (), err))
        raise RequestError(err.message) from err

    async def _change(self, about: Entry, uid: int, args: list[Any]) -> object:
        """Answer a call that changes something, and write down what became of it."""
        about.user = await self._users.name_of(uid)
        answer: object = None
        try:
            answer = self._handlers[about.what](*args)
            if isinstance(answer, Coroutine):
                answer = await answer
        except BaseException as err:
            self._audit.write(*entries_of_call(about, args, err))
            raise
        self._audit.write(*entries_of_call(about, args, answer))
        return answer


def _about(call: Call[Rules], connection: Connection) -> Entry:
    """Return what is known of a call at once: all but the name of its user."""
    pid = connection.peer_pid
    return Entry(daemon=NAME, user="", program=program_of(pid), pid=pid, what=call.name)


async def _while_connected(
    answer: Coroutine[object, object, object], connection: Connection
) -> object:
    """Wait for an answer, but not on behalf of a client that is gone."""
    with connection.canceled_when_gone():
        return await answer


async def wait_for_turn(turn: asyncio.Lock, timeout_s: float) -> None:
    """Wait until nobody has the turn, or the time is over."""
    try:
        async with asyncio.timeout(timeout_s):
            async with turn:
                return
    except TimeoutError:
        logger.warning("A job is still being started")


def catch_up(paths: Paths, poll: Poll) -> None:
    """Take over jobs that others know of and this node does not, as after a power cut.

    Raises:
        NotMasterError: they cannot be had, so this node is not fit to be master.
    """
    ahead = newer_jobs(poll)
    if not ahead:
        return

    targets = [target for target in other_nodes(paths, poll.own_name) if target.name in ahead]
    try:
        with NodeRpcClient(paths) as rpc:
            merged = merge_queue(paths, rpc, targets)
        raise_serial(paths, highest_job_id(poll))
    except GenericError as err:
        raise NotMasterError(
            f"{', '.join(ahead)} know of jobs up to {highest_job_id(poll)}, this node only of"
            f" those up to {poll.own.last_job_id}, and they cannot be taken over: {err.message}"
        ) from err
    logger.warning("Others were ahead with job ids; taken from them: %s", describe(merged))


def remove_dead_locks(livelock_dir: str) -> None:
    """Remove lock files that job processes and earlier daemons of ours left behind."""
    for name in os.listdir(livelock_dir):
        if name.startswith(_OUR_LOCKS):
            path = os.path.join(livelock_dir, name)
            if not is_alive(path):
                files.remove_if_exists(path)


async def run(context: DaemonContext, poll: Poll, reader: ConfigReader) -> None:
    """Run the daemon until it is to stop.

    Args:
        poll: the answers of the nodes, which confirm that this one is the master.
        reader: has read the configuration, if that was possible.

    Raises:
        NotMasterError: this node lacks jobs that others know of, and cannot have them.
        GenericError: another LuxiD has the queue.
    """
    paths = context.paths
    JobFiles(paths).prepare()
    files.ensure_directory(paths.livelock_dir, _LIVELOCK_MODE)
    files.ensure_directory(paths.luxid_message_dir, _LIVELOCK_MODE)
    queue_lock = JobFiles(paths).lock()
    await asyncio.to_thread(queue_lock.acquire, timeout_s=QUEUE_LOCK_TIMEOUT_S)
    await asyncio.to_thread(catch_up, paths, poll)
    remove_dead_locks(paths.livelock_dir)
    remove_rehearsals(paths)
    refused = await asyncio.to_thread(strangers, ASKING_LUXID)
    limits = UnixLimits(MESSAGE_BYTES_MAX, strangers=refused)
    name = f"luxi-daemon_{int(clock.now())}"
    with queue_lock, LiveLock.create(f"{paths.livelock_dir}/{name}") as livelock:
        async with asyncio.TaskGroup() as group:
            daemon = LuxiDaemon(context, livelock, Tasks(group), reader)
            try:
                daemon.start(poll)
                async with serve_unix(paths.query_socket, SOCKET_MODE, daemon.dispatch, limits):
                    context.ready()
                    daemon.prepare()
                    await context.stopping.wait()
                    await daemon.stop()
            finally:
                daemon.close()


def load(paths: Paths) -> ConfigReader:
    """Load what the daemon works with: the classes of opcodes, and the configuration."""
    all_op_ids()
    reader = ConfigReader(paths)
    with contextlib.suppress(ConfigurationError):  # the daemon will say so, and begin without
        tables = reader.read()
        assert tables.cluster is not None  # it can be decoded
        reader.take(tables)
    memory.keep_what_is_there()
    return reader
