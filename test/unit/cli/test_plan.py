"""`hbal --plan`: the table beside hbal's own steps, the bound, limits, and what goes with it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from fakes.run_tool import run_tool
from fakes.uneven_clusters import uneven

from ganeti.allocation.planning import bound
from ganeti.cli.htools import planning


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster"
    path.write_text(uneven(5, 6, 3))
    return str(path)


Tool = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]


def row(out: str, title: str) -> list[str]:
    """Return the words of a row of the table after its title."""
    (line,) = (line for line in out.splitlines() if line.startswith(title))
    return line.removeprefix(title).split()


def test_a_plan_is_told_beside_the_steps_of_hbal(
    monkeypatch: Tool, capsys: Capture, cluster: str, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    words = ("-t", cluster, "--plan", "-v", "-C", f"--save={saved}")
    status, out, _ = run_tool(monkeypatch, capsys, "hbal", *words)
    assert status == 0
    _, greedy, _ = run_tool(monkeypatch, capsys, "hbal", "-t", cluster)
    last = re.search(r"Cluster score improved from \S+ to (\S+)", greedy)
    assert last is not None
    theirs, ours = row(out, "Score")
    assert theirs == last[1]
    assert float(ours) <= float(theirs) + 1e-8
    assert f"to {ours}" in out
    moves = int(row(out, "Moves")[1])
    steps = re.findall(r"^ +\d+\. \S+ +\S+ +=> \S+ +\S+ a=.*\n +because of \w+ [+-]", out, re.M)
    assert len(steps) == moves
    theirs_gib, _, ours_gib, _ = row(out, "Data copied")
    assert float(ours_gib) < float(theirs_gib)
    found = re.search(r"No plan for the score \S+ copies less than (\S+) GiB; this one", out)
    assert found is not None
    assert 0 < float(found[1]) <= float(ours_gib)
    assert "Held there by: " in out
    assert out.count("gnt-instance ") >= moves
    _, again, _ = run_tool(monkeypatch, capsys, "hbal", "-t", f"{saved}.balanced", "-l0")
    assert f"Initial score: {ours}" in again


def test_a_limit_is_kept_and_told_as_what_holds_the_score(
    monkeypatch: Tool, capsys: Capture, cluster: str
) -> None:
    words = ("-t", cluster, "--plan", "--max-data=30G")
    _, out, _ = run_tool(monkeypatch, capsys, "hbal", *words)
    assert float(row(out, "Data copied")[2]) <= 30
    assert re.search(r"No plan within the limits has a score below \S+; this one has ", out)
    assert "Held there by: --max-data" in out
    assert "Without limits hbal's own steps reach the score" in out
    _, out, _ = run_tool(monkeypatch, capsys, "hbal", "-t", cluster, "--plan", "-l", "3")
    assert int(row(out, "Moves")[1]) <= 3
    assert "Held there by: --max-length" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max-data=1G",), "--max-data limits a plan; use it with --plan"),
        (("--max-downtime=1",), "--max-downtime limits a plan; use it with --plan"),
        (("--plan", "--max-downtime=-1"), "the most downtime of a plan cannot be -1"),
        (("--plan", "--plan-time=0"), "--plan-time: 0 is no time to find a plan in"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    monkeypatch: Tool, capsys: Capture, cluster: str, words: tuple[str, ...], message: str
) -> None:
    status, _, err = run_tool(monkeypatch, capsys, "hbal", "-t", cluster, *words)
    assert status == 1
    assert message in err


def test_without_the_solver_there_is_a_plan_but_no_bound(
    monkeypatch: Tool, capsys: Capture, cluster: str
) -> None:
    monkeypatch.setattr(bound, "highspy", None)
    status, out, _ = run_tool(monkeypatch, capsys, "hbal", "-t", cluster, "--plan")
    assert status == 0
    assert len(row(out, "Score")) == 2
    assert "install highspy" in out
    assert "No plan for" not in out


def test_a_screen_shows_how_far_the_work_is(
    monkeypatch: Tool, capsys: Capture, cluster: str
) -> None:
    monkeypatch.setattr(planning, "_PROGRESS_INTERVAL_S", 0)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _, out, err = run_tool(monkeypatch, capsys, "hbal", "-t", cluster, "--plan")
    assert re.search(r"\r\x1b\[Krefinement: \d+%, ETA \d+s at most", err)
    assert err.endswith("\r\x1b[K")
    assert "ETA" not in out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    _, _, err = run_tool(monkeypatch, capsys, "hbal", "-t", cluster, "--plan")
    assert "ETA" not in err
