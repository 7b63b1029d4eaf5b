"""Parameters whose values must not be seen in logs, error messages or debug output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ganeti.base.secret import HIDDEN

_EMPTY: Final[Mapping[str, object]] = {}


class PrivateParams:
    """Named values; ``repr`` shows the names only, `reveal` gives the values.

    Deliberately not a Mapping: unpacking it by accident must not show what it holds.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, object] = _EMPTY) -> None:
        self._values = dict(values)

    def reveal(self) -> dict[str, object]:
        """Return a new dictionary of the values, for the one place that needs them."""
        return dict(self._values)

    def names(self) -> list[str]:
        """Return the names of the parameters."""
        return list(self._values)

    def merged(self, changes: PrivateParams | Mapping[str, object]) -> PrivateParams:
        """Return these parameters with others laid over them."""
        over = changes.reveal() if isinstance(changes, PrivateParams) else changes
        return PrivateParams({**self._values, **over})

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrivateParams) and other._values == self._values

    __hash__ = None  # type: ignore[assignment]  # mutable values inside, like a dict

    def __repr__(self) -> str:
        inner = ", ".join(f"{name!r}: {HIDDEN}" for name in self._values)
        return f"{{{inner}}}"
