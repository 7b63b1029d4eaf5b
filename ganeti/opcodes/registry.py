"""Find opcodes by name; turn them from JSON into typed values and back.

The modules of opcodes are imported when the first opcode is looked up by name: command lines that
only submit an opcode of one module start without the others.

Source: opcodes.json.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Final

import msgspec

from ganeti.base.errors import OpCodeUnknown, OpPrereqError
from ganeti.base.secret import REDACTED
from ganeti.objects.describe import describe_key, describe_place
from ganeti.objects.record import PrivateParams, explain_validation, plain
from ganeti.opcodes.opcode import COMMON_PARAMS, OpCode
from ganeti.opcodes.values import DeviceChange, SecretParams

OP_ID_KEY: Final = "OP_ID"

# The modules of this package that declare opcodes.
_MODULES: Final = (
    *("backup", "cluster", "group", "instance", "network", "node", "query", "tags", "test"),
)

_WORD_START: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SHOWN_VALUE_LENGTH_MAX: Final = 80  # of a wrong value in an error message
_BLACKLISTED_IN_DUMPS: Final = frozenset(
    {"osparams_private", "osparams_secret", "osparams_private_cluster"}
)


@cache
def _all_classes() -> Mapping[str, type[OpCode]]:
    for name in _MODULES:
        import_module(f"ganeti.opcodes.{name}")
    return {op_id_of(cls): cls for cls in _below(OpCode)}


def _below(base: type[OpCode]) -> Iterator[type[OpCode]]:
    """Yield the opcodes that derive from a class, without the bases that some of them share."""
    for cls in base.__subclasses__():
        if cls.__name__.startswith("Op"):
            yield cls
        yield from _below(cls)


def all_op_ids() -> list[str]:
    """Return the names of all opcodes, sorted."""
    return sorted(_all_classes())


def opcode_class(op_id: str) -> type[OpCode]:
    """Return the class of an opcode.

    Raises:
        OpCodeUnknown: there is no such opcode.
    """
    found = _all_classes().get(op_id)
    if found is None:
        raise OpCodeUnknown(f"unknown opcode {op_id!r}")
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
        OpPrereqError: a parameter is unknown, missing or wrong (wrong_input), or a text in it has
            a null byte, which no command line, variable or path takes; the text names opcode,
            parameter and expected type, and the value unless it is private.
    """
    op_id = wire.get(OP_ID_KEY)
    if not isinstance(op_id, str):
        raise OpCodeUnknown(f"an opcode needs a name in {OP_ID_KEY!r}, got {op_id!r}")
    cls = opcode_class(op_id)
    params = {name: value for name, value in wire.items() if name != OP_ID_KEY}
    try:
        op = msgspec.convert(params, cls, dec_hook=_decode_special)
    except msgspec.ValidationError as err:
        raise OpPrereqError(_explain(cls, params, err)) from err
    if place := _place_of_null(params):
        raise OpPrereqError(f"{op_id}: parameter {place!r}: a text has a null byte")
    return op


def _place_of_null(value: object) -> str | None:
    """Return the place of a text, or of a name, with a null byte; "" is the value itself."""
    if isinstance(value, str):
        return "" if "\0" in value else None
    if isinstance(value, PrivateParams):
        value = value.reveal()
    elif isinstance(value, DeviceChange):
        value = value.to_wire()
    inside: Iterable[tuple[object, object]] = ()
    if isinstance(value, Mapping):
        inside = value.items()
    elif isinstance(value, list | tuple):
        inside = enumerate(value)
    for name, each in inside:
        place = "" if "\0" in str(name) else _place_of_null(each)
        if place is not None:
            step = f"[{name}]" if isinstance(name, int) else str(name)
            return f"{step}.{place}".rstrip(".").replace(".[", "[")
    return None


def _explain(cls: type[OpCode], params: Mapping[str, object], err: msgspec.ValidationError) -> str:
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

    Own parameters come first, then the common ones, then ``OP_ID``; an unset parameter is left out
    or null as its declaration says.
    """
    return _encode(op, plain)


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


def _encode(op: OpCode, form: Callable[[object], object]) -> dict[str, object]:
    written = op.WRITTEN_WHEN_UNSET | op.REQUIRED_BY_LUXID
    names = op.__struct_fields__
    common = len(COMMON_PARAMS)  # inherited fields come first
    wire: dict[str, object] = {}
    for name in names[common:] + names[:common]:
        value = getattr(op, name)
        if value is None and name not in written:
            continue
        wire[name] = form(value)
    wire[OP_ID_KEY] = op_id_of(type(op))
    return wire


def _without_secrets(value: object) -> object:
    if isinstance(value, SecretParams):
        return dict.fromkeys(value.names(), REDACTED)
    return plain(value)
