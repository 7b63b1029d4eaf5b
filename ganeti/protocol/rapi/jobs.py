"""How a request to the remote API becomes a job: from body and arguments to opcodes, purely.

A body is an object of the opcode's parameters, some under an older name.  What the server sets
itself, from path and query arguments, may not be in the body.  The opcode's own declaration then
checks all of it.

Source: rapi.json, "generic_job_call" and "resources".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET

from ganeti.protocol.rapi.values import HttpProblem, QueryArgument

Wire = dict[str, Any]
_NOTHING: Final[Mapping[str, Any]] = {}
_ALWAYS_SERVERS: Final = frozenset({"OP_ID", "reason"})
_FORBIDDEN: Final[Mapping[str, frozenset[str]]] = {
    # They name programs to be run.
    "OP_CLUSTER_SET_PARAMS": frozenset({"compression_tools"})
}


class Inputs(msgspec.Struct, frozen=True):
    """What came with a request: values in the path, query arguments, the decoded body."""

    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any = UNSET


class Submission(msgspec.Struct, frozen=True):
    """Submits one job.

    Attributes:
        from_path: parameter of the opcode by name of the placeholder in the path.
        renames: parameter of the opcode by its name in the body.
        fixed: parameters that the server sets.
        parts: of what the body consists if not of the first opcode's parameters.
        build: makes the opcodes, where `plain_job` does not do.
        has_body: whether a body is looked at; clients of 3.0 send some that are not.
        marks: what the body must say besides parameters, such as which form it has.
        is_either: whether the query arguments are for a request without a body.
    """

    op_ids: tuple[str, ...]
    from_path: Mapping[str, str] = {}
    renames: Mapping[str, str] = {}
    fixed: Mapping[str, Any] = {}
    parts: type[Any] | None = None
    build: Callable[[Submission, tuple[QueryArgument, ...], Inputs], list[Wire]] | None = None
    has_body: bool = True
    marks: Mapping[str, Any] = {}
    is_either: bool = False

    def opcodes(self, arguments: tuple[QueryArgument, ...], inputs: Inputs) -> list[Wire]:
        """Return the opcodes of the job, not checked yet.

        Raises:
            HttpProblem: the body is not fit for it.
        """
        return (self.build or plain_job)(self, arguments, inputs)

    def set_by_server(self, arguments: tuple[QueryArgument, ...]) -> frozenset[str]:
        """Return the parameters that may not be in the body."""
        from_query = {argument.field for argument in arguments if argument.field}
        return frozenset({*self.from_path.values(), *self.fixed, *from_query})


def object_body(inputs: Inputs) -> Mapping[str, Any]:
    """Return a body that must be an object; no body at all is an empty one.

    Raises:
        HttpProblem: it is something else.
    """
    if inputs.body is UNSET or inputs.body is None:
        return _NOTHING
    if not isinstance(inputs.body, dict):
        raise HttpProblem(400, "The body must be a JSON object")
    return inputs.body


def renamed(body: Mapping[str, Any], renames: Mapping[str, str]) -> Wire:
    """Return a body with the parameters' own names.

    Raises:
        HttpProblem: a parameter is there under both names.
    """
    both = [old for old, new in renames.items() if old in body and new in body]
    if both:
        raise HttpProblem(400, f"Body parameters '{both[0]}' and '{renames[both[0]]}' are the same")
    return {renames.get(name, name): value for name, value in body.items()}


def checked(op_id: str, params: Wire, servers: frozenset[str] = frozenset()) -> Wire:
    """Return the opcode with these parameters from a body.

    Raises:
        HttpProblem: one of them may not be in a body.
    """
    wrong = sorted((servers | _ALWAYS_SERVERS) & params.keys())
    if wrong:
        raise HttpProblem(400, f"Parameter '{wrong[0]}' may not be in the body")
    forbidden = sorted(_FORBIDDEN.get(op_id, frozenset()) & params.keys())
    if forbidden:
        raise HttpProblem(403, f"Parameter '{forbidden[0]}' cannot be set by the remote API")
    return {"OP_ID": op_id, **params}


def _servers_part(
    submission: Submission, arguments: tuple[QueryArgument, ...], inputs: Inputs
) -> Mapping[str, Any]:
    from_query = {
        argument.field: inputs.query[argument.name]
        for argument in arguments
        if argument.field and argument.name in inputs.query
    }
    from_path = {param: inputs.path[name] for name, param in submission.from_path.items()}
    return {**submission.fixed, **from_query, **from_path}


def plain_job(
    submission: Submission, arguments: tuple[QueryArgument, ...], inputs: Inputs
) -> list[Wire]:
    """Make the one opcode whose parameters are the body."""
    params = renamed(object_body(inputs), submission.renames)
    opcode = checked(submission.op_ids[0], params, submission.set_by_server(arguments))
    return [{**opcode, **_servers_part(submission, arguments, inputs)}]


# Creation.

FORM: Final = "__version__"
CREATION_RENAMES: Final = {"os": "os_type", "name": "instance_name"}


def _creation(body: Mapping[str, Any]) -> Wire:
    params = checked("OP_INSTANCE_CREATE", renamed(body, CREATION_RENAMES))
    hvparams = params.get("hvparams")
    if isinstance(hvparams, dict) and isinstance(hvparams.get("usb_devices"), str):
        devices = hvparams["usb_devices"].replace(" ", ",")
        params["hvparams"] = {**hvparams, "usb_devices": devices}
    return params


def create_instance(
    submission: Submission, arguments: tuple[QueryArgument, ...], inputs: Inputs
) -> list[Wire]:
    """Make the opcode of a creation; its body says which form it has."""
    body = dict(object_body(inputs))
    version = body.pop(FORM, 0)
    if version != 1 or isinstance(version, bool):
        raise HttpProblem(400, f"Unsupported request version {version!r}: '__version__' must be 1")
    if "dry_run" in body:
        raise HttpProblem(400, "Parameter 'dry_run' may not be in the body")
    return [{**_creation(body), **_servers_part(submission, arguments, inputs)}]


def create_instances(
    submission: Submission, arguments: tuple[QueryArgument, ...], inputs: Inputs
) -> list[Wire]:
    """Make the opcode that creates several instances, placed together."""
    body = dict(object_body(inputs))
    bodies = body.pop("instances", None)
    if not isinstance(bodies, list) or not all(isinstance(each, dict) for each in bodies):
        raise HttpProblem(400, "Body parameter 'instances' must be a list of objects")
    opcode = checked(submission.op_ids[0], body, frozenset({"dry_run"}))
    opcode["instances"] = [_creation(each) for each in bodies]
    return [{**opcode, **_servers_part(submission, arguments, inputs)}]


# Forms of their own.


class ReinstallBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which operating system to install, and whether to start the instance then."""

    os: str | None = None
    start: bool = True
    osparams: dict[str, Any] | None = None
    depends: list[Any] | None = None


