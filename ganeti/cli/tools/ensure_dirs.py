"""``ensure-dirs``: give files and directories of the cluster their owners and modes."""

from __future__ import annotations

from typing import Final

from ganeti.base.daemons import MASTERD
from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.bootstrap import cluster_files
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options, opt
from ganeti.cli.declaration.program import DEBUG, single_program
from ganeti.store import accounts


def ensure(context: Context, options: Options, _args: list[str]) -> int:
    """Make missing directories; give everything that is there its owner and mode, or tell."""
    paths = context.paths
    if accounts.uid_of(MASTERD) is None:
        raise OpPrereqError(
            f"there is no user {MASTERD} here: all daemons run as one user, and nothing is changed"
        )
    if options.dry_run:
        found = list(accounts.differences(paths))
    else:
        cluster_files.ensure_directories(paths)
        found = accounts.settle(paths)
    for each in found:
        context.write(f"{each.path}: {each.found} -> {each.wanted}")
    return EXIT_FAILURE if options.dry_run and found else EXIT_SUCCESS


PROGRAM: Final = single_program(
    "ensure-dirs",
    "give files and directories of the cluster their owners and modes",
    """Makes the directories of a node, and gives them and all files of the cluster the owners and
modes that they have where the daemons run as users of their own (gnt-masterd, gnt-confd, gnt-rapi
and the group gnt-daemons, as Debian's packages make them).  From then on the daemons of this node
run as these users.  What was changed is printed.  Each daemon that root starts does the same, so
this is needed only once: on a node whose cluster belonged to root until now.""",
    ensure,
    options=(
        DEBUG,
        opt.flag("-f --full-run", "as without: the whole job queue is always looked at"),
        opt.flag("--dry-run", "change nothing; the exit status is 1 if there is something to do"),
    ),
    expected_errors=(GenericError, OSError),
)
