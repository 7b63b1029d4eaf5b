"""``gnt-cluster upgrade``: change all nodes to another version of the software, guests running.

The program that carries it out is replaced meanwhile: all that it needs is loaded before, and the
daemons and commands of the new version are started as programs.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from ganeti.base import json
from ganeti.base.errors import (
    GenericError,
    NotMasterError,
    OpExecError,
    OpPrereqError,
    ProtocolError,
    TransportError,
    wrong_state,
)
from ganeti.base.paths import Paths
from ganeti.bootstrap.node_transport import transport_to
from ganeti.cli.cluster import upgrade_plan
from ganeti.cli.cluster.remote import Destination, on_each, read_file, receiving
from ganeti.cli.cluster.upgrade_plan import STEP_TIMEOUT_S, Member, Step, Target, Upgrade, Where
from ganeti.cli.command import Context, Options, command, opt
from ganeti.cli.run.context import CannotWrite
from ganeti.cli.run.endings import interrupt_at_endings, undisturbed
from ganeti.cli.run.listing import rows_of_nodes
from ganeti.cli.run.table import format_time
from ganeti.clients import pauses
from ganeti.store import lease, master_facts, ssconf
from ganeti.store.job_files import JobFiles
from ganeti.system import clock, files, process
from ganeti.system.environment import own_hostname
from ganeti.system.filelock import FileLock
from ganeti.system.process import CommandResult

JOBS_TIMEOUT_S: Final = 129600.0  # UPGRADE_QUEUE_DRAIN_TIMEOUT
JOBS_PAUSE_S: Final = 5.0
_RECORD_MODE: Final = 0o600


def upgrade(context: Context, options: Options, _args: list[str]) -> None:
    """Change to another version of the software."""
    if bool(options.to) == bool(options.resume):
        raise OpPrereqError("give either --to with a version, or --resume")
    if context.paths.root:
        raise OpPrereqError("a virtual cluster has no packages of its own that could be changed")
    interrupt_at_endings()
    with _alone(context):
        _upgrade(context, options)


def _alone(context: Context) -> FileLock:
    """Return the lock that keeps another upgrade from this node away.

    Raises:
        GenericError: one is at work; its session may be gone from sight, and go on.
    """
    lock = FileLock(f"{context.paths.upgrade_under_way}.lock")
    return lock.taken(0.0, f"another 'gnt-cluster upgrade' is at work (it holds {lock.path})")


def _upgrade(context: Context, options: Options) -> None:
    record = read(context)
    if record is not None:
        _go_on(context, options, record)
    elif options.without or options.instead:
        raise OpPrereqError("--without and --instead are for an upgrade under way; there is none")
    elif options.resume:
        context.write("No upgrade is under way.")
    else:
        _begin(context, options)


def _go_on(context: Context, options: Options, record: Upgrade) -> None:
    """Do the rest of an upgrade, or change to another version after all.

    Raises:
        NotMasterError: it was begun on another node.
        OpPrereqError: a node cannot be left out; high availability is on, and not paused; or
            nobody said that another version is wanted.
        OpExecError: a step failed; the upgrade can be resumed.
    """
    if record.master != own_hostname():
        raise NotMasterError(f"the upgrade was begun on {record.master}", record.master)
    record = upgrade_plan.without(record, _names(options.without))
    if options.to and not options.instead:
        raise wrong_state(
            f"the upgrade to {record.wanted} is under way; --resume goes on with it, and"
            " --instead, beside --to, changes all nodes to another version"
        )
    target = _target(options) if options.to else None
    with _resumable(context, record):
        if not upgrade_plan.has_started(record):
            record = upgrade_plan.stopped_again(record)
            _keep_quiet(context, record)
        elif target is not None:
            record = _close_again(context, record)
        if target is not None:
            record = msgspec.structs.replace(
                record,
                package=target.package,
                wanted=target.wanted,
                began=int(clock.now()),
                done=(),
            )
            _try(context, upgrade_plan.MEND, record)
            _prepare(context, target, record)
    context.write(f"Going on with the upgrade to {record.wanted}.")
    _tell_left_out(context, record)
    _write(context, record)
    carry_out(context, record)


def _close_again(context: Context, record: Upgrade) -> Upgrade:
    """Let the jobs end that came since the daemons run again, no new ones in, the watcher pause.

    Raises:
        GenericError: they do not end, or high availability is not paused; --resume opens the queue.
    """
    _check_pause(context)
    try:
        drained, paused_until = _gates(context)
    except TransportError as err:
        if jobs := master_facts.running_jobs(context.paths):
            listed = " ".join(map(str, jobs))
            raise OpExecError(f"{err.message}; these jobs run, and must end: {listed}") from err
        context.terminal.error(f"{err.message}; no job runs here")
        drained, paused_until = JobFiles(context.paths).is_drained(), 0.0
        has_luxid = False
    else:
        has_luxid = True
    record = upgrade_plan.closed_again(record, drained=drained, watcher_paused_until=paused_until)
    _write(context, record)
    if has_luxid:
        if not drained:
            _do(context, upgrade_plan.CLOSE[0], record)
        _wait_for_jobs(context)
    _pause_watchers(context, record)
    record.ha_paused_until = _check_pause(context)  # the jobs may have taken hours
    return record


def _gates(context: Context) -> tuple[bool, float]:
    """Return whether the queue accepts no jobs, and until when the watcher pauses (0: it works)."""
    until = _value(context, "watcher_pause")
    paused_until = float(until) if isinstance(until, int | float) else 0.0
    return bool(_value(context, "drain_flag")), paused_until


def _keep_quiet(context: Context, record: Upgrade) -> None:
    """Let no watcher and no agent act on what is stopped: their pauses may have ended meanwhile.

    Raises:
        OpExecError: high availability cannot be paused, or a node does not answer.
    """
    _pause_watchers(context, record)
    if lease.is_on(context.paths):
        record.ha_paused_until = _pause_agents(context, record)


def _pause_watchers(context: Context, record: Upgrade) -> None:
    """Pause them anew without the master's daemons, which do not run."""
    text = b"%d\n" % max(clock.now() + upgrade_plan.PAUSE_S, record.watcher_paused_until)
    argv = receiving(context.paths.watcher_pause, 0o644, len(text))
    _do(context, Step("pause the watcher anew", Where.ALL, argv), record, text)