def converted(kind: type[Any], value: object) -> Any:
    """Return a body as this type.

    Raises:
        HttpProblem: it is not of that type; says where.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as err:
        raise HttpProblem(400, f"Wrong body: {err}") from err


def reinstall(
    submission: Submission, _arguments: tuple[QueryArgument, ...], inputs: Inputs
) -> list[Wire]:
    """Make the opcodes of a reinstallation: shutdown, installation, start."""
    has_body = inputs.body not in (UNSET, None)
    if has_body and inputs.query:
        raise HttpProblem(400, "Query arguments and a body may not be mixed")
    if has_body:
        wanted = converted(ReinstallBody, inputs.body)
    else:
        start = not inputs.query.get("nostartup", False)
        wanted = ReinstallBody(os=inputs.query.get("os"), start=start)
    shutdown, install, startup = [
        {"OP_ID": op_id, "instance_name": inputs.path["instance"]} for op_id in submission.op_ids
    ]
    if wanted.depends is not None:
        shutdown["depends"] = wanted.depends
    install |= {"os_type": wanted.os, "osparams": wanted.osparams}
    return [shutdown, install, *([startup] if wanted.start else [])]


def replace_disks(
    submission: Submission, _arguments: tuple[QueryArgument, ...], inputs: Inputs
) -> list[Wire]:
    """Make the opcode of a replacement, from the body, or from the query if there is none."""
    params = dict(object_body(inputs))
    opcode = checked(submission.op_ids[0], params, frozenset({"instance_name"}))
    disks = opcode.get("disks")
    if isinstance(disks, str):
        opcode["disks"] = parse_numbers(disks)
    if inputs.body in (UNSET, None):
        opcode |= inputs.query
    if opcode.get("disks", ()) is None:
        del opcode["disks"]
    return [{**opcode, "instance_name": inputs.path["instance"]}]


def parse_numbers(text: str) -> list[int]:
    """Read numbers with commas between.

    Raises:
        HttpProblem: it is something else.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) < 20 for word in words):
        raise HttpProblem(400, "'disks' must be numbers with commas between")
    return [int(word) for word in words]


_ROLE_FLAGS: Final[Mapping[str, Mapping[str, bool]]] = {
    "regular": {"master_candidate": False, "offline": False, "drained": False},
    "master-candidate": {"master_candidate": True, "offline": False, "drained": False},
    "drained": {"drained": True},
    "offline": {"offline": True},
}


