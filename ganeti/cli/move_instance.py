"""``tools/move-instance``: move instances to another cluster, from anywhere.

Source: cli.json, "move-instance".
"""

from __future__ import annotations

import signal
import sys

from ganeti.base.errors import GenericError
from ganeti.cli.declaration import common as opt
from ganeti.cli.declaration.parser import HelpWanted, UsageError, parse
from ganeti.cli.declaration.program import (
    Action,
    ArgKind,
    Argument,
    Command,
    Option,
    Program,
    flag,
    with_help,
)
from ganeti.cli.declaration.values import ValueType
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_FAILURE, EXIT_SUCCESS
from ganeti.cli.run.terminal import Terminal
from ganeti.clients.rapi import DEFAULT_PORT

_INTERRUPTED = 130  # what a shell says of a process that Ctrl-C ended
NAME = "move-instance"
SUMMARY = "move instances to another cluster"
INTRODUCTION = """Moves instances from one cluster to another through the remote APIs of both,
which may be asked from any machine.  The disks go straight from node to node, over TLS."""
CHAPTERS = (
    (
        "SET-UP",
        """Both clusters must know the same domain secret: make one on the first, with 'gnt-cluster
renew-crypto --new-cluster-domain-secret', and give a copy of the file
/var/lib/ganeti/cluster-domain-secret to the second, with 'gnt-cluster renew-crypto
--cluster-domain-secret=FILE'.  In both, a user with the right to write is needed, made by 'gnt-rapi
set-user --rights=write'.  The certificate of each remote API is /var/lib/ganeti/rapi.pem; only its
public part is needed.  The node that sends must reach the one that receives on any port.""",
    ),
    (
        "CHECKS",
        """Before anything is touched, everything that is known to be needed is looked for:
versions, users, the domain secret, a free name, the operating system, hypervisor, disk template,
networks, a node with enough room and memory.  All that is missing is told at once.  --dry-run ends
after that.""",
    ),
    (
        "COURSE OF A MOVE",
        """An instance that runs is shut down once the other cluster waits for its disks, and
started there when all of them have arrived complete; then it is removed from the first cluster,
unless --keep-source is given.  When anything fails, nothing of it is left in the other cluster, and
it is started again where it was.  Ctrl-C, or the end of the session, has the same effect at any
moment.""",
    ),
    (
        "THE NEW INSTANCE",
        """The new instance is as the old one was, but for what options say: back-end parameters
as they are in effect, those of hypervisor and operating system as far as they are its own,
interfaces with their MAC addresses, tags.  Parameters of the operating system that are private or
secret are not handed out; give them again with --os-parameters-private.""",
    ),
    (
        "EXIT STATUS",
        """Exit status: 0 all instances were moved; 1 one was not, or something is missing; 2 an
option is wrong; 130 interrupted before anything was touched.""",
    ),
)
PROSE = "\n\n".join([INTRODUCTION, *(text for _, text in CHAPTERS)])


def _both(suffix: str, text: str, **settings: object) -> tuple[Option, Option]:
    """Declare one option for each of the two clusters."""
    return (
        Option((f"--src-{suffix}",), text.format("source"), **settings),  # type: ignore[arg-type]
        Option((f"--dest-{suffix}",), text.format("destination"), **settings),  # type: ignore[arg-type]
    )


_PARALLEL = Option(
    ("-p", "--parallel"),
    "how many instances to move at a time",
    type=ValueType.INT,
    metavar="<number>",
    default=1,
)
_TRIES = Option(
    ("--opportunistic-tries",),
    "how often to try with opportunistic locking, if resources are short for the moment",
    type=ValueType.INT,
    metavar="<number>",
    default=0,
)
_DELAY = Option(
    ("--opportunistic-delay",),
    "seconds between two of these tries",
    type=ValueType.INT,
    metavar="<number>",
    default=30,
)

