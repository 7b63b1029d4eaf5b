"""``gnt-instance ssh``, and waiting until the guest of a new instance answers."""

from __future__ import annotations

import glob
import os
import shlex
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError
from ganeti.cli.command import EXIT_SUCCESS, Context, Options, command, opt
from ganeti.objects.model import Guest
from ganeti.system import clock, files
from ganeti.system.ssh import SSH_PORT, SSH_USER

AGENT: Final = "agent"
SSH: Final = "ssh"
WAIT_S: Final = 300  # an emulated Debian takes two minutes to its first login
_INTERVAL_S: Final = 1.0
_CONNECT_S: Final = 3.0
_GREETING: Final = b"SSH-"
_KEY_BYTES_MAX: Final = 1 << 16
_CONSOLE_LINES: Final = 15
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


def ssh(context: Context, options: Options, args: list[str]) -> int:
    """Log in to an instance's guest by SSH, or run a command there."""
    found = look(context, args[0])
    if not found.is_running:
        raise OpPrereqError(f"instance {found.name} is not running", ErrorCode.STATE)
    words = args[2:] if args[1:2] == ["--"] else args[1:]
    argv = ssh_command(found, words, user=options.user or "", identity=options.identity or "")
    if not options.show_cmd:
        os.execvp(argv[0], argv)  # noqa: S606 - we become it
    context.write(shlex.join(argv))
    return EXIT_SUCCESS


def ssh_command(found: Found, words: list[str], *, user: str = "", identity: str = "") -> list[str]:
    """Return the command that logs in to a guest.

    A host key is kept under the UUID of the instance: names and addresses are used again.
    """
    host, port = found.address
    identity = identity or _identity_for(str(found.osparams.get("ssh_key", "")))
    user = user or str(found.osparams.get("user") or SSH_USER)
    return [
        "ssh",
        *("-o", f"HostKeyAlias={found.uuid}", "-o", "StrictHostKeyChecking=accept-new"),
        *(("-i", identity) if identity else ()),
        *(("-p", str(port)) if port != SSH_PORT else ()),
        f"{user}@{host}",
        *(("--", *words) if words else ()),
    ]


def _identity_for(let_in: str) -> str:
    """Return the user's private key whose public one the guest was given, "" without."""
    let_in_keys = {tuple(line.split()[:2]) for line in let_in.splitlines()}
    for path in sorted(glob.glob(os.path.expanduser("~/.ssh/*.pub"))):
        public = files.read_bytes(path, _KEY_BYTES_MAX).decode("utf-8", "replace")
        if tuple(public.split()[:2]) in let_in_keys and os.path.exists(path[:-4]):
            return path[:-4]
    return ""


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
            raise OpExecError(_failure(found, f"instance {found.name} does not run any more"))
        if passed_s >= timeout_s:
            text = f"{_WORDS[what]} of {found.name} has not answered within {timeout_s:g} s"
            raise OpExecError(_failure(found, f"{text}; the instance is left running"))
        context.terminal.progress(f"{passed_s:.0f} s: {_last_line(found.guest.console)}")
        clock.pause(min(_INTERVAL_S, timeout_s - passed_s))


_WORDS: Final = {AGENT: "the guest agent", SSH: "the SSH server"}


def _greets(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, _CONNECT_S) as connection:
            return connection.recv(len(_GREETING), socket.MSG_WAITALL) == _GREETING
    except OSError:
        return False


def _lines(console: str) -> list[str]:
    shown = "".join(each for each in console if each.isprintable() or each == "\n")
    return [line.rstrip() for line in shown.splitlines() if line.strip()]


def _last_line(console: str) -> str:
    return next(reversed(_lines(console)), "")


def _failure(found: Found, text: str) -> str:
    lines = _lines(found.guest.console)[-_CONSOLE_LINES:]
    if not lines:
        return f"{text}; its console has shown nothing"
    return "\n  ".join([f"{text}; the end of its console:", *lines])


COMMANDS: Final = (
    command(
        ssh,
        "<instance> [<command>...]",
        opt.option("-i --identity=FILE", "private key to log in with"),
        opt.option("-l --user=USER", "user to log in as"),
        opt.flag("--show-cmd", "print the command instead of running it"),
        description="""The address is that of the first interface which has one, otherwise one that
the guest agent tells, otherwise that of the instance's name; a node of a virtual cluster forwards
connections.  User and key are those that the parameters user and ssh_key of the operating system
name, root and the keys that SSH tries by itself without them.  The guest's host key is kept under
the instance's UUID.""",
        examples="""
gnt-instance ssh web1  # a shell
gnt-instance ssh web1 -- systemctl status  # one command
gnt-instance ssh --show-cmd web1  # only say how""",
    ),
)
