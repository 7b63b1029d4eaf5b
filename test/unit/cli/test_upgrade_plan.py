"""``gnt-cluster upgrade``: what ``--to`` means, the steps and their order, and going on."""

from __future__ import annotations

import io
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganeti.base.errors import (
    CommandError,
    GenericError,
    OpExecError,
    OpPrereqError,
    TransportError,
)
from ganeti.base.paths import Paths
from ganeti.cli.cluster import upgrade as command
from ganeti.cli.cluster import upgrade_plan
from ganeti.cli.cluster.remote import Destination
from ganeti.cli.cluster.upgrade_plan import Member, Target, Upgrade, Where
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context, Terminal
from ganeti.clients import pauses
from ganeti.store.availability import State, write_state
from ganeti.system import clock, process
from ganeti.system.filelock import FileLock, LiveLock

MADISON = """\
ganeti-python | 3.0.2+py2 | https://example.com bookworm/main amd64 Packages
ganeti-python | 3.0.2+py1 | https://example.com bookworm/main amd64 Packages
    ganeti |    3.0.2-3 | https://deb.debian.org/debian bookworm/main amd64 Packages
    ganeti |    3.0.2-3 | https://deb.debian.org/debian bookworm/main Sources
"""
KNOWN = upgrade_plan.known_packages(MADISON)
NODES = tuple(Member(f"node{number}", f"10.0.0.{number}", 22) for number in (1, 2, 3))


def under_way(package: str = "ganeti-python", wanted: str = "ganeti-python=3.0.2+py2") -> Upgrade:
    return Upgrade(package, wanted, "node2", NODES, (), 1_700_000_000)


@pytest.mark.parametrize(
    ("text", "package", "wanted"),
    [
        ("3.0.2+py2", "ganeti-python", "ganeti-python=3.0.2+py2"),
        ("3.0.2-3", "ganeti", "ganeti=3.0.2-3"),
        ("ganeti=3.0.2", "ganeti", "ganeti=3.0.2-3"),
        ("/a/ganeti-python_9_amd64.deb", "ganeti-python", "/a/ganeti-python_9_amd64.deb"),
    ],
)
def test_a_version_names_its_package(text: str, package: str, wanted: str) -> None:
    assert upgrade_plan.target_of(text, KNOWN) == Target(package, wanted)


def test_the_very_version_is_taken_before_those_that_begin_with_it() -> None:
    known = [("ganeti", "3.0.2-3+deb12u1"), ("ganeti", "3.0.2-3"), ("ganeti", "3.0.2-3+b1")]
    assert upgrade_plan.target_of("ganeti=3.0.2-3", known).wanted == "ganeti=3.0.2-3"


def test_a_package_whose_own_scripts_fail_can_be_replaced(tmp_path: Path) -> None:
    """dpkg fails as these do; apt installs another version in its place."""
    for name, script in (("dpkg", "echo half; exit 1"), ("apt-get", f"touch {tmp_path}/ran")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    install = upgrade_plan.steps(under_way())[2].argv
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert process.run(install, timeout_s=10.0, env=env).status == 0
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("3.0.2", "more than one version fits; there are ganeti-python=3.0.2.py2, "),
        ("4.0", "apt knows no such version; there are ganeti-python="),
        ("bash=5", "'bash' is none of ganeti-python, ganeti"),
        ("/a/bash_5.deb", "not named as a file of one of"),
    ],
)
def test_another_one_is_refused(text: str, reason: str) -> None:
    with pytest.raises(OpPrereqError, match=reason):
        upgrade_plan.target_of(text, KNOWN)


def test_only_a_way_back_asks_whether_3_0_can_use_the_configuration() -> None:
    ours = upgrade_plan.checks(Target("ganeti-python", "x"))
    theirs = upgrade_plan.checks(Target("ganeti", "ganeti=3.0.2-3"))
    assert theirs[:-1] == (ours[0], theirs[1])
    assert theirs[-1].argv[1:3] == ("--downgrade", "--dry-run")
    assert all("--simulate" in step.argv for step in (ours[1], theirs[1]))


