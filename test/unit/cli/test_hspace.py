"""hspace --forecast: what it prints of the growth that the master daemon tells."""

from __future__ import annotations

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
