"""When a daemon counts as hanging."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ganeti.daemon.partner import LOOK_S, LOOKS_MAX, Patience, Sight

SILENT = Sight(pid=7, touched_ns=1, cpu_s=2.0, state="S")


def looks(*sights: Sight | None) -> list[bool]:
    patience = Patience()
    return [patience.ends(each) for each in sights]


@pytest.mark.parametrize("state", ["S", "T"])
def test_one_without_a_sign_of_life_hangs_after_some_looks(state: str) -> None:
    sight = replace(SILENT, state=state)
    assert looks(*[sight] * (LOOKS_MAX + 1)) == [*[False] * LOOKS_MAX, True]


@pytest.mark.parametrize(
    "sign",
    [replace(SILENT, touched_ns=2), replace(SILENT, cpu_s=2.01), replace(SILENT, pid=8), None],
)
def test_any_sign_of_life_begins_anew(sign: Sight | None) -> None:
    before = [SILENT] * LOOKS_MAX
    assert not any(looks(*before, sign, *before))


@pytest.mark.parametrize("state", ["R", "D", "t"])
def test_who_computes_waits_for_the_disk_or_is_debugged_does_not_hang(state: str) -> None:
    assert not any(looks(*[replace(SILENT, state=state)] * 3 * LOOKS_MAX))


def test_a_start_fits_into_what_is_left_of_five_seconds() -> None:
    """One look more than it takes, as it may have hung just after it gave a sign."""
    assert (LOOKS_MAX + 1) * LOOK_S <= 3.0