ROLES: Final = tuple(_ROLE_FLAGS)


def set_role(
    submission: Submission, arguments: tuple[QueryArgument, ...], inputs: Inputs
) -> list[Wire]:
    """Make the opcode that gives a node the role that the body names."""
    if inputs.body is UNSET or not isinstance(inputs.body, str):
        raise HttpProblem(400, "The body must be the name of a role as a JSON string")
    flags = _ROLE_FLAGS.get(inputs.body)
    if flags is None:
        raise HttpProblem(400, f"A node cannot be given the role '{inputs.body}'")
    servers = _servers_part(submission, arguments, inputs)
    return [{"OP_ID": submission.op_ids[0], **servers, **flags}]


def migrate_node(
    submission: Submission, _arguments: tuple[QueryArgument, ...], inputs: Inputs
) -> list[Wire]:
    """Make the opcode that migrates a node's instances; query arguments go before the body."""
    if "live" in inputs.query and "mode" in inputs.query:
        raise HttpProblem(400, "Only one of 'mode' and 'live' may be given")
    if not inputs.query:
        return plain_job(submission, (), inputs)
    params: Wire = {"OP_ID": submission.op_ids[0], "node_name": inputs.path["node"]}
    if "live" in inputs.query:
        return [{**params, "mode": "live" if inputs.query["live"] else "non-live"}]
    return [{**params, "mode": inputs.query["mode"]}]


def grow_disk(
    submission: Submission, arguments: tuple[QueryArgument, ...], inputs: Inputs
) -> list[Wire]:
    """Make the opcode that makes a disk larger."""
    [opcode] = plain_job(submission, arguments, inputs)
    return [{**opcode, "disk": int(inputs.path["disk"])}]


def query_storage(
    submission: Submission, _arguments: tuple[QueryArgument, ...], inputs: Inputs
) -> list[Wire]:
    """Make the opcode that asks a node for its storage units."""
    return [{"OP_ID": submission.op_ids[0], "nodes": [inputs.path["node"]], **inputs.query}]


def modify_storage(
    submission: Submission, arguments: tuple[QueryArgument, ...], inputs: Inputs
) -> list[Wire]:
    """Make the opcode that changes a storage unit."""
    [opcode] = plain_job(submission, arguments, inputs)
    changes = {}
    if "allocatable" in inputs.query:
        changes["allocatable"] = inputs.query["allocatable"]
    return [{**opcode, "changes": changes}]


def query_instance_data(
    submission: Submission, arguments: tuple[QueryArgument, ...], inputs: Inputs
) -> list[Wire]:
    """Make the opcode that asks all there is to know about an instance."""
    [opcode] = plain_job(submission, arguments, inputs)
    return [{**opcode, "instances": [inputs.path["instance"]]}]


class OsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Settings of an operating system definition; what is missing stays."""

    osparams: dict[str, Any] | None = None
    hvparams: dict[str, dict[str, Any]] | None = None
    hidden: bool | None = None
    blacklisted: bool | None = None


def modify_os(
    submission: Submission, _arguments: tuple[QueryArgument, ...], inputs: Inputs
) -> list[Wire]:
    """Make the opcode that changes the cluster's settings about one definition."""
    wanted, name = converted(OsBody, object_body(inputs)), inputs.path["os"]
    opcode: Wire = {"OP_ID": submission.op_ids[0]}
    for param, value in (("osparams", wanted.osparams), ("os_hvp", wanted.hvparams)):
        if value is not None:
            opcode[param] = {name: value}
    for param, switch in (("hidden_os", wanted.hidden), ("blacklisted_os", wanted.blacklisted)):
        if switch is not None:
            opcode[param] = [["add" if switch else "remove", name]]
    if len(opcode) == 1:
        raise HttpProblem(400, "Nothing to change: the body names no setting")
    return [opcode]


class JobBody(msgspec.Struct, forbid_unknown_fields=True):
    """The opcodes of one job."""

    opcodes: list[dict[str, Any]]


def any_job(
    _submission: Submission, _arguments: tuple[QueryArgument, ...], inputs: Inputs
) -> list[Wire]:
    """Take the opcodes from the body as they are."""
    wanted = converted(JobBody, object_body(inputs))
    if not wanted.opcodes:
        raise HttpProblem(400, "A job needs at least one opcode")
    return [_one_of_several(each) for each in wanted.opcodes]


def _one_of_several(wire: Wire) -> Wire:
    params = dict(wire)
    op_id = params.pop("OP_ID", None)
    if not isinstance(op_id, str):
        raise HttpProblem(400, "An opcode needs a name in 'OP_ID'")
    return checked(op_id, params)
