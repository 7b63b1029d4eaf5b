"""Client of the remote API: for programs anywhere that know a cluster's address and a password.

It needs no daemon, file or setting of the machine it runs on.  `RapiClient.submit` sends a typed
opcode; every other route of the remote API is a method, made from the table of routes: the name is
the HTTP method and the path, so that ``GET /2/instances/{instance}/console`` is
``get_instance_console``.  Arguments left out are not sent, so that the server's default counts.

::

    with RapiClient("cluster.example.com", login=Password("jim", "secret")) as client:
        job_id = client.submit(OpInstanceStartup(instance_name="web.example.com"))
        client.wait_for_job(job_id, timeout_s=300)
        row = client.get_instance("web.example.com")

Source: rapi.json; RFC 7617, RFC 6750.
"""

from __future__ import annotations

import base64
import functools
import html
import keyword
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET

from ganeti.base.errors import GenericError, ProtocolError, TransportError
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.registry import OP_ID_KEY, encode_opcode
from ganeti.opcodes.values import Version
from ganeti.protocol.rapi.jobs import Submission
from ganeti.protocol.rapi.routes import Route
from ganeti.protocol.rapi.table import ROUTES
from ganeti.protocol.rapi.values import DEFAULT_PORT, REPEATED
from ganeti.system import clock
from ganeti.transport.curl_pool import CurlPool, CurlRequest, CurlResponse, TlsTrust

T = TypeVar("T")

ANSWER_TIMEOUT_S: Final = 60.0
WAIT_S: Final = 10.0  # a server answers "nothing changed" after that long
_SUCCESS: Final = "success"
FINAL_STATUSES: Final = frozenset({_SUCCESS, "error", "canceled"})
_TEXT_LENGTH_MAX: Final = 500  # of an answer that is none of the remote API


class Password(msgspec.Struct, frozen=True):
    """Authenticates by name and password."""

    user: str
    password: str

    @property
    def header(self) -> str:
        """The value of the header Authorization."""
        word = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return f"Basic {word}"

    def __repr__(self) -> str:
        return f"Password({self.user!r}, ***)"


class Token(msgspec.Struct, frozen=True):
    """Authenticates by a token."""

    token: str

    @property
    def header(self) -> str:
        """The value of the header Authorization."""
        return f"Bearer {self.token}"

    def __repr__(self) -> str:
        return "Token(***)"


