"""A connection to the monitor of a running QEMU: blocking, with a deadline on every command.

QEMU serves one client of a socket at a time; others wait in line, so connections are kept short.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, Self

from ganeti.base.errors import HypervisorError, ProtocolError
from ganeti.protocol import qmp
from ganeti.system import clock

COMMAND_TIMEOUT_S: Final = 20.0  # an answer takes milliseconds; on a swapping node, seconds
CONNECT_TIMEOUT_S: Final = 10.0
EVENTS_MAX: Final = 1000
_CHUNK_BYTES: Final = 1 << 16


class MonitorError(HypervisorError):
    """QEMU refused a command; ``kind`` is its error class."""

    wire_name = "HypervisorError"

    def __init__(self, message: str, kind: str = "GenericError") -> None:
        super().__init__(message)
        self.kind = kind


class MonitorGone(HypervisorError):
    """QEMU ended the connection, most likely because it ended itself."""

    wire_name = "HypervisorError"


class MonitorTimeout(HypervisorError):
    """QEMU did not answer in time."""

    wire_name = "HypervisorError"


class Monitor:
    """An open monitor connection of the instance ``name``; a context manager."""

    def __init__(self, name: str, connection: socket.socket) -> None:
        self._name = name
        self._socket = connection
        self._session = qmp.Session()
        self._events: deque[qmp.Event] = deque(maxlen=EVENTS_MAX)
        self._schema: qmp.Schema | None = None

    @classmethod
    def connect(cls, name: str, path: str, timeout_s: float = CONNECT_TIMEOUT_S) -> Self:
        """Connect to the monitor at a socket and be greeted.

        Raises:
            MonitorGone: nothing listens there, or it ended.
            MonitorTimeout: another client holds the monitor, or QEMU hangs.
        """
        deadline = clock.monotonic() + timeout_s
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _connect_within(connection, path, timeout_s)
        except BlockingIOError as err:
            connection.close()
            raise MonitorTimeout(f"instance {name}: the monitor of QEMU is busy") from err
        except OSError as err:
            connection.close()
            raise MonitorGone(
                f"instance {name}: no monitor of QEMU at {path}: {err.strerror}"
            ) from err
        monitor = cls(name, connection)
        try:
            monitor._greet(deadline)
        except BaseException:
            monitor.close()
            raise
        return monitor

    def _greet(self, deadline: float) -> None:
        while self._session.state is qmp.SessionState.GREETING:
            self._receive(deadline, "its greeting")
        self._execute("qmp_capabilities", None, deadline)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._session.close()
        self._socket.close()

    def execute(
        self,
        command: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> object:
        """Run a command and return its result.

        Raises:
            MonitorError: QEMU refused it.
            MonitorGone: QEMU went away.
            MonitorTimeout: there was no answer in time; the connection is of no more use.
        """
        return self._execute(command, arguments, clock.monotonic() + timeout_s)

    def hand_over(self, name: str, descriptor: int) -> None:
        """Give QEMU a copy of an open file, which it then knows by a name.

        Raises:
            HypervisorError: as `execute`.
        """
        deadline = clock.monotonic() + COMMAND_TIMEOUT_S
        self._execute("getfd", {"fdname": name}, deadline, descriptor)

    @contextlib.contextmanager
    def lent(self, descriptor: int, *, closes: bool = False) -> Iterator[str]:
        """Give QEMU a copy of an open file for a block; yields the path at which it may open it.

        Args:
            closes: the file is closed here, once QEMU has its copy.

        Raises:
            HypervisorError: as `execute`.
        """
        deadline = clock.monotonic() + COMMAND_TIMEOUT_S
        try:
            answer = self._execute("add-fd", None, deadline, descriptor)
        finally:
            if closes:
                os.close(descriptor)
        if not isinstance(answer, dict):
            raise ProtocolError(f"QEMU answered add-fd with {answer!r:.100}")
        try:
            yield f"/dev/fdset/{answer['fdset-id']}"
        finally:
            self.execute("remove-fd", {"fdset-id": answer["fdset-id"]})

    def _execute(
        self,
        command: str,
        arguments: Mapping[str, object] | None,
        deadline: float,
        descriptor: int | None = None,
    ) -> object:
        data = self._session.command(command, arguments)
        try:
            if descriptor is not None:  # it travels with the first byte
                sent = socket.send_fds(self._socket, [data], [descriptor])
                data = data[sent:]
            self._socket.sendall(data)
        except OSError as err:
            raise self._gone() from err
        while True:
            for message in self._receive(deadline, f"the answer to {command}"):
                if isinstance(message, qmp.Reply):
                    return message.value
                if isinstance(message, qmp.Failure):
                    raise MonitorError(
                        f"instance {self._name}: QEMU refused {command}: {message.text}",
                        message.kind,
                    )

    def query(self, command: str) -> Mapping[str, object]:
        """Run a command that answers with an object."""
        value = self.execute(command)
        if not isinstance(value, dict):
            raise ProtocolError(f"QEMU answered {command} with {value!r:.100}")
        return value

    def query_list(self, command: str) -> list[Mapping[str, object]]:
        """Run a command that answers with a list of objects."""
        value = self.execute(command)
        if not isinstance(value, list):
            raise ProtocolError(f"QEMU answered {command} with {value!r:.100}")
        return [item for item in value if isinstance(item, dict)]

    def status(self) -> str:
        """Return the state of the machine: running, paused, shutdown, inmigrate, ..."""
        return str(self.query("query-status").get("status"))

    def schema(self) -> qmp.Schema:
        """Return the commands and arguments that this QEMU understands."""
        if self._schema is None:
            self._schema = qmp.Schema(self.execute("query-qmp-schema"))
        return self._schema

    def wait_event(self, names: frozenset[str], timeout_s: float) -> qmp.Event | None:
        """Wait for one of some events and return it; None when the time is over.

        Events that came before are looked at first, and each is seen once.

        Raises:
            MonitorGone: QEMU went away.
        """
        deadline = clock.monotonic() + timeout_s
        while True:
            while self._events:
                event = self._events.popleft()
                if event.name in names:
                    return event
            try:
                self._receive(deadline, "an event")
            except MonitorTimeout:
                return None

    def _receive(self, deadline: float, what: str) -> list[qmp.Message]:
        """Wait for bytes; returns the messages that they complete, with events kept as well."""
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        if not poller.poll(max(0.0, deadline - clock.monotonic()) * 1000):
            raise MonitorTimeout(f"instance {self._name}: QEMU did not send {what} in time")
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except OSError as err:
            raise self._gone() from err
        if not data:
            raise self._gone()
        messages = self._session.receive(data)
        self._events.extend(message for message in messages if isinstance(message, qmp.Event))
        return messages

    def _gone(self) -> MonitorGone:
        self._session.close()
        return MonitorGone(f"instance {self._name}: QEMU closed its monitor")


def _connect_within(connection: socket.socket, path: str, timeout_s: float) -> None:
    """Connect, waiting in line; a connection of Python's own timeout would fail at once."""
    seconds, fraction = divmod(timeout_s, 1)
    timeout = struct.pack("@ll", int(seconds), int(fraction * 1_000_000))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
    connection.connect(path)
