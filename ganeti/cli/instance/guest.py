"""The guest of an instance: where it is, and waiting until it answers."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError
from ganeti.cli.command import Context, Options
from ganeti.objects.model import Guest
from ganeti.system import clock
from ganeti.system.ssh import SSH_PORT

AGENT: Final = "agent"
SSH: Final = "ssh"
WAIT_S: Final = 300  # an emulated Debian takes two minutes to its first login
_INTERVAL_S: Final = 1.0
_CONNECT_S: Final = 3.0
_GREETING: Final = b"SSH-"
_FIELDS: Final = ("name", "uuid", "oper_state", "nic.ips", "osparams", "guest")


@dataclass(frozen=True, slots=True)
class Found:
    """An instance, and its guest as the primary node sees it."""

    name: str
    uuid: str
    is_running: bool
    ips: list[str]
    osparams: Mapping[str, object]
    guest: Guest

    @property
    def address(self) -> tuple[str, int]:
        """Where the SSH server of the guest is: forwarded, of an interface, told, or by name."""
        if self.guest.forward:
            host, port = self.guest.forward
            return str(host), int(str(port))
        return next(iter((*self.ips, *self.guest.addresses, self.name))), SSH_PORT


def look(context: Context, name: str) -> Found:
    """Look at the guest of an instance.

    Raises:
        OpPrereqError: there is no such instance.
    """
    rows = context.client.query_instances([name], list(_FIELDS))
    if not rows:
        raise OpPrereqError(f"no instance {name!r}", ErrorCode.NOENT)
    [[full_name, uuid, is_running, ips, osparams, guest]] = rows
    return Found(
        name=str(full_name),
        uuid=str(uuid),
        is_running=is_running is True,
        ips=[ip for ip in ips if ip] if isinstance(ips, list) else [],
        osparams=osparams if isinstance(osparams, Mapping) else {},
        guest=Guest.from_wire(guest) if isinstance(guest, Mapping) else Guest(),
    )


def check_wait(options: Options) -> None:
    """Refuse to wait for a guest that will not be started now.

    Raises:
        OpPrereqError: names the option.
    """
    given = {
        "--submit": options.submit,
        "--dry-run": options.dry_run,
        "--forthcoming": options.forthcoming,
        "--no-start": not options.start,
    }
    for flag in [flag for flag, is_given in given.items() if options.wait_for and is_given]:
        raise OpPrereqError(f"give either --wait-for or {flag}, not both")


def wait(context: Context, name: str, what: str, timeout_s: float) -> None:
    """Wait until the guest agent or the SSH server of an instance's guest answers.

    Raises:
        OpExecError: it does not, or the instance has stopped; with the end of its console.
    """
    started = clock.monotonic()
    context.write(f"* waiting for {_WORDS[what]} of {name}...")
    while True:
        found = look(context, name)
        passed_s = clock.monotonic() - started
        if found.guest.agent if what == AGENT else _greets(found.address):
            context.terminal.progress("")
            context.write(f"{_WORDS[what]} of {found.name} answers after {passed_s:.0f} s")
            return
        if not found.is_running:
            raise OpExecError(failure(found, f"instance {found.name} does not run any more"))
        if passed_s >= timeout_s:
            text = f"{_WORDS[what]} of {found.name} has not answered within {timeout_s:g} s"
            raise OpExecError(failure(found, f"{text}; the instance is left running"))
        context.terminal.progress(f"{passed_s:.0f} s: {found.guest.last_line}")
        clock.pause(min(_INTERVAL_S, timeout_s - passed_s))


_WORDS: Final = {AGENT: "the guest agent", SSH: "the SSH server"}


def _greets(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, _CONNECT_S) as connection:
            return connection.recv(len(_GREETING), socket.MSG_WAITALL) == _GREETING
    except OSError:
        return False


def failure(found: Found, text: str) -> str:
    """Return the text of a failure, with the end of the console."""
    return f"{text}; {found.guest.end_of_console}"
