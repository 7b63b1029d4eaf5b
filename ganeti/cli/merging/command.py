"""``tools/cluster-merge``: takes other clusters into this one.

Source: cli.json, "cluster-merge"; design-2.1, "Automated Ganeti Cluster Merger".
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, NotMasterError, OpPrereqError, wrong_state
from ganeti.base.paths import Paths
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, ArgKind, Context, Options, opt
from ganeti.cli.declaration.program import DEBUG, single_program
from ganeti.cli.merging import journal as note
from ganeti.cli.merging.journal import NAME, PAUSE_S, Journal, OtherNode
from ganeti.cli.merging.reach import Contact, Reach, contact, unreached, write_keys
from ganeti.cli.merging.steps import Merge, taken_back, told_if_interrupted
from ganeti.config.config_data import split_config
from ganeti.config.index import INSTANCES, NODES
from ganeti.config.merging import merge as merging
from ganeti.config.merging.merge import Conflicts, Groups, Restart, Wishes
from ganeti.config.overlay import decode_record
from ganeti.config.state import ConfigState
from ganeti.objects import fill
from ganeti.objects.model import Cluster
from ganeti.store import config_file, lease, ssconf
from ganeti.store.notes import renewal
from ganeti.system import clock, files, ssh
from ganeti.system.environment import own_hostname
from ganeti.system.filelock import FileLock


@dataclass(frozen=True, slots=True)
class Other:
    """A cluster that was looked at."""

    given: str
    contact: Contact
    merged: merging.Merged

    @property
    def config(self) -> bytes:
        """Its configuration, as it was when it was looked at."""
        return self.contact.answer.config_text


def merge(context: Context, options: Options, args: list[str]) -> int:
    """Merge clusters into this one, unless another process is about it."""
    paths = context.paths
    _check_here(paths)
    lock = FileLock(f"{paths.merge_note}.lock")
    with lock.taken(0.0, f"another {NAME} runs on this node; wait for its end"):
        return _merge(context, options, args)


def _merge(context: Context, options: Options, args: list[str]) -> int:
    at_work = note.load(context.paths)
    if options.dry_run:
        _check_dry_run(options, at_work)
    if options.lost_nodes and at_work is None:
        raise wrong_state("no merge was cut off, so it misses no node")
    if options.rollback:
        return _roll_back(context, options, at_work, args)
    status, merged = EXIT_SUCCESS, list[str]()
    if at_work is not None:
        if at_work.is_undoing or (args and at_work.given not in args):
            raise wrong_state(at_work.way_out)
        _give_up(context, at_work, options.lost_nodes or [])
        context.write(f"Going on with the merge of {at_work.given}")
        status = _finish(context, options, at_work)
        merged = [*at_work.earlier, at_work.given]
        args = [given for given in args if given not in merged]
    elif not args:
        raise OpPrereqError("name the clusters that are to be merged into this one")
    others = _look(context, options, args)
    if others is None:
        return EXIT_FAILURE
    if options.dry_run:
        context.write("Nothing is in the way.")
        return status
    for other in others:
        journal = _begin(context, options, other, merged)
        status = max(status, _finish(context, options, journal))
        merged.append(other.given)
    return status


def _check_dry_run(options: Options, at_work: Journal | None) -> None:
    """Refuse --dry-run where there is nothing that it could look at."""
    if at_work is not None:
        raise wrong_state(f"{at_work.way_out}; --dry-run is for a merge that has not begun")
    if options.rollback:
        raise OpPrereqError("give either --dry-run or --rollback, not both")


def _check_here(paths: Paths) -> None:
    master = ssconf.read_key_or_none(paths, "master_node")
    if master != own_hostname():
        raise NotMasterError(f"this node ({own_hostname()}) is not the master", master)
    if renewal.is_cut_off(paths):
        raise wrong_state(renewal.HINT)
    lease.check_off(paths)


def _give_up(context: Context, journal: Journal, names: Sequence[str]) -> None:
    """Have a merge that was cut off do without nodes that will not come back."""
    known = [each.name for each in journal.nodes]
    for name in names:
        if name not in (*known, *journal.lost):
            text = f"the merge of {journal.given} needs no node {name}, but {', '.join(known)}"
            raise OpPrereqError(text, ErrorCode.NOENT)
        if name == journal.master and journal.is_undoable:
            raise wrong_state(
                f"without {name}, the master of {journal.cluster}, the merge neither goes on nor"
                " can it be taken back; it has to come back first"
            )
    for name in {*names} & {*journal.let_in}:
        context.write(
            f"Node {name} lets this node's key in; should it come back all the same, remove that"
            " from /root/.ssh/authorized_keys there"
        )
    if names:
        journal.give_up(names)
        note.save(context.paths, journal)


def _roll_back(context: Context, options: Options, journal: Journal | None, args: list[str]) -> int:
    if journal is None:
        raise wrong_state("no merge was cut off, so there is nothing to take back")
    if args and args != [journal.given]:
        raise OpPrereqError(f"the merge that was cut off is that of {journal.given}")
    if not journal.is_undoable:
        raise wrong_state(
            "jobs run with the configuration of both clusters already, so it cannot be taken back"
            f" any more; {NAME} {journal.given} goes on"
        )
    _give_up(context, journal, options.lost_nodes or [])
    at_work = _resume(context, options, journal)
    with told_if_interrupted(at_work):
        at_work.undo()
    context.write("The merge was taken back; both clusters are as before.")
    return EXIT_SUCCESS


def _look(context: Context, options: Options, args: list[str]) -> list[Other] | None:
    """Look at all clusters before anything is touched; None if something is in the way."""
    wishes, config = _wishes(options), config_file.read_config(context.paths)
    if len(set(args)) < len(args):
        raise OpPrereqError("a cluster is named twice")
    others, problems = list[Other](), list[str]()
    for given in args:
        reached = contact(context, given, check_host_key=options.ssh_key_check)
        found = merging.merge(config, reached.answer.config_text, wishes, now=clock.now())
        others.append(Other(given, reached, found))
        in_the_way = list(found.problems)
        if found.is_comparable:
            in_the_way += _unreached(context, options, reached)
            told = found.notes if wishes.keeps_running else in_the_way
            told += reached.answer.silent()
        problems += [f"{given}: {each}" for each in in_the_way]
        config = found.config or config
        for line in found.notes:
            context.write(f"{given}: {line}")
    if problems:
        context.terminal.error("Nothing was touched, because this is in the way:")
        for problem in problems:
            context.terminal.error(f"  - {problem}")
        return None
    return others


def _unreached(context: Context, options: Options, found: Contact) -> list[str]:
    """Try all nodes as a merge would reach them; returns a sentence for each that fails."""
    with tempfile.TemporaryDirectory(prefix=f"{NAME}-") as directory:
        keys = write_keys(f"{directory}/peer", found, _own_host_keys(context.paths))
        nodes = _nodes(found.answer.config_text)
        reach = _reach(context, found.answer.cluster, keys, nodes, options.ssh_key_check)
        return list(unreached(reach, [each.name for each in nodes]))


def _own_host_keys(paths: Paths) -> bytes:
    return files.read_bytes_or_none(paths.known_hosts) or b""


def _wishes(options: Options) -> Wishes:
    return Wishes(
        groups=Groups(options.groups) if options.groups else None,
        conflicts=Conflicts(options.parameter_conflicts),
        restart=Restart(options.restart),
        keeps_running=options.skip_stop_instances,
    )


def _begin(context: Context, options: Options, other: Other, merged: list[str]) -> Journal:
    """Write the note of a merge; nothing else is touched but this node's own files.

    Args:
        merged: the clusters that this command has merged before.
    """
    paths, answer = context.paths, other.contact.answer
    cluster = decode_record(split_config(config_file.read_config(paths)).cluster, Cluster)
    key = ssh.ensure_user_key(
        ssh.directory_of(paths), cluster.ssh_key_type, cluster.ssh_key_bits, host=own_hostname()
    )
    known_hosts, identity = write_keys(paths.merge_note, other.contact, _own_host_keys(paths))
    found = Journal(
        given=other.given,
        cluster=answer.cluster,
        master=answer.master,
        nodes=_nodes(other.config),
        own_key=key,
        wishes=_wishes(options),
        pause_s=options.watcher_pause_period,
        check_host_key=options.ssh_key_check,
        known_hosts=known_hosts,
        identity=identity,
        earlier=list(merged),
        running=answer.running,
        expected={
            **_names(config_file.read_config(paths), "here"),
            **_names(other.config, "there"),
        },
    )
    note.save(paths, found)
    return found


def _nodes(config: bytes) -> list[OtherNode]:
    view = ConfigState(config).durable
    found = []
    for uuid in split_config(config).tables[NODES]:
        node = view.node(uuid)
        assert node is not None
        if not node.offline:
            group = view.group(node.group)
            assert group is not None
            port = fill.fill_ndparams(view.cluster, group, node)["ssh_port"]
            found.append(OtherNode(name=node.name, port=port, drained=node.drained))
    return found


def _names(config: bytes, where: str) -> dict[str, list[str]]:
    view, tables = ConfigState(config).durable, split_config(config).tables
    return {
        f"{table} {where}": [view.name_of((table, uuid)) for uuid in tables[table]]
        for table in (NODES, INSTANCES)
    }


def _resume(context: Context, options: Options, journal: Journal) -> Merge:
    # It is removed once all nodes let this one in, before that is noted.
    identity = journal.identity if os.path.exists(journal.identity) else ""
    keys = (journal.known_hosts, identity)
    reach = _reach(context, journal.cluster, keys, journal.nodes, journal.check_host_key)
    return Merge(context, options, journal, reach)


def _reach(
    context: Context,
    cluster: str,
    keys: tuple[str, str],
    nodes: Sequence[OtherNode],
    check_host_key: bool,
) -> Reach:
    """Return the way to the nodes of a cluster, by the files that `write_keys` has written."""
    ports = {each.name: each.port for each in nodes}
    return Reach(context.paths, cluster, *keys, check_host_key=check_host_key, ports=ports)


def _finish(context: Context, options: Options, journal: Journal) -> int:
    """Do the rest of a merge.

    Raises:
        OpExecError: it failed; the text says what has become of it.
    """
    at_work = _resume(context, options, journal)
    with told_if_interrupted(at_work):
        with taken_back(at_work):
            at_work.run()
        is_well = at_work.check()
    note.forget(context.paths, journal)
    if not is_well:
        context.terminal.error(f"{journal.cluster} is merged, but not all is well; see above")
        return EXIT_FAILURE
    context.write(f"Cluster {journal.cluster} is part of this one now.")
    return EXIT_SUCCESS


PROGRAM: Final = single_program(
    NAME,
    "merge other clusters into this one",
    """Takes all nodes, instances and networks of other clusters into this one.  Runs on the master
