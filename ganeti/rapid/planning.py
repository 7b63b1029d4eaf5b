"""From a request to the calls of LuxiD: pure functions over the parts of the request.

Source: rapi.json, "generic_job_call", "transport", "errors"; W3C Fetch Metadata Request Headers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from msgspec import UNSET

from ganeti.base.errors import OpCodeUnknown, OpPrereqError, ProtocolError
from ganeti.base.json import loads, loads_as
from ganeti.base.paths import Paths
from ganeti.base.versions import LUXI_VERSION
from ganeti.objects.disk_templates import DeviceAction
from ganeti.opcodes.instance import InstanceCreateMode, OpInstanceCreate
from ganeti.opcodes.registry import decode_opcode
from ganeti.opcodes.values import Version
from ganeti.protocol.envelope import encode_request
from ganeti.protocol.export_description import PARTIAL_SUFFIX
from ganeti.protocol.luxi import LuxiCalls
from ganeti.protocol.rapi.answers import no_such
from ganeti.protocol.rapi.jobs import Inputs, Submission, Wire, converted
from ganeti.protocol.rapi.routes import Resource, Route
from ganeti.protocol.rapi.table import TABLE
from ganeti.protocol.rapi.values import HttpProblem, parse_arguments
from ganeti.transport.http_message import HttpRequest

QUERY_FIELDS_MAX: Final = 10_000  # a tag each; more would be a mistake
_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE"})
_SAFE: Final = frozenset({"GET", "HEAD"})
_DRY_RUN: Final = "dry-run"
_OURS: Final = frozenset({"same-origin", "none"})
_EXPORT_DIR: Final = Paths("").export_dir
_REASON_SOURCE_USER: Final = "gnt:user"
_REASON_SOURCE_RAPI: Final = "gnt:library:rlib2"


@dataclass(frozen=True, slots=True)
class Target:
    """The resource that a request is about."""

    route: Route
    path: str
    values: Mapping[str, str]


def find_target(request: HttpRequest) -> Target:
    """Return the route of a request.

    Raises:
        HttpProblem: 404, 405 or 501.
    """
    path = unquote(request.path, errors="replace")
    if len(path) > 1:
        path = path.removesuffix("/")
    found = TABLE.find(path)
    if found is None:
        raise HttpProblem(404, f"There is nothing at '{path}'")
    resource, values = found
    return Target(_route_of(resource, request.method), path, values)


def _route_of(resource: Resource, method: str) -> Route:
    route = resource.routes.get("GET" if method == "HEAD" else method)
    if route is not None and not (method == "HEAD" and isinstance(route.action, Submission)):
        return route
    # 3.0 answers 501 for a method that its resource does not have, and its clients know that.
    is_new = all(route.is_new for route in resource.routes.values())
    status = 405 if is_new and method in _METHODS else 501
    raise HttpProblem(
        status,
        f"Method {method} is not possible here, but {resource.allowed}",
        {"Allow": resource.allowed},
    )


def check_head(target: Target, request: HttpRequest) -> None:
    """Refuse as much as possible before the body is there.

    Raises:
        HttpProblem: 403, 406 or 415.
    """
    if request.method not in _SAFE and request.headers.get("sec-fetch-site", "none") not in _OURS:
        # A browser that knows a password sends it along for any page that asks.
        raise HttpProblem(403, "A page of another server may change nothing here")
    if not accepts(request.headers.get("accept", ""), target.route.content_type):
        kind = target.route.content_type.partition(";")[0]
        raise HttpProblem(406, f"Only {kind} can be answered here")
    if has_body(request):
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HttpProblem(415, "The body must be of the type application/json")


def has_body(request: HttpRequest) -> bool:
    """Tell whether a request announces a body."""
    length = request.headers.get("content-length", "0")
    return length != "0" or "transfer-encoding" in request.headers


def accepts(header: str, content_type: str) -> bool:
    """Tell whether a type is among the types that a client takes (RFC 9110, 12.5.1)."""
    if not header.strip():
        return True
    kind = content_type.partition(";")[0]
    best: dict[str, bool] = {}
    for each in header.split(","):
        name, *parameters = [word.strip().lower() for word in each.split(";")]
        weights = [word[2:] for word in parameters if word.startswith("q=")]
        best[name] = not weights or weights[-1].strip("0.") != ""
    fitting = (kind, f"{kind.partition('/')[0]}/*", "*/*")  # the most specific decides
    return next((best[name] for name in fitting if name in best), False)


def read_inputs(target: Target, request: HttpRequest) -> Inputs:
    """Return the arguments and the body of a request, checked.

    Raises:
        HttpProblem: 400.
    """
    query = _query(request)
    _check_rehearsal(target.route, query)
    arguments = parse_arguments(target.route.arguments, query)
    body: Any = UNSET
    if target.route.takes_body and request.body.strip():
        try:
            body = loads(request.body)
        except ProtocolError as err:
            raise HttpProblem(400, f"Cannot read the body: {err.message}") from err
    if target.route.body is not None and (body is not UNSET or not _is_optional(target.route)):
        body = converted(target.route.body, {} if body is UNSET else body)
    return Inputs(target.values, arguments, body)


def _check_rehearsal(route: Route, query: Mapping[str, Sequence[str]]) -> None:
    """Refuse to do in earnest what a client only wants to try: other arguments are ignored."""
    is_known = route.method == "GET" or any(each.name == _DRY_RUN for each in route.arguments)
    if is_known or query.get(_DRY_RUN, ["0"])[0] == "0":
        return
    action = route.action
    in_body = isinstance(action, Submission) and action.has_body and action.parts is None
    way = "; say 'dry_run' in the body" if in_body else ""
    raise HttpProblem(400, f"'{_DRY_RUN}' is no query argument here{way}")


def _is_optional(route: Route) -> bool:
    """Tell whether a question may come without its body: its arguments stand in the URL too."""
    return any(argument.name == "fields" for argument in route.arguments)


def _query(request: HttpRequest) -> dict[str, list[str]]:
    text = request.target.partition("?")[2]
    try:
        return parse_qs(
            text, keep_blank_values=True, errors="replace", max_num_fields=QUERY_FIELDS_MAX
        )
    except ValueError as err:
        raise HttpProblem(400, f"Cannot read the query arguments: {err}") from err


def reason_of(request: HttpRequest) -> str:
    """Return the reason that a request gives for its job."""
    return _query(request).get("reason", [""])[0]


def job_of(target: Target, inputs: Inputs, reason: str, now_ns: int, user: str = "") -> list[Wire]:
    """Return the opcodes of the job that a request submits, checked against their declarations.

    Their reason trail says which user submits them.

    Raises:
        HttpProblem: 400 or 403.
    """
    action = target.route.action
    assert isinstance(action, Submission)
    opcodes = action.opcodes(target.route.arguments, inputs)
    who = f"user {user}" if user else ""
    trail: list[list[object]] = [[f"{_REASON_SOURCE_RAPI}:{target.route.name}", who, now_ns]]
    if reason:
        trail.insert(0, [_REASON_SOURCE_USER, reason, now_ns])
    try:
        for wire in opcodes:
            decode_opcode(wire)
            for nested in _nested(wire):
                _check_nested(nested)
    except (OpPrereqError, OpCodeUnknown) as err:
        raise HttpProblem(400, err.message) from err
    except RecursionError as err:
        raise HttpProblem(400, "The body is nested too deeply") from err
    return [{**wire, "reason": trail} for wire in opcodes]


def _nested(wire: Wire) -> list[Any]:
    """Return the opcodes inside an opcode: creations that are placed together."""
    if wire["OP_ID"] != "OP_INSTANCE_MULTI_ALLOC":
        return []
    return list(wire.get("instances") or ())


def _check_nested(wire: object) -> None:
    """Refuse everything but the creation of an instance."""
    if not isinstance(wire, dict) or not isinstance(decode_opcode(wire), OpInstanceCreate):
        raise HttpProblem(400, "OP_INSTANCE_MULTI_ALLOC takes OP_INSTANCE_CREATE and nothing else")


def check_conditions(route: Route, request: HttpRequest) -> None:
    """Refuse a change on condition of a version where nothing has one.

    Raises:
        HttpProblem: 412.
    """
    is_answered = route.shows_version or route.has_whole_tag
    is_job = isinstance(route.action, Submission) and route.about
    if "if-match" in request.headers and not (is_answered or is_job):
        raise HttpProblem(412, "If-Match: nothing here has a version that could be compared")


def tags_in(header: str) -> list[str]:
    """Return the tags that a client names in If-Match or If-None-Match (RFC 9110, 13.1)."""
    return [word.strip() for word in header.split(",") if word.strip()]


def check_tag(header: str, tag: str, what: str) -> None:
    """Refuse a request for another version of a thing than there is (RFC 9110, 13.1.1).

    Raises:
        HttpProblem: 412; says which version there is.
    """
    if header and not {"*", tag} & set(tags_in(header)):
        raise HttpProblem(412, f"{what} has the ETag {tag} now; look at it again", {"ETag": tag})


def version_question(about: str, name: str) -> tuple[str, list[Any]]:
    """Return the call that asks LuxiD for the version of an object, as `version_in` reads it."""
    if about == "cluster":
        return "QueryClusterInfo", []
    return f"Query{about.capitalize()}s", [[name], ["uuid", "serial_no"], False]


def version_in(about: str, answer: bytes, name: str) -> Version:
    """Return the version that LuxiD answers.

    Raises:
        HttpProblem: 404: there is no such object.
    """
    if about == "cluster":
        return loads_as(Version, answer)
    rows = loads_as(list[tuple[str, int]], answer)
    if not rows:
        raise no_such(about, name)
    return Version(*rows[0])


def luxi_request(method: str, args: list[Any]) -> bytes:
    """Return an encoded request to LuxiD, its arguments checked.

    Raises:
        HttpProblem: 400: an argument is of a wrong type, or cannot be sent.
    """
    try:
        LuxiCalls.calls[method].read(args)
        return encode_request(method, args, LUXI_VERSION)
    except (ProtocolError, RecursionError) as err:
        text = err.message if isinstance(err, ProtocolError) else "nested too deeply"
        raise HttpProblem(400, f"Cannot ask for this: {text}") from err


def instances_in(opcodes: Sequence[Wire]) -> list[str] | None:
    """Return the instances that opcodes are about; None if they are about anything else too."""
    names: list[str] = []
    for wire in opcodes:
        found = _names_in(wire) if isinstance(wire, dict) else []
        if not found:
            return None
        names += found
    return names


def jobs_in(opcodes: Sequence[Wire]) -> list[str]:
    """Return the ids of the jobs that opcodes depend on, of the same submission none."""
    every = [each for wire in opcodes for each in (wire, *_nested(wire))]
    ids = [str(job_id) for wire in every for job_id, *_ in wire.get("depends") or ()]
    return [job_id for job_id in ids if not job_id.startswith("-")]


def _names_in(wire: Wire) -> list[str]:
    """Return the names of the instances that an opcode is about, if nothing else is."""
    if wire.get("instance_uuid") is not None:
        return []  # would go before the name
    if wire["OP_ID"] in ("OP_TAGS_SET", "OP_TAGS_DEL"):
        return [str(wire["name"])] if wire.get("kind") == "instance" else []
    if wire["OP_ID"] == "OP_INSTANCE_QUERY_DATA":
        return [str(name) for name in wire.get("instances") or ()]
    if wire["OP_ID"] == "OP_INSTANCE_MULTI_ALLOC":
        return instances_in(_nested(wire)) or []
    if "instance_name" not in wire or _adopts(wire.get("disks")):
        return []
    names = [str(wire[key]) for key in ("instance_name", "new_name") if key in wire]
    if wire["OP_ID"] == "OP_INSTANCE_CREATE" and wire.get("mode") == InstanceCreateMode.IMPORT:
        source = _exported_name(str(wire.get("src_path") or wire["instance_name"]))
        return [*names, source] if source else []
    return names


def _adopts(disks: object) -> bool:
    """Tell whether settings, or changes, of disks take over what is there and may be anybody's."""
    entries = disks if isinstance(disks, list) else []
    parts = [part for each in entries for part in (each if isinstance(each, list) else [each])]
    return DeviceAction.ATTACH in parts or any(
        isinstance(part, dict) and "adopt" in part for part in parts
    )


def _exported_name(path: str) -> str:
    """Return the name of the instance whose export has a path; "" if exports lie elsewhere."""
    directory, _, name = path.rpartition("/")
    return name.removesuffix(PARTIAL_SUFFIX) if directory in ("", _EXPORT_DIR) else ""
