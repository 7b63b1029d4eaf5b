"""Tests of ganeti/rapid/server.py."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from fakes.loop import run
from fakes.waiting import until
from msgspec import Raw

from ganeti.base.paths import Paths
from ganeti.base.text import name_matches
from ganeti.daemon.audit import AuditLog
from ganeti.protocol.rapi.users import Grant, format_roles
from ganeti.rapid import counting
from ganeti.rapid.access import Access
from ganeti.rapid.luxi_pool import LuxiPool
from ganeti.rapid.server import RapiServer, access_line
from ganeti.transport.http_message import HttpRequest, HttpResponse

LINE = re.compile(
    r'(\S+) - (\S+) \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] "([^"]*)" (\d{3}) (\d+)'
)


@pytest.mark.shows("2.0/logging/rapi-access")
def test_a_line_has_the_common_log_format() -> None:
    request = HttpRequest("GET", "/2/info", {}, b"", None, "192.0.2.1", "1.1", "joe")
    line = access_line(request, "192.0.2.1", HttpResponse(200, b"null"), 0.0)
    match = LINE.fullmatch(line)
    assert match is not None
    assert match.groups() == ("192.0.2.1", "joe", "GET /2/info HTTP/1.1", "200", "4")


def test_what_a_client_sends_stays_inside_its_part_of_the_line() -> None:
    target, user = '/" 200 1\n"\xe9', 'joe" x'
    request = HttpRequest("GET", target, {}, b"", None, "192.0.2.1", "1.0", user)
    assert LINE.fullmatch(access_line(request, "192.0.2.1", HttpResponse(404), 0.0))
    assert LINE.fullmatch(access_line(None, "192.0.2.1", HttpResponse(400), 0.0))


class NoGrowth(LuxiPool):
    """A master daemon that only knows of a cluster that does not grow."""

    async def ask(self, method: str, args: object) -> bytes:  # type: ignore[override]
        assert method == "QueryGrowth"
        return b"[]"


def test_a_count_of_the_room_that_fails_or_lasts_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths(str(tmp_path))
    audit = AuditLog(str(tmp_path / "audit.log"))
    rapi = RapiServer(NoGrowth(paths, 1), Access(paths, always=False), {}, paths.root, audit)
    request = HttpRequest("GET", "/2/capacity", {}, b"", None, "192.0.2.1", "1.1")
    failed = asyncio.run(rapi.handle(request))
    assert failed.status >= 500
    assert paths.query_socket.encode() in failed.body
    monkeypatch.setattr(counting, "TIMEOUT_S", 0.01)
    late = asyncio.run(rapi.handle(request))
    assert late.status == 504
    assert "did not end in time" in json.loads(late.body)["message"]


def test_errors_of_one_address_are_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = Paths(str(tmp_path))
    audit = AuditLog(str(tmp_path / "audit.log"))
    rapi = RapiServer(LuxiPool(paths, 1), Access(paths, always=False), {}, paths.root, audit)
    for address in ["192.0.2.1"] * 5 + ["192.0.2.2"]:
        request = HttpRequest("GET", "/2/info", {}, b"", None, address, "1.1")
        assert asyncio.run(rapi.handle(request)).status == 502
    assert len([text for text in caplog.messages if text.startswith("GET /2/info: ")]) == 2


def test_a_browser_that_asks_for_nothing_is_led_to_the_dashboard(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    audit = AuditLog(str(tmp_path / "audit.log"))
    rapi = RapiServer(NoGrowth(paths, 1), Access(paths, always=False), {}, paths.root, audit)
    for accepts, status in (("text/html,*/*;q=0.8", 302), ("*/*", 200), ("", 200)):
        headers = {"accept": accepts}
        request = HttpRequest("GET", "/", headers, b"", None, "192.0.2.1", "1.1")
        answer = asyncio.run(rapi.handle(request))
        assert answer.status == status
        assert answer.headers.get("Location") == ("/ui/" if status == 302 else None)


class Taking(LuxiPool):
    """A master daemon that takes every job."""

    async def ask(self, method: str, args: object) -> bytes:  # type: ignore[override]
        return b"17"


class WithInstances(LuxiPool):
    """A master daemon that knows two instances, and takes every job."""

    def __init__(self, paths: Paths) -> None:
        super().__init__(paths, 1)
        self.submitted: list[str] = []

    async def ask(self, method: str, args: list[Any]) -> Raw:
        if method == "QueryInstances":
            known = [("web1.example.com", "uuid-of-web1"), ("db1.example.com", "web-like-uuid")]
            [wanted] = args[0]
            rows = [
                (name, uuid, [])
                for name, uuid in known
                if wanted == uuid or name_matches(wanted, name)
            ]
            return Raw(json.dumps(rows).encode())
        assert method == "SubmitJob"
        self.submitted += [opcode["instance_name"] for opcode in args[0]]
        return Raw(b"17")


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("web1.example.com", {}, 200),
        ("web1", {}, 200),
        ("uuid-of-web1", {}, 200),
        ("web1", {"instance_uuid": "web-like-uuid"}, 400),
        ("web-like-uuid", {}, 403),
        ("db1", {}, 403),
    ],
)
def test_a_role_for_some_resources_reaches_no_other_instance_by_another_name(
    tmp_path: Path, name: str, body: dict[str, str], status: int
) -> None:
    paths = Paths(str(tmp_path))
    os.makedirs(paths.rapi_dir)
    Path(paths.rapi_users).write_text("ann secret role:webs\n")
    grant = Grant(("write",), ("/2/instances/web*/migrate",))
    Path(paths.rapi_roles).write_bytes(format_roles({"webs": [grant]}))
    access = Access(paths, always=False)
    access.reload()
    luxi = WithInstances(paths)
    rapi = RapiServer(luxi, access, {}, paths.root, AuditLog(str(tmp_path / "audit.log")))
    headers = {
        "authorization": "Basic " + base64.b64encode(b"ann:secret").decode(),
        "content-type": "application/json",
        "content-length": "9",
    }
    path, data = f"/2/instances/{name}/migrate", json.dumps(body).encode()
    request = HttpRequest("PUT", path, headers, data, None, "192.0.2.1", "1.1")
    assert asyncio.run(rapi.handle(request)).status == status
    assert luxi.submitted == (["web1.example.com"] if status == 200 else [])


class Slow(LuxiPool):
    """A master daemon that answers once it ``may_answer``."""

    def __init__(self, paths: Paths) -> None:
        super().__init__(paths, 1)
        self.asked: list[str] = []
        self.answered: list[str] = []
        self.may_answer = asyncio.Event()

    async def ask(self, method: str, args: list[Any]) -> Raw:
        self.asked.append(method)
        await self.may_answer.wait()
        self.answered.append(method)
        return Raw(b"17")


JOE = {"authorization": "Basic " + base64.b64encode(b"joe:secret").decode()}


def with_joe(tmp_path: Path) -> tuple[Slow, RapiServer]:
    """Return a server that knows a user who may change everything, and its slow master daemon."""
    paths = Paths(str(tmp_path))
    os.makedirs(paths.rapi_dir)
    Path(paths.rapi_users).write_text("joe secret write\n")
    access = Access(paths, always=False)
    access.reload()
    luxi, audit = Slow(paths), AuditLog(str(tmp_path / "audit.log"))
    return luxi, RapiServer(luxi, access, {}, paths.root, audit)


@pytest.mark.parametrize(
    ("method", "path", "asks", "is_ended"),
    [
        ("GET", "/2/info", "QueryClusterInfo", True),
        ("GET", "/2/jobs", "QueryJobs", True),
        ("PUT", "/2/query/node?fields=name", "Query", True),
        ("PUT", "/2/redistribute-config", "SubmitJob", False),
        ("POST", "/2/jobs/17/archive", "ArchiveJob", False),
    ],
)
def test_questions_end_when_their_client_hangs_up_and_changes_do_not(
    tmp_path: Path, method: str, path: str, asks: str, is_ended: bool
) -> None:

    async def test() -> None:
        luxi, rapi = with_joe(tmp_path)
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request = HttpRequest(method, path, JOE, b"", None, "192.0.2.1")
        request.watch_client = lambda: gone
        answer = asyncio.ensure_future(rapi.handle(request))
        await until(lambda: luxi.asked == [asks])
        gone.set_result(None)
        if not is_ended:
            await asyncio.sleep(0)
            luxi.may_answer.set()
        assert (await answer).status == (499 if is_ended else 200)
        assert luxi.answered == ([] if is_ended else [asks])

    run(test())
    noted = (tmp_path / "audit.log").read_text()
    assert bool(noted) is not is_ended  # changes are, and no questions


def test_who_hangs_up_before_the_password_is_checked_changes_nothing(tmp_path: Path) -> None:

    async def test() -> None:
        luxi, rapi = with_joe(tmp_path)
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        gone.set_result(None)
        request = HttpRequest("PUT", "/2/redistribute-config", JOE, b"", None, "192.0.2.1")
        request.watch_client = lambda: gone
        assert (await rapi.handle(request)).status == 499
        assert luxi.asked == []

    run(test())
    [entry] = (tmp_path / "audit.log").read_text().splitlines()
    assert (json.loads(entry)["outcome"], json.loads(entry)["status"]) == ("refused", 499)


class Endless(LuxiPool):
    """A master daemon whose jobs do not end."""

    def __init__(self, paths: Paths) -> None:
        super().__init__(paths, 1)
        self.count = 0

    async def ask(self, method: str, args: list[Any]) -> Raw:
        if method != "SubmitJob":
            await asyncio.Event().wait()
        self.count += 1
        return Raw(b"%d" % self.count)


def test_without_the_right_write_one_job_with_all_of_an_instance_runs_at_a_time(
    tmp_path: Path,
) -> None:
    paths = Paths(str(tmp_path))
    os.makedirs(paths.rapi_dir)
    Path(paths.rapi_users).write_text("joe secret write\nann secret read\n")
    access = Access(paths, always=False)
    access.reload()

    async def test() -> None:
        rapi = RapiServer(
            Endless(paths), access, {}, paths.root, AuditLog(str(tmp_path / "audit.log"))
        )

        async def ask(user: str, instance: str) -> bytes:
            words = base64.b64encode(f"{user}:secret".encode()).decode()
            headers = {"authorization": f"Basic {words}"} if user else {}
            path = f"/2/instances/{instance}/info"
            request = HttpRequest("GET", path, headers, b"", None, "192.0.2.1")
            return (await rapi.handle(request)).body

        assert await ask("", "web1") == b"1\n"
        assert await ask("ann", "web1") == b"1\n"
        waits = asyncio.ensure_future(ask("ann", "web2"))
        assert await ask("joe", "web2") == b"2\n"
        assert await ask("joe", "web2") == b"3\n"
        assert not waits.done()

    run(test())


def test_who_asks_for_a_change_is_in_the_audit_log(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    os.makedirs(paths.rapi_dir)
    Path(paths.rapi_users).write_text("joe secret write\n")
    audit = AuditLog(str(tmp_path / "audit.log"))
    access = Access(paths, always=False)
    access.reload()
    rapi = RapiServer(Taking(paths, 1), access, {}, paths.root, audit)
    right, wrong = (
        {"authorization": "Basic " + base64.b64encode(words).decode()}
        for words in (b"joe:secret", b"joe:guess")
    )
    for method, headers, path in (
        ("PUT", right, "/2/redistribute-config"),
        ("PUT", wrong, "/2/redistribute-config"),
        ("PUT", {}, "/2/redistribute-config"),
        ("GET", right, "/2/redistribute-config"),
        ("GET", right, "/2/version"),
        ("PUT", right, "/2/nothing"),
    ):
        request = HttpRequest(method, path, headers, b"", None, "192.0.2.1", "1.1")
        asyncio.run(rapi.handle(request))
    text = (tmp_path / "audit.log").read_text()
    assert "secret" not in text
    found = [json.loads(line) for line in text.splitlines()]
    assert [(line["user"], line["outcome"], line["status"]) for line in found] == [
        ("joe", "accepted", 200),
        ("", "refused", 401),
        ("", "refused", 401),
    ]
    assert found[0]["job"] == 17
    assert {(line["address"], line["what"]) for line in found} == {
        ("192.0.2.1", "PUT /2/redistribute-config")
    }
