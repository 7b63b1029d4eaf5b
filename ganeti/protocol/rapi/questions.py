"""The routes of the remote API that ask LuxiD something, or tell it something, without a job.

Source: rapi.json; luxi.json, "methods".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec.structs import replace

from ganeti.base.json import dumps
from ganeti.protocol.rapi import answers
from ganeti.protocol.rapi.answers import Shape
from ganeti.protocol.rapi.jobs import Inputs
from ganeti.protocol.rapi.routes import ByJob, Constant, Document, Identity, Question, Route
from ganeti.protocol.rapi.values import (
    FEATURES,
    FIELDS,
    READ,
    VERSION,
    WAIT_S,
    WRITE,
    HttpProblem,
    Number,
    QueryArgument,
    Switch,
    Words,
)
from ganeti.protocol.service import REQUIRED

Args = Callable[[Inputs], list[object]]
"""Makes the arguments of a call to LuxiD."""

_W: Final = (WRITE,)
_R_OR_W: Final = (READ, WRITE)
_BULK: Final = QueryArgument("bulk", Switch, help="1 for whole objects instead of names")
_LOCK: Final = QueryArgument(
    "lock", Switch, help="1 is refused: queries take no locks", schema={"enum": [0]}
)
_LIMIT: Final = QueryArgument("limit", Number, help="only so many of them, the newest")
_BEFORE: Final = QueryArgument("before", Number, help="only those whose id is smaller")
_NULL: Final[Mapping[str, Any]] = {"type": "null"}
_TEXT: Final[Mapping[str, Any]] = {"type": "string"}
_TEXTS: Final[Mapping[str, Any]] = {"type": "array", "items": {"type": "string"}}
_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}
_OBJECTS: Final[Mapping[str, Any]] = {"type": "array", "items": {"type": "object"}}
_OUTCOME: Final[Mapping[str, Any]] = {
    "type": "array",
    "prefixItems": [{"type": "boolean"}, {"type": "string"}],
    "description": "whether it was done, and what to tell the user",
}


class FilterBody(msgspec.Struct, forbid_unknown_fields=True):
    """A job filter rule."""

    priority: Annotated[int, msgspec.Meta(ge=0)] = 0
    predicates: list[list[Any]] = []
    action: str | list[Any] = "CONTINUE"
    reason: list[list[Any]] = []


class WaitBody(msgspec.Struct, forbid_unknown_fields=True):
    """What was last seen of a job."""

    fields: list[str]
    previous_job_info: list[Any] | None = None
    previous_log_serial: int | None = None


class QueryBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which fields of which things; ``filter`` is an older name of ``qfilter``."""

    fields: list[str] | None = None
    qfilter: list[Any] | None = None
    filter: list[Any] | None = None


class PriorityBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new priority."""

    priority: Annotated[int, msgspec.Meta(ge=-20, le=19)]


class ArchiveBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which jobs to archive: those that ended so many seconds ago, -1 for all."""

    age: int
    timeout: int = 30


class DrainBody(msgspec.Struct, forbid_unknown_fields=True):
    """Whether the queue takes no new jobs."""

    drained: bool


class PauseBody(msgspec.Struct, forbid_unknown_fields=True):
    """Until when the watcher pauses, in seconds since the epoch; null to go on at once."""

    until: float | None


def _flag(inputs: Inputs, name: str) -> bool:
    return bool(inputs.query.get(name, False))


# Reading.


def _names(what: str) -> Args:
    """Return the arguments that ask for the name of everything, or for whole objects."""

    def args(inputs: Inputs) -> list[object]:
        fields = list(FIELDS[what]) if _flag(inputs, "bulk") else ["name"]
        return [[], fields, _flag(inputs, "lock")]

    return args


def _ids(whole: str, key: str) -> Args:
    """Return the arguments that ask for the id of everything, or for whole objects."""

    def args(inputs: Inputs) -> list[object]:
        fields = list(FIELDS[whole]) if _flag(inputs, "bulk") else [key]
        part = [inputs.query.get(name) for name in ("limit", "before")]
        return [None, fields, *(part if any(each is not None for each in part) else [])]

    return args


def _one(what: str, placeholder: str, *, takes_lock: bool) -> Args:
    def args(inputs: Inputs) -> list[object]:
        lock = [_flag(inputs, "lock")] if takes_lock else []
        return [[inputs.path[placeholder]], list(FIELDS[what]), *lock]

    return args


def _either(whole: Shape, links: Shape) -> Shape:
    def shape(result: msgspec.Raw, inputs: Inputs) -> bytes:
        return (whole if _flag(inputs, "bulk") else links)(result, inputs)

    return shape


