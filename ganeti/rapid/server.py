"""Answers the requests of the remote API: parse, find the user, decide, ask LuxiD, answer, log.

Source: rapi.json.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ganeti.base import metrics
from ganeti.base.complaints import Complaints
from ganeti.base.errors import GenericError
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.daemon.audit import ACCEPTED, REFUSED, AuditLog, Entry
from ganeti.daemon.context import DaemonContext
from ganeti.daemon.log import FileHandler
from ganeti.daemon.tally import Tally
from ganeti.opcodes.values import Version
from ganeti.protocol.luxi import ConsoleWay, LuxiCalls, Rules
from ganeti.protocol.rapi.jobs import Inputs, Submission, Wire
from ganeti.protocol.rapi.pages import BOOK
from ganeti.protocol.rapi.routes import (
    BackupSchedule,
    BookPage,
    ByJob,
    ConsoleSocket,
    ConsoleTicket,
    Constant,
    Counts,
    Document,
    Identity,
    Ours,
    Question,
    Room,
    Route,
    TokenChange,
    Usage,
    Users,
)
from ganeti.protocol.rapi.values import HttpProblem, as_problem, problem_body
from ganeti.rapid import planning
from ganeti.rapid.access import Access, Permission
from ganeti.rapid.access_changes import AccessChanges
from ganeti.rapid.backup_schedule import backup_schedule
from ganeti.rapid.book import FIRST, Book
from ganeti.rapid.consoles import TICKET_S, Consoles
from ganeti.rapid.counting import RoomCounts
from ganeti.rapid.luxi_pool import InstanceLists, LuxiPool
from ganeti.rapid.turns import OpenJobs
from ganeti.rapid.usage import usage
from ganeti.rapid.visibility import Visibility
from ganeti.system import clock
from ganeti.transport.accepting import origin_of
from ganeti.transport.flow import canceled_by
from ganeti.transport.http_message import HttpRequest, HttpResponse

logger = logging.getLogger(__name__)

_ERRORS: Final = 400  # this status and all above it
_CLIENT_GONE: Final = 499  # never sent; counted, and in the audit log
_ETAG_BYTES: Final = 16
_PAGE_HEADERS: Final = {
    "Cache-Control": "no-cache",  # keep it, and ask each time whether it is still the same
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

Documents = Mapping[str, Callable[[], bytes]]
"""Makes of the documents that routes name."""


def refuse(status: int, text: str) -> HttpResponse:
    """Return an error answer of the remote API."""
    return HttpResponse(status, problem_body(status, text))


def _answer_of(problem: HttpProblem) -> HttpResponse:
    body = problem_body(problem.status, problem.message)
    return HttpResponse(problem.status, body, headers=problem.headers)


class RapiServer:
    """Made for `ganeti.transport.http_server`."""

    def __init__(
        self, luxi: LuxiPool, access: Access, documents: Documents, root: str, audit: AuditLog
    ) -> None:
        self._luxi = luxi
        self._audit = audit
        self._instances = InstanceLists(luxi)
        self._consoles = Consoles(luxi.ask)
        self._visibility = Visibility(luxi)
        self._visible = {
            "/2/instances": self._visibility.instances,
            "/2/jobs": self._visibility.jobs,
        }
        self._access = access
        self._changes = AccessChanges(access, luxi.ask)
        self._documents = documents
        self._made: dict[str, bytes] = {}
        self._open_jobs = OpenJobs(luxi.ask)
        self._rooms = RoomCounts(luxi, root)
        self._complaints = Complaints()
        self._book = Book()
        self._tally = Tally(
            metrics.RAPI_REQUESTS, metrics.RAPI_REQUESTS_SECONDS, metrics.RAPI_REQUEST_S
        )

    def authorize(self, request: HttpRequest) -> HttpResponse | None:
        """Refuse a body that nobody would look at, before it is there."""
        if not planning.has_body(request):
            return None
        try:
            target = planning.find_target(request)
            planning.check_head(target, request)
            self._access.check_named(request.headers.get("authorization"), target.route)
        except HttpProblem as problem:
            return self._note(request, _answer_of(problem))
        return None

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer one request; who hangs up is no longer worked for, unless something changes."""
        begun_s = clock.monotonic()
        gone = request.watch_client() if request.watch_client is not None else None
        try:
            response = await self._answer(request, gone)
        except _ClientGone:
            response = HttpResponse(_CLIENT_GONE)
        except GenericError as err:
            problem = as_problem(err)
            if problem.status >= 500 and problem is not err:
                self._complain(request, err.message)
            response = _answer_of(problem)
        return self._note(request, response, clock.monotonic() - begun_s)

    def _complain(self, request: HttpRequest, text: str) -> None:
        origin = origin_of(request.client_address)
        ending = self._complaints.ending(origin, clock.monotonic())
        if ending is not None:
            path = request.path[:_TARGET_LENGTH_MAX]
            logger.warning("%s %s: %s%s", request.method, path, text, ending)

    def _note(
        self, request: HttpRequest, response: HttpResponse, seconds: float = 0.0
    ) -> HttpResponse:
        """Count an answer, and write it down if the request was to change something."""
        status = str(response.status)
        try:
            route = planning.find_target(request).route
        except HttpProblem:  # there is no such resource, or not with that method
            self._tally.add(("other", "other", status), seconds)
            return response
        self._tally.add((route.method, route.path, status), seconds)
        submits = isinstance(route.action, Submission)
        if submits or _changes_something(route):
            is_fine = response.status < _ERRORS
            entry = Entry(
                daemon="ganeti-rapi",
                user=request.user,
                address=request.client_address,
                what=f"{request.method} {request.path[:_TARGET_LENGTH_MAX]}",
                job=int(response.body) if is_fine and submits else 0,
                outcome=ACCEPTED if is_fine else REFUSED,
                status=response.status,
            )
            self._audit.write(entry)
        return response

    async def _answer(
        self, request: HttpRequest, gone: asyncio.Future[None] | None
    ) -> HttpResponse:
        target = planning.find_target(request)
        planning.check_head(target, request)
        route = target.route
        if route.path == "/" and "text/html" in request.headers.get("accept", ""):
            return HttpResponse(302, headers={"Location": "/ui/", "Vary": "Accept"})  # a browser
        if isinstance(route.action, ConsoleSocket):
            return self._consoles.open(request)
        authorization = request.headers.get("authorization")
        with _unless(gone):
            user = await self._access.user_of(authorization, route, request.client_address)
        request.user = user.name if user is not None else ""
        if self._access.goes_by_roles(user, route):
            target = await self._visibility.named_in_full(target)
        permission = self._access.permission(user, route, target.path)
        inputs = planning.read_inputs(target, request)
        planning.check_conditions(route, request)
        kind, policy = route.content_type, ""
        if isinstance(route.action, BookPage):
            name = "/".join(target.values.values())
            if not name:
                return HttpResponse(302, headers={"Location": f"{BOOK}/{FIRST}"})
            body, kind, policy = self._book.page(name)
        else:
            with _unless(None if _changes_something(route) else gone):
                body = await self._perform(target, inputs, permission, request)
        headers: dict[str, str] = {}
        if route.shows_version or route.has_whole_tag:
            tag = _tag_of(route, body)
            headers["ETag"] = tag
            planning.check_tag(request.headers.get("if-match", ""), tag, "It")
            if route.has_whole_tag and _matches(request.headers.get("if-none-match", ""), tag):
                return HttpResponse(304, content_type=kind, headers=headers)
        if isinstance(route.action, Document):
            policy = route.action.policy
        if policy:
            headers |= {**_PAGE_HEADERS, "Content-Security-Policy": policy}
        return HttpResponse(200, body, kind, headers)

    async def _perform(
        self, target: planning.Target, inputs: Inputs, permission: Permission, request: HttpRequest
    ) -> bytes:
        """Carry out the request, and return the body of the answer."""
        action = target.route.action
        if isinstance(action, Submission):
            return await self._submit(target, inputs, permission, request)
        if isinstance(action, Constant):
            return action.body + b"\n"
        if isinstance(action, Document):
            return self._document(action.name)
        if isinstance(action, Counts):
            return self._tally.answer().body
        if isinstance(action, Identity):
            return dumps(self._access.identity(request.user)) + b"\n"
        if isinstance(action, ByJob):
            return await self._ask_by_job(action, inputs, request)
        if isinstance(action, Question):
            return await self._ask(target, action, inputs, permission)
        if permission.grants and not _is_about_oneself(target):
            await self._visibility.check(permission.grants, target)
        if isinstance(action, Room):
            return await self._rooms.count(inputs.query) + b"\n"
        return await self._answer_ours(action, inputs, request) + b"\n"

    async def _answer_ours(self, action: Ours, inputs: Inputs, request: HttpRequest) -> bytes:
        """Answer what LuxiD does not know, to a user who may ask for it."""
        assert not isinstance(action, ConsoleSocket | BookPage), "these are answered elsewhere"
        if isinstance(action, Usage):
            return await usage(self._luxi.ask, inputs.path)
        if isinstance(action, BackupSchedule):
            return await backup_schedule(self._luxi.ask)
        if isinstance(action, ConsoleTicket):
            way = inputs.query.get("way") or ConsoleWay.SERIAL
            tickets = self._consoles.tickets
            word = tickets.give(request.user, inputs.path["instance"], ConsoleWay(way))
            return dumps({"ticket": word, "seconds": TICKET_S})
        if isinstance(action, Users):
            return dumps(self._access.everybody())
        authorization = request.headers.get("authorization", "")
        return await self._changes.carry_out(action, inputs, request.user, authorization)

    async def _submit(
        self, target: planning.Target, inputs: Inputs, permission: Permission, request: HttpRequest
    ) -> bytes:
        opcodes = planning.job_of(
            target, inputs, planning.reason_of(request), clock.now_ns(), request.user
        )
        if permission.grants:
            await self._visibility.check_submission(permission.grants, opcodes)
        wanted = request.headers.get("if-match", "").strip()
        if wanted:
            version = await self._expected_version(target, wanted)
            opcodes[0].setdefault("expected_version", str(version))
        if target.route.access or self._access.may_change(request.user):
            job_id = bytes(await self._luxi.ask("SubmitJob", [opcodes]))
        else:
            job_id = await self._open_jobs.submit(opcodes, origin_of(request.client_address))
        return job_id + b"\n"

    async def _expected_version(self, target: planning.Target, wanted: str) -> Version:
        """Return the version of the object that a change is about, if the client wants that one.

        The job looks again once it has its locks.

        Raises:
            HttpProblem: 412 or 404.
        """
        about = target.route.about
        name = target.values.get(about, "")
        question = planning.version_question(about, name)
        version = planning.version_in(about, bytes(await self._luxi.ask(*question)), name)
        planning.check_tag(wanted, version.tag, f"{about.capitalize()} {name}")
        return version

    async def _ask(
        self, target: planning.Target, action: Question, inputs: Inputs, permission: Permission
    ) -> bytes:
        path, grants = target.route.path, permission.grants
        if grants and path in self._visible and not inputs.query.get("lock"):
            return await self._visible[path](grants, action, inputs) + b"\n"
        if grants:
            await self._visibility.check(grants, target)
        if path == "/2/instances" and inputs.query.get("bulk") and not inputs.query.get("lock"):
            found = await self._instances.all(copies=bool(inputs.query.get("copies")))
            if found is not None:
                return found
        answer = await self._luxi.ask(action.method, action.args(inputs))
        return action.shape(answer, inputs) + b"\n"

    def _document(self, name: str) -> bytes:
        if name not in self._made:
            self._made[name] = self._documents[name]()
        return self._made[name]

    async def _ask_by_job(self, action: ByJob, inputs: Inputs, request: HttpRequest) -> bytes:
        opcode: Wire = {**action.opcode, "reason": [["gnt:library:rlib2", "", clock.now_ns()]]}
        result = await self._open_jobs.result(opcode, origin_of(request.client_address))
        return action.shape(result, inputs) + b"\n"


