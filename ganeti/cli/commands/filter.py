"""``gnt-filter`` add, replace, delete and info."""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.cli.commands.filter_words import as_list, format_action, format_json, format_trail
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.report import Facts, format_report

_FIELDS: Final = ("uuid", "watermark", "priority", "predicates", "action", "reason_trail")


def add(context: Context, options: Options, _args: list[str]) -> int:
    """Add a filter and print its UUID."""
    context.write(_store(context, options, None))
    return EXIT_SUCCESS


def replace(context: Context, options: Options, args: list[str]) -> int:
    """Replace a filter, or add one with that UUID, and print it."""
    context.write(_store(context, options, args[0]))
    return EXIT_SUCCESS


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


def read_predicate(predicate: object) -> object:
    """Return a predicate whose filter is in prefix form; it may be given as text.

    Raises:
        QueryFilterParseError: the text cannot be understood.
    """
    match predicate:
        case [str(kind), str(text)]:
            from ganeti.query.filter_text import parse_filter

            return [kind, parse_filter(text)]
    return predicate


def delete(context: Context, _options: Options, args: list[str]) -> int:
    """Remove a filter."""
    context.client.delete_filter(args[0])
    return EXIT_SUCCESS


def info(context: Context, _options: Options, args: list[str]) -> int:
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
    return EXIT_SUCCESS
