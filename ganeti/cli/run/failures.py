"""What went wrong, for people, and the exit status that tells programs.

Source: cli.json, "exit_codes" and "error_output".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ganeti.base.errors import (
    NO_DETAILS,
    CommandError,
    ConfigurationError,
    GenericError,
    HooksAbort,
    HypervisorError,
    JobCanceled,
    JobLost,
    JobQueueDrainError,
    JobQueueFull,
    NotMasterError,
    NotSupportedError,
    OpCodeUnknown,
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

EXIT_SUCCESS: Final = 0
EXIT_FAILURE: Final = 1
EXIT_CONFIGURATION: Final = 2
EXIT_NOT_CLUSTER: Final = 5
EXIT_NOT_MASTER: Final = 11
EXIT_NODE_SETUP: Final = 12
EXIT_CONFIRMATION: Final = 13
EXIT_UNKNOWN_FIELD: Final = 14


class JobSubmitted(Exception):
    """The job was submitted, and the user does not want to wait for it."""

    def __init__(self, job_id: JobId) -> None:
        super().__init__(job_id)
        self.job_id = job_id


class NotConfirmed(GenericError):
    """The user was asked, and did not say yes."""


class NodeSetupError(GenericError):
    """A node could not be prepared for the cluster."""


_INTRODUCTIONS: Final[tuple[tuple[type[GenericError], str], ...]] = (
    (OpExecError, "Failure: command execution error:\n"),
    (HooksAbort, "Failure: hooks execution failure:\n"),
    (HypervisorError, "Hypervisor failure: "),
    (ResolverError, "Failure: can't resolve hostname: "),
    (JobCanceled, "Failure: "),
    (JobLost, "Failure: "),
    (JobQueueDrainError, "Failure: the job queue is marked for drain and doesn't accept jobs: "),
    (JobQueueFull, "Failure: the job queue is full; archive jobs before submitting more. "),
    (TypeEnforcementError, "Parameter error: "),
    (ParameterError, "Failure: unknown or wrong parameter: "),
    (ParseError, "Failure: cannot understand the request: "),
    (OpCodeUnknown, "Failure: "),
    (ConfigurationError, "Corrupt or unreadable configuration: "),
    (ProtocolError, "Failure: unexpected answer: "),
    (TransportError, "Cannot communicate with the master daemon: "),
    (CommandError, "Failure: "),
    (NodeSetupError, "Failure: "),
    (GenericError, "Failure: "),
)


def explain(error: GenericError) -> tuple[str, int]:
    """Return what to print and what to leave with."""
    match error:
        case NotConfirmed():
            return error.message, EXIT_CONFIRMATION
        case NotMasterError() if error.master_name is None:
            return (
                "Cluster not initialized on this node; 'gnt-cluster init' makes one.",
                EXIT_NOT_CLUSTER,
            )
        case NotMasterError():
            return (
                (
                    "This is not the master node; please connect to node "
                    f"'{error.master_name}' and run the command there."
                ),
                EXIT_NOT_MASTER,
            )
        case NotSupportedError():
            return f"Failure: not supported: {error.message}", EXIT_FAILURE
        case OpPrereqError():
            return (
                (
                    "Failure: prerequisites not met for this operation:\n"
                    f"error type: {error.ecode}, error details:\n{error.message}"
                ),
                EXIT_FAILURE,
            )
    status = EXIT_FAILURE
    if isinstance(error, ConfigurationError):
        status = EXIT_CONFIGURATION
    elif isinstance(error, NodeSetupError):
        status = EXIT_NODE_SETUP
    introduction = next(text for cls, text in _INTRODUCTIONS if isinstance(error, cls))
    return introduction + (str(error).strip() or NO_DETAILS), status


def told_by(name: str) -> Callable[[GenericError | OSError], tuple[str, int]]:
    """Return the explanation of errors by a tool: its name and one line."""

    def explain_in_a_line(error: GenericError | OSError) -> tuple[str, int]:
        if isinstance(error, OSError):
            return f"{name}: {error.filename or ''}: {error.strerror or error}", EXIT_FAILURE
        return f"{name}: {error.message}", EXIT_FAILURE

    return explain_in_a_line
