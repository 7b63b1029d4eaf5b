"""What keeps a node's watchdog from being used."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti.node_ops.machine import availability


@pytest.mark.parametrize(
    ("facts", "trouble"),
    [
        ({"state": "inactive", "nowayout": "0"}, ""),
        ({}, ""),  # the kernel does not tell
        ({"state": "active", "nowayout": "0"}, "is in use"),
        ({"state": "inactive", "nowayout": "1"}, "cannot be ended once it runs"),
    ],
)
def test_a_watchdog_that_is_in_use_or_cannot_be_ended_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: dict[str, str], trouble: str
) -> None:
    (tmp_path / "null0").mkdir()
    for name, text in facts.items():
        (tmp_path / "null0" / name).write_text(f"{text}\n")
    monkeypatch.setattr(availability, "_WATCHDOGS", str(tmp_path))
    found = list(availability._watchdog_problems("/dev/null"))
    assert len(found) == bool(trouble)
    assert trouble in "".join(found)