def _changes_something(route: Route) -> bool:
    if isinstance(route.action, Question):  # clients put some because a GET has no body
        rules: Rules = LuxiCalls.calls[route.action.method].rules
        return rules.changes
    return route.method != "GET" or bool(isinstance(route.action, Submission) and route.access)


class _ClientGone(Exception):
    """Nobody waits for the answer any more."""


@contextlib.contextmanager
def _unless(gone: asyncio.Future[None] | None) -> Iterator[None]:
    """Break off a block once the client is gone.

    Raises:
        _ClientGone: that is so.
    """
    if gone is None:
        yield
        return
    try:
        with canceled_by(gone):
            yield
    except asyncio.CancelledError as err:
        if not gone.done():
            raise  # the daemon ends
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        raise _ClientGone from err
    if gone.done():  # and the cancellation may come yet: nothing is begun
        raise _ClientGone


def _is_about_oneself(target: planning.Target) -> bool:
    """Tell whether a request is about tokens of the user who sends it."""
    return isinstance(target.route.action, TokenChange) and "user" not in target.values


def _tag_of(route: Route, body: bytes) -> str:
    """Return the tag of an answer: the version of its object, or a digest of all of it."""
    if route.shows_version:
        return loads_as(Version, body).tag
    return f'"{hashlib.blake2b(body, digest_size=_ETAG_BYTES).hexdigest()}"'