def test_all_daemons_are_stopped_before_any_package_is_changed_and_the_master_is_the_last() -> None:
    order = [(step.name, step.where) for step in upgrade_plan.arranged(under_way())]
    names = [name for name, _ in order]
    assert order[0] == ("stop the daemons", Where.ALL)
    assert names.index("keep the state") < names.index("install on the other nodes")
    assert names.index("install on the other nodes") < names.index("install on the master")
    assert names[-4:] == [
        "accept jobs",
        "send the configuration",
        "let the watcher go on",
        "verify",
    ]
    assert len({*names}) == len(names)


def test_on_the_way_to_3_0_no_journal_is_left_behind(tmp_path: Path) -> None:
    assert "bring the journal" not in str(upgrade_plan.steps(under_way()))
    stop, fold, *_ = upgrade_plan.steps(under_way("ganeti", "ganeti=3.0.2-3"))
    assert (stop.where, fold.where) == (Where.ALL, Where.MASTER)
    journal, tool = tmp_path / "config.journal", tmp_path / "cfgupgrade"
    argv = [
        word.replace(upgrade_plan.CFGUPGRADE, str(tool)).replace(
            "/var/lib/ganeti/config.journal", str(journal)
        )
        for word in fold.argv
    ]
    assert process.run(argv, timeout_s=10.0).check(), "there is none"
    for text, is_good in ((f"rm {journal}", True), ("echo it is damaged >&2; exit 1", False)):
        journal.write_text("+")
        tool.write_text(f"#!/bin/sh\n[ $1 = --no-verify ] || exit 1\n{text}\n")
        tool.chmod(0o755)
        result = process.run(argv, timeout_s=10.0)
        assert (result.status == 0) == is_good
    with pytest.raises(CommandError, match=r"(?s)damaged.*3\.0 would not see the changes"):
        result.check()


def test_a_step_of_all_nodes_comes_to_the_master_last() -> None:
    stop, *_, install, _ = upgrade_plan.steps(under_way())[:4]
    assert [node.name for node in upgrade_plan.nodes_of(stop, under_way())] == [
        "node1",
        "node3",
        "node2",
    ]
    assert [node.name for node in upgrade_plan.nodes_of(install, under_way())] == ["node1", "node3"]


def test_what_is_done_is_not_done_again_but_the_last_look_is() -> None:
    record = under_way()
    record.done = tuple(step.name for step in upgrade_plan.arranged(record))
    assert [step.name for step in upgrade_plan.to_do(record)] == ["verify"]


@pytest.mark.parametrize(
    ("statuses", "idle"),
    [([], True), (["success", "error", "canceled"], True), (["queued"], False)],
)
def test_jobs_that_have_ended_hold_nothing_up(statuses: list[str], idle: bool) -> None:
    assert upgrade_plan.is_idle(statuses) == idle


class Gone(io.StringIO):
    """A terminal whose session has ended once it is told so."""

    has_gone = False

    def write(self, text: str) -> int:
        if self.has_gone:
            raise self.error
        return super().write(text)

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error


class Nodes:
    """Takes the place of the machines; ``broken`` is a step that fails on node1."""

    def __init__(self) -> None:
        self.broken = ""
        self.ran: list[tuple[str, ...]] = []
        self.asked: list[list[str]] = []  # for each of these
        self.rows: list[list[object]] = []  # of the nodes: name, whether offline, address, port
        self.values: dict[str, object] = {"drain_flag": False, "watcher_pause": None}

    def run_on(
        self,
        _context: Context,
        nodes: Sequence[Member],
        _master: str,
        argv: Sequence[str],
        _stdin: bytes,
    ) -> list[tuple[Destination, object]]:
        self.ran.append(tuple(argv))
        self.asked.append([node.name for node in nodes])
        error = CommandError("no space left", [*argv]) if self.broken in argv else None
        return [(Destination(node.name, None), error) for node in nodes]  # type: ignore[arg-type]


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    Path(tmp_path / "var/lib/ganeti").mkdir(parents=True)
    terminal = Terminal(io.StringIO(), io.StringIO(), io.StringIO())
    monkeypatch.setattr(Context, "paths", Paths(str(tmp_path)))
    return Context("gnt-cluster", command.COMMANDS[0], Options({}), terminal)


