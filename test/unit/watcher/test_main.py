"""The start of the watcher: options that make no sense are told to everybody who gives them."""

from __future__ import annotations

import sys

import pytest

from ganeti.watcher.main import main


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--job-age", "nix"], "--job-age: 'nix' is not a time such as 90, 30m, 4h, 2d or 1w"),
        (["--wait-children", "--no-wait-children"], "exclude each other"),
    ],
)
def test_wrong_options_are_told_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["ganeti-watcher", *words])
    assert main() == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ganeti-watcher: ")
    assert text in err
