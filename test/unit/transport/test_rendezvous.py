"""Two processes meet at a socket (threads here: the socket is the same)."""

from __future__ import annotations

import os
import threading

import pytest

from ganeti.transport.rendezvous import Rendezvous, visit


def test_nobody_comes() -> None:
    with Rendezvous() as rendezvous:
        assert os.path.exists(rendezvous.path)
        assert not rendezvous.wait(0.01)
    assert not os.path.exists(os.path.dirname(rendezvous.path))


def test_it_goes_on_when_the_visitor_leaves() -> None:
    events: list[str] = []
    inside, leave = threading.Event(), threading.Event()

    def visitor(path: str) -> None:
        with visit(path, 5):
            events.append("came")
            inside.set()
            leave.wait(30)
            events.append("leaves")

    with Rendezvous() as rendezvous:
        thread = threading.Thread(target=visitor, args=(rendezvous.path,))
        thread.start()
        assert rendezvous.wait(5, 0)  # who does not wait for the end is told of the coming
        inside.wait(30)
        assert events == ["came"]
        leave.set()
        thread.join(5)
    leave.clear()
    with Rendezvous() as rendezvous:
        thread = threading.Thread(target=visitor, args=(rendezvous.path,))
        thread.start()
        threading.Timer(0.05, leave.set).start()
        assert rendezvous.wait(5, 5)
        assert events[-1] == "leaves"
        thread.join(5)


def test_a_visitor_that_stays_is_told() -> None:
    with Rendezvous() as rendezvous, visit(rendezvous.path, 5), pytest.raises(TimeoutError):
        rendezvous.wait(5, 0.02)


def test_a_path_is_short_and_its_own() -> None:
    with Rendezvous() as one, Rendezvous() as other:
        assert one.path != other.path
        assert len(one.path) < 107


def test_nobody_is_there() -> None:
    with pytest.raises(OSError, match="No such file"), visit("/nowhere/socket", 1):
        raise AssertionError
