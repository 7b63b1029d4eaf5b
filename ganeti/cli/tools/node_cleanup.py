"""``node-cleanup``: run on a machine that leaves a cluster."""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import GenericError
from ganeti.bootstrap import node_setup
from ganeti.cli.command import EXIT_SUCCESS, Context, Options, opt
from ganeti.cli.declaration.program import DEBUG, single_program
from ganeti.cli.run.failures import EXIT_CONFIRMATION


def clean_up(context: Context, options: Options, _args: list[str]) -> int:
    """Stop the node daemon and remove the files of the cluster."""
    if not options.yes_do_it:
        context.terminal.error(
            "This makes the machine leave its cluster; --yes-do-it really does it."
        )
        return EXIT_CONFIRMATION
    removed = node_setup.clean_up_here(context.paths, backup=not options.no_backup)
    if options.verbose:
        context.terminal.write_lines([f"removed {path}" for path in removed])
    return EXIT_SUCCESS


PROGRAM: Final = single_program(
    "node-cleanup",
    "make this machine no node of any cluster",
    """Makes this machine no node of any cluster: stops the node daemon and removes the cluster's
files.  They are copied to a directory below /var/backups first, unless --no-backup is given.""",
    clean_up,
    options=(
        DEBUG,
        opt.flag("-v --verbose", "name the files"),
        opt.flag("--yes-do-it --ya-rly", "really do it"),
        opt.flag("--no-backup", "do not copy the files first"),
    ),
    expected_errors=(GenericError, OSError),
)
