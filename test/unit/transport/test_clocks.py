"""Tests of ganeti/transport/clocks.py."""

from __future__ import annotations

import pytest

from ganeti.transport.clocks import clock_words, gap_words


def test_whose_clock_is_behind_by_how_much() -> None:
    assert clock_words(200_000.0, 90.0) == (
        "it begins on 1970-01-03 07:33:20 UTC, and this node's clock is 2 d 07:31:50 behind that, at"
        " 1970-01-01 00:01:30 UTC: compare the clocks of the nodes"
    )


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (1_000_000_000.0, ""),
        (1_000_000_059.0, ""),
        (1_000_000_061.5, "its clock is 0 d 00:01:01 behind this node's"),
        (999_820_000.0, "its clock is 2 d 02:00:00 ahead of this node's"),
    ],
)
def test_by_how_much_a_peers_clock_differs(now: float, words: str) -> None:
    assert gap_words("Sun, 09 Sep 2001 01:46:40 GMT", now) == words
    assert gap_words("noon", now) == ""
