"""Find opcodes by name; turn them from JSON into typed values and back.

A family's module is imported when the first of its opcodes is asked for, so that the process of a
job loads what its opcode needs and no more.

Source: opcodes.json.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final

import msgspec

from ganeti.base.errors import ErrorCode, OpCodeUnknown, OpPrereqError, OpResultError
from ganeti.base.secret import REDACTED
from ganeti.objects.private import PrivateParams
from ganeti.objects.record import explain_validation
from ganeti.opcodes.opcode import COMMON_PARAMS, OpCode
from ganeti.opcodes.values import DeviceChange, SecretParams

OP_ID_KEY: Final = "OP_ID"

_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "cluster": (
        "OP_CLUSTER_ACTIVATE_MASTER_IP",
        "OP_CLUSTER_CONFIG_QUERY",
        "OP_CLUSTER_DEACTIVATE_MASTER_IP",
        "OP_CLUSTER_DESTROY",
        "OP_CLUSTER_POST_INIT",
        "OP_CLUSTER_QUERY",
        "OP_CLUSTER_REDIST_CONF",
        "OP_CLUSTER_RENAME",
        "OP_CLUSTER_RENEW_CRYPTO",
        "OP_CLUSTER_REPAIR_DISK_SIZES",
        "OP_CLUSTER_SET_PARAMS",
        "OP_CLUSTER_VERIFY",
        "OP_CLUSTER_VERIFY_CONFIG",
        "OP_CLUSTER_VERIFY_DISKS",
        "OP_CLUSTER_VERIFY_GROUP",
    ),
    "node": (
        "OP_NODE_ADD",
        "OP_NODE_EVACUATE",
        "OP_NODE_MIGRATE",
        "OP_NODE_MODIFY_STORAGE",
        "OP_NODE_POWERCYCLE",
        "OP_NODE_QUERYVOLS",
        "OP_NODE_QUERY_STORAGE",
        "OP_NODE_REMOVE",
        "OP_NODE_SET_PARAMS",
        "OP_OOB_COMMAND",
        "OP_REPAIR_NODE_STORAGE",
    ),
    "group": (
        "OP_GROUP_ADD",
        "OP_GROUP_ASSIGN_NODES",
        "OP_GROUP_EVACUATE",
        "OP_GROUP_REMOVE",
        "OP_GROUP_RENAME",
        "OP_GROUP_SET_PARAMS",
        "OP_GROUP_VERIFY_DISKS",
    ),
    "instance": (
        "OP_INSTANCE_ACTIVATE_DISKS",
        "OP_INSTANCE_CHANGE_GROUP",
        "OP_INSTANCE_CONSOLE",
        "OP_INSTANCE_CREATE",
        "OP_INSTANCE_DEACTIVATE_DISKS",
        "OP_INSTANCE_FAILOVER",
        "OP_INSTANCE_GROW_DISK",
        "OP_INSTANCE_MIGRATE",
        "OP_INSTANCE_MOVE",
        "OP_INSTANCE_MULTI_ALLOC",
        "OP_INSTANCE_QUERY_DATA",
        "OP_INSTANCE_REBOOT",
        "OP_INSTANCE_RECREATE_DISKS",
        "OP_INSTANCE_REINSTALL",
        "OP_INSTANCE_REMOVE",
        "OP_INSTANCE_RENAME",
        "OP_INSTANCE_REPLACE_DISKS",
        "OP_INSTANCE_SET_PARAMS",
        "OP_INSTANCE_SHUTDOWN",
        "OP_INSTANCE_STARTUP",
    ),
    "backup": (
        "OP_BACKUP_EXPORT",
        "OP_BACKUP_PREPARE",
        "OP_BACKUP_REMOVE",
    ),
    "network": (
        "OP_NETWORK_ADD",
        "OP_NETWORK_CONNECT",
        "OP_NETWORK_DISCONNECT",
        "OP_NETWORK_REMOVE",
        "OP_NETWORK_SET_PARAMS",
    ),
    "os": (
        "OP_EXT_STORAGE_DIAGNOSE",
        "OP_OS_DIAGNOSE",
    ),
    "tags": (
        "OP_TAGS_DEL",
        "OP_TAGS_GET",
        "OP_TAGS_SEARCH",
        "OP_TAGS_SET",
    ),
    "query": (
        "OP_QUERY",
        "OP_QUERY_FIELDS",
    ),
    "restricted": ("OP_RESTRICTED_COMMAND",),
    "test": (
        "OP_TEST_ALLOCATOR",
        "OP_TEST_DELAY",
        "OP_TEST_DUMMY",
        "OP_TEST_JQUEUE",
        "OP_TEST_OS_PARAMS",
    ),
}
"""Module of this package, and the opcodes declared in it."""

_FAMILY: Final = {op_id: family for family, op_ids in _FAMILIES.items() for op_id in op_ids}
_CLASSES: Final[dict[str, type[OpCode]]] = {}
_WORD_START: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SHOWN_VALUE_LENGTH_MAX: Final = 80  # of a wrong value in an error message
_BLACKLISTED_IN_DUMPS: Final = frozenset(
    {"osparams_private", "osparams_secret", "osparams_private_cluster"}
)


def all_op_ids() -> list[str]:
    """Return the names of all opcodes, sorted."""
    return sorted(_FAMILY)


def opcode_class(op_id: str) -> type[OpCode]:
    """Return the class of an opcode.

    Raises:
        OpCodeUnknown: there is no such opcode.
    """
    found = _CLASSES.get(op_id)
    if found is None:
        family = _FAMILY.get(op_id)
        if family is None:
            raise OpCodeUnknown(f"unknown opcode {op_id!r}")
        module = import_module(f"ganeti.opcodes.{family}")
        name = "".join(word.capitalize() for word in op_id.split("_"))
        found = getattr(module, name)
        assert isinstance(found, type)
        assert issubclass(found, OpCode)
        _CLASSES[op_id] = found
    return found


def op_id_of(cls: type[OpCode]) -> str:
    """Return the name of an opcode: OpInstanceCreate is OP_INSTANCE_CREATE."""
    return _WORD_START.sub("_", cls.__name__).upper()


def _decode_special(kind: type, value: object) -> object:
    """Let msgspec make values of our own types."""
    if issubclass(kind, DeviceChange):
        return kind.from_wire(value)
    if issubclass(kind, PrivateParams) and isinstance(value, Mapping):
        return kind(value)
    raise ValueError("expected object")


def decode_opcode(wire: Mapping[str, object]) -> OpCode:
    """Make an opcode from its JSON form.

    Raises:
        OpCodeUnknown: ``OP_ID`` is missing or unknown.
        OpPrereqError: a parameter is unknown, missing or wrong (wrong_input); the text names
            opcode, parameter and expected type, and the value unless it is private.
    """
    op_id = wire.get(OP_ID_KEY)
    if not isinstance(op_id, str):
        raise OpCodeUnknown(f"an opcode needs a name in {OP_ID_KEY!r}, got {op_id!r}")
    cls = opcode_class(op_id)
    params = {name: value for name, value in wire.items() if name != OP_ID_KEY}
    try:
        return msgspec.convert(params, cls, dec_hook=_decode_special)
    except msgspec.ValidationError as err:
        raise OpPrereqError(_explain(cls, params, err), ErrorCode.INVAL) from err


def _explain(cls: type[OpCode], params: Mapping[str, object], err: msgspec.ValidationError) -> str:
    from ganeti.objects.describe import describe_key, describe_place  # slow, for messages only

    op_id = op_id_of(cls)
    place, what = explain_validation(err)
    if not place:
        return f"{op_id}: {what}"
    subject = f"{op_id}: parameter {place.replace('[...]', '')!r}"
    if what in ("is missing", "is unknown"):
        return f"{subject} {what}"
    if what.startswith("key: "):
        return f"{subject}: key: expected {describe_key(cls, place)}"
    if what.startswith(("expected", "invalid enum value")):
        what = f"expected {describe_place(cls, place)}"
    param = re.split(r"[.\[]", place, maxsplit=1)[0]
    if param in params and param not in _BLACKLISTED_IN_DUMPS and ", got " not in what:
        what = f"{what}, got {_shown(_value_at(params, place))}"
    return f"{subject}: {what}"


def _value_at(params: object, place: str) -> object:
    """Follow a path such as ``disks[0].size`` as far as it names one value."""
    value = params
    for index, name in re.findall(r"\[(\d+)\]|\.?(\w+)", place):
        if name and isinstance(value, Mapping):
            value = value.get(name)
        elif index and isinstance(value, list | tuple) and int(index) < len(value):
            value = value[int(index)]
        else:
            break
    return value


def _shown(value: object) -> str:
    text = repr(value)
    if len(text) > _SHOWN_VALUE_LENGTH_MAX:
        text = f"{text[:_SHOWN_VALUE_LENGTH_MAX]}..."
    return text


def encode_opcode(op: OpCode) -> dict[str, object]:
    """Return the JSON form of an opcode, private and secret parameters as plain values.

    Own parameters come first, then the common ones, then ``OP_ID``; what is unset is left out or
    null as its declaration says.
    """
    return _encode(op, _plain)


def redact(op: OpCode) -> dict[str, object]:
    """Return the JSON form for a job file: each secret parameter is ``<redacted>``.

    Private parameters are kept: a job needs them after a restart.
    """
    wire = _encode(op, _without_secrets)
    instances = wire.get("instances")
    if isinstance(instances, list):  # opcodes inside an opcode: creations placed together
        wire["instances"] = [_redact_nested(instance) for instance in instances]
    return wire


def _redact_nested(instance: object) -> object:
    if isinstance(instance, Mapping):
        secrets = instance.get("osparams_secret")
        if isinstance(secrets, Mapping):
            return {**instance, "osparams_secret": dict.fromkeys(secrets, REDACTED)}
    return instance


def for_people(wire: Mapping[str, object]) -> Mapping[str, object]:
    """Return the JSON form of an opcode with its private and secret parameters hidden.

    It says which there are, as a job file does of the secret ones.  Source: opcodes.json,
    "private(T)".
    """
    nested = wire.get("instances")
    shown: dict[str, object] = {
        name: _hidden(wire[name]) for name in _BLACKLISTED_IN_DUMPS if wire.get(name)
    }
    if isinstance(nested, list):
        shown["instances"] = [
            for_people(each) if isinstance(each, Mapping) else each for each in nested
        ]
    return {**wire, **shown} if shown else wire


def _hidden(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _hidden(each) for name, each in value.items()}
    return REDACTED


def _encode(op: OpCode, plain: Callable[[object], object]) -> dict[str, object]:
    written = op.WRITTEN_WHEN_UNSET | op.REQUIRED_BY_LUXID
    names = op.__struct_fields__
    common = len(COMMON_PARAMS)  # inherited fields come first
    wire: dict[str, object] = {}
    for name in names[common:] + names[:common]:
        value = getattr(op, name)
        if value is None and name not in written:
            continue
        wire[name] = plain(value)
    wire[OP_ID_KEY] = op_id_of(type(op))
    return wire


def _plain(value: object) -> object:
    """Turn a parameter into plain JSON values."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, PrivateParams):
        return value.reveal()
    assert isinstance(value, DeviceChange), f"parameter of type {type(value).__name__}"
    return value.to_wire()


def _without_secrets(value: object) -> object:
    if isinstance(value, SecretParams):
        return dict.fromkeys(value.names(), REDACTED)
    return _plain(value)


def check_result(op: OpCode, result: object) -> None:
    """Check a result against its declaration.

    Raises:
        OpResultError: it is of another type; names the opcode and the place.
    """
    kind = type(op).RESULT
    try:
        msgspec.convert(result, kind)
    except msgspec.ValidationError as err:
        place, what = explain_validation(err)
        where = f" at {place!r}" if place else ""
        raise OpResultError(f"{op_id_of(type(op))}: result{where}: {what}") from err
