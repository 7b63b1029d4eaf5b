"""``gnt-debug iallocator``: words to parameters; what jobs that move instances say."""

from __future__ import annotations

import pytest

from ganeti.base.errors import GenericError
from ganeti.cli.debug.allocator import _explained, disks_of, nics_of
from ganeti.cli.run.jobs import split_submitted, submitted_jobs


def test_disks_and_nics_by_short_words() -> None:
    assert disks_of("4096,1g") == [{"size": 4096}, {"size": 1024}]
    assert disks_of("") == []
    assert nics_of("00:11:22:33:44:55,auto//br1,x/192.0.2.1") == [
        {"mac": "00:11:22:33:44:55"},
        {"mac": "auto", "link": "br1"},
        {"mac": "x", "ip": "192.0.2.1"},
    ]
    assert nics_of("") == []


def test_the_part_of_an_answer_that_is_for_people() -> None:
    assert _explained('{"info": "a; b", "explanation": ["x", "y"], "result": []}') == ["x", "y"]
    assert _explained('{"success": true, "info": "no more", "result": []}') == ["no more"]
    with pytest.raises(GenericError, match="invalid JSON"):
        _explained("nonsense")


def test_words_that_mean_nothing() -> None:
    with pytest.raises(GenericError):
        disks_of("big")
    with pytest.raises(GenericError, match=r"'a/b/c/d' is not of the form MAC\[/IP\[/LINK\]\]"):
        nics_of("a/b/c/d")


def test_what_was_not_submitted_is_kept_apart() -> None:
    result = {"jobs": [[True, 7], [False, "instance a cannot be moved: full"], [True, 8]]}
    assert split_submitted(result) == (
        [("part 1", 7), ("part 2", 8)],
        ["instance a cannot be moved: full"],
    )
    with pytest.raises(GenericError, match="cannot be moved: full"):
        submitted_jobs(result)
    assert split_submitted(None) == ([], [])
