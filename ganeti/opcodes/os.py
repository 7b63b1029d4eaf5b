"""Operations on operating system definitions and external storage providers.

Source: opcodes.json.
"""

from ganeti.base.json import JsonValue
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.values import NonEmptyStr


class OpExtStorageDiagnose(OpCode, frozen=True, kw_only=True):
    """Answer which external storage providers the nodes have."""

    RESULT = list[list[JsonValue]]

    output_fields: list[NonEmptyStr]
    names: list[NonEmptyStr] = []


class OpOsDiagnose(OpCode, frozen=True, kw_only=True):
    """Answer which operating systems the nodes have."""

    RESULT = list[list[JsonValue]]

    output_fields: list[NonEmptyStr]
    names: list[NonEmptyStr] = []
