"""``gnt-cluster master-failover``."""

from __future__ import annotations

from ganeti.base.errors import OpPrereqError
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.confirm import confirm
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.system.environment import own_hostname

_YES: dict[str, bool] = {"true": True, "yes": True, "1": True}
_NO: dict[str, bool] = {"false": False, "no": False, "0": False}


def master_failover(context: Context, options: Options, _args: list[str]) -> int:
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
    return EXIT_SUCCESS


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
