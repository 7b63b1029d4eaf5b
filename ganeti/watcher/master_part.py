"""The part of the watcher that runs on the master: votes, daemons, jobs, groups, silent nodes.

Every change goes through LuxiD, which asked for votes itself when it started.  The watcher asks
once more before it starts a daemon of the master, so that a deposed master that comes back is left
as it is, with one line in the log.

Source: cli.json, "ganeti-watcher"; design of Ganeti 2.0, "Node flags".
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import psutil

from ganeti.base.daemons import MASTER_DAEMONS, Place
from ganeti.base.errors import GenericError, JobQueueDrainError, JobQueueFull, NotMasterError
from ganeti.base.paths import Paths
from ganeti.bootstrap.node_transport import transport_to
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.luxi import LuxiClient
from ganeti.daemon.master_watch import poll_everybody
from ganeti.jobs.votes import Poll, Standing, judge
from ganeti.objects.tags import BACKUP_TAGS, REHEARSAL_PREFIX, TagKind
from ganeti.opcodes.node import OpNodeSetParams
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.tags import OpTagsDel, OpTagsSet
from ganeti.protocol.rapi.values import DEFAULT_PORT
from ganeti.store import lease, ssconf
from ganeti.system import clock, daemon_control, environment, process
from ganeti.system.ssh import SSH_PORT
from ganeti.transport.curl_pool import CurlPool, CurlRequest, TlsTrust
from ganeti.watcher import memory
from ganeti.watcher.group import connect, reason, unfinished_jobs
from ganeti.watcher.node_part import start_daemons
from ganeti.watcher.silent_nodes import (
    OFFER_TAG,
    NodeAnswer,
    NodesMemory,
    NodesPlan,
    NodeWork,
    SilentRecord,
    plan_nodes,
)

logger = logging.getLogger(__name__)

RAPI: Final = "ganeti-rapi"
CHILDREN_S: Final = 290.0  # as long as there is until the next run
_RAPI_S: Final = 10.0
_ARCHIVE_S: Final = 30
_SSH_S: Final = 60.0
_TRIED_AT_ONCE: Final = 16
_ANSWERED: Final = (200, 401, 403)


class Children:
    """The processes that look after the groups.

    Args:
        words: of the command line of each.
    """

    def __init__(self, paths: Paths, words: Sequence[str]) -> None:
        self._paths = paths
        self._words = words
        self._running: dict[str, Any] = {}

    def start(self, groups: Mapping[str, str]) -> None:
        """Start one for each group, {UUID: name}."""
        env = daemon_control.environment_of(self._paths, environment.own_hostname())
        for uuid, name in groups.items():
            words = ["--node-group", uuid, *self._words]
            argv = daemon_control.command("ganeti-watcher", words)
            self._running[name] = process.spawn(argv, env=env)

    def wait(self) -> bool:
        """Wait for all, and end those that hang; returns whether all went well."""
        deadline, is_well = clock.monotonic() + CHILDREN_S, True
        for name, child in self._running.items():
            left_s = max(0.0, deadline - clock.monotonic())
            if not process.wait_gone(child.pid, left_s):
                logger.error("The run for group %s does not end: killing it", name)
                process.terminate(child.pid, 1.0)
            if child.poll() != 0:
                logger.error("The run for group %s failed; the lines above say why", name)
                is_well = False
        return is_well


def look_after_master(
    paths: Paths, children: Children, *, job_age_s: int, rapi_address: str | None
) -> bool:
    """Do the work of the master, and start that of the groups; returns whether all went well.

    Raises:
        NotMasterError: the other nodes do not confirm that this one is the master.
    """
    poll = asyncio.run(_ask_everybody(paths))
    _check_votes(paths, poll)
    is_well = start_daemons(paths, Place.MASTER)
    with connect(paths) as client:
        rows = client.query_groups([], ["uuid", "name", "tags"])
        children.start({str(uuid): str(name) for uuid, name, _ in rows})
        group_tags = [tag for _, _, tags in rows for tag in tags]
        work: dict[str, Callable[[], bool]] = {
            "archive jobs": lambda: _archive(client, job_age_s),
            "look after the remote API": lambda: _look_after_rapi(paths, rapi_address),
            "look after silent nodes": lambda: _look_after_nodes(client, paths, poll),
            "look after backups": lambda: _look_after_backups(client, group_tags),
        }
        for doing, step in work.items():
            try:
                is_well &= step()
            except (GenericError, OSError) as err:
                logger.warning("Cannot %s: %s", doing, err)
                is_well = False
    return is_well


async def _ask_everybody(paths: Paths) -> Poll:
    async with AsyncNodeRpcClient(paths) as rpc:
        return await poll_everybody(rpc, paths, environment.own_hostname())


def _check_votes(paths: Paths, poll: Poll) -> None:
    """Refuse to act as master where the nodes do not confirm it.

    Too few answers keep daemons from being started, not from being used: those that run had enough.
    """
    verdict = judge(poll)
    are_running = all(daemon_control.running_pid(paths, name) for name in MASTER_DAEMONS)
    if verdict.standing is Standing.REFUSED or (
        verdict.standing is Standing.UNDECIDED and not are_running
    ):
        raise NotMasterError(
            f"Leaving the work of the master alone: {verdict.reason}", verdict.master_name
        )


def _archive(client: LuxiClient, age_s: int) -> bool:
    archived, left = client.auto_archive_jobs(age_s, _ARCHIVE_S)
    logger.log(logging.INFO if archived else logging.DEBUG, "Archived %d jobs", archived)
    if left:
        logger.info("%d jobs were not looked at for lack of time", left)
    return True


def _look_after_backups(client: LuxiClient, group_tags: Sequence[str]) -> bool:
    """Begin the backups that are due, if anything has a policy; remove what rehearsals left."""
    cluster_tags = client.query_cluster_info()["tags"]
    tagged = client.query("instance", ["name", "uuid", "tags"], ["?", "tags"]).rows()
    made = [row for row in tagged if str(row[0]).startswith(REHEARSAL_PREFIX)]
    instance_tags = (tag for _, _, tags in tagged for tag in _texts(tags))
    tags = itertools.chain(cluster_tags, group_tags, instance_tags)
    has_policy = any(tag.startswith(BACKUP_TAGS) for tag in tags)
    if not made and not has_policy:
        return True
    from ganeti.watcher.backups import begin_backups, remove_left_over  # most do without it

    is_well = remove_left_over(client, made)
    return (not has_policy or begin_backups(client, cluster_tags)) and is_well


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


# The remote API


def _look_after_rapi(paths: Paths, address: str | None) -> bool:
    """Start the remote API anew once if it runs and does not answer."""
    if daemon_control.running_pid(paths, RAPI) is None:  # not wanted, or it did not start
        return True
    reason_before = _rapi_silence(paths, address)
    if reason_before is None:
        return True
    logger.warning("The remote API does not answer (%s): starting it anew", reason_before)
    daemon_control.stop_daemon(paths, RAPI)
    daemon_control.start_daemon(paths, RAPI, hostname=environment.own_hostname())
    reason_after = _rapi_silence(paths, address)
    if reason_after is not None:
        logger.error("The remote API does not answer after a new start: %s", reason_after)
    return reason_after is None


def _listening(pid: int) -> list[tuple[str, int]]:
    """Return the addresses and TCP ports that a process listens at; none if it is gone."""
    try:
        found = psutil.Process(pid).net_connections(kind="tcp")
    except (psutil.Error, AttributeError):  # versions before 6 have another name for it
        return []
    return [(each.laddr.ip, each.laddr.port) for each in found if each.status == psutil.CONN_LISTEN]


def _rapi_silence(paths: Paths, address: str | None) -> str | None:
    """Return why the remote API does not answer, by TLS or without; None if it does."""
    pid = daemon_control.running_pid(paths, RAPI)
    found = _listening(pid) if pid is not None else []
    own, port = found[0] if found else ("127.0.0.1", DEFAULT_PORT)
    host = address or {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(own, own)  # noqa: S104
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    pool = CurlPool(TlsTrust(checks_certificate=False, checks_name=False))
    try:
        silence = ""
        for scheme in ("https", "http"):
            request = CurlRequest(f"{scheme}://{place}/version", b"", _RAPI_S, method="GET")
            [response] = pool.perform([request])
            if response.status in _ANSWERED:
                return None
            silence = silence or response.error or f"HTTP status {response.status}"
        return f"{place}: {silence}"
    finally:
        pool.retire()


# Silent nodes


def _look_after_nodes(client: LuxiClient, paths: Paths, poll: Poll) -> bool:
    """Try silent nodes, set them offline, offer others back, as far as the cluster wants it."""
    tries_max = client.query_cluster_info().get("silent_node_tries", 0)
    before = memory.read(paths.watcher_nodes_data, NodesMemory)
    if not tries_max:
        return True
    offline = ssconf.offline_nodes(paths)
    nodes = {
        name: NodeAnswer(name in offline, _silence(poll.silent.get(name, "")))
        for name in poll.nodes
        if name != poll.own_name
    }
    busy = {
        str(opcode.get("node_name")) for _, opcodes in unfinished_jobs(client) for opcode in opcodes
    }
    plan = plan_nodes(before, nodes, tries_max, busy, is_available=lease.is_on(paths))
    for level, text in plan.notes:
        logger.log(level, "%s", text)
    if plan.memory != before:
        memory.write(paths.watcher_nodes_data, plan.memory)
    refused = _submit(client, plan)
    if refused:
        records = dict(plan.memory.node)
        for name in refused:
            records[name] = before.node.get(name, SilentRecord())
        memory.write(paths.watcher_nodes_data, NodesMemory(records))
    _try_over_ssh(paths, _named(plan, NodeWork.TRY))
    return not refused


def _silence(answer: str) -> str:
    """Return why a node is silent; one that answers with a refusal is not."""
    return "" if answer.startswith("HTTP status") else answer


def _named(plan: NodesPlan, work: NodeWork) -> list[str]:
    return [name for name, each in plan.work.items() if each is work]


def _submit(client: LuxiClient, plan: NodesPlan) -> list[str]:
    """Submit the jobs of a plan; returns the nodes whose jobs were refused."""
    jobs = {name: work for name, work in plan.work.items() if work is not NodeWork.TRY}
    if not jobs:
        return []
    opcodes = [[_opcode_of(name, work)] for name, work in jobs.items()]
    try:
        answers = client.submit_many_jobs(opcodes)
    except (JobQueueDrainError, JobQueueFull) as err:
        logger.warning("Cannot submit jobs for nodes: %s", err.message)
        return list(jobs)
    refused = []
    for (name, work), (is_submitted, answer) in zip(jobs.items(), answers, strict=True):
        if is_submitted:
            logger.info("Submitted job %s for node %s, to %s", answer, name, work)
        else:
            logger.error("Cannot %s, node %s: %s", work, name, answer)
            refused.append(name)
    return refused


def _opcode_of(name: str, work: NodeWork) -> OpCode:
    why = reason(f"{work}: node {name}")
    if work is NodeWork.SET_OFFLINE:
        return OpNodeSetParams(node_name=name, offline=True, auto_promote=True, reason=why)
    kind = OpTagsSet if work is NodeWork.OFFER else OpTagsDel
    return kind(kind=TagKind.NODE, name=name, tags=[OFFER_TAG], reason=why)


def _try_over_ssh(paths: Paths, names: Sequence[str]) -> None:
    """Have the watchers of some nodes start the daemons there, several at a time."""
    ports = ssconf.parse_map("ssh_ports", ssconf.read_key_or_none(paths, "ssh_ports") or "", "=")
    cluster_name = ssconf.cluster_name(paths)

    def attempt(name: str) -> str:
        port = int(ports.get(name, SSH_PORT))
        transport = transport_to(paths, name, cluster_name=cluster_name, port=port)
        argv = daemon_control.command("ganeti-watcher")
        try:
            result = transport.run(argv, stdin=b"", timeout_s=_SSH_S)
        except GenericError as err:
            return err.message
        end = "its watcher ran" if not result.status else process.describe_end(result)
        return f"{end} ({result.output_tail(1)})" if result.output_tail(1) else end

    with ThreadPoolExecutor(_TRIED_AT_ONCE) as threads:
        for name, words in zip(names, threads.map(attempt, names), strict=True):
            logger.warning("Node %s over SSH: %s", name, words)
