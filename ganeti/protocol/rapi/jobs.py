"""How a request to the remote API becomes a job: from body and arguments to opcodes, purely.

A body is an object of the opcode's parameters, some under an older name.  Parameters that the
server sets itself, from path and query arguments, may not be in the body; nor may UUIDs that would
go before a name of these, so that a job is about the object that rights were checked for.  The
opcode's own declaration then checks all of it.

Source: rapi.json, "generic_job_call" and "resources".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ganeti.opcodes.registry import opcode_class
from ganeti.protocol.rapi.values import HttpProblem, QueryArgument

Wire = dict[str, Any]
_ALWAYS_SERVERS: Final = frozenset({"OP_ID", "reason"})
_FORBIDDEN: Final[Mapping[str, frozenset[str]]] = {
    # They name programs to be run.
    "OP_CLUSTER_SET_PARAMS": frozenset({"compression_tools"})
}


class Inputs(msgspec.Struct, frozen=True):
    """The inputs of a request: values in the path, query arguments, the decoded body."""

    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any = UNSET


class Submission(msgspec.Struct, frozen=True):
    """Submits one job.

    Attributes:
        from_path: parameter of the opcode by name of the placeholder in the path.
        renames: parameter of the opcode by its name in the body.
        fixed: parameters that the server sets.
        parts: the types that the body consists of, if not of the first opcode's parameters.
        build: makes the opcodes, where `plain_job` does not do.
        has_body: whether a body is looked at; clients of 3.0 send some that are not.
        marks: the keys of the body besides parameters, such as the number of its form.
        is_either: whether the query arguments are for a request without a body.
    """

    op_ids: tuple[str, ...]
    from_path: Mapping[str, str] = {}
    renames: Mapping[str, str] = {}
    fixed: Mapping[str, Any] = {}
    parts: type[Any] | None = None
    build: Callable[[JobRequest], list[Wire]] | None = None
    has_body: bool = True
    marks: Mapping[str, Any] = {}
    is_either: bool = False

    def opcodes(self, arguments: tuple[QueryArgument, ...], inputs: Inputs) -> list[Wire]:
        """Return the opcodes of the job, not checked yet.

        Raises:
            HttpProblem: the body is not fit for it.
        """
        request = JobRequest(
            inputs.path, inputs.query, inputs.body, submission=self, arguments=arguments
        )
        return (self.build or plain_job)(request)

    def set_by_server(self, arguments: tuple[QueryArgument, ...]) -> frozenset[str]:
        """Return the parameters that may not be in the body."""
        from_query = {argument.field for argument in arguments if argument.field}
        names = {*self.from_path.values(), *self.fixed, *from_query}
        uuids = {f"{name.removesuffix('_name')}_uuid" for name in names}
        known = {field for op_id in self.op_ids for field in opcode_class(op_id).__struct_fields__}
        return frozenset(names | (uuids & known))


class JobRequest(Inputs, frozen=True, kw_only=True):
    """The inputs of a request for a job, with the submission and query arguments of its route."""

    submission: Submission
    arguments: tuple[QueryArgument, ...]

    @property
    def op_id(self) -> str:
        """The name of the first opcode."""
        return self.submission.op_ids[0]

    @property
    def has_body(self) -> bool:
        """Whether there is a body; null stands for none."""
        return self.body not in (UNSET, None)

    def with_servers_part(self, opcode: Wire) -> list[Wire]:
        """Return a job of one opcode, with the parameters that the server sets."""
        from_query = {
            argument.field: self.query[argument.name]
            for argument in self.arguments
            if argument.field and argument.name in self.query
        }
        from_path = {param: self.path[name] for name, param in self.submission.from_path.items()}
        return [{**opcode, **self.submission.fixed, **from_query, **from_path}]


def object_body(inputs: Inputs) -> Mapping[str, Any]:
    """Return a body that must be an object; no body at all is an empty one.

    Raises:
        HttpProblem: it is something else.
    """
    if inputs.body in (UNSET, None):
        return {}
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


def plain_job(job: JobRequest) -> list[Wire]:
    """Make the one opcode whose parameters are the body."""
    params = renamed(object_body(job), job.submission.renames)
    servers = job.submission.set_by_server(job.arguments)
    return job.with_servers_part(checked(job.op_id, params, servers))


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


def create_instance(job: JobRequest) -> list[Wire]:
    """Make the opcode of a creation; its body says which form it has."""
    body = dict(object_body(job))
    version = body.pop(FORM, 0)
    if version != 1 or isinstance(version, bool):
        raise HttpProblem(400, f"Unsupported request version {version!r}: '__version__' must be 1")
    if "dry_run" in body:
        raise HttpProblem(400, "Parameter 'dry_run' may not be in the body")
    return job.with_servers_part(_creation(body))


def create_instances(job: JobRequest) -> list[Wire]:
    """Make the opcode that creates several instances, placed together."""
    body = dict(object_body(job))
    bodies = body.pop("instances", None)
    if not isinstance(bodies, list) or not all(isinstance(each, dict) for each in bodies):
        raise HttpProblem(400, "Body parameter 'instances' must be a list of objects")
    opcode = checked(job.op_id, body, frozenset({"dry_run"}))
    opcode["instances"] = [_creation(each) for each in bodies]
    return job.with_servers_part(opcode)


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


def reinstall(job: JobRequest) -> list[Wire]:
    """Make the opcodes of a reinstallation: shutdown, installation, start."""
    if job.has_body and job.query:
        raise HttpProblem(400, "Query arguments and a body may not be mixed")
    if job.has_body:
        wanted = converted(ReinstallBody, job.body)
    else:
        start = not job.query.get("nostartup", False)
        wanted = ReinstallBody(os=job.query.get("os"), start=start)
    shutdown, install, startup = [
        {"OP_ID": op_id, "instance_name": job.path["instance"]} for op_id in job.submission.op_ids
    ]
    if wanted.depends is not None:
        shutdown["depends"] = wanted.depends
    install |= {"os_type": wanted.os, "osparams": wanted.osparams}
    return [shutdown, install, *([startup] if wanted.start else [])]


def replace_disks(job: JobRequest) -> list[Wire]:
    """Make the opcode of a replacement, from the body, or from the query if there is none."""
    params = dict(object_body(job))
    opcode = checked(job.op_id, params, job.submission.set_by_server(()))
    disks = opcode.get("disks")
    if isinstance(disks, str):
        opcode["disks"] = parse_numbers(disks)
    if not job.has_body:
        opcode |= job.query
    if opcode.get("disks", ()) is None:
        del opcode["disks"]
    return [{**opcode, "instance_name": job.path["instance"]}]


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


def set_role(job: JobRequest) -> list[Wire]:
    """Make the opcode that gives a node the role that the body names."""
    if not isinstance(job.body, str):
        raise HttpProblem(400, "The body must be the name of a role as a JSON string")
    flags = _ROLE_FLAGS.get(job.body)
    if flags is None:
        raise HttpProblem(400, f"A node cannot be given the role '{job.body}'")
    [opcode] = job.with_servers_part({"OP_ID": job.op_id})
    return [{**opcode, **flags}]


def migrate_node(job: JobRequest) -> list[Wire]:
    """Make the opcode that migrates a node's instances; query arguments go before the body."""
    if "live" in job.query and "mode" in job.query:
        raise HttpProblem(400, "Only one of 'mode' and 'live' may be given")
    if not job.query:
        return plain_job(replace(job, arguments=()))
    params: Wire = {"OP_ID": job.op_id, "node_name": job.path["node"]}
    if "live" in job.query:
        return [{**params, "mode": "live" if job.query["live"] else "non-live"}]
    return [{**params, "mode": job.query["mode"]}]


