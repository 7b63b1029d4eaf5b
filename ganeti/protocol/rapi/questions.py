"""The routes of the remote API that ask LuxiD something, or tell it something, without a job.

Source: rapi.json; luxi.json, "methods".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec.structs import replace

from ganeti.base.json import dumps
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.protocol.luxi import ConsoleWay, Week
from ganeti.protocol.rapi import answers, values
from ganeti.protocol.rapi.answers import Shape
from ganeti.protocol.rapi.jobs import Inputs
from ganeti.protocol.rapi.routes import (
    Action,
    BackupSchedule,
    ByJob,
    ConsoleTicket,
    Constant,
    Counts,
    Document,
    Identity,
    NewToken,
    Question,
    RoleRemoval,
    RoleSetting,
    Room,
    Route,
    TokenRemoval,
    Usage,
    UserRemoval,
    Users,
    UserSetting,
)
from ganeti.protocol.rapi.users import Grant
from ganeti.protocol.rapi.values import READ, WAIT_S, WRITE, Number, QueryArgument, Switch
from ganeti.protocol.service import REQUIRED

Args = Callable[[Inputs], list[object]]
"""Makes the arguments of a call to LuxiD."""
Access = tuple[str, ...]
Body = type[Any] | None
Schema = Mapping[str, Any]

WEEKS_DEFAULT: Final = 8
PASSWORD_MAX: Final = 1024  # characters
TOKEN_DAYS_MAX: Final = 366  # of those that users make for themselves
ROOM_MAX: Final = 10_000  # twenty instances for each of 500 nodes: five seconds
_W: Final = (WRITE,)
_R_OR_W: Final = (READ, WRITE)
_BULK: Final = QueryArgument("bulk", Switch, help="1 for whole objects instead of names")
_LOCK: Final = QueryArgument(
    "lock", Switch, help="1 is refused: queries take no locks", schema={"enum": [0]}
)
_COPIES: Final = QueryArgument(
    "copies",
    Switch,
    help="1 for what is to be said of disks too: 'disk.copies', 'disk.copied', 'disk.templates'",
)
_LIMIT: Final = QueryArgument("limit", Number, help="only so many of them, the newest")
_BEFORE: Final = QueryArgument("before", Number, help="only those whose id is smaller")
_OS_FIELDS: Final = ["name", "variants", "valid", "hidden", "blacklisted"]
_INTEGER: Final[Schema] = {"type": "integer"}
_NULL: Final[Schema] = {"type": "null"}
_TEXT: Final[Schema] = {"type": "string"}
_TEXTS: Final[Schema] = {"type": "array", "items": {"type": "string"}}
_OBJECT: Final[Schema] = {"type": "object"}
_OBJECTS: Final[Schema] = {"type": "array", "items": {"type": "object"}}
_FITTING: Final[Schema] = {
    "count": {"type": "integer", "description": f"how many more fit, at most {ROOM_MAX}"},
    "lacking": {
        "type": ["string", "null"],
        "description": "what most nodes lack for one more; null if still more fit, or no node"
        " can take any",
    },
    "memory": {"type": "integer", "description": "MiB of each"},
    "disk": {"type": "integer", "description": "MiB of each"},
    "vcpus": {"type": "integer", "description": "of each"},
}
_GROWING: Final[Schema] = {
    "per-week": {"type": "number", "description": "by how many instances the cluster grows"},
    "weeks": {"type": "number", "description": "for how long there is room for these"},
}


def _facts(properties: Mapping[str, Schema]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_ROOM: Final[Schema] = _facts(
    {
        "disk-template": _TEXT,
        **_FITTING,
        "growth": {
            "description": "the same of instances as large as the cluster has grown by for each"
            " that came; null if there are no more than before",
            "anyOf": [_NULL, _facts({**_FITTING, **_GROWING})],
        },
    }
)
_OUTCOME: Final[Schema] = {
    "type": "array",
    "prefixItems": [{"type": "boolean"}, {"type": "string"}],
    "description": "whether it was done, and a message for the user",
}


class FilterBody(msgspec.Struct, forbid_unknown_fields=True):
    """A job filter rule."""

    priority: Annotated[int, msgspec.Meta(ge=0)] = 0
    predicates: list[list[Any]] = []
    action: str | list[Any] = "CONTINUE"
    reason: list[tuple[str, str, int]] = []


class WaitBody(msgspec.Struct, forbid_unknown_fields=True):
    """The last known state of a job."""

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
    """The jobs to archive: the ones that ended so many seconds ago, -1 for all."""

    age: int
    timeout: int = 30


class DrainBody(msgspec.Struct, forbid_unknown_fields=True):
    """Whether the queue takes no new jobs."""

    drained: bool


class TokenBody(msgspec.Struct, forbid_unknown_fields=True):
    """For how many days a token is to be good."""

    days: Annotated[int, msgspec.Meta(ge=1, le=TOKEN_DAYS_MAX)] = 90


class UserBody(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be changed of a user: null stays as it is, or is nothing where the user is new."""

    password: Annotated[str, msgspec.Meta(min_length=1, max_length=PASSWORD_MAX)] | None = None
    rights: list[str] | None = None
    roles: list[str] | None = None


