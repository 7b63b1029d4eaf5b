"""What is known about a transfer: its files in a directory of its own, and its state.

    RUN_DIR/import-export/<name>/request   what to do, written before the process starts
    RUN_DIR/import-export/<name>/status    how far it is, written by the process
    RUN_DIR/import-export/<name>/log       what it prints when it breaks
    RUN_DIR/import-export/<name>/ca        the certificate of a peer of another cluster

Source: node_rpc.json, "ImportExportStatus" and "ImportExportOptions_sent".
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import Final

import msgspec

from ganeti.base.errors import GenericError
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.node_ops.transfers.ends import End
from ganeti.system import filelock
from ganeti.system.files import read_bytes_or_none, write_atomic

_FILE_BYTES_MAX: Final = 1 << 20


class Options(msgspec.Struct, frozen=True):
    """How both sides talk.

    Attributes:
        key_name: of the certificate to show (`x509_cert_create`); None for the cluster's own.
        ca_pem: the certificate that the peer must show; None for any that the cluster issued.
    """

    key_name: str | None = None
    ca_pem: str | None = None
    compress: str = "none"
    magic: str | None = None
    ipv6: bool = False
    connect_timeout: int | None = None


class Request(msgspec.Struct, frozen=True):
    """What a transfer is to do; a sender has ``host`` and ``port``, a receiver a ``listener``.

    ``instance`` is the name of the instance whose disk it reads or fills.
    """

    end: End
    options: Options
    certificate: str
    authority: str
    host: str = ""
    port: int = 0
    listener: int = -1
    instance: str = ""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How far a transfer is; ``exit_status`` is None until it has ended."""

    recent_output: list[str] = []
    listen_port: int | None = None
    connected: bool = False
    progress_mbytes: float | None = None
    progress_throughput: float | None = None
    progress_eta: float | None = None
    progress_percent: float | None = None
    exit_status: int | None = None
    error_message: str | None = None
    ctime: float
    mtime: float


@dataclass(frozen=True, slots=True)
class TransferFiles:
    """The files of one transfer."""

    directory: str

    @property
    def request(self) -> str:
        """What to do."""
        return f"{self.directory}/request"

    @property
    def status(self) -> str:
        """How far it is."""
        return f"{self.directory}/status"

    @property
    def pid(self) -> str:
        """The number of the process, in a file that is locked while it runs."""
        return f"{self.directory}/pid"

    @property
    def log(self) -> str:
        """What the process prints."""
        return f"{self.directory}/log"

    def save_authority(self, pem: str) -> str:
        """Write the peer's certificate to a file, and return its path."""
        path = f"{self.directory}/ca"
        write_atomic(path, pem.encode(), 0o600)
        return path

    def load_request(self) -> Request:
        """Read what to do."""
        return loads_as(Request, read_bytes_or_none(self.request, _FILE_BYTES_MAX) or b"")

    def save_request(self, request: Request) -> None:
        """Write down what to do; it may hold the name of a key, so nobody else reads it."""
        write_atomic(self.request, dumps(request), 0o600)

    def note_interest(self) -> None:
        """Note that somebody asks how far it is."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.request)

    def last_interest(self) -> float | None:
        """Return when somebody asked last; None once the transfer is forgotten."""
        try:
            return os.stat(self.request).st_mtime
        except FileNotFoundError:
            return None

    def load_status(self) -> Status | None:
        """Read how far it is; None when there is no such transfer."""
        data = read_bytes_or_none(self.status, _FILE_BYTES_MAX)
        return None if data is None else loads_as(Status, data)

    def save_status(self, status: Status) -> None:
        """Write down how far it is."""
        write_atomic(self.status, dumps(status))

    def live_pid(self) -> int | None:
        """Return the number of the process if it runs: then it holds the lock on its pid file."""
        return filelock.running_pid(self.pid)


def files_of(paths: Paths, name: str) -> TransferFiles:
    """Return the files of a transfer by its name.

    Raises:
        GenericError: it cannot be the name of one.
    """
    if not name or "/" in name or name.startswith("."):
        raise GenericError(f"{name!r} is not the name of a transfer")
    return TransferFiles(os.path.join(paths.import_export_dir, name))
