"""hspace: its forecast from the growth that the master daemon tells, spindles, policies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes.run_tool import run_tool

from ganeti.allocation.sources.text_data import made_up
from ganeti.cli.run.context import Context
from ganeti.clients import snapshots
from ganeti.protocol.luxi import Week

GROWN = [Week(0, created=3, removed=1, memory=4096, disk=4096)]


def tell(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    grown: list[Week],
    *words: str,
) -> tuple[int, str, str]:
    asked: list[int] = []

    def query_growth(weeks: int) -> list[Week]:
        asked.append(weeks)
        return grown * weeks

    snapshot = made_up(["p,2,200g,16g,8,4"])
    monkeypatch.setattr(snapshots, "from_luxi", lambda *_args, **_more: snapshot)
    monkeypatch.setattr(Context, "client", SimpleNamespace(query_growth=query_growth))
    words = ("--disk-template=plain", "--standard-alloc=1g,1g,1", *words)
    status, out, err = run_tool(monkeypatch, capsys, "hspace", "-L", *words)
    assert asked in ([], [4])
    return status, out, err


def test_it_tells_for_how_long_there_is_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = tell(monkeypatch, capsys, GROWN, "--forecast=4")
    assert status == 0
    assert out.splitlines()[-4:] == [
        "Growth in the last 4 weeks:",
        "  - 2.0 instances a week more, of MEM 2048, DSK 2048, CPU 1 each",
        "  - 14 more of these fit: that is enough for 7.0 weeks",
        "  - what is lacking first: memory",
    ]


def test_programs_get_keys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = tell(monkeypatch, capsys, GROWN, "--forecast=4", "--machine-readable")
    assert out.splitlines()[-7:] == [
        "HTS_FORECAST_PER_WEEK=2.00000000",
        "HTS_FORECAST_MEM=2048",
        "HTS_FORECAST_DSK=2048",
        "HTS_FORECAST_INSTANCES=14",
        "HTS_FORECAST_WEEKS=7.00000000",
        "HTS_FORECAST_LACKING=memory",
        "HTS_OK=1",
    ]


def test_a_cluster_that_does_not_grow_lasts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = tell(monkeypatch, capsys, [Week(0)], "--forecast=4")
    assert out.splitlines()[-1] == "  - no more instances than before"


def test_without_the_option_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = tell(monkeypatch, capsys, GROWN)
    assert "Growth" not in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-L", "--forecast=0"), "--forecast: at least one week is needed"),
        (("--simulate=p,2,9g,9g,8,4", "--forecast=4"), "only the master daemon knows the growth"),
    ],
)
def test_a_forecast_needs_weeks_and_the_master_daemon(
    words: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(snapshots, "from_luxi", lambda *_args, **_more: made_up(["p,2,9g,9g,8,4"]))
    status, _, err = run_tool(monkeypatch, capsys, "hspace", *words)
    assert (status, message in err) == (1, True)


POLICY = "1,1,0,0,0,1;32768,8,1048576,16,8,12|drbd,plain|4.0|32.0"
CLUSTER = f"""g|uuid|preferred||

a|32000|100|31900|100000|100000|8|M|uuid|6||{{exclusive}}|6
b|32000|100|31900|100000|100000|8|N|uuid|6||{{exclusive}}|6



