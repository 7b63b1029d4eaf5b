"""The job process's talk with a LuxiD that goes away."""

from __future__ import annotations

import socket

from ganeti.jobexec.luxid_link import LuxidLink


def test_a_luxid_that_is_gone_is_found_so_each_time() -> None:
    ours, theirs = socket.socketpair()
    link = LuxidLink(ours)
    theirs.close()
    for _ in range(3):
        assert link.copy("{}", 0.0)() is None
        assert not link.tell("{}")
    assert ours.fileno() < 0
