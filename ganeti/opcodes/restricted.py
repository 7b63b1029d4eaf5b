"""Commands that nodes allow.

Source: opcodes.json.
"""

from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.values import NonEmptyStr


class OpRestrictedCommand(OpCode, frozen=True, kw_only=True):
    """Run one of the commands that nodes allow; the result is [success, output] for each."""

    RESULT = list[tuple[bool, str]]

    use_locking: bool = False
    nodes: list[NonEmptyStr]
    node_uuids: list[NonEmptyStr] | None = None
    command: NonEmptyStr