def _collection(
    path: str,
    what: str,
    luxi: str,
    key: str,
    *,
    placeholder: str = "",
    whole: str = "",
    texts: tuple[str, str] = ("", ""),
    arguments: tuple[QueryArgument, ...] = (),
) -> list[Route]:
    """Return the routes that read all things of a kind and one of them.

    Args:
        key: what a list of links calls the name or id.
        placeholder: of the id in the path, for what has no name.
        whole: the fields in a list of whole objects, if not those of a single one.
        texts: the help of both, if they need more words.
        arguments: query arguments of the list beside ``bulk``.
    """
    has_name = not placeholder
    all_args = _names(what) if has_name else _ids(whole or what, key)
    all_shape = _either(answers.all_of(whole or what), answers.links_to(path, key))
    one_args = _one(what, placeholder or what, takes_lock=has_name)
    return [
        Route(
            path,
            "GET",
            texts[0] or f"List all {path.rpartition('/')[2]}.",
            Question(luxi, all_args, all_shape),
            arguments=(_BULK, *arguments),
            result=_OBJECTS,
        ),
        Route(
            f"{path}/{{{placeholder or what}}}",
            "GET",
            texts[1] or f"Answer one {what}.",
            Question(luxi, one_args, answers.one_of(what)),
            arguments=(_LOCK,) if has_name else (),
            result=_OBJECT,
        ),
    ]


def _query_args(inputs: Inputs) -> list[object]:
    """Return resource, fields and filter of a query, from the body or the query arguments."""
    body = inputs.body if isinstance(inputs.body, QueryBody) else QueryBody()
    fields = body.fields if body.fields is not None else inputs.query.get("fields")
    if fields is None:
        raise HttpProblem(400, "Missing 'fields', in the body or as query argument")
    wanted = body.qfilter if body.qfilter is not None else body.filter  # old clients send both
    return [inputs.path["resource"], fields, wanted]


def _filter_args(inputs: Inputs) -> list[object]:
    rule = inputs.body
    uuid = inputs.path.get("uuid")
    return [uuid, rule.priority, rule.predicates, rule.action, rule.reason]


def _wait_args(inputs: Inputs) -> list[object]:
    body = inputs.body
    previous = [body.previous_job_info, body.previous_log_serial]
    return [inputs.path["job_id"], body.fields, *previous, WAIT_S]


_FIELDS_ARGUMENT: Final = QueryArgument(
    "fields", Words, help="names of fields, with commas between"
)
_FIELDS_REQUIRED: Final = replace(_FIELDS_ARGUMENT, default=REQUIRED)


def _query(method: str, text: str, fields: QueryArgument, body: type[Any] | None = None) -> Route:
    return Route(
        "/2/query/{resource}",
        method,
        text,
        Question("Query", _query_args, answers.as_it_is),
        access=_R_OR_W,
        arguments=(fields,),
        body=body,
        result=_OBJECT,
    )


def _wait(method: str, text: str, access: tuple[str, ...]) -> Route:
    return Route(
        "/2/jobs/{job_id}/wait",
        method,
        f"Wait up to {WAIT_S} s until a job changes; {text}.",
        Question("WaitForJobChange", _wait_args, answers.job_change),
        access=access,
        body=WaitBody,
        result={"anyOf": [_NULL, _OBJECT]},
    )


def _filter(method: str, path: str, text: str) -> Route:
    return Route(
        path,
        method,
        f"{text}; answers its UUID.",
        Question("ReplaceFilter", _filter_args, answers.as_it_is),
        access=_W,
        body=FilterBody,
        result=_TEXT,
    )


READING: Final = (
    Route("/", "GET", "Answer nothing: something is here.", Constant(b"null"), result=_NULL),
    Route("/2", "GET", "Answer nothing: version 2 is here.", Constant(b"null"), result=_NULL),
    Route(
        "/version",
        "GET",
        "Answer the version of this interface.",
        Constant(dumps(VERSION)),
        result={"type": "integer"},
    ),
    Route(
        "/2/features",
        "GET",
        "List the features of this interface.",
        Constant(dumps(FEATURES)),
        result=_TEXTS,
    ),
    Route(
        "/2/info",
        "GET",
        "Answer facts and settings of the cluster.",
        Question("QueryClusterInfo", lambda _: [], answers.cluster_info),
        result=_OBJECT,
    ),
    *_collection("/2/instances", "instance", "QueryInstances", "id", arguments=(_LOCK,)),
    *_collection("/2/nodes", "node", "QueryNodes", "id"),
    *_collection("/2/groups", "group", "QueryGroups", "name"),
    *_collection("/2/networks", "network", "QueryNetworks", "name"),
    Route(
        "/2/instances/{instance}/console",
        "GET",
        "Answer how to reach the console.",
        Question(
            "Query",
            lambda inputs: ["instance", ["console"], ["=", "name", inputs.path["instance"]]],
            answers.console,
        ),
        access=_R_OR_W,
        result=_OBJECT,
    ),
    Route(
        "/2/nodes/{node}/role",
        "GET",
        "Answer the role of a node.",
        Question(
            "QueryNodes",
            lambda inputs: [[inputs.path["node"]], ["role"], _flag(inputs, "lock")],
            answers.node_role,
        ),
        arguments=(_LOCK,),
        result=_TEXT,
    ),
    *_collection(
        "/2/filters",
        "filter",
        "QueryFilters",
        "uuid",
        placeholder="uuid",
        texts=("List the job filter rules.", "Answer one job filter rule."),
    ),
    *_collection(
        "/2/jobs",
        "job",
        "QueryJobs",
        "id",
        placeholder="job_id",
        whole="job_bulk",
        texts=(
            "List the jobs of the queue, oldest first.",
            "Answer one job; of an unknown one all but the id is null.",
        ),
        arguments=(_LIMIT, _BEFORE),
    ),
    _wait("GET", "answer what changed, or null", _W),
    Route(
        "/2/os",
        "GET",
        "List the usable operating systems with their variants.",
        ByJob(
            {
                "OP_ID": "OP_OS_DIAGNOSE",
                "output_fields": ["name", "variants", "valid", "hidden", "blacklisted"],
                "names": [],
            },
            answers.os_names,
        ),
        result=_TEXTS,
    ),
    _query("GET", "Answer fields of all things of a kind.", _FIELDS_REQUIRED),
    _query(
        "PUT",
        "Answer fields of the things of a kind that a filter matches.",
        _FIELDS_ARGUMENT,
        body=QueryBody,
    ),
    Route(
        "/2/query/{resource}/fields",
        "GET",
        "Describe the fields that things of a kind have.",
        Question(
            "QueryFields",
            lambda inputs: [inputs.path["resource"], inputs.query.get("fields")],
            answers.as_it_is,
        ),
        arguments=(_FIELDS_ARGUMENT,),
        result=_OBJECT,
    ),
)

