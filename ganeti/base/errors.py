"""The one tree of errors, split by the party that can act on them.

    GenericError
    ├── OpPrereqError            the request cannot be met as things stand; nothing was changed
    │   └── NotSupportedError    asked for something that is not built (or not possible here)
    ├── OpExecError              the work began and failed
    ├── ConfigurationError       the configuration is wrong or unreadable
    │   ├── ConfigVerifyError
    │   └── ConfigVersionMismatch
    ├── LockError, ReservationError, JobQueueError, ...   refused by the owner of that resource
    ├── LuxiError
    │   └── ProtocolError        the peer broke the rules of the wire
    ├── TransportError           the peer was not reached, or went away
    │   └── NotMasterError       this is not the node that can answer
    └── CommandError             an external command failed

Errors that cross a wire are encoded as ``[class name, [arguments]]``.  A class that clients of
Ganeti 3.0 do not know travels under the name of its nearest ancestor that they do know.

Source: luxi.json, "errors".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

NO_DETAILS = "no details are known"  # instead of an empty text
QUEUE_DRAINED = "Queue drained"  # the text of a GenericError, "queue_drained_on_submit"


class ErrorCode(StrEnum):
    """The kind of prerequisite that failed (second argument of OpPrereqError)."""

    RESOLVER = "resolver_error"
    NORES = "insufficient_resources"
    TEMP_NORES = "temp_insufficient_resources"
    INVAL = "wrong_input"
    STATE = "wrong_state"
    NOENT = "unknown_entity"
    EXISTS = "already_exists"
    NOTUNIQUE = "resource_not_unique"
    FAULT = "internal_error"
    ENVIRON = "environment_error"


class GenericError(Exception):
    """Root of the tree; its first argument is the message."""

    wire_name: str | None = None  # set by classes that travel under another name

    @property
    def message(self) -> str:
        """The message for people, without the class name."""
        return str(self.args[0]) if self.args else type(self).__name__

    def wire_args(self) -> list[object]:
        """Return the arguments as JSON values."""
        return list(self.args)


class OpPrereqError(GenericError):
    """The request cannot be met as things stand; nothing was changed."""

    def __init__(self, message: str, ecode: str = ErrorCode.INVAL) -> None:
        super().__init__(message, str(ecode))

    @property
    def ecode(self) -> str:
        """One of ErrorCode, as text."""
        return str(self.args[1])

    def __str__(self) -> str:
        return self.message


def wrong_state(message: str) -> OpPrereqError:
    """Make the error that refuses a request because of the state that an object is in."""
    return OpPrereqError(message, ErrorCode.STATE)


def refuse(problem: str | None) -> None:
    """Refuse the request if there is a problem.

    Raises:
        OpPrereqError: there is; it has this text.
    """
    if problem:
        raise OpPrereqError(problem)


@contextmanager
def refusing(
    *kinds: type[GenericError], prefix: str = "", ecode: str = ErrorCode.INVAL
) -> Iterator[None]:
    """Refuse the request when its values are wrong: turn these kinds of errors into OpPrereqError.

    Args:
        prefix: the text before the message of the error.
    """
    try:
        yield
    except kinds as err:
        raise OpPrereqError(f"{prefix}{err.message}", ecode) from err


class NotSupportedError(OpPrereqError):
    """Asked for something that is not built yet, or that cannot be had here."""

    wire_name = "OpPrereqError"


class OpExecError(GenericError):
    """The work began and failed; the message names the state that was left."""


class NodeNotReachedError(OpExecError):
    """A step of work got no answer from its node: it may be done, and may work if tried again."""

    wire_name = "OpExecError"


class OpResultError(GenericError):
    """An operation answered something that its declaration does not allow."""


class OpCodeUnknown(GenericError):
    """No such opcode."""


class OpRetryNotSupportedError(GenericError):
    """The operation cannot be retried."""


class ConfigurationError(GenericError):
    """The configuration is wrong, or could not be read."""


class ConfigVerifyError(ConfigurationError):
    """The configuration contradicts itself; second argument is the list of all findings."""

    def __init__(self, message: str, errors: Sequence[str] = ()) -> None:
        super().__init__(message, list(errors))

    @property
    def errors(self) -> list[str]:
        """Every finding, each naming its object."""
        return list(self.args[1])

    def __str__(self) -> str:
        return "; ".join([self.message, *self.errors])


class ConfigVersionMismatch(ConfigurationError):
    """The configuration is of another version: (expected, found)."""

    def __init__(self, expected: object, found: object) -> None:
        super().__init__(expected, found)

    @property
    def message(self) -> str:
        """The message for people."""
        return f"configuration version {self.args[1]} found, {self.args[0]} expected"

    def __str__(self) -> str:
        return self.message


class LockError(GenericError):
    """A lock request broke the rules, or can never be granted."""


class PidFileLockError(LockError):
    """A daemon of that name is already running."""


class HypervisorError(GenericError):
    """A hypervisor refused or failed."""


class HotplugError(HypervisorError):
    """A device could not be added to or taken from a running instance."""


class ProgrammerError(GenericError):
    """Our own mistake."""


class BlockDeviceError(GenericError):
    """A disk could not be made, found or changed."""


class DeviceCreationError(GenericError):
    """A disk could not be created."""


class StorageError(GenericError):
    """A storage unit could not be read or changed."""


class FileStoragePathError(GenericError):
    """A path is not below an allowed file storage directory."""


class ReservationError(GenericError):
    """A resource is taken already."""


class AddressPoolError(GenericError):
    """An address pool is full, or does not contain the address."""


class RemoteError(GenericError):
    """A remote part failed."""


class SignatureError(GenericError):
    """A message was not signed, or wrongly."""


class ParameterError(GenericError):
    """A parameter is unknown or wrong."""


class ResultValidationError(GenericError):
    """A result does not have the declared shape."""


class TypeEnforcementError(GenericError):
    """A value does not have the declared type."""


class UnitParseError(GenericError):
    """A size could not be understood."""


class ParseError(GenericError):
    """A text could not be understood."""


class QueryFilterParseError(ParseError):
    """A query filter could not be understood."""


class JobLost(GenericError):
    """No such job, or it is gone."""


class JobCanceled(GenericError):
    """The job was canceled."""


class JobFileCorrupted(GenericError):
    """A job file could not be read."""


class JobQueueError(GenericError):
    """The job queue refused."""


class JobQueueDrainError(JobQueueError):
    """The job queue is drained and takes no new jobs."""


class JobQueueFull(JobQueueError):
    """The job queue is full."""


class ResolverError(GenericError):
    """A host name could not be resolved: (host name, code, message)."""

    def __init__(self, hostname: str, code: object, text: str) -> None:
        super().__init__(hostname, code, text)

    @property
    def message(self) -> str:
        """The message for people."""
        return f"host name {str(self.args[0])!r} cannot be resolved: {self.args[2]}"

    def __str__(self) -> str:
        return self.message


class HooksFailure(GenericError):
    """The hooks could not be run."""


class HooksAbort(HooksFailure):
    """A pre hook refused the operation: list of [node, script, output]."""

    @property
    def message(self) -> str:
        """The message for people."""
        failures = self.args[0] if self.args and isinstance(self.args[0], list) else []
        return "pre hooks refused the operation: " + "; ".join(
            f"node {node}, script {script}: {str(output).strip() or 'no output'}"
            for node, script, output in failures
        )

    def __str__(self) -> str:
        return self.message


class X509CertError(GenericError):
    """A certificate is missing or unusable: (file name, message)."""

    def __init__(self, filename: str, text: str) -> None:
        super().__init__(filename, text)

    @property
    def message(self) -> str:
        """The message for people."""
        return f"certificate {self.args[0]}: {self.args[1]}"

    def __str__(self) -> str:
        return self.message


class TagError(GenericError):
    """A tag is not well-formed, or there are too many."""


class InotifyError(GenericError):
    """A file could not be watched."""


class ConfdMagicError(GenericError):
    """A configuration daemon packet does not begin as it should."""


class ConfdClientError(GenericError):
    """A configuration daemon client was used wrongly, or refused an answer."""


class UdpDataSizeError(GenericError):
    """A datagram would be too large."""


class NoCtypesError(GenericError):
    """The foreign function library is missing."""


class IPAddressError(GenericError):
    """Not an IP address, or of the wrong family."""


class SshUpdateError(GenericError):
    """An SSH key could not be distributed."""


class RapiTestResult(GenericError):
    """Answer of a remote API test."""


class LuxiError(GenericError):
    """Something is wrong with a LUXI request."""


class ProtocolError(LuxiError):
    """The peer broke the rules of the wire."""

    wire_name = "LuxiError"


class TransportError(GenericError):
    """The peer was not reached, or went away, or did not answer in time."""

    wire_name = "GenericError"


class NotMasterError(TransportError):
    """This node is not the master; second argument is the master's name, or None."""

    wire_name = "GenericError"

    def __init__(self, message: str, master_name: str | None = None) -> None:
        super().__init__(message, master_name)

    @property
    def master_name(self) -> str | None:
        """Name of the master node, if known."""
        name = self.args[1]
        return None if name is None else str(name)

    def wire_args(self) -> list[object]:
        """Return the message alone: clients know a GenericError."""
        return [self.message]

    def __str__(self) -> str:
        return self.message


