"""Errors: the text for people, and the exit status for programs.

Source: cli.json, "exit_codes" and "error_output".
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from ganeti.base.errors import (
    NO_DETAILS,
    QUEUE_DRAINED,
    ConfigurationError,
    GenericError,
    HooksAbort,
    HypervisorError,
    JobQueueDrainError,
    JobQueueFull,
    NotMasterError,
    NotSupportedError,
    OpExecError,
    OpPrereqError,
    ParameterError,
    ParseError,
    ProtocolError,
    ResolverError,
    TransportError,
    TypeEnforcementError,
)
from ganeti.base.ids import JobId
from ganeti.base.text import fit_for_terminal

EXIT_SUCCESS: Final = 0
EXIT_FAILURE: Final = 1
EXIT_CONFIGURATION: Final = 2
EXIT_NOT_CLUSTER: Final = 5
EXIT_NOT_MASTER: Final = 11
EXIT_NODE_SETUP: Final = 12
EXIT_CONFIRMATION: Final = 13
EXIT_UNKNOWN_FIELD: Final = 14
EXIT_INTERRUPTED: Final = 130  # the shell's status of a process that Ctrl-C ended


_QUEUE: Final = "Failure: the job queue is"


class JobSubmitted(Exception):
    """The job was submitted, and the user does not want to wait for it."""

    def __init__(self, job_id: JobId) -> None:
        super().__init__(job_id)
        self.job_id = job_id


class NotConfirmed(GenericError):
    """The user was asked, and did not say yes."""


class NodeSetupError(GenericError):
    """A node could not be prepared for the cluster."""


# The first row that fits counts: a subclass stands before its base.
_INTRODUCTIONS: Final[tuple[tuple[type[GenericError], str, int], ...]] = (
    (NotSupportedError, "Failure: not supported: ", EXIT_FAILURE),
    (OpExecError, "Failure: command execution error:\n", EXIT_FAILURE),
    (HooksAbort, "Failure: hooks execution failure:\n", EXIT_FAILURE),
    (HypervisorError, "Hypervisor failure: ", EXIT_FAILURE),
    (ResolverError, "Failure: can't resolve hostname: ", EXIT_FAILURE),
    (JobQueueDrainError, f"{_QUEUE} marked for drain and doesn't accept jobs: ", EXIT_FAILURE),
    (JobQueueFull, f"{_QUEUE} full: ", EXIT_FAILURE),
    (TypeEnforcementError, "Parameter error: ", EXIT_FAILURE),
    (ParameterError, "Failure: unknown or wrong parameter: ", EXIT_FAILURE),
    (ParseError, "Failure: cannot understand the request: ", EXIT_FAILURE),
    (ConfigurationError, "Corrupt or unreadable configuration: ", EXIT_CONFIGURATION),
    (ProtocolError, "Failure: unexpected answer: ", EXIT_FAILURE),
    (TransportError, "Cannot communicate with the master daemon: ", EXIT_FAILURE),
    (NodeSetupError, "Failure: ", EXIT_NODE_SETUP),
    (GenericError, "Failure: ", EXIT_FAILURE),
)


def explain(error: GenericError | OSError) -> tuple[str, int]:
    """Return the text for an error, which may quote programs of others, and the exit status."""
    text, status = _explained(error)
    return fit_for_terminal(text), status


def _explained(error: GenericError | OSError) -> tuple[str, int]:
    match error:
        case OSError():
            return f"Failure: {_of_system(error)}", EXIT_FAILURE
        case NotConfirmed():
            return error.message, EXIT_FAILURE
        case NotMasterError(master_name=None):
            text = "Cluster not initialized on this node; 'gnt-cluster init' makes one."
            return text, EXIT_NOT_CLUSTER
        case NotMasterError():
            text = "This is not the master node; please connect to node "
            return f"{text}'{error.master_name}' and run the command there.", EXIT_NOT_MASTER
        case OpPrereqError() if not isinstance(error, NotSupportedError):
            text = "Failure: prerequisites not met for this operation:\n"
            return f"{text}error type: {error.ecode}, error details:\n{error.message}", EXIT_FAILURE
    text, status = next(row[1:] for row in _INTRODUCTIONS if isinstance(error, row[0]))
    return text + (str(error).strip() or NO_DETAILS) + _next_step(error), status


def _next_step(error: GenericError) -> str:
    """Return the remedy for an error whose text is that of the wire, and has to be."""
    if error.message != QUEUE_DRAINED:
        return ""
    return (
        ": no new jobs are taken.  'gnt-cluster queue undrain' ends that, unless 'gnt-cluster"
        " queue info' names a fail-over that is under way"
    )


def told_by(
    name: str, status_of: Callable[[GenericError], int] = lambda _: EXIT_FAILURE
) -> Callable[[GenericError | OSError], tuple[str, int]]:
    """Return the explanation of errors by a tool: its name and one line, and the exit status."""

    def explain_in_a_line(error: GenericError | OSError) -> tuple[str, int]:
        if isinstance(error, GenericError):
            return f"{name}: {error.message}", status_of(error)
        return f"{name}: {_of_system(error)}", EXIT_FAILURE

    return explain_in_a_line


def _of_system(error: OSError) -> str:
    """Return the text of an error of the operating system, with the file that it is about."""
    is_file = isinstance(error.filename, str | bytes) and error.filename
    where = f"{os.fsdecode(error.filename)}: " if is_file else ""
    hint = "; run it as root" if isinstance(error, PermissionError) and os.geteuid() else ""
    return f"{where}{error.strerror or error}{hint}"
