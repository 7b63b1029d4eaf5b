"""Hooks: scripts of the operator that run on nodes before and after an operation.

A logical unit declares where its scripts are in the hooks directory; the values that a script gets
are built here as plain dictionaries.  A node daemon runs the scripts.

Source: hooks_os_ext.json, "hooks".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from enum import StrEnum
from typing import Final

import msgspec

from ganeti.base.errors import HooksAbort
from ganeti.base.versions import HOOKS_VERSION
from ganeti.logical_units.context import JobContext
from ganeti.objects.model import Node
from ganeti.protocol.node_calls import NodeCalls

HOOKS_PATH: Final = "/sbin:/bin:/usr/sbin:/usr/bin"
DATA_DIR: Final = "/var/lib/ganeti"
RESULT_FAIL: Final = 1


class Phase(StrEnum):
    """Before or after the operation."""

    PRE = "pre"
    POST = "post"


class ObjectType(StrEnum):
    """The kind of object that an operation works on."""

    CLUSTER = "CLUSTER"
    NODE = "NODE"
    GROUP = "GROUP"
    INSTANCE = "INSTANCE"
    NETWORK = "NETWORK"


class HookPoint(msgspec.Struct, frozen=True):
    """Where an opcode's scripts are: ``<path>-pre.d`` and ``<path>-post.d``."""

    path: str
    object_type: ObjectType


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

    An empty directory has none; the node daemon reports the files of one that cannot be read here.
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
        answers = context.nodes.call_all(
            NodeCalls.hooks_runner, asked.values(), path, phase.value, dict(env)
        )
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