class CommandError(GenericError):
    """An external command failed; carries its arguments, exit status and last output."""

    def __init__(
        self, message: str, argv: Sequence[str] = (), status: int | None = None, output: str = ""
    ) -> None:
        super().__init__(message)
        self.argv = tuple(argv)
        self.status = status
        self.output = output


@contextmanager
def failing_as(error: Callable[[str], GenericError], text: str) -> Iterator[None]:
    """Turn a refusal of the operating system, or a failed command, into an error of ours.

    Args:
        text: the beginning of the message, which names the attempt: ``cannot create /x``.
    """
    try:
        yield
    except CommandError as err:
        raise error(f"{text}: {err.message}") from err
    except OSError as err:
        raise error(f"{text}: {err.strerror or err}") from err


def _subclasses(cls: type[GenericError]) -> Iterator[type[GenericError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _subclasses(child)


WIRE_CLASSES: dict[str, type[GenericError]] = {
    cls.__name__: cls for cls in _subclasses(GenericError) if cls.wire_name is None
}


def _wire_class(cls: type[GenericError]) -> str:
    for ancestor in cls.__mro__:
        name = ancestor.__dict__.get("wire_name")
        if name is not None:
            return str(name)
        if WIRE_CLASSES.get(ancestor.__name__) is ancestor:
            return ancestor.__name__
    return GenericError.__name__


def encode_error(error: BaseException) -> list[object]:
    """Encode an error as ``[class name, [arguments]]``.

    An error from outside the tree is encoded as a GenericError naming its class, so that no
    failure ever has an empty text.
    """
    if not isinstance(error, GenericError):
        text = str(error)
        return ["GenericError", [f"{type(error).__name__}: {text}" if text else repr(error)]]
    name = _wire_class(type(error))
    if name == "JobQueueFull":
        return [name, []]
    first, *others = error.wire_args() or [error.message]
    is_blank = isinstance(first, str) and not first.strip()
    return [name, [NO_DETAILS if is_blank else first, *others]]


def decode_error(value: object) -> GenericError:
    """Turn the result of a failed response into an error to raise.

    Anything that is not ``[known class, [arguments]]`` becomes a GenericError with the whole
    value as text: the report of a peer is never lost.
    """
    match value:
        case [str(name), [*args]] if name in WIRE_CLASSES:
            try:
                return WIRE_CLASSES[name](*args)
            except TypeError:  # other arity than ours: keep the arguments
                return GenericError(f"{name}: {args}")
        case [str(name), [*args]]:
            return GenericError(": ".join([name, *map(str, args)]))
        case str():
            return GenericError(value)
        case _:
            return GenericError(f"unexpected error value: {value!r}")
