"""Guests that stand still for a moment: by QEMU's guest agent, a program in the guest.

Whoever lets a guest stand still, by its agent or by QEMU, writes a note before, and holds a lock on
it.  A note that nobody holds was left by a process that died: whoever looks at the machine next,
or the node daemon when it starts, lets the guest go on (`let_go`).

Messages are JSON objects on one line each.  Nobody knows whether an agent listens: one that does
not answer the greeting in time is not there.  A greeting has a number of ours, and everything that
comes before its answer is left over from somebody else.

Source: QEMU Guest Agent Protocol Reference: guest-sync, guest-fsfreeze-freeze and -thaw,
guest-network-get-interfaces.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import socket
from collections.abc import Iterator
from typing import Any, Final, Self

from ganeti.base.errors import HypervisorError, ProtocolError
from ganeti.base.json import dumps, loads
from ganeti.hypervisor.interface import GUEST_WAIT_S
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.system import clock
from ganeti.system.filelock import open_locked
from ganeti.system.files import ensure_directory, remove_if_exists

logger = logging.getLogger(__name__)

_GREETING_S: Final = GUEST_WAIT_S
_FREEZE_S: Final = 30.0  # the guest writes back all that it has in memory
_THAW_S: Final = 10.0
_LINE_BYTES_MAX: Final = 1 << 16


class AgentError(HypervisorError):
    """No agent answers, or it refuses."""

    wire_name = "HypervisorError"


class GuestAgent:
    """A connection to the agent of a guest; a context manager."""

    def __init__(self, path: str, wait_s: float = GUEST_WAIT_S) -> None:
        """Connect, and be greeted.

        Args:
            wait_s: how long it has for the greeting, and for an answer that costs it nothing.

        Raises:
            AgentError: nobody answers.
        """
        self._wait_s = wait_s
        self._buffer = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(wait_s)
            self._socket.connect(path)
            self._greet()
        except OSError as err:
            self._socket.close()
            raise AgentError(f"no guest agent answers ({err.strerror or 'no answer'})") from err
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._socket.close()

    def _greet(self) -> None:
        number = int(clock.now() * 1000) & 0x7FFFFFFF
        deadline = clock.monotonic() + self._wait_s
        self._send("guest-sync", {"id": number}, deadline)
        while self._answer(deadline).get("return") != number:
            continue

    def execute(self, command: str, *, timeout_s: float) -> object:
        """Let the agent do something; returns its answer.

        Raises:
            AgentError: it refused, or did not answer in time.
        """
        deadline = clock.monotonic() + timeout_s
        try:
            self._send(command, None, deadline)
            answer = self._answer(deadline)
        except OSError as err:
            raise AgentError(f"the guest agent did not answer {command}: {err}") from err
        if "error" in answer:
            error = answer["error"]
            text = error.get("desc") if isinstance(error, dict) else error
            raise AgentError(f"the guest agent refused {command}: {text}")
        return answer.get("return")

    def addresses(self) -> list[str]:
        """Return the addresses of the guest, those that only its own links know left out.

        Raises:
            AgentError: as of `execute`.
        """
        cards = _tables(self.execute("guest-network-get-interfaces", timeout_s=self._wait_s))
        rows = [row for card in cards for row in _tables(card.get("ip-addresses"))]
        texts = [str(row.get("ip-address", "")) for row in rows]
        return [text for text in texts if not _is_only_near(text)]

    def _send(self, command: str, arguments: dict[str, object] | None, deadline: float) -> None:
        self._set_timeout(deadline)
        message: dict[str, object] = {"execute": command}
        if arguments is not None:
            message["arguments"] = arguments
        self._socket.sendall(dumps(message) + b"\n")

    def _answer(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            self._set_timeout(deadline)
            data = self._socket.recv(4096)
            if not data or len(self._buffer) > _LINE_BYTES_MAX:
                raise AgentError("the guest agent does not keep to its protocol")
            self._buffer += data
        line, _end, self._buffer = self._buffer.partition(b"\n")
        try:
            found = loads(line.lstrip(b"\xff"))
        except ProtocolError:  # the rest of an answer to somebody else
            return {}
        return found if isinstance(found, dict) else {}

    def _set_timeout(self, deadline: float) -> None:
        """Wait until then at most, whatever comes: a guest may talk without end.

        Raises:
            TimeoutError: it is over.
        """
        left_s = deadline - clock.monotonic()
        if left_s <= 0:
            raise TimeoutError("no answer in time")
        self._socket.settimeout(left_s)


def _tables(found: object) -> list[dict[str, Any]]:
    """Return the objects of a list; whatever else a guest says instead is left out."""
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _is_only_near(text: str) -> bool:
    """Tell whether a text is no address, or one that means nothing elsewhere.

    The zone of an address ("%eth0") is a text of the guest's choice, and of its links alone.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return True
    nowhere = address.is_unspecified or address.is_multicast
    return nowhere or address.is_loopback or address.is_link_local or "%" in text


