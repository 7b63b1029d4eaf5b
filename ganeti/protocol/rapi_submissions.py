"""The routes of the remote API that submit a job.

Source: rapi.json, "resources" and "generic_job_call".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec.structs import replace

from ganeti.objects.disk_templates import StorageType
from ganeti.objects.hypervisors import MigrationMode, RebootType
from ganeti.opcodes.backup import ExportMode
from ganeti.opcodes.instance import ReplaceDisksMode
from ganeti.opcodes.registry import all_op_ids
from ganeti.protocol import rapi_answers as answers
from ganeti.protocol import rapi_jobs as jobs
from ganeti.protocol.rapi_jobs import Submission
from ganeti.protocol.rapi_routes import Question, Route
from ganeti.protocol.rapi_values import WRITE, Argument, Kind


def _one_of(words: type[StrEnum]) -> Mapping[str, object]:
    return {"enum": [str(each) for each in words]}


_W: Final = (WRITE,)
_DRY_RUN: Final = Argument("dry-run", Kind.SWITCH, "1 to check only, and change nothing", "dry_run")
_FORCE: Final = Argument("force", Kind.SWITCH, "1 to go on in spite of warnings", "force")
_TAG: Final = Argument("tag", Kind.REPEATED, "a tag; may be repeated", "tags", default=[])
_STORAGE_TYPE: Final = Argument(
    "storage_type", Kind.TEXT, "type of the storage", "storage_type", schema=_one_of(StorageType)
)
_STORAGE_TYPE_NEEDED: Final = replace(_STORAGE_TYPE, required=True)
_UNIT_NAME: Final = Argument(
    "name",
    Kind.TEXT,
    "name of the storage unit",
    "name",
    required=True,
    schema={"minLength": 1},
)
_NO_REMEMBER: Final = Argument(
    "no_remember", Kind.SWITCH, "1 to leave the recorded state as it is", "no_remember"
)
_TEXTS: Final[Mapping[str, Any]] = {"type": "array", "items": {"type": "string"}}
_JOB_ID: Final[Mapping[str, Any]] = {"type": "integer", "description": "id of the job"}


def _job(
    method: str,
    path: str,
    op_id: str,
    help_text: str,
    *arguments: Argument,
    from_path: Mapping[str, str] = {},
    renames: Mapping[str, str] = {},
    fixed: Mapping[str, Any] = {},
    build: Callable[..., list[jobs.Wire]] | None = None,
    parts: type[Any] | None = None,
    access: tuple[str, ...] = _W,
    has_body: bool = True,
    is_new: bool = False,
) -> Route:
    """Return the route that submits a job of one opcode, or of those that `build` makes."""
    action = Submission(
        tuple(op_id.split()),
        from_path=from_path,
        renames=renames,
        fixed=fixed,
        parts=parts,
        build=build,
        has_body=has_body,
    )
    return Route(path, method, help_text, action, access, arguments, result=_JOB_ID, is_new=is_new)


def _of(what: str) -> Callable[..., Route]:
    """Return a maker of routes about one thing of a kind: path and opcode get its name."""

    def job(
        method: str, verb: str, op_id: str, help_text: str, *args: Argument, **more: Any
    ) -> Route:
        path = f"/2/{what}s/{{{what}}}" + (f"/{verb}" if verb else "")
        more.setdefault("from_path", {what: f"{what}_name"})
        return _job(method, path, op_id, help_text, *args, **more)

    return job


def _tags(path: str, kind: str) -> list[Route]:
    """Return the routes about the tags of one kind of thing."""
    placeholder = path.rpartition("{")[2].removesuffix("}") if "{" in path else ""
    fixed = {"kind": kind, **({} if placeholder else {"name": None})}
    from_path = {placeholder: "name"} if placeholder else {}
    about = f"a {placeholder}" if placeholder else "the cluster"
    ask = Question(
        "QueryTags",
        lambda inputs: [kind, inputs.path.get(placeholder, "")],
        answers.as_it_is,
    )
    return [
        Route(f"{path}/tags", "GET", f"List the tags of {about}.", ask, result=_TEXTS),
        *(
            _job(
                method,
                f"{path}/tags",
                op_id,
                f"{verb} {about}.",
                _TAG,
                _DRY_RUN,
                from_path=from_path,
                fixed=fixed,
                has_body=False,
            )
            for method, op_id, verb in (
                ("PUT", "OP_TAGS_SET", "Add tags to"),
                ("DELETE", "OP_TAGS_DEL", "Remove tags from"),
            )
        ),
    ]


_instance, _node, _group, _network = (
    _of(what) for what in ("instance", "node", "group", "network")
)

_CLUSTER_JOBS: Final = (
    _job("PUT", "/2/modify", "OP_CLUSTER_SET_PARAMS", "Change settings of the cluster."),
    _job(
        "PUT",
        "/2/redistribute-config",
        "OP_CLUSTER_REDIST_CONF",
        "Send the configuration and the cluster's files to all nodes again.",
    ),
    *_tags("/2", "cluster"),
    *_tags("/2/instances/{instance}", "instance"),
    *_tags("/2/nodes/{node}", "node"),
    *_tags("/2/groups/{group}", "nodegroup"),
    *_tags("/2/networks/{network}", "network"),
)

_GROUP_JOBS: Final = (
    _job(
        "POST",
        "/2/groups",
        "OP_GROUP_ADD",
        "Make a node group.",
        _DRY_RUN,
        renames={"name": "group_name"},
    ),
    _group("DELETE", "", "OP_GROUP_REMOVE", "Remove a node group.", _DRY_RUN, has_body=False),
    _group("PUT", "assign-nodes", "OP_GROUP_ASSIGN_NODES", "Move nodes into it.", _DRY_RUN, _FORCE),
    _group(
        "PUT",
        "modify",
        "OP_GROUP_SET_PARAMS",
        "Change its settings.",
        renames={
            "custom_ndparams": "ndparams",
            "custom_ipolicy": "ipolicy",
            "custom_diskparams": "diskparams",
        },
    ),
    _group("PUT", "rename", "OP_GROUP_RENAME", "Rename it.", _DRY_RUN),
)

_NETWORK_JOBS: Final = (
    _job(
        "POST",
        "/2/networks",
        "OP_NETWORK_ADD",
        "Make a network.",
        _DRY_RUN,
        renames={"name": "network_name"},
    ),
    _network("DELETE", "", "OP_NETWORK_REMOVE", "Remove a network.", _DRY_RUN, has_body=False),
    _network("PUT", "connect", "OP_NETWORK_CONNECT", "Connect it to a node group.", _DRY_RUN),
    _network(
        "PUT", "disconnect", "OP_NETWORK_DISCONNECT", "Disconnect it from a node group.", _DRY_RUN
    ),
    _network("PUT", "modify", "OP_NETWORK_SET_PARAMS", "Change its settings."),
)

_NODE_JOBS: Final = (
    _node("POST", "evacuate", "OP_NODE_EVACUATE", "Move instances away.", _DRY_RUN),
    _node(
        "POST",
        "migrate",
        "OP_NODE_MIGRATE",
        "Migrate its primary instances away.",
        Argument("live", Kind.SWITCH, "whether to migrate live (an older form of mode)"),
        Argument("mode", Kind.TEXT, "live or non-live", schema=_one_of(MigrationMode)),
        build=jobs.migrate_node,
    ),
    _node("POST", "modify", "OP_NODE_SET_PARAMS", "Change its flags and settings."),
    _node("POST", "powercycle", "OP_NODE_POWERCYCLE", "Reset it the hard way.", _FORCE),
    _node(
        "PUT",
        "role",
        "OP_NODE_SET_PARAMS",
        "Give it a role: regular, master-candidate, drained or offline.",
        _FORCE,
        Argument("auto-promote", Kind.SWITCH, "1 to promote others if needed", "auto_promote"),
        fixed={"master_candidate": None, "offline": None, "drained": None},
        parts=str,
        build=jobs.set_role,
    ),
    _node(
        "GET",
        "storage",
        "OP_NODE_QUERY_STORAGE",
        "List its storage units.",
        _STORAGE_TYPE,
        Argument(
            "output_fields", Kind.WORDS, "fields, with commas between", "output_fields", None, True
        ),
        from_path={},
        fixed={"nodes": None},
        build=jobs.query_storage,
        has_body=False,
    ),
    _node(
        "PUT",
        "storage/modify",
        "OP_NODE_MODIFY_STORAGE",
        "Change a storage unit.",
        _STORAGE_TYPE_NEEDED,
        _UNIT_NAME,
        Argument("allocatable", Kind.SWITCH, "whether new disks may lie on it"),
        fixed={"changes": None},
        build=jobs.modify_storage,
        has_body=False,
    ),
    _node(
        "PUT",
        "storage/repair",
        "OP_REPAIR_NODE_STORAGE",
        "Repair a storage unit.",
        _STORAGE_TYPE_NEEDED,
        _UNIT_NAME,
        has_body=False,
    ),
)

_IALLOCATOR: Final = Argument("iallocator", Kind.TEXT, "program that finds a place", "iallocator")
_MODE: Final = Argument(
    "mode", Kind.TEXT, "which disks, and to where", "mode", schema=_one_of(ReplaceDisksMode)
)
_REMOTE_NODE: Final = Argument("remote_node", Kind.TEXT, "new secondary node", "remote_node")

_INSTANCE_JOBS: Final = (
    _job(
        "POST",
        "/2/instances",
        "OP_INSTANCE_CREATE",
        "Make an instance; the body needs '__version__': 1.",
        _DRY_RUN,
        renames={"os": "os_type", "name": "instance_name"},
        build=jobs.create_instance,
    ),
    _job(
        "POST",
        "/2/instances-multi-alloc",
        "OP_INSTANCE_MULTI_ALLOC",
        "Make several instances, placed together.",
        _DRY_RUN,
        build=jobs.create_instances,
    ),
    _instance(
        "DELETE",
        "",
        "OP_INSTANCE_REMOVE",
        "Remove it, and its disks.",
        _DRY_RUN,
        fixed={"ignore_failures": False},
    ),
    _instance(
        "PUT",
        "activate-disks",
        "OP_INSTANCE_ACTIVATE_DISKS",
        "Make its disks usable on its nodes.",
        Argument("ignore_size", Kind.SWITCH, "1 to ignore recorded sizes", "ignore_size"),
        has_body=False,
    ),
    _instance(
        "PUT",
        "deactivate-disks",
        "OP_INSTANCE_DEACTIVATE_DISKS",
        "Let its disks go.",
        _FORCE,
        has_body=False,
    ),
    _instance(
        "POST",
        "disk/{disk}/grow",
        "OP_INSTANCE_GROW_DISK",
        "Make a disk larger.",
        from_path={"instance": "instance_name", "disk": "disk"},
        build=jobs.grow_disk,
    ),
    _instance(
        "PUT",
        "export",
        "OP_BACKUP_EXPORT",
        "Write it to a node, or send it to another cluster.",
        renames={"destination": "target_node"},
    ),
    _instance("PUT", "failover", "OP_INSTANCE_FAILOVER", "Start it on its other node."),
    _instance(
        "GET",
        "info",
        "OP_INSTANCE_QUERY_DATA",
        "Find out all there is to know about it.",
        Argument("static", Kind.SWITCH, "1 for the configuration only", "static", default=False),
        from_path={},
        fixed={"instances": None},
        build=jobs.query_instance_data,
        access=(),
        has_body=False,
    ),
    _instance("PUT", "migrate", "OP_INSTANCE_MIGRATE", "Migrate it to its other node."),
    _instance(
        "PUT",
        "modify",
        "OP_INSTANCE_SET_PARAMS",
        "Change its settings.",
        renames={"custom_beparams": "beparams", "custom_hvparams": "hvparams"},
    ),
    _instance(
        "PUT",
        "prepare-export",
        "OP_BACKUP_PREPARE",
        "Make ready for an export.",
        Argument("mode", Kind.TEXT, "local or remote", "mode", None, True, _one_of(ExportMode)),
        has_body=False,
    ),
    _instance(
        "POST",
        "reboot",
        "OP_INSTANCE_REBOOT",
        "Reboot it.",
        Argument(
            "type",
            Kind.TEXT,
            "hard, soft or full",
            "reboot_type",
            default="hard",
            schema=_one_of(RebootType),
        ),
        Argument(
            "ignore_secondaries",
            Kind.SWITCH,
            "1 to go on without secondary nodes",
            "ignore_secondaries",
        ),
        _DRY_RUN,
    ),
    _instance("POST", "recreate-disks", "OP_INSTANCE_RECREATE_DISKS", "Make its disks anew."),
    _instance(
        "POST",
        "reinstall",
        "OP_INSTANCE_SHUTDOWN OP_INSTANCE_REINSTALL OP_INSTANCE_STARTUP",
        "Install an operating system on it again.",
        Argument("os", Kind.TEXT, "operating system"),
        Argument("nostartup", Kind.SWITCH, "1 to leave it stopped"),
        parts=jobs.ReinstallBody,
        build=jobs.reinstall,
    ),
    _instance("PUT", "rename", "OP_INSTANCE_RENAME", "Rename it."),
    _instance(
        "POST",
        "replace-disks",
        "OP_INSTANCE_REPLACE_DISKS",
        "Replace disks; query arguments are looked at when there is no body.",
        _REMOTE_NODE,
        _MODE,
        jobs.DISKS_ARGUMENT,
        _IALLOCATOR,
        build=jobs.replace_disks,
    ),
    _instance("PUT", "shutdown", "OP_INSTANCE_SHUTDOWN", "Shut it down.", _NO_REMEMBER, _DRY_RUN),
    _instance(
        "PUT",
        "startup",
        "OP_INSTANCE_STARTUP",
        "Start it.",
        _FORCE,
        _DRY_RUN,
        _NO_REMEMBER,
        has_body=False,
    ),
)

OLD: Final = (*_CLUSTER_JOBS, *_GROUP_JOBS, *_NETWORK_JOBS, *_NODE_JOBS, *_INSTANCE_JOBS)

_CHOSEN: Final = (
    _job(
        "POST",
        "/2/jobs",
        "",
        "Submit one job of several opcodes, each an object with its name in 'OP_ID'.",
        parts=jobs.JobBody,
        build=jobs.any_job,
    ),
    _job("POST", "/2/nodes", "OP_NODE_ADD", "Add a node that is set up already."),
    _node("DELETE", "", "OP_NODE_REMOVE", "Remove it from the cluster."),
    _instance("PUT", "move", "OP_INSTANCE_MOVE", "Copy its disks to another node."),
    _instance("PUT", "change-group", "OP_INSTANCE_CHANGE_GROUP", "Move it to another node group."),
    _group("POST", "evacuate", "OP_GROUP_EVACUATE", "Move its instances to other groups."),
    _job(
        "DELETE",
        "/2/exports/{instance}",
        "OP_BACKUP_REMOVE",
        "Remove the exports of an instance from all nodes.",
        from_path={"instance": "instance_name"},
    ),
    _job(
        "PUT",
        "/2/os/{os}/modify",
        "OP_CLUSTER_SET_PARAMS",
        "Change how an operating system definition is used.",
        parts=jobs.OsBody,
        build=jobs.modify_os,
    ),
)


def _opcode_route(op_id: str) -> Route:
    return _job("POST", f"/2/opcodes/{op_id}", op_id, f"Submit a job of {op_id}.")


NEW: Final = (*_CHOSEN, *(_opcode_route(op_id) for op_id in all_op_ids()))
