"""Tests of ganeti/rapid/access.py: who asks, and what that one may do."""

from __future__ import annotations

import asyncio
import base64
import threading
import time
from pathlib import Path

import pytest
from fakes.loop import DEADLINE_S, run
from fakes.rapi import SALT, write_users
from fakes.waiting import until

from ganeti.base.paths import Paths
from ganeti.protocol.rapi import users as rapi_users
from ganeti.protocol.rapi.table import TABLE
from ganeti.protocol.rapi.users import Grant, Token, User
from ganeti.protocol.rapi.values import HttpProblem
from ganeti.rapid import access as module
from ganeti.rapid.access import Access
from ganeti.system import files
from ganeti.transport.accepting import origin_of

OPEN = TABLE.resources["/2/info"].routes["GET"]
WRITING = TABLE.resources["/2/modify"].routes["PUT"]


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setattr(module, "WRONG_PASSWORD_S", 0.05)
    found = Paths(str(tmp_path))
    write_users(found, "ann pä:ss write\nbob secret role:webs\ntok {NONE}\n")
    return found


def made(paths: Paths, *, always: bool = False) -> Access:
    found = Access(paths, always=always)
    found.reload()
    return found


@pytest.mark.shows("2.0/rapi-security/basic")
def test_who_gives_the_right_password_is_known(paths: Paths) -> None:
    async def test() -> None:
        access = made(paths)
        for _ in range(2):  # checked, then remembered
            user = await access.user_of(basic("ann", "pä:ss"), WRITING)
            assert user is not None
            assert user.name == "ann"

    run(test())


@pytest.mark.parametrize(
    "header",
    [
        basic("ann", "wrong"),
        basic("tok", ""),
        basic("nobody", "secret"),
        "Basic !!!",
        "Basic",
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Bearer x.y",
        "Digest x",
        "",
    ],
)
def test_who_does_not_is_refused_and_not_at_once(paths: Paths, header: str) -> None:
    async def test() -> None:
        began = time.monotonic()
        with pytest.raises(HttpProblem) as found:
            await made(paths).user_of(header, OPEN)
        assert found.value.status == 401
        assert "WWW-Authenticate" in found.value.headers
        assert time.monotonic() - began >= 0.05

    run(test())


def test_a_remembered_password_is_forgotten_with_the_file(paths: Paths) -> None:
    async def test() -> None:
        access = made(paths)
        assert await access.user_of(basic("bob", "secret"), OPEN)
        write_users(paths, f"bob {rapi_users.hash_password('new', SALT)}\n")
        access.reload()
        with pytest.raises(HttpProblem):
            await access.user_of(basic("bob", "secret"), OPEN)
        assert await access.user_of(basic("bob", "new"), OPEN)

    run(test())


def test_many_at_once_are_checked_one_after_the_other(paths: Paths) -> None:
    async def test() -> None:
        access = made(paths)
        headers = [basic("bob", "secret"), basic("bob", "wrong")] * 3
        found = await asyncio.gather(
            *(access.user_of(header, OPEN) for header in headers), return_exceptions=True
        )
        assert [isinstance(each, User) for each in found] == [True, False] * 3

    run(test())


