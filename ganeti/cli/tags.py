"""The tag commands of all programs."""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.text import natural_sorted
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Command, Context, Options, command, job
from ganeti.cli.run.binding import submit
from ganeti.objects.tags import TagKind
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.tags import OpTagsDel, OpTagsSearch, OpTagsSet

TAGS_FILE_BYTES_MAX: Final = 1 << 20


def _list(context: Context, _options: Options, args: list[str], *, kind: TagKind) -> None:
    name = "" if kind is TagKind.CLUSTER else args[0]
    context.terminal.write_lines(natural_sorted(context.client.query_tags(str(kind), name)))


def _change(context: Context, options: Options, args: list[str], *, kind: TagKind) -> None:
    name, tags = (None, args) if kind is TagKind.CLUSTER else (args[0], args[1:])
    tags = tags + read_tags(options.tags_source)
    if not tags:
        raise OpPrereqError("no tags given")
    submit(context, options, [], name=name, kind=kind, tags=tags)


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


def show_found(context: Context, _opcode: OpCode, found: object) -> int:
    """Print objects and their tags; the exit status tells whether there are any."""
    lines = [f"{path} {tag}" for path, tag in found] if isinstance(found, list) else []
    context.terminal.write_lines(natural_sorted(lines))
    return EXIT_SUCCESS if lines else EXIT_FAILURE


def _commands(kind: TagKind, thing: str, about: str = "") -> tuple[Command, ...]:
    """Return the commands about the tags of one kind of object."""
    text = f"{about} [<tag>...] --from SUBMISSION"
    change = partial(command, partial(_change, kind=kind), text)
    return (
        command(partial(_list, kind=kind), about, title=f"list-tags: list {thing}'s tags"),
        change(title=f"add-tags: give {thing} tags", opcode=OpTagsSet),
        change(title=f"remove-tags: take tags from {thing}", opcode=OpTagsDel),
    )


_SEARCH: Final = job(
    "search-tags: find tags of all objects by a regular expression",
    OpTagsSearch,
    "<pattern>=pattern --priority",
    result=show_found,
)
COMMANDS: Final = {
    "gnt-cluster": (*_commands(TagKind.CLUSTER, "the cluster"), _SEARCH),
    "gnt-group": _commands(TagKind.NODEGROUP, "a group", "<group>"),
    "gnt-instance": _commands(TagKind.INSTANCE, "an instance", "<instance>"),
    "gnt-network": _commands(TagKind.NETWORK, "a network", "<network>"),
    "gnt-node": _commands(TagKind.NODE, "a node", "<node>"),
}
