"""A campaign of faults against five nodes; `campaign.engine` says what it does.

``make campaign SEED=7 MINUTES=10`` plays longer, with JOURNAL=1 with WConfD's option
``--config-journal``; the same seed plays the same faults again.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path

import pytest
from campaign.engine import KNOWN, Rounds, play
from campaign.faults import FAULTS
from fakes.chance import seed

JOURNAL = bool(os.environ.get("GANETI_TEST_JOURNAL"))
SECONDS = float(os.environ.get("GANETI_TEST_MINUTES", "0.3")) * 60
CHECKS_S_MAX = 600.0


def test_nothing_acknowledged_is_lost_by_any_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faulthandler.cancel_dump_traceback_later()
    faulthandler.dump_traceback_later(SECONDS + CHECKS_S_MAX, exit=True, file=sys.__stderr__)

    def tell(line: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

    tell(f"\nGANETI_TEST_SEED={seed()}, {SECONDS:g} s, {'a journal' if JOURNAL else 'no journal'}")
    for line in play(seed(), SECONDS, tmp_path, tell, journal=JOURNAL).table():
        tell(line)


def test_a_seed_plays_the_same_again_after_known_rounds_and_each_fault_once() -> None:
    def plan(number: int) -> list[tuple[list[str], float]]:
        drawn = [Rounds(number, FAULTS).round(each) for each in range(100)]
        return [([fault.name for fault in each.faults], each.chance.random()) for each in drawn]

    assert plan(7) == plan(7) != plan(8)
    assert [names for names, _ in plan(7)[: len(KNOWN)]] == [each.faults for each in KNOWN]
    assert plan(7)[: len(KNOWN)] == plan(8)[: len(KNOWN)]
    first = [name for names, _ in plan(7)[len(KNOWN) :][: len(FAULTS)] for name in names]
    assert sorted(first) == sorted(fault.name for fault in FAULTS)
    assert {len(names) for names, _ in plan(7)} == {1, 2}
