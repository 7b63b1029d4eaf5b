"""``gnt-cluster master-failover``.

``gnt-cluster`` activate-master-ip and deactivate-master-ip.

``gnt-cluster`` queue and watcher."""

from __future__ import annotations

import time
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.cli.command import ArgKind, Context, Options, command, confirm, job, opt
from ganeti.opcodes.cluster import OpClusterActivateMasterIp, OpClusterDeactivateMasterIp
from ganeti.store.job_files import JobFiles
from ganeti.system import clock
from ganeti.system.environment import own_hostname

_YES: dict[str, bool] = {"true": True, "yes": True, "1": True}
_NO: dict[str, bool] = {"false": False, "no": False, "0": False}


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
    """Return what ``--ignore-offline-nodes`` means; it takes a word, and defaults to yes.

    Raises:
        OpPrereqError: another word than yes or no.
    """
    if isinstance(given, bool):
        return given
    found = (_YES | _NO).get(str(given).lower())
    if found is None:
        raise OpPrereqError(f"--ignore-offline-nodes takes yes or no, not {given!r}")
    return found


_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


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


def parse_duration(text: str) -> int:
    """Parse a time such as 90, 30m, 4h, 2d or 1w to seconds.

    Raises:
        OpPrereqError: it cannot be understood.
    """
    number, unit = (text[:-1], text[-1]) if text and text[-1] in _SECONDS else (text, "s")
    if not number.isdigit():
        raise OpPrereqError(f"{text!r} is not a time such as 90, 30m, 4h, 2d or 1w")
    return int(number) * _SECONDS[unit]


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
that were running are marked as failed.  Every refusal names who is missing and what helps.""",
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
    command(
        None,
        opt.flag("--resume", "go on with an upgrade that was interrupted"),
        opt.option("--to", "the version"),
        title="upgrade: change to another version of the software",
    ),
)
