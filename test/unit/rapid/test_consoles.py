"""Tests of ganeti/rapid/consoles.py: tickets, and whose pages may open consoles."""

from __future__ import annotations

import pytest

from ganeti.protocol.luxi import ConsoleWay
from ganeti.protocol.rapi.values import HttpProblem
from ganeti.rapid.consoles import TICKET_S, Tickets, check_origin


def test_a_ticket_is_good_once_and_for_seconds() -> None:
    now = [100.0]
    tickets = Tickets(lambda: now[0])
    first, late = (tickets.give("jim", "web1", ConsoleWay.SERIAL) for _ in range(2))
    assert first != late
    found = tickets.take(first)
    assert found is not None
    assert (found.user, found.instance, found.way) == ("jim", "web1", "serial")
    assert tickets.take(first) is None
    now[0] += TICKET_S + 0.1
    assert tickets.take(late) is None
    assert tickets.take("") is None


def test_there_are_not_too_many() -> None:
    now = [100.0]
    tickets = Tickets(lambda: now[0])
    for _ in range(1000):
        tickets.give("jim", "web1", ConsoleWay.SERIAL)
    with pytest.raises(HttpProblem, match="Too many"):
        tickets.give("jim", "web1", ConsoleWay.SERIAL)
    now[0] += TICKET_S
    tickets.give("jim", "web1", ConsoleWay.SERIAL)


def test_pages_of_others_are_refused() -> None:
    check_origin({"host": "here:5080", "origin": "https://here:5080"})
    check_origin({"host": "here:5080"})
    for origin in ("https://here", "https://evil", "null"):
        with pytest.raises(HttpProblem):
            check_origin({"host": "here:5080", "origin": origin})
