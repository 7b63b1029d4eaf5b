"""``daemon-util``: start, stop and look at the daemons of this node, as scripts of 3.0 call it.

Source: config.json, "well_known_paths" (DAEMON_UTIL); daemon-util's commands as operators use them.
"""

from __future__ import annotations

import os
import signal
from typing import Final

from ganeti.base.daemons import DAEMONS, Daemon, Place, daemon_of
from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options
from ganeti.cli.declaration.program import DEBUG, ArgKind, Argument, Command, Program
from ganeti.cli.run.failures import told_by
from ganeti.store import ssconf
from ganeti.system import daemon_control, ssh
from ganeti.system.environment import own_hostname

NAME: Final = "daemon-util"
NOT_RUNNING: Final = 3  # as scripts for init say it (LSB)
_HERE: Final = frozenset({Place.NODE})
_MASTER: Final = frozenset({Place.MASTER})


def start(context: Context, _options: Options, args: list[str]) -> None:
    """Start a daemon that does not run, with more arguments this once."""
    name, *more = args
    daemon_control.start_daemon(context.paths, _daemon(name).name, more)


def stop(context: Context, _options: Options, args: list[str]) -> None:
    """Stop a daemon."""
    daemon_control.stop_daemon(context.paths, _daemon(args[0]).name)


def check(context: Context, _options: Options, args: list[str]) -> int:
    """Tell by the exit status whether a daemon runs: 0 yes, 3 no."""
    is_running = daemon_control.running_pid(context.paths, _daemon(args[0]).name) is not None
    return EXIT_SUCCESS if is_running else NOT_RUNNING


def start_all(context: Context, _options: Options, _args: list[str]) -> None:
    """Start the daemons of this node, on the master those of the master too."""
    _refuse_without_cluster(context)
    daemon_control.start_wanted(context.paths, _HERE, context.write)
    # Last: on a former master they do not start, and keep no others from it.
    if _is_master(context):
        daemon_control.start_wanted(context.paths, _MASTER, context.write)


def stop_all(context: Context, _options: Options, _args: list[str]) -> None:
    """Stop all daemons of this node."""
    daemon_control.stop_all(context.paths, frozenset(Place), context.write)


def restart_all(context: Context, options: Options, args: list[str]) -> None:
    """Stop all daemons of this node, and start them."""
    stop_all(context, options, args)
    start_all(context, options, args)


def start_master(context: Context, _options: Options, _args: list[str]) -> None:
    """Start the daemons of the master."""
    _refuse_without_cluster(context)
    daemon_control.start_wanted(context.paths, _MASTER, context.write)


def stop_master(context: Context, _options: Options, _args: list[str]) -> None:
    """Stop the daemons of the master."""
    daemon_control.stop_all(context.paths, _MASTER, context.write)


def list_start_daemons(context: Context, _options: Options, _args: list[str]) -> None:
    """Print the daemons in the order in which they start."""
    for daemon in daemon_control.wanted(context.paths):
        context.write(daemon.name)


def list_stop_daemons(context: Context, _options: Options, _args: list[str]) -> None:
    """Print the daemons in the order in which they stop."""
    for daemon in reversed(DAEMONS):
        context.write(daemon.name)


def is_daemon_name(_context: Context, _options: Options, args: list[str]) -> int:
    """Tell by the exit status whether a daemon has this name."""
    return EXIT_SUCCESS if any(each.name == args[0] for each in DAEMONS) else EXIT_FAILURE


def daemon_executable(context: Context, _options: Options, args: list[str]) -> None:
    """Print the path of a daemon's program."""
    context.write(daemon_control.executable(_daemon(args[0]).name))


def check_config(context: Context, _options: Options, _args: list[str]) -> None:
    """Tell by the exit status whether this machine belongs to a cluster."""
    _refuse_without_cluster(context)


def rotate_logs(context: Context, _options: Options, args: list[str]) -> None:
    """Have a daemon open its log file again."""
    pid = daemon_control.running_pid(context.paths, _daemon(args[0]).name)
    if pid is not None:
        os.kill(pid, signal.SIGHUP)


def rotate_all_logs(context: Context, options: Options, _args: list[str]) -> None:
    """Have all daemons open their log files again."""
    for daemon in DAEMONS:
        rotate_logs(context, options, [daemon.name])


def reload_ssh_keys(_context: Context, _options: Options, _args: list[str]) -> None:
    """Have the SSH server use the host keys that are there now."""
    ssh.reload_server()


def _daemon(name: str) -> Daemon:
    try:
        return daemon_of(name)
    except StopIteration:
        names = ", ".join(each.name for each in DAEMONS)
        raise OpPrereqError(f"no daemon is called {name!r}; there are {names}") from None


def _refuse_without_cluster(context: Context) -> None:
    path = context.paths.server_pem
    if not os.path.exists(path):
        raise OpPrereqError(f"this machine belongs to no cluster: there is no {path}")


def _is_master(context: Context) -> bool:
    return ssconf.read_key_or_none(context.paths, "master_node") == own_hostname()


_ONE: Final = (Argument(ArgKind.TEXT, metavar="DAEMON"),)
_WITH_ARGUMENTS: Final = (*_ONE, Argument(ArgKind.COMMAND, 0, None, metavar="ARGUMENT"))
_COMMANDS: Final = (
    (start, _WITH_ARGUMENTS, ("check-and-start",)),
    (stop, _ONE, ()),
    (check, _ONE, ()),
    *((each, (), ()) for each in (start_all, stop_all, restart_all, start_master, stop_master)),
    *((each, (), ()) for each in (list_start_daemons, list_stop_daemons, check_config)),
    *((each, _ONE, ()) for each in (is_daemon_name, daemon_executable, rotate_logs)),
    *((each, (), ()) for each in (rotate_all_logs, reload_ssh_keys)),
)


def _row(handler: object, args: tuple[Argument, ...], aliases: tuple[str, ...]) -> Command:
    summary = (getattr(handler, "__doc__", "") or "").partition(".\n")[0].rstrip(".")
    name = getattr(handler, "__name__", "").replace("_", "-")
    return Command(name, summary[:1].lower() + summary[1:], handler, args=args, aliases=aliases)  # type: ignore[arg-type]


PROGRAM: Final = Program(
    NAME,
    "start, stop and look at the daemons of this node",
    """Starts and stops the daemons of this node; where systemd has units for them, it is asked to.
Programs of the cluster do it by themselves, so this is for scripts and for people: the names and
arguments are those of Ganeti 3.0, which has this program in the same place.""",
    own=tuple(_row(*each) for each in _COMMANDS),
    common_options=(DEBUG,),
    explain=told_by(NAME),
    expected_errors=(GenericError, OSError),
)
