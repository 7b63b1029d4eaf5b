"""``gnt-instance`` console and ssh: two ways into an instance."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import ErrorCode, GenericError, OpExecError, OpPrereqError
from ganeti.bootstrap.node_transport import SshTransport, virtual_sibling
from ganeti.cli.command import EXIT_SUCCESS, Context, Options, command, opt
from ganeti.cli.instance.guest import Found, look
from ganeti.objects.model import InstanceStatus
from ganeti.store import ssconf
from ganeti.system import files
from ganeti.system.daemon_control import environment_of
from ganeti.system.ssh import SSH_PORT, SSH_USER

_KEY_BYTES_MAX: Final = 1 << 16
_USER_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*")
_REASONS: Final[Mapping[str, str]] = {
    InstanceStatus.ERROR_NODEOFFLINE: ": its node {0} is marked offline; when it is well,"
    " 'gnt-node modify --offline=no {0}' takes that back",
    InstanceStatus.ERROR_NODEDOWN: ": its node {0} does not answer; 'gnt-cluster verify' says more",
}


def console(context: Context, options: Options, args: list[str]) -> int:
    """Connect to an instance's console.

    Raises:
        OpPrereqError: there is no such instance, or it does not run.
        OpExecError: its console is not known; says what is wrong with its node, if it is that.
    """
    [name] = args
    fields = ["console", "oper_state", "name", "pnode", "status"]
    rows = context.client.query_instances([name], fields)
    if not rows:
        raise OpPrereqError(f"no instance {name!r}", ErrorCode.NOENT)
    [[found, is_running, full_name, node, status]] = rows
    if not isinstance(found, Mapping):
        if is_running is False:
            raise OpPrereqError(f"instance {full_name} is not running", ErrorCode.STATE)
        reason = _REASONS.get(str(status), "").format(node)
        raise OpExecError(f"the console of instance {full_name} is not known{reason}")
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
    host, port = str(found.get("host")), found.get("port")
    host = f"[{host}]" if ":" in host else host
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

    Raises:
        OpPrereqError: the instance names a user that is no user's name.
    """
    host, port = found.address
    identity = identity or _identity_for(str(found.osparams.get("ssh_key", "")))
    user = user or _user_of(found)
    return [
        "ssh",
        *("-o", f"HostKeyAlias={found.uuid}", "-o", "StrictHostKeyChecking=accept-new"),
        *(("-i", identity) if identity else ()),
        *(("-p", str(port)) if port != SSH_PORT else ()),
        f"{user}@{host}",
        *(("--", *words) if words else ()),
    ]


def _user_of(found: Found) -> str:
    """Return the user that the instance names; whoever may change it must not give SSH options."""
    user = str(found.osparams.get("user") or SSH_USER)
    if not _USER_NAME.fullmatch(user):
        raise OpPrereqError(
            f"instance {found.name}: the parameter user of its operating system is {user!r}, which"
            " is no name of a user; give one with --user"
        )
    return user


def _identity_for(let_in: str) -> str:
    """Return the user's private key whose public one the guest was given, "" without."""
    let_in_keys = {tuple(line.split()[:2]) for line in let_in.splitlines() if line.strip()}
    for path in sorted(glob.glob(os.path.expanduser("~/.ssh/*.pub"))) if let_in_keys else ():
        try:
            public = files.read_bytes(path, _KEY_BYTES_MAX).decode("utf-8", "replace")
        except (OSError, GenericError):  # no key, or none for this user: SSH may find another
            continue
        if tuple(public.split()[:2]) in let_in_keys and os.path.exists(path[:-4]):
            return path[:-4]
    return ""


COMMANDS: Final = (
    command(
        console,
        "<instance> --priority",
        opt.flag("--show-cmd", "print the command instead of running it"),
        examples="""
gnt-instance console web1  # leave a serial console with Ctrl-]
gnt-instance console --show-cmd web1  # only say how""",
    ),
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
