"""``gnt-cluster`` master-failover, activate-master-ip, deactivate-master-ip, queue and watcher."""

from __future__ import annotations

import time
from typing import Final

from ganeti.base.errors import OpPrereqError, ParameterError
from ganeti.base.text import parse_duration
from ganeti.cli.command import ArgKind, Context, Options, command, confirm, job, opt
from ganeti.cli.declaration.values import parse_bool
from ganeti.opcodes.cluster import OpClusterActivateMasterIp, OpClusterDeactivateMasterIp
from ganeti.store.job_files import JobFiles
from ganeti.system import clock
from ganeti.system.environment import own_hostname


def master_failover(context: Context, options: Options, _args: list[str]) -> None:
    """Make this node the master."""
    from ganeti.bootstrap.failover import FailoverOptions, fail_over

    if options.no_voting and not options.yes_do_it:
        confirm(
            context,
            "This makes this node the master whatever the other nodes say, and overwrites their"
            " configuration with the one that is here.\nIf another master runs, or if a newer"
            " configuration exists, the cluster breaks.  Go on?",
            option="--yes-do-it",
        )
    own_name = own_hostname()
    chosen = FailoverOptions(
        no_voting=bool(options.no_voting),
        asks_offline=not ignores_offline_nodes(options.ignore_offline_nodes),
    )
    fail_over(context.paths, own_name, chosen, context.write)
    context.write(f"{own_name} is the master.")


def ignores_offline_nodes(given: object) -> bool:
    """Return the meaning of ``--ignore-offline-nodes``; it takes a word, and defaults to yes.

    Raises:
        OpPrereqError: another word than yes or no.
    """
    try:
        return given if isinstance(given, bool) else parse_bool(str(given))
    except ParameterError as err:
        text = f"--ignore-offline-nodes takes yes or no, not {given!r}"
        raise OpPrereqError(text) from err


def queue(context: Context, _options: Options, args: list[str]) -> None:
    """Stop or allow the submission of jobs."""
    [what] = args
    if what == "info":
        [is_drained] = context.client.query_config_values(["drain_flag"])
        by = JobFiles(context.paths).drained_by()
        whose = f", by {by}: run that again, or 'gnt-cluster queue undrain'" if by else ""
        context.write(f"The drain flag is {'set' if is_drained else 'unset'}{whose}")
    else:
        context.client.set_drain_flag(what == "drain")


def watcher(context: Context, _options: Options, args: list[str]) -> None:
    """Pause the watcher."""
    what, *rest = args
    if what == "pause":
        if not rest:
            raise OpPrereqError("for how long? for example: gnt-cluster watcher pause 1h")
        until = context.client.set_watcher_pause(clock.now() + parse_duration(rest[0]))
        context.write(f"The watcher is paused until {_format(until)}.")
        return
    if rest:
        raise OpPrereqError(f"{what!r} takes no time")
    if what == "continue":
        context.client.set_watcher_pause(None)
        context.write("The watcher is no longer paused.")
    else:
        [until_value] = context.client.query_config_values(["watcher_pause"])
        if isinstance(until_value, int | float) and until_value > clock.now():
            context.write(f"The watcher is paused until {_format(until_value)}.")
        else:
            context.write("The watcher is not paused.")


def _format(moment: float | None) -> str:
    return "?" if moment is None else time.ctime(moment)


COMMANDS: Final = (
    command(
        master_failover,
        opt.option("--ignore-offline-nodes", "do not ask nodes that are offline", default=True),
        opt.flag("--no-voting", "whatever the other nodes say; their files are overwritten"),
        opt.flag("--yes-do-it", "do not ask"),
        aliases=("masterfailover",),
        description="""Runs on the master candidate that is to become master.  A living master first
finishes its jobs and stops.  With a dead one, half of all nodes plus one must answer, and so many
master candidates that the newest configuration and every job are among what they have; the jobs
that were running are marked as failed.  Every refusal names the missing nodes and the remedy.""",
        examples="""
gnt-cluster master-failover  # on the node that is to become master
gnt-cluster master-failover --no-voting --yes-do-it \
 # when too few nodes are left, and the old master is known to be off""",
    ),
    job("activate-master-ip: bring the master address up", OpClusterActivateMasterIp),
    job(
        "deactivate-master-ip: take the master address down",
        OpClusterDeactivateMasterIp,
        opt.flag("--yes -> confirm", "do not ask"),
        confirm="Clients will not find the master any more.  Go on?",
    ),
    command(
        queue, "{drain|info|undrain}", examples="gnt-cluster queue drain  # accept no new jobs"
    ),
    command(
        watcher,
        "{continue|info|pause}",
        opt.Argument(ArgKind.SUGGEST, 0, 1, choices=("1h", "30m", "4h"), metavar="<time>"),
        examples="gnt-cluster watcher pause 1h  # no watcher for an hour",
    ),
)
