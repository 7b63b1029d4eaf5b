"""The role of the master: its change, as this node takes part in it, and the master's address.

Under that address the cluster is reached, on any master node.  On a virtual node the addresses of
the loopback network are there without being set up, so there is nothing to do; a real node adds the
address to its device and removes it again.

Source: ARCHITECTURE, invariant 9; node_rpc.json, "MasterNetworkParameters_sent"; config.json,
"well_known_paths".
"""

import contextlib
import logging
import os
from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import GenericError, JobLost, TransportError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs.status import FINAL, Status
from ganeti.node_ops import scripts
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.objects.model import IpFamily, MasterNetworkParameters
from ganeti.protocol.luxi import DrainedBy
from ganeti.protocol.node_rpc import DEFAULT_PORT
from ganeti.protocol.node_rpc_values import CompressedText, DrainResult, NodeFacts
from ganeti.store import config_file
from ganeti.store.job_files import JobFiles
from ganeti.store.master_facts import (
    Claim,
    accept_master,
    own_facts,
    running_jobs,
    set_config_aside,
    take_claim,
)
from ganeti.system import clock, daemon_control, environment, process, programs
from ganeti.system.filelock import FileLock
from ganeti.transport.addresses import serves

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S: Final = 5.0
_END_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.05  # for processes of jobs, which may be anybody's children
_NO_LOG: Final = 1 << 40  # no serial number of a log entry is higher
_STATE: Final = ("status", "start_ts")  # of a job
_WCONFD: Final = "ganeti-wconfd"
_LUXID: Final = "ganeti-luxid"
_COMMAND_TIMEOUT_S: Final = 20.0
_SCRIPT_NAME: Final = "master-ip-setup"
_PING_TIMEOUT_S: Final = 10.0
_ADDRESS_LOCK_S: Final = _PING_TIMEOUT_S + _COMMAND_TIMEOUT_S


class Master(NodeHandler):
    """The change of the master, and its address."""

    def master_facts(self) -> NodeFacts:
        return own_facts(self.paths)

    def master_claim(self, known_serial: int, serial_no: int, master_name: str) -> None:
        claim = Claim(serial_no, master_name)
        take_claim(self.paths, known_serial=known_serial, claim=claim)
        logger.info("Node %s is to become master (serial number %s)", master_name, serial_no)

    def master_accept(self, serial_no: int, values: Mapping[str, str]) -> None:
        accept_master(self.paths, serial_no=serial_no, values=dict(values))
        logger.info("The master is %s from now on", values.get("master_node"))

    def config_read(self) -> CompressedText | None:
        if not config_file.has_config(self.paths):
            return None
        return CompressedText(config_file.read_config(self.paths))

    def config_set_aside(self) -> str | None:
        running = own_facts(self.paths).daemons
        if running:
            raise GenericError(f"{' and '.join(running)} run here")
        path = set_config_aside(self.paths, now=clock.now())
        if path is not None:
            logger.warning("The configuration here was not the cluster's; it is now %s", path)
        return None if path is None else self.paths.globalize(path)

    def master_drain(self, timeout_s: float) -> DrainResult:
        deadline_s = clock.monotonic() + timeout_s
        with _alone(self.node, timeout_s):
            return _drain(self.node, deadline_s)

    def node_activate_master_ip(
        self, master_params: MasterNetworkParameters, *, use_external_mip_script: bool
    ) -> None:
        # LuxiD asks for it at its start, and others may at the same time: what answers on the
        # address must not be this node itself.
        with _address_lock(self.node, has_script=use_external_mip_script):
            if use_external_mip_script:
                self._run_external(master_params, "start")
                return
            if environment.is_own_address(master_params.ip):
                logger.info("the master address %s is here already", master_params.ip)
                return
            if self.paths.root:
                text = "a virtual node takes no address outside the loopback network"
                raise GenericError(f"{text}, and {master_params.ip} is one")
            if serves(master_params.ip, DEFAULT_PORT, _PING_TIMEOUT_S):
                raise GenericError(
                    f"another machine answers on the master address {master_params.ip}"
                )
            _address("add", master_params.ip, master_params.netmask, master_params.netdev)
        _announce(master_params)

    def node_deactivate_master_ip(
        self, master_params: MasterNetworkParameters, *, use_external_mip_script: bool
    ) -> None:
        with _address_lock(self.node, has_script=use_external_mip_script):
            if use_external_mip_script:
                self._run_external(master_params, "stop")
                return
            if self.paths.root or not environment.is_own_address(master_params.ip):
                logger.info("the master address %s is not set up here", master_params.ip)
                return
            _address("del", master_params.ip, master_params.netmask, master_params.netdev)

    def node_change_master_netmask(
        self, old_netmask: int, netmask: int, master_ip: str, master_netdev: str
    ) -> None:
        if old_netmask == netmask or self.paths.root:
            return
        with _address_lock(self.node, has_script=False):
            if not environment.is_own_address(master_ip):
                raise GenericError(f"the master address {master_ip} is not on node {self.hostname}")
            if ":" in master_ip:
                _replace_ipv6(master_ip, old_netmask, netmask, master_netdev)
                return
            _address("add", master_ip, netmask, master_netdev)
            _address("del", master_ip, old_netmask, master_netdev)

    def _run_external(self, params: MasterNetworkParameters, verb: str) -> None:
        """Let the administrator's script set the address up or take it down.

        Raises:
            GenericError: there is no such script.
            CommandError: it failed.
        """
        path = os.path.join(self.paths.user_scripts_dir, _SCRIPT_NAME)
        if not programs.is_runnable(path):
            raise GenericError(f"the script {path} is missing or not executable")
        env = {
            "PATH": scripts.PATH,
            "MASTER_NETDEV": params.netdev,
            "MASTER_IP": params.ip,
            "MASTER_NETMASK": str(params.netmask),
            "CLUSTER_IP_VERSION": "6" if params.ip_family is IpFamily.IPV6 else "4",
        }
        timeout_s = self.node.script_timeout_s()
        process.run([path, verb], timeout_s=timeout_s, env=env, cwd="/").check()


