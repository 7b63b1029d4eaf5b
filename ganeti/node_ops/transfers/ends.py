"""The two ends of a transfer: where its bytes come from, and where they go.

    raw      a whole disk, as a stream with a checksum (`ganeti.storage.stream`), or as plain bytes
    file     a file of an export; it is written beside its place and renamed when it is complete
    script   the export or import script of an operating system.  One that has no such script is
             dumped and restored like a raw disk, which a stream in frames tells itself
    snapshot the contents of a running instance's disk at one instant, read from its hypervisor;
             or those that the disk itself keeps, read from a server of our own
    changes  what changed on a device or in a snapshot since the last point of a chain
    increment  the file of a new point of a chain (`ganeti.node_ops.transfers.increments`)
    chain    a whole disk, put together from the files of a chain
    merge    none at all: a chain of this node loses its oldest points

Source: node_rpc.json, ED_IMPEXP_IO.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Final

import msgspec

from ganeti.base.errors import CommandError, ProtocolError, StorageError
from ganeti.node_ops.disks.chains import CHECKSUM_SUFFIX
from ganeti.node_ops.scripts import LogCopy
from ganeti.node_ops.transfers.increments import ChangesSource, IncrementSink
from ganeti.protocol.node_rpc_values import StreamForm
from ganeti.storage.chains.layers import restored
from ganeti.storage.data import CHUNK_BYTES
from ganeti.storage.nbd import NbdImage
from ganeti.storage.qcow2 import RawView, snapshot_served
from ganeti.storage.stream import (
    MAGIC,
    DiskReader,
    DiskWriter,
    Image,
    Incoming,
    LocalImage,
    PlainReader,
    PlainWriter,
)
from ganeti.system import process
from ganeti.system.files import fsync_directory

SCRIPT_STALL_S: Final = 900.0  # a script that neither writes nor reads for so long is stopped
SCRIPT_END_S: Final = 3600.0  # its time after its input or output has ended
_MESSAGES_END_S: Final = 60.0  # to write the last of them down
_FILE_MODE: Final = 0o600


class End(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a transfer.

    Attributes:
        path: the device, the file of an export, or the socket at which a snapshot is read.
        export: the name of the snapshot there.
        image: the file whose snapshot is served at the socket; the disk's own file is `view`'s.
        argv: the script, none where there is none.
        log: where the script's messages go.
        sha256: the checksum that a file must have, empty if nobody knows.
        written: the record of what was written since the last point; empty if there is none.
        scratch: a directory for files without names.
        sums: the checksums of the last point's blocks; empty if there are none.
        root: what they, or those of the disk that a chain makes, add up to.
        layers: the files of a chain, the oldest first.
        number: the point that is to be the first of its chain.
        size_bytes: how much must come for a device, which may be larger; 0: as much as it has.
        view: how the bytes of the disk come to the path, where they are not there by themselves.
    """

    kind: str
    path: str
    export: str = ""
    argv: list[str] = []
    env: Mapping[str, str] = {}
    cwd: str = "/"
    log: str = ""
    sha256: str = ""
    written: str = ""
    scratch: str = ""
    sums: str = ""
    root: str = ""
    layers: list[str] = []
    size_bytes: int = 0
    number: int = 0
    view: RawView | None = None
    image: str = ""

    def shown(self) -> AbstractContextManager[None]:
        """Show the bytes of the disk while they are read or written."""
        if self.image:
            return snapshot_served(self.image, self.export, self.path)
        return contextlib.nullcontext() if self.view is None else self.view.shown()


def open_source(end: End, form: StreamForm) -> Source:
    """Return the source of the bytes that are sent.

    Raises:
        ProtocolError: they have no plain form.
    """
    if end.kind == "file":
        return FileSource(end)
    if end.kind == "script" and end.argv:
        return ScriptSource(end)
    if end.kind in ("changes", "chain"):
        if form is StreamForm.PLAIN:
            raise ProtocolError(f"{end.kind!r} is sent in frames only")
        return ChangesSource(end) if end.kind == "changes" else ChainSource(end)
    if end.kind == "snapshot":
        return _reader(NbdImage(end.path, end.export), form)
    return _reader(LocalImage(end.path), form)


def _reader(image: Image, form: StreamForm) -> DiskReader | PlainReader:
    return DiskReader(image) if form is StreamForm.FRAMES else PlainReader(image)


