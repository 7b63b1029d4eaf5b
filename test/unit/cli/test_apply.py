"""The file of ``gnt-cluster apply``; what is done with it is tested on a cluster."""

from __future__ import annotations

import io
import sys

import pytest

from ganeti.base.errors import GenericError
from ganeti.cli.cluster import apply


@pytest.mark.parametrize(("more", "is_refused"), [(0, False), (1, True)])
def test_a_file_is_read_whole_or_refused(
    monkeypatch: pytest.MonkeyPatch, more: int, *, is_refused: bool
) -> None:
    """The rest of a longer one was left off, and --remove took the rest for unwanted."""
    monkeypatch.setattr(apply, "_FILE_BYTES_MAX", 100)
    text = "x" * (100 + more)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    if not is_refused:
        assert apply._text_of(apply.STDIN) == text
        return
    with pytest.raises(GenericError, match="the standard input has more than 100 bytes"):
        apply._text_of(apply.STDIN)
