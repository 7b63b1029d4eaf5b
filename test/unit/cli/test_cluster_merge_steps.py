"""The steps of a merge on the nodes of the other cluster: cut off, refused, and taken back.

The nodes are played, each by a directory: the actions that need no daemon are the real ones.
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fakes.large_config import MASTER, large_config, other_config, uuid_of
from msgspec.structs import replace

from ganeti.base import json
from ganeti.base.daemons import Place
from ganeti.base.errors import GenericError, OpExecError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.base.text import ssh_keys_by_node
from ganeti.bootstrap.node_transport import SshTransport
from ganeti.cli.command import Context, Options
from ganeti.cli.merging import command, peer, steps
from ganeti.cli.merging import journal as note
from ganeti.cli.merging.journal import Journal, OtherNode
from ganeti.cli.merging.peer import Answer, Ask
from ganeti.cli.merging.reach import STEP_TIMEOUT_S, Contact, Reach, unreached
from ganeti.cli.merging.steps import Merge, taken_back, told_if_interrupted
from ganeti.cli.run.context import Terminal
from ganeti.clients.node_rpc import Target
from ganeti.config.merging import merge as merging
from ganeti.config.merging.merge import Groups, Wishes
from ganeti.config.ssconf_values import ssconf_values
from ganeti.config.state import ConfigState
from ganeti.jobs.votes import Answer as Vote
from ganeti.protocol.node_rpc_values import CompressedText
from ganeti.store import config_file, ssconf
from ganeti.store.notes import watcher_pause
from ganeti.system import clock, daemon_control, environment, ssh
from ganeti.system.process import CommandResult

NODES = ("n1.example.com", "n2.example.com", "n3.example.com")
WISHES = Wishes(groups=Groups.RENAME)
OWN_KEY, THEIR_KEY = "ssh-rsa OWN root@here", "ssh-rsa THEIRS root@n1"
NOW = 1_000_000.0
REAL = ("settings", "let-in", "lock-out", "pause")
Act = Callable[[Ask], Answer]


def no_answer(_ask: Ask) -> Answer:
    raise OpExecError("it is not played")


@dataclass
class Site:
    """The nodes of the other cluster; `acts` are what they do if that needs a daemon."""

    directory: Path
    down: set[str] = field(default_factory=set)
    acts: dict[str, Act] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in NODES:
            os.makedirs(os.path.dirname(self.paths_of(name).watcher_pause))

    def paths_of(self, name: str) -> Paths:
        return Paths(str(self.directory / name))

    def keys_of(self, name: str) -> list[str]:
        path = Path(ssh.directory_of(self.paths_of(name))) / "authorized_keys"
        return path.read_text().splitlines() if path.exists() else []

    def let_in(self, key: str, *names: str) -> None:
        for name in names:
            ssh.change_authorized_keys(ssh.directory_of(self.paths_of(name)), add=[key])

    def pause_of(self, name: str) -> float | None:
        return watcher_pause.read(self.paths_of(name))

    def act(self, name: str, action: str, ask: Ask) -> Answer:
        if action not in REAL:
            return self.acts.get(action, no_answer)(ask)
        return peer.ACTIONS[action](context_at(self.paths_of(name)), Options({}), ask)


@dataclass
class Line:
    """SSH to a node, which opens to the keys that its command line has SSH offer."""

    site: Site
    transport: SshTransport

    def run(self, argv: Sequence[str], *, stdin: bytes, **_limits: Any) -> CommandResult:
        name, line = self.transport.node_name, self.transport.command_line(argv)
        files = [word.removeprefix("IdentityFile=") for word in line if "IdentityFile=" in word]
        # Files that are named replace root's own; in such a file is its public key here.
        offered = [Path(path).read_text() for path in files if os.path.exists(path)]
        if name in self.site.down:
            return self.failed(255, f"ssh: connect to host {name} port 22: No route to host")
        if not set(offered if files else [OWN_KEY]) & set(self.site.keys_of(name)):
            return self.failed(255, f"root@{name}: Permission denied (publickey).")
        try:
            answer = self.site.act(name, argv[-1], json.loads_as(Ask, stdin))
        except GenericError as err:
            return self.failed(1, f"{peer.NAME}: {err.message}")
        return CommandResult((), 0, json.dumps(answer), b"")

    def failed(self, status: int, said: str) -> CommandResult:
        return CommandResult((), status, b"", said.encode())

    def describe(self) -> str:
        return self.transport.describe()


@dataclass
class PlayedReach(Reach):
    site: Site = field(kw_only=True)

    def to(self, name: str) -> Line:
        found = Reach.to(self, name)
        assert isinstance(found, SshTransport)
        return Line(self.site, found)


def context_at(paths: Paths) -> Context:
    terminal = Terminal(io.StringIO(), io.StringIO(), io.StringIO())
    context = Context("cluster-merge", command.PROGRAM.commands[0], Options({}), terminal)
    context.paths = paths
    return context


def errors_of(context: Context) -> str:
    err = context.terminal._err
    assert isinstance(err, io.StringIO)
    return err.getvalue()


def options(**given: object) -> Options:
    wishes = {"verbose": False, "dry_run": False, "rollback": False, "lost_nodes": []}
    return Options({**wishes, **given})


@dataclass
class World:
    """A site, and the master that merges it."""

    site: Site
    context: Context

    def journal(self, **values: Any) -> Journal:
        return Journal(
            given="other",
            cluster="other.example.com",
            master=NODES[0],
            nodes=[OtherNode(name=name, port=22) for name in NODES],
            own_key=OWN_KEY,
            wishes=WISHES,
            expected={},
            **values,
        )

    def merge(self, journal: Journal | None = None) -> Merge:
        """Return a merge; that of the note, as a new process finds it, without a journal."""
        journal = journal or note.load(self.context.paths)
        assert journal is not None
        reach = PlayedReach(Paths(""), journal.cluster, identity=journal.identity, site=self.site)
        return Merge(self.context, options(), journal, reach)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    # Root's own keys on this machine have no part in it.
    monkeypatch.setattr(ssh, "_own_keys", list)
    monkeypatch.setattr(clock, "now", lambda: NOW)
    own = Paths(str(tmp_path / "own"))
    os.makedirs(own.data_dir)
    return World(Site(tmp_path), context_at(own))


def saved(world: World, **values: Any) -> Journal:
    journal = world.journal(**values)
    note.save(world.context.paths, journal)
    return journal


def fail(merge: Merge) -> str:
    with pytest.raises(OpExecError) as caught:
        merge.run()
    return caught.value.message


# Keys.


def test_a_merge_by_password_goes_on_after_a_cut_and_is_taken_back(world: World) -> None:
    world.site.let_in(THEIR_KEY, *NODES)
    identity = Path(f"{world.context.paths.merge_note}.key")
    identity.write_text(THEIR_KEY)
    assert "stop-instances on n1" in fail(world.merge(world.journal(identity=str(identity))))
    assert not identity.exists()
    assert all(OWN_KEY in world.site.keys_of(name) for name in NODES)
    # A new process reaches them, by the own key.
    assert "it is not played" in fail(world.merge())
    world.site.acts["start-instances"] = lambda _ask: Answer()
    world.merge().undo()
    assert [world.site.keys_of(name) for name in NODES] == [[THEIR_KEY]] * 3
    assert note.load(world.context.paths) is None


def test_a_key_that_is_not_there_any_more_is_not_used(world: World) -> None:
    world.context.paths = Paths("")
    journal = world.journal(identity="/nonexistent/key")
    assert command._resume(world.context, options(), journal).reach.identity == ""


def test_a_rollback_locks_out_of_all_nodes_and_comes_back_for_the_rest(world: World) -> None:
    world.site.let_in(OWN_KEY, *NODES)
    saved(world, done=["keys"], let_in=list(NODES))
    world.site.down = {NODES[1]}
    with pytest.raises(OpExecError, match=r"lock-out on n2.*No route to host"):
        world.merge().undo()
    assert [world.site.keys_of(name) for name in NODES] == [[], [OWN_KEY], []]
    assert world.merge().journal.let_in == [NODES[1]]
    world.site.down = set()
    world.merge().undo()
    assert world.site.keys_of(NODES[1]) == []
    assert note.load(world.context.paths) is None


def test_a_node_that_refuses_the_key_is_locked_out_of(world: World) -> None:
    world.site.let_in(OWN_KEY, NODES[1])
    saved(world, done=["keys"], let_in=list(NODES))  # cut off before the first was noted
    world.merge().undo()
    assert world.site.keys_of(NODES[1]) == []
    assert note.load(world.context.paths) is None


def test_a_node_that_was_not_reached_has_nothing_to_be_taken_back(world: World) -> None:
    world.site.let_in(THEIR_KEY, *NODES)
    world.site.down = {NODES[1]}
    identity = Path(f"{world.context.paths.merge_note}.key")
    identity.write_text(THEIR_KEY)
    merge = world.merge(world.journal(identity=str(identity)))
    with pytest.raises(OpExecError, match="the merge was taken back"), taken_back(merge):
        merge.run()
    assert "settings on n2" in errors_of(world.context)
    assert world.site.keys_of(NODES[0]) == [THEIR_KEY]
    assert not identity.exists()
    assert note.load(world.context.paths) is None


def test_a_key_that_was_there_before_stays(world: World) -> None:
    world.site.let_in(OWN_KEY, *NODES)
    fail(world.merge(world.journal()))
    world.site.acts["start-instances"] = lambda _ask: Answer()
    world.merge().undo()
    assert all(world.site.keys_of(name) == [OWN_KEY] for name in NODES)


def test_nodes_that_are_not_reached_are_told_before_anything_is_touched(world: World) -> None:
    world.site.let_in(OWN_KEY, *NODES[:2])
    world.site.down = {NODES[1]}
    first, second = unreached(world.merge(world.journal()).reach, NODES)
    assert first.startswith("node n2.example.com is not reached")
    assert "gnt-node modify --offline=yes n2.example.com" in first
    assert "Permission denied" in second


# Watchers.


def advance(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = clock.now() + seconds
    monkeypatch.setattr(clock, "now", lambda: now)


def test_the_watchers_pause_again_when_it_goes_on_after_a_cut(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.site.let_in(OWN_KEY, *NODES)
    watcher_pause.write(world.site.paths_of(NODES[1]), NOW + 1e6)  # an administrator's
    fail(world.merge(world.journal()))
    advance(monkeypatch, 90_000)
    assert world.site.pause_of(NODES[0]) is None
    merge = world.merge()
    merge.journal.done.append(f"cleaned:{NODES[2]}")
    fail(merge)
    until = NOW + 90_000 + STEP_TIMEOUT_S + merge.journal.pause_s
    assert [world.site.pause_of(name) for name in NODES] == [until, until, None]
    assert watcher_pause.read(world.context.paths) == until, "LuxiD does not run"
    world.site.acts["start-instances"] = lambda _ask: Answer()
    world.merge().undo()
    assert [world.site.pause_of(name) for name in NODES] == [None, NOW + 1e6, None]
    assert watcher_pause.read(world.context.paths) is None


def test_they_pause_beyond_steps_that_take_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.site.let_in(OWN_KEY, *NODES)

    def stop_slowly(_ask: Ask) -> Answer:
        assert world.site.pause_of(NODES[1]) >= clock.now() + STEP_TIMEOUT_S
        advance(monkeypatch, STEP_TIMEOUT_S)
        return Answer()

    world.site.acts["stop-instances"] = stop_slowly
    assert "drain on n1" in fail(world.merge(world.journal(pause_s=60)))
    assert world.site.pause_of(NODES[1]) == clock.now() + STEP_TIMEOUT_S + 60


def test_a_pause_that_has_ended_meanwhile_is_not_put_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.site.let_in(OWN_KEY, *NODES)
    paths = [world.context.paths, world.site.paths_of(NODES[0])]
    for each in paths:
        watcher_pause.write(each, NOW + 60)
    fail(world.merge(world.journal()))
    advance(monkeypatch, 61)
    world.site.acts["start-instances"] = lambda _ask: Answer()
    world.merge().undo()
    assert not any(os.path.exists(each.watcher_pause) for each in paths)


def test_a_node_that_is_down_does_not_keep_the_others_from_being_taken_back(world: World) -> None:
    world.site.let_in(OWN_KEY, *NODES)
    fail(world.merge(world.journal(running=["guest1"])))
    started = []
    world.site.acts["start-instances"] = lambda ask: started.extend(ask.names) or Answer()
    world.site.down = {NODES[1]}
    with pytest.raises(OpExecError, match="pause on n2"):
        world.merge().undo()
    assert started == ["guest1"]
    assert world.site.pause_of(NODES[2]) is None
    assert "ignoring" in errors_of(world.context)


def test_a_cluster_that_has_come_to_life_after_a_cut_is_not_merged(
    world: World, tmp_path: Path
) -> None:
    world.site.let_in(OWN_KEY, *NODES)
    other = tmp_path / "of-other"
    other.write_bytes(b"fetched")
    done = ["keys", "watchers", "instances", "queue", "daemons", "fetch"]
    config = json.loads(json.dumps(CompressedText(b"changed").to_wire()))
    world.site.acts["read-config"] = lambda _ask: Answer(config=config)
    merge = world.merge(saved(world, done=done, other=str(other)))
    assert "the configuration of other.example.com has changed" in fail(merge)
    assert merge.journal.begun == ""


class Queue:
    """A queue that takes no job, as all that counts are these."""

    def __init__(self) -> None:
        self.submitted: list[dict[str, object]] = []

    def submit_job_to_drained_queue(self, wire: list[dict[str, object]]) -> int:
        self.submitted.extend(wire)
        raise OpExecError("no more")


def test_nodes_that_are_to_be_no_candidates_let_others_take_their_place(world: World) -> None:
    """Those not yet taken in count as possible ones, so it would be refused for ever."""
    world.context._client = queue = Queue()
    journal = world.journal(lost=["n0.example.com"])
    drained, *others = journal.nodes
    journal.nodes = [replace(drained, drained=True), *others]
    merge = world.merge(journal)
    joins = [step.name for step in merge.plan() if step.name.startswith("join:")]
    assert joins == [f"join:{name}" for name in (*NODES[1:], NODES[0])], "it comes last"
    [offline] = [step for step in merge.plan() if step.name == "offline:n0.example.com"]
    with pytest.raises(OpExecError):
        offline.do()
    assert queue.submitted[0]["auto_promote"] is True


def test_its_jobs_are_never_dry_runs(world: World) -> None:
    world.context._client = queue = Queue()
    merge = world.merge(world.journal(lost=[NODES[1]]))
    merge.options = options(dry_run=True)
    [offline] = [step for step in merge.plan() if step.name == f"offline:{NODES[1]}"]
    for do in (merge._distribute, offline.do):
        with pytest.raises(OpExecError):
            do()
    submitted = queue.submitted
    assert all("dry_run" not in wire for wire in submitted)
    assert submitted[1]["OP_ID"] == "OP_NODE_SET_PARAMS"
    assert (submitted[1]["node_name"], submitted[1]["offline"]) == (NODES[1], True)


# Instances whose node does not tell.

UNKNOWN = {"guest1": NODES[1], "guest2": NODES[1], "guest3": NODES[2]}


class Instances:
    """The instances of the other cluster: one runs, one is down, and two nodes are silent."""

    def __init__(self) -> None:
        self.rows: list[list[object]] = [
            ["guest0", True, "running", NODES[0]],
            ["guest4", None, "ERROR_nodeoffline", "n4.example.com"],
            ["guest5", False, "ADMIN_down", NODES[0]],
            *([name, None, "ERROR_nodedown", node] for name, node in UNKNOWN.items()),
        ]

    def query_instances(self, _names: list[str], fields: list[str]) -> list[list[object]]:
        assert fields == ["name", "oper_state", "status", "pnode"]
        return self.rows


def test_nothing_is_stopped_while_nobody_knows_what_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Instances()
    context, stopped = context_at(world.site.paths_of(NODES[0])), list[str]()
    context._client = there

    def run(_context: Context, _options: Options, opcodes: Sequence[Any]) -> None:
        stopped.extend(each.instance_name for each in opcodes)
        there.rows[0][1:3] = [False, "ERROR_down"]

    monkeypatch.setattr(peer, "_run", run)
    stop = peer.ACTIONS["stop-instances"]
    with pytest.raises(OpExecError, match=r"node n2.*nobody knows whether guest1, guest2 run"):
        stop(context, options(), Ask(lost=[NODES[2]]))
    assert stopped == []
    assert stop(context, options(), Ask(lost=[*NODES[1:]])).running == ["guest0"] == stopped


def test_what_a_silent_node_has_started_meanwhile_is_not_known(world: World) -> None:
    world.site.let_in(OWN_KEY, *NODES)
    asked = []
    world.site.acts["stop-instances"] = lambda ask: asked.append(ask.lost) or Answer()
    world.site.acts["drain"] = lambda _ask: Answer()
    world.site.acts["look"] = lambda _ask: Answer(unknown=UNKNOWN)
    merge = world.merge(world.journal(lost=[NODES[2]]))
    assert fail(merge) == (
        "node n2.example.com does not answer, so nobody knows whether guest1, guest2 run there;"
        " start its node daemon"
    )
    assert asked == [[NODES[2]]]
    merge.journal.lost = [*NODES[1:]]
    assert "stop-daemons on n1" in fail(merge)


@pytest.mark.parametrize("keeps_running", [False, True])
def test_nodes_that_do_not_tell_are_in_the_way_unless_instances_run_on(
    master: World, monkeypatch: pytest.MonkeyPatch, keeps_running: bool
) -> None:
    config_file.write_config(master.context.paths, json.dumps(large_config(2)))
    wire = json.loads(json.dumps(CompressedText(json.dumps(other_config())).to_wire()))
    found = Contact(Answer(config=wire, unknown=UNKNOWN))
    monkeypatch.setattr(command, "contact", lambda *_args, **_kw: found)
    monkeypatch.setattr(command, "_unreached", lambda *_: [])
    wishes = {"groups": "rename", "parameter_conflicts": "strict", "restart": "up"}
    given = options(dry_run=True, skip_stop_instances=keeps_running, ssh_key_check=True, **wishes)
    assert command.merge(master.context, given, ["other"]) == (0 if keeps_running else 1)
    out = master.context.terminal._out
    assert isinstance(out, io.StringIO)
    told = out.getvalue() if keeps_running else errors_of(master.context)
    for node, names in ((NODES[1], "guest1, guest2"), (NODES[2], "guest3")):
        assert f"node {node} does not answer, so nobody knows whether {names} run there" in told


# Taking nodes in.


@dataclass
class Joins:
    """What becomes of nodes that are taken in, in order."""

    world: World
    log: list[str] = field(default_factory=list)
    config: dict[str, object] = field(default_factory=lambda: {"modify_ssh_setup": True})

    def query_config_values(self, names: list[str]) -> list[object]:
        return [self.config[name] for name in names]

    def submit_job_to_drained_queue(self, wire: list[dict[str, object]]) -> list[str]:
        flags = " ".join(key for key, value in wire[0].items() if value is True)
        self.log.append(f"{wire[0]['OP_ID']} {wire[0]['node_name']} {flags}")
        return self.log

    def take(self, merge: Merge, name: str) -> list[str]:
        [step] = [each for each in merge.plan() if each.name == f"join:{name}"]
        self.log.clear()
        step.do()
        return [*self.log]


@pytest.fixture
def joins(world: World, monkeypatch: pytest.MonkeyPatch) -> Joins:
    found = Joins(world)
    world.context._client = found
    world.site.let_in(OWN_KEY, *NODES)
    monkeypatch.setattr(steps, "follow", lambda *_: None)
    for name in ("compose_setup", "clean_up_remotely", "set_up_remotely"):
        monkeypatch.setattr(steps.node_setup, name, lambda *_, n=name, **_kw: found.log.append(n))

    def stop(ask: Ask) -> Answer:
        found.log.append(f"stop-daemons {ask.is_master}")
        return Answer()

    world.site.acts["stop-daemons"] = stop
    return found


SET_UP = ["set_up_remotely", "OP_NODE_ADD {} readd"]


def test_daemons_that_have_come_up_again_are_stopped_before_a_node_is_taken_in(
    joins: Joins,
) -> None:
    """Those of the other master would refuse it, and advise to destroy its cluster."""
    merge = joins.world.merge(joins.world.journal())
    for name in NODES[:2]:
        new = ["compose_setup", f"stop-daemons {name == NODES[0]}", "clean_up_remotely"]
        set_up = [each.format(name) for each in SET_UP]
        assert joins.take(merge, name) == [*new, *set_up]
        assert joins.take(merge, name) == ["compose_setup", *set_up], "they are this cluster's"
    assert errors_of(joins.world.context) == ""


def test_what_the_other_master_has_done_meanwhile_is_told(joins: Joins, tmp_path: Path) -> None:
    fetched, path = other_config(), tmp_path / "of-other"
    path.write_bytes(json.dumps(fetched))
    merge = joins.world.merge(joins.world.journal(other=str(path)))
    for name, text in (
        (fetched["cluster"]["cluster_name"], ""),
        ("changed", "n1.example.com have run again meanwhile, and what they did is lost: the cl"),
    ):
        fetched["cluster"]["cluster_name"] = name
        config = json.loads(json.dumps(CompressedText(json.dumps(fetched)).to_wire()))
        joins.world.site.acts["stop-daemons"] = lambda _ask, config=config: Answer(config=config)
        merge._stop_there(NODES[0])
        assert text in errors_of(joins.world.context)
        assert bool(text) == bool(errors_of(joins.world.context))


def test_a_master_that_was_cleaned_up_before_a_cut_has_nothing_to_stop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_control, "stop_all", lambda *_: None)
    context = context_at(world.site.paths_of(NODES[0]))
    assert peer.ACTIONS["stop-daemons"](context, options(), Ask(is_master=True)) == Answer()


def test_a_drained_node_is_drained_again(joins: Joins) -> None:
    journal = joins.world.journal()
    journal.nodes = [replace(each, drained=True) for each in journal.nodes]
    *_, last = joins.take(joins.world.merge(journal), NODES[1])
    assert last == f"OP_NODE_SET_PARAMS {NODES[1]} drained auto_promote"


# Root's SSH keys of the other cluster.

FORMER = ["ssh-rsa GONE root@gone", THEIR_KEY]


def test_its_master_hands_out_the_keys_that_its_nodes_let_in(world: World) -> None:
    world.site.let_in(OWN_KEY, *NODES)
    paths = world.site.paths_of(NODES[0])
    config_file.write_config(paths, json.dumps(other_config()))
    Path(paths.ssh_pub_keys).write_text(f"u1 {THEIR_KEY}\nu2 {OWN_KEY}\n")
    Path(paths.ssh_revoked_keys).write_text(f"u2 {FORMER[0]}\nu3 {FORMER[0]}\n")
    context = context_at(paths)
    world.site.acts["read-config"] = lambda _: peer.ACTIONS["read-config"](
        context, options(), Ask()
    )
    config_file.write_config(world.context.paths, json.dumps(large_config(1)))
    world.merge(world.journal())._fetch()
    merge = world.merge()
    assert merge.journal.ssh_keys == [FORMER[0], OWN_KEY, THEIR_KEY]
    assert merge._former_keys() == FORMER


@pytest.mark.parametrize("manages_ssh", [True, False])
def test_all_its_nodes_are_to_let_them_in_no_more(configs: Configs, manages_ssh: bool) -> None:
    configs.own["cluster"]["modify_ssh_setup"] = manages_ssh
    configs.put(configs.own)
    path = Path(configs.paths.ssh_revoked_keys)
    path.write_text("u9 ssh-rsa DUE\n")
    merge = configs.cut(done=[], begun="config", ssh_keys=[*FORMER, OWN_KEY])
    merge._write()
    its = dict.fromkeys(other_config()["nodes"], FORMER) if manages_ssh else {}
    assert ssh_keys_by_node(path.read_text()) == {"u9": ["ssh-rsa DUE"], **its}
    configs.world.merge().undo()
    assert path.read_text() == "u9 ssh-rsa DUE\n"


@pytest.mark.parametrize("manages_ssh", [True, False])
def test_where_no_job_changes_keys_the_merge_does(joins: Joins, manages_ssh: bool) -> None:
    joins.config["modify_ssh_setup"] = manages_ssh
    joins.world.site.let_in(THEIR_KEY, *NODES)
    merge = joins.world.merge(joins.world.journal(ssh_keys=[*FORMER, OWN_KEY]))
    joins.take(merge, NODES[1])
    left = [OWN_KEY, THEIR_KEY] if manages_ssh else [OWN_KEY]
    assert joins.world.site.keys_of(NODES[1]) == left
    assert joins.world.site.keys_of(NODES[2]) == [OWN_KEY, THEIR_KEY]


def test_keys_that_a_lost_node_lets_in_are_told(joins: Joins) -> None:
    journal = joins.world.journal(ssh_keys=FORMER, lost=["lost", "joined"], done=["join:joined"])
    for step in joins.world.merge(journal).plan():
        if step.name.startswith("offline:"):
            step.do()
    out = joins.world.context.terminal._out
    assert isinstance(out, io.StringIO)
    text = "Node lost lets in root by SSH keys of other.example.com (root@gone, root@n1); should"
    assert out.getvalue().startswith(text)
    assert "Node joined" not in out.getvalue()


# What a cut leaves.


def test_an_interruption_tells_what_is_left_and_how_it_goes_on(world: World) -> None:
    world.site.let_in(OWN_KEY, *NODES)

    def interrupted(_ask: Ask) -> Answer:
        raise KeyboardInterrupt

    world.site.acts["stop-instances"] = interrupted
    merge = world.merge(world.journal(running=["guest1"]))
    with pytest.raises(KeyboardInterrupt), told_if_interrupted(merge), taken_back(merge):
        merge.run()
    assert errors_of(world.context) == (
        "cluster-merge: the merge of other was cut off, and the instances of other.example.com are"
        " stopped; run cluster-merge other to go on, or cluster-merge --rollback\n"
    )


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"done": ["keys"]}, "cut off; run cluster-merge other to go on, or cluster-merge --roll"),
        ({"done": ["start"]}, "cut off; run cluster-merge other to go on, or cluster-merge --roll"),
        ({"done": ["start"], "begun": "open"}, "cut off; run cluster-merge other to go on"),
        ({"done": ["start"], "begun": "join:n1"}, "cut off; run cluster-merge other to go on"),
        ({"is_undoing": True}, "being taken back; run cluster-merge --rollback to go on with that"),
        ({"done": ["instances"], "running": ["a"]}, "are stopped; run"),
        ({"done": ["instances", "up"], "running": ["a"]}, "cut off; run"),
    ],
)
def test_the_way_out_of_a_merge_that_was_cut_off(
    world: World, values: dict[str, Any], text: str
) -> None:
    assert text in world.journal(**values).way_out
    is_final = values.get("begun") in ("open", "join:n1")
    assert ("--rollback" in world.journal(**values).way_out) != is_final


# What has changed meanwhile.


@dataclass
class Configs:
    """The configurations of both clusters, and what is made of them.

    Attributes:
        merged: as it was first, for a lost node that was not yet set offline.
    """

    world: World
    own: dict[str, Any]
    merged: dict[str, Any]
    copies: dict[str, str]
    stopped: list[str] = field(default_factory=list)

    @property
    def paths(self) -> Paths:
        return self.world.context.paths

    @property
    def present(self) -> dict[str, Any]:
        found = json.loads(config_file.read_config(self.paths))
        assert isinstance(found, dict)
        return found

    def put(self, config: dict[str, Any]) -> None:
        config_file.write_config(self.paths, json.dumps(config))

    def put_changed(self, config: dict[str, Any]) -> dict[str, Any]:
        """Put a configuration that has an instance more."""
        uuid, found = uuid_of("instance", 9), copy.deepcopy(config)
        sample = next(iter(found["instances"].values()))
        found["instances"][uuid] = {**sample, "uuid": uuid, "name": NEW, "disks": [], "nics": []}
        found["serial_no"] += 20
        self.put(found)
        return found

    def cut(self, **values: Any) -> Merge:
        """Return a merge that was cut off, in a new process."""
        done = {"done": ["config", "start"]}  # what is done elsewhere has no part in it
        saved(self.world, **{**done, **self.copies, **values})
        return self.world.merge()


NEW = "meanwhile.example.com"


@pytest.fixture
def configs(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configs:
    own, other = large_config(2), other_config()
    texts = {"before": json.dumps(own), "other": json.dumps(other)}
    copies = {name: str(tmp_path / name) for name in texts}
    for name, path in copies.items():
        Path(path).write_bytes(texts[name])
    merged = merging.merge(texts["before"], texts["other"], WISHES, now=NOW).config
    found = Configs(world, own, json.loads(merged), copies)
    os.makedirs(found.paths.lock_dir)
    monkeypatch.setattr(daemon_control, "stop_all", lambda *_: found.stopped.append("stopped"))
    monkeypatch.setattr(daemon_control, "start_wanted", lambda *_args, **_kw: None)
    return found


def test_a_merged_configuration_is_taken_back_for_that_of_before(configs: Configs) -> None:
    configs.put(configs.merged | {"mtime": NOW + 60, "serial_no": 500})
    configs.cut().undo()
    assert configs.present == {**configs.own, "serial_no": 501, "mtime": NOW}
    assert note.load(configs.paths) is None


def test_what_has_changed_in_a_merged_configuration_is_never_taken_back(configs: Configs) -> None:
    changed = configs.put_changed(configs.merged)
    merge = configs.cut()
    text = rf"as this would be lost: instance {NEW} is new; run cluster-merge other, which goes on"
    with pytest.raises(OpExecError, match=text) as caught:
        merge.undo()
    assert merge.journal.before in caught.value.message
    assert configs.present == changed
    assert configs.stopped == []
    assert configs.world.merge().journal == merge.journal
    assert (merge.journal.is_undoing, merge.journal.done) == (False, ["config", "start"])


def test_a_failure_does_not_take_it_back_either(configs: Configs) -> None:
    changed = configs.put_changed(configs.merged)
    with pytest.raises(OpExecError, match="is not taken back") as caught, taken_back(configs.cut()):
        raise OpExecError("no more")
    assert "--rollback" not in caught.value.message
    assert "no more" in errors_of(configs.world.context)
    assert configs.present == changed


def test_what_changes_until_the_daemons_have_stopped_is_not_taken_back(
    configs: Configs, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs.put(configs.merged)
    last = [lambda: configs.put_changed(configs.merged)]
    monkeypatch.setattr(daemon_control, "stop_all", lambda *_: last and last.pop()())
    merge = configs.cut()
    with pytest.raises(OpExecError, match=f"instance {NEW} is new"):
        merge.undo()
    assert NEW in json.dumps(configs.present).decode()
    # It goes on from there.
    assert (merge.journal.is_undoing, merge.journal.done) == (False, ["config"])
    assert "start" in [step.name for step in merge.plan() if step.name not in merge.journal.done]


def test_a_rollback_that_was_cut_off_may_have_to_go_on_as_a_merge(configs: Configs) -> None:
    configs.put_changed(configs.merged)
    merge = configs.cut(done=["config"], is_undoing=True)
    with pytest.raises(OpExecError, match="which goes on"):
        merge.undo()
    assert not configs.world.merge().journal.is_undoing


def test_what_has_changed_before_the_configurations_were_merged_stays(configs: Configs) -> None:
    changed = configs.put_changed(configs.own)
    configs.cut(done=[], begun="config").undo()
    assert configs.present == changed
    assert note.load(configs.paths) is None


def test_a_merge_that_goes_on_begins_with_the_present_configuration(configs: Configs) -> None:
    changed = configs.put_changed(configs.own)
    merge = configs.cut(done=[], begun="config")
    merge._write()
    names = {each["name"] for each in configs.present["instances"].values()}
    assert names > {NEW, *(each["name"] for each in configs.own["instances"].values())}
    assert set(configs.present["nodes"]) == set(configs.merged["nodes"])
    assert json.loads(Path(merge.journal.before).read_bytes()) == changed
    assert merge.journal.before != configs.copies["before"]
    configs.world.merge().undo()
    assert configs.present["instances"] == changed["instances"]


def test_a_configuration_that_is_merged_already_stays_as_it_became(configs: Configs) -> None:
    changed = configs.put_changed(configs.merged)
    configs.cut(done=[], begun="config")._write()
    assert configs.present == changed


def test_nodes_that_the_merge_has_set_offline_are_no_change(configs: Configs) -> None:
    lost = copy.deepcopy(configs.merged)
    lost["nodes"][uuid_of("other-node", 1)].update(offline=True, serial_no=9)
    configs.put(lost)
    with pytest.raises(OpExecError, match=r"node peer1.example.com has changed"):
        configs.cut().undo()
    configs.cut(lost=["peer1.example.com"]).undo()
    assert set(configs.present["nodes"]) == set(configs.own["nodes"])


@pytest.mark.parametrize(
    ("name", "way"), [("stop", "do"), ("config", "do"), ("config", "undo"), ("start", "undo")]
)
def test_daemons_stop_only_when_no_job_is_left(
    configs: Configs, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    configs.put(configs.merged)
    monkeypatch.setattr(daemon_control, "running_pid", lambda *_: 1)
    monkeypatch.setattr(steps, "drain", lambda _context: configs.stopped.append("drained"))
    [step] = [each for each in configs.cut().plan() if each.name == name]
    getattr(step, way)()
    assert configs.stopped == ["drained", "stopped"]


def test_nothing_is_opened_that_the_merge_has_not_closed(configs: Configs) -> None:
    """So it is with the note of an earlier version, whose queue was open from "start" on."""
    merge = configs.cut(done=["config", "start", f"join:{NODES[0]}"])
    assert not merge.journal.is_undoable
    [step] = [each for each in merge.plan() if each.name == "open"]
    step.do()  # there is no LuxiD that could be asked
    assert step.undo is None


# Votes.


@dataclass
class Votes:
    """A master of four nodes, what the others answer, and how the daemons are started."""

    paths: Paths
    answers: dict[str, str] = field(default_factory=dict)
    started: list[tuple[str, ...]] = field(default_factory=list)

    def put(self, *offline: str) -> None:
        config = large_config(0, nodes=4)
        for node in config["nodes"].values():
            node["offline"] = node["name"] in offline
        view = ConfigState(json.dumps(config)).durable
        ssconf.write_values(self.paths, ssconf_values(view))

    def ask_all(
        self, _rpc: object, targets: list[Target]
    ) -> tuple[dict[str, Vote], dict[str, str]]:
        assert [each.name for each in targets] == list(OTHERS)
        return {name: Vote(master) for name, master in self.answers.items()}, {}

    def start(self, _paths: Paths, places: frozenset[Place], report: object, **given: Any) -> None:
        assert report
        if Place.MASTER in places:
            self.started.append(given.get("master_args", ()))

    def taken_back(self, *lost: str) -> Answer:
        act = peer.ACTIONS["start-daemons"]
        return act(context_at(self.paths), options(), Ask(is_master=True, lost=[*lost]))


OTHERS = ("node2.example.com", "node3.example.com", "node4.example.com")
WITHOUT_VOTES = ("--no-voting", "--yes-do-it")


@pytest.fixture
def voting(world: World, monkeypatch: pytest.MonkeyPatch) -> Votes:
    found = Votes(world.context.paths)
    os.makedirs(found.paths.lock_dir)
    monkeypatch.setattr(peer, "NodeRpcClient", contextlib.nullcontext)
    monkeypatch.setattr(peer.master_poll, "ask_all", found.ask_all)
    monkeypatch.setattr(daemon_control, "start_wanted", found.start)
    monkeypatch.setattr(daemon_control, "stop_all", lambda *_: found.started.append(("stop",)))
    for module in (peer, steps):
        monkeypatch.setattr(module, "own_hostname", lambda: MASTER)
    found.put()
    return found


def test_a_master_that_has_lost_its_votes_starts_without_them(voting: Votes) -> None:
    voting.answers = {OTHERS[0]: MASTER}
    assert not voting.taken_back(*OTHERS[1:]).heeds_votes
    voting.answers = {}
    assert not voting.taken_back(*OTHERS[1:]).heeds_votes, "nobody who is not lost could outvote it"
    assert voting.started == [WITHOUT_VOTES] * 2


def test_a_master_that_may_have_votes_asks_for_them(voting: Votes) -> None:
    voting.answers = {OTHERS[0]: MASTER, OTHERS[1]: MASTER}
    for lost in ((), OTHERS[2:], OTHERS[1:]):
        assert voting.taken_back(*lost).heeds_votes
    voting.answers = {}
    assert voting.taken_back(OTHERS[2]).heeds_votes, "the others have to answer"
    voting.put(*OTHERS[1:])
    assert voting.taken_back().heeds_votes, "nobody has named a node as lost"
    assert voting.started == [()] * 5


def test_no_master_starts_without_votes_beside_another_one(voting: Votes) -> None:
    voting.answers = {OTHERS[0]: OTHERS[1]}
    with pytest.raises(OpPrereqError, match=r"node2.example.com follows node3.example.com"):
        voting.taken_back(*OTHERS[1:])
    assert voting.started == []


def test_a_rollback_tells_of_a_master_without_votes(world: World) -> None:
    world.site.let_in(OWN_KEY, *NODES)
    asked = []

    def start(ask: Ask) -> Answer:
        asked.append((ask.is_master, ask.lost))
        return Answer(heeds_votes=not ask.lost)

    world.site.acts["start-daemons"] = start
    saved(world, done=["daemons"], lost=["lost"])
    world.merge().undo()
    assert asked == [(False, []), (False, []), (True, ["lost"])]
    told = errors_of(world.context)
    assert told.startswith("The master's daemons on n1.example.com run without votes")
    assert "have these removed there ('gnt-node remove')" in told


@pytest.mark.parametrize("lost", [[], [OTHERS[2]]])
def test_daemons_that_would_not_start_again_are_not_restarted(
    world: World, voting: Votes, lost: list[str]
) -> None:
    merge = world.merge(world.journal(lost=lost))
    merge._restart()
    assert voting.started == [("stop",), ()]
    voting.started.clear()
    voting.put(*OTHERS[1:])
    merge._restart()
    assert voting.started == [WITHOUT_VOTES if lost else ()], "which concerns those that are down"
    assert f"The master's daemons on {MASTER} run without votes" in errors_of(world.context)
    voting.answers = {OTHERS[0]: "another"}
    with pytest.raises(OpPrereqError, match="follows another"):
        merge._restart()


# High availability.


@pytest.mark.parametrize("name", ["high_availability", "ha_member"])
def test_a_node_with_high_availability_is_in_the_way(world: World, name: str) -> None:
    world.site.let_in(OWN_KEY, *NODES)
    path = Path(getattr(world.site.paths_of(NODES[1]), name))
    path.write_text("{}")
    [sentence] = unreached(world.merge(world.journal()).reach, NODES)
    assert f"node {NODES[1]}" in sentence
    assert "high availability is on; switch it off first: gnt-cluster ha-disable" in sentence
    assert "high availability is on" in fail(world.merge(world.journal()))
    path.unlink()
    assert "it is not played" in fail(world.merge())


def test_no_daemon_is_stopped_beside_an_agent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(daemon_control, "stop_all")
    paths = world.site.paths_of(NODES[0])
    Path(paths.high_availability).write_text("{}")
    with pytest.raises(OpPrereqError, match="gnt-cluster ha-disable"):
        peer.ACTIONS["stop-daemons"](context_at(paths), options(), Ask(is_master=True))


@pytest.mark.parametrize("name", ["high_availability", "ha_member", "merge_note", "renewal_note"])
def test_a_master_that_is_not_ready_is_told_at_once(
    master: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    paths = master.context.paths
    config_file.write_config(paths, json.dumps(large_config(0)))
    ssconf.write_values(
        paths, {"master_node": environment.own_hostname(), "cluster_name": "other.example.com"}
    )
    monkeypatch.setattr(peer, "_states", lambda _context: Answer())
    look = peer.ACTIONS["look"]
    assert look(master.context, options(), Ask()).cluster == "other.example.com"
    Path(getattr(paths, name)).write_bytes(json.dumps(master.journal()))
    with pytest.raises(OpPrereqError, match=r"ha-disable|--rollback|renew-crypto"):
        look(master.context, options(), Ask())


def test_it_is_switched_off_here_too(master: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(master.context.paths.high_availability)
    monkeypatch.setattr(steps, "drain", lambda _context: path.write_text("{}"))
    [step] = [each for each in master.merge(master.journal()).plan() if each.name == "own-queue"]
    with pytest.raises(OpPrereqError, match="gnt-cluster ha-disable"):
        step.do()  # it was switched on by the last job
    with pytest.raises(OpPrereqError, match="gnt-cluster ha-disable"):
        command.merge(master.context, options(), ["other"])


# The command.


@pytest.fixture
def master(world: World) -> World:
    """The world, in which this node is the master of a cluster."""
    os.makedirs(world.context.paths.lock_dir)
    ssconf.write_values(world.context.paths, {"master_node": environment.own_hostname()})
    return world


@pytest.mark.parametrize("wish", [{}, {"rollback": True}])
@pytest.mark.parametrize("args", [[], ["other"], ["elsewhere"]])
def test_a_dry_run_leaves_a_merge_that_was_cut_off_alone(
    master: World, wish: dict[str, bool], args: list[str]
) -> None:
    saved(master, done=["keys"])
    with pytest.raises(OpPrereqError, match=r"other was cut off.*--rollback; --dry-run is"):
        command.merge(master.context, options(dry_run=True, **wish), args)
    assert note.load(master.context.paths) == master.journal(done=["keys"])


def test_nothing_is_taken_back_as_a_dry_run(master: World) -> None:
    with pytest.raises(OpPrereqError, match="either --dry-run or --rollback"):
        command.merge(master.context, options(dry_run=True, rollback=True), [])


def test_after_a_cut_all_clusters_are_merged_that_are_not_yet(
    master: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = []

    def look(_context: Context, _options: Options, args: list[str]) -> None:
        looked_at.extend(args)

    monkeypatch.setattr(command, "_finish", lambda *_: 0)
    monkeypatch.setattr(command, "_look", look)
    saved(master, earlier=["first"])
    command.merge(master.context, options(), ["first", "second", "other", "third"])
    assert looked_at == ["second", "third"]


@pytest.mark.parametrize("wish", [{}, {"rollback": True}, {"dry_run": True}])
def test_nobody_goes_on_with_a_merge_that_is_at_work(
    master: World, monkeypatch: pytest.MonkeyPatch, wish: dict[str, bool]
) -> None:
    begun = []

    def finish(*_: object) -> int:
        begun.append("one")
        with pytest.raises(GenericError, match="another cluster-merge runs on this node"):
            command.merge(master.context, options(**wish), [])
        return 0

    monkeypatch.setattr(command, "_finish", finish)
    monkeypatch.setattr(command, "_look", lambda *_: [])
    saved(master, done=["keys"])
    command.merge(master.context, options(), [])
    assert begun == ["one"]


def test_a_merge_is_taken_back_without_a_node_that_is_lost(
    master: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_resume", lambda _c, _o, journal: master.merge(journal))
    master.site.let_in(OWN_KEY, *NODES)
    pauses = dict.fromkeys(("", *NODES))
    saved(master, done=["keys", "watchers"], let_in=list(NODES), pauses=pauses)
    master.site.down = {NODES[1]}
    with pytest.raises(OpExecError, match=r"on n2.*No route to host"):
        command.merge(master.context, options(rollback=True), [])
    for lost, why in (
        ("n9.example.com", "needs no node n9.example.com, but n1.example.com, n2.example.com"),
        (NODES[0], "without n1.example.com, the master of other.example.com, the merge neither"),
    ):
        with pytest.raises(OpPrereqError, match=why):
            command.merge(master.context, options(rollback=True, lost_nodes=[lost]), [])
    before = note.load(master.context.paths)
    with pytest.raises(OpPrereqError, match="that was cut off is that of other"):
        command.merge(master.context, options(rollback=True, lost_nodes=[NODES[1]]), ["else"])
    assert note.load(master.context.paths) == before is not None, "a refused command changes it not"
    command.merge(master.context, options(rollback=True, lost_nodes=[NODES[1]]), [])
    assert note.load(master.context.paths) is None
    assert [master.site.keys_of(name) for name in NODES] == [[], [OWN_KEY], []]
    out = master.context.terminal._out
    assert isinstance(out, io.StringIO)
    assert "Node n2.example.com lets this node's key in" in out.getvalue()
    with pytest.raises(OpPrereqError, match="no merge was cut off"):
        command.merge(master.context, options(lost_nodes=[NODES[1]]), [])


def test_it_goes_on_without_a_node_that_is_lost_and_sets_that_offline(
    master: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = []

    def finish(_context: Context, _options: Options, journal: Journal) -> int:
        plans.append([step.name for step in master.merge(journal).plan()])
        return 0

    monkeypatch.setattr(command, "_finish", finish)
    monkeypatch.setattr(command, "_look", lambda *_: [])
    saved(master, done=["start", f"join:{NODES[1]}"], begun=f"join:{NODES[0]}")
    command.merge(master.context, options(lost_nodes=[NODES[0]]), [])
    command.merge(master.context, options(lost_nodes=[NODES[0]]), [])  # cut off, and said again
    for plan in plans:
        start = plan.index("start")
        assert plan[start : start + 6] == [
            *("start", f"offline:{NODES[0]}", "open"),
            *(f"join:{NODES[1]}", f"join:{NODES[2]}", "redist"),
        ]
