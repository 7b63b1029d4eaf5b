"""``node-daemon-setup`` and ``node-cleanup``: run on a machine that joins or leaves a cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ganeti.base.errors import GenericError
from ganeti.bootstrap import node_setup
from ganeti.cli.declaration.parser import HelpWanted, UsageError, parse
from ganeti.cli.declaration.program import Action, Command, Option, Program, flag
from ganeti.cli.run.failures import EXIT_CONFIRMATION, EXIT_FAILURE, EXIT_SUCCESS
from ganeti.system.environment import current_paths

INPUT_BYTES_MAX = 16 << 20  # certificate and ssconf, whose values have 128 KiB each at most

SETUP_PROSE = (
    "Makes this machine a node of a cluster: checks and stores the certificate and the simple"
    " configuration that come as JSON on the standard input, and starts the node daemon.  It is"
    " called by 'gnt-node add' through SSH; there is nothing to do by hand."
)
CLEANUP_PROSE = (
    "Makes this machine no node of any cluster: stops the node daemon and removes the cluster's"
    " files.  They are copied to a directory below /var/backups first, unless --no-backup is given."
)
SETUP_USAGE = f"usage: node-daemon-setup < DATA\n\n{SETUP_PROSE}\n"
CLEANUP_USAGE = f"usage: node-cleanup --yes-do-it [--no-backup]\n\n{CLEANUP_PROSE}\n"

# These programs have no subcommands.
CLEANUP_OPTIONS = (
    Option(("-d", "--debug"), "show tracebacks of failures", action=Action.COUNT),
    flag("-v", "--verbose", help="name the files"),
    flag("--yes-do-it", "--ya-rly", help="really do it"),
    flag("--no-backup", help="do not copy the files first"),
)
_AS_COMMAND = Command("node-cleanup", "leave the cluster", options=CLEANUP_OPTIONS)
_AS_PROGRAM = Program("node-cleanup", "leave the cluster", "", (_AS_COMMAND,), common_options=())


def setup_main() -> int:
    """Run ``node-daemon-setup``."""
    if any(word in ("-h", "--help") for word in sys.argv[1:]):
        sys.stdout.write(SETUP_USAGE)
        return EXIT_SUCCESS
    return _guarded("node-daemon-setup", _set_up)


def _set_up() -> int:
    data = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    if len(data) > INPUT_BYTES_MAX:
        raise GenericError(f"more than {INPUT_BYTES_MAX} bytes of set-up data")
    left = node_setup.set_up_here(current_paths(), node_setup.decode_setup(data))
    sys.stdout.write("".join(f"{text}\n" for text in left))
    return EXIT_SUCCESS


def cleanup_main() -> int:
    """Run ``node-cleanup``."""
    try:
        options = parse(_AS_PROGRAM, ["node-cleanup", *sys.argv[1:]], {}).options
    except UsageError as err:
        sys.stderr.write(f"node-cleanup: {err.message}\n")
        return err.exit_code
    except HelpWanted:
        sys.stdout.write(CLEANUP_USAGE)
        return EXIT_SUCCESS
    if not options.yes_do_it:
        sys.stderr.write("This makes the machine leave its cluster; --yes-do-it really does it.\n")
        return EXIT_CONFIRMATION

    def clean_up() -> int:
        removed = node_setup.clean_up_here(current_paths(), backup=not options.no_backup)
        if options.verbose:
            sys.stdout.write("".join(f"removed {path}\n" for path in removed))
        return EXIT_SUCCESS

    return _guarded("node-cleanup", clean_up)


def _guarded(name: str, work: Callable[[], int]) -> int:
    try:
        return work()
    except GenericError as err:
        sys.stderr.write(f"{name}: {err.message}\n")
    except OSError as err:
        sys.stderr.write(f"{name}: {err.filename or ''}: {err.strerror or err}\n")
    return EXIT_FAILURE