OPTIONS = (
    flag("--dry-run", help="say what is missing, change nothing"),
    flag("--keep-source", help="leave the instance in the source cluster, shut down"),
    Option(("-d", "--debug"), "show tracebacks of failures", action=Action.COUNT),
    flag("-v", "--verbose", help="accepted for the sake of 3.0; all that happens is shown anyway"),
    with_help(opt.IALLOCATOR, "allocator of the destination cluster that chooses the nodes"),
    opt.BACKEND_PARAMETERS,
    opt.INSTANCE_HYPERVISOR_PARAMETERS,
    opt.OS_PARAMETERS,
    opt.OS_PARAMETERS_PRIVATE,
    with_help(opt.NET, "settings of an interface that are to be others: N:link=...,mac=generate"),
    *_both(
        "rapi-port",
        "port of the remote API of the {} cluster",
        type=ValueType.INT,
        metavar="PORT",
        default=DEFAULT_PORT,
    ),
    *_both(
        "ca-file",
        "PEM file with the certificate of that remote API ({} cluster), or its authority's",
        metavar="FILE",
        completes=ArgKind.FILE,
    ),
    *_both("username", "user of the remote API of the {} cluster", metavar="NAME"),
    *_both(
        "password-file",
        "file with the password of that user, {} cluster",
        metavar="FILE",
        completes=ArgKind.FILE,
    ),
    Option(("--dest-instance-name",), "name there; by default the same", metavar="NAME"),
    Option(("--dest-primary-node",), "node to put it on", metavar="NODE"),
    Option(("--dest-secondary-node",), "secondary node, for mirrored disks", metavar="NODE"),
    Option(
        ("--dest-disk-template",),
        "disk template there; by default the same",
        type=ValueType.CHOICE,
        metavar="TEMPL",
        choices=opt.DISK_TEMPLATES,
    ),
    with_help(opt.COMPRESS, "compression of what is sent"),
    _PARALLEL,
    _TRIES,
    _DELAY,
)
_EXAMPLE = (
    "move-instance --src-username=jim --src-password-file=src.pw --src-ca-file=src.pem"
    " --dest-username=jim --dest-password-file=dest.pw --dest-ca-file=dest.pem"
    " --dest-primary-node=node7 old.example.com new.example.com web1.example.com"
)
USAGE = "<source-cluster> <destination-cluster> <instance>..."
COMMAND = Command(
    NAME,
    SUMMARY,
    "moving.command:move",
    (
        Argument(ArgKind.HOST, metavar="<source-cluster>"),
        Argument(ArgKind.HOST, metavar="<destination-cluster>"),
        Argument(ArgKind.TEXT, max=None, metavar="<instance>"),
    ),
    OPTIONS,
    description=PROSE,
    examples=(
        (
            _EXAMPLE,
            "move web1 to node7 of the cluster new.example.com",
        ),
    ),
)
PROGRAM = Program(NAME, SUMMARY, PROSE, (COMMAND,), is_interspersed=True, common_options=())


def main() -> int:
    """Run ``move-instance`` with the words of the command line."""
    terminal = Terminal.of_process()
    try:
        line = parse(PROGRAM, [NAME, *sys.argv[1:]], {})
    except UsageError as err:
        terminal.error(f"{NAME}: {err.message.replace(f'{NAME} {NAME}', NAME)}")
        return err.exit_code
    except HelpWanted:
        from ganeti.cli.declaration.help import command_help

        text = command_help(PROGRAM, COMMAND, terminal.width)
        terminal.write(text.replace(f"{NAME} {NAME}", NAME))
        return EXIT_SUCCESS
    from ganeti.cli.commands.moving.command import move

    for ending in (signal.SIGTERM, signal.SIGHUP):  # a session that ends must not leave half a move
        signal.signal(ending, signal.default_int_handler)
    context = Context(NAME, NAME, line.options, terminal)
    try:
        return move(context, line.options, line.args)
    except KeyboardInterrupt:
        terminal.error(f"{NAME}: interrupted; nothing was touched")
        return _INTERRUPTED
    except GenericError as err:
        if line.options.debug:
            raise
        terminal.error(f"{NAME}: {err.message}")
        return EXIT_FAILURE
