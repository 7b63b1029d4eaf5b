"""The list and list-fields commands of every kind of object, and nodes named on a command line.

Source: query_fields.json, "default_fields" and "command_line_detection".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from ganeti.base.errors import ErrorCode, OpPrereqError, ParameterError
from ganeti.base.text import name_matches
from ganeti.cli.command import EXIT_SUCCESS, Context, Options, opt
from ganeti.cli.run.failures import EXIT_UNKNOWN_FIELD
from ganeti.cli.run.table import Column, Formatter, TableStyle, format_plain, format_table
from ganeti.protocol.luxi import QueryField, QueryResponse

Rows: TypeAlias = Sequence[Sequence[object]]

_FILTER_CHARACTERS = frozenset("\t\n\x0b\f\r !\"'()/<=>\\~")
_GLOB_CHARACTERS = frozenset("*?")
_JOB_DIGITS_MAX: Final = 18  # luxi.json: a job's number as text


class Listing(Struct, frozen=True):
    """How objects of one kind are listed."""

    resource: str
    default_fields: tuple[str, ...]
    name_field: str = "name"
    names_are_numbers: bool = False
    formats: Mapping[str, Formatter] = {}


def select_fields(text: str | None, default: Sequence[str]) -> list[str]:
    """Return the fields to ask for; a leading + adds to the default ones."""
    if not text:
        return list(default)
    if text.startswith("+"):
        return [*default, *_split(text[1:])]
    return _split(text)


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def make_filter(
    args: Sequence[str],
    *,
    force_filter: bool = False,
    name_field: str = "name",
    names_are_numbers: bool = False,
) -> object:
    """Return the filter, in prefix form, that the arguments of a list command mean.

    Raises:
        ParameterError: not one filter, or not a number where numbers are names.
        QueryFilterParseError: the filter cannot be understood.
    """
    if not args:
        return None
    if force_filter or (len(args) == 1 and not _FILTER_CHARACTERS.isdisjoint(args[0])):
        if len(args) != 1:
            raise ParameterError("give one filter, in quotes")
        from ganeti.query.filter_text import parse_filter

        return parse_filter(args[0])
    return _names_filter(args, name_field, names_are_numbers)


def _names_filter(args: Sequence[str], name_field: str, names_are_numbers: bool) -> object:
    conditions = [_name_filter(arg, name_field, names_are_numbers) for arg in args]
    return conditions[0] if len(conditions) == 1 else ["|", *conditions]


def is_job_number(text: str) -> bool:
    """Tell whether a text is the number of a job."""
    return text.isascii() and text.isdigit() and len(text) <= _JOB_DIGITS_MAX


def _name_filter(arg: str, name_field: str, names_are_numbers: bool) -> list[object]:
    if names_are_numbers:
        if not is_job_number(arg):
            raise ParameterError(f"{arg[:50]!r} is not a number")
        return ["==", name_field, int(arg)]
    if not _GLOB_CHARACTERS.isdisjoint(arg):
        from ganeti.query.filter_text import glob_to_regex

        return ["=~", name_field, glob_to_regex(arg)]
    return ["==", name_field, arg]


def both_filters(first: object, second: object) -> object:
    """Return the filter that asks for both."""
    if first is None or second is None:
        return second if first is None else first
    return ["&", first, second]


def show_list(
    context: Context,
    options: Options,
    args: Sequence[str],
    listing: Listing,
    extra_filter: object = None,
) -> int:
    """Ask for objects and print them as a table; returns the exit status."""
    fields = select_fields(options.get("output"), listing.default_fields)
    wanted = make_filter(
        args,
        force_filter=bool(options.get("filter")),
        name_field=listing.name_field,
        names_are_numbers=listing.names_are_numbers,
    )
    qfilter = both_filters(wanted, extra_filter)
    response = context.client.query(listing.resource, fields, qfilter)
    return print_response(context, options, response, listing.formats)


def style_of(context: Context, options: Options) -> TableStyle:
    """Return how the options want tables to look."""
    separator = options.get("separator")
    on_screen = context.terminal.is_screen and separator is None
    unit = options.get("units") or ("h" if separator is None else "m")
    return TableStyle(
        separator=separator,
        headers=not options.get("no_headers"),
        unit=unit,
        verbose=bool(options.get("verbose")),
        width=context.terminal.width if on_screen else None,
    )


PLAIN_TABLE: Final = (
    opt.flag("--no-headers", "leave the line with the titles out"),
    opt.option("--separator", "text between columns, which are not aligned then"),
)
"""Options of tables in which nothing is missing, cut or converted."""


def print_plain(
    context: Context, options: Options, columns: Sequence[Column | str], rows: Rows
) -> None:
    """Print a table as options of `PLAIN_TABLE` want it; a title alone is a column of texts."""
    style = TableStyle(options.get("separator"), headers=not options.get("no_headers"))
    context.terminal.write_lines(format_plain(columns, rows, style))


def print_response(
    context: Context,
    options: Options,
    response: QueryResponse,
    formats: Mapping[str, Formatter],
    fields_of: str = "",
) -> int:
    """Print the answer to a query; unknown fields are named and change the exit status.

    Args:
        fields_of: the kind of objects, if the program has no command that lists its fields.
    """
    columns = [
        Column(_title(known), known.kind, formats.get(known.name)) for known in response.fields
    ]
    lines = format_table(columns, response.data, style_of(context, options))
    context.terminal.write_lines(lines)
    return warn_of_unknown(context, response.fields, fields_of)


def _title(known: QueryField) -> str:
    return known.name if known.kind == "unknown" else known.title


def warn_of_unknown(context: Context, fields: Sequence[QueryField], fields_of: str = "") -> int:
    """Name the fields that nobody knows; returns the exit status.  Arguments as above."""
    unknown = [known.name for known in fields if known.kind == "unknown"]
    if not unknown:
        return EXIT_SUCCESS
    hint = f"'{context.program} list-fields' names them all"
    if fields_of:
        known = context.client.query_fields(fields_of, None).fields
        hint = f"there are {', '.join(field.name for field in known)}"
    context.terminal.error(f"Warning: unknown fields: {', '.join(unknown)}; {hint}")
    return EXIT_UNKNOWN_FIELD


_KIND_NAMES = {
    "text": "Text",
    "bool": "Boolean",
    "number": "Number",
    "float": "Floating-point number",
    "unit": "Storage size",
    "timestamp": "Timestamp",
    "other": "Custom",
    "unknown": "Unknown",
}


def show_fields(context: Context, options: Options, args: Sequence[str], resource: str) -> int:
    """Print the fields of a kind of objects; returns the exit status."""
    names = [name for arg in args for name in _split(arg)]
    response = context.client.query_fields(resource, names or None)
    rows = [
        [known.name, _KIND_NAMES.get(known.kind, known.kind), known.title, known.doc]
        for known in response.fields
    ]
    titles = ("Name", "Type", "Title", "Description")
    context.terminal.write_lines(format_plain(titles, rows, style_of(context, options)))
    return warn_of_unknown(context, response.fields)


def rows_of_nodes(
    context: Context, names: Sequence[str], fields: Sequence[str]
) -> list[list[object]]:
    """Return some fields, the name first, of the nodes that are named, or of all if none is.

    Raises:
        OpPrereqError: one of them is not known.
    """
    rows = context.client.query_nodes(list(names), list(fields))
    known = [str(row[0]) for row in rows]
    unknown = [name for name in names if not any(name_matches(name, each) for each in known)]
    if unknown:
        listed = ", ".join(map(repr, unknown))
        what = f"node {listed} is" if len(unknown) == 1 else f"nodes {listed} are"
        raise OpPrereqError(f"{what} not known; see 'gnt-node list'", ErrorCode.NOENT)
    return rows


def rows_of_chosen(
    context: Context, names: Sequence[str], group: str | None, fields: Sequence[str] = ()
) -> list[list[object]]:
    """Return name, whether offline, group and some fields of the nodes that are chosen.

    Those are the ones named, or all of a group or of the cluster.

    Raises:
        OpPrereqError: a node or the group is not known, or a node is not in the group.
    """
    group_name = None if group is None else _name_of_group(context, group)
    rows = rows_of_nodes(context, names, ["name", "offline", "group", *fields])
    chosen = [row for row in rows if group_name in (None, row[2])]
    if names and len(chosen) < len(rows):
        outside = [str(row[0]) for row in rows if row not in chosen]
        what = "node {} is" if len(outside) == 1 else "nodes {} are"
        listed = ", ".join(map(repr, outside))
        raise OpPrereqError(f"{what.format(listed)} not in node group {group_name!r}")
    return chosen


def _name_of_group(context: Context, group: str) -> str:
    rows = context.client.query_groups([group], ["name"])
    if not rows:
        raise OpPrereqError(
            f"node group {group!r} is not known; see 'gnt-group list'", ErrorCode.NOENT
        )
    return str(rows[0][0])


def no_nodes(group: str | None) -> OpPrereqError:
    """Return the error of a choice in which every node is offline."""
    where = f" in node group {group!r}" if group else ""
    return OpPrereqError(f"there are no nodes that are not offline{where}")
