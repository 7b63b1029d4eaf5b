"""``gnt-cluster restore``: a new master out of an archive of ``gnt-cluster backup``.

The files are laid out in a directory of their own first, as those of a node, and the other nodes
are asked with them.  Only when their answers allow it are the files put in their places, the
configuration last; then this node takes over, as in any fail-over, with a serial number beyond all
that are known, and with more answers, as its own copy is old.  Cut off anywhere it is run again;
once the configuration is there, ``gnt-cluster master-failover`` goes on: a note that was written
before lets it ask for as many answers.

Source: ARCHITECTURE, invariants 8 and 9.
"""

from __future__ import annotations

import sys
import time
from typing import Final

from ganeti.base.daemons import DAEMONS
from ganeti.base.errors import ErrorCode, GenericError, OpPrereqError, wrong_state
from ganeti.base.paths import Paths
from ganeti.base.text import natural_sorted, shown, ssh_key_of, ssh_keys_by_node
from ganeti.bootstrap import cluster_files, keys, state_archive
from ganeti.bootstrap.failover import FailoverOptions, fail_over
from ganeti.cli.command import Context, Options, command, confirm, opt
from ganeti.cli.run.endings import interrupt_at_endings
from ganeti.clients import master_poll
from ganeti.clients.node_rpc import NodeRpcClient
from ganeti.config.config_data import nodes_of, split_config
from ganeti.jobs import votes
from ganeti.store import config_file, master_facts, ssconf
from ganeti.store.job_files import JobFiles
from ganeti.store.notes import restoration, watcher_pause
from ganeti.store.working_directory import RESTORE, remove_unused, working_directory
from ganeti.system import clock, files, ssh
from ganeti.system.daemon_control import running_pid
from ganeti.system.environment import own_hostname

STDIN: Final = "-"
FILE_BYTES_MAX: Final = 4 << 30
WATCHER_PAUSE_S: Final = 7 * 86400.0  # for the operator to compare; see AFTERWARDS
AFTERWARDS: Final = """\
The watcher is paused, as instances may have moved since.  Now:
  gnt-cluster verify            finds instances and disks that are elsewhere, or unknown
  gnt-node add --readd NODE     takes a node in again that did not answer
  gnt-cluster watcher continue  once each instance runs where the configuration says"""


def restore(context: Context, options: Options, args: list[str]) -> None:
    """Make this machine the master again, from the state in a file."""
    interrupt_at_endings()
    paths, own_name = context.paths, own_hostname()
    state = state_archive.unpack(_read(args[0]))
    _check_machine(paths, own_name, state.head)
    no_voting = bool(options.no_voting)
    try:
        cluster_files.ensure_directories(paths)
        remove_unused(RESTORE, paths.data_dir)
        _check_others(paths, own_name, state, no_voting=no_voting)
        if not options.yes_do_it:
            confirm(context, _question(state.head, no_voting=no_voting), option="--yes-do-it")
        _write(context, state)
    except OSError as err:
        raise GenericError(
            f"cannot write {err.filename}: {err.strerror}; put that right and run the command again"
        ) from err
    chosen = FailoverOptions(no_voting=no_voting, asks_offline=True, own_is_old=True)
    fail_over(paths, own_name, chosen, context.write)
    if _manages_ssh(paths, state):  # it may have taken a newer configuration
        _let_candidates_in(paths, config_file.read_config(paths), state)
    context.write(f"{own_name} is the master.")
    if state.head.unended:
        context.write(
            f"These jobs had not ended when the archive was made, and are not in it:"
            f" {shown(map(str, state.head.unended))}"
        )
    context.write(AFTERWARDS)


def _read(path: str) -> bytes:
    try:
        if path == STDIN:
            return sys.stdin.buffer.read(FILE_BYTES_MAX)
        return files.read_bytes(path, FILE_BYTES_MAX)
    except OSError as err:
        raise OpPrereqError(f"cannot read {path}: {err.strerror}", ErrorCode.NOENT) from err