def test_many_wrong_passwords_of_others_delay_a_first_login_by_one_check(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def is_password_of(_user: object, _name: str, password: str) -> bool:
        checked.append(password)
        return password == "secret"

    monkeypatch.setattr(rapi_users, "is_password_of", is_password_of)

    async def test() -> None:
        access = made(paths)
        wrong = [
            asyncio.ensure_future(access.user_of(basic("bob", "wrong"), OPEN, "192.0.2.1"))
            for _ in range(200)
        ]
        await asyncio.sleep(0)
        assert await access.user_of(basic("bob", "secret"), OPEN, "192.0.2.2")
        assert checked.count("wrong") <= 3
        await asyncio.gather(*wrong, return_exceptions=True)

    run(test())


def test_checks_whose_clients_are_gone_end_one_after_the_other_too(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = list[str](), threading.Event()

    def is_password_of(_user: object, _name: str, password: str) -> bool:
        begun.append(password)
        may_end.wait(DEADLINE_S)
        return False

    monkeypatch.setattr(rapi_users, "is_password_of", is_password_of)

    async def test() -> None:
        access = made(paths)
        words = [basic("bob", str(number)) for number in range(3)]
        asked = [asyncio.ensure_future(access.user_of(word, OPEN, "192.0.2.1")) for word in words]
        await until(lambda: bool(begun))
        for each in asked[:2]:
            each.cancel()
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert begun == ["0"]
        may_end.set()
        await asyncio.gather(*asked, return_exceptions=True)
        assert begun == ["0", "2"]

    run(test())


def test_so_many_of_one_address_wait_for_a_check(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rapi_users, "is_password_of", lambda *_words: False)

    async def test() -> None:
        access = made(paths)
        found = await asyncio.gather(
            *(access.user_of(basic("bob", "x"), OPEN, "192.0.2.1") for _ in range(120)),
            access.user_of(basic("bob", "x"), OPEN, "192.0.2.2"),
            return_exceptions=True,
        )
        statuses = [each.status for each in found if isinstance(each, HttpProblem)]
        assert (statuses.count(401), statuses.count(503), statuses[-1]) == (102, 19, 401)

    run(test())


@pytest.mark.shows("backend/rapi/reads-free")
def test_nobody_is_asked_unless_there_is_a_reason(paths: Paths) -> None:
    async def test() -> None:
        assert await made(paths).user_of(None, OPEN) is None
        for access, route in ((made(paths), WRITING), (made(paths, always=True), OPEN)):
            with pytest.raises(HttpProblem) as found:
                await access.user_of(None, route)
            assert found.value.status == 401

    run(test())


def test_a_token_stands_for_its_user(paths: Paths) -> None:
    token = Token("t1", "tok", rapi_users.token_digest("secret"))
    files.write_atomic(paths.rapi_tokens, rapi_users.token_line(token).encode())

    async def test() -> None:
        user = await made(paths).user_of("Bearer t1.secret", WRITING)
        assert user is not None
        assert user.name == "tok"

    run(test())


def test_rights_and_roles_decide(paths: Paths) -> None:
    grant = Grant(("write",), ("/2/modify",))
    files.write_atomic(paths.rapi_roles, rapi_users.format_roles({"webs": [grant]}))

    async def test() -> None:
        access = made(paths)
        ann = await access.user_of(basic("ann", "pä:ss"), WRITING)
        bob = await access.user_of(basic("bob", "secret"), WRITING)
        for user in (ann, bob):
            assert not access.permission(user, WRITING, "/2/modify").grants
        assert not access.permission(None, OPEN, "/2/info").grants
        for path, route in (("/2/info", OPEN), ("/2/tags", WRITING)):
            with pytest.raises(HttpProblem) as found:
                access.permission(bob, route, path)
            assert found.value.status == 403

    run(test())


@pytest.mark.parametrize("options", ["read,role:webs", "write,role:webs"])
def test_a_role_takes_nothing_from_who_has_a_right_on_everything(
    paths: Paths, options: str
) -> None:
    write_users(paths, f"ann secret {options}\n")
    grant = Grant(("read", "write"), names=("web*",))
    files.write_atomic(paths.rapi_roles, rapi_users.format_roles({"webs": [grant]}))

    async def test() -> None:
        access = made(paths)
        user = await access.user_of(basic("ann", "secret"), OPEN)
        assert not access.goes_by_roles(user, OPEN)
        assert not access.permission(user, OPEN, "/2/info").grants
        is_limited = "write" not in options
        assert access.goes_by_roles(user, WRITING) is is_limited
        assert bool(access.permission(user, WRITING, "/2/modify").grants) is is_limited

    run(test())


def test_roles_that_cannot_be_read_grant_nothing(
    paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    files.write_atomic(paths.rapi_roles, b"{rubbish")

    async def test() -> None:
        access = made(paths)
        bob = await access.user_of(basic("bob", "secret"), OPEN)
        with pytest.raises(HttpProblem):
            access.permission(bob, OPEN, "/2/info")

    run(test())
    assert "rapi/roles" in caplog.text


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("?", "?"),
    ],
)
def test_who_can_take_many_addresses_is_one(address: str, origin: str) -> None:
    assert origin_of(address) == origin
