"""``tools/cfgupgrade``: bring the configuration file of an older version to this one.

Source: cli.json, "tools".
"""

from __future__ import annotations

import os
import sys
import traceback

from ganeti.base.errors import ConfigurationError, GenericError, NotMasterError
from ganeti.cli.declaration.parser import HelpWanted, UsageError, parse
from ganeti.cli.declaration.program import Command, Option, Program, flag
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import (
    EXIT_CONFIGURATION,
    EXIT_CONFIRMATION,
    EXIT_FAILURE,
    EXIT_NOT_MASTER,
    EXIT_SUCCESS,
    NotConfirmed,
)
from ganeti.cli.run.terminal import Terminal

NAME = "cfgupgrade"
SUMMARY = "upgrade the configuration file of an older version"
PROSE = """Brings config.data of version 2.7 to 2.16 into the form of this version, in one step, and
says what it changes.  It runs on the master node while the cluster's daemons are stopped.  The file
as it was is kept beside the new one, as config.data.backup-VERSION-TIME.  A file that is as it
should be is left alone, so the program may be run again at any time.

ganeti-wconfd does the same by itself when it finds an old file; this program shows beforehand what
will happen (--dry-run) and prepares a file that lies somewhere else (--path).

With --downgrade it takes keys out that Ganeti 3.0 does not know and would refuse to load, so that
3.0 itself can go on with the file.  That is refused if anything would be lost.

Exit status: 0 done, or nothing to do; 1 failure; 2 the file cannot be used, or an option is wrong;
11 this is not the master node; 13 not confirmed."""

OPTIONS = (
    flag("--dry-run", help="say what would be changed, change nothing"),
    flag("-f", "--force", help="do not ask before writing"),
    flag("-d", "--debug", help="show tracebacks of failures"),
    flag("-v", "--verbose", help="say more: every problem found, files looked at"),
    flag("--ignore-hostname", help="do not mind that this is not the master node"),
    Option(("--path",), "directory of config.data and ssconf files", metavar="DATA_DIR"),
    Option(("--confdir",), "directory of file-storage-paths", metavar="CONF_DIR"),
    flag("--no-verify", help="do not look for problems in the result"),
    flag("--downgrade", help="take out what Ganeti 3.0 does not know"),
)
_COMMAND = Command(
    NAME,
    SUMMARY,
    "cfgupgrade:upgrade",
    options=OPTIONS,
    description=PROSE,
    examples=(
        ("cfgupgrade --dry-run", "what would happen"),
        ("cfgupgrade --force", "upgrade without a question"),
        ("cfgupgrade --path /root/copy --ignore-hostname", "upgrade a copy made elsewhere"),
    ),
)
_PROGRAM = Program(NAME, SUMMARY, PROSE, (_COMMAND,), common_options=())


def main() -> int:
    """Run ``cfgupgrade`` with the words of the command line."""
    terminal = Terminal.of_process()
    try:
        options = parse(_PROGRAM, [NAME, *sys.argv[1:]], {}).options
    except UsageError as err:
        terminal.error(f"{NAME}: {err.message.replace(f'{NAME} {NAME}', NAME)}")
        return err.exit_code
    except HelpWanted:
        from ganeti.cli.declaration.help import command_help

        text = command_help(_PROGRAM, _COMMAND, terminal.width)
        terminal.write(text.replace(f"{NAME} {NAME}", NAME, 1))
        return EXIT_SUCCESS
    from ganeti.cli.commands.cfgupgrade import upgrade

    try:
        return upgrade(Context(NAME, NAME, options, terminal), options)
    except (GenericError, OSError) as err:
        if options.debug:
            traceback.print_exc()
        terminal.error(f"{NAME}: {_text(err)}")
        return _status(err)


def _text(error: GenericError | OSError) -> str:
    if isinstance(error, GenericError):
        return error.message
    reason = error.strerror or str(error)
    return f"{os.fsdecode(error.filename)}: {reason}" if error.filename else reason


def _status(error: GenericError | OSError) -> int:
    match error:
        case NotConfirmed():
            return EXIT_CONFIRMATION
        case NotMasterError():
            return EXIT_NOT_MASTER
        case ConfigurationError():
            return EXIT_CONFIGURATION
        case _:
            return EXIT_FAILURE
