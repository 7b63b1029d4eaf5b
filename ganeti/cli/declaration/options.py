"""Options of common shapes."""

from __future__ import annotations

from ganeti.cli.declaration.program import Option
from ganeti.cli.declaration.values import ValueType


def text(*flags: str, help: str, metavar: str, default: object = None) -> Option:
    """Return an option that takes a text."""
    return Option(flags, help, metavar=metavar, default=default)


def yes_no(*flags: str, help: str, metavar: str = "yes|no", dest: str = "") -> Option:
    """Return an option that takes yes or no."""
    return Option(flags, help, type=ValueType.BOOL, metavar=metavar, dest=dest)


def number(*flags: str, help: str, metavar: str) -> Option:
    """Return an option that takes a number."""
    return Option(flags, help, type=ValueType.INT, metavar=metavar)


def key_values(*flags: str, help: str, metavar: str) -> Option:
    """Return an option that takes pairs of key and value."""
    return Option(flags, help, type=ValueType.KEYVAL, metavar=metavar, default={})