def grow_disk(job: JobRequest) -> list[Wire]:
    """Make the opcode that makes a disk larger."""
    [opcode] = plain_job(job)
    return [{**opcode, "disk": int(job.path["disk"])}]


def query_storage(job: JobRequest) -> list[Wire]:
    """Make the opcode that asks a node for its storage units."""
    return [{"OP_ID": job.op_id, "nodes": [job.path["node"]], **job.query}]


def modify_storage(job: JobRequest) -> list[Wire]:
    """Make the opcode that changes a storage unit."""
    [opcode] = plain_job(job)
    changes = {"allocatable": job.query["allocatable"]} if "allocatable" in job.query else {}
    return [{**opcode, "changes": changes}]


def query_instance_data(job: JobRequest) -> list[Wire]:
    """Make the opcode that asks all there is to know about an instance."""
    [opcode] = plain_job(job)
    return [{**opcode, "instances": [job.path["instance"]]}]


class OsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Settings of an operating system definition; missing ones stay as they are."""

    osparams: dict[str, Any] | None = None
    hvparams: dict[str, dict[str, Any]] | None = None
    hidden: bool | None = None
    blacklisted: bool | None = None


def modify_os(job: JobRequest) -> list[Wire]:
    """Make the opcode that changes the cluster's settings about one definition."""
    wanted, name = converted(OsBody, object_body(job)), job.path["os"]
    opcode: Wire = {"OP_ID": job.op_id}
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


def any_job(job: JobRequest) -> list[Wire]:
    """Take the opcodes from the body as they are."""
    wanted = converted(JobBody, object_body(job))
    if not wanted.opcodes:
        raise HttpProblem(400, "A job needs at least one opcode")
    return [_one_of_several(each) for each in wanted.opcodes]


def _one_of_several(wire: Wire) -> Wire:
    params = dict(wire)
    op_id = params.pop("OP_ID", None)
    if not isinstance(op_id, str):
        raise HttpProblem(400, "An opcode needs a name in 'OP_ID'")
    return checked(op_id, params)
