"""Data generations in the log of the kernel, and failures of the programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti.base.errors import BlockDeviceError, CommandError
from ganeti.storage.drbd import drbdsetup
from ganeti.storage.drbd.drbdsetup import last_seen, partings

LOG = (Path(__file__).parents[3] / "data" / "drbd" / "dmesg-8.4-split-brain.txt").read_text()
HERE = "97B719D5F63BEE5C:B3CE5D60BA1E14B7:FEE2079A53B7635B:FEE1079A53B7635A"
THERE = "1FCC068F21CF4912:B3CE5D60BA1E14B6:FEE2079A53B7635A:FEE1079A53B7635A"
MET_AGAIN = """\
[200.0] block drbd0: drbd_sync_handshake:
[200.0] block drbd0: self AAAA:BBBB:0:0 bits:0 flags:0
[200.0] block drbd0: peer AAAA:BBBB:0:0 bits:0 flags:0
"""


def test_both_generations_of_a_split_brain_stand_in_the_log() -> None:
    text = partings(LOG)[0]
    assert f"the data here is of generation {HERE}, on the other node of {THERE};" in text
    assert "'gnt-instance replace-disks -s INSTANCE' keeps the data of the primary node" in text
    assert partings(LOG + LOG.replace("drbd0", "drbd17")).keys() == {0, 17}


LOST = """\
[  150.25] block drbd3: peer( Unknown -> Secondary ) conn( WFReportParams -> Connected )
[  160.5] drbd resource3: peer( Secondary -> Unknown ) conn( Connected -> NetworkFailure ) pdsk( Up
[  170.5] drbd resource3: conn( NetworkFailure -> Unconnected )
[1170.5] drbd resource12: peer( Primary -> Unknown ) conn( Connected -> TearDown ) pdsk( UpToDate
"""


def test_the_log_tells_when_a_copy_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drbdsetup.clock, "now", lambda: 1_700_000_000.0)
    assert last_seen(LOST, 2000.0) == {3: 1_699_998_160.5, 12: 1_699_999_170.5}
    assert last_seen(LOG, 2000.0) == {}


def test_it_is_over_when_they_met_again() -> None:
    assert partings(LOG + MET_AGAIN) == {}
    assert partings(MET_AGAIN + LOG) == partings(LOG)
    assert partings("") == {}


def test_a_log_that_begins_too_late_still_tells() -> None:
    last = next(line for line in LOG.splitlines() if "Split-Brain" in line)
    assert "generation unknown, on the other node of unknown" in partings(last)[0]


def test_another_secret_is_told() -> None:
    denied = "[3533.078499] drbd resource40: Authentication of peer failed"
    assert "the other node has another secret" in partings(denied)[40]


def test_a_failure_has_the_last_words_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "echo usage; echo '0: Failure: (127) Device minor not allocated' >&2; exit 10"
    with pytest.raises(BlockDeviceError, match=r"exit status 10: 0: Failure: \(127\) Device min"):
        drbdsetup.run(("sh", "-c", script))
    assert drbdsetup.run(("sh", "-c", script), may_end=frozenset({10})) == b"usage\n"
    with pytest.raises(BlockDeviceError, match="cannot run '/no/such'"):
        drbdsetup.run(("/no/such",))

    def refuse(*_args: object, **_options: object) -> None:
        raise CommandError("no dmesg here", ("dmesg",), None, "")

    assert drbdsetup.kernel_log(refuse) == ""  # type: ignore[arg-type]
