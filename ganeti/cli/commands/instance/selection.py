"""Which instances a command on many of them means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.text import natural_sorted
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.confirm import confirm_many
from ganeti.cli.run.context import Context

_PRIMARY: Final = ("pinst_list",)
_SECONDARY: Final = ("sinst_list",)
# mode -> the node fields that list instances
_BY_NODE: Final = {
    "nodes": _PRIMARY + _SECONDARY,
    "nodes-pri": _PRIMARY,
    "nodes-sec": _SECONDARY,
    "nodes-by-tags": _PRIMARY + _SECONDARY,
    "nodes-pri-by-tags": _PRIMARY,
    "nodes-sec-by-tags": _SECONDARY,
}


def select_instances(
    context: Context, options: Options, args: Sequence[str], what: str
) -> list[str]:
    """Return the names of the instances meant, after asking when they are several.

    Raises:
        OpPrereqError: none is meant, or a name is unknown.
        NotConfirmed: the user does not want that.
    """
    mode = options.multi_mode or "instances"
    names = _find(context, mode, args)
    if not names:
        raise OpPrereqError("the selection holds no instances", ErrorCode.NOENT)
    # Names that a script spelled out are meant; what a selection found is shown first.
    is_spelled_out = mode == "instances" and not context.terminal.is_interactive
    if len(names) > 1 and not (options.force_multiple or is_spelled_out):
        confirm_many(context, what, names, option="--force-multiple")
    return names


def _find(context: Context, mode: str, args: Sequence[str]) -> list[str]:
    client = context.client
    if mode == "cluster":
        if args:
            raise OpPrereqError("--all takes no names")
        return _names(client.query_instances([], ["name"]))
    if not args:
        raise OpPrereqError("no instances given")
    if mode == "instances":
        return _distinct(args)
    if mode == "instances-by-tags":
        wanted = set(args)
        rows = client.query_instances([], ["name", "tags"])
        return natural_sorted(str(name) for name, tags in rows if wanted & set(_texts(tags)))
    return _of_nodes(context, mode, args)


def _of_nodes(context: Context, mode: str, args: Sequence[str]) -> list[str]:
    fields = _BY_NODE[mode]
    by_tags = mode.endswith("by-tags")
    rows = context.client.query_nodes([] if by_tags else list(args), ["tags", *fields])
    found: set[str] = set()
    for tags, *lists in rows:
        if not by_tags or set(args) & set(_texts(tags)):
            for names in lists:
                found.update(_texts(names))
    return natural_sorted(found)


def _names(rows: Sequence[Sequence[object]]) -> list[str]:
    return natural_sorted(str(row[0]) for row in rows)


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _distinct(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))