def _address_lock(context: NodeContext, *, has_script: bool) -> FileLock:
    """Return the lock of the address, once nobody else has it: the script may take its time."""
    return FileLock(f"{context.paths.lock_dir}/ganeti-master-ip.lock").taken(
        context.script_timeout_s() if has_script else _ADDRESS_LOCK_S,
        f"node {context.hostname} is setting the master address up or down; try again later",
    )


def _address(verb: str, ip: str, netmask: int, netdev: str, *flags: str) -> None:
    """Add an address to a device, or remove it."""
    argv = ["ip", "address", verb, f"{ip}/{netmask}", "dev", netdev, *flags]
    process.run(argv, timeout_s=_COMMAND_TIMEOUT_S).check()


def _replace_ipv6(ip: str, old_netmask: int, netmask: int, netdev: str) -> None:
    """Give an address another netmask; of IPv6 a device has each address only once.

    It was this node's until now, so nobody else is asked for it (``nodad``), and it counts at once.
    """
    _address("del", ip, old_netmask, netdev)
    try:
        _address("add", ip, netmask, netdev, "nodad")
    except GenericError:
        _address("add", ip, old_netmask, netdev, "nodad")
        raise


def _announce(params: MasterNetworkParameters) -> None:
    """Tell neighbours of the address; they would find out by themselves, later."""
    if params.ip_family is not IpFamily.IPV4:
        return
    argv = ["arping", "-q", "-U", "-c", "3", "-I", params.netdev, "-s", params.ip, params.ip]
    try:
        process.run(argv, timeout_s=_COMMAND_TIMEOUT_S).check()
    except GenericError as err:
        logger.warning("cannot announce the master address: %s; ignoring", err.message)


# Letting go.


def _alone(context: NodeContext, timeout_s: float) -> FileLock:
    return FileLock(f"{context.paths.lock_dir}/ganeti-master-drain.lock").taken(
        timeout_s,
        f"node {context.hostname} is finishing its jobs for another node that is to become master",
    )


def _drain(context: NodeContext, deadline_s: float) -> DrainResult:
    paths = context.paths
    result = DrainResult(was_drained=_was_drained(paths))
    luxid = daemon_control.running_pid(paths, _LUXID)
    if luxid is not None or running_jobs(paths):
        _ensure_wconfd(context)
    if luxid is not None:
        try:
            result = _drain_queue(context, deadline_s)
        except TransportError as err:
            # One that was just told of its successor hangs up before its process is gone.
            if not process.wait_gone(luxid, _END_S):
                raise
            logger.info("ganeti-luxid has ended meanwhile (%s)", err.message)
    if not result.left:
        left = _wait_for_processes(context, deadline_s)
        result = DrainResult(left=left, was_drained=result.was_drained)
    return result


def _was_drained(paths: Paths) -> bool:
    """Tell whether an operator closed the queue; a mark of an earlier attempt does not count."""
    queue = JobFiles(paths)
    return queue.is_drained() and queue.drained_by() is None


def _ensure_wconfd(context: NodeContext) -> None:
    try:
        daemon_control.start_daemon(context.paths, _WCONFD, hostname=context.hostname)
    except GenericError as err:
        logger.warning("The jobs here go on without WConfD: %s; ignoring", err.message)


def _drain_queue(context: NodeContext, deadline_s: float) -> DrainResult:
    """Close the queue and wait until every job in it has ended.

    Jobs that have not begun by the end of the time are no hindrance: the next master runs them.
    """
    with LuxiClient(context.paths, connect_timeout_s=_CONNECT_TIMEOUT_S) as client:
        was_drained = _was_drained(context.paths)
        if not was_drained:
            client.set_drain_flag(True, DrainedBy.FAILOVER)
        unfinished = _unfinished(client)
        while unfinished and clock.monotonic() < deadline_s:
            job_id, state = next(iter(unfinished.items()))
            with contextlib.suppress(JobLost):  # archived meanwhile
                left_s = max(0.0, deadline_s - clock.monotonic())
                client.wait_for_job_change(job_id, _STATE, state, _NO_LOG, left_s)
            unfinished = _unfinished(client)
        left = tuple(job_id for job_id, state in unfinished.items() if _has_process(*state))
        if left and not was_drained:
            client.set_drain_flag(False)
    return DrainResult(left=left, was_drained=was_drained)


def _unfinished(client: LuxiClient) -> dict[JobId, list[object]]:
    """Return the jobs that have not ended, with the values of `_STATE`."""
    rows = client.query_jobs(None, ["id", *_STATE])
    found = {JobId(int(str(job_id))): state for job_id, *state in rows}
    return {job_id: state for job_id, state in found.items() if state[0] not in FINAL}


def _has_process(status: object, start: object) -> bool:
    """Tell whether a job works or waits for locks; one that waits for others has not begun."""
    return status != Status.QUEUED and start is not None


def _wait_for_processes(context: NodeContext, deadline_s: float) -> tuple[int, ...]:
    """Wait until no job process runs here; returns the jobs of the processes that still do."""
    left = running_jobs(context.paths)
    while left and clock.monotonic() < deadline_s:
        clock.pause(_LOOK_AGAIN_S)
        left = running_jobs(context.paths)
    return left
