"""Our hspace beside Debian's: the same about the cluster, and at least as many instances."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import debian_htools
from fakes.run_tool import run_tool
from fakes.text_clusters import LOCAL, Shape, made_up

pytestmark = pytest.mark.skipif(not debian_htools.are_there(), reason=debian_htools.REASON)
FIXED = ("HTS_CLUSTER_", "HTS_INI_", "HTS_TSPEC_INI_", "HTS_SPEC_", "HTS_KM_USED_", "HTS_OK")
COUNTS = ("HTS_ALLOC_INSTANCES", "HTS_TRL_INST_CNT")


def _keys(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize("template", ["plain", "drbd"])
@pytest.mark.parametrize("size", ["20g,4g,1", "10g,1g,2", "30g,9g,8", "5g,500,1,50"])
def test_keys_are_theirs(
    template: str, size: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        *("--simulate=p,3,100g,16g,4,2", "--machine-readable", f"--disk-template={template}"),
        *(f"--standard-alloc={size}", f"--tiered-alloc={size}"),
    )
    theirs = _keys(debian_htools.run("hspace", *words).stdout)
    status, out, _ = run_tool(monkeypatch, capsys, "hspace", *words)
    ours = _keys(out)
    assert status == 0
    assert sorted(ours) == sorted(theirs)
    fixed = {key: value for key, value in theirs.items() if key.startswith(FIXED)}
    assert {key: ours[key] for key in fixed} == fixed
    for key in COUNTS:
        assert int(ours[key]) >= int(theirs[key]), key


@pytest.mark.parametrize("number", [1, 7, 13, 19, 31, 37])  # 3.0 refuses some others
def test_as_many_fit_at_least_on_clusters_with_instances(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "cluster"
    shape = Shape((2, 4), templates=LOCAL, has_exclusive=False, has_forthcoming=False)
    path.write_text(made_up(number, shape))
    words = ("-t", str(path), "--machine-readable", "--standard-alloc=4000m,900m,2")
    theirs = _keys(debian_htools.run("hspace", *words).stdout)
    status, out, _ = run_tool(monkeypatch, capsys, "hspace", *words)
    ours = _keys(out)
    assert status == 0
    fixed = {key: value for key, value in theirs.items() if key.startswith(FIXED)}
    assert {key: ours[key] for key in fixed} == fixed
    for key in COUNTS:
        assert int(ours[key]) >= int(theirs[key]), key


def _exclusive(number: int) -> str:
    """Return a cluster whose nodes give spindles to one instance each."""
    shape = Shape((2, 5), (1, 2), ("plain",), ("running",), has_tags=False, has_exclusive=False)
    shape = replace(shape, has_forthcoming=False, is_consistent=True)
    groups, nodes, instances, *others = made_up(number, shape).split("\n\n")
    draw, used, rows = random.Random(number), Counter[str](), []
    for line in instances.splitlines():
        *first, _, last = line.split("|")
        spindles = draw.randint(1, 2)
        used[first[6]] += spindles
        rows.append("|".join((*first, str(spindles), last)))
    instances, rows = "\n".join(rows), []
    for line in nodes.splitlines():
        row = line.split("|")
        free = draw.randint(1, 8)
        row[9], row[11], row[12] = str(used[row[0]] + free), "Y", str(free)
        rows.append("|".join(row))
    return "\n\n".join((groups, "\n".join(rows), instances, *others))


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    "sizes", [(), ("--standard-alloc=10g,1g,1,2", "--tiered-alloc=50g,4g,4,4")]
)
def test_exclusive_spindles_run_out(
    number: int,
    sizes: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path = tmp_path / "cluster"
    path.write_text(_exclusive(number))
    words = ("-t", str(path), "--disk-template=plain", *sizes)
    theirs = _keys(debian_htools.run("hspace", *words, "--machine-readable").stdout)
    status, out, _ = run_tool(monkeypatch, capsys, "hspace", *words, "--machine-readable")
    ours = _keys(out)
    assert status == 0
    assert sorted(ours) == sorted(theirs)
    fixed = {key: value for key, value in theirs.items() if key.startswith(FIXED)}
    assert {key: ours[key] for key in fixed} == fixed
    for key in COUNTS:
        assert int(ours[key]) >= int(theirs[key]), key
    assert int(ours["HTS_FIN_SPN_FREE"]) >= 0
    _, text, _ = run_tool(monkeypatch, capsys, "hspace", *words)
    their_text = debian_htools.run("hspace", *words).stdout

    def shown(text: str) -> list[str]:
        return [line for line in text.splitlines() if line[:4] != "  - " or "efficiency" in line]

    bare = [re.sub(r" *[\d.]+%", "", line) for line in shown(text)]
    assert bare == [re.sub(r" *[\d.]+%", "", line) for line in shown(their_text)]


MIXES = [("drbd", "rbd"), ("drbd", "plain", "rbd")]
_UNCHECKED = "--no-capacity-checks"


def _counts(text: str) -> list[int]:
    found = _keys(text)
    assert found["HTS_OK"] == "1"
    return [int(found[key]) for key in COUNTS]


def _mixed(number: int, templates: tuple[str, ...], new: str, directory: Path) -> tuple[str, ...]:
    """Return options for a cluster with pairs and shared storage, all of whose nodes are usable."""
    shape = Shape(
        *((2, 6), (1, 5), templates),
        has_tags=False,
        has_exclusive=False,
        has_forthcoming=False,
        is_consistent=True,
    )
    path = directory / "cluster"
    path.write_text(made_up(number, shape).replace("|Y|uuid", "|N|uuid"))
    size = "4000m,900m,2"
    return (
        *("-t", str(path), "--machine-readable", f"--disk-template={new}"),
        *(f"--standard-alloc={size}", f"--tiered-alloc={size}"),
    )


@pytest.mark.parametrize("templates", MIXES, ids="-".join)
@pytest.mark.parametrize("number", [6, 7, 10, 12, 19, 24, 25])
def test_as_many_fit_at_least_where_some_storage_is_shared(
    number: int,
    templates: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Of new pairs 3.0 never asks whether all others could restart; ours does unless told not to."""
    for new, more in (("rbd", ()), ("rbd", (_UNCHECKED,)), ("drbd", (_UNCHECKED,))):
        words = (*_mixed(number, templates, new, tmp_path), *more)
        theirs = _counts(debian_htools.run("hspace", *words).stdout)
        _, out, _ = run_tool(monkeypatch, capsys, "hspace", *words)
        for ours, other in zip(_counts(out), theirs, strict=True):
            assert ours >= other, (new, more)


