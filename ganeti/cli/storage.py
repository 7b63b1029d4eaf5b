"""``gnt-storage`` diagnose and info."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.text import natural_sort_key
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options, command
from ganeti.cli.run.jobs import execute, make_opcode
from ganeti.cli.run.report import Facts, format_report
from ganeti.opcodes.query import OpExtStorageDiagnose

_FIELDS: Final = ("name", "node_status", "nodegroup_status", "parameters")
Row = Mapping[str, object]


def _ask(context: Context, options: Options, names: Sequence[str] = ()) -> list[Row]:
    opcode = make_opcode(OpExtStorageDiagnose, output_fields=list(_FIELDS), names=list(names))
    [result] = execute(context, options, opcode)
    rows = result if isinstance(result, list) else []
    return [dict(zip(_FIELDS, row, strict=True)) for row in rows]


def _by_name(value: object) -> list[tuple[str, list[object]]]:
    """Return what stands under each name of a status field, in natural order."""
    found = value if isinstance(value, Mapping) else {}
    return [(name, list(found[name])) for name in sorted(found, key=natural_sort_key)]


def diagnose(context: Context, options: Options, _args: list[str]) -> int:
    """Show which providers are usable on which node, and why not."""
    is_broken = False
    for row in _ask(context, options):
        groups = _by_name(row["nodegroup_status"])
        usable = [name for name, (is_usable, _parameters) in groups if is_usable]
        words = f"usable in {', '.join(usable)}" if usable else "usable in no group"
        context.write(f"Provider: {row['name']} [{words}]")
        for node, copies in _by_name(row["node_status"]):
            context.terminal.write_lines(_on_node(node, copies))
        context.write()
        is_broken |= len(usable) < len(groups)
    return EXIT_FAILURE if is_broken else EXIT_SUCCESS


def _on_node(node: str, copies: Sequence[object]) -> list[str]:
    """Return the lines about a provider on one node.

    Each copy there is [path, usable, message, parameters].
    """
    if not copies:
        return [f"  Node: {node}, no provider found"]
    lines = []
    for position, copy in enumerate(copies):
        path, usable, message, _parameters = copy if isinstance(copy, list) else [None] * 4
        words = "usable" if usable else f"not usable: {message}"
        hidden = " (hidden by the one above)" if position else ""
        lines.append(f"  Node: {node}, path: {path}, {words}{hidden}")
    return lines


def info(context: Context, options: Options, args: list[str]) -> int:
    """Show the parameters of providers, and which groups can use them."""
    rows = _ask(context, options, args)
    status = EXIT_SUCCESS
    for name in args:
        if name not in {row["name"] for row in rows}:
            context.terminal.error(f"no node has an external storage provider {name!r}")
            status = EXIT_FAILURE
    facts = Facts((str(row["name"]), _describe(row)) for row in rows)
    context.terminal.write_lines(format_report(facts))
    return status


def _describe(row: Row) -> Facts:
    groups = _by_name(row["nodegroup_status"])
    parameters = row["parameters"]
    return Facts(
        [
            ("groups that can use it", ", ".join(name for name, status in groups if status[0])),
            ("parameters", Facts(parameters) if isinstance(parameters, list) else ""),
        ]
    )


COMMANDS: Final = (command(diagnose, "--priority"), command(info, "[<provider>...]:os --priority"))
