"""Tests of tokens that users make for themselves: ganeti/rapid/tokens.py."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.protocol.rapi.values import HttpProblem
from ganeti.rapid import tokens
from ganeti.rapid.access import Access
from ganeti.rapid.tokens import TokenChanges


class Luxi:
    """Takes jobs, whose status is what is set here."""

    def __init__(self) -> None:
        self.jobs: list[Any] = []
        self.status = "queued"
        self.is_dead = False

    async def ask(self, method: str, args: list[object]) -> Raw:
        if self.is_dead:
            raise GenericError("nobody answers")
        if method == "QueryJobs":
            return Raw(json.dumps([[self.status]]).encode())
        self.jobs.append(args)
        return Raw(str(len(self.jobs)).encode())


@pytest.fixture
def luxi() -> Luxi:
    return Luxi()


@pytest.fixture
def access(tmp_path: Path) -> Access:
    found = Access(Paths(str(tmp_path)), always=False)
    found.reload()
    return found


@pytest.fixture
def changes(access: Access, luxi: Luxi) -> TokenChanges:
    return TokenChanges(access, luxi.ask)


def make(changes: TokenChanges, user: str = "joe") -> Any:
    return json.loads(asyncio.run(changes.add(user, 1, "Basic x")))


def test_a_job_that_has_not_begun_tells_of_the_next_token_too(
    changes: TokenChanges, luxi: Luxi
) -> None:
    assert [make(changes)["job"] for _ in range(3)] == [1, 1, 1]
    luxi.status = "running"
    assert make(changes)["job"] == 2
    assert [[op["OP_ID"] for op in ops] for [ops] in luxi.jobs] == [["OP_CLUSTER_REDIST_CONF"]] * 2
    assert luxi.jobs[0][0][0]["reason"][0][1] == "user joe"


def test_without_luxid_the_token_is_made_and_no_job(
    changes: TokenChanges, luxi: Luxi, access: Access
) -> None:
    luxi.is_dead = True
    token = make(changes)
    assert token["job"] is None
    [found] = access.tokens_of("joe")
    assert found["id"] == token["token"].partition(".")[0]
    assert asyncio.run(changes.remove("joe", found["id"], "joe")) == b"null"
    assert access.tokens_of("joe") == []


def test_the_tokens_of_one_user_have_a_limit(
    changes: TokenChanges, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "TOKENS_MAX", 3)
    for _ in range(3):
        make(changes)
    with pytest.raises(HttpProblem, match="3 tokens of joe"):
        make(changes)
    make(changes, "ann")
    assert len(access.tokens_of("joe")) == 3