def _check_machine(paths: Paths, own_name: str, head: state_archive.Head) -> None:
    """Refuse on another machine, and where there is something that would be replaced."""
    if own_name != head.node_name:
        raise wrong_state(
            f"the state is that of {head.node_name}, and this is {own_name}; the machine that"
            " replaces a master needs its name and its addresses"
        )
    running = [each.name for each in DAEMONS if running_pid(paths, each.name) is not None]
    if running:
        raise wrong_state(f"{', '.join(running)} run here; stop the daemons first")
    name = ssconf.read_key_or_none(paths, "cluster_name")
    if name not in (None, head.cluster_name):
        raise wrong_state(f"this node belongs to cluster {name}; run node-cleanup first")
    if config_file.has_config(paths):
        serial_no = master_facts.own_facts(paths).config_serial
        raise wrong_state(
            f"there is a configuration in {paths.config_data} (serial number {serial_no or '?'},"
            f" {head.serial_no} in the archive): 'gnt-cluster master-failover' goes on with it; if"
            f" it is not to be used, move it away, and {paths.config_journal} if there is one"
        )


def _check_others(
    paths: Paths, own_name: str, state: state_archive.State, *, no_voting: bool
) -> None:
    """Ask the other nodes, as the master that the archive was made on.

    Raises:
        OpPrereqError: one is the master, or has a newer configuration, or too few answer.
    """
    with working_directory(RESTORE, paths.data_dir) as directory:
        staged = Paths(directory)
        state_archive.write_files(staged, state.contents)
        JobFiles(staged).prepare()
        JobFiles(staged).write_serial(state.head.last_job_id)
        targets = master_poll.nodes_of(config_file.read_config(staged), own_name)
        own = votes.Answer(own_name, master_facts.own_facts(staged))
        with NodeRpcClient(staged) as rpc:
            found, silent = master_poll.ask_all(rpc, targets)
    names = [own_name, *(target.name for target in targets)]
    poll = votes.Poll(own_name, names, {own_name: own, **found}, silent)
    _refuse_better(poll)
    votes.plan_takeover(poll, no_voting=no_voting, own_is_old=True)


def _refuse_better(poll: votes.Poll) -> None:
    known = {name: facts for name, facts in poll.known().items() if name != poll.own_name}
    take_in = f"take this machine in again there: gnt-node add --readd {poll.own_name}"
    for name, facts in known.items():
        if facts.daemons:
            raise wrong_state(f"node {name} runs the master's daemons; {take_in}")
    newer = {
        n: f.config_serial for n, f in known.items() if f.config_serial > poll.own.config_serial
    }
    if newer:
        best = max(natural_sorted(newer), key=lambda name: newer[name])
        raise wrong_state(
            f"node {best} has a newer configuration (serial number {newer[best]},"
            f" {poll.own.config_serial} in the archive): make it the master ('gnt-cluster"
            f" master-failover' there), and {take_in}"
        )


def _question(head: state_archive.Head, *, no_voting: bool) -> str:
    age_h = max(clock.now() - head.time, 0.0) / 3600
    text = (
        f"This makes the machine the master of cluster {head.cluster_name} as it was at"
        f" {time.ctime(head.time)}, {age_h:.1f} hours ago (serial number {head.serial_no}).  What"
        " was changed since then, and is on no node that answers, is lost."
    )
    if no_voting:
        text += "\nNodes that do not answer may know more; they do not count (--no-voting)."
    return f"{text}  Go on?"


def _write(context: Context, state: state_archive.State) -> None:
    """Put everything in its place, the configuration last, after the note that it is old.

    A journal that was left behind would have later changes made again.
    """
    paths = context.paths
    context.write(f"Writing {len(state.contents)} files")
    config = state_archive.inner(paths, paths.config_data)
    others = {path: content for path, content in state.contents.items() if path != config}
    if _manages_ssh(paths, state):
        _let_candidates_in(paths, state.contents[config], state)
        others = _take_ssh_keys(context, others)
    state_archive.write_files(paths, others)
    queue = JobFiles(paths)
    queue.prepare()
    queue.write_serial(max(queue.last_id(), state.head.last_job_id) + votes.JOB_ID_LEAP)
    watcher_pause.write(paths, clock.now() + WATCHER_PAUSE_S)
    if (aside := config_file.set_journal_aside(paths, clock.now())) is not None:
        context.write(f"{paths.config_journal} was of before, and is now {aside}")
    restoration.begin(paths, state.head.serial_no)
    state_archive.write_files(paths, {config: state.contents[config]})


