"""Hooks: scripts of the operator that run on nodes before and after an operation.

Which opcodes have hooks, and where in the hooks directory, is the table below; the values that a
script gets are built here as plain dictionaries.  A node daemon runs the scripts.

Source: hooks_os_ext.json, "hooks".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from ganeti.base.errors import HooksAbort
from ganeti.base.versions import HOOKS_VERSION
from ganeti.logical_units.node_calls import call_nodes

if TYPE_CHECKING:
    from ganeti.logical_units.context import JobContext
    from ganeti.objects.node import Node

HOOKS_PATH: Final = "/sbin:/bin:/usr/sbin:/usr/bin"
DATA_DIR: Final = "/var/lib/ganeti"
RESULT_FAIL: Final = 1


class Phase(StrEnum):
    """Before or after the operation."""

    PRE = "pre"
    POST = "post"


class ObjectType(StrEnum):
    """What an operation works on."""

    CLUSTER = "CLUSTER"
    NODE = "NODE"
    GROUP = "GROUP"
    INSTANCE = "INSTANCE"
    NETWORK = "NETWORK"


class HookPoint(msgspec.Struct, frozen=True):
    """Where an opcode's scripts are: ``<path>-pre.d`` and ``<path>-post.d``."""

    path: str
    object_type: ObjectType


HOOK_POINTS: Final[Mapping[str, HookPoint]] = {
    "OP_BACKUP_EXPORT": HookPoint("instance-export", ObjectType.INSTANCE),
    "OP_CLUSTER_DESTROY": HookPoint("cluster-destroy", ObjectType.CLUSTER),
    "OP_CLUSTER_POST_INIT": HookPoint("cluster-init", ObjectType.CLUSTER),
    "OP_CLUSTER_RENAME": HookPoint("cluster-rename", ObjectType.CLUSTER),
    "OP_CLUSTER_SET_PARAMS": HookPoint("cluster-modify", ObjectType.CLUSTER),
    "OP_CLUSTER_VERIFY_GROUP": HookPoint("cluster-verify", ObjectType.CLUSTER),
    "OP_GROUP_ADD": HookPoint("group-add", ObjectType.GROUP),
    "OP_GROUP_EVACUATE": HookPoint("group-evacuate", ObjectType.GROUP),
    "OP_GROUP_REMOVE": HookPoint("group-remove", ObjectType.GROUP),
    "OP_GROUP_RENAME": HookPoint("group-rename", ObjectType.GROUP),
    "OP_GROUP_SET_PARAMS": HookPoint("group-modify", ObjectType.GROUP),
    "OP_INSTANCE_CHANGE_GROUP": HookPoint("instance-change-group", ObjectType.INSTANCE),
    "OP_INSTANCE_CREATE": HookPoint("instance-add", ObjectType.INSTANCE),
    "OP_INSTANCE_FAILOVER": HookPoint("instance-failover", ObjectType.INSTANCE),
    "OP_INSTANCE_GROW_DISK": HookPoint("disk-grow", ObjectType.INSTANCE),
    "OP_INSTANCE_MIGRATE": HookPoint("instance-migrate", ObjectType.INSTANCE),
    "OP_INSTANCE_MOVE": HookPoint("instance-move", ObjectType.INSTANCE),
    "OP_INSTANCE_REBOOT": HookPoint("instance-reboot", ObjectType.INSTANCE),
    "OP_INSTANCE_RECREATE_DISKS": HookPoint("instance-recreate-disks", ObjectType.INSTANCE),
    "OP_INSTANCE_REINSTALL": HookPoint("instance-reinstall", ObjectType.INSTANCE),
    "OP_INSTANCE_REMOVE": HookPoint("instance-remove", ObjectType.INSTANCE),
    "OP_INSTANCE_RENAME": HookPoint("instance-rename", ObjectType.INSTANCE),
    "OP_INSTANCE_REPLACE_DISKS": HookPoint("mirrors-replace", ObjectType.INSTANCE),
    "OP_INSTANCE_SET_PARAMS": HookPoint("instance-modify", ObjectType.INSTANCE),
    "OP_INSTANCE_SHUTDOWN": HookPoint("instance-stop", ObjectType.INSTANCE),
    "OP_INSTANCE_STARTUP": HookPoint("instance-start", ObjectType.INSTANCE),
    "OP_NETWORK_ADD": HookPoint("network-add", ObjectType.NETWORK),
    "OP_NETWORK_CONNECT": HookPoint("network-connect", ObjectType.NETWORK),
    "OP_NETWORK_DISCONNECT": HookPoint("network-disconnect", ObjectType.NETWORK),
    "OP_NETWORK_REMOVE": HookPoint("network-remove", ObjectType.NETWORK),
    "OP_NETWORK_SET_PARAMS": HookPoint("network-modify", ObjectType.NETWORK),
    "OP_NODE_ADD": HookPoint("node-add", ObjectType.NODE),
    "OP_NODE_MIGRATE": HookPoint("node-migrate", ObjectType.NODE),
    "OP_NODE_REMOVE": HookPoint("node-remove", ObjectType.NODE),
    "OP_NODE_SET_PARAMS": HookPoint("node-modify", ObjectType.NODE),
}