|128,1,1024,1,1,4|{POLICY}
g|128,1,1024,1,1,4|{POLICY}
"""
Keys = Callable[..., dict[str, str]]


@pytest.fixture
def keys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Keys:
    def run(text: str, *words: str) -> dict[str, str]:
        (tmp_path / "cluster").write_text(text)
        words = ("-t", str(tmp_path / "cluster"), "--machine-readable", *words)
        status, out, _ = run_tool(monkeypatch, capsys, "hspace", *words)
        assert status == 0
        return dict(line.split("=", 1) for line in out.splitlines())

    return run


@pytest.mark.parametrize(
    ("words", "spindles", "count"),
    [
        ((), "4", "48"),  # the 6 spindles of a node allow a use of 192
        (("--spindle-use=8",), "4", "24"),
        (("--standard-alloc=1g,128,1,12",), "12", "48"),
    ],
)
def test_spindles_of_a_size_are_no_load_on_shared_ones(
    words: tuple[str, ...], spindles: str, count: str, keys: Keys
) -> None:
    large = CLUSTER.replace("|100000|100000|8|", "|9999999|9999999|99|").format(exclusive="N")
    found = keys(large, "--disk-template=drbd", *words)
    assert (found["HTS_SPEC_SPN"], found["HTS_ALLOC_INSTANCES"]) == (spindles, count)


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("--standard-alloc=1g,1g,1,-2", "--standard-alloc: '1g,1g,1,-2' is not disk,memory,cpus"),
        ("--tiered-alloc=1g,1g,-1", "--tiered-alloc: '1g,1g,-1' is not disk,memory,cpus"),
        ("--spindle-use=-1", "--spindle-use: a load on spindles cannot be negative"),
    ],
)
def test_a_size_below_nothing_is_refused(
    word: str, problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--simulate=p,3,100g,16g,4,2", "--disk-template=plain", word)
    status, out, err = run_tool(monkeypatch, capsys, "hspace", *words)
    assert (status, out, problem in err) == (1, "", True)


def test_the_largest_spindle_use_that_is_allowed_is_not_that_of_every_tier(keys: Keys) -> None:
    one = CLUSTER.replace("|uuid|6|", "|uuid|1|").format(exclusive="N")
    found = keys(one, "--disk-template=drbd", "--tiered-alloc=9g,1000,1,12", "--spindle-use=2")
    # None has a disk of nothing in the end, either, though the policy allows that.
    assert found["HTS_TSPEC"] == "'1000,9216,1,12=10 1000,7680,1,12=1'"


def test_the_use_of_shared_spindles_is_nothing_to_exclusive_ones(keys: Keys) -> None:
    words = ("--disk-template=plain", "--standard-alloc=1g,1g,1,2", "--spindle-use=12")
    found = keys(CLUSTER.format(exclusive="Y"), *words)
    assert [found[f"HTS_{key}"] for key in ("SPEC_SPN", "ALLOC_INSTANCES")] == ["2", "6"]
    assert found["HTS_ALLOC_FAIL_REASON"] == "FAILSPINDLES"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("1,1,0,0,0,1;", "1,1,0,2,0,1;", "FAILDISKCOUNT"),
        ("1,1,0,0,0,1;", "256,1,0,0,0,1;", "FAILMEM"),
        ("1,1,0,0,0,1;", "1,2,0,0,0,1;", "FAILCPU"),
        ("1,1,0,0,0,1;", "1,1,0,0,0,5;", "FAILSPINDLES"),
        ("32768,8,1048576", "32768,8,1000", "FAILDISK"),
        ("|drbd,plain|", "|drbd,rbd|", "FAILDISK"),
    ],
)
def test_what_a_policy_forbids_is_told(old: str, new: str, reason: str, keys: Keys) -> None:
    found = keys(CLUSTER.replace(old, new).format(exclusive="N"), "--disk-template=plain")
    assert (found["HTS_ALLOC_INSTANCES"], found["HTS_ALLOC_FAIL_REASON"]) == ("0", reason)
    assert found[f"HTS_ALLOC_{reason}_CNT"] == "2"


@pytest.mark.parametrize("nics", [("0,0,1;", "0,2,1;"), ("16,8,12", "16,0,12")])
def test_nobody_knows_the_network_interfaces_of_new_instances(
    nics: tuple[str, str], keys: Keys
) -> None:
    found = keys(CLUSTER.replace(*nics).format(exclusive="N"), "--disk-template=drbd")
    assert found["HTS_ALLOC_INSTANCES"] == "48"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CLUSTER, ("--disk-template=drbd", "-O", "b")),
        (CLUSTER, ("--disk-template=plain", "-O", "b", "-O", "a")),
        (CLUSTER.replace("|preferred|", "|unallocable|"), ("--disk-template=plain",)),
    ],
)
def test_without_nodes_for_one_instance_there_is_no_answer(
    text: str,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "cluster").write_text(text.format(exclusive="N"))
    words = ("-t", str(tmp_path / "cluster"), "--machine-readable", *words)
    status, out, err = run_tool(monkeypatch, capsys, "hspace", *words)
    assert (status, "failure during allocation: no node group" in err) == (1, True)
    assert {line[:8] for line in out.splitlines()} == {"HTS_CLUS", "HTS_INI_"}


def test_a_policy_with_an_unknown_disk_template_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = CLUSTER.replace("|drbd,plain|", "|drdb,plain|").format(exclusive="N")
    (tmp_path / "cluster").write_text(text)
    words = ("-t", str(tmp_path / "cluster"))
    status, _, err = run_tool(monkeypatch, capsys, "hspace", *words)
    assert (status, "there is no disk template 'drdb'" in err) == (1, True)
    status, *_ = run_tool(monkeypatch, capsys, "hspace", *words, "--disk-template=plain")
    assert status == 0


def test_a_policy_without_disk_templates_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = CLUSTER.replace("|drbd,plain|", "||").format(exclusive="N")
    (tmp_path / "cluster").write_text(text)
    words = ("-t", str(tmp_path / "cluster"))
    status, _, err = run_tool(monkeypatch, capsys, "hspace", *words)
    assert (status, "no disk template; use --disk-template" in err) == (1, True)
    status, out, _ = run_tool(monkeypatch, capsys, "hsqueeze", *words)
    assert (status, out) == (0, "'Nodes to offline'\nb\n")
