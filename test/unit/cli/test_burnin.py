"""`burnin`: whatever ends it, and whatever names it is given, nothing of its making is left."""

from __future__ import annotations

import errno
import io
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.cli.burnin.command import PROGRAM
from ganeti.cli.declaration.parser import parse
from ganeti.cli.run.context import Context, Terminal
from ganeti.cli.run.endings import ENDINGS
from ganeti.cli.run.main import carry_out
from ganeti.protocol.luxi import JobChange
from ganeti.system.environment import HOSTNAME_VARIABLE, ROOTDIR_VARIABLE

NAME = "bt.example.com"
OTHER = "bt2.example.com"
NODES = ["node1.example.com", "node2.example.com"]
HOSTS = f"127.0.0.7 {NAME} bt\n127.0.0.8 {OTHER} bt2\n"
WORDS = ("-o", "debian", "-t", "file", "--no-confd")
CREATE, REMOVE, EXPORT = "OP_INSTANCE_CREATE", "OP_INSTANCE_REMOVE", "OP_BACKUP_EXPORT"


class PlayedMaster:
    """Carries jobs out when somebody waits for their ends.

    Attributes:
        fails: kinds of opcodes that fail.
        leaves: kinds of opcodes that have done their work when they fail.
        interrupts: kinds of opcodes that somebody presses Ctrl-C at; once for each mention.
        ends: the session ends at this kind of opcode, by these signals.
        runs: kinds of opcodes that run already when their job is canceled.
        colleague: makes an instance of that name just before a job with this kind of opcode.
    """

    def __init__(self) -> None:
        self.instances: set[str] = set()
        self.exports: set[str] = set()
        self.fails: set[str] = set()
        self.leaves: set[str] = set()
        self.interrupts: list[str] = []
        self.ends: tuple[str, Sequence[signal.Signals]] = ("", ())
        self.colleague: tuple[str, str, str] = ("", "", "")
        self._uuids: dict[str, str] = {}
        self._errors: dict[int, list[object]] = {}
        self.runs: set[str] = set()
        self.submitted: list[tuple[str, str]] = []
        self._jobs: dict[int, Sequence[Mapping[str, Any]]] = {}
        self._ended: dict[int, str] = {}

    def close(self) -> None:
        """There is no connection."""

    def submit_many_jobs(
        self, jobs: Sequence[Sequence[Mapping[str, Any]]]
    ) -> list[tuple[bool, JobId]]:
        self._meddle("submitted", [op["OP_ID"] for job in jobs for op in job])
        found = []
        for job in jobs:
            number = len(self._jobs) + 1
            self._jobs[number] = job
            self.submitted += [(op["OP_ID"], op["instance_name"]) for op in job]
            found.append((True, JobId(number)))
        return found

    def cancel_job(self, job_id: int) -> tuple[bool, str]:
        if job_id in self._ended or self._jobs[job_id][0]["OP_ID"] in self.runs:
            return False, "it runs"
        self._ended[job_id] = "canceled"
        return True, ""

    def wait_for_job_change(self, job_id: int, *_rest: object) -> JobChange:
        kinds = [op["OP_ID"] for op in self._jobs[job_id]]
        if self.interrupts and self.interrupts[0] in kinds:
            del self.interrupts[0]
            raise KeyboardInterrupt
        if self.ends[0] in kinds:
            numbers, self.ends = self.ends[1], ("", ())
            for number in numbers:
                signal.raise_signal(number)
        if job_id not in self._ended:
            self._meddle("runs", kinds)
            self._ended[job_id] = "success"
            if fails := self.fails.intersection(kinds):
                self._fail(job_id, "OpExecError", "no luck")
            if not fails or self.leaves.intersection(kinds):
                self._carry_out(job_id)
        return JobChange([self._ended[job_id], None, (0, 0)], [])

    def _meddle(self, when: str, kinds: Sequence[str]) -> None:
        moment, kind, name = self.colleague
        if moment == when and kind in kinds:
            self.colleague = ("", "", "")
            self.instances.add(name)

    def _fail(self, job_id: int, *error: str) -> None:
        self._ended[job_id] = "error"
        self._errors[job_id] = [error[0], list(error[1:])]

    def _carry_out(self, job_id: int) -> None:
        for op in self._jobs[job_id]:
            name = op["instance_name"]
            match op["OP_ID"]:
                case "OP_INSTANCE_CREATE" if name in self.instances:
                    self._fail(job_id, "OpPrereqError", "it exists", "already_exists")
                case "OP_INSTANCE_CREATE":
                    self.instances.add(name)
                    self._uuids[name] = f"{name} of job {job_id}"
                case "OP_INSTANCE_REMOVE":
                    self.instances.remove(name)
                    self._uuids.pop(name, None)
                case "OP_BACKUP_EXPORT":
                    self.exports.add(name)
                case "OP_BACKUP_REMOVE":
                    self.exports.remove(name)
                case "OP_INSTANCE_RENAME" if op["new_name"] in self.instances - {name}:
                    self._fail(job_id, "OpPrereqError", "it exists", "already_exists")
                    return
                case "OP_INSTANCE_RENAME":
                    self.instances.remove(name)
                    self.instances.add(op["new_name"])
                    self._uuids[op["new_name"]] = self._uuids.pop(name)

    def query_jobs(self, job_ids: Sequence[int], fields: Sequence[str]) -> list[list[object]]:
        [job_id] = job_ids
        status, count = self._ended[job_id], len(self._jobs[job_id])
        result = self._errors.get(job_id)
        row = {"status": status, "opstatus": [status] * count, "opresult": [result] * count}
        return [[row[field] for field in fields]]

    def query_nodes(self, names: Sequence[str], _fields: object) -> list[list[object]]:
        return [[name, False, False, True] for name in names or NODES]

    def query_instances(self, names: Sequence[str], fields: Sequence[str]) -> list[list[object]]:
        missing = set(names) - self.instances
        if missing:
            raise GenericError(f"unknown: {missing}")
        row = {"pnode": NODES[0], "snodes": []}
        return [
            [
                {**row, "name": n, "uuid": self._uuids.get(n, f"{n} of a colleague")}[f]
                for f in fields
            ]
            for n in names or sorted(self.instances)
        ]

    def query_exports(self, _nodes: object) -> list[list[object]]:
        return [[NODES[0], name] for name in sorted(self.exports)] or [[NODES[1], None]]


