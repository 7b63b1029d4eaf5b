"""Our hcheck and hsqueeze beside Debian's: the same lines, but for what the manual pages name."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import debian_htools
from fakes.run_tool import run_tool
from fakes.text_clusters import LOCAL, Shape, made_up

pytestmark = pytest.mark.skipif(not debian_htools.are_there(), reason=debian_htools.REASON)
OWN_MEANING = ("OFFLINE_SEC", "FINAL_CLUSTER_NEED_REBALANCE", "secondary node offline", "healthy")
NODES = """default|uuid|preferred||

n1|16000|0|15000|100000|90000|8|M|uuid|1||N|0|1|1.0
n2|16000|0|{free}|100000|90000|8|N|uuid|1||N|0|1|1.0
n3|16000|0|16000|100000|90000|8|{role}|uuid|1|htools:standby:auto|N|0|1|1.0

{instances}

{tags}

|128,1,1024,1,1,1|1,1,1,1,1,1;32768,8,1048576,16,8,12|ext,plain,drbd|4.0|32.0
default|2048,1,10240,1,1,1|1,1,1,1,1,1;32768,8,1048576,16,8,12|ext,plain,drbd|4.0|32.0
"""
DRBD = "i1|5120|1024|1|running|Y|n1|n2|drbd|e:1|1\ni2|512|1024|1|running|Y|n1|n2|drbd|e:1|1"
EXT = "i1|512|1024|1|running|Y|n2||ext||1\ni2|512|1024|1|running|Y|n1||ext||1"


def _cluster(instances: str, free: int = 16000, role: str = "N", tags: str = "") -> str:
    return NODES.format(free=free, role=role, instances=instances, tags=tags)


CLUSTERS = {
    "healthy": _cluster(EXT),
    "N+1": _cluster(DRBD, free=400),
    "tags": _cluster(DRBD, tags="htools:iextags:e"),
    "offline": _cluster(DRBD.replace("n2", "n3"), role="Y"),
    "capacity": _cluster(EXT.replace("512", "9000"), free=300),
    "standby": _cluster(EXT, role="Y"),
}


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not any(word in line for word in OWN_MEANING)]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--machine-readable",),
        ("--no-simulation",),
        ("--no-simulation", "--machine-readable"),
        ("-q",),
    ],
)
@pytest.mark.parametrize("name", ["healthy", "N+1", "tags", "offline", "capacity"])
def test_hcheck_says_the_same(
    name: str,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path = tmp_path / "cluster"
    path.write_text(CLUSTERS[name])
    words = ("-t", str(path), *words)
    theirs = debian_htools.run("hcheck", *words)
    status, out, err = run_tool(monkeypatch, capsys, "hcheck", *words)
    assert (status, _lines(out), err) == (theirs.returncode, _lines(theirs.stdout), theirs.stderr)


def test_hcheck_counts_the_same_on_made_up_clusters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without tags: with 3.0 they may keep an instance from being restarted elsewhere."""
    path = tmp_path / "cluster"
    for number in range(20):
        path.write_text(
            made_up(
                number,
                Shape(
                    groups=1 + number % 2,
                    templates=LOCAL,
                    has_tags=False,
                    has_exclusive=False,
                    has_forthcoming=False,
                    is_consistent=True,
                ),
            )
        )
        words = ("-t", str(path), "--machine-readable", "--no-simulation", "-q")
        theirs = debian_htools.run("hcheck", *words)
        _, out, _ = run_tool(monkeypatch, capsys, "hcheck", *words)
        keys = [line for line in _lines(theirs.stdout) if "_INIT_" in line and "NEED" not in line]
        assert [line for line in _lines(out) if "_INIT_" in line and "NEED" not in line] == keys


SQUEEZES = [
    (),
    ("-v",),
    ("-v", "-C"),
    ("--target-resources=20", "--minimal-resources=1", "-v"),
    ("--minimal-resources=7.4", "--target-resources=7.5", "-v", "-C"),
    ("--minimal-resources=30", "--target-resources=31", "-C"),
    ("--no-headers",),
]


@pytest.mark.parametrize("words", SQUEEZES)
@pytest.mark.parametrize("name", ["healthy", "standby", "N+1"])
def test_hsqueeze_says_the_same(
    name: str,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path = tmp_path / "cluster"
    path.write_text(CLUSTERS[name])
    words = ("-t", str(path), *words)
    theirs = debian_htools.run("hsqueeze", *words)
    status, out, err = run_tool(monkeypatch, capsys, "hsqueeze", *words)
    ours = [line for line in out.splitlines() if "gnt-node modify -O" not in line]
    assert (status, ours, err) == (theirs.returncode, theirs.stdout.splitlines(), theirs.stderr)
