"""The methods of LUXI, as one table: names, arguments in order, their types.

The server checks requests against this table and dispatches by it; clients and documentation take
the names and the order of arguments from it.

Source: luxi.json, "methods" and "transport".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from ganeti.base.ids import JobId
from ganeti.protocol.envelope import RequestError

WAIT_FOR_JOB_CHANGE_S_MAX: Final = 89
CANCEL_JOB_S_MAX: Final = 44
SOCKET_MODE: Final = 0o660
NOT_CHANGED: Final = "nochange"
QUEUE_DRAINED: Final = "Queue drained"  # the text of a GenericError, "queue_drained_on_submit"


class DrainedBy(StrEnum):
    """Who closed the queue to open it again itself: the content of the drain file.

    An operator's file is empty, as all are that Ganeti 3.0 writes; it only asks whether there is
    one.
    """

    FAILOVER = "master-failover"
    RENEWAL = "renew-crypto"


# 10,000 jobs of a few opcodes each in one message; ten times what the limit of the queue lets in
MESSAGE_BYTES_MAX: Final = 64 << 20

QUERY_RESOURCES: Final = (
    "export",
    "filter",
    "group",
    "instance",
    "job",
    "lock",
    "network",
    "node",
)
QUERY_RESOURCES_BY_JOB: Final = ("cluster", "extstorage", "os")

_JobIdValue = (
    Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    | Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,18}$")]
)
_Names = list[str]
_OpCodes = list[dict[str, Any]]
_Kill = bool | Annotated[list[bool], msgspec.Meta(max_length=1)]


class Argument(msgspec.Struct, frozen=True):
    """One argument of a method: what it is called and which JSON is accepted."""

    name: str
    type: Any
    required: bool = True


class LuxiMethod(msgspec.Struct, frozen=True):
    """One method of LUXI.

    ``shape`` is the list of its arguments as one type; ``changes`` tells the methods that change
    something, ``waits`` those that wait on behalf of the client and of nothing else.
    """

    name: str
    args: tuple[Argument, ...]
    shape: type[msgspec.Struct]
    changes: bool
    waits: bool


def _method(name: str, *args: Argument, changes: bool = False, waits: bool = False) -> LuxiMethod:
    fields = [
        (each.name, each.type) if each.required else (each.name, each.type | None, None)
        for each in args
    ]
    shape = msgspec.defstruct(
        f"{name}Arguments", fields, array_like=True, forbid_unknown_fields=True
    )
    return LuxiMethod(name, args, shape, changes, waits)


_JOB: Final = Argument("job", _JobIdValue)
_FIELDS: Final = Argument("fields", list[str])
_LOCK: Final = Argument("lock", bool)
_WHAT: Final = Argument("what", str)

_ALL: Final = (
    _method("SubmitJob", Argument("job", _OpCodes), changes=True),
    _method("SubmitJobToDrainedQueue", Argument("job", _OpCodes), changes=True),
    _method("SubmitManyJobs", Argument("ops", list[_OpCodes]), changes=True),
    _method(
        "WaitForJobChange",
        _JOB,
        _FIELDS,
        Argument("prev_job", Any),
        Argument("prev_log", int | None),
        Argument("tmout", int | float),
        waits=True,
    ),
    _method(
        "QueryJobs",
        Argument("ids", list[_JobIdValue] | None),
        _FIELDS,
        # Ours: the newest so many jobs of the queue, of those before one.
        Argument("limit", Annotated[int, msgspec.Meta(ge=0)], required=False),
        Argument("before", _JobIdValue, required=False),
    ),
    _method("Query", _WHAT, _FIELDS, Argument("qfilter", Any)),
    _method("QueryFields", _WHAT, Argument("fields", list[str] | None)),
    _method("QueryNodes", Argument("names", _Names), _FIELDS, _LOCK),
    _method("QueryInstances", Argument("names", _Names), _FIELDS, _LOCK),
    _method("QueryGroups", Argument("names", _Names), _FIELDS, _LOCK),
    _method("QueryNetworks", Argument("names", _Names), _FIELDS, _LOCK),
    _method("QueryFilters", Argument("uuids", list[str] | None), _FIELDS),
    _method("QueryExports", Argument("nodes", _Names), _LOCK),
    _method("QueryTags", Argument("kind", str), Argument("name", str | None)),
    _method("QueryClusterInfo"),
    _method("QueryConfigValues", _FIELDS),
    _method("CancelJob", _JOB, Argument("kill", _Kill, required=False), changes=True),
    _method("ChangeJobPriority", _JOB, Argument("priority", int), changes=True),
    _method("ArchiveJob", _JOB, changes=True),
    _method("AutoArchiveJobs", Argument("age", int), Argument("tmout", int), changes=True),
    _method("PickupJob", _JOB),
    _method(
        "SetDrainFlag",
        Argument("flag", bool),
        Argument("by", DrainedBy, required=False),  # ours
        changes=True,
    ),
    _method("SetWatcherPause", Argument("duration", float | None), changes=True),
    _method(
        "ReplaceFilter",
        Argument("uuid", str | None),
        Argument("priority", Annotated[int, msgspec.Meta(ge=0)]),
        Argument("predicates", list[list[Any]]),
        Argument("action", str | list[Any]),
        Argument("reason", list[Any]),
        changes=True,
    ),
    _method("DeleteFilter", Argument("uuid", str), changes=True),
)

LUXI_METHODS: Final[Mapping[str, LuxiMethod]] = {method.name: method for method in _ALL}


def find_method(name: str) -> LuxiMethod:
    """Return the row of a method.

    Raises:
        RequestError: there is none of that name.
    """
    method = LUXI_METHODS.get(name)
    if method is None:
        raise RequestError(f"unknown method {name!r}")
    return method


def check_args(method: LuxiMethod, args: Sequence[object]) -> list[Any]:
    """Return the arguments, each of the type that the table says.

    Job ids come out as numbers; an optional argument that was left out comes out as None.

    Raises:
        RequestError: too many, too few, or one of a wrong type; the text names it.
    """
    try:
        return list(msgspec.structs.astuple(msgspec.convert(args, method.shape)))
    except msgspec.ValidationError as err:
        raise _wrong_argument(method, args, err) from err


def _wrong_argument(
    method: LuxiMethod, args: Sequence[object], error: msgspec.ValidationError
) -> RequestError:
    """Say which argument is wrong."""
    required = sum(1 for argument in method.args if argument.required)
    if not required <= len(args) <= len(method.args):
        names = ", ".join(argument.name for argument in method.args) or "none"
        return RequestError(
            f"{method.name} takes {len(method.args)} arguments ({names}), {len(args)} were given"
        )
    for argument, value in zip(method.args, args, strict=False):
        try:
            msgspec.convert(value, argument.type)
        except msgspec.ValidationError as err:
            return RequestError(f"argument {argument.name} of {method.name}: {err}")
    return RequestError(f"arguments of {method.name}: {error}")


def job_id(value: int | str) -> JobId:
    """Return a job id that came as a number or as decimal text."""
    return JobId(int(value))


def is_kill(value: bool | list[bool] | None) -> bool:
    """Read the optional last argument of CancelJob."""
    if isinstance(value, list):
        return bool(value and value[0])
    return bool(value)
