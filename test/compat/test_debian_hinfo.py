"""Our hinfo beside Debian's: the same lines on both streams."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fakes import debian_htools
from fakes.run_tool import run_tool
from fakes.text_clusters import Shape, made_up

pytestmark = pytest.mark.skipif(not debian_htools.are_there(), reason=debian_htools.REASON)
CLUSTERS = 24


def test_every_line_is_theirs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "cluster"
    for number in range(CLUSTERS):
        path.write_text(made_up(number, Shape(groups=1 + number % 2)))
        words = ("-t", str(path), "-p", "--print-instances", "-v" if number % 3 else "-q")
        theirs = debian_htools.run("hinfo", *words)
        status, out, err = run_tool(monkeypatch, capsys, "hinfo", *words)
        assert (status, out) == (theirs.returncode, theirs.stdout), number
        assert err == theirs.stderr, number


def test_instances_in_two_groups_are_counted_as_theirs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "cluster"
    for number in range(6):
        text = made_up(number, Shape(groups=2, templates=("drbd",), has_tags=False))
        path.write_text(re.sub(r"\|g0n0\|(g0n\d)\|", r"|g1n0|\1|", text))
        words = ("-t", str(path), "-v", "-v")
        theirs = debian_htools.run("hinfo", *words)
        status, out, err = run_tool(monkeypatch, capsys, "hinfo", *words)
        ours, others = (
            [line for line in each.splitlines() if not line.startswith("Loaded cluster ipolicy")]
            for each in (out, theirs.stdout)
        )
        assert (status, ours) == (theirs.returncode, others), number
        assert err == theirs.stderr, number


@pytest.mark.parametrize(
    "fields", ["name,tmem", "+ptags", "name,nothing", "status", "name,plist,slist"]
)
def test_fields_of_nodes_are_theirs(
    fields: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "cluster"
    path.write_text(made_up(3))
    words = ("-t", str(path), "-q", f"-p{fields}")
    theirs = debian_htools.run("hinfo", *words)
    assert run_tool(monkeypatch, capsys, "hinfo", *words)[2] == theirs.stderr
