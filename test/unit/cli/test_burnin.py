"""`burnin`: whatever ends it, and whatever names it is given, nothing of its making is left."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.cli.burnin.command import PROGRAM
from ganeti.cli.declaration.parser import parse
from ganeti.cli.run.context import Context, Terminal
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
        interrupts: kinds of opcodes that somebody presses Ctrl-C at; once for each mention.
        runs: kinds of opcodes that run already when their job is canceled.
    """

    def __init__(self) -> None:
        self.instances: set[str] = set()
        self.exports: set[str] = set()
        self.fails: set[str] = set()
        self.interrupts: list[str] = []
        self.runs: set[str] = set()
        self.submitted: list[tuple[str, str]] = []
        self._jobs: dict[int, Sequence[Mapping[str, Any]]] = {}
        self._ended: dict[int, str] = {}

    def close(self) -> None:
        """There is no connection."""

    def submit_many_jobs(
        self, jobs: Sequence[Sequence[Mapping[str, Any]]]
    ) -> list[tuple[bool, JobId]]:
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
        if job_id not in self._ended:
            self._ended[job_id] = "error" if self.fails.intersection(kinds) else "success"
            if self._ended[job_id] == "success":
                self._carry_out(job_id)
        return JobChange([self._ended[job_id], None, (0, 0)], [])

    def _carry_out(self, job_id: int) -> None:
        for op in self._jobs[job_id]:
            name = op["instance_name"]
            match op["OP_ID"]:
                case "OP_INSTANCE_CREATE":
                    self.instances.add(name)
                case "OP_INSTANCE_REMOVE":
                    self.instances.remove(name)
                case "OP_BACKUP_EXPORT":
                    self.exports.add(name)
                case "OP_BACKUP_REMOVE":
                    self.exports.remove(name)
                case "OP_INSTANCE_RENAME":
                    self.instances.remove(name)
                    self.instances.add(op["new_name"])

    def query_jobs(self, job_ids: Sequence[int], _fields: object) -> list[list[object]]:
        [job_id] = job_ids
        status, count = self._ended[job_id], len(self._jobs[job_id])
        result: object = ["OpExecError", ["no luck"]] if status == "error" else None
        return [[status, [status] * count, [result] * count]]

    def query_nodes(self, names: Sequence[str], _fields: object) -> list[list[object]]:
        return [[name, False, False, True] for name in names or NODES]

    def query_instances(self, names: Sequence[str], fields: Sequence[str]) -> list[list[object]]:
        missing = set(names) - self.instances
        if missing:
            raise GenericError(f"unknown: {missing}")
        row = {"pnode": NODES[0], "snodes": []}
        return [[{**row, "name": n}[f] for f in fields] for n in names or sorted(self.instances)]

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
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedMaster:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "hosts").write_text(HOSTS)
    monkeypatch.setenv(ROOTDIR_VARIABLE, str(tmp_path))
    monkeypatch.setenv(HOSTNAME_VARIABLE, NODES[0])
    return PlayedMaster()


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