def _pause_agents(context: Context, record: Upgrade) -> float:
    """Return until when high availability is paused, which is long enough."""
    wanted = clock.now() + upgrade_plan.PAUSE_LEFT_S
    until = _paused_until_or_none(context.paths)
    if until is None and record.ha_paused_until < wanted:
        for step in upgrade_plan.ETCD_ALONE:
            _try(context, step, record)
        until = _paused_until_or_none(context.paths) or 0.0
    elif until is None:
        until = record.ha_paused_until
    if until < wanted:
        until = clock.now() + upgrade_plan.PAUSE_S
        try:
            _do(context, upgrade_plan.PAUSE_HA, record)
        except OpExecError as err:
            raise OpExecError(f"{err.message}\n{upgrade_plan.UNPAUSED}") from err
    return until


def _check_pause(context: Context) -> float:
    """Return until when high availability is paused; errors as of `pauses.check`."""
    wanted_s, hint = upgrade_plan.PAUSE_LEFT_S, upgrade_plan.PAUSE_HINT
    return pauses.check(context.paths, "an upgrade", wanted_s=wanted_s, hint=hint)


def _paused_until_or_none(paths: Paths) -> float | None:
    """Return until when it is paused; None if etcd does not answer, as all daemons are stopped."""
    try:
        return pauses.paused_until(paths)
    except (TransportError, ProtocolError):
        return None


def _names(text: str | None) -> list[str]:
    return [name for name in (text or "").split(",") if name]


def read(context: Context) -> Upgrade | None:
    """Return the upgrade that is under way, if there is one."""
    data = files.read_bytes_or_none(context.paths.upgrade_under_way)
    return None if data is None else json.loads_as(Upgrade, data)


def _begin(context: Context, options: Options) -> None:
    own_name = own_hostname()
    master = ssconf.read_key_or_none(context.paths, "master_node")
    if master != own_name:
        raise NotMasterError(f"this node ({own_name}) is not the master", master)
    _check_pause(context)
    target = _target(options)
    _prepare(context, target, _record(context, target, own_name))
    carry_out(context, _close(context, target, own_name))


def _target(options: Options) -> Target:
    madison = process.run(
        ["apt-cache", "madison", *upgrade_plan.PACKAGES], timeout_s=STEP_TIMEOUT_S
    )
    known = upgrade_plan.known_packages(madison.stdout.decode("utf-8", "replace"))
    return upgrade_plan.target_of(str(options.to), known)


def _prepare(context: Context, target: Target, record: Upgrade) -> None:
    """Give all nodes the package, and look whether they can install it.

    Raises:
        OpPrereqError: high availability is on, which Ganeti 3.0 does not have.
        OpExecError: a node cannot, or does not answer.
    """
    if target.package == upgrade_plan.OF_3_0 and lease.is_on(context.paths):
        raise wrong_state(
            "Ganeti 3.0 has no high availability; switch it off first: gnt-cluster ha-disable"
        )
    if target.is_file:
        _send(context, target, record)
    for step in upgrade_plan.checks(target):
        _do(context, step, record)


def _tell_left_out(context: Context, record: Upgrade) -> None:
    for name in record.left_out:
        context.write(f"Node {name} is left out: install {record.wanted} there before its return.")


