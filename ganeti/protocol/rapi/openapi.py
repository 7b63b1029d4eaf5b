"""The description of the remote API as an OpenAPI 3.1 document, made from routes and opcodes.

Source: OpenAPI Specification 3.1.0; JSON Schema 2020-12.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import EnumType
from types import UnionType
from typing import Any, Final, get_args, get_origin

import msgspec

from ganeti.base.versions import RELEASE_VERSION
from ganeti.objects import parameters
from ganeti.objects.disk_templates import DISKS_MAX, DeviceAction
from ganeti.objects.hypervisors import HVPARAMS, USUAL_HYPERVISOR
from ganeti.objects.parameters import ParamTable
from ganeti.objects.query_words import QueryResource
from ganeti.objects.record import PrivateParams
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.registry import all_op_ids, opcode_class
from ganeti.opcodes.values import DeviceChange
from ganeti.protocol.rapi.jobs import ROLES, Submission
from ganeti.protocol.rapi.routes import NAME_PATTERN, PATTERNS, ByJob, Question, Room, Route
from ganeti.protocol.rapi.table import ROUTES
from ganeti.protocol.rapi.values import REPEATED, QueryArgument
from ganeti.protocol.service import text_form_of

Schema = dict[str, Any]

_REFERENCE: Final = "#/components/schemas/{name}"
_PATH_SCHEMAS: Final[Mapping[str, Schema]] = {
    "disk": {"type": "integer", "minimum": 0, "maximum": DISKS_MAX - 1},
    "resource": {"type": "string", "enum": [str(each) for each in QueryResource]},
}


def _items(*parts: Schema) -> Schema:
    """Return the schema of a list of exactly these parts."""
    count = len(parts)
    return {"type": "array", "prefixItems": list(parts), "minItems": count, "maxItems": count}


_OP_ID: Final[Schema] = {
    "type": "object",
    "required": ["OP_ID"],
    "properties": {"OP_ID": {"enum": list(all_op_ids())}},
}
_MORE: Final[Mapping[tuple[str, str], Schema]] = {
    ("JobBody", "opcodes"): {"minItems": 1, "items": _OP_ID},
    ("FilterBody", "action"): {
        "anyOf": [
            {"enum": ["ACCEPT", "PAUSE", "REJECT", "CONTINUE"]},
            _items({"const": "RATE_LIMIT"}, {"type": "integer", "minimum": 1}),
        ]
    },
}
"""Descriptions of parameters for which the types of bodies have none."""
_SETTINGS: Final[Schema] = {"type": "object"}
_DEVICE: Final[Schema] = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
_ACTIONS: Final = [str(each) for each in DeviceAction]
_DEVICE_CHANGE: Final[Schema] = {
    "anyOf": [
        _items({"enum": _ACTIONS}, _DEVICE, _SETTINGS),
        _items({"enum": [each for each in _ACTIONS if each != DeviceAction.MODIFY]}, _SETTINGS),
        _items({"type": "integer"}, _SETTINGS),
    ]
}
_PROBLEM: Final[Schema] = {
    "type": "object",
    "required": ["code", "message", "explain"],
    "properties": {
        "code": {"type": "integer"},
        "message": {"type": "string", "description": "the problem, as HTML text"},
        "explain": {"type": "string", "description": "the meaning of the status"},
        "detail": {"type": "string", "description": "the problem if the status is 404"},
    },
}
_ALWAYS: Final = {
    400: "The request is wrong; the message says where.",
    401: "The request names no user, or has a wrong password or token.",
    403: "The user has no right to do this.",
    404: "There is no such thing.",
    406: "The client takes no answer of the type that there is.",
    408: "The request did not come in time.",
    413: "The body is too large.",
    415: "A body must be of the type application/json.",
    431: "The head is too large.",
    500: "Something is wrong in the server.",
    502: "The daemon that knows the answer cannot be reached, or does not understand the request.",
    503: "Not now: the queue takes no jobs, or there is no such thing at the moment.",
    504: "The daemon that knows the answer does not give it in time.",
}
_CHANGES: Final = {409: "This cannot be done as things are."}
_CONDITION: Final = {412: "The thing has another ETag by now than If-Match names."}
_UNCHANGED: Final = "The client has the answer already."


def openapi_document() -> Schema:
    """Return the document."""
    schemas = _schemas()
    paths: dict[str, Schema] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ganeti remote API",
            "version": RELEASE_VERSION,
            "description": "Jobs are submitted and answered by their id; look at /2/jobs/{job_id}"
            " for what became of them.  Integers are written without a decimal point.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {
                str(status): _problem(text)
                for status, text in {**_ALWAYS, **_CHANGES, **_CONDITION}.items()
            },
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _problem(text: str) -> Schema:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": text, "content": content}


def _schemas() -> dict[str, Schema]:
    """Return the schemas of all opcodes and bodies, and of the types in them."""
    bodies = {body for route in ROUTES for body in (route.body, _parts(route)) if body is not None}
    kinds = [opcode_class(op_id) for op_id in all_op_ids()]
    _, found = msgspec.json.schema_components(
        [*kinds, *sorted(bodies - {str}, key=lambda kind: kind.__name__)],
        schema_hook=_special,
        ref_template=_REFERENCE,
    )
    for kind in (*kinds, *bodies):
        schema = found.get(kind.__name__, {})
        _name_keys(kind, schema)
        _describe_parameters(schema)
    for (name, parameter), more in _MORE.items():
        found[name]["properties"][parameter] |= more
    return {"Problem": _PROBLEM, **{name: _portable(schema) for name, schema in found.items()}}


def _name_keys(kind: type[Any], schema: Schema) -> None:
    """Say which keys an object has, where they are those of an enumeration."""
    fields = msgspec.structs.fields(kind) if issubclass(kind, msgspec.Struct) else ()
    for field in fields:
        keys = list(_keys_of(field.type))
        shown = schema["properties"][field.encode_name]
        for each in shown.get("anyOf", [shown]):
            if keys and each.get("type") == "object":
                each["propertyNames"] = {"enum": keys}


def _describe_parameters(schema: Schema) -> None:
    """Describe each parameter, its unit, range and default, where an object holds parameters."""
    for name, tables in _PARAMETERS.items():
        shown = schema.get("properties", {}).get(name, {})
        for each in shown.get("anyOf", [shown]):
            each = each.get("items", each)  # of disks and interfaces there is a list
            if each.get("type") != "object":
                continue
            if each.get("additionalProperties") == {"type": "object"}:  # by name, for the cluster
                each["properties"] = {
                    named: {"type": "object", "properties": _described([table])}
                    for named, table in tables.items()
                }
            else:
                each["properties"] = _described(tables.values())


def _described(tables: Iterable[ParamTable]) -> dict[str, Schema]:
    return {
        name: {"description": spec.described} for table in tables for name, spec in table.items()
    }


_PARAMETERS: Final[Mapping[str, Mapping[str, ParamTable]]] = {
    "beparams": {"": parameters.BEPARAMS},
    "diskparams": parameters.DISKPARAMS,
    "disks": {"": parameters.all_disk_settings()},
    "hvparams": dict(sorted(HVPARAMS.items(), key=lambda row: row[0] == USUAL_HYPERVISOR)),
    "ndparams": {"": parameters.NDPARAMS},
    "nicparams": {"": parameters.NICPARAMS},
    "nics": {"": parameters.NIC_SETTINGS},
}
"""Field of opcodes -> its tables; of a parameter in several, the last one describes it."""


def _keys_of(kind: Any) -> Iterator[str]:
    parts = get_args(kind)
    if get_origin(kind) is Mapping:
        yield from parts[0] if isinstance(parts[0], EnumType) else ()
    elif isinstance(kind, UnionType):
        for part in parts:
            yield from _keys_of(part)


def _parts(route: Route) -> type[Any] | None:
    return route.action.parts if isinstance(route.action, Submission) else None


def _special(kind: type) -> Schema:
    """Describe our own types."""
    if issubclass(kind, DeviceChange):
        return {**_DEVICE_CHANGE, "description": kind.DESCRIPTION}
    assert issubclass(kind, PrivateParams), f"no schema for {kind.__name__}"
    return {"type": "object"}


def _portable(schema: Any) -> Any:
    """Write regular expressions the way that JSON Schema has them."""
    if isinstance(schema, list):
        return [_portable(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: re.sub(r"\\Z", "$", value.replace(r"\A", "^"))
        if key == "pattern" and isinstance(value, str)
        else _portable(value)
        for key, value in schema.items()
    }


def _operation(route: Route, schemas: Mapping[str, Schema]) -> Schema:
    name = "_".join([route.method.lower(), *re.findall(r"[\w-]+", route.path)]).replace("-", "_")
    found: Schema = {
        "operationId": name,
        "summary": route.help,
        "tags": [_group(route)],
        "parameters": [
            *(_path_parameter(each) for each in route.placeholders),
            *(_query_parameter(each) for each in route.arguments),
            *([_REASON] if isinstance(route.action, Submission) else []),
            *([_IF_MATCH] if isinstance(route.action, Submission) and route.about else []),
        ],
        "responses": _responses(route),
    }
    if route.access:
        found["security"] = [{"password": []}, {"token": []}]
        found["description"] = f"Needs one of the rights: {', '.join(route.access)}."
    if route.takes_body:
        schema, is_required = _body(route, schemas)
        content = {"application/json": {"schema": schema}}
        found["requestBody"] = {"required": is_required, "content": content}
    return found


_REASON: Final[Schema] = {
    "name": "reason",
    "in": "query",
    "description": "why this is wanted; stands in the reason trail of the job",
    "schema": {"type": "string"},
}


_IF_MATCH: Final[Schema] = {
    "name": "If-Match",
    "in": "header",
    "description": "the ETag of the instance, node, node group, network or cluster (/2/info);"
    " nothing is done if it has another one by now",
    "schema": {"type": "string"},
}


def _group(route: Route) -> str:
    parts = route.path.removeprefix("/2/").strip("/").split("/")
    return parts[0] if parts[0] and not route.path.startswith("/version") else "general"


def _path_parameter(name: str) -> Schema:
    pattern = PATTERNS.get(name, NAME_PATTERN).replace(r"\w", "A-Za-z0-9_").replace(r"\d", "[0-9]")
    schema = _PATH_SCHEMAS.get(name, {"type": "string", "pattern": f"^{pattern}$"})
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _inlined(kind: Any) -> Schema:
    """Return the schema of a type; one with a name, such as an enumeration, stands there itself."""
    [schema], named = msgspec.json.schema_components([kind])
    found: Schema = named.get(schema.get("$ref", "").rpartition("/")[2], schema)
    return found


def _query_parameter(argument: QueryArgument) -> Schema:
    form = text_form_of(argument.type)
    own: Mapping[str, object] = form.schema if form else _inlined(argument.type)
    found: Schema = {
        "name": argument.name,
        "in": "query",
        "description": argument.help,
        "required": argument.is_required,
        "schema": {**own, **argument.schema},
    }
    if argument.type == REPEATED:
        found |= {"style": "form", "explode": True}
    return found


def _responses(route: Route) -> Schema:
    content = {route.content_type.partition(";")[0]: {"schema": dict(route.result)}}
    found: Schema = {"200": {"description": "Done.", "content": content}}
    if route.has_whole_tag:
        found["304"] = {"description": _UNCHANGED}
    statuses = {**_ALWAYS, **_CONDITION}
    if isinstance(route.action, Submission | Question | ByJob | Room):
        statuses |= _CHANGES
    return found | {
        str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(statuses)
    }


def _body(route: Route, schemas: Mapping[str, Schema]) -> tuple[Schema, bool]:
    """Return the schema of a body, and whether there must be one."""
    kind = route.body or _parts(route)
    if kind is str:
        return {"type": "string", "enum": list(ROLES)}, True
    if kind is not None:
        schema = schemas[kind.__name__]
        return {"$ref": _REFERENCE.format(name=kind.__name__)}, bool(schema.get("required"))
    assert isinstance(route.action, Submission)
    return _opcode_body(route.action, route.arguments, schemas)


def _opcode_body(
    action: Submission, arguments: tuple[QueryArgument, ...], schemas: Mapping[str, Schema]
) -> tuple[Schema, bool]:
    """Return the schema of a body that holds the parameters of an opcode."""
    kind: type[OpCode] = opcode_class(action.op_ids[0])
    whole = schemas[kind.__name__]
    old_names = {new: old for old, new in action.renames.items()}
    left_out = {*action.set_by_server(arguments), "reason"}
    if action.build is not None and not action.renames:  # forms of their own: all may be there
        dry_run = {each.field for each in arguments if each.field == "dry_run"}
        left_out = {"reason", *dry_run, *action.from_path.values(), *action.fixed}
    properties = {
        old_names.get(name, name): schema
        for name, schema in whole["properties"].items()
        if name not in left_out
    }
    required = [
        old_names.get(name, name) for name in whole.get("required", ()) if name not in left_out
    ]
    properties |= {name: {"const": value} for name, value in action.marks.items()}
    required = [] if action.is_either else [*required, *action.marks]
    found: Schema = {
        "type": "object",
        "description": whole.get("description", ""),
        "properties": properties,
        "additionalProperties": False,
    }
    if required:
        found["required"] = required
    return found, bool(required)
