"""How the node daemon is asked: the rules of its calls, and the bodies of requests and answers.

The calls themselves are declared in `node_calls`.  A request is ``POST /<name>`` with a JSON list
of the arguments in order as its body (one call sends an object, see ``instance_console_info``); an
answer is ``[true, payload]`` or ``[false, text]`` and a newline.

Source: node_rpc.json (transport, timeout_classes_seconds).
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from ganeti.base.errors import ProtocolError
from ganeti.base.json import check_nesting, dumps, loads
from ganeti.protocol.service import Call, Method, declare

DEFAULT_PORT = 1811
CONNECT_TIMEOUT_S = 5.0
CLIENTS_MAX_DEFAULT = 20

# Optional request header with the id of the job that asks; 3.0 peers neither send nor read it.
JOB_HEADER = "X-Ganeti-Job"

# The biggest body is config.data: 5 MB at 11,000 instances, less when compressed.  Ten times that.
BODY_BYTES_MAX = 64 * 1024 * 1024

PROMPT_S = 5.0  # ours, for small questions that nobody waits for longer
URGENT_S = 60.0
FAST_S = 300.0
NORMAL_S = 900.0
SLOW_S = 3600.0
ONE_DAY_S = 86400.0
_WAIT_S_MAX = 7 * ONE_DAY_S

# test_delay may take as long as it was told to sleep and this much more.
DELAY_MARGIN_S = 5.0


# A console is no call: ``POST /console`` asks to speak `CONSOLE_UPGRADE` from then on: a line with
# the argument of ``instance_consoles`` for one instance, as JSON; a line with `ConsoleOpened`; then
# the bytes of the console.  A header says which of its consoles is wanted.
CONSOLE_PATH = "/console"
CONSOLE_UPGRADE = "ganeti-console"
CONSOLE_HEADER = "X-Ganeti-Console"
CONSOLE_ANSWER_S_MAX = 10.0
CONSOLES_MAX = 64  # open at the same time, of a node and of a cluster


class ConsoleOpened(msgspec.Struct, frozen=True):
    """The answer of a node: no error, and bytes follow."""

    error: str = ""


class Place(StrEnum):
    """Where the node daemon runs a call."""

    DAEMON = "daemon"  # a quick read or a file write: a thread of the daemon, no fork
    LOOP = "loop"  # the daemon's own loop, for the call that works when nothing else does
    CHILD = "child"  # disks, hypervisors, scripts: a child of the helper process


class Rules(msgspec.Struct, frozen=True):
    """The rules of a call of the node daemon beside its signature.

    Attributes:
        limit_s: how long it may take.
        changes: it changes something on the node, so it is logged there.
        place: where the node daemon runs it.
        to_offline: it is asked even of nodes marked offline.
        object_body: the body is the one argument itself, not a list of arguments.
        stops_daemon: the daemon ends once it has answered.
        ends_with_caller: it is stopped when the caller hangs up; all others come to their end.
        from_former: jobs of a node that was master before the present one may ask for it: it lets
            a node that comes back follow its cluster's master again.
        extra_s: seconds by which it may exceed the time that its first argument says; then there
            is no other limit.
        waits_by: the place of the argument that says for how many seconds it may wait first; the
            limit begins after that.
    """

    limit_s: float
    changes: bool
    place: Place
    to_offline: bool = False
    object_body: bool = False
    stops_daemon: bool = False
    ends_with_caller: bool = False
    from_former: bool = False
    extra_s: float | None = None
    waits_by: int | None = None

    @property
    def limit_depends(self) -> bool:
        """Whether the arguments decide how long it may take."""
        return self.extra_s is not None or self.waits_by is not None


NodeCall = Call[Rules]


def reads(limit_s: float, place: Place = Place.CHILD, **rules: Any) -> Callable[[Method], Method]:
    """Declare a call that only looks; the other arguments are fields of `Rules`."""
    return declare("", Rules(limit_s, changes=False, place=place, **rules))


def changes(limit_s: float, place: Place = Place.CHILD, **rules: Any) -> Callable[[Method], Method]:
    """Declare a call that changes the node; the other arguments are fields of `Rules`."""
    return declare("", Rules(limit_s, changes=True, place=place, **rules))


def deadline_s(call: NodeCall, args: Sequence[object]) -> float:
    """Return the seconds that a call may take with these arguments."""
    rules = call.rules
    if rules.extra_s is not None and args and isinstance(args[0], int | float):
        return max(0.0, float(args[0])) + rules.extra_s
    wait_s = 0 if rules.waits_by is None else next(iter(args[rules.waits_by :]), 0)
    if not isinstance(wait_s, int | float):
        return rules.limit_s
    return rules.limit_s + float(max(0, min(wait_s, _WAIT_S_MAX)))


# The end of an error that leaves open whether the call has done its work.
BROKEN_OFF: Final = "; it may have done its work, or a part of it"


def encode_arguments(call: NodeCall, args: Sequence[object]) -> bytes:
    """Return the request body for a call.

    Raises:
        ProtocolError: the number of arguments is not the declared one.
    """
    _check_count(call, args)
    values = call.write(args)
    return dumps(values[0] if call.rules.object_body else values)


def decode_arguments(call: NodeCall, body: bytes) -> list[object]:
    """Return the arguments from a request body, as they look on the wire.

    Raises:
        ProtocolError: not JSON, not a list, or not as many arguments as the call takes.
    """
    value = loads(body)
    if call.rules.object_body:
        if not isinstance(value, dict):
            raise ProtocolError(f"{call.name}: the body must be a JSON object")
        return [value]
    if not isinstance(value, list):
        raise ProtocolError(f"{call.name}: the body must be a JSON list of the arguments")
    _check_count(call, value)
    return value


def encode_result(payload: object) -> bytes:
    """Return the answer to a call that succeeded."""
    return dumps([True, payload]) + b"\n"


def encode_failure(text: str) -> bytes:
    """Return the answer to a call that failed."""
    return dumps([False, text]) + b"\n"


def encode_broken_off(text: str) -> bytes:
    """Return the answer to a call that ended without one: nobody knows how far it came."""
    return encode_failure(text + BROKEN_OFF)


def decode_answer(body: bytes) -> tuple[bool, msgspec.Raw]:
    """Return (success, JSON of the payload or of the error text) from an answer.

    Raises:
        ProtocolError: the answer is not of the form ``[bool, value]``.
    """
    check_nesting(body)
    try:
        return _answer.decode(body)
    except msgspec.ValidationError as err:
        raise ProtocolError("node daemon's answer is not of the form [bool, value]") from err
    except (msgspec.DecodeError, UnicodeError) as err:
        raise ProtocolError(f"invalid JSON: {err}") from err


_answer = msgspec.json.Decoder(tuple[bool, msgspec.Raw])


def _check_count(call: NodeCall, args: Sequence[object]) -> None:
    """Raise when a call gets too few or too many arguments."""
    if len(args) != len(call.names):
        names = ", ".join(call.names) or "none"
        raise ProtocolError(
            f"{call.name}: takes {len(call.names)} arguments ({names}), got {len(args)}"
        )
