"""What ``--help-completion`` prints: options and arguments, for whoever makes shell completion.

Source: cli.json, "help_completion".
"""

from __future__ import annotations

from collections.abc import Iterable

from ganeti.cli.declaration.program import ArgKind, Option
from ganeti.cli.declaration.values import ValueType


def completion_lines(options: Iterable[Option]) -> list[str]:
    """Return a line for each option: its flags and what it takes."""
    lines = [f"{','.join(option.flags)} {_kind(option)}\n" for option in options]
    return [*lines, "-h,--help none\n"]


def _kind(option: Option) -> str:
    if not option.takes_value:
        return "none"
    if option.completes is ArgKind.FILE:
        return "file"
    return "integer" if option.type is ValueType.INT else "string"
