"""Tests of ganeti/daemon/users.py: whose users a daemon does not answer, and their names."""

from __future__ import annotations

import asyncio
import os
import pwd
import threading
from types import SimpleNamespace

import pytest

from ganeti.base.daemons import ASKING_LUXID
from ganeti.daemon import users
from ganeti.daemon.users import UserNames, strangers, user_name

DEADLINE_S = 60


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


def test_a_user_without_a_name_has_a_number() -> None:
    assert user_name(os.getuid()) == pwd.getpwuid(os.getuid()).pw_name
    assert user_name(1 << 30) == str(1 << 30)


class SlowService:
    """Knows the name of every user, and tells it when it is allowed to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []
        self.may_answer = threading.Event()
        monkeypatch.setattr(pwd, "getpwuid", self._find)

    def _find(self, uid: int) -> SimpleNamespace:
        self.asked.append(uid)
        assert self.may_answer.wait(DEADLINE_S)
        return SimpleNamespace(pw_name=f"user{uid}")


def test_a_number_stands_for_a_name_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "NAME_S_MAX", 0.05)
    service = SlowService(monkeypatch)

    async def ask() -> list[str]:
        names = UserNames()
        try:
            both = await asyncio.gather(names.name_of(7), names.name_of(7))
            late = await names.name_of(7)
        finally:
            service.may_answer.set()
        async with asyncio.timeout(DEADLINE_S):
            while await names.name_of(7) == "7":  # noqa: ASYNC110 - a thread brings it
                await asyncio.sleep(0.001)
        return [*both, late, await names.name_of(7)]

    assert asyncio.run(ask()) == ["7", "7", "7", "user7"]
    assert service.asked == [7]


def test_nobody_else_waits_while_a_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    service = SlowService(monkeypatch)

    async def ask() -> str:
        name = asyncio.ensure_future(UserNames().name_of(7))
        await asyncio.sleep(0.01)
        assert not name.done()
        service.may_answer.set()
        return await name

    assert asyncio.run(ask()) == "user7"


def test_names_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "_USERS_MAX", 2)
    service = SlowService(monkeypatch)
    service.may_answer.set()

    async def ask() -> None:
        names = UserNames()
        for uid in (1, 2, 3, 2, 1):
            assert await names.name_of(uid) == f"user{uid}"

    asyncio.run(ask())
    assert service.asked == [1, 2, 3, 1]