CHANGING: Final = (
    _filter("POST", "/2/filters", "Add a job filter rule"),
    _filter("PUT", "/2/filters/{uuid}", "Replace a job filter rule"),
    Route(
        "/2/filters/{uuid}",
        "DELETE",
        "Remove a job filter rule.",
        Question("DeleteFilter", lambda inputs: [inputs.path["uuid"]], answers.nothing),
        access=_W,
        result=_NULL,
    ),
    Route(
        "/2/jobs/{job_id}",
        "DELETE",
        "Cancel a job.",
        Question(
            "CancelJob",
            lambda inputs: [inputs.path["job_id"], _flag(inputs, "kill")],
            answers.as_it_is,
        ),
        access=_W,
        arguments=(QueryArgument("kill", Switch, help="1 to kill its process if it runs"),),
        result=_OUTCOME,
    ),
)

NEW: Final = (
    Route(
        "/2/user",
        "GET",
        "Tell who asks, and the rights of that user on anything at all.",
        Identity(),
        result=_OBJECT,
        is_public=True,
    ),
    _wait("PUT", "for those who cannot send a body with GET", _R_OR_W),
    Route(
        "/2/queue",
        "GET",
        "Tell whether the job queue is drained.",
        Question("QueryConfigValues", lambda _: [["drain_flag"]], answers.named("drained")),
        result=_OBJECT,
    ),
    Route(
        "/2/queue",
        "PUT",
        "Drain the job queue, or let it take jobs again.",
        Question("SetDrainFlag", lambda inputs: [inputs.body.drained], answers.nothing),
        access=_W,
        body=DrainBody,
        result=_NULL,
    ),
    Route(
        "/2/watcher",
        "GET",
        "Tell until when the watcher pauses; null if it does not.",
        Question("QueryConfigValues", lambda _: [["watcher_pause"]], answers.named("until")),
        result=_OBJECT,
    ),
    Route(
        "/2/watcher",
        "PUT",
        "Pause the watcher, or let it go on.",
        Question("SetWatcherPause", lambda inputs: [inputs.body.until], answers.nothing),
        access=_W,
        body=PauseBody,
        result=_NULL,
    ),
    Route(
        "/2/jobs/{job_id}/priority",
        "PUT",
        "Change the priority of what has not begun of a job.",
        Question(
            "ChangeJobPriority",
            lambda inputs: [inputs.path["job_id"], inputs.body.priority],
            answers.as_it_is,
        ),
        access=_W,
        body=PriorityBody,
        result=_OUTCOME,
    ),
    Route(
        "/2/jobs/{job_id}/archive",
        "POST",
        "Archive a job that has ended; answers whether that was done.",
        Question("ArchiveJob", lambda inputs: [inputs.path["job_id"]], answers.as_it_is),
        access=_W,
        result={"type": "boolean"},
    ),
    Route(
        "/2/jobs/archive",
        "POST",
        "Archive old jobs; answers how many, and how many there was no time to look at.",
        Question(
            "AutoArchiveJobs",
            lambda inputs: [inputs.body.age, inputs.body.timeout],
            answers.as_it_is,
        ),
        access=_W,
        body=ArchiveBody,
        result={"type": "array", "items": {"type": "integer"}},
    ),
    Route(
        "/2/exports",
        "GET",
        "List the exports: pairs of node and export, null for a node that cannot tell.",
        Question("QueryExports", lambda _: [[], False], answers.as_it_is),
        result={"type": "array"},
    ),
    Route(
        "/2/openapi.json",
        "GET",
        "Answer the description of this interface as OpenAPI 3.1 document.",
        Document("openapi"),
        result=_OBJECT,
    ),
    Route(
        "/2/docs",
        "GET",
        "Show the description of this interface as a page.",
        Document(
            "page", "default-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
        ),
        content_type="text/html; charset=utf-8",
        result=_TEXT,
    ),
)