class RoleBody(msgspec.Struct, forbid_unknown_fields=True):
    """All that a role lets its users do."""

    grants: list[Grant]


class PauseBody(msgspec.Struct, forbid_unknown_fields=True):
    """Until when the watcher pauses, in seconds since the epoch; null to go on at once."""

    until: float | None


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The instances to count; None: as the policy of the cluster has them.  Sizes in MiB.

    ``weeks`` is the growth of the last ones.
    """

    disk_template: str | None = None
    memory: int | None = None
    disk: int | None = None
    vcpus: int | None = None
    weeks: list[Week] = []


def _flag(inputs: Inputs, name: str) -> bool:
    return bool(inputs.query.get(name, False))


# Reading.


def _names(what: str) -> Args:
    """Return the arguments that ask for the name of everything, or for whole objects."""

    def args(inputs: Inputs) -> list[object]:
        is_whole = _flag(inputs, "bulk")
        fields = list(values.FIELDS[answers.wanted(what, inputs)]) if is_whole else ["name"]
        return [[], fields, _flag(inputs, "lock")]

    return args


def _ids(whole: str, key: str) -> Args:
    """Return the arguments that ask for the id of everything, or for whole objects."""

    def args(inputs: Inputs) -> list[object]:
        fields = list(values.FIELDS[whole]) if _flag(inputs, "bulk") else [key]
        part = [inputs.query.get(name) for name in ("limit", "before")]
        return [None, fields, *(part if any(each is not None for each in part) else [])]

    return args


def _one(what: str, placeholder: str, *, takes_lock: bool) -> Args:
    def args(inputs: Inputs) -> list[object]:
        lock = [_flag(inputs, "lock")] if takes_lock else []
        return [[inputs.path[placeholder]], list(values.FIELDS[what]), *lock]

    return args


def _either(whole: Shape, links: Shape) -> Shape:
    def shape(result: msgspec.Raw, inputs: Inputs) -> bytes:
        return (whole if _flag(inputs, "bulk") else links)(result, inputs)

    return shape


def _given(*names: str) -> Args:
    """Return the arguments that path, body or query have by these names; null for none."""

    def args(inputs: Inputs) -> list[object]:
        given = {**inputs.query, **inputs.path}
        return [given.get(name, getattr(inputs.body, name, None)) for name in names]

    return args


def _get(
    path: str, text: str, action: Action, result: Schema, *query: QueryArgument, access: Access = ()
) -> Route:
    return Route(path, "GET", text, action, access, query, result=result)


def _change(
    row: str, text: str, action: Action, result: Schema, body: Body = None, *query: QueryArgument
) -> Route:
    """Return a route that changes something; the row is method and path."""
    method, _, path = row.partition(" ")
    return Route(path, method, text, action, _W, query, body, result)


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
        key: the key of the name or id in a list of links.
        placeholder: of the id in the path, for objects without a name.
        whole: the fields in a list of whole objects, if not those of a single one.
        texts: the help of both, if they need more words.
        arguments: query arguments of the list beside ``bulk``.
    """
    has_name = not placeholder
    all_args = _names(what) if has_name else _ids(whole or what, key)
    all_shape = _either(answers.all_of(whole or what), answers.links_to(path, key))
    one_args = _one(what, placeholder or what, takes_lock=has_name)
    list_text = texts[0] or f"List all {path.rpartition('/')[2]}."
    one_path, one_text = f"{path}/{{{placeholder or what}}}", texts[1] or f"Answer one {what}."
    one = Question(luxi, one_args, answers.one_of(what))
    return [
        _get(path, list_text, Question(luxi, all_args, all_shape), _OBJECTS, _BULK, *arguments),
        _get(one_path, one_text, one, _OBJECT, *((_LOCK,) if has_name else ())),
    ]


