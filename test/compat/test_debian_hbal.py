"""Our hbal beside Debian's: the same first lines, the same steps or a better score.

Debian's moves instances whose
nodes are both offline, which nothing can carry out, so clusters here have no offline nodes.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fakes import debian_htools
from fakes.run_tool import run_tool
from fakes.text_clusters import Shape, made_up

pytestmark = pytest.mark.skipif(not debian_htools.are_there(), reason=debian_htools.REASON)
CLUSTERS = 20
PLAIN = Shape(
    nodes=(10, 10),
    per_node=(2, 5),
    templates=("drbd", "drbd", "rbd", "plain"),
    is_consistent=True,
    has_exclusive=False,
    has_forthcoming=False,
    has_tags=False,
)
ROUNDING = 1e-6
COMMANDS = "Commands to run"


def online(number: int) -> str:
    """Return a cluster without offline nodes."""
    text = made_up(number, PLAIN)
    sections = text.split("\n\n")
    sections[1] = sections[1].replace("|Y|uuid", "|N|uuid")
    return "\n\n".join(sections)


def scores(out: str) -> tuple[float, float]:
    """Return the score before and after."""
    first = re.search(r"^Initial score: (\S+)$", out, re.M)
    assert first
    last = re.search(r"^Cluster score improved from \S+ to (\S+)$", out, re.M)
    return float(first[1]), float((last or first)[1])


def test_steps_are_theirs_or_lead_to_better_scores(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "cluster"
    same = 0
    for number in range(CLUSTERS):
        path.write_text(online(number))
        words = ("-t", str(path), "-C")
        theirs = debian_htools.run("hbal", *words)
        status, out, err = run_tool(monkeypatch, capsys, "hbal", *words)
        assert (status, err) == (theirs.returncode, theirs.stderr), number
        head = "Trying to minimize"
        assert out.split(head)[0] == theirs.stdout.split(head)[0], number
        (ours_first, ours), (theirs_first, last) = scores(out), scores(theirs.stdout)
        assert ours_first == theirs_first
        assert ours <= last + ROUNDING, number
        same += theirs.stdout.split(COMMANDS)[0] == out.split(COMMANDS)[0]
    assert same >= CLUSTERS * 0.9


SIMPLE = """\
group1|uuid-0|preferred||

a|32000|100|31900|100000|100000|8|N|uuid-0|1
b|32000|100|31900|100000|100000|8|N|uuid-0|1
c|32000|100|31900|100000|100000|8|N|uuid-0|1
long-name|32000|100|31900|100000|100000|8|N|uuid-0|1

i1|1024|4096|1|running|Y|a|b|drbd||1
i2|2048|8192|1|running|Y|a|b|drbd||1
i33|512|10000|2|ADMIN_down|Y|a|b|drbd||1
i4|1000|1000|1|running|Y|a||rbd||1


|128,1,1024,1,1,1|1,1,0,0,0,1;32768,8,1048576,16,8,12|drbd,rbd|4.0|32.0
"""


@pytest.mark.parametrize(
    "words",
    [
        ("-C",),
        ("-l", "1", "-v"),
        ("-l", "2", "-v", "-v", "-v"),
        ("-O", "b", "-v", "-v", "-v"),
        ("-l", "0"),
        ("-q", "-C"),
        ("--no-disk-moves", "-C"),
        ("--no-instance-moves", "-C"),
        ("-O", "a", "-E", "-C"),
        ("--exclude-instances", "i1,i2"),
        ("--select-instances", "i1", "-C"),
        ("-g", "1", "--min-gain-limit", "100"),
        ("-G", "group1"),
        ("-e", "100"),
        ("-e", "7.405"),
        ("-e", "2.5"),
        ("--restricted-migration", "-C"),
        ("--restricted-migration", "-O", "b", "-E", "-C"),
        ("--ignore-soft-errors", "-C"),
        ("--ignore-dynu", "-C"),
    ],
    ids=" ".join,
)
def test_every_line_is_theirs(
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path = tmp_path / "cluster"
    path.write_text(SIMPLE)
    theirs = debian_htools.run("hbal", "-t", str(path), *words)
    status, out, _ = run_tool(monkeypatch, capsys, "hbal", "-t", str(path), *words)
    ours = [line for line in out.splitlines() if not line.startswith("Loaded cluster ipolicy")]
    expected = theirs.stdout.splitlines()
    kept = [line for line in expected if not line.startswith("Loaded cluster ipolicy")]
    assert (status, ours) == (theirs.returncode, kept)


@pytest.mark.parametrize("left_out", [r"(b|c|long-name|i[1-3]+)\|", r"i\d+\|"])
def test_what_is_loaded_is_told_as_theirs(
    left_out: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Of one too in the plural, and nothing of an empty cluster."""
    path = tmp_path / "cluster"
    lines = SIMPLE.splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not re.match(left_out, line)))
    theirs = debian_htools.run("hbal", "-t", str(path))
    assert run_tool(monkeypatch, capsys, "hbal", "-t", str(path))[1] == theirs.stdout


def test_instances_in_two_groups_are_counted_as_theirs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "cluster"
    text = made_up(4, Shape(groups=2, templates=("drbd",), has_tags=False, has_forthcoming=False))
    path.write_text(re.sub(r"\|g0n0\|(g0n\d)\|", r"|g1n0|\1|", text))
    for group in ("group1", "group2"):
        words = ("-t", str(path), "-G", group, "-l0")
        theirs = debian_htools.run("hbal", *words)
        assert run_tool(monkeypatch, capsys, "hbal", *words)[1] == theirs.stdout


def test_another_group_is_no_part_of_the_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Neither its instances nor the width of their names."""
    path = tmp_path / "cluster"
    shape = Shape(groups=2, templates=("drbd",), has_tags=False, has_forthcoming=False)
    path.write_text(made_up(2, shape).replace("g1i0|", "instance-with-a-long-name|"))
    words = ("-t", str(path), "-G", "group1", "-l1", "--print-instances")
    theirs = debian_htools.run("hbal", *words)
    found = run_tool(monkeypatch, capsys, "hbal", *words)
    assert found == (theirs.returncode, theirs.stdout, theirs.stderr)


def test_the_script_is_theirs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, script = tmp_path / "cluster", tmp_path / "script"
    path.write_text(SIMPLE)
    words = ("-t", str(path), f"-C{script}")
    theirs = debian_htools.run("hbal", *words)
    expected = script.read_text()
    script.unlink()
    assert run_tool(monkeypatch, capsys, "hbal", *words)[1] == theirs.stdout
    assert script.read_text() == expected
