"""The answer of an allocator, checked against the question.

Pure.  An allocator is somebody else's program: whatever it says is looked at before anybody acts on
it, and each thing that is wrong is one error that names the allocator, the mode and what was wrong.

Source: iallocator.json, "response" and "result_per_mode".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base.errors import ErrorCode, OpPrereqError, ProtocolError
from ganeti.base.json import loads
from ganeti.objects.allocation_modes import IAllocatorMode
from ganeti.opcodes.registry import decode_opcode
from ganeti.protocol.iallocator import (
    JOB_OPCODES,
    RESULTS,
    Allocate,
    AllocateSecondary,
    AllocatorRequest,
    ChangeGroup,
    EvacuateResult,
    MultiAllocate,
    MultiAllocateResult,
    NewInstance,
    NodeEvacuate,
    NodeNames,
    Relocate,
)

_SHOWN_CHARACTERS_MAX: Final = 200


class _WrongAnswerError(Exception):
    """The answer of an allocator is wrong; the text says why."""


def read_answer(allocator: str, question: AllocatorRequest, content: str) -> Any:
    """Return the result of an answer, of the type that `RESULTS` tells for the question's mode.

    Raises:
        OpPrereqError: the allocator found no place (insufficient_resources), or its answer is no
            answer to this question (internal_error).
    """
    mode = question.mode
    try:
        answer = _fields(content)
        if not answer["success"]:
            why = answer["info"] or "no reason given"
            raise OpPrereqError(
                f"allocator {allocator!r}, mode {mode.value}: {why}", ErrorCode.NORES
            )
        result = _typed(mode, answer["result"])
        _CHECKS[mode](question, result)
    except _WrongAnswerError as err:
        raise OpPrereqError(
            f"allocator {allocator!r}, mode {mode.value}: its answer cannot be used: {err}",
            ErrorCode.FAULT,
        ) from err
    return result


def _fields(content: str) -> dict[str, Any]:
    """Return success, info and result; the older name of the result will do."""
    try:
        answer = loads(content)
    except ProtocolError as err:
        raise _WrongAnswerError(f"{err.message}{_beginning(content)}") from err
    if not isinstance(answer, Mapping):
        raise _WrongAnswerError(f"it is not a JSON object{_beginning(content)}")
    found = {"result": answer["nodes"]} if "nodes" in answer else {}
    found |= answer
    missing = [key for key in ("success", "info", "result") if key not in found]
    if missing:
        raise _WrongAnswerError(f"{', '.join(map(repr, missing))} is missing")
    for key, kind, word in (("success", bool, "true or false"), ("info", str, "text")):
        if not isinstance(found[key], kind):
            raise _WrongAnswerError(f"{key!r} is not {word}")
    return found


def _beginning(content: str) -> str:
    text = content.strip()
    if not text:
        return " (it printed nothing)"
    return f"; it begins with {_shown(text)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}..."


def _typed(mode: IAllocatorMode, result: object) -> Any:
    try:
        return msgspec.convert(result, RESULTS[mode])
    except msgspec.ValidationError as err:
        raise _WrongAnswerError(f"'result': {err}, got {_shown(result)}") from err


# What a result of each mode must be.


def _check_nodes(question: AllocatorRequest, names: Sequence[str], count: int, what: str) -> None:
    if len(names) != count:
        raise _WrongAnswerError(f"{what}: {count} node(s) are needed, it names {_shown(names)}")
    unknown = [name for name in names if name not in question.nodes]
    if unknown:
        raise _WrongAnswerError(f"{what}: there is no node {_shown(unknown[0])}")
    if len(set(names)) != len(names):
        raise _WrongAnswerError(f"{what}: it names a node twice: {_shown(names)}")


def _check_place(question: AllocatorRequest, wanted: NewInstance, names: NodeNames) -> None:
    what = f"instance {wanted.name!r}"
    _check_nodes(question, names, wanted.required_nodes, what)
    allowed = wanted.restrict_to_nodes
    for name in names:
        if isinstance(allowed, list) and name not in allowed:
            raise _WrongAnswerError(f"{what}: node {name!r} is not among the allowed ones")
        group = question.nodegroups[question.nodes[name].group].name
        if wanted.group_name not in (None, group):
            raise _WrongAnswerError(
                f"{what}: node {name!r} is in node group {group!r}, not in {wanted.group_name!r}"
            )


def _check_allocate(question: AllocatorRequest, result: NodeNames) -> None:
    assert isinstance(question.request, Allocate)
    _check_place(question, question.request, result)


def _check_multi_allocate(question: AllocatorRequest, result: MultiAllocateResult) -> None:
    assert isinstance(question.request, MultiAllocate)
    placed, failed = result
    wanted = {instance.name: instance for instance in question.request.instances}
    _check_each_once(wanted, [*(name for name, _nodes in placed), *failed])
    missing = set(wanted) - {name for name, _nodes in placed} - set(failed)
    if missing:
        raise _WrongAnswerError(f"it says nothing about {', '.join(sorted(missing))}")
    for name, nodes in placed:
        _check_place(question, wanted[name], nodes)


def _check_each_once(asked: Iterable[str], names: Sequence[str]) -> None:
    known = set(asked)
    for name in names:
        if name not in known:
            raise _WrongAnswerError(f"it was not asked about instance {_shown(name)}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _WrongAnswerError(f"it names instance {twice!r} twice")


def _check_relocate(question: AllocatorRequest, result: NodeNames) -> None:
    wanted = question.request
    assert isinstance(wanted, Relocate)
    what = f"instance {wanted.name!r}"
    _check_nodes(question, result, wanted.required_nodes, what)
    groups = {question.nodes[name].group for name in wanted.relocate_from}
    for name in result:
        if name in wanted.relocate_from:
            raise _WrongAnswerError(f"{what}: node {name!r} is the one that it is to leave")
        if question.nodes[name].group not in groups:
            raise _WrongAnswerError(f"{what}: node {name!r} is in another node group")


def _check_secondary(question: AllocatorRequest, result: str) -> None:
    wanted = question.request
    assert isinstance(wanted, AllocateSecondary)
    _check_nodes(question, [result], 1, f"instance {wanted.name!r}")
    if result in question.instances[wanted.name].nodes[:1]:
        raise _WrongAnswerError(
            f"instance {wanted.name!r}: node {result!r} is its primary node already"
        )


def _check_moves(question: AllocatorRequest, result: EvacuateResult) -> None:
    wanted = question.request
    assert isinstance(wanted, NodeEvacuate | ChangeGroup)
    moved, failed, jobs = result
    _check_each_once(wanted.instances, [*(row[0] for row in moved), *(row[0] for row in failed)])
    for name, _group, nodes in moved:
        unknown = [node for node in nodes if node not in question.nodes]
        if unknown:
            raise _WrongAnswerError(f"instance {name!r}: there is no node {_shown(unknown[0])}")
    for number, job in enumerate(jobs, 1):
        if not job:
            raise _WrongAnswerError(f"job {number} is empty")
        for opcode in job:
            _check_opcode(question, wanted.instances, opcode, f"job {number}")


def _check_opcode(
    question: AllocatorRequest, asked: Sequence[str], opcode: Mapping[str, Any], what: str
) -> None:
    op_id = opcode.get("OP_ID")
    if not isinstance(op_id, str) or op_id not in JOB_OPCODES:
        allowed = ", ".join(sorted(JOB_OPCODES))
        raise _WrongAnswerError(f"{what}: opcode {_shown(op_id)} is not allowed, only {allowed}")
    try:
        decode_opcode(opcode)
    except OpPrereqError as err:
        raise _WrongAnswerError(f"{what}: {err.message}") from err
    if opcode["instance_name"] not in asked:
        raise _WrongAnswerError(
            f"{what}: it was not asked about instance {_shown(opcode['instance_name'])}"
        )
    for key in ("target_node", "remote_node"):
        if opcode.get(key) is not None and opcode[key] not in question.nodes:
            raise _WrongAnswerError(f"{what}: there is no node {_shown(opcode[key])}")


_CHECKS: Final[Mapping[IAllocatorMode, Callable[[AllocatorRequest, Any], None]]] = {
    IAllocatorMode.ALLOCATE: _check_allocate,
    IAllocatorMode.ALLOCATE_SECONDARY: _check_secondary,
    IAllocatorMode.CHANGE_GROUP: _check_moves,
    IAllocatorMode.MULTI_ALLOCATE: _check_multi_allocate,
    IAllocatorMode.NODE_EVACUATE: _check_moves,
    IAllocatorMode.RELOCATE: _check_relocate,
}
