"""Whom a daemon runs as."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.daemon import main
from ganeti.rapid.main import SPEC

RAPI = 64_002


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path))
    os.makedirs(found.data_dir)
    return found


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine with users for the daemons, on which we are root until we become another."""
    found: list[str] = []
    current = [0]

    def become(daemon: object) -> None:
        found.append("become")
        current[0] = RAPI

    monkeypatch.setattr(main.accounts, "has_accounts", lambda _paths: True)
    monkeypatch.setattr(main.accounts, "user_of", lambda _daemon: RAPI)
    monkeypatch.setattr(main.accounts, "settle", lambda _paths: found.append("settle"))
    monkeypatch.setattr(main.accounts, "become", become)
    monkeypatch.setattr(main.os, "geteuid", lambda: current[0])
    return found


def test_root_gives_files_to_their_owners_before_it_becomes_the_user(
    paths: Paths, calls: list[str]
) -> None:
    main._be_the_right_user(SPEC, paths)
    assert calls == ["settle", "become"]
    main._be_the_right_user(SPEC, paths)
    assert calls == ["settle", "become"], "it is the user already"


def test_another_user_is_refused(
    paths: Paths, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main.os, "geteuid", lambda: 1000)
    with pytest.raises(OpPrereqError, match=f"must run as user id {RAPI}, not 1000"):
        main._be_the_right_user(SPEC, paths)
    assert calls == []


def test_a_file_that_cannot_be_given_away_is_told(
    paths: Paths, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Mock(side_effect=OSError(30, "Read-only file system"))
    monkeypatch.setattr(main.accounts, "settle", broken)
    with pytest.raises(GenericError, match="users of the daemons: Read-only file system"):
        main._be_the_right_user(SPEC, paths)
    assert calls == []


def test_a_virtual_node_without_such_users_takes_anybody(
    paths: Paths, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main.accounts, "has_accounts", lambda _paths: False)
    main._be_the_right_user(SPEC, paths)
    assert calls == []