def _query_args(inputs: Inputs) -> list[object]:
    """Return resource, fields and filter of a query, from the body or the query arguments."""
    body = inputs.body if isinstance(inputs.body, QueryBody) else QueryBody()
    fields = body.fields if body.fields is not None else inputs.query.get("fields")
    if fields is None:
        raise values.HttpProblem(400, "Missing 'fields', in the body or as query argument")
    wanted = body.qfilter if body.qfilter is not None else body.filter  # old clients send both
    return [inputs.path["resource"], fields, wanted]


_WEEKS: Final = QueryArgument("weeks", Number, help=f"how many, {WEEKS_DEFAULT} if nothing is said")
_FIELDS_ARGUMENT: Final = QueryArgument(
    "fields", values.Words, help="names of fields, with commas between"
)
_FIELDS_REQUIRED: Final = replace(_FIELDS_ARGUMENT, default=REQUIRED)


def _query(method: str, text: str, fields: QueryArgument, body: Body = None) -> Route:
    action, path = Question("Query", _query_args), "/2/query/{resource}"
    return Route(path, method, text, action, _R_OR_W, (fields,), body, _OBJECT)


def _seen_of_job(inputs: Inputs) -> list[object]:
    """Return what the caller has seen of a job, and that it had not ended by then.

    LuxiD answers at once for a job that has ended; the end tells that from nothing new in time.
    """
    body = inputs.body
    previous = None if body.previous_job_info is None else [*body.previous_job_info, None]
    fields = [*body.fields, answers.END_FIELD]
    return [inputs.path["job_id"], fields, previous, body.previous_log_serial, WAIT_S]


def _wait(method: str, text: str, access: Access) -> Route:
    text = f"Wait up to {WAIT_S} s until a job changes; {text}."
    action = Question("WaitForJobChange", _seen_of_job, answers.job_change)
    result = {"anyOf": [_NULL, _OBJECT]}
    return Route("/2/jobs/{job_id}/wait", method, text, action, access, (), WaitBody, result)


def _filter(row: str, text: str) -> Route:
    rule = _given("uuid", "priority", "predicates", "action", "reason")
    return _change(
        row, f"{text}; answers its UUID.", Question("ReplaceFilter", rule), _TEXT, FilterBody
    )


