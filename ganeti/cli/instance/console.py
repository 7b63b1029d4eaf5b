"""``gnt-instance console``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError
from ganeti.bootstrap.node_transport import SshTransport, virtual_sibling
from ganeti.cli.command import EXIT_SUCCESS, Context, Options, command, opt
from ganeti.store import ssconf
from ganeti.system.daemon_control import environment_of
from ganeti.system.ssh import SSH_USER


def console(context: Context, options: Options, args: list[str]) -> int:
    """Connect to an instance's console."""
    [name] = args
    rows = context.client.query_instances([name], ["console", "oper_state", "name"])
    if not rows:
        raise OpPrereqError(f"no instance {name!r}", ErrorCode.NOENT)
    [[found, is_running, full_name]] = rows
    if not isinstance(found, Mapping):
        if is_running is False:
            raise OpPrereqError(f"instance {full_name} is not running", ErrorCode.STATE)
        raise OpExecError(f"the console of instance {full_name} is not known")
    return connect(context, found, show_only=options.show_cmd)


def connect(context: Context, found: Mapping[str, object], *, show_only: bool) -> int:
    """Use one description of a console; returns only when there is nothing to become."""
    match found.get("kind"):
        case "msg":
            context.write(str(found.get("message", "")))
        case "vnc" | "spice" as kind:
            context.write(graphical_text(str(kind), found))
        case "ssh":
            argv, environment = ssh_console(context, found)
            if show_only:
                context.write(shlex.join(argv))
            else:
                os.execvpe(argv[0], argv, environment)  # noqa: S606 - we become the console
        case other:
            raise OpExecError(f"a console of an unknown kind: {other!r}")
    return EXIT_SUCCESS


def graphical_text(kind: str, found: Mapping[str, object]) -> str:
    """Return how to reach a graphical console."""
    host, port = found.get("host"), found.get("port")
    text = f"Instance {found.get('instance')} has a {kind.upper()} console on {host}:{port}"
    display = found.get("display")
    url = f"{kind}://{host}:{port}/"
    return f"{text} (display {display})\n{url}" if display is not None else f"{text}\n{url}"


def ssh_console(
    context: Context, found: Mapping[str, object]
) -> tuple[list[str], Mapping[str, str]]:
    """Return the command that connects to a console on a node, and its environment.

    A virtual node is on this machine: the command runs in its place, without SSH.
    """
    command = found.get("command")
    words = [str(word) for word in command] if isinstance(command, list) else [str(command)]
    host = str(found.get("host", ""))
    if context.paths.root:
        return words, environment_of(virtual_sibling(context.paths, host), host)
    transport = SshTransport(host, context.paths.known_hosts, ssconf.cluster_name(context.paths))
    argv = transport.command_line(words)
    user = str(found.get("user") or SSH_USER)
    argv = [word.replace(f"{SSH_USER}@", f"{user}@", 1) for word in argv]
    return [argv[0], "-t", *argv[1:]], os.environ


COMMANDS: Final = (
    command(
        console,
        "<instance> --priority",
        opt.flag("--show-cmd", "print the command instead of running it"),
        examples="""
gnt-instance console web1  # leave a serial console with Ctrl-]
gnt-instance console --show-cmd web1  # only say how""",
    ),
)