of the cluster that stays.""",
    merge,
    args=(opt.Argument(ArgKind.HOST, 0, None, metavar="<cluster>"),),
    options=(
        DEBUG,
        opt.flag("-v --verbose", "tell more"),
        opt.number(
            "-p --watcher-pause-period=PAUSE_PERIOD",
            "seconds that the watchers pause beyond the longest step",
            default=PAUSE_S,
        ),
        opt.option(
            "--groups=STRATEGY",
            "node groups that both clusters have: merge makes them one, rename appends the"
            " cluster's name to that of the other; without it they are in the way",
            choices=tuple(Groups),
        ),
        opt.option(
            "--restart=STRATEGY",
            "instances to start afterwards: all, those that were up, or none",
            choices=tuple(Restart),
            default=Restart.UP.value,
        ),
        opt.option(
            "--parameter-conflicts=STRATEGY",
            "settings that differ: strict, they are in the way; warn, those of this cluster count",
            choices=tuple(Conflicts),
            default=Conflicts.STRICT.value,
        ),
        opt.flag("--skip-stop-instances", "let the other cluster's instances run on"),
        opt.flag("--dry-run", "tell what is in the way, touch nothing"),
        opt.flag("--rollback", "take back a merge that was cut off"),
        opt.commas(
            "--lost-nodes=NODES",
            "the merge that was cut off goes on, or is taken back, without these nodes of the"
            " other cluster, which will not come back",
        ),
        opt.unflag("--no-ssh-key-check", "accept unknown SSH host keys"),
    ),
    examples=(
        ("cluster-merge --dry-run other.example.com", "look for what is in the way"),
        ("cluster-merge --groups=rename other.example.com", "keep the other's groups apart"),
    ),
    is_interspersed=True,
)
