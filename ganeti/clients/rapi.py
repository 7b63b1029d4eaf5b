"""Client of the remote API: for programs anywhere that know a cluster's address and a password.

It needs no daemon, file or setting of the machine it runs on.  `RapiStub` has a method for each
resource and HTTP method; this module sends them, and waits for jobs.

::

    with RapiClient("cluster.example.com", login=Password("jim", "secret")) as client:
        job_id = client.put_instance_startup("web.example.com")
        client.wait_for_job(job_id, timeout_s=300)

Source: rapi.json; RFC 7617, RFC 6750.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Self
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, UnsetType

from ganeti.base.errors import GenericError, ProtocolError, TransportError
from ganeti.clients.rapi_stub import JobOptions, RapiStub
from ganeti.system import clock
from ganeti.transport.curl_pool import CurlPool, CurlRequest, CurlResponse, TlsTrust

DEFAULT_PORT: Final = 5080
ANSWER_TIMEOUT_S: Final = 60.0
WAIT_S: Final = 10.0  # a server answers "nothing changed" after that long
FINAL_STATUSES: Final = frozenset({"success", "error", "canceled"})
_TEXT_LENGTH_MAX: Final = 500  # of an answer that is none of the remote API


class Password(msgspec.Struct, frozen=True):
    """Tells who asks by name and password."""

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
    """Tells who asks by a token."""

    token: str

    @property
    def header(self) -> str:
        """The value of the header Authorization."""
        return f"Bearer {self.token}"

    def __repr__(self) -> str:
        return "Token(***)"


class RapiRefusedError(GenericError):
    """The server answers with an error: its status, and what that means."""

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
    """A job that has ended, with the results of its opcodes."""

    job_id: int
    status: str
    summaries: list[str]
    results: list[Any]


class JobFailedError(GenericError):
    """A job did not end in success."""

    def __init__(self, job: EndedJob) -> None:
        reasons = failure_reason(job)
        named = f"Job {job.job_id} ({', '.join(job.summaries)})"
        super().__init__(f"{named} ended in {job.status}" + (f": {reasons}" if reasons else ""))
        self.job = job


def failure_reason(job: EndedJob) -> str:
    """Return what a job that failed says; nothing if it was canceled before it began."""
    return "; ".join(_reason(result) for result in job.results if result is not None)


class JobStillRunsError(GenericError):
    """A job did not end in time; it goes on."""


def _reason(result: Any) -> str:
    """Return what a result that is an error says: ``[class, [message, ...]]``."""
    match result:
        case [str(), [str(message), *_]]:
            return message
        case _:
            return str(result)


class RapiClient(RapiStub):
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
        """Yield a job's status and what its log has grown by, until it has ended.

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
        row = self.get_job(job_id)
        job = EndedJob(job_id, row["status"], row["summary"] or [], row["opresult"] or [])
        if job.status != "success":
            raise JobFailedError(job)
        return job

    def _ask(
        self,
        kind: Any,
        method: str,
        path: str,
        values: Sequence[str | int] = (),
        *,
        query: Mapping[str, object] = {},
        repeated: Mapping[str, Sequence[str] | UnsetType] = {},
        body: object = UNSET,
        options: JobOptions | None = None,
    ) -> Any:
        """Send one request; a type of None takes the answer as text."""
        common: dict[str, object] = dict(options or {})
        found = {"reason": common.pop("reason", UNSET), **query, **repeated}
        where = path.format(*(quote(str(value), safe="") for value in values))
        request = CurlRequest(
            self._top + where + encoded_query(found, repeated.keys()),
            encoded_body(body, common),
            self._timeout_s,
            self._headers,
            repeatable=method == "GET",
            method=method,
        )
        [response] = self._pool.perform([request])
        return decoded(response, kind, f"{method} {where}")


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


def encoded_body(body: object, common: Mapping[str, object]) -> bytes:
    """Return the body of a request: what is given of the parameters; b"" if nothing is."""
    if body is UNSET:
        return b""
    if isinstance(body, Mapping):
        body = {name: value for name, value in {**body, **common}.items() if value is not UNSET}
        if not body:
            return b""
    return msgspec.json.encode(body)


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
        raise ProtocolError(f"{asked}: the answer is not what the remote API says: {err}") from err


class _Problem(msgspec.Struct):
    code: int
    message: str
    explain: str = ""


def _refusal(response: CurlResponse, asked: str) -> RapiRefusedError:
    try:
        problem = msgspec.json.decode(response.body, type=_Problem)
    except msgspec.DecodeError:
        text = response.body[:_TEXT_LENGTH_MAX].decode("utf-8", "replace").strip()
        return RapiRefusedError(f"{asked}: {text or 'no explanation'}", response.status)
    message = html.unescape(problem.message)
    return RapiRefusedError(f"{asked}: {message}", response.status, problem.explain)
