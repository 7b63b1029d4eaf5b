"""A text that never shows itself."""

from __future__ import annotations

from typing import Final

HIDDEN: Final = "***"
REDACTED: Final = "<redacted>"  # stands in a job file instead of a secret parameter


class Secret:
    """Holds a text; ``str`` and ``repr`` print ``***``, `reveal` gives the text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself, for the one place that needs it."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)