class Played:
    """A run of the program, and what it said."""

    def __init__(self, master: PlayedMaster, *words: str) -> None:
        line = parse(PROGRAM, [*WORDS, *words], {})
        self._output = io.StringIO()
        terminal = Terminal(self._output, self._output, io.StringIO())
        self.context = Context("burnin", line.command, line.options, terminal)
        self.context._client = master  # type: ignore[assignment]  # the played one
        self._line = line

    def run(self) -> None:
        carry_out(self.context, self._line)

    @property
    def said(self) -> str:
        return self._output.getvalue()


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedMaster]:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "hosts").write_text(HOSTS)
    monkeypatch.setenv(ROOTDIR_VARIABLE, str(tmp_path))
    monkeypatch.setenv(HOSTNAME_VARIABLE, NODES[0])
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ENDINGS}
    yield PlayedMaster()
    for number, handler in before.items():
        signal.signal(number, handler)


def check_nothing_left(master: PlayedMaster, played: Played) -> None:
    assert (master.instances, master.exports) == (set(), set()), played.said
    assert played.context.waiting_for == []


# Ctrl-C.


@pytest.mark.parametrize("words", [(), ("-p",), ("-v",)])
@pytest.mark.parametrize("runs", [True, False])
def test_jobs_that_go_on_after_an_interruption_leave_nothing(
    master: PlayedMaster, runs: bool, words: tuple[str, ...]
) -> None:
    master.interrupts = [CREATE]
    master.runs = {CREATE} if runs else set()
    played = Played(master, *words, NAME, OTHER)
    with pytest.raises(KeyboardInterrupt):
        played.run()
    check_nothing_left(master, played)
    assert "Interrupted; what was begun is ended" in played.said
    assert "Canceling jobs 1" in played.said
    assert ((REMOVE, NAME) in master.submitted) is runs
    assert played.context.interruption_text() == "Interrupted."


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("at", [EXPORT, REMOVE, "OP_BACKUP_REMOVE"])
def test_no_instance_and_no_export_is_left_by_an_interruption(
    master: PlayedMaster, at: str, runs: bool
) -> None:
    master.interrupts = [at]
    master.runs = {at} if runs else set()
    played = Played(master, NAME)
    with pytest.raises(KeyboardInterrupt):
        played.run()
    check_nothing_left(master, played)


