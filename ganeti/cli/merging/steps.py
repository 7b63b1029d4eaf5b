"""The steps of a merge: a plan of small ones, done in order, or undone in the other.

Each may be done again after it was cut off, and undone whether it was done or only begun.  The
queue of this cluster is closed from before the configurations are merged until the step "open",
and up to that everything can be taken back: nobody has been told that a job succeeded which would
be lost by it.  The jobs of the merge itself are let in all the same; so nodes that are lost are set
offline before that step, where no locks of other jobs are in the way.  After it the other cluster's
files are still in the backups that its nodes keep.

An administrator may open the queue earlier, and a tool of an earlier version has opened it at the
end of "start".  So a merged configuration is compared with what the merge has made of it, and one
in which anything has changed is never taken back.

Source: design-2.1, "Automated Ganeti Cluster Merger".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ganeti.base.daemons import Place
from ganeti.base.errors import GenericError, OpExecError
from ganeti.base.paths import Paths
from ganeti.base.text import shown, ssh_key_of, ssh_keys_by_node, ssh_keys_text
from ganeti.bootstrap import node_setup
from ganeti.cli.command import Context, Options
from ganeti.cli.merging import journal as note
from ganeti.cli.merging.journal import JOIN, NAME, OPEN, Journal, OtherNode
from ganeti.cli.merging.peer import NO_VOTING, Answer, drain, lacks_votes, remedy, undrain
from ganeti.cli.merging.reach import STEP_TIMEOUT_S, KeyRefusedError, Reach, ask
from ganeti.cli.run.jobs import encode, follow, make_opcode
from ganeti.config.config_data import split_config
from ganeti.config.index import NODES
from ganeti.config.merging import merge as merging
from ganeti.config.merging.merge import Restart
from ganeti.config.ssconf_values import ssconf_values
from ganeti.config.state import ConfigState
from ganeti.opcodes.cluster import OpClusterRedistConf
from ganeti.opcodes.instance import OpInstanceStartup
from ganeti.opcodes.node import OpNodeAdd, OpNodeSetParams
from ganeti.store import config_file, lease, ssconf
from ganeti.store.notes import watcher_pause
from ganeti.system import clock, daemon_control, files, process
from ganeti.system.environment import own_hostname

_MASTER: Final = frozenset({Place.MASTER})
VERIFY_TIMEOUT_S: Final = 3600.0
_COPY_MODE: Final = 0o600


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        text: what is being done, for people.
        undo: None if there is nothing to undo.
    """

    name: str
    text: str
    do: Callable[[], None]
    undo: Callable[[], None] | None = None