class RapiRefusedError(GenericError):
    """The server answers with an error: its status, and the meaning of that."""

    def __init__(self, message: str, status: int, explanation: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.explanation = explanation


class LogEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry of a job's log; the time is seconds and microseconds since the epoch."""

    serial: int
    time: tuple[int, int]
    kind: str
    message: Any


class EndedJob(msgspec.Struct, frozen=True):
    """A job that has ended, with the results and statuses of its opcodes."""

    job_id: int
    status: str
    summaries: list[str]
    results: list[Any]
    statuses: list[str] = []


class _JobRow(msgspec.Struct):
    status: str
    summary: list[str] | None
    opresult: list[Any] | None
    opstatus: list[str] | None = None


class JobFailedError(GenericError):
    """A job did not end in success."""

    def __init__(self, job: EndedJob) -> None:
        reasons = failure_reason(job)
        named = f"Job {job.job_id} ({', '.join(job.summaries)})"
        super().__init__(f"{named} ended in {job.status}" + (f": {reasons}" if reasons else ""))
        self.job = job


def failure_reason(job: EndedJob) -> str:
    """Return the errors of a failed job as one line; "" if it was canceled before it began."""
    paired = zip_longest(job.results, job.statuses)
    wrong = [result for result, status in paired if status != _SUCCESS]
    return "; ".join(_reason(result) for result in wrong if result is not None)


class JobStillRunsError(GenericError):
    """A job did not end in time; it goes on."""


def _reason(result: Any) -> str:
    """Return the message of a result that is an error: ``[class, [message, ...]]``."""
    match result:
        case [str(), [str(message), *_]]:
            return message
        case _:
            return str(result)


def method_name(route: Route) -> str:
    """Return the name of a route's method; in a path of one thing the kind is singular.

    What belongs to the user who asks is ``own``: /2/user/tokens beside /2/users/{user}/tokens.
    """
    words: list[str] = []
    path = re.sub(r"^/2/user/", "own_", route.path).removeprefix("/2/")
    for part in path.strip("/").split("/"):
        if part.startswith("{"):
            words[-1] = words[-1].removesuffix("s") if part != "{os}" else words[-1]
        elif part.startswith("OP_"):
            words[-1] = "opcode"
            words.append(part.removeprefix("OP_").lower())
        else:
            words.append(re.sub(r"\W", "_", part))
    name = "_".join(words) or "root"
    return f"{route.method.lower()}_{'version_2' if route.path == '/2' else name}"


@functools.cache
def _routes() -> Mapping[str, Route]:
    return {method_name(route): route for route in ROUTES}


@functools.cache
def _routes_of(op_id: str) -> Sequence[tuple[Route, Submission]]:
    """Return the routes that submit any job of one opcode, those of 3.0 first."""
    return [
        (route, action)
        for route in ROUTES
        if isinstance(action := route.action, Submission)
        and action.op_ids == (op_id,)
        and (action.build is None or action.marks)
    ]


def request_of(
    opcode: OpCode,
) -> tuple[Route, Sequence[str], Mapping[str, object], Mapping[str, object]]:
    """Return how a job of one opcode is submitted: route, values in the path, query and body."""
    wire = encode_opcode(opcode)
    op_id = str(wire.pop(OP_ID_KEY))
    for field in msgspec.structs.fields(opcode):
        factory = field.default_factory
        default = field.default if factory is msgspec.NODEFAULT else factory()
        if field.name in wire and (wire[field.name] in (None, default) or field.name == "reason"):
            del wire[field.name]
    for route, action in _routes_of(op_id):
        given = {**dict.fromkeys(action.fixed), **wire}
        if any(
            (given.pop(name) or False) != (value or False) for name, value in action.fixed.items()
        ):
            continue
        values = [str(given.pop(action.from_path[name])) for name in route.placeholders]
        query = {each.name: given.pop(each.field, UNSET) for each in route.arguments}
        if route.takes_body or not given:
            names = {new: old for old, new in action.renames.items()}
            body = {names.get(name, name): value for name, value in given.items()}
            return route, values, query, {**action.marks, **body}
    raise AssertionError(f"no route submits {op_id}")


def _python_name(name: str) -> str:
    word = re.sub(r"\W", "_", name)
    return f"{word}_" if keyword.iskeyword(word) else word


class RapiClient:
    """Asks one server, over one connection that is kept.

    Raises, from each method that asks:
        RapiRefusedError: the server answers with an error status.
        TransportError: there is no answer; says whether the request may have been carried out.
        ProtocolError: the answer is not one of the remote API.
    """

    def __init__(
        self,
        address: str,
        port: int = DEFAULT_PORT,
        *,
        login: Password | Token | None = None,
        trust: TlsTrust | None = None,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        host = f"[{address}]" if ":" in address else address
        self._top = f"https://{host}:{port}"
        self._headers = () if login is None else (f"Authorization: {login.header}",)
        self._timeout_s = timeout_s
        self._pool = CurlPool(trust or TlsTrust())

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def submit(self, opcode: OpCode, *, reason: str = "") -> int:
        """Submit a job of one opcode; returns its id.  Defaults of parameters are not sent."""
        route, values, query, body = request_of(opcode)
        job_id: int = self._ask(route, values, {**query, **_because(reason)}, body)
        return job_id

    def read(self, kind: type[T], name: str, *values: str | int, **given: object) -> T:
        """Call the method of a route by its name, and return the answer as a type.

        Raises:
            ProtocolError: it is of another type.
        """
        answer = getattr(self, name)(*values, **given)
        try:
            return msgspec.convert(answer, kind)
        except msgspec.ValidationError as err:
            raise ProtocolError(f"{name}: the answer has an unexpected form: {err}") from err

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the method of a route: values in the path by place, the others by name.

        A body that is one text is the last value; ``reason`` says why a job is wanted, and
        ``if_match`` is the ETag that its object must still have: `tag_of` what was read.
        """
        route = _routes().get(name)
        if route is None:
            raise AttributeError(f"the remote API has nothing named {name!r}")
        return functools.partial(self._call, route)

    def _call(
        self,
        route: Route,
        *values: str | int,
        reason: str = "",
        if_match: str = "",
        **given: object,
    ) -> Any:
        in_path = len(route.placeholders)
        in_body = _names_in_body(route)
        arguments = {
            _python_name(each.name): each.name
            for each in route.arguments
            if each.name not in in_body
        }
        query = {arguments.pop(name): given.pop(name) for name in [*given] if name in arguments}
        if len(values) < in_path or (given and not route.takes_body):
            raise TypeError(
                f"{route.method} {route.path}: wrong arguments {values} {sorted(given)}"
            )
        marks = route.action.marks if isinstance(route.action, Submission) else {}
        body: object = {**marks, **given}
        if len(values) > in_path:
            [body] = values[in_path:]
        return self._ask(route, values[:in_path], {**query, **_because(reason)}, body, if_match)

    def wait_for_job(
        self,
        job_id: int,
        *,
        timeout_s: float | None = None,
        on_log: Callable[[LogEntry], None] | None = None,
    ) -> EndedJob:
        """Wait until a job has ended, and return its results; ``on_log`` gets its log as it grows.

        Raises:
            JobFailedError: it ended otherwise than in success.
            JobStillRunsError: it did not end in time.
        """
        deadline = None if timeout_s is None else clock.monotonic() + timeout_s
        for status, entries in self.job_changes(job_id):
            for entry in entries:
                if on_log is not None:
                    on_log(entry)
            if status in FINAL_STATUSES:
                break
            if deadline is not None and clock.monotonic() >= deadline:
                raise JobStillRunsError(f"Job {job_id} did not end within {timeout_s:g} s")
        return self.ended_job(job_id)

    def job_changes(
        self, job_id: int, *, after_entry: int | None = None
    ) -> Iterator[tuple[str, list[LogEntry]]]:
        """Yield a job's status and the new entries of its log, until it has ended.

        Something comes at least every `WAIT_S`, if only that nothing has changed.

        Args:
            after_entry: number of the last entry of the log that is known already.
        """
        info: list[Any] | None = None
        serial = after_entry
        while info is None or info[0] not in FINAL_STATUSES:
            change = self.get_job_wait(
                job_id, fields=["status"], previous_job_info=info, previous_log_serial=serial
            )
            entries: list[LogEntry] = []
            if change is not None:
                info, entries = change["job_info"], _log_entries(change)
            if entries:
                serial = entries[-1].serial
            yield (info[0] if info else ""), entries

    def ended_job(self, job_id: int) -> EndedJob:
        """Return the results of a job that has ended.

        Raises:
            JobFailedError: it ended otherwise than in success.
        """
        row = self.read(_JobRow, "get_job", job_id)
        results, statuses = row.opresult or [], row.opstatus or []
        job = EndedJob(job_id, row.status, row.summary or [], results, statuses)
        if job.status != _SUCCESS:
            raise JobFailedError(job)
        return job

    def _ask(
        self,
        route: Route,
        values: Sequence[str | int],
        query: Mapping[str, object],
        body: object,
        if_match: str = "",
    ) -> Any:
        """Send one request and return the answer, decoded if it is JSON."""
        repeated = {each.name for each in route.arguments if each.type == REPEATED}
        path = re.sub(r"{\w+}", "{}", route.path)
        where = path.format(*(quote(str(value), safe="") for value in values))
        request = CurlRequest(
            self._top + where + encoded_query(query, repeated),
            encoded_body(body),
            self._timeout_s,
            (*self._headers, *([f"If-Match: {if_match}"] if if_match else ())),
            repeatable=route.method == "GET",
            method=route.method,
        )
        [response] = self._pool.perform([request])
        kind = Any if route.content_type == "application/json" else None
        return decoded(response, kind, f"{route.method} {where}")


def tag_of(shown: Mapping[str, Any]) -> str:
    """Return the ETag of an instance, node, node group, network or the cluster as it was read."""
    return Version(shown["uuid"], shown["serial_no"]).tag


def _because(text: str) -> Mapping[str, object]:
    return {"reason": text} if text else {}


def _names_in_body(route: Route) -> Collection[str]:
    """Return the query arguments of a route that its body may hold too, and does here."""
    parts = route.body
    if isinstance(route.action, Submission):
        parts = route.action.parts
        if route.action.is_either and parts is None:
            return {each.name for each in route.arguments if each.field}
    return getattr(parts, "__struct_fields__", ())


def _log_entries(change: Mapping[str, Any]) -> list[LogEntry]:
    return msgspec.convert(change.get("log_entries") or [], list[LogEntry])


def encoded_query(arguments: Mapping[str, object], repeated: Collection[str] = ()) -> str:
    """Return the query of a URL; "" for none."""
    pairs: list[tuple[str, str]] = []
    for name, value in arguments.items():
        if value is UNSET:
            continue
        is_list = isinstance(value, Sequence) and not isinstance(value, str)
        words = [_word(each) for each in value] if is_list else [_word(value)]  # type: ignore[attr-defined]
        pairs += [(name, word) for word in (words if name in repeated else [",".join(words)])]
    return f"?{urlencode(pairs)}" if pairs else ""


def _word(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def encoded_body(body: object) -> bytes:
    """Return the body of a request; b"" for no parameters."""
    return b"" if body == {} else msgspec.json.encode(body)


def decoded(response: CurlResponse, kind: Any, asked: str) -> Any:
    """Return the answer in a response, as the type `kind`; None is text as it is.

    Raises:
        RapiRefusedError: it is an error.
        TransportError: there is none.
        ProtocolError: it is something else.
    """
    if response.error is not None:
        raise TransportError(f"{asked}: {response.error}")
    if response.status != 200:
        raise _refusal(response, asked)
    if kind is None:
        return response.body.decode("utf-8", "replace")
    try:
        return msgspec.json.decode(response.body, type=kind)
    except msgspec.DecodeError as err:
        raise ProtocolError(f"{asked}: the answer has an unexpected form: {err}") from err


class _Problem(msgspec.Struct):
    code: int
    message: str
    explain: str = ""
    detail: str = ""


def _refusal(response: CurlResponse, asked: str) -> RapiRefusedError:
    try:
        problem = msgspec.json.decode(response.body, type=_Problem)
    except msgspec.DecodeError:
        text = response.body[:_TEXT_LENGTH_MAX].decode("utf-8", "replace").strip()
        return RapiRefusedError(f"{asked}: {text or 'no explanation'}", response.status)
    message = html.unescape(problem.detail or problem.message)
    return RapiRefusedError(f"{asked}: {message}", response.status, problem.explain)
