"""``gnt-debug``: wrong numbers are refused before anything is submitted."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from fakes.luxi_client import FakeLuxiClient

from ganeti.base.errors import OpPrereqError
from ganeti.cli.debug.opcodes import delay, submit_job
from ganeti.cli.debug.wconfd import metad
from ganeti.cli.declaration.parser import parse
from ganeti.cli.programs import named
from ganeti.cli.run.context import Context, Terminal

PROGRAM = named("gnt-debug")


def run(client: FakeLuxiClient, *words: str) -> None:
    line = parse(PROGRAM, words, {})
    terminal = Terminal(io.StringIO(), io.StringIO(), io.StringIO())
    context = Context("gnt-debug", line.command, line.options, terminal)
    context._client = client  # type: ignore[assignment]  # the fake
    {"delay": delay, "submit-job": submit_job, "metad": metad}[words[0]](
        context, line.options, line.args
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("delay", "nan"), "'nan' is not a time that ends"),
        (("delay", "inf"), "'inf' is not a time that ends"),
        (("delay", "soon"), "'soon' is not a number of seconds"),
        (("submit-job", "--job-repeat=0", "FILE"), "--job-repeat must be at least 1, not 0"),
        (("submit-job", "--job-repeat=-1", "FILE"), "--job-repeat must be at least 1, not -1"),
        (("submit-job", "--op-repeat=0", "FILE"), "--op-repeat must be at least 1, not 0"),
    ],
)
def test_wrong_numbers_are_refused(tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    path = tmp_path / "opcodes"
    path.write_text('{"OP_ID": "OP_CLUSTER_VERIFY"}')
    client = FakeLuxiClient()
    with pytest.raises(OpPrereqError, match=text):
        run(client, *(str(path) if word == "FILE" else word for word in words))
    assert client.submitted == []


def test_jobs_and_opcodes_are_repeated(tmp_path: Path) -> None:
    path = tmp_path / "opcodes"
    path.write_text('{"OP_ID": "OP_CLUSTER_VERIFY"}')
    client = FakeLuxiClient()
    run(client, "submit-job", "--job-repeat=2", "--op-repeat=3", str(path))
    assert [len(job) for job in client.submitted] == [3, 3]


def test_a_metadata_daemon_that_does_not_run_is_not_called_the_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    with pytest.raises(OpPrereqError, match="the metadata daemon does not run on this node"):
        run(FakeLuxiClient(), "metad", "listinstances")