def _matches(header: str, tag: str) -> bool:
    """Tell whether a client has the answer already (RFC 9110, 13.1.2)."""
    words = [word.removeprefix("W/") for word in planning.tags_in(header)]
    return tag in words or words == ["*"]


# The log of requests, in the common log format that web servers write.

_TARGET_LENGTH_MAX: Final = 2048


class AccessLog:
    """Writes a line for each answer; the file may be rotated away."""

    def __init__(self, paths: Paths, context: DaemonContext) -> None:
        handler = FileHandler(f"{paths.log_dir}/rapi-access.log")
        handler.setFormatter(logging.Formatter("%(message)s"))
        context.on_reload.append(handler.reopen)
        self._handler = handler

    def on_answered(
        self, request: HttpRequest | None, address: str, response: HttpResponse
    ) -> None:
        """Write one line."""
        line = access_line(request, address, response, clock.now())
        self._handler.handle(logging.makeLogRecord({"msg": line}))


def access_line(
    request: HttpRequest | None, address: str, response: HttpResponse, now: float
) -> str:
    """Return the line of one answer; a request that could not be read has none of its words."""
    line, user = "-", "-"
    if request is not None:
        target = _quoted(request.target[:_TARGET_LENGTH_MAX])
        line = f"{request.method} {target} HTTP/{request.version}"
        user = _quoted(request.user).replace(" ", "_") or "-"
    stamp = time.strftime("%d/%b/%Y:%H:%M:%S %z", time.localtime(now))
    return f'{address} - {user} [{stamp}] "{line}" {response.status} {len(response.body)}'


def _quoted(text: str) -> str:
    """Return text that cannot pass for another part of the line."""
    return text.encode("unicode_escape").decode("ascii").replace('"', "%22")
