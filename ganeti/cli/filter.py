"""``gnt-filter`` add, replace and delete."""

from __future__ import annotations

from typing import Any, Final

from ganeti.base.errors import OpPrereqError
from ganeti.cli.command import Context, Options, command, opt
from ganeti.cli.declaration.values import FilterAction, Json


def add(context: Context, options: Options, _args: list[str]) -> None:
    """Add a filter."""
    context.write(_store(context, options, None))


def replace(context: Context, options: Options, args: list[str]) -> None:
    """Replace a filter."""
    context.write(_store(context, options, args[0]))


def _store(context: Context, options: Options, uuid: str | None) -> str:
    if not isinstance(options.predicates, list):
        raise OpPrereqError("--predicates takes a JSON list")
    if not options.predicates:
        raise OpPrereqError(
            "give --predicates: without them the filter is for every job.  If that is meant:"
            """ --predicates='[["jobid", [">", "id", 0]]]'"""
        )
    return context.client.replace_filter(
        uuid,
        priority=options.rule_priority,
        predicates=[read_predicate(each) for each in options.predicates],
        action=options.action,
        reason=context.reason_of_user(),
    )


def read_predicate(predicate: object) -> Any:
    """Return a predicate whose filter is in prefix form; it may be given as text.

    Raises:
        QueryFilterParseError: the text cannot be understood.
    """
    match predicate:
        case [str(kind), str(text)]:
            from ganeti.query.filter_text import parse_filter

            return [kind, parse_filter(text)]
    return predicate


def delete(context: Context, _options: Options, args: list[str]) -> None:
    """Remove a filter."""
    context.client.delete_filter(args[0])


_RULE = (
    opt.option("--action", "the effect on jobs that match", FilterAction, default="CONTINUE"),
    opt.option(
        "--predicates",
        """predicates to match, as JSON: [["opcode", FILTER], ...], also for "jobid" and "reason"; a
FILTER is a list such as ["=", "OP_ID", "OP_NODE_ADD"], or text such as "OP_ID = 'OP_NODE_ADD'\"""",
        Json,
        default=[],
    ),
    opt.number(
        "--priority -> rule_priority", "rules are tried from the smallest number on", default=0
    ),
)
COMMANDS: Final = (
    command(
        add,
        _RULE,
        examples="""
gnt-filter add --priority=10 --action=PAUSE --predicates='[["jobid", [">", "id", "watermark"]]]' \
 # hold every job that is submitted from now on""",
    ),
    command(delete, "<filter>"),
    command(replace, "<filter>", _RULE),
)
