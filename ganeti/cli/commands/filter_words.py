"""Parts of job filters as people read and type them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ganeti.base import json
from ganeti.cli.run.table import format_time

_NANOSECONDS: Final = 1_000_000_000


def format_action(value: object) -> str:
    """Return an action as ``--action`` takes it."""
    return " ".join(str(part) for part in value) if isinstance(value, list) else str(value)


def format_json(value: object) -> str:
    """Return predicates as ``--predicates`` takes them."""
    return json.dumps(value).decode()


def format_trail(value: object) -> list[str]:
    """Return the steps of a reason trail, each with its time."""
    steps = []
    for step in as_list(value):
        match step:
            case [str(source), str(reason), int(nanoseconds)]:
                moment = format_time(nanoseconds / _NANOSECONDS)
                steps.append(f"{moment} {source}: {reason}" if reason else f"{moment} {source}")
            case _:
                steps.append(format_json(step))
    return steps


def as_list(value: object) -> Sequence[object]:
    """Return a list, empty if it is something else."""
    return value if isinstance(value, list) else []
