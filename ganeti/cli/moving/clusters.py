"""One of the two clusters: how it is reached, and its jobs.

Source: cli.json, "move-instance"; rapi.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ganeti.base.errors import GenericError, OpPrereqError, TransportError
from ganeti.clients.rapi import (
    FINAL_STATUSES,
    EndedJob,
    JobStillRunsError,
    LogEntry,
    Password,
    RapiClient,
    RapiRefusedError,
)
from ganeti.protocol.rapi.users import text_of
from ganeti.system import clock, files
from ganeti.transport.curl_pool import TlsTrust

PATIENCE_S: Final = 300.0  # with a server that is restarted, or a network that is away
STEP_TIMEOUT_S: Final = 900.0  # of jobs that copy nothing
_RETRY_S: Final = 2.0
_SERVER_ERROR: Final = 500
_NOT_FOUND: Final = 404
_NOT_ALLOWED: Final = (401, 403)
_PASSWORD_BYTES_MAX: Final = 4096
_PEM_BYTES_MAX: Final = 1 << 20

Log = Callable[[LogEntry], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cluster:
    """How one of the two is reached.

    Attributes:
        what: "source cluster" or "destination cluster".
        options: how the names of its options begin.
    """

    what: str
    options: str
    address: str
    port: int
    user: str | None
    password_file: str | None
    ca_file: str | None

    @property
    def label(self) -> str:
        """The name of the cluster in messages."""
        return f"{self.what} {self.address}"

    def client(self) -> RapiClient:
        """Return a client, which the caller closes.

        Raises:
            OpPrereqError: a file is missing.
        """
        return RapiClient(self.address, self.port, login=self._login(), trust=self._trust())

    def _login(self) -> Password | None:
        if self.user is None:
            return None
        if self.password_file is None:
            raise OpPrereqError(
                f"{self.label}: user {self.user!r} needs --{self.options}-password-file"
            )
        data = self._read(self.password_file, _PASSWORD_BYTES_MAX)
        password = text_of(data.partition(b"\n")[0].removesuffix(b"\r"))
        if not password:
            raise OpPrereqError(f"{self.label}: there is no password in {self.password_file}")
        return Password(self.user, password)

    def _trust(self) -> TlsTrust:
        """Trust the given certificate from any server, otherwise the system's authorities."""
        if self.ca_file is None:
            return TlsTrust()
        if b"-----BEGIN CERTIFICATE-----" not in self._read(self.ca_file, _PEM_BYTES_MAX):
            raise OpPrereqError(f"{self.label}: there is no certificate in {self.ca_file}")
        return TlsTrust(self.ca_file, checks_name=False)

    def _read(self, path: str, size_bytes_max: int) -> bytes:
        try:
            return files.read_bytes(path, size_bytes_max)
        except OSError as err:
            raise OpPrereqError(f"{self.label}: {path}: {err.strerror}") from err

    def explain(self, error: GenericError) -> str:
        """Return the error of its answer, and the next step."""
        if isinstance(error, RapiRefusedError) and error.status in _NOT_ALLOWED:
            return (
                f"{self.label} refuses the user: {error.message}; check"
                f" --{self.options}-username and --{self.options}-password-file"
            )
        if isinstance(error, TransportError):
            hint = f"is ganeti-rapi running there, on port {self.port}?"
            if "certificate" in error.message.lower():
                hint = f"give the certificate of its remote API with --{self.options}-ca-file"
            return f"{self.label} cannot be asked: {error.message}; {hint}"
        return error.message if self.label in error.message else f"{self.label}: {error.message}"


def is_not_found(error: GenericError) -> bool:
    """Tell whether a server answers that there is no such thing."""
    return isinstance(error, RapiRefusedError) and error.status == _NOT_FOUND


def run_job(client: RapiClient, job_id: int) -> Any:
    """Wait for a job that copies nothing, and return the result of its only opcode.

    Raises:
        JobFailedError, JobStillRunsError: it did not end in success, or in time.
        TransportError, RapiRefusedError: as of `changes`.
    """
    deadline = clock.monotonic() + STEP_TIMEOUT_S
    for status, _ in changes(client, job_id):
        if status not in FINAL_STATUSES and clock.monotonic() >= deadline:
            raise JobStillRunsError(f"Job {job_id} did not end within {STEP_TIMEOUT_S:g} s")
    [result] = client.ended_job(job_id).results
    return result


def patiently(ask: Callable[[], T]) -> T:
    """Ask for what may be done twice, patient with a server that is restarted.

    Raises:
        TransportError, RapiRefusedError: it was away for too long, or refuses.
    """
    deadline = clock.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except (TransportError, RapiRefusedError) as err:
            if not _is_away(err) or clock.monotonic() >= deadline:
                raise
            clock.pause(_RETRY_S)


def _is_away(error: GenericError) -> bool:
    """Tell whether a server is not reached, or what is behind it is not."""
    return not isinstance(error, RapiRefusedError) or error.status >= _SERVER_ERROR


def changes(
    client: RapiClient, job_id: int, after_entry: int | None = None
) -> Iterator[tuple[str, list[LogEntry]]]:
    """Yield the changes of a job until it ends, patient with a server that is restarted.

    Raises:
        TransportError, RapiRefusedError: it was away for too long.
    """
    known = after_entry
    deadline: float | None = None
    while True:
        try:
            for status, entries in client.job_changes(job_id, after_entry=known):
                deadline = None
                known = entries[-1].serial if entries else known
                yield status, entries
        except (TransportError, RapiRefusedError) as err:
            if not _is_away(err):
                raise
            deadline = deadline or clock.monotonic() + PATIENCE_S
            if clock.monotonic() >= deadline:
                raise
            clock.pause(_RETRY_S)
        else:
            return


def follow(
    client: RapiClient, job_id: int, on_log: Log, after_entry: int | None = None
) -> EndedJob:
    """Wait until a job has ended, however long it takes, and return its results.

    Raises:
        JobFailedError: it ended otherwise than in success.
    """
    for _, entries in changes(client, job_id, after_entry):
        for entry in entries:
            on_log(entry)
    return client.ended_job(job_id)