def _manages_ssh(paths: Paths, state: state_archive.State) -> bool:
    mark = state_archive.inner(paths, paths.ssh_managed)
    return state_archive.manages_ssh(paths, state) or mark in state.contents


def _let_candidates_in(paths: Paths, config: bytes, state: state_archive.State) -> None:
    """Let the master candidates of a configuration in by SSH, and no other node that is known."""
    text = state.contents.get(state_archive.inner(paths, paths.ssh_pub_keys), b"").decode()
    known = ssh_keys_by_node(text)
    nodes = nodes_of(split_config(config))
    add = [key for node in nodes if node.master_candidate for key in known.get(node.uuid, ())]
    rightful = set(map(ssh_key_of, add))
    remove = [key for keys in known.values() for key in keys if ssh_key_of(key) not in rightful]
    ssh.change_authorized_keys(ssh.directory_of(paths), add=add, remove=remove)


def _take_ssh_keys(context: Context, contents: dict[str, bytes]) -> dict[str, bytes]:
    """Give the machine its SSH keys; returns the files left to write.

    Root's own keys stay where root has others by now.
    """
    paths, directory = context.paths, ssh.directory_of(context.paths)
    of_ssh = {path: state_archive.inner(paths, path) for path in state_archive.ssh_files(paths)}
    given = {path: contents[inner] for path, inner in of_ssh.items() if inner in contents}
    rest = {path: content for path, content in contents.items() if path not in of_ssh.values()}
    host = [path for path in given if not path.startswith(directory)]
    texts = [
        (kind, given[path].decode(), given[f"{path}.pub"].decode())
        for kind, path in ((kind, paths.root + ssh.HOST_KEY.format(kind)) for kind in ssh.KEY_KINDS)
        if {path, f"{path}.pub"} <= set(host)
    ]
    for step in keys.take_host_keys(paths, texts):
        context.terminal.error(f"{step[:1].upper()}{step[1:]}.")
    own = {path: content for path, content in given.items() if path not in host}
    present = {path: files.read_bytes_or_none(path) for path in own}
    if all(present[path] in (None, content) for path, content in own.items()):
        return rest | {of_ssh[path]: content for path, content in own.items()}
    context.terminal.error(
        f"Root has other SSH keys in {directory} by now, which stay; 'gnt-cluster renew-crypto"
        " --new-ssh-keys' gives all nodes new ones."
    )
    return rest


COMMANDS: Final = (
    command(
        restore,
        "<file>",
        opt.flag("--no-voting", "nodes that do not answer do not count"),
        opt.flag("--yes-do-it", "do not ask"),
        description="""Runs on a machine that replaces the lost master, with its name, its
addresses and the software, and without a configuration. The other nodes are asked first. It is
refused while one of them is the master or has a newer configuration, which is then the better
start ('gnt-cluster master-failover' there), and if so few answer that one of the others may have
one; --no-voting is for those that are lost, too. If it is cut off once the configuration is here,
'gnt-cluster master-failover' goes on, and needs as many answers. Serial numbers and job ids go on
beyond all that are known. Jobs that had not ended are not carried out again, and the watcher is
paused. High availability is off afterwards on this node: switch it off and on again ('gnt-cluster
ha-disable', 'gnt-cluster ha-enable'). "-" reads the standard input.""",
        examples="""
gnt-cluster restore /root/cluster.state  # on the new machine, which asks
gnt-cluster restore --yes-do-it -  # from a program: gpg --decrypt FILE |""",
    ),
)
