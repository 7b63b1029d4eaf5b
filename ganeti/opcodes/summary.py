"""Short texts about opcodes, for lists of jobs and for reason trails.

Source: opcodes.json, "json_form".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import OpCodeUnknown
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.registry import OP_ID_KEY, op_id_of, opcode_class

_TAG_KIND_NAMES: Final = {
    "cluster": "TagKindCluster",
    "instance": "TagKindInstance",
    "network": "TagKindNetwork",
    "node": "TagKindNode",
    "nodegroup": "TagKindGroup",
}


def summary(op: OpCode | Mapping[str, object]) -> str:
    """Return a text such as ``INSTANCE_CREATE(inst1.example.com)``.

    Takes an opcode or its JSON form; of an opcode that is not known the name alone is shown.
    """
    if isinstance(op, OpCode):
        op_id, field = op_id_of(type(op)), op.SUMMARY_FIELD
        value: object = getattr(op, _shown_field(op_id, field) or "priority")
    else:
        op_id = str(op.get(OP_ID_KEY))
        try:
            field = opcode_class(op_id).SUMMARY_FIELD
        except OpCodeUnknown:
            field = None
        value = op.get(_shown_field(op_id, field) or "")
    name = op_id.removeprefix("OP_")
    if field is None:
        return name
    if op_id == "OP_TAGS_GET":
        value = _TAG_KIND_NAMES.get(str(value), str(value))
    return f"{name}({_shown(value)})"


def _shown_field(op_id: str, field: str | None) -> str | None:
    return "kind" if op_id == "OP_TAGS_GET" else field


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_shown, value))
    if isinstance(value, float):
        return _shown_float(value)
    return str(value)


def _shown_float(value: float) -> str:
    """Show a number as 2.0, 0.5 or 1.0e-3: with exponent below 0.1 and from ten million."""
    if value == 0 or 0.1 <= abs(value) < 10**7:
        return repr(value)
    mantissa, exponent = f"{value:.16e}".split("e")
    digits = repr(value).lower().split("e", maxsplit=1)[0].replace(".", "").lstrip("-0").rstrip("0")
    sign = "-" if mantissa.startswith("-") else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}e{int(exponent)}"


def reason_source(op_id: str, prefix: str = "gnt:opcode") -> str:
    """Return the source that stands in reason trails: ``gnt:opcode:instance_create``."""
    return f"{prefix}:{op_id.removeprefix('OP_').lower()}"