def test_a_failed_step_is_told_and_resumed_and_what_was_done_is_left_alone(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes()
    monkeypatch.setattr(command, "_run_on", nodes.run_on)
    nodes.broken = "install"
    with pytest.raises(OpExecError, match=r"(?s)node1: no space left.*upgrade --resume"):
        command.carry_out(context, under_way())
    record = command.read(context)
    assert record is not None
    assert record.done == ("stop the daemons", "keep the state")
    nodes.broken, nodes.ran = "", []
    command.carry_out(context, record)
    assert "install" in nodes.ran[0]
    assert nodes.ran[-1] == ("gnt-cluster", "verify")
    assert command.read(context) is None


@pytest.mark.parametrize(
    "reason", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=repr
)
def test_whatever_cuts_an_upgrade_off_how_to_go_on_is_said(
    context: Context, monkeypatch: pytest.MonkeyPatch, reason: BaseException
) -> None:
    said = Gone(BrokenPipeError())
    context.terminal = Terminal(io.StringIO(), said, io.StringIO())

    def cut_off(*_args: object) -> None:
        raise reason

    monkeypatch.setattr(command, "_run_on", cut_off)
    with pytest.raises(type(reason)):
        command.carry_out(context, under_way())
    assert "is not complete" in said.getvalue()
    assert "'gnt-cluster upgrade --resume'" in said.getvalue()
    said.has_gone = True
    with pytest.raises(type(reason)) as raised:
        command.carry_out(context, under_way())
    assert raised.value is reason, "also if nobody can be told"


def test_a_verification_with_findings_is_told_and_the_upgrade_is_over(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes()
    nodes.broken = "verify"
    monkeypatch.setattr(command, "_run_on", nodes.run_on)
    command.carry_out(context, under_way("ganeti", "ganeti=3.0.2-3"))
    assert command.read(context) is None


@pytest.fixture
def nodes(context: Context, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """This node is the master of a cluster of three, whose jobs have ended."""
    made = Nodes()
    rows = [[node.name, False, node.address, node.port] for node in NODES]
    monkeypatch.setattr(command, "_run_on", made.run_on)
    monkeypatch.setattr(command, "own_hostname", lambda: "node2")
    monkeypatch.setattr(command, "rows_of_nodes", lambda *_args: [list(row) for row in rows])
    monkeypatch.setattr(command, "_statuses", lambda: ["success"])
    monkeypatch.setattr(command, "_value", lambda _context, name: made.values[name])
    monkeypatch.setattr(
        command, "_target", lambda options: upgrade_plan.target_of(options.to, KNOWN)
    )
    made.rows = rows
    Path(context.paths.ssconf_file("master_node")).write_text("node2\n")
    return made


def given(**options: object) -> Options:
    return Options({"to": None, "resume": False, "without": None, "instead": False, **options})


def play(context: Context, monkeypatch: pytest.MonkeyPatch, **options: object) -> None:
    """Call the command, which refuses virtual nodes, as if this were a real one."""
    record = command.read(context)
    if record is not None:
        command._go_on(context, given(**options), record)
    else:
        command._begin(context, given(**options))


def test_nodes_that_jobs_change_meanwhile_are_looked_at_again(
    context: Context, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def last_job() -> list[str]:
        nodes.rows[0][1] = True  # it sets node1 offline
        return []

    monkeypatch.setattr(command, "_statuses", last_job)
    play(context, monkeypatch, to="3.0.2+py2")
    simulations = [argv for argv in nodes.ran if "--simulate" in argv]
    assert len(simulations) == 2
    assert {"node1", "node3"} == {*nodes.asked[nodes.ran.index(simulations[0])]} - {"node2"}
    stop = nodes.ran.index(upgrade_plan.steps(under_way())[0].argv)
    assert nodes.asked[stop] == ["node3", "node2"]


def test_a_queue_that_was_closed_is_opened_again_after_a_refusal(
    context: Context, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_statuses", interrupted)
    with pytest.raises(KeyboardInterrupt):
        play(context, monkeypatch, to="3.0.2+py2")
    assert nodes.ran[-1] == upgrade_plan.OPEN[0].argv
    assert command.read(context) is None


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), BrokenPipeError()], ids=repr)
def test_what_was_closed_is_opened_although_nobody_can_be_told(
    context: Context, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    gone = Gone(error)
    context.terminal = Terminal(gone, gone, io.StringIO())
    write, ends = command._write, []

    def end_of_session(context: Context, record: Upgrade) -> None:
        write(context, record)
        gone.has_gone = True
        ends.append(signal.getsignal(signal.SIGHUP))
        raise KeyboardInterrupt

    def undrain_fails(*args: Any) -> list[tuple[Destination, object]]:
        if gone.has_gone:
            ends.append(signal.getsignal(signal.SIGHUP))
            nodes.broken = "undrain"
        return nodes.run_on(*args)

    monkeypatch.setattr(command, "_write", end_of_session)
    monkeypatch.setattr(command, "_run_on", undrain_fails)
    with pytest.raises(KeyboardInterrupt):
        play(context, monkeypatch, to="3.0.2+py2")
    assert nodes.ran[-2:] == [step.argv for step in upgrade_plan.OPEN], "the second one, too"
    assert command.read(context) is None
    assert ends[1:] == [signal.SIG_IGN] * 2, "the second signal cuts nothing off"
    assert signal.getsignal(signal.SIGHUP) == ends[0]


def test_a_queue_that_stays_closed_is_told(
    context: Context, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.broken = "undrain"
    said = io.StringIO()
    context.terminal = Terminal(io.StringIO(), said, io.StringIO())

    def interrupted() -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_statuses", interrupted)
    with pytest.raises(KeyboardInterrupt):
        play(context, monkeypatch, to="3.0.2+py2")
    assert "Type that yourself: gnt-cluster queue undrain" in said.getvalue()


def said_by(context: Context) -> io.StringIO:
    said = io.StringIO()
    context.terminal = Terminal(said, io.StringIO(), io.StringIO())
    return said


WEEK_S = 7 * 86400.0


def test_a_queue_that_was_drained_and_a_long_pause_of_the_watcher_stay(
    context: Context, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = clock.now() + WEEK_S
    nodes.values = {"drain_flag": True, "watcher_pause": until}
    said = said_by(context)
    play(context, monkeypatch, to="3.0.2+py2")
    ours = {step.argv for step in (*upgrade_plan.CLOSE, *upgrade_plan.OPEN)}
    assert not ours & {*nodes.ran}
    assert not {"redist-conf", "verify"} & {argv[1] for argv in nodes.ran}, "jobs of ours"
    assert nodes.ran[-1][-1] == f"{until:.0f}"
    assert "accepts no jobs, as before" in said.getvalue()
    assert "The watcher is paused until" in said.getvalue()


def test_a_short_pause_of_the_watcher_is_made_longer_and_then_what_it_was(
    context: Context, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = clock.now() + 600
    nodes.values["watcher_pause"] = until
    nodes.broken = "stop-all"
    with pytest.raises(OpExecError):
        play(context, monkeypatch, to="3.0.2+py2")
    assert upgrade_plan.CLOSE[1].argv in nodes.ran
    nodes.broken = ""
    nodes.values = {"drain_flag": True, "watcher_pause": clock.now() + 14400}  # ours by now
    play(context, monkeypatch, resume=True)
    assert upgrade_plan.OPEN[0].argv in nodes.ran
    assert upgrade_plan.OPEN[1].argv not in nodes.ran
    assert any(argv[-1] == f"{until:.0f}" for argv in nodes.ran)


def test_a_refused_upgrade_leaves_both_as_they_were(
    context: Context, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = clock.now() + 600
    nodes.values = {"drain_flag": True, "watcher_pause": until}

    def disk_is_full(_context: Context, _record: Upgrade) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "_write", disk_is_full)
    with pytest.raises(OSError, match="No space"):
        play(context, monkeypatch, to="3.0.2+py2")
    assert nodes.ran[-1][-1] == f"{until:.0f}"
    assert upgrade_plan.OPEN[0].argv not in nodes.ran


def test_a_pause_that_is_set_anew_is_never_shorter(
    context: Context, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = under_way()
    record.watcher_paused_until = clock.now() + WEEK_S
    given: list[bytes] = []

    def run_on(*args: Any) -> list[tuple[Destination, object]]:
        given.append(args[-1])
        return nodes.run_on(*args)

    monkeypatch.setattr(command, "_run_on", run_on)
    command._write(context, record)
    play(context, monkeypatch, resume=True)
    assert given[0] == b"%d\n" % record.watcher_paused_until


def test_the_watcher_pauses_for_the_rest_of_its_time() -> None:
    said = []
    for left_s in (100, -1):
        record = under_way()
        record.watcher_paused_until = clock.now() + left_s
        argv = upgrade_plan.watcher_as_before(record).argv
        shown = [word.replace("exec gnt-cluster", "exec echo") for word in argv]
        said.append(process.run(shown, timeout_s=10.0).stdout.decode().split())
    assert said[0][:2] == ["watcher", "pause"]
    assert 90 <= int(said[0][2]) <= 101
    assert said[1] == ["watcher", "continue"]


def test_a_lost_node_is_left_out_and_another_version_may_be_taken_after_all(
    context: Context, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = upgrade_plan.steps(under_way())[2].argv
    nodes.broken = next(word for word in install if "exec" in word)  # that of no simulation
    with pytest.raises(OpExecError, match="--without=NODE"):
        play(context, monkeypatch, to="3.0.2+py2")
    for name, reason in (("node2", "is the master"), ("node9", "takes no part")):
        with pytest.raises(OpPrereqError, match=reason):
            play(context, monkeypatch, resume=True, without=name)
    with pytest.raises(OpExecError):
        play(context, monkeypatch, resume=True, without="node3")
    record = command.read(context)
    assert record is not None
    assert record.left_out == ("node3",)
    assert {*record.done} == {"stop the daemons", "keep the state"}
    nodes.broken, nodes.ran, nodes.asked = "", [], []
    with pytest.raises(OpPrereqError, match="--resume goes on with it, and --instead"):
        play(context, monkeypatch, to="3.0.2+py1")
    play(context, monkeypatch, to="3.0.2+py1", instead=True)
    installed = [argv for argv in nodes.ran if argv[-1] == "ganeti-python=3.0.2+py1"]
    assert len(installed) == 3, "simulated, on the other node, on the master"
    assert upgrade_plan.MEND.argv in nodes.ran
    assert upgrade_plan.steps(under_way())[0].argv in nodes.ran, "stopped once more"
    assert all("node3" not in names for names in nodes.asked)
    assert command.read(context) is None


def test_the_way_back_waits_for_jobs_that_came_since_the_queue_was_opened(
    context: Context, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.broken = "redist-conf"
    with pytest.raises(OpExecError, match="no space left"):
        play(context, monkeypatch, to="3.0.2+py2")
    nodes.ran = []
    waited: list[tuple[str, ...]] = []

    def cut_off() -> list[str]:
        waited.extend(nodes.ran)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command, "_statuses", cut_off)
        with pytest.raises(KeyboardInterrupt):
            play(context, monkeypatch, to="3.0.2+py1", instead=True)
    drain, undrain = upgrade_plan.CLOSE[0].argv, upgrade_plan.OPEN[0].argv
    assert waited == [drain]
    record = command.read(context)
    assert record is not None
    assert undrain in [step.argv for step in upgrade_plan.to_do(record)], "--resume opens it"
    nodes.broken, nodes.ran = "", []
    play(context, monkeypatch, to="3.0.2+py1", instead=True)
    pause = [argv for argv in nodes.ran if context.paths.watcher_pause in argv]
    order = [*map(nodes.ran.index, (drain, pause[0], STOP, undrain))]
    assert order == sorted(order)
    assert command.read(context) is None


def test_the_way_back_needs_no_luxid_once_no_job_runs(
    context: Context, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new version may start none; the daemons of the master were started nevertheless."""
    nodes.broken = "undrain"
    with pytest.raises(OpExecError):
        play(context, monkeypatch, to="3.0.2+py2")
    nodes.broken, nodes.ran = "", []

    def value(*_args: object) -> object:
        raise TransportError("is ganeti-luxid running here?")

    monkeypatch.setattr(command, "_value", value)
    Path(context.paths.livelock_dir).mkdir(parents=True)
    job = LiveLock.create(f"{context.paths.livelock_dir}/job_17_1")
    with job, pytest.raises(OpExecError, match="these jobs run, and must end: 17"):
        play(context, monkeypatch, to="3.0.2+py1", instead=True)
    assert nodes.ran == []
    play(context, monkeypatch, to="3.0.2+py1", instead=True)
    assert upgrade_plan.CLOSE[0].argv not in nodes.ran
    assert command.read(context) is None


def test_two_upgrades_do_not_work_beside_each_other(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_upgrade", lambda *_args: None)
    with command._alone(context) as lock:
        monkeypatch.setattr(Paths, "root", "")  # it refuses virtual nodes
        monkeypatch.setattr(command, "FileLock", lambda _path: FileLock(lock.path))
        with pytest.raises(GenericError, match=r"another .* is at work"):
            command.upgrade(context, given(resume=True), [])
    command.upgrade(context, given(resume=True), [])


class Etcd:
    """Says until when high availability is paused; None while too few members run."""

    def __init__(self, until: float | None) -> None:
        self.until = until

    def paused_until(self, _paths: Paths) -> float:
        if self.until is None:
            raise TransportError("etcd does not answer")
        return self.until


@pytest.fixture
def etcd(context: Context, monkeypatch: pytest.MonkeyPatch) -> Etcd:
    """High availability is on, and paused for long."""
    made = Etcd(clock.now() + 4 * 3600)
    monkeypatch.setattr(pauses, "paused_until", made.paused_until)
    Path(context.paths.high_availability).write_text("{}")
    Path(context.paths.ha_state).parent.mkdir(parents=True)
    write_state(context.paths, State(time=clock.monotonic(), pause="upgrade"))
    return made


def test_high_availability_has_to_be_paused_and_is_none_of_3_0s(
    context: Context, nodes: Nodes, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state(context.paths, State(time=clock.monotonic()))
    with pytest.raises(OpPrereqError, match="gnt-cluster ha-pause"):
        play(context, monkeypatch, to="3.0.2+py2")
    assert nodes.ran == []
    write_state(context.paths, State(time=clock.monotonic(), pause="upgrade"))
    with pytest.raises(OpPrereqError, match="gnt-cluster ha-disable"):
        play(context, monkeypatch, to="ganeti=3.0.2-3")
    etcd.until = clock.now() + 300
    with pytest.raises(OpPrereqError, match=r"for 5 minutes only.*'gnt-cluster ha-pause --for=4h"):
        play(context, monkeypatch, to="3.0.2+py2")
    assert nodes.ran == []
    etcd.until = clock.now() + 4 * 3600
    play(context, monkeypatch, to="3.0.2+py2")


STOP, *_, START = (step.argv for step in upgrade_plan.steps(under_way())[:6])
PAUSED_BY = (upgrade_plan.ETCD_ALONE[1].argv, upgrade_plan.PAUSE_HA.argv)


def stop_at_install(context: Context, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an upgrade fail when its daemons are stopped."""
    install = upgrade_plan.steps(under_way())[2].argv
    nodes.broken = next(word for word in install if "exec" in word)
    with pytest.raises(OpExecError):
        play(context, monkeypatch, to="3.0.2+py2")
    nodes.broken, nodes.ran = "", []


def test_a_pause_that_has_ended_begins_anew_before_an_agent_starts(
    context: Context, nodes: Nodes, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at_install(context, nodes, monkeypatch)
    record = command.read(context)
    assert record is not None
    assert record.ha_paused_until == etcd.until
    record.ha_paused_until = clock.now() - 60
    command._write(context, record)
    etcd.until = None
    nodes.broken = "ha-pause"
    with pytest.raises(OpExecError, match=r"(?s)daemon-util start ganeti-etcd.*--resume"):
        play(context, monkeypatch, resume=True)
    assert all("install" not in argv and argv != START for argv in nodes.ran), "no agent runs"
    nodes.broken, nodes.ran = "", []
    play(context, monkeypatch, resume=True)
    [install, *_] = [number for number, argv in enumerate(nodes.ran) if "install" in argv]
    before = nodes.ran[:install]
    etcd_alone, pause = map(before.index, PAUSED_BY)
    assert before.index(STOP) < etcd_alone < pause < len(before) - 1
    assert before[-1] == STOP, "stopped once more: watchers and packages may have started some"
    assert command.read(context) is None


def test_a_pause_that_lasts_is_left_alone_and_one_in_sight_of_etcd_needs_no_members(
    context: Context, nodes: Nodes, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at_install(context, nodes, monkeypatch)
    nodes.broken = next(word for word in upgrade_plan.steps(under_way())[2].argv if "exec" in word)
    etcd.until = None  # stopped as it was to be, and the record says that the pause lasts
    with pytest.raises(OpExecError):
        play(context, monkeypatch, resume=True)
    assert not {*PAUSED_BY} & {*nodes.ran}
    nodes.broken, nodes.ran = "", []
    etcd.until = clock.now() - 1
    play(context, monkeypatch, resume=True)
    assert PAUSED_BY[0] not in nodes.ran
    assert PAUSED_BY[1] in nodes.ran


def test_no_agent_starts_in_the_last_hour_of_a_pause(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, record = Nodes(), under_way()
    monkeypatch.setattr(command, "_run_on", nodes.run_on)
    record.ha_paused_until = clock.now() + 3000
    with pytest.raises(OpExecError, match=r"(?s)ends too soon.*upgrade --resume"):
        command.carry_out(context, record)
    assert len(nodes.ran) == 2


def test_what_runs_is_stopped_again_and_watchers_pause_anew(
    context: Context, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = under_way()
    record.done = tuple(step.name for step in upgrade_plan.steps(record)[:5])
    command._write(context, record)
    play(context, monkeypatch, resume=True)
    assert [argv[4] for argv in nodes.ran if argv[0] == "sh"] == [context.paths.watcher_pause]
    assert nodes.ran[1] == STOP
    assert nodes.ran.count(START) == 2, "also of the others, which were stopped again"
    record.done = (*record.done, "start the daemons of the master")
    command._write(context, record)
    nodes.ran = []
    play(context, monkeypatch, resume=True)
    assert not {STOP, START} & {*nodes.ran}


def test_a_record_of_the_version_before_can_be_gone_on_with(
    context: Context, nodes: Nodes, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = msgspec.to_builtins(under_way())
    for name in ("package", "wanted", "master", "nodes", "left_out", "began", "done"):
        assert name in record
    old = {name: record[name] for name in list(record)[:6]} | {"done": ["stop the daemons"]}
    Path(context.paths.upgrade_under_way).write_bytes(msgspec.json.encode(old))
    etcd.until = None
    play(context, monkeypatch, resume=True)
    assert nodes.ran.index(PAUSED_BY[1]) < nodes.ran.index(START)
    assert command.read(context) is None
