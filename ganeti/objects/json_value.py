"""The type of a value whose JSON shape is not declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias

    JsonValue: TypeAlias = object  # nobody uses one without looking what it is
else:
    JsonValue = Any  # msgspec takes it as it is, without asking for a hook