@dataclass(slots=True)
class Merge:
    """A merge that goes on.

    Attributes:
        paused_until: when the pauses of the watchers end that this process has made.
    """

    context: Context
    options: Options
    journal: Journal
    reach: Reach
    paused_until: float = 0.0

    @property
    def paths(self) -> Paths:
        """The paths of this node, the master."""
        return self.context.paths

    def say(self, text: str) -> None:
        """Tell the user."""
        self.context.write(text)

    # The plan, and its execution.

    def plan(self) -> list[Step]:
        """Return all steps."""
        name, here = self.journal.cluster, "this cluster"
        # Those that become no candidates come last: the others take their place in the pool.
        nodes = sorted(self.journal.nodes, key=lambda each: each.drained)
        joins = [
            Step(f"{JOIN}:{each.name}", f"Taking node {each.name} in", self._joining(each))
            for each in nodes
        ]
        lost = [
            Step(f"offline:{each}", f"Setting node {each} offline", self._set_offline(each))
            for each in self.journal.lost
        ]
        return [
            Step("keys", f"Letting this node's key in on the nodes of {name}", *self._keys()),
            Step("watchers", "Pausing the watchers", self._pause, self._resume),
            Step("instances", f"Stopping the instances of {name}", *self._instances()),
            Step("queue", f"Waiting for the jobs of {name}", *self._queue()),
            Step("daemons", f"Stopping the daemons of {name}", *self._daemons()),
            Step("fetch", f"Fetching the configuration of {name}", self._fetch),
            Step("own-queue", f"Waiting for the jobs of {here}", self._drain, self._undrain),
            Step("stop", f"Stopping the master's daemons of {here}", self._stop_idle, self._start),
            Step("config", "Merging the configurations", self._write, self._restore),
            Step("start", "Starting the master's daemons", self._start_alone, self._stop_idle),
            *lost,
            Step(OPEN, f"Letting jobs of {here} in again", self._undrain),
            *joins,
            Step("redist", "Distributing the configuration", self._distribute),
            Step("restart", "Restarting the master's daemons", self._restart),
            Step("go-on", "Letting the watcher go on", self._resume_here),
            Step("up", f"Starting the instances of {name}", self._start_instances),
        ]

    def run(self) -> None:
        """Do all steps that are left.

        Raises:
            GenericError: one failed; the note says which.
        """
        if self.journal.done:
            self._look_again()
        for step in self.plan():
            if step.name in self.journal.done:
                continue
            self._keep_paused()
            self.say(step.text)
            self._note(begun=step.name)
            step.do()
            self._note(begun="", done=[*self.journal.done, step.name])

    def undo(self) -> None:
        """Take back what was done or begun, the last first.

        Raises:
            GenericError: a step could not be undone; those before it are left to be undone.  Or it
                must not be taken back, and goes on: then `Journal.is_undoing` is not set.
        """
        self._refuse_loss()
        self._note(is_undoing=True)
        begun = self.journal.begun_or_done
        for step in reversed(self.plan()):
            if step.name not in begun:
                continue
            try:
                self._keep_paused()
            except GenericError as err:  # a node that is down is in no way until its own turn
                self.context.terminal.error(f"{NAME}: {err.message}; ignoring")
            if step.undo is not None:
                self.say(f"Taking back: {step.text[:1].lower()}{step.text[1:]}")
                step.undo()
            done = [name for name in self.journal.done if name != step.name]
            self._note(begun="", done=done)
        note.forget(self.paths, self.journal)

    def _note(self, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self.journal, name, value)
        note.save(self.paths, self.journal)

    # On the other cluster.

    def _ask(self, name: str, action: str, **data: Any) -> Answer:
        return ask(self.reach.to(name), name, action, **data)

    def _ask_master(self, action: str, **data: Any) -> Answer:
        return self._ask(self.journal.master, action, **data)

    def _keys(self) -> tuple[Callable[[], None], Callable[[], None]]:
        keys = [self.journal.own_key]

        def let_in() -> None:
            for each in self.journal.nodes:
                if each.name not in self.journal.let_in:
                    if self._ask(each.name, "settings", keys=keys).keys:
                        continue
                    # Noted first: after a cut a key that is there might be one from before.
                    self._note(let_in=[*self.journal.let_in, each.name])
                self._ask(each.name, "let-in", keys=keys)
            if self.journal.identity:
                files.remove_if_exists(self.journal.identity)
                self.reach.identity = ""
                self._note(identity="")

        def lock_out_of(name: str) -> None:
            with contextlib.suppress(KeyRefusedError):  # done, and cut off before it was noted
                self._ask(name, "lock-out", keys=keys)
            self._note(let_in=[each for each in self.journal.let_in if each != name])

        return let_in, lambda: _on_all(self.journal.let_in, lock_out_of)

    def _pause(self) -> None:
        if "" not in self.journal.pauses:
            self._note(pauses={"": watcher_pause.read(self.paths), **self.journal.pauses})
        for each in self.journal.nodes:
            if each.name not in self.journal.pauses:
                found = self._ask(each.name, "settings").until
                self._note(pauses={**self.journal.pauses, each.name: found})
        self._pause_longer()

    def _look_again(self) -> None:
        """Make sure, after a cut, that the other cluster has not come to life meanwhile.

        Raises:
            OpExecError: it has; what it did since its configuration was fetched would be lost.
        """
        self._keep_paused()
        if "fetch" in self.journal.done and self.journal.is_undoable:
            there = self._ask_master("read-config").config_text
            if there != files.read_bytes(self.journal.other):
                raise OpExecError(f"the configuration of {self.journal.cluster} has changed")

    def _keep_paused(self) -> None:
        """Pause the watchers for longer, if the next step might outlast their pause.

        After a cut it may have ended long ago.
        """
        done = self.journal.done
        if "watchers" not in done or "go-on" in done:
            return
        if self.paused_until < clock.now() + STEP_TIMEOUT_S:
            self._pause_longer()

    def _pause_longer(self) -> None:
        until = clock.now() + STEP_TIMEOUT_S + self.journal.pause_s
        self._pause_here(until)
        self.paused_until = until
        # A node that was cleaned belongs to no cluster, or to this one.
        others = [each.name for each in self.journal.nodes if self._is_new(each.name)]
        _on_all(others, lambda name: self._ask(name, "pause", until=until))

    def _resume(self) -> None:
        self._resume_here()
        others = [name for name in self.journal.pauses if name]
        _on_all(others, lambda name: self._ask(name, "pause", until=self._paused_before(name)))

    def _resume_here(self) -> None:
        self._pause_here(self._paused_before(""))

    def _paused_before(self, name: str) -> float | None:
        until = self.journal.pauses.get(name)
        return until if until is not None and until > clock.now() else None

    def _pause_here(self, until: float | None) -> None:
        """Pause the own watchers, or let them go on; LuxiD, while it runs, tells candidates."""
        if daemon_control.running_pid(self.paths, "ganeti-luxid") is None:
            watcher_pause.write(self.paths, until)
        else:
            self.context.client.set_watcher_pause(until)

    def _instances(self) -> tuple[Callable[[], None], Callable[[], None]]:
        def stop() -> None:
            if self.journal.wishes.keeps_running:
                return
            ran = self._ask_master("stop-instances", lost=self.journal.lost).running
            self._note(running=sorted({*self.journal.running, *ran}))

        def start() -> None:
            if not self.journal.wishes.keeps_running:
                named = {"names": self.journal.running, "lost": self.journal.lost}
                self._ask_master("start-instances", **named)

        return stop, start

    def _queue(self) -> tuple[Callable[[], None], Callable[[], None]]:
        def drain_it() -> None:
            self._ask_master("drain")
            if self.journal.wishes.keeps_running:
                return
            found = self._ask_master("look")
            if found.running:
                raise OpExecError(f"somebody has started {shown(found.running)} meanwhile")
            if silent := "; ".join(found.silent(self.journal.lost)):
                raise OpExecError(silent)

        def undrain_it() -> None:
            self._ask_master("undrain")

        return drain_it, undrain_it

    def _daemons(self) -> tuple[Callable[[], None], Callable[[], None]]:
        master = self.journal.master
        others = [each.name for each in self.journal.nodes if each.name != master]

        def stop() -> None:
            for name in (master, *others):
                self._ask(name, "stop-daemons", is_master=name == master)

        def start_on(name: str) -> None:
            asked = {"is_master": True, "lost": self.journal.lost} if name == master else {}
            if not self._ask(name, "start-daemons", **asked).heeds_votes:
                self.context.terminal.error(remedy(master, "there"))

        return stop, lambda: _on_all((*others, master), start_on)

    def _fetch(self) -> None:
        """Take the configuration as it is at last, and look at it once more."""
        answer = self._ask_master("read-config")
        config = answer.config_text
        path = self.journal.other or config_file.free_name(
            self.paths.config_data, f"of-{self.journal.cluster}", clock.now()
        )
        files.write_durable(path, config, _COPY_MODE)
        self._note(other=path, ssh_keys=answer.ssh_keys)
        self._merged(config_file.read_config(self.paths), config)

    # On this one.

    def _drain(self) -> None:
        drain(self.context)
        lease.check_off(self.paths)  # it is a job that switches it on

    def _undrain(self) -> None:
        undrain(self.context)

    def _stop(self) -> None:
        self.context.reconnect()
        daemon_control.stop_all(self.paths, _MASTER, self._report)

    def _stop_idle(self) -> None:
        """Stop the daemons once no job is left; after a cut somebody may have let jobs in."""
        self.context.reconnect()
        if daemon_control.running_pid(self.paths, "ganeti-luxid") is not None:
            drain(self.context)
        self._stop()

    def _start(self) -> None:
        self.context.reconnect()
        daemon_control.start_wanted(self.paths, _MASTER, self._report)

    def _report(self, text: str) -> None:
        if self.options.verbose:
            self.say(f"  {text}")

    def _merged(self, own: bytes, other: bytes) -> bytes:
        found = merging.merge(own, other, self.journal.wishes, now=clock.now())
        if found.problems:
            raise OpExecError(
                "the configurations have changed, and cannot be merged any more: "
                + "; ".join(found.problems)
            )
        return found.config

    def _write(self) -> None:
        """Replace the configuration, and keep the one before.

        Repeated after a cut it leaves one that is merged as it is, changes since then included, and
        starts from the present one otherwise.
        """
        self._stop_idle()  # once more: the watcher may have gone on after a cut
        own, other = config_file.read_config(self.paths), files.read_bytes(self.journal.other)
        if merging.is_merged(own, other):
            return
        if not self.journal.before or files.read_bytes(self.journal.before) != own:
            path = config_file.free_name(self.paths.config_data, "before-merge", clock.now())
            files.write_durable(path, own, _COPY_MODE)
            self._note(before=path)
        merged = self._merged(own, other)
        manages_ssh = ConfigState(own).durable.cluster.modify_ssh_setup
        self._let_in_no_more(self._former_keys() if manages_ssh else [])
        config_file.write_config(self.paths, merged)

    def _former_keys(self) -> list[str]:
        own_key = ssh_key_of(self.journal.own_key)
        return [key for key in self.journal.ssh_keys if ssh_key_of(key) != own_key]

    def _let_in_no_more(self, keys: list[str]) -> None:
        """Note, while no daemon runs, the keys that the other's nodes are to let in no more.

        Jobs tell a node when it joins, an offline or lost one when it comes back, and leave out the
        keys of present candidates.
        """
        path = self.paths.ssh_revoked_keys
        due = ssh_keys_by_node((files.read_bytes_or_none(path) or b"").decode())
        due |= dict.fromkeys(split_config(files.read_bytes(self.journal.other)).tables[NODES], keys)
        if text := ssh_keys_text(due):
            files.write_durable(path, text.encode(), _COPY_MODE)
        else:
            files.remove_if_exists(path)

    def _restore(self) -> None:
        """Put the configuration of before in the place of a merged one."""
        if not self.journal.before:
            return  # cut off before it was replaced
        self._stop_idle()  # as in `_write`
        self._refuse_loss()
        config = config_file.read_config(self.paths)
        if self._is_merged(config):
            before = files.read_bytes(self.journal.before)
            config = merging.restored(before, config, now=clock.now())
            config_file.write_config(self.paths, config)
        self._let_in_no_more([])  # they are let in as before
        # The votes at the start of the daemons are those of the nodes named there.
        ssconf.write_values(self.paths, ssconf_values(ConfigState(config).durable))

    def _is_merged(self, config: bytes) -> bool:
        return merging.is_merged(config, files.read_bytes(self.journal.other))

    def _refuse_loss(self) -> None:
        """Refuse to take a merged configuration back in which something has changed.

        All steps that may have been undone by now are done again when the merge goes on.

        Raises:
            OpExecError: it has; the text says what.
        """
        if not self.journal.before:
            return
        present = config_file.read_config(self.paths)
        if not self._is_merged(present):
            return
        merged = self._merged(*map(files.read_bytes, (self.journal.before, self.journal.other)))
        if found := list(merging.changes(merged, present, lost=self.journal.lost)):
            self._note(is_undoing=False)
            raise OpExecError(
                f"the merge is not taken back, as this would be lost: {shown(found)}; run {NAME}"
                f" {self.journal.given}, which goes on.  The configuration of before is"
                f" {self.journal.before}"
            )

    def _start_alone(self) -> None:
        """Start the daemons without votes: the new nodes have none yet."""
        self.context.reconnect()
        daemon_control.start_wanted(self.paths, _MASTER, self._report, master_args=NO_VOTING)

    def _joining(self, node: OtherNode) -> Callable[[], None]:
        def join() -> None:
            """Set the node up for this cluster, as ``gnt-node add --readd`` does."""
            transport, paths = self.reach.to(node.name), self.paths
            [manages_ssh] = self.context.client.query_config_values(["modify_ssh_setup"])
            setup = node_setup.compose_setup(
                paths, node.name, force_join=True, with_ssh=bool(manages_ssh)
            )
            if self._is_new(node.name):
                self._stop_there(node.name)
                node_setup.clean_up_remotely(transport, node.name, backup=True)
                self._note(done=[*self.journal.done, _cleaned(node.name)])
            node_setup.set_up_remotely(transport, setup)
            self._job(OpNodeAdd, node_name=node.name, readd=True)
            if node.drained:
                self._set_aside(node.name, drained=True)
            keys = self._former_keys()
            if keys and not manages_ssh:  # otherwise the job has done that
                self._ask(node.name, "lock-out", keys=keys)

        return join

    def _stop_there(self, name: str) -> None:
        """Stop the daemons that a restart of the machine has brought up again since "daemons"."""
        is_master = name == self.journal.master
        found = self._ask(name, "stop-daemons", is_master=is_master)
        if found.config is None or not is_master:
            return
        fetched = files.read_bytes(self.journal.other)
        if changed := list(merging.changes(fetched, found.config_text)):
            self.context.terminal.error(
                f"The daemons on {name} have run again meanwhile, and what they did is lost:"
                f" {shown(changed)}; their configuration is kept there, in /var/backups"
            )

    def _set_offline(self, name: str) -> Callable[[], None]:
        def set_offline() -> None:
            self._set_aside(name, offline=True)
            if (keys := self._former_keys()) and f"{JOIN}:{name}" not in self.journal.done:
                self.say(
                    f"Node {name} lets in root by SSH keys of {self.journal.cluster}"
                    f" ({shown(key.split()[-1] for key in keys)}); should it come back all the"
                    " same, remove them from /root/.ssh/authorized_keys there, unless 'gnt-node add"
                    f" --readd --force-join {name}' does so"
                )

        return set_offline

    def _set_aside(self, name: str, **flag: bool) -> None:
        """Make a node none that can be a candidate; a failure of others to become one is told."""
        self._job(OpNodeSetParams, node_name=name, auto_promote=True, **flag)

    def _is_new(self, name: str) -> bool:
        return _cleaned(name) not in self.journal.done

    def _job(self, kind: type[Any], **params: Any) -> None:
        """Run a job, whether the queue is open or not."""
        # Of the options for jobs only this one is meant for all of them.
        options = Options({"debug": self.options.get("debug")})
        wire = [encode(self.context, options, make_opcode(kind, **params))]
        follow(self.context, self.context.client.submit_job_to_drained_queue(wire))

    def _distribute(self) -> None:
        self._job(OpClusterRedistConf)

    def _restart(self) -> None:
        """Have the daemons heed votes, unless they would not start again with those there are."""
        if lacks_votes(self.paths):
            # Those that run go on.  Others start without votes only if somebody has named nodes.
            start = self._start_alone if self.journal.lost else self._start
            start()
            self.context.terminal.error(remedy(own_hostname(), "here"))
        else:
            self._stop()
            self._start()

    def _start_instances(self) -> None:
        """Start the instances that are to run; a failure is told, and ends nothing."""
        wishes = self.journal.wishes
        if wishes.restart is Restart.NONE:
            return
        its = set(self.journal.expected["instances there"])
        wanted = its if wishes.restart is Restart.ALL else its & set(self.journal.running)
        fields = ["name", "oper_state", "admin_state"]
        for name, runs, admin_state in self.context.client.query_instances([], fields):
            if name not in wanted or runs is True or admin_state == "offline":
                continue
            try:
                self._job(OpInstanceStartup, instance_name=name)
            except GenericError as err:
                self.context.terminal.error(f"Instance {name} does not start: {err.message}")

    # Afterwards.

    def check(self) -> bool:
        """Compare the lists with those from before, verify the cluster; tells if all is well."""
        problems = list(self._missing())
        for problem in problems:
            self.context.terminal.error(problem)
        self.say("Verifying the cluster")
        argv = daemon_control.command("gnt-cluster", ["verify"])
        result = process.run(argv, timeout_s=VERIFY_TIMEOUT_S)
        if result.status != 0 or self.options.verbose:
            self.say(result.output.rstrip())
        return not problems and result.status == 0

    def _missing(self) -> Iterator[str]:
        client, expected = self.context.client, self.journal.expected
        for what, rows in (
            ("nodes", client.query_nodes([], ["name"])),
            ("instances", client.query_instances([], ["name"])),
        ):
            found = {str(name) for [name] in rows}
            before = {*expected[f"{what} here"], *expected[f"{what} there"]}
            if before - found:
                yield f"These {what} are missing: {shown(before - found)}"
            if found - before:
                yield f"These {what} have come meanwhile: {shown(found - before)}"