def _record(context: Context, target: Target, master: str) -> Upgrade:
    rows = rows_of_nodes(context, [], ["name", "offline", "pip", "ndp/ssh_port"])
    members = [Member(str(name), str(address), int(str(port))) for name, _, address, port in rows]
    offline = {str(row[0]) for row in rows if row[1]}
    return Upgrade(
        target.package,
        target.wanted,
        master,
        tuple(each for each in members if each.name not in offline),
        tuple(sorted(offline)),
        int(clock.now()),
    )


def _send(context: Context, target: Target, record: Upgrade) -> None:
    """Give the other nodes the file of the package, in the same place."""
    data, mode = read_file(target.wanted)
    argv = receiving(target.wanted, mode, len(data))
    _do(context, Step("get the package", Where.OTHERS, argv), record, data)


def _close(context: Context, target: Target, own_name: str) -> Upgrade:
    """Let the jobs come to their end, and no new ones in; returns what is to be done then.

    The jobs may have taken hours, and have changed the nodes: everything is looked at once more.

    Raises:
        GenericError: they did not end, or a node cannot go on; the cluster is as it was.
    """
    record = _record(context, target, own_name)
    drained, _ = _gates(context)
    drain, pause = upgrade_plan.CLOSE
    taken_back = [] if drained else [upgrade_plan.OPEN[0]]
    try:
        if not drained:
            _do(context, drain, record)
        _wait_for_jobs(context)
        record = _record(context, target, own_name)
        record.ha_paused_until = _check_pause(context)
        record.drained = drained
        _prepare(context, target, record)
        _tell_left_out(context, record)
        _, record.watcher_paused_until = _gates(context)
        if record.watcher_paused_until < clock.now() + upgrade_plan.PAUSE_S:
            taken_back.append(upgrade_plan.watcher_as_before(record))
            _do(context, pause, record)
        _write(context, record)
    except BaseException:
        with undisturbed():
            _take_back(context, taken_back, record)
        raise
    return record


def _value(context: Context, name: str) -> object:
    """Return a value of the cluster, as LuxiD of this version and that of 3.0 know it."""
    [value] = context.client.query_config_values([name])
    return value


def _take_back(context: Context, steps: Sequence[Step], record: Upgrade) -> None:
    """Leave the cluster as it was: do each step, also if one fails, or nobody can be told."""
    for step in steps:
        _tell(context.write, f"On {step.where}: {step.name}")
        try:
            _carry_out(context, step, record)
        except (GenericError, OSError, KeyboardInterrupt) as err:
            line = shlex.join(step.argv)
            _tell(
                context.terminal.error, f"{str(err) or 'Interrupted.'}\nType that yourself: {line}"
            )
    files.remove_if_exists(context.paths.upgrade_under_way)


def _tell(say: Callable[[str], None], text: str) -> None:
    """Say something if there is somebody to hear it: the terminal may have gone."""
    with suppress(CannotWrite, BrokenPipeError):
        say(text)


def _wait_for_jobs(context: Context) -> None:
    context.write("Waiting for the end of all jobs")
    until = clock.monotonic() + JOBS_TIMEOUT_S
    while not upgrade_plan.is_idle(_statuses()):
        if clock.monotonic() > until:
            raise OpExecError(f"jobs still run after {JOBS_TIMEOUT_S:g} s")
        clock.pause(JOBS_PAUSE_S)


def _statuses() -> list[str]:
    result = process.run(
        upgrade_plan.STATUSES, timeout_s=STEP_TIMEOUT_S, env=_environment()
    ).check()
    return result.stdout.decode("utf-8", "replace").split()


def carry_out(context: Context, record: Upgrade) -> None:
    """Do the steps that are left.

    Raises:
        OpExecError: one failed; the upgrade can be resumed.
    """
    with _resumable(context, record):
        for step in upgrade_plan.to_do(record):
            if step.starts:
                _refuse_unpaused(record)
            if _try(context, step, record):
                record.done = (*record.done, step.name)
                _write(context, record)
    files.remove_if_exists(context.paths.upgrade_under_way)
    context.write(f"All nodes have {record.wanted}.")
    if record.drained:
        context.write(
            "The queue accepts no jobs, as before.  Once it does: gnt-cluster redist-conf, and"
            " gnt-cluster verify."
        )
    if record.watcher_paused_until > clock.now():
        context.write(
            f"The watcher is paused until {format_time(record.watcher_paused_until)}, as before."
        )