def open_sink(end: End, incoming: Incoming, form: StreamForm) -> Sink:
    """Return the sink of the bytes that come; a dump of a whole disk needs no script."""
    is_plain = form is StreamForm.PLAIN
    if end.kind == "raw" and not is_plain:
        return DiskWriter(end.path, incoming)
    if end.kind == "raw" or (is_plain and end.kind == "script" and not end.argv):
        return PlainWriter(end.path, incoming, end.size_bytes)
    if end.kind == "file":
        return FileSink(end, incoming)
    if end.kind == "increment":
        return IncrementSink(end.path, end.sums, end.root, incoming)
    ahead = Ahead(incoming)
    if ahead.starts_with(MAGIC):
        return DiskWriter(end.path, ahead)
    return ScriptSink(end, ahead)


class Ahead:
    """Bytes whose beginning can be looked at before they are read."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self._kept = b""

    def starts_with(self, word: bytes) -> bool:
        """Tell whether a word comes first."""
        while len(self._kept) < len(word):
            data = self._incoming.read(len(word) - len(self._kept))
            if not data:
                break
            self._kept += data
        return self._kept == word

    def read(self, count: int) -> bytes:
        """Return up to so many bytes; none at the end."""
        if self._kept:
            data, self._kept = self._kept[:count], self._kept[count:]
            return data
        return self._incoming.read(count)


class ChainSource:
    """Puts a disk together from the files of a chain, and compares all its blocks."""

    def __init__(self, end: End) -> None:
        self._end = end
        self.data_bytes = self.done_bytes = 0

    def pieces(self) -> Iterator[bytes]:
        """Yield the whole disk as a stream.

        Raises:
            StorageError: a file of the chain is damaged, or is not one of this chain.
        """
        for piece in restored(self._end.layers, self._end.root):
            self.done_bytes += len(piece)
            yield piece

    def close(self) -> None:
        """Do nothing: no file is open between two pieces."""


class FileSource:
    """Reads a file of an export, and compares its checksum."""

    def __init__(self, end: End) -> None:
        self._file = open(end.path, "rb")  # noqa: SIM115 - closed by close()
        self._end = end
        self.data_bytes = os.fstat(self._file.fileno()).st_size
        self.done_bytes = 0

    def pieces(self) -> Iterator[bytes]:
        """Yield the file.

        Raises:
            StorageError: it is not the file that was once written.
        """
        digest = hashlib.sha256()
        while data := self._file.read(CHUNK_BYTES):
            digest.update(data)
            self.done_bytes += len(data)
            yield data
        if self._end.sha256 and digest.hexdigest() != self._end.sha256:
            name = os.path.basename(self._end.path)
            raise StorageError(f"file {name} is damaged: its checksum is not that of the export")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class FileSink:
    """Writes a file of an export; its checksum lies beside it until the export is complete."""

    def __init__(self, end: End, incoming: Incoming) -> None:
        self._path = end.path
        self._incoming = incoming
        self.data_bytes = self.done_bytes = 0

    def run(self) -> Iterator[None]:
        """Write everything.

        Raises:
            OSError: there is no room, or the file cannot be written.
        """
        digest = hashlib.sha256()
        part = f"{self._path}.part"
        with open(part, "wb", opener=_private) as file:
            while data := self._incoming.read(CHUNK_BYTES):
                file.write(data)
                digest.update(data)
                self.done_bytes += len(data)
                yield
            file.flush()
            os.fsync(file.fileno())
        with open(self._path + CHECKSUM_SUFFIX, "w", encoding="ascii", opener=_private) as file:
            file.write(digest.hexdigest())
        os.rename(part, self._path)
        fsync_directory(os.path.dirname(self._path))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, _FILE_MODE)


class _Messages:
    """Copies the messages of a script to its log, in a thread, until the script has ended."""

    def __init__(self, source: int, log: int, pid: int) -> None:
        ended = os.pidfd_open(pid)
        self._descriptors = (source, log, ended)
        self._copy = LogCopy(source, log)
        self._thread = threading.Thread(
            target=self._run, args=(ended,), name="messages", daemon=True
        )
        # Signals have to interrupt the reads and writes of the main thread.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _run(self, ended: int) -> None:
        try:
            self._copy.follow(ended)
        finally:
            for descriptor in self._descriptors:
                os.close(descriptor)

    def tail(self) -> str:
        """Return the last ones, once the script has ended."""
        self._thread.join(_MESSAGES_END_S)
        return self._copy.tail()


class _Script:
    """A script of an operating system, its messages in a log file."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._patience_s = 0
        self._is_collected = False

    def start(self, *, stdin: int | None = None, stdout: int | None = None) -> None:
        """Start it."""
        process.stops.hold()  # until the script can be stopped, too
        try:
            self._spawn(stdin, stdout)
        except BaseException:
            process.stops.release()
            raise
        try:
            process.stops.release()
        except BaseException:
            self.kill()
            raise
        signal.signal(signal.SIGALRM, self._stalled)

    def _spawn(self, stdin: int | None, stdout: int | None) -> None:
        end = self._end
        with contextlib.ExitStack() as undo:
            log = os.open(end.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            undo.callback(os.close, log)
            reader, writer = os.pipe2(os.O_CLOEXEC)
            undo.callback(os.close, reader)
            with open(writer, "wb", buffering=0):
                self._child = process.spawn(
                    end.argv,
                    env=end.env,
                    cwd=end.cwd,
                    stdin=stdin,
                    stdout=writer if stdout is None else stdout,
                    stderr=writer,
                )
            self._messages = _Messages(reader, log, self._child.pid)
            undo.pop_all()

    def _stalled(self, _number: int, _frame: object) -> None:
        patience_s = self._patience_s
        self.kill()
        raise self.failure(f"was stopped: nothing moved for {patience_s} s")

    def give_time(self, seconds: float) -> None:
        """Stop it, and raise, unless something moves within so many seconds; zero: never."""
        self._patience_s = int(seconds)
        signal.alarm(self._patience_s)

    def kill(self) -> None:
        """Stop it with all that it started, unless its end was waited for."""
        self.give_time(0)
        if not self._is_collected:  # else its number may be somebody else's by now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)

    def finish(self, *, leaves_nothing: bool = False) -> None:
        """Wait for its end.

        Args:
            leaves_nothing: all that it started ends, too; so it does in any case if it failed.

        Raises:
            CommandError: it failed; with the end of its messages.
        """
        self.give_time(SCRIPT_END_S)
        # Its number stays that of its group until it is collected.
        ended = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None, "only a wait that does not hang finds nothing"
        has_failed = (ended.si_code, ended.si_status) != (os.CLD_EXITED, 0)
        if has_failed or leaves_nothing:
            self.kill()
        self.give_time(0)
        self._is_collected = True
        status = self._child.wait()
        if has_failed:
            raise self.failure(f"ended with status {status}")

    def failure(self, what: str) -> CommandError:
        """Return the error for a script that failed."""
        argv, tail = self._end.argv, self._messages.tail()
        text = f"script {argv[0]} {what} (log file {self._end.log})"
        return CommandError(f"{text}: {tail}" if tail else text, tuple(argv), 1, tail)


class ScriptSource:
    """Reads the output of an export script."""

    def __init__(self, end: End) -> None:
        self._script = _Script(end)
        self._output, output = os.pipe2(os.O_CLOEXEC)
        try:
            self._script.start(stdout=output)
        finally:
            os.close(output)
        self.data_bytes = self.done_bytes = 0

    def pieces(self) -> Iterator[bytes]:
        """Yield the output of the script.

        Raises:
            CommandError: it failed.
        """
        while True:
            self._script.give_time(SCRIPT_STALL_S)
            data = os.read(self._output, CHUNK_BYTES)
            self._script.give_time(0)  # the peer has its own time limit
            if not data:
                break
            self.done_bytes += len(data)
            yield data
        self._script.finish(leaves_nothing=True)

    def close(self) -> None:
        """Stop the script, if it still runs."""
        self._script.kill()
        os.close(self._output)


class ScriptSink:
    """Writes the data that arrives to an import script."""

    def __init__(self, end: End, incoming: Incoming) -> None:
        if not end.argv:
            raise StorageError(
                "the export was written by a script of its operating system, which has no import"
                " script here"
            )
        self._script = _Script(end)
        self._incoming = incoming
        self.data_bytes = self.done_bytes = 0

    def run(self) -> Iterator[None]:
        """Write everything.

        Raises:
            CommandError: the script failed.
        """
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            self._script.start(stdin=reader)
        finally:
            os.close(reader)
        pipe = open(writer, "wb", buffering=0)  # noqa: SIM115 - closed between two steps
        try:
            yield from self._feed(writer)
            pipe.close()
            self._script.finish()
        except BaseException:
            self._script.kill()  # or it would take the end of its input for the end of the disk
            raise
        finally:
            pipe.close()

    def _feed(self, writer: int) -> Iterator[None]:
        while True:
            self._script.give_time(0)  # the peer has its own time limit
            data = memoryview(self._incoming.read(CHUNK_BYTES))
            if not data:
                return
            self.done_bytes += len(data)
            while data:
                self._script.give_time(SCRIPT_STALL_S)
                try:
                    data = data[os.write(writer, data) :]
                except BrokenPipeError:
                    self._script.finish(leaves_nothing=True)
                    raise self._script.failure("did not read all of its input") from None
            yield


# Both tell ``done_bytes`` of ``data_bytes`` (0: nobody knows) that have been moved so far.
Source = FileSource | ScriptSource | DiskReader | PlainReader | ChangesSource | ChainSource
Sink = FileSink | ScriptSink | DiskWriter | PlainWriter | IncrementSink
