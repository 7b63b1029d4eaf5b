"""The names that a module of commands needs: for declarations, and for handlers."""

from __future__ import annotations

from ganeti.cli.declaration import common as opt
from ganeti.cli.declaration.common import command, job
from ganeti.cli.declaration.parser import Options
from ganeti.cli.declaration.program import ArgKind, Command, Each, Handler
from ganeti.cli.run.context import Context, confirm
from ganeti.cli.run.failures import EXIT_FAILURE, EXIT_SUCCESS

__all__ = ["EXIT_FAILURE", "EXIT_SUCCESS", "ArgKind", "Command", "Context", "Each", "Handler"]
__all__ += ["Options", "command", "confirm", "job", "opt"]
