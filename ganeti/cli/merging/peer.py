"""``cluster-merge-peer``: what a merge has done on one node of the other cluster.

Each action may be asked for again after it was cut off.  Data comes as JSON on the standard input,
and goes out so.

Source: design-2.1, "Automated Ganeti Cluster Merger".
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from ganeti.base import json
from ganeti.base.daemons import Place
from ganeti.base.errors import GenericError, OpExecError, OpPrereqError, wrong_state
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.base.text import shown, ssh_keys_by_node
from ganeti.cli.command import ArgKind, Context, Options, opt
from ganeti.cli.declaration.program import DEBUG, single_program
from ganeti.cli.merging import journal as note
from ganeti.cli.run.jobs import FINAL_STATUSES, encode, results_of_all
from ganeti.clients import master_poll
from ganeti.clients.node_rpc import NodeRpcClient
from ganeti.config.config_data import split_config
from ganeti.config.overlay import decode_record
from ganeti.jobs.votes import votes_needed
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine.master import Master
from ganeti.objects.model import Cluster, InstanceStatus, master_network_parameters
from ganeti.opcodes.instance import OpInstanceShutdown, OpInstanceStartup
from ganeti.opcodes.opcode import OpCode
from ganeti.protocol.luxi import DrainedBy
from ganeti.protocol.node_rpc_values import CompressedText
from ganeti.store import config_file, lease, ssconf
from ganeti.store.job_files import JobFiles
from ganeti.store.notes import renewal, watcher_pause
from ganeti.system import clock, daemon_control, files, ssh
from ganeti.system.environment import own_hostname

NAME: Final = "cluster-merge-peer"
INPUT_BYTES_MAX: Final = 16 << 20
IDLE_TIMEOUT_S: Final = 300.0
_LOOK_AGAIN_S: Final = 0.1
_KNOWN_HOSTS_BYTES_MAX: Final = 1 << 20
_EVERYWHERE: Final = frozenset(Place)
_NODE: Final = frozenset({Place.NODE})
NO_VOTING: Final = ("--no-voting", "--yes-do-it")
"""Arguments of the daemons of a master that asks nobody."""


class Ask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data of an action; each uses what it needs.

    Attributes:
        keys: public SSH keys.
        names: of instances.
        until: of the watcher's pause.
        is_master: the node is the master of its cluster.
        lost: nodes that will not come back.
    """

    keys: list[str] = []
    names: list[str] = []
    until: float | None = None
    is_master: bool = False
    lost: list[str] = []


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to an action.

    Attributes:
        master: the name of the master, as this node knows it.
        config: the configuration, packed.
        running: the names of the instances that run.
        unknown: instances that may run, with their primary nodes, which are online and silent.
        ssh_keys: see `Journal`.
        heeds_votes: the master's daemons were started as always.
        keys: those of the question that log in already.
        until: of the watcher's pause.
    """

    cluster: str = ""
    master: str = ""
    config: list[object] | None = None
    known_hosts: str = ""
    running: list[str] = []
    unknown: dict[str, str] = {}
    ssh_keys: list[str] = []
    heeds_votes: bool = True
    keys: list[str] = []
    until: float | None = None

    def silent(self, lost: Collection[str] = ()) -> Iterator[str]:
        """Tell the nodes that do not say whether their instances run, but for those lost."""
        for node in sorted({*self.unknown.values()} - {*lost}):
            names = shown(name for name, primary in self.unknown.items() if primary == node)
            yield (
                f"node {node} does not answer, so nobody knows whether {names} run there; start its"
                " node daemon"
            )

    @property
    def config_text(self) -> bytes:
        """The configuration; raises ProtocolError if it cannot be unpacked."""
        return CompressedText.from_wire(self.config).content


def decode_answer(data: bytes) -> Answer:
    """Read the answer of a node, after what jobs there said; raises ProtocolError if it is none."""
    return json.loads_as(Answer, data.strip().rpartition(b"\n")[2])


# The actions.


def _look(context: Context, _options: Options, _ask: Ask) -> Answer:
    """Tell about the cluster, if this is its master; otherwise only who is."""
    paths = context.paths
    master = ssconf.read_key_or_none(paths, "master_node")
    if master is None:
        raise wrong_state(f"{own_hostname()} belongs to no cluster")
    name = ssconf.cluster_name(paths)
    if master != own_hostname():
        return Answer(cluster=name, master=master)
    if renewal.is_cut_off(paths):
        raise wrong_state(renewal.HINT)
    if (own := note.load(paths)) is not None:
        raise wrong_state(own.way_out)
    lease.check_off(paths)
    known = files.read_bytes_or_none(paths.known_hosts, _KNOWN_HOSTS_BYTES_MAX) or b""
    states = _states(context)
    return Answer(
        cluster=name,
        master=master,
        config=_config(paths),
        known_hosts=known.decode("utf-8", "replace"),
        running=states.running,
        unknown=states.unknown,
    )


def _config(paths: Paths) -> list[object]:
    wire = json.loads(json.dumps(CompressedText(config_file.read_config(paths)).to_wire()))
    assert isinstance(wire, list)
    return wire


def _read_config(context: Context, _options: Options, _ask: Ask) -> Answer:
    """Hand out the configuration, which nobody changes any more."""
    for name in ("ganeti-luxid", "ganeti-wconfd"):
        if daemon_control.running_pid(context.paths, name) is not None:
            raise wrong_state(f"{name} runs on {own_hostname()} again")
    return Answer(config=_config(context.paths), ssh_keys=_ssh_keys(context.paths))


def _ssh_keys(paths: Paths) -> list[str]:
    """Return the keys that nodes let in, or that some have still to let in no more."""
    found = set[str]()
    for path in (paths.ssh_pub_keys, paths.ssh_revoked_keys):
        text = (files.read_bytes_or_none(path, INPUT_BYTES_MAX) or b"").decode("utf-8", "replace")
        found.update(*ssh_keys_by_node(text).values())
    return sorted(found)


def _settings(context: Context, _options: Options, ask: Ask) -> Answer:
    """Tell of the settings that a merge is about to change; needs no daemon.

    Raises:
        OpPrereqError: high availability is on here, which would not bear the merge.
    """
    lease.check_off(context.paths)
    directory = ssh.directory_of(context.paths)
    return Answer(
        keys=[key for key in ask.keys if ssh.lets_in(directory, key)],
        until=watcher_pause.read(context.paths),
    )


def _let_in(context: Context, _options: Options, ask: Ask) -> Answer:
    ssh.change_authorized_keys(ssh.directory_of(context.paths), add=ask.keys)
    return Answer()


def _lock_out(context: Context, _options: Options, ask: Ask) -> Answer:
    ssh.change_authorized_keys(ssh.directory_of(context.paths), remove=ask.keys)
    return Answer()


def _pause(context: Context, _options: Options, ask: Ask) -> Answer:
    """Pause the watcher until a time, or let it go on."""
    watcher_pause.write(context.paths, ask.until)
    return Answer()


def _stop_instances(context: Context, options: Options, ask: Ask) -> Answer:
    """Stop all that run; the configuration goes on saying that they should.

    Raises:
        OpExecError: one still runs, or may do so.
    """
    names = _all_running(context, ask.lost)
    _run(context, options, [OpInstanceShutdown(instance_name=n, no_remember=True) for n in names])
    if left := _all_running(context, ask.lost):
        raise OpExecError(f"these instances still run: {', '.join(left)}")
    return Answer(running=names)


def _all_running(context: Context, lost: Collection[str]) -> list[str]:
    found = _states(context)
    if silent := "; ".join(found.silent(lost)):
        raise OpExecError(silent)
    return found.running


def _start_instances(context: Context, options: Options, ask: Ask) -> Answer:
    """Start those that ran before, and do not, but for those of nodes that are lost."""
    running = set(_states(context).running)
    rows = context.client.query_instances([], ["name", "pnode"])
    left = {str(name) for name, primary in rows if primary not in ask.lost} - running
    names = [name for name in ask.names if name in left]
    _run(context, options, [OpInstanceStartup(instance_name=name) for name in names])
    return Answer(running=names)


def _drain(context: Context, _options: Options, _ask: Ask) -> Answer:
    drain(context)
    return Answer()


def _undrain(context: Context, _options: Options, _ask: Ask) -> Answer:
    undrain(context)
    return Answer()


def _stop_daemons(context: Context, _options: Options, ask: Ask) -> Answer:
    """Stop all daemons; a master gives the cluster's address up, which LuxiD takes at its start.

    Returns:
        The configuration, if this is the master and belongs to a cluster still.

    Raises:
        OpPrereqError: high availability was switched on before the queue was closed.
    """
    paths = context.paths
    lease.check_off(paths)
    daemon_control.stop_all(paths, _EVERYWHERE, context.terminal.error)
    if not ask.is_master or not config_file.has_config(paths):
        return Answer()
    cluster = decode_record(split_config(config_file.read_config(paths)).cluster, Cluster)
    Master(NodeContext(paths, own_hostname())).node_deactivate_master_ip(
        master_network_parameters(cluster), use_external_mip_script=cluster.use_external_mip_script
    )
    return Answer(config=_config(paths))


def _start_daemons(context: Context, _options: Options, ask: Ask) -> Answer:
    """Start all daemons; those of a master that lost too many nodes for its votes without these.

    Raises:
        OpPrereqError: votes are missing, and a node that answers follows another master.
    """
    start = functools.partial(
        daemon_control.start_wanted,
        context.paths,
        report=context.terminal.error,
        hostname=own_hostname(),
    )
    start(_NODE)
    if not ask.is_master:
        return Answer()
    lacks = bool(ask.lost) and lacks_votes(context.paths, ask.lost)
    start(_EVERYWHERE, master_args=NO_VOTING if lacks else ())
    return Answer(heeds_votes=not lacks)


def _states(context: Context) -> Answer:
    """Tell which instances run, and which may do so."""
    rows = context.client.query_instances([], ["name", "oper_state", "status", "pnode"])
    return Answer(
        running=[str(name) for name, runs, _, _ in rows if runs is True],
        unknown={
            str(name): str(primary)
            for name, _, status, primary in rows
            if status == InstanceStatus.ERROR_NODEDOWN
        },
    )


def _run(context: Context, options: Options, opcodes: Sequence[OpCode]) -> None:
    """Run a job for each opcode.

    Raises:
        OpExecError: one failed; what it said is in the output.
    """
    if not opcodes:
        return
    wire = [[encode(context, options, opcode)] for opcode in opcodes]
    jobs = list[tuple[str, JobId]]()
    for opcode, (accepted, said) in zip(
        opcodes, context.client.submit_many_jobs(wire), strict=True
    ):
        if not accepted or not isinstance(said, int):
            raise OpExecError(f"a job was not accepted: {said}")
        jobs.append((str(getattr(opcode, "instance_name", "")), JobId(said)))
    failures, _ = results_of_all(context, jobs, announces=False)
    if failures:
        raise OpExecError(f"{failures} of {len(jobs)} jobs failed")


# The votes and the queue, of this cluster or of the other.


def lacks_votes(paths: Paths, lost: Collection[str] = ()) -> bool:
    """Tell whether this node has not enough votes for a master, as nodes are lost or offline.

    Others that do not answer are waited for, as there may be another master among them.

    Raises:
        OpPrereqError: votes are missing, and a node that answers follows another master.
    """
    own_name = own_hostname()
    others = master_poll.other_nodes(paths, own_name)
    needed = votes_needed(1 + len(others))
    awaited = [each for each in others if not each.offline and each.name not in lost]
    if 1 + len(awaited) >= needed:
        return False
    with NodeRpcClient(paths) as rpc:
        answers, _silent = master_poll.ask_all(rpc, others)
    for name, answer in answers.items():
        if answer.master_name != own_name:
            raise wrong_state(
                f"{name} follows {answer.master_name or 'nobody'}, so {own_name} may not be the"
                f" master any more; if it is, stop the node daemon on {name}"
            )
    return 1 + len(answers) < needed


def remedy(node: str, where: str) -> str:
    """Tell what has to be done once a master runs without votes."""
    return (
        f"The master's daemons on {node} run without votes, as too many nodes are lost or offline:"
        f" have these removed {where} ('gnt-node remove'), and restart the daemons then"
        " ('daemon-util stop-master', 'daemon-util start-master')"
    )


def drain(context: Context) -> None:
    """Close the queue, and wait until all jobs have ended.

    Raises:
        OpPrereqError: jobs do not end in time; the queue is as it was.
    """
    queue = JobFiles(context.paths)
    by_operator = queue.is_drained() and queue.drained_by() is not DrainedBy.MERGE
    if not by_operator:
        context.client.set_drain_flag(True, DrainedBy.MERGE)
    deadline = clock.monotonic() + IDLE_TIMEOUT_S
    while busy := _busy(context):
        if clock.monotonic() > deadline:
            undrain(context)
            raise wrong_state(
                f"these jobs of {own_hostname()} do not end: {', '.join(busy)}; wait for them, or"
                " cancel them"
            )
        clock.pause(_LOOK_AGAIN_S)


def _busy(context: Context) -> list[str]:
    rows = context.client.query_jobs(None, ["id", "status"])
    return [str(job_id) for job_id, status in rows if status not in FINAL_STATUSES]


def undrain(context: Context) -> None:
    """Open the queue that a merge has closed; an operator's wish stays."""
    if JobFiles(context.paths).drained_by() is DrainedBy.MERGE:
        context.client.set_drain_flag(False)