_STOPS: Final = b"stops\n"  # in a note: QEMU stops the guest, too
_DIRECTORY_MODE: Final = 0o750


@contextlib.contextmanager
def held_still(
    name: str, files: MachineFiles, *, must: bool, stops: bool = False
) -> Iterator[bool]:
    """Hold the file systems of a guest still, if its agent answers; yields whether it does.

    Args:
        must: fail otherwise.
        stops: the caller lets QEMU stop the guest meanwhile.

    Raises:
        HypervisorError: no agent could hold them still, and that is a must.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_noted(files, stops=stops))
        try:
            agent = _freeze(files.socket_path("agent"), stack)
        except AgentError as err:
            if must:
                raise HypervisorError(
                    f"instance {name}: its file systems cannot be held still: {err.message}; is"
                    " hypervisor parameter use_guest_agent set, and qemu-guest-agent running in"
                    " the guest?"
                ) from err
            logger.info("instance %s: %s, so its file systems are not held still", name, err)
            agent = None
        yield agent is not None


@contextlib.contextmanager
def _noted(files: MachineFiles, *, stops: bool) -> Iterator[None]:
    """Have a note that the guest is to go on, from before it stands still until after that.

    It need not outlive the machine, so it is not synced to the disk.

    Raises:
        HypervisorError: somebody else lets the guest stand still just now.
    """
    ensure_directory(os.path.dirname(files.standstill), _DIRECTORY_MODE)
    note = open_locked(files.standstill)
    if note is None:
        raise HypervisorError(f"instance {files.name}: another call has the guest stand still")
    try:
        os.write(note, _STOPS if stops else b"")
        yield
    except HypervisorError:  # QEMU may have refused to let it go on: the next look does that
        os.close(note)
        raise
    except BaseException:
        _tear_up(files, note)
        raise
    _tear_up(files, note)


def _tear_up(files: MachineFiles, note: int) -> None:
    remove_if_exists(files.standstill)
    os.close(note)


def let_go(files: MachineFiles, monitor: Monitor) -> None:
    """Let a guest go on that a process which died has left standing still.

    Raises:
        HypervisorError: QEMU refuses.
    """
    if not os.path.exists(files.standstill) or (note := open_locked(files.standstill)) is None:
        return  # nobody stopped it, or whoever did is still at work
    try:
        if os.read(note, len(_STOPS)) == _STOPS and monitor.status() == "paused":
            monitor.execute("cont")
            logger.warning("instance %s was left paused by a snapshot, it goes on", files.name)
        with contextlib.suppress(AgentError), GuestAgent(files.socket_path("agent")) as agent:
            _thaw(agent)
        remove_if_exists(files.standstill)
    finally:
        os.close(note)


def _freeze(path: str, stack: contextlib.ExitStack) -> GuestAgent:
    if not os.path.exists(path):
        raise AgentError("the instance has no channel for a guest agent")
    agent = stack.enter_context(GuestAgent(path, _GREETING_S))
    stack.callback(_thaw, agent)
    agent.execute("guest-fsfreeze-freeze", timeout_s=_FREEZE_S)
    return agent


def _thaw(agent: GuestAgent) -> None:
    """Let the guest go on, also after an attempt to hold it still that failed midway."""
    try:
        agent.execute("guest-fsfreeze-thaw", timeout_s=_THAW_S)
    except AgentError as err:
        logger.error("%s; its file systems may stand still", err)  # noqa: TRY400 - no trace needed
