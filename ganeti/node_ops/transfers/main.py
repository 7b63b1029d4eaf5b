"""The process that carries one disk from a node to another, over TLS.

The receiver listens and takes one connection from a peer that has a certificate of the cluster (or
of the other cluster, when one is named) and knows the word that both were given.  In frames it
answers one byte when everything is written, checked and on its disk; only then has the sender
succeeded.  How the bytes look on the way is told by `ganeti.node_ops.transfers.connection`.

When it has ended, the process stays until its files are removed: by the job that began it, or by
itself when that job asks no more (`PATIENCE_S`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import ssl
import sys
import zlib
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import GenericError, NotSupportedError
from ganeti.node_ops.disks import chains
from ganeti.node_ops.transfers.accepting import accept
from ganeti.node_ops.transfers.connection import (
    Unpacked,
    await_confirmation,
    confirm,
    connect,
    greeting,
    outgoing,
)
from ganeti.node_ops.transfers.ends import Sink, Source, open_sink, open_source
from ganeti.node_ops.transfers.increments import ChangesSource, IncrementSink
from ganeti.node_ops.transfers.status import Request, TransferFiles, TransferStatus
from ganeti.protocol.export_description import PARTIAL_SUFFIX
from ganeti.protocol.node_rpc_values import DISK_COMPRESSIONS, StreamForm, TransferOptions
from ganeti.storage.stream import FrameReader, framed
from ganeti.system import clock, process

PATIENCE_S: Final = 300.0  # a job asks many times a second, also after a node daemon's restart
_FORGOTTEN_POLL_S: Final = 1.0
_STATUS_EVERY_S: Final = 0.5
_MIB: Final = 1 << 20


def check_options(options: TransferOptions) -> None:
    """Refuse ways to compress that are not built.

    Raises:
        NotSupportedError: the message names the ways that are built.
    """
    if options.compress not in DISK_COMPRESSIONS:
        raise NotSupportedError(
            f"compression {options.compress!r} is not supported for disks; use one of"
            f" {', '.join(DISK_COMPRESSIONS)}"
        )


@dataclass(slots=True)
class _Merged:
    """How far a merge is."""

    done_bytes: int = 0
    data_bytes: int = 0


class Reporter:
    """Writes the state of the transfer down, at most twice a second."""

    def __init__(self, files: TransferFiles) -> None:
        self._files = files
        found = files.load_status()
        self._status = found or TransferStatus(ctime=clock.now(), mtime=clock.now())
        self._started_s = clock.monotonic()
        self._next_s = 0.0

    def say(self, **changes: object) -> None:
        """Write down changes of the state."""
        self._status = replace(self._status, **changes, mtime=clock.now())
        self._files.save_status(self._status)

    def moved(self, moved: Source | Sink | _Merged, *, at_once: bool = False) -> None:
        """Write down the progress, if that is due."""
        now = clock.monotonic()
        if now < self._next_s and not at_once:
            return
        self._next_s = now + _STATUS_EVERY_S
        done, total = moved.done_bytes, moved.data_bytes
        elapsed_s = max(now - self._started_s, 1e-6)
        speed = done / elapsed_s
        self.say(
            progress_mbytes=done / _MIB,
            progress_throughput=speed / _MIB,
            progress_percent=100.0 * done / total if total else None,
            progress_eta=(total - done) / speed if total and speed else None,
        )


def receive(request: Request, reporter: Reporter, connections: contextlib.ExitStack) -> None:
    """Take one disk from a peer; ``connections`` closes the connection if that fails."""
    form = request.options.form
    connection, incoming = accept(request)
    connections.enter_context(connection)
    reporter.say(connected=True)
    sink = open_sink(request.end, incoming, form)
    if isinstance(sink, IncrementSink):
        for piece in framed(sink.known()):
            connection.sendall(piece)
    for _ in sink.run():
        reporter.moved(sink)
    reporter.moved(sink, at_once=True)
    reporter.say(written=True)
    confirm(connection, form)
    connection.close()


def send(request: Request, reporter: Reporter, connections: contextlib.ExitStack) -> None:
    """Give one disk to a peer; ``connections`` closes the connection if that fails."""
    form = request.options.form
    with contextlib.closing(open_source(request.end, form)) as source:
        connection = connections.enter_context(connect(request))
        reporter.say(connected=True)
        if form is StreamForm.FRAMES:
            connection.sendall(greeting(request))
        if isinstance(source, ChangesSource):
            source.learn(FrameReader(Unpacked(connection, "none")))
        for piece in outgoing(request, source.pieces()):
            connection.sendall(piece)
            reporter.moved(source)
        reporter.moved(source, at_once=True)
        await_confirmation(connection, form)
        connection.close()


def merge(request: Request, reporter: Reporter) -> None:
    """Make a point the first of its chain, on this node alone."""
    end, moved = request.end, _Merged()
    for count in chains.merge(end.path, f"{end.path}{PARTIAL_SUFFIX}", end.number):
        moved.done_bytes += count
        reporter.moved(moved)
    reporter.moved(moved, at_once=True)


def run(directory: str) -> int:
    """Carry out the transfer of a directory; returns its exit status."""
    files = TransferFiles(directory)
    reporter = Reporter(files)
    request = files.load_request()
    # A peer that sees the connection end fails, too: what happened here is written down before.
    with contextlib.ExitStack() as connections:
        try:
            with request.end.shown():
                if request.end.kind == "merge":
                    merge(request, reporter)
                else:
                    (receive if request.listener >= 0 else send)(request, reporter, connections)
        except GenericError as err:
            text = err.message
        except (ssl.SSLError, zlib.error) as err:
            text = f"the connection broke: {err}"
        except TimeoutError:
            text = "the other side is gone, or nothing moved for too long"
        except OSError as err:
            text = err.strerror or str(err)
        else:
            reporter.say(exit_status=0)
            return 0
        reporter.say(exit_status=1, error_message=text, recent_output=[text])
    return 1


def wait_until_forgotten(files: TransferFiles, patience_s: float = PATIENCE_S) -> None:
    """Keep the files until the job has seen how it ended; remove them if the job is gone."""
    while (asked := files.last_interest()) is not None:
        if clock.now() - asked > patience_s:
            shutil.rmtree(files.directory, ignore_errors=True)
            return
        clock.pause(_FORGOTTEN_POLL_S)


def _stopped(number: int, _frame: object) -> None:
    """End as the signal would, but stop the script first that reads or writes the disk."""
    process.stops.stop(SystemExit(128 + number))


def main() -> int:
    """Run with the directory of the transfer as the only argument."""
    signal.signal(signal.SIGTERM, _stopped)
    os.umask(0o077)
    status = run(sys.argv[1])
    wait_until_forgotten(TransferFiles(sys.argv[1]))
    return status


if __name__ == "__main__":
    sys.exit(main())