CONFIG_UPDATE: Final = HookPoint("config-update", ObjectType.CLUSTER)


class HookRun(msgspec.Struct, frozen=True):
    """Everything that one opcode's scripts are told, but the values of its own."""

    op_id: str
    point: HookPoint
    cluster_name: str
    master_name: str


def build_environment(
    run: HookRun,
    phase: Phase,
    before: Mapping[str, object],
    after: Mapping[str, object] | None = None,
) -> dict[str, str]:
    """Return the whole environment of a script.

    Args:
        before: the operation's values as they were before it.
        after: the values as they are now (post phase); None in the pre phase.
    """
    env = {f"GANETI_{name}": str(value) for name, value in before.items()}
    if after is not None:
        env |= {f"GANETI_POST_{name}": str(value) for name, value in after.items()}
    return env | {
        "PATH": HOOKS_PATH,
        "GANETI_HOOKS_VERSION": str(HOOKS_VERSION),
        "GANETI_OP_CODE": run.op_id,
        "GANETI_DATA_DIR": DATA_DIR,
        "GANETI_HOOKS_PHASE": phase.value,
        "GANETI_HOOKS_PATH": run.point.path,
        "GANETI_OBJECT_TYPE": run.point.object_type.value,
        "GANETI_CLUSTER": run.cluster_name,
        "GANETI_MASTER": run.master_name,
    }


def has_local_hooks(hooks_dir: str, path: str, phase: Phase) -> bool:
    """Tell whether this node, the master, may have scripts for a phase.

    An empty directory has none; what is in one that cannot be read is for the node daemon to say.
    """
    try:
        with os.scandir(f"{hooks_dir}/{path}-{phase.value}.d") as entries:
            return any(True for _ in entries)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def failures(results: Mapping[str, object]) -> list[list[str]]:
    """Return [node, script, output] of every script that failed, from the nodes' answers."""
    found = []
    for node_name in sorted(results):
        answer = results[node_name]
        for entry in answer if isinstance(answer, list) else []:
            match entry:
                case [str(script), int(status), output] if status == RESULT_FAIL:
                    found.append([node_name, script, str(output or "")])
    return found


def run_hooks(
    context: JobContext, run: HookRun, phase: Phase, nodes: Iterable[Node], env: Mapping[str, str]
) -> dict[str, object]:
    """Run one phase on the nodes and return each node's answer.

    A node that is offline is left out; one that does not answer is named in a warning.  The master
    is this node: where it has no such scripts, that is its answer, and it is not asked.

    Raises:
        HooksAbort: a script of the pre phase failed.
    """
    path = run.point.path
    asked = {node.name: node for node in nodes if not node.offline}
    payloads: dict[str, object] = {}
    if run.master_name in asked and not has_local_hooks(context.paths.hooks_dir, path, phase):
        del asked[run.master_name]
        payloads[run.master_name] = []
    # Before the work nothing is lost by a request to cancel; afterwards it comes too late.
    with context.interruptible() if phase is Phase.PRE else nullcontext():
        answers = call_nodes(context, asked.values(), "hooks_runner", path, phase.value, dict(env))
    for name, result in answers.items():
        if result.error is not None:
            context.warn(f"cannot run the {phase.value} hooks on node {name}: {result.error}")
        else:
            payloads[name] = result.payload
    _judge(context, phase, failures(payloads))
    return payloads


def _judge(context: JobContext, phase: Phase, failed: Sequence[list[str]]) -> None:
    if failed and phase is Phase.PRE:
        raise HooksAbort(list(failed))
    for node_name, script, output in failed:
        text = f": {output.strip()}" if output.strip() else ""
        context.warn(f"post hook {script} failed on node {node_name}{text}")