@contextmanager
def _resumable(context: Context, record: Upgrade) -> Iterator[None]:
    """Say how to go on, whatever ends this: a failure, a person, or a full disk.

    Raises:
        OpExecError: a step failed; the text says it, too.
    """
    try:
        yield
    except OpExecError as err:
        raise OpExecError(f"{err.message}\n{upgrade_plan.hint(record)}") from err
    except (KeyboardInterrupt, OSError, CannotWrite):
        text = f"The upgrade to {record.wanted} is not complete: {upgrade_plan.hint(record)}"
        _tell(context.terminal.error, text)
        raise


def _refuse_unpaused(record: Upgrade) -> None:
    """Start no agents whose pause may end before the step does.

    Raises:
        OpExecError: it may.
    """
    if 0.0 < record.ha_paused_until < clock.now() + STEP_TIMEOUT_S:
        raise OpExecError("the pause of high availability ends too soon; --resume makes it longer")


def _write(context: Context, record: Upgrade) -> None:
    path = context.paths.upgrade_under_way
    files.write_durable(path, json.dumps(msgspec.to_builtins(record)), _RECORD_MODE)


def _try(context: Context, step: Step, record: Upgrade) -> bool:
    """Carry out one step; returns whether it succeeded.

    Raises:
        OpExecError: it failed, and nothing goes on without it.
    """
    try:
        _do(context, step, record)
    except OpExecError as err:
        if not step.may_fail:
            raise
        context.terminal.error(err.message)
        return False
    return True


def _do(context: Context, step: Step, record: Upgrade, stdin: bytes = b"") -> None:
    """Carry out one step on its nodes.

    Raises:
        OpExecError: it failed on some; the text has the end of what was said there.
    """
    if upgrade_plan.nodes_of(step, record):
        context.write(f"On {step.where}: {step.name}")
        _carry_out(context, step, record, stdin)


def _carry_out(context: Context, step: Step, record: Upgrade, stdin: bytes = b"") -> None:
    """Do the same without a word."""
    nodes = upgrade_plan.nodes_of(step, record)
    problems = [
        f"node {node.name}: {outcome.message}"
        for node, outcome in _run_on(context, nodes, record.master, step.argv, stdin)
        if isinstance(outcome, GenericError)
    ]
    if problems:
        raise OpExecError(f"{step.name!r} failed on {'; '.join(problems)}")


def _run_on(
    context: Context, nodes: Sequence[Member], master: str, argv: Sequence[str], stdin: bytes
) -> list[tuple[Destination, CommandResult | GenericError]]:
    cluster_name = ssconf.cluster_name(context.paths)
    chosen = [
        Destination(
            node.name,
            transport_to(
                context.paths,
                node.name,
                cluster_name=cluster_name,
                address=node.address,
                port=node.port,
            ),
        )
        for node in nodes
    ]

    def work(node: Destination, stop_fd: int) -> CommandResult:
        if node.name == master:
            result = process.run(
                argv, timeout_s=STEP_TIMEOUT_S, env=_environment(), stdin=stdin, stop_fd=stop_fd
            )
        else:
            result = node.transport.run(
                argv, stdin=stdin, timeout_s=STEP_TIMEOUT_S, stop_fd=stop_fd
            )
        return result.check()

    return list(on_each(chosen, work))


def _environment() -> dict[str, str]:
    """Return our environment, without the libraries of an unpacked package: other versions run."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


COMMANDS: Final = (
    command(
        upgrade,
        opt.flag("--resume", "go on with an upgrade that was interrupted"),
        opt.option("--to", "the version, PACKAGE=VERSION, or the file of a package"),
        opt.option(
            "--without",
            "nodes that an upgrade under way is to leave out, separated by commas",
            metavar="NODES",
        ),
        opt.flag("--instead", "with --to: change all nodes to this version, not to that under way"),
        description="""Installs another version of the Debian package on all nodes that are not
offline, while instances run on: another version of ganeti-python, or ganeti, which is Ganeti 3.0.
First it looks whether each node can install it, and whether 3.0 could use the configuration.  Then
no more jobs are accepted, those that are there come to their end, and all daemons are stopped; the
state of each node is kept in /var/backups.  The other nodes are changed before the master.  An
upgrade that failed or was interrupted is gone on with by --resume, on the same node; --without
leaves out nodes that are lost meanwhile, and --to with --instead gives all nodes another version
after all, as the one before if the new one does not start.  Where high availability is on, it has
to be paused for two hours at least; --resume makes that longer if it has to.

The programs of an unpacked package change a cluster of Ganeti 3.0 to this version: see
doc/upgrade.md.""",
        examples="""
gnt-cluster upgrade --to 3.0.2+py2  # that version of ganeti-python, from where apt gets it
gnt-cluster upgrade --to /root/ganeti-python_3.0.2+py2_amd64.deb  # a file, copied to all nodes
gnt-cluster upgrade --to ganeti=3.0.2-3  # back to Ganeti 3.0
gnt-cluster upgrade --resume --without=node3.example.com  # that has burnt down meanwhile""",
    ),
)
