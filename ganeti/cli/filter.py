"""``gnt-filter`` add, replace, delete and info."""

from __future__ import annotations

from typing import Any, Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.cli.command import Context, Options, command, opt
from ganeti.cli.declaration.values import FilterAction, Json
from ganeti.cli.lists import as_list, format_action, format_json, format_trail
from ganeti.cli.run.report import Facts, format_report

_FIELDS: Final = ("uuid", "watermark", "priority", "predicates", "action", "reason_trail")


def add(context: Context, options: Options, _args: list[str]) -> None:
    """Add a filter."""
    context.write(_store(context, options, None))


def replace(context: Context, options: Options, args: list[str]) -> None:
    """Replace a filter."""
    context.write(_store(context, options, args[0]))


def _store(context: Context, options: Options, uuid: str | None) -> str:
    if not isinstance(options.predicates, list):
        raise OpPrereqError("--predicates takes a JSON list")
    return context.client.replace_filter(
        uuid,
        priority=options.rule_priority,
        predicates=[read_predicate(each) for each in options.predicates],
        action=options.action,
        reason=context.reason_trail(),
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


def info(context: Context, _options: Options, args: list[str]) -> None:
    """Show filters."""
    rows = context.client.query_filters(args or None, _FIELDS)
    unknown = set(args) - {str(row[0]) for row in rows}
    if unknown:
        raise OpPrereqError(f"no such filter: {', '.join(sorted(unknown))}", ErrorCode.NOENT)
    facts = []
    for row in rows:
        rule = dict(zip(_FIELDS, row, strict=True))
        facts.append(
            Facts(
                [
                    ("UUID", rule["uuid"]),
                    ("Watermark", rule["watermark"]),
                    ("Priority", rule["priority"]),
                    ("Predicates", [format_json(each) for each in as_list(rule["predicates"])]),
                    ("Action", format_action(rule["action"])),
                    ("Reason trail", format_trail(rule["reason_trail"])),
                ]
            )
        )
    context.terminal.write_lines(format_report(facts))


_RULE = (
    opt.option("--action", "what happens to jobs that match", FilterAction, default="CONTINUE"),
    opt.option(
        "--predicates",
        """what must match, as JSON: [["opcode", FILTER], ...], also for "jobid" and "reason"; a
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
    command(info, "[<filter>...]"),
    command(replace, "<filter>", _RULE),
)
