"""The tag commands of all programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.text import natural_sorted
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_FAILURE, EXIT_SUCCESS
from ganeti.cli.run.jobs import execute, make_opcode

Handler = Callable[[Context, Options, list[str]], int]

TAGS_FILE_BYTES_MAX: Final = 1 << 20
CLUSTER: Final = "cluster"


def _list(kind: str) -> Handler:
    def handler(context: Context, _options: Options, args: list[str]) -> int:
        name = "" if kind == CLUSTER else args[0]
        context.terminal.write_lines(natural_sorted(context.client.query_tags(kind, name)))
        return EXIT_SUCCESS

    return handler


def _change(kind: str, op_id: str) -> Handler:
    def handler(context: Context, options: Options, args: list[str]) -> int:
        name = None if kind == CLUSTER else args[0]
        tags = args if kind == CLUSTER else args[1:]
        tags = tags + read_tags(options.tags_source)
        if not tags:
            raise OpPrereqError("no tags given")
        execute(context, options, make_opcode(op_id, kind=kind, name=name, tags=tags))
        return EXIT_SUCCESS

    return handler


def read_tags(source: str | None) -> list[str]:
    """Read tags from a file, one per line; ``-`` is the standard input.

    Raises:
        GenericError: it cannot be read.
    """
    if not source:
        return []
    try:
        if source == "-":
            text = sys.stdin.read(TAGS_FILE_BYTES_MAX)
        else:
            with open(source, encoding="utf-8") as file:
                text = file.read(TAGS_FILE_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as err:
        raise GenericError(f"cannot read tags from {source}: {err}") from err
    return [line.strip() for line in text.splitlines() if line.strip()]


list_cluster = _list(CLUSTER)
add_cluster = _change(CLUSTER, "OP_TAGS_SET")
remove_cluster = _change(CLUSTER, "OP_TAGS_DEL")
list_group = _list("nodegroup")
add_group = _change("nodegroup", "OP_TAGS_SET")
remove_group = _change("nodegroup", "OP_TAGS_DEL")
list_node = _list("node")
add_node = _change("node", "OP_TAGS_SET")
remove_node = _change("node", "OP_TAGS_DEL")
list_instance = _list("instance")
add_instance = _change("instance", "OP_TAGS_SET")
remove_instance = _change("instance", "OP_TAGS_DEL")
list_network = _list("network")
add_network = _change("network", "OP_TAGS_SET")
remove_network = _change("network", "OP_TAGS_DEL")


def search(context: Context, options: Options, args: list[str]) -> int:
    """Find tags of all objects; the exit status tells whether there are any."""
    [found] = execute(context, options, make_opcode("OP_TAGS_SEARCH", pattern=args[0]))
    lines = [f"{path} {tag}" for path, tag in found] if isinstance(found, list) else []
    context.terminal.write_lines(natural_sorted(lines))
    return EXIT_SUCCESS if lines else EXIT_FAILURE