# The program.

ACTIONS: Final[Mapping[str, Callable[[Context, Options, Ask], Answer]]] = {
    "look": _look,
    "read-config": _read_config,
    "settings": _settings,
    "let-in": _let_in,
    "lock-out": _lock_out,
    "pause": _pause,
    "stop-instances": _stop_instances,
    "start-instances": _start_instances,
    "drain": _drain,
    "undrain": _undrain,
    "stop-daemons": _stop_daemons,
    "start-daemons": _start_daemons,
}


def act(context: Context, options: Options, args: list[str]) -> None:
    """Do one step of a merge on this node."""
    data = sys.stdin.buffer.read(INPUT_BYTES_MAX)
    try:
        ask = json.loads_as(Ask, data or b"{}")
    except GenericError as err:
        raise OpPrereqError(f"the data cannot be understood: {err.message}") from err
    answer = ACTIONS[args[0]](context, options, ask)
    context.write(json.dumps(answer).decode())


PROGRAM: Final = single_program(
    NAME,
    "do one step of a merge of clusters on this node",
    """Does one step on a node of a cluster that is merged into another one.  It is called by
'cluster-merge' through SSH; there is nothing to do by hand.""",
    act,
    args=(opt.Argument(ArgKind.CHOICE, choices=tuple(ACTIONS), metavar="<action>"),),
    options=(DEBUG,),
    expected_errors=(GenericError, OSError),
)
