"""Tests of ganeti/daemon/users.py: whose users a daemon does not answer."""

from __future__ import annotations

import pwd
from types import SimpleNamespace

import pytest

from ganeti.base.daemons import ASKING_LUXID
from ganeti.daemon.users import strangers


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ({}, set()),
        ({"root": 0, "gnt-masterd": 1, "gnt-rapi": 2, "gnt-confd": 3, "gnt-metad": 4}, {3, 4}),
        ({"root": 0, "gnt-masterd": 1, "gnt-rapi": 1, "gnt-confd": 1, "gnt-metad": 4}, {4}),
    ],
)
def test_daemons_that_speak_with_anybody_do_not_ask_luxid(
    there: dict[str, int], expected: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pwd, "getpwnam", lambda name: SimpleNamespace(pw_uid=there[name]))
    assert strangers(ASKING_LUXID) == expected
