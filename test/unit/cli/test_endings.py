"""The end of a session: commands with something to tidy up are interrupted once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ganeti.cli.run.endings import ENDINGS, interrupt_at_endings, undisturbed


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ENDINGS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", ENDINGS)
def test_the_first_end_interrupts_and_those_after_it_do_not(first: signal.Signals) -> None:
    interrupt_at_endings()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(first)
    for number in ENDINGS:
        signal.raise_signal(number)


def test_what_nohup_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupt_at_endings()
    signal.raise_signal(signal.SIGHUP)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


def test_nothing_disturbs_a_clean_up() -> None:
    interrupt_at_endings()
    with suppress(ValueError), undisturbed():
        signal.raise_signal(signal.SIGHUP)
        raise ValueError
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGHUP)
