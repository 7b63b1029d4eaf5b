"""A tool run in this process, as its link would start it."""

from __future__ import annotations

import sys

import pytest

from ganeti.cli.programs import main


def run_tool(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    """Return exit status, output and errors of a command line."""
    monkeypatch.setattr(sys, "argv", list(words))
    status = main()
    said = capsys.readouterr()
    return status, said.out, said.err
