"""The process of a transfer (`ganeti.node_ops.transfers.detached`): its request and its progress.

    RUN_DIR/import-export/<name>/status    how far it is, written by the process
    RUN_DIR/import-export/<name>/ca        the certificate of a peer of another cluster

Source: node_rpc.json, "ImportExportStatus" and "ImportExportOptions_sent".
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

from ganeti.base.errors import GenericError
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.node_ops.transfers.detached import Detached
from ganeti.node_ops.transfers.ends import End
from ganeti.protocol.export_description import PARTIAL_SUFFIX
from ganeti.protocol.node_rpc_values import TransferOptions
from ganeti.system.files import read_bytes_or_none, write_atomic

_FILE_BYTES_MAX: Final = 1 << 20


class Request(msgspec.Struct, frozen=True):
    """The orders for a transfer; a sender has ``host`` and ``port``, a receiver a ``listener``.

    ``instance`` is the name of the instance whose disk it reads or fills.
    """

    end: End
    options: TransferOptions
    certificate: str
    authority: str
    host: str = ""
    port: int = 0
    listener: int = -1
    instance: str = ""

    def changes(self, directory: str) -> bool:
        """Tell whether it writes into an export, or merges it in there."""
        if self.end.kind == "merge":
            return directory in (self.end.path, f"{self.end.path}{PARTIAL_SUFFIX}")
        return self.listener >= 0 and self.end.path.startswith(f"{directory}/")


class TransferStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a transfer; ``exit_status`` is None until it has ended.

    ``written`` is for this node only: everything is on the disk, and the sender may know that.
    """

    recent_output: list[str] = []
    listen_port: int | None = None
    connected: bool = False
    written: bool = False
    progress_mbytes: float | None = None
    progress_throughput: float | None = None
    progress_eta: float | None = None
    progress_percent: float | None = None
    exit_status: int | None = None
    error_message: str | None = None
    ctime: float
    mtime: float


class TransferFiles(Detached):
    """The process of one transfer, and its files."""

    __slots__ = ()

    @property
    def status(self) -> str:
        """The file with its progress."""
        return f"{self.directory}/status"

    def save_authority(self, pem: str) -> str:
        """Write the peer's certificate to a file, and return its path."""
        path = f"{self.directory}/ca"
        write_atomic(path, pem.encode(), 0o600)
        return path

    def load_request(self) -> Request:
        """Return the request."""
        return loads_as(Request, read_bytes_or_none(self.request, _FILE_BYTES_MAX) or b"")

    def load_status(self) -> TransferStatus | None:
        """Read how far it is; None when there is no such transfer."""
        data = read_bytes_or_none(self.status, _FILE_BYTES_MAX)
        return None if data is None else loads_as(TransferStatus, data)

    def save_status(self, status: TransferStatus) -> None:
        """Write down how far it is."""
        write_atomic(self.status, dumps(status))


def files_of(paths: Paths, name: str) -> TransferFiles:
    """Return the files of a transfer by its name.

    Raises:
        GenericError: it cannot be the name of one.
    """
    if not name or "/" in name or name.startswith("."):
        raise GenericError(f"{name!r} is not the name of a transfer")
    return TransferFiles(os.path.join(paths.import_export_dir, name))