READING: Final = (
    _get("/", "Answer nothing: something is here.", Constant(b"null"), _NULL),
    _get("/2", "Answer nothing: version 2 is here.", Constant(b"null"), _NULL),
    _get(
        "/version",
        "Answer the version of this interface.",
        Constant(dumps(values.VERSION)),
        _INTEGER,
    ),
    _get(
        "/2/features",
        "List the features of this interface.",
        Constant(dumps(values.FEATURES)),
        _TEXTS,
    ),
    _get(
        "/2/info",
        "Answer facts and settings of the cluster.",
        Question("QueryClusterInfo", _given(), answers.cluster_info),
        _OBJECT,
    ),
    *_collection("/2/instances", "instance", "QueryInstances", "id", arguments=(_LOCK, _COPIES)),
    *_collection("/2/nodes", "node", "QueryNodes", "id"),
    *_collection("/2/groups", "group", "QueryGroups", "name"),
    *_collection("/2/networks", "network", "QueryNetworks", "name"),
    _get(
        "/2/instances/{instance}/console",
        "Answer how to reach the console.",
        Question(
            "Query",
            lambda inputs: ["instance", ["console"], ["=", "name", inputs.path["instance"]]],
            answers.console,
        ),
        _OBJECT,
        access=_R_OR_W,
    ),
    _get(
        "/2/nodes/{node}/role",
        "Answer the role of a node.",
        Question(
            "QueryNodes",
            lambda inputs: [[inputs.path["node"]], ["role"], _flag(inputs, "lock")],
            answers.node_role,
        ),
        _TEXT,
        _LOCK,
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
    _wait("GET", "answer the changes, or null", _W),
    _get(
        "/2/os",
        "List the usable operating systems with their variants.",
        ByJob(
            {"OP_ID": "OP_OS_DIAGNOSE", "output_fields": _OS_FIELDS, "names": []}, answers.os_names
        ),
        _TEXTS,
    ),
    _query("GET", "Answer fields of all things of a kind.", _FIELDS_REQUIRED),
    _query(
        "PUT",
        "Answer fields of the things of a kind that a filter matches.",
        _FIELDS_ARGUMENT,
        QueryBody,
    ),
    _get(
        "/2/query/{resource}/fields",
        "Describe the fields that things of a kind have.",
        Question("QueryFields", _given("resource", "fields")),
        _OBJECT,
        _FIELDS_ARGUMENT,
    ),
)

CHANGING: Final = (
    _filter("POST /2/filters", "Add a job filter rule"),
    _filter("PUT /2/filters/{uuid}", "Replace a job filter rule"),
    _change(
        "DELETE /2/filters/{uuid}",
        "Remove a job filter rule.",
        Question("DeleteFilter", _given("uuid"), answers.nothing),
        _NULL,
    ),
    _change(
        "DELETE /2/jobs/{job_id}",
        "Cancel a job.",
        Question("CancelJob", lambda inputs: [inputs.path["job_id"], _flag(inputs, "kill")]),
        _OUTCOME,
        None,
        QueryArgument("kill", Switch, help="1 to kill its process if it runs"),
    ),
)

NEW: Final = (
    Route(
        "/2/user",
        "GET",
        "Show the user of the request, and the rights of that user on anything at all.",
        Identity(),
        result=_OBJECT,
        is_public=True,
    ),
    Route(
        "/2/user/tokens",
        "POST",
        "Make a token that stands for the user of the request, who has to come with the password;"
        " it is answered once and not kept.  A job sends it to the master candidates.",
        NewToken(),
        _R_OR_W,
        body=TokenBody,
        result=_OBJECT,
    ),
    Route(
        "/2/user/tokens/{token}",
        "DELETE",
        "Remove a token of the user of the request; answers the job that tells the candidates.",
        TokenRemoval(),
        _R_OR_W,
        result=_INTEGER,
    ),
    Route(
        "/2/users",
        "GET",
        "List the users of this interface with rights, roles and tokens, and the roles.  Passwords"
        " and secrets are not shown.",
        Users(),
        _W,
        result=_OBJECT,
    ),
    _change(
        "DELETE /2/users/{user}/tokens/{token}",
        "Remove a token of a user; answers the job that tells the candidates.",
        TokenRemoval(),
        _INTEGER,
    ),
    _change(
        "PUT /2/users/{user}",
        "Add a user, or change password, rights or roles of one; answers the job that tells the"
        " candidates.  This needs the password of the user who asks; nobody changes rights or roles"
        " of oneself.",
        UserSetting(),
        _INTEGER,
        UserBody,
    ),
    _change(
        "DELETE /2/users/{user}",
        "Remove another user, with all tokens; answers the job that tells the candidates.",
        UserRemoval(),
        _INTEGER,
    ),
    _change(
        "PUT /2/roles/{role}",
        "Make a role, or replace what it lets its users do; answers the job that tells the"
        " candidates.  Nobody changes a role of oneself.",
        RoleSetting(),
        _INTEGER,
        RoleBody,
    ),
    _change(
        "DELETE /2/roles/{role}",
        "Remove a role that no user has; answers the job that tells the candidates.",
        RoleRemoval(),
        _INTEGER,
    ),
    _wait("PUT", "for clients that cannot send a body with GET", _R_OR_W),
    _get(
        "/2/queue",
        "Tell whether the job queue is drained.",
        Question("QueryConfigValues", lambda _: [["drain_flag"]], answers.named("drained")),
        _OBJECT,
    ),
    _change(
        "PUT /2/queue",
        "Drain the job queue, or let it take jobs again.",
        Question("SetDrainFlag", _given("drained"), answers.nothing),
        _NULL,
        DrainBody,
    ),
    _get(
        "/2/watcher",
        "Tell until when the watcher pauses; null if it does not.",
        Question("QueryConfigValues", lambda _: [["watcher_pause"]], answers.named("until")),
        _OBJECT,
    ),
    _change(
        "PUT /2/watcher",
        "Pause the watcher, or let it go on.",
        Question("SetWatcherPause", _given("until"), answers.nothing),
        _NULL,
        PauseBody,
    ),
    _change(
        "PUT /2/jobs/{job_id}/priority",
        "Change the priority of the opcodes of a job that have not begun.",
        Question("ChangeJobPriority", _given("job_id", "priority")),
        _OUTCOME,
        PriorityBody,
    ),
    _change(
        "POST /2/jobs/{job_id}/archive",
        "Archive a job that has ended; answers whether that was done.",
        Question("ArchiveJob", _given("job_id")),
        {"type": "boolean"},
    ),
    _change(
        "POST /2/jobs/archive",
        "Archive old jobs; answers how many, and how many there was no time to look at.",
        Question("AutoArchiveJobs", _given("age", "timeout")),
        {"type": "array", "items": _INTEGER},
        ArchiveBody,
    ),
    _get(
        "/2/growth",
        "Tell by how much the cluster has grown in each of the last weeks, the oldest first:"
        " instances created and removed, MiB of their memory and disks more or fewer.",
        Question("QueryGrowth", lambda inputs: [inputs.query.get("weeks") or WEEKS_DEFAULT]),
        _OBJECTS,
        _WEEKS,
    ),
    _get(
        "/2/capacity",
        "Tell how many more instances fit as the allocator places them, what runs out first, and"
        " for how many weeks there is room at the growth of the last ones.",
        Room(),
        _ROOM,
        QueryArgument("disk_template", DiskTemplate, help="the first of the policy if not given"),
        QueryArgument("memory", Number, help="MiB, those of the policy's standard if not given"),
        QueryArgument("disk", Number, help="MiB, those of the policy's standard if not given"),
        QueryArgument("vcpus", Number, help="those of the policy's standard if not given"),
        _WEEKS,
    ),
    _get(
        "/2/maintenance",
        "Show settings and state of maintenance, with the events of nodes that it acts on; null"
        " while it is switched off.",
        Question("QueryMaintenance", _given()),
        {"type": ["object", "null"]},
    ),
    _get(
        "/2/maintenance/status",
        "Show what the maintenance daemon knows: events of nodes with the reason why nothing is"
        " done about them now, the last round, and why nothing is balanced or repaired.",
        Question("QueryMaintenanceStatus", lambda _: [-1]),
        _OBJECT,
    ),
    _get(
        "/2/availability",
        "Show high availability: who holds which lease, which nodes are missed or dead and how that"
        " was proved, the members of etcd, and what the death of each node would lead to; null"
        " while it is switched off.",
        Question("QueryAvailability", lambda _: []),
        {"type": ["object", "null"]},
    ),
    _change(
        "POST /2/maintenance/incidents/{uuid}/cancel",
        "Have nobody act on an event of a node any more; jobs that were submitted go on.",
        Question("CancelRepair", _given("uuid"), answers.nothing),
        _NULL,
    ),
    _change(
        "DELETE /2/maintenance/incidents/{uuid}",
        "Forget an event of a node; while the node still reports it, it is noted anew.",
        Question("RemoveRepair", _given("uuid"), answers.nothing),
        _NULL,
    ),
    *(
        _get(
            f"/2/{what}s/{{{what}}}/usage",
            f"Tell what the {what} used of processor, memory, disks and network in the last hour"
            " and day; null if its node does not know, and a problem if that does not answer.",
            Usage(),
            {"type": ["object", "null"]},
        )
        for what in ("instance", "node")
    ),
    Route(
        "/2/instances/{instance}/console-ticket",
        "POST",
        "Answer a ticket with which a browser opens the console by WebSocket, once and at once.",
        ConsoleTicket(),
        _W,
        (QueryArgument("way", ConsoleWay, help="serial or graphics", field="way"),),
        result=_OBJECT,
    ),
    _get(
        "/2/exports",
        "List the exports: pairs of node and export, null for a node with none or no answer.",
        Question("QueryExports", lambda _: [[], False]),
        {"type": "array"},
    ),
    _get(
        "/2/backup-schedule",
        "Tell of each instance its policy of backups, the kind of object that has it, the newest"
        " export, when the next is due or why it waits, and whether the newest one is too old; the"
        " same of rehearsals.",
        BackupSchedule(),
        _OBJECTS,
    ),
    _get(
        "/2/openapi.json",
        "Answer the description of this interface as OpenAPI 3.1 document.",
        Document("openapi"),
        _OBJECT,
    ),
    Route(
        "/metrics",
        "GET",
        "Count the requests since the server began and their time, in the format of Prometheus.",
        Counts(),
        access=_R_OR_W,
        content_type="text/plain; version=0.0.4; charset=utf-8",
        result=_TEXT,
        is_new=True,
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