def test_a_second_interruption_says_what_may_be_left(master: PlayedMaster) -> None:
    master.interrupts = [CREATE, CREATE]
    master.runs = {CREATE}
    played = Played(master, NAME)
    with pytest.raises(KeyboardInterrupt):
        played.run()
    assert f"Instances and exports of these names may be left: {NAME}" in played.said
    assert "what was submitted goes on (jobs 1)" in played.context.interruption_text()


def test_kept_instances_are_kept_after_an_interruption(master: PlayedMaster) -> None:
    master.interrupts = ["OP_INSTANCE_REBOOT"]
    played = Played(master, "-K", NAME)
    with pytest.raises(KeyboardInterrupt):
        played.run()
    assert master.instances == {NAME}
    assert f"The instances are kept: {NAME}" in played.said
    assert "The exports are kept" not in played.said


# The end of the session.


class GoneTerminal(io.StringIO):
    """A terminal that was closed."""

    def write(self, _text: str) -> int:
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("number", ENDINGS)
def test_the_end_of_the_session_leaves_nothing_though_nobody_can_be_told(
    master: PlayedMaster, number: signal.Signals
) -> None:
    """A closed terminal tells so twice, and the shell once more."""
    master.ends = CREATE, [number]
    master.runs = {CREATE}
    played = Played(master, NAME)
    written = played.context.terminal.write

    def write(text: str = "") -> None:
        if master.submitted:
            played.context.terminal._out = played.context.terminal._err = GoneTerminal()
            signal.raise_signal(signal.SIGHUP)
        written(text)

    played.context.terminal.write = write  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        played.run()
    check_nothing_left(master, played)
    assert (REMOVE, NAME) in master.submitted


def test_the_end_of_the_session_does_not_cut_a_removal_off(master: PlayedMaster) -> None:
    master.interrupts = [CREATE]
    master.runs = {CREATE}
    master.ends = REMOVE, [signal.SIGHUP, signal.SIGTERM]
    played = Played(master, NAME)
    with pytest.raises(KeyboardInterrupt):
        played.run()
    check_nothing_left(master, played)


# Failures.


def test_exports_are_removed_after_a_failure(master: PlayedMaster) -> None:
    master.fails = {"OP_INSTANCE_STARTUP"}  # the import is made with it
    played = Played(master, NAME)
    with pytest.raises(OpExecError, match="no luck"):
        played.run()
    check_nothing_left(master, played)
    assert "Removing 1 exports" in played.said


def test_the_failure_of_a_stage_is_told_even_if_its_remains_cannot_be_removed(
    master: PlayedMaster,
) -> None:
    master.fails = {"OP_INSTANCE_MOVE", REMOVE}
    played = Played(master, NAME)
    with pytest.raises(OpExecError, match=f"{NAME}: job 2: no luck"):
        played.run()
    assert f"Not all was removed: {NAME}: job 3: no luck" in played.said


# Names.


