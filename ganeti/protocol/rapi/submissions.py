"""The routes of the remote API that submit a job.

Source: rapi.json, "resources" and "generic_job_call".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import UNSET

from ganeti.objects.hypervisors import MigrationMode
from ganeti.opcodes.backup import ExportMode
from ganeti.opcodes.instance import ReplaceDisksMode
from ganeti.opcodes.registry import all_op_ids, opcode_class
from ganeti.protocol.rapi import answers, jobs
from ganeti.protocol.rapi.jobs import Submission
from ganeti.protocol.rapi.routes import Question, Route
from ganeti.protocol.rapi.values import REPEATED, WRITE, Numbers, QueryArgument, Switch, Words
from ganeti.protocol.service import REQUIRED

_W: Final = (WRITE,)
_FIELDS: Final = {
    "dry-run": "dry_run",
    "auto-promote": "auto_promote",
    "tag": "tags",
    "type": "reboot_type",
}
"""Fields of opcodes by the name of a query argument, where they differ."""
_HELP: Final[Mapping[str, str]] = {
    "dry_run": "1 to check only, and change nothing",
    "force": "1 to go on in spite of warnings",
    "tags": "a tag; may be repeated",
    "storage_type": "type of the storage",
    "name": "name of the storage unit",
    "no_remember": "1 to leave the recorded state as it is",
    "auto_promote": "1 to promote others if needed",
    "output_fields": "fields, with commas between",
    "ignore_size": "1 to ignore recorded sizes",
    "static": "1 for the configuration only",
    "reboot_type": "hard, soft or full",
    "ignore_secondaries": "1 to go on without secondary nodes",
    "remote_node": "new secondary node",
    "disks": "indices of disks, with commas between",
    "iallocator": "program that finds a place",
}
_DEFAULTS: Final[Mapping[str, object]] = {"tags": [], "reboot_type": "hard", "static": False}
_MODES: Final[Mapping[type[StrEnum], str]] = {
    MigrationMode: "live or non-live",
    ReplaceDisksMode: "which disks, and to where",
    ExportMode: "local or remote",
}


def query_of(op_id: str, names: str, *, is_either: bool = False) -> Iterator[QueryArgument]:
    """Yield the query arguments that set fields of an opcode, typed as these are.

    Args:
        names: a "!" behind one means that it is needed here, though the opcode has a default.
        is_either: whether the field may stand in the body instead, so that none is required.
    """
    fields = {each.name: each for each in msgspec.structs.fields(opcode_class(op_id))}
    for word in names.split():
        name = word.removesuffix("!")
        field = fields[_FIELDS.get(name, name)]
        kind, schema = _type_of(field.type, is_repeated=name == "tag")
        is_needed = field.required or name != word
        default = _DEFAULTS.get(field.name, UNSET)
        if is_needed and default is UNSET and not is_either:
            default = REQUIRED
        words = _HELP.get(field.name) or next(
            text for mode, text in _MODES.items() if mode in (field.type, *get_args(field.type))
        )
        if name != word:
            schema = {"minLength": 1}
        yield QueryArgument(name, kind, default, words, field.name, schema)


def _type_of(declared: Any, *, is_repeated: bool) -> tuple[Any, Mapping[str, object]]:
    """Return the form of a field in a URL, and the description of its texts."""
    members = get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)
    [kind] = [member for member in members if member is not NoneType]
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if plain is bool:
        return Switch, {}
    if get_origin(plain) is list:
        item = get_args(plain)[0]
        is_text = (get_args(item)[0] if get_origin(item) is Annotated else item) is str
        return (REPEATED if is_repeated else Words if is_text else Numbers), {}
    if isinstance(plain, type) and issubclass(plain, StrEnum):
        return str, {"enum": [str(member) for member in plain]}
    return str, {}


_TEXTS: Final[Mapping[str, Any]] = {"type": "array", "items": {"type": "string"}}
_JOB_ID: Final[Mapping[str, Any]] = {"type": "integer", "description": "id of the job"}


def _job(
    row: str,
    op_ids: str,
    help_text: str,
    *arguments: QueryArgument,
    access: tuple[str, ...] = _W,
    **submission: Any,
) -> Route:
    """Return the route that submits a job of one opcode, or of the opcodes that ``build`` makes.

    Args:
        row: method and path; after a "?" the query arguments that set fields of the opcode.
        arguments: query arguments that set none.
        submission: the other fields of `Submission`.
    """
    method, _, target = row.partition(" ")
    path, _, query = target.partition("?")
    action = Submission(tuple(op_ids.split()), **submission)
    set_fields = query_of(op_ids, query.replace("&", " "), is_either=action.is_either)
    declared = (*(set_fields if query else ()), *arguments)
    return Route(path, method, help_text, action, access, declared, result=_JOB_ID)


def _of(what: str) -> Callable[..., Route]:
    """Return a maker of routes about one thing of a kind: path and opcode get its name."""

    def job(row: str, op_ids: str, help_text: str, *arguments: QueryArgument, **more: Any) -> Route:
        method, _, verb = row.partition(" ")
        path = f"/2/{what}s/{{{what}}}" + (verb if verb[:1] in ("", "?") else f"/{verb}")
        op_ids = op_ids if op_ids.startswith("OP_") else f"OP_{what.upper()}_{op_ids}"
        more.setdefault("from_path", {what: f"{what}_name"})
        return _job(f"{method} {path}", op_ids, help_text, *arguments, **more)

    return job


def _tags(path: str, kind: str) -> list[Route]:
    """Return the routes about the tags of one kind of thing."""
    placeholder = path.rpartition("{")[2].removesuffix("}") if "{" in path else ""
    fixed = {"kind": kind, **({} if placeholder else {"name": None})}
    from_path = {placeholder: "name"} if placeholder else {}
    about = f"a {placeholder}" if placeholder else "the cluster"
    ask = Question(
        "QueryTags", lambda inputs: [kind, inputs.path.get(placeholder, "")], answers.as_it_is
    )
    tags = f"{path}/tags?tag&dry-run"
    more: dict[str, Any] = {"from_path": from_path, "fixed": fixed, "has_body": False}
    return [
        Route(f"{path}/tags", "GET", f"List the tags of {about}.", ask, result=_TEXTS),
        _job(f"PUT {tags}", "OP_TAGS_SET", f"Add tags to {about}.", **more),
        _job(f"DELETE {tags}", "OP_TAGS_DEL", f"Remove tags from {about}.", **more),
    ]


_instance, _node, _group, _network = map(_of, ("instance", "node", "group", "network"))

_CLUSTER_JOBS: Final = (
    _job("PUT /2/modify", "OP_CLUSTER_SET_PARAMS", "Change settings of the cluster."),
    _job(
        "PUT /2/redistribute-config",
        "OP_CLUSTER_REDIST_CONF",
        "Send the configuration and the cluster's files to all nodes again.",
    ),
    *_tags("/2", "cluster"),
    *_tags("/2/instances/{instance}", "instance"),
    *_tags("/2/nodes/{node}", "node"),
    *_tags("/2/groups/{group}", "nodegroup"),
    *_tags("/2/networks/{network}", "network"),
)

_GROUP_RENAMES: Final = {f"custom_{name}": name for name in ("ndparams", "ipolicy", "diskparams")}
_GROUP_JOBS: Final = (
    _job(
        "POST /2/groups?dry-run",
        "OP_GROUP_ADD",
        "Make a node group.",
        renames={"name": "group_name"},
    ),
    _group("DELETE ?dry-run", "REMOVE", "Remove a node group.", has_body=False),
    _group("PUT assign-nodes?dry-run&force", "ASSIGN_NODES", "Move nodes into it."),
    _group("PUT modify", "SET_PARAMS", "Change its settings.", renames=_GROUP_RENAMES),
    _group("PUT rename?dry-run", "RENAME", "Rename it."),
)

_NETWORK_JOBS: Final = (
    _job(
        "POST /2/networks?dry-run",
        "OP_NETWORK_ADD",
        "Make a network.",
        renames={"name": "network_name"},
    ),
    _network("DELETE ?dry-run", "REMOVE", "Remove a network.", has_body=False),
    _network("PUT connect?dry-run", "CONNECT", "Connect it to a node group."),
    _network("PUT disconnect?dry-run", "DISCONNECT", "Disconnect it from a node group."),
    _network("PUT modify", "SET_PARAMS", "Change its settings."),
)

_NODE_JOBS: Final = (
    _node("POST evacuate?dry-run", "EVACUATE", "Move instances away."),
    _node(
        "POST migrate?mode",
        "MIGRATE",
        "Migrate its primary instances away.",
        QueryArgument("live", Switch, help="whether to migrate live (an older form of mode)"),
        build=jobs.migrate_node,
        is_either=True,
    ),
    _node("POST modify", "SET_PARAMS", "Change its flags and settings."),
    _node("POST powercycle?force", "POWERCYCLE", "Reset it the hard way."),
    _node(
        "PUT role?force&auto-promote",
        "SET_PARAMS",
        "Give it a role: regular, master-candidate, drained or offline.",
        fixed={"master_candidate": None, "offline": None, "drained": None},
        parts=str,
        build=jobs.set_role,
    ),
    _node(
        "GET storage?storage_type&output_fields",
        "QUERY_STORAGE",
        "List its storage units.",
        from_path={},
        fixed={"nodes": None},
        build=jobs.query_storage,
        has_body=False,
    ),
    _node(
        "PUT storage/modify?storage_type&name!",
        "MODIFY_STORAGE",
        "Change a storage unit.",
        QueryArgument("allocatable", Switch, help="whether new disks may lie on it"),
        fixed={"changes": None},
        build=jobs.modify_storage,
        has_body=False,
    ),
    _node(
        "PUT storage/repair?storage_type&name!",
        "OP_REPAIR_NODE_STORAGE",
        "Repair a storage unit.",
        has_body=False,
    ),
)

_INSTANCE_JOBS: Final = (
    _job(
        "POST /2/instances?dry-run",
        "OP_INSTANCE_CREATE",
        "Make an instance; the body needs '__version__': 1.",
        renames=jobs.CREATION_RENAMES,
        marks={jobs.FORM: 1},
        build=jobs.create_instance,
    ),
    _job(
        "POST /2/instances-multi-alloc?dry-run",
        "OP_INSTANCE_MULTI_ALLOC",
        "Make several instances, placed together.",
        build=jobs.create_instances,
    ),
    _instance(
        "DELETE ?dry-run", "REMOVE", "Remove it, and its disks.", fixed={"ignore_failures": False}
    ),
    _instance(
        "PUT activate-disks?ignore_size",
        "ACTIVATE_DISKS",
        "Make its disks usable on its nodes.",
        has_body=False,
    ),
    _instance(
        "PUT deactivate-disks?force", "DEACTIVATE_DISKS", "Let its disks go.", has_body=False
    ),
    _instance(
        "POST disk/{disk}/grow",
        "GROW_DISK",
        "Make a disk larger.",
        from_path={"instance": "instance_name", "disk": "disk"},
        build=jobs.grow_disk,
    ),
    _instance(
        "PUT export",
        "OP_BACKUP_EXPORT",
        "Write it to a node, or send it to another cluster.",
        renames={"destination": "target_node"},
    ),
    _instance("PUT failover", "FAILOVER", "Start it on its other node."),
    _instance(
        "GET info?static",
        "QUERY_DATA",
        "Find out all there is to know about it.",
        from_path={},
        fixed={"instances": None},
        build=jobs.query_instance_data,
        access=(),
        has_body=False,
    ),
    _instance("PUT migrate", "MIGRATE", "Migrate it to its other node."),
    _instance(
        "PUT modify",
        "SET_PARAMS",
        "Change its settings.",
        renames={"custom_beparams": "beparams", "custom_hvparams": "hvparams"},
    ),
    _instance(
        "PUT prepare-export?mode", "OP_BACKUP_PREPARE", "Make ready for an export.", has_body=False
    ),
    _instance("POST reboot?type&ignore_secondaries&dry-run", "REBOOT", "Reboot it."),
    _instance("POST recreate-disks", "RECREATE_DISKS", "Make its disks anew."),
    _instance(
        "POST reinstall",
        "OP_INSTANCE_SHUTDOWN OP_INSTANCE_REINSTALL OP_INSTANCE_STARTUP",
        "Install an operating system on it again.",
        QueryArgument("os", str, help="operating system"),
        QueryArgument("nostartup", Switch, help="1 to leave it stopped"),
        parts=jobs.ReinstallBody,
        build=jobs.reinstall,
        is_either=True,
    ),
    _instance("PUT rename", "RENAME", "Rename it."),
    _instance(
        "POST replace-disks?remote_node&mode&disks&iallocator",
        "REPLACE_DISKS",
        "Replace disks; query arguments are looked at when there is no body.",
        build=jobs.replace_disks,
        is_either=True,
    ),
    _instance("PUT shutdown?no_remember&dry-run", "SHUTDOWN", "Shut it down."),
    _instance("PUT startup?force&dry-run&no_remember", "STARTUP", "Start it.", has_body=False),
)

OLD: Final = (*_CLUSTER_JOBS, *_GROUP_JOBS, *_NETWORK_JOBS, *_NODE_JOBS, *_INSTANCE_JOBS)

NEW: Final = (
    _job(
        "POST /2/jobs",
        "",
        "Submit one job of several opcodes, each an object with its name in 'OP_ID'.",
        parts=jobs.JobBody,
        build=jobs.any_job,
    ),
    _job("POST /2/nodes", "OP_NODE_ADD", "Add a node that is set up already."),
    _node("DELETE", "REMOVE", "Remove it from the cluster."),
    _instance("PUT move", "MOVE", "Copy its disks to another node."),
    _instance("POST snapshots", "SNAPSHOT", "Take a snapshot of its disks, restore or remove one."),
    _instance(
        "POST snapshots/list", "LIST_SNAPSHOTS", "List its snapshots: name, time, indexes of disks."
    ),
    _instance(
        "PUT repair?dry-run",
        "REPAIR",
        "Replace the disks that are broken on its primary node.",
        has_body=False,
    ),
    _instance("PUT change-group", "CHANGE_GROUP", "Move it to another node group."),
    _group("POST evacuate", "EVACUATE", "Move its instances to other groups."),
    _job(
        "DELETE /2/exports/{instance}",
        "OP_BACKUP_REMOVE",
        "Remove the exports of an instance from all nodes.",
        from_path={"instance": "instance_name"},
    ),
    _job(
        "POST /2/exports/{instance}/rehearse",
        "OP_BACKUP_REHEARSE",
        "Try whether an instance comes back from its export, beside the original.",
        from_path={"instance": "instance_name"},
    ),
    _job(
        "PUT /2/os/{os}/modify",
        "OP_CLUSTER_SET_PARAMS",
        "Change how an operating system definition is used.",
        parts=jobs.OsBody,
        build=jobs.modify_os,
    ),
    *(
        _job(f"POST /2/opcodes/{op_id}", op_id, f"Submit a job of {op_id}.")
        for op_id in all_op_ids()
    ),
)
