"""What one question may ask for, and how large its answer may be.

A question is short, and its answer may be long: a field that is named again and again has the
server make its value as often.  So a question has few repeats, and the bytes of an answer are
counted while it is made.

Source: ARCHITECTURE, invariant 12.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Raw

from ganeti.base.errors import OpPrereqError

FIELDS_MAX: Final = 1000  # more than any resource has
REPEATS_MAX: Final = 4  # of a field: lists that programs put together have one or two
ANSWER_BYTES_MAX: Final = 256 << 20  # ten times all that a list of the largest cluster can have
_ROW_BYTES: Final = 64  # of a row beside its text


def check_asked(names: Sequence[str]) -> None:
    """Refuse a question for too many fields, or for one of them too often.

    Raises:
        OpPrereqError: wrong_input; names the field.
    """
    if len(names) > FIELDS_MAX:
        raise OpPrereqError(f"at most {FIELDS_MAX} fields can be asked for")
    if len(names) > REPEATS_MAX:
        [(name, count)] = Counter(names).most_common(1)
        if count > REPEATS_MAX:
            raise OpPrereqError(
                f"field {name!r:.100} is asked for {count} times, {REPEATS_MAX} are possible"
            )


class Budget:
    """The bytes that are left for an answer."""

    def __init__(self) -> None:
        self._left_bytes = ANSWER_BYTES_MAX

    def take(self, size_bytes: int, rows: int = 1) -> None:
        """Take room for some rows.

        Raises:
            OpPrereqError: the answer is too large.
        """
        self._left_bytes -= size_bytes + rows * _ROW_BYTES
        if self._left_bytes < 0:
            raise OpPrereqError(
                f"the answer would have more than {ANSWER_BYTES_MAX >> 20} MiB: ask for fewer"
                " things, or fewer fields"
            )

    def row(self, encoded: bytes) -> Raw:
        """Take room for a row; returns it, ready to be sent.  Errors as of `take`."""
        self.take(len(encoded))
        return Raw(encoded)