def test_short_names_are_those_of_the_instances(master: PlayedMaster) -> None:
    played = Played(master, "--rename=BT2", "bt")
    played.run()
    check_nothing_left(master, played)
    assert {name for _, name in master.submitted} == {NAME, OTHER}
    assert "All is well" in played.said


def test_names_in_capitals_are_those_of_the_instances(master: PlayedMaster) -> None:
    played = Played(master, "--no-name-check", "BT9")
    played.run()
    check_nothing_left(master, played)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("bt",), f"there are instances {NAME} already"),
        (("--rename=bt", "bt2"), f"there are instances {NAME} already"),
        (("bt2", OTHER), "an instance is named twice"),
        (("bt7",), "use --no-name-check if names need not resolve"),
    ],
)
def test_names_that_cannot_be_used(master: PlayedMaster, words: tuple[str, ...], text: str) -> None:
    master.instances = {NAME}
    with pytest.raises(OpPrereqError) as raised:
        Played(master, *words).run()
    assert text in raised.value.message
    assert master.submitted == []


def test_exports_of_others_are_neither_overwritten_nor_removed(master: PlayedMaster) -> None:
    master.exports = {NAME}
    with pytest.raises(OpPrereqError, match=f"exports of {NAME} already.*--no-importexport"):
        Played(master, "bt").run()
    assert master.submitted == []
    for words in (["--no-importexport"], ["-t", "diskless"]):
        Played(master, *words, "bt").run()
        assert (master.instances, master.exports) == (set(), {NAME})


# Instances of others.


@pytest.mark.parametrize("when", ["submitted", "runs"])
@pytest.mark.parametrize("words", [(), ("-p",), ("-K",)])
def test_an_instance_that_somebody_else_made_meanwhile_stays(
    master: PlayedMaster, when: str, words: tuple[str, ...]
) -> None:
    """The creation fails then, and nothing of it is there."""
    master.colleague = when, CREATE, NAME
    played = Played(master, *words, NAME)
    with pytest.raises(OpExecError, match="it exists"):
        played.run()
    assert master.instances == {NAME}
    assert (REMOVE, NAME) not in master.submitted
    assert f"Instances that burnin did not make are left alone: {NAME}" in played.said
    assert "The instances are kept" not in played.said


def test_an_instance_of_the_other_name_stays_if_somebody_else_made_it(master: PlayedMaster) -> None:
    master.colleague = "runs", "OP_INSTANCE_RENAME", OTHER
    played = Played(master, "--no-renamesame", f"--rename={OTHER}", NAME)
    with pytest.raises(OpExecError, match="it exists"):
        played.run()
    assert master.instances == {OTHER}
    assert ((REMOVE, NAME) in master.submitted, (REMOVE, OTHER) in master.submitted) == (
        True,
        False,
    )


def test_an_instance_that_was_renamed_goes_by_its_other_name(master: PlayedMaster) -> None:
    played = Played(master, "--no-renamesame", f"--rename={OTHER}", NAME)
    carry_out_all = master._carry_out

    def stop_half_way(job_id: int) -> None:
        job = master._jobs[job_id]
        kinds = [op["OP_ID"] for op in job]
        if "OP_INSTANCE_RENAME" in kinds:
            master._jobs[job_id] = job[: kinds.index("OP_INSTANCE_RENAME") + 1]
            master._fail(job_id, "OpExecError", "no luck")
        carry_out_all(job_id)

    master._carry_out = stop_half_way  # type: ignore[method-assign]
    with pytest.raises(OpExecError, match="no luck"):
        played.run()
    assert (REMOVE, OTHER) in master.submitted
    check_nothing_left(master, played)


def test_what_a_creation_left_half_made_goes(master: PlayedMaster) -> None:
    master.fails = master.leaves = {CREATE}
    played = Played(master, NAME)
    with pytest.raises(OpExecError, match="no luck"):
        played.run()
    assert (REMOVE, NAME) in master.submitted
    check_nothing_left(master, played)