FULL = """g1|u|preferred||

n1|40000|0|25000|900000|900000|64|N|u|99
n2|40000|0|25000|900000|900000|64|N|u|99
{away}
i1|15000|1024|1|running|Y|n1||rbd||1
i2|15000|1024|1|running|Y|n2||rbd||1


|2048,1,10240,1,1,1|128,1,1024,1,1,1;65536,64,1048576,16,8,12|drbd,rbd|64.0|32.0
"""
AWAY = "n3|40000|0|40000|900000|900000|64|Y|u|99\n"


@pytest.mark.parametrize(
    ("new", "away", "ours", "theirs"),
    [("rbd", "", 11, 11), ("drbd", "", 11, 27), ("rbd", AWAY, 11, 54)],
)
def test_what_is_placed_can_restart_when_a_node_fails(
    new: str,
    away: str,
    ours: int,
    theirs: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """One node has to take all: 40,000 MiB, less 30,000.  3.0 counts on nodes that are offline."""
    path = tmp_path / "cluster"
    path.write_text(FULL.format(away=away))
    words = ("-t", str(path), "--machine-readable", f"--disk-template={new}")
    words = (*words, "--standard-alloc=1g,900m,1", "-l99")
    _, out, _ = run_tool(monkeypatch, capsys, "hspace", *words)
    assert _keys(out)[COUNTS[0]] == str(ours)
    assert _keys(debian_htools.run("hspace", *words).stdout)[COUNTS[0]] == str(theirs)


UNHAPPY = """default|uuid|preferred||
g2|uuid2|preferred||

n1|16000|0|15000|100000|90000|8|N|uuid|1
n2|16000|0|400|100000|90000|8|N|uuid|1
m1|16000|0|15000|100000|90000|8|N|uuid2|1
m2|16000|0|15000|100000|90000|8|N|uuid2|1

i1|5120|1024|1|running|Y|n1|n2|drbd||1


|2048,1,10240,1,1,1|1024,1,1024,1,1,1;4096,2,20480,2,1,2|plain,drbd|4.0|32.0
"""


@pytest.mark.parametrize(
    "words",
    [
        ("--simulate=p,3,100g,16g,4,2", "--standard-alloc=9g,5g,4", "--tiered-alloc=9g,128,4"),
        ("-t", "unhappy"),
        ("-t", "unhappy", "-p", "-vv"),
        ("-t", "unhappy", "--machine-readable", "--disk-template=drbd"),
        ("-t", "unhappy", "-O", "m1", "--max-cpu=2.5", "--min-disk=0.1"),
    ],
)
def test_every_line_is_theirs(
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("unhappy").write_text(UNHAPPY)
    theirs = debian_htools.run("hspace", *words)
    status, out, err = run_tool(monkeypatch, capsys, "hspace", *words)
    assert (status, out, err) == (theirs.returncode, theirs.stdout, theirs.stderr)


LIMITED = """g|uuid|{state}||

a|32000|100|31900|100000|100000|8|M|uuid|1
b|32000|100|31900|100000|100000|8|N|uuid|1
c|32000|100|31900|100000|100000|8|N|uuid|1



|128,1,1024,1,1,1|{limits}|drbd,plain|4.0|32.0
g|128,1,1024,1,1,1|{limits}|drbd,plain|4.0|32.0
"""
WIDE = "1,1,0,0,0,1;32768,8,1048576,16,8,12"


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (WIDE, ()),
        ("1,1,0,0,2,1;32768,8,1048576,16,8,12", ()),
        ("1,1,0,2,0,1;32768,8,1048576,16,8,12", ()),
        ("1,1,2048,0,0,1;32768,8,1048576,16,8,12", ()),
        ("256,1,0,0,0,1;32768,8,1048576,16,8,12", ()),
        ("1,1,0,0,0,1;64,8,1048576,16,8,12", ()),
        ("1,2,0,0,0,1;32768,8,1048576,16,8,12", ()),
        ("1,1,0,0,0,2;32768,8,1048576,16,8,12", ()),
        (WIDE, ("--disk-template=rbd",)),
        (WIDE, ("--standard-alloc=1g,1g,9",)),
        (WIDE, ("--spindle-use=13",)),
    ],
)
def test_what_a_policy_forbids_is_told_as_theirs(
    limits: str,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path = tmp_path / "cluster"
    path.write_text(LIMITED.format(state="preferred", limits=limits))
    words = ("-t", str(path), "--machine-readable", *words)
    theirs = debian_htools.run("hspace", *words)
    status, out, _ = run_tool(monkeypatch, capsys, "hspace", *words)
    assert status == theirs.returncode
    ours, others = _keys(out), _keys(theirs.stdout)
    for key in (*COUNTS, "HTS_TSPEC", "HTS_ALLOC_FAIL_REASON"):
        assert ours[key] == others[key], key
    counts = [key for key in others if key.startswith("HTS_ALLOC_FAIL")]
    assert {key: ours[key] for key in counts} == {key: others[key] for key in counts}


@pytest.mark.parametrize(
    ("state", "words"), [("unallocable", ()), ("preferred", ("-O", "a", "-O", "b"))]
)
@pytest.mark.parametrize("form", ["yes", "no"])
def test_where_no_group_has_enough_nodes_it_ends_as_theirs(
    state: str,
    words: tuple[str, ...],
    form: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path = tmp_path / "cluster"
    path.write_text(LIMITED.format(state=state, limits=WIDE))
    words = ("-t", str(path), f"--machine-readable={form}", *words)
    theirs = debian_htools.run("hspace", *words)
    status, out, _ = run_tool(monkeypatch, capsys, "hspace", *words)
    assert (status, out) == (theirs.returncode, theirs.stdout)
