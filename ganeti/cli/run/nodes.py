"""Nodes that a command line names."""

from __future__ import annotations

from collections.abc import Sequence

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.cli.run.context import Context


def rows_of_nodes(
    context: Context, names: Sequence[str], fields: Sequence[str]
) -> list[list[object]]:
    """Return some fields, the name first, of the nodes that are named, or of all if none is.

    Raises:
        OpPrereqError: one of them is not known.
    """
    rows = context.client.query_nodes(list(names), list(fields))
    if len(rows) < len(set(names)):
        known = [str(row[0]) for row in rows]
        unknown = [name for name in names if not _is_one_of(name, known)]
        listed = ", ".join(map(repr, unknown))
        what = f"node {listed} is" if len(unknown) == 1 else f"nodes {listed} are"
        raise OpPrereqError(f"{what} not known; see 'gnt-node list'", ErrorCode.NOENT)
    return rows


def _is_one_of(text: str, known: Sequence[str]) -> bool:
    return any(name == text or name.startswith(f"{text}.") for name in known)