def _cleaned(name: str) -> str:
    return f"cleaned:{name}"


def _on_all(names: Iterable[str], action: Callable[[str], object]) -> None:
    """Do something on nodes, on each of them whatever becomes of the others.

    Raises:
        OpExecError: it failed on some, whose reasons are the text.
    """
    failed = []
    for name in names:
        try:
            action(name)
        except GenericError as err:
            failed.append(err.message)
    if failed:
        raise OpExecError("\n".join(failed))


@contextlib.contextmanager
def told_if_interrupted(merge: Merge) -> Iterator[None]:
    """Tell a user who presses Ctrl-C what is left, and how it goes on."""
    try:
        yield
    except KeyboardInterrupt:
        merge.context.terminal.error(f"{NAME}: {merge.journal.way_out}")
        raise


@contextlib.contextmanager
def taken_back(merge: Merge) -> Iterator[None]:
    """Take the merge back if it fails while that can be done.

    Raises:
        GenericError: it failed; the text says what has become of it.
    """
    try:
        yield
    except (GenericError, OSError) as err:
        said = err.message if isinstance(err, GenericError) else str(err)
        if not merge.journal.is_undoable:
            raise OpExecError(
                f"{said}\nJobs are let in again already, so it cannot be taken back any more:"
                f" put that right and run {NAME} again, which goes on.  The files of"
                f" {merge.journal.cluster} are on its nodes, in /var/backups, its configuration"
                f" is {merge.journal.other}, and your own was {merge.journal.before}"
            ) from err
        merge.context.terminal.error(f"{NAME}: {said}")
        try:
            merge.undo()
        except (GenericError, OSError) as second:
            more = second.message if isinstance(second, GenericError) else str(second)
            if not merge.journal.is_undoing:
                raise OpExecError(more) from err
            raise OpExecError(
                f"it could not be taken back either: {more}; put that right and run"
                f" '{NAME} --rollback', with --lost-nodes if a node will not come back"
            ) from err
        raise OpExecError("the merge was taken back; both clusters are as before") from err
