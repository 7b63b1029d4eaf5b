"""``gnt-os`` list, info, diagnose and modify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.base.text import natural_sort_key
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options, command, opt
from ganeti.cli.run.jobs import execute, make_opcode
from ganeti.cli.run.report import Facts, format_report
from ganeti.opcodes.cluster import OpClusterSetParams
from ganeti.opcodes.query import OpOsDiagnose

Row = Mapping[str, object]

_LIST_FIELDS: Final = ("name", "variants", "hidden", "blacklisted", "valid")
_INFO_FIELDS: Final = (
    "name",
    "valid",
    "variants",
    "parameters",
    "api_versions",
    "blacklisted",
    "hidden",
)
_DIAGNOSE_FIELDS: Final = ("name", "valid", "variants", "node_status", "hidden", "blacklisted")


def _diagnose(
    context: Context, options: Options, fields: Sequence[str], names: Sequence[str] = ()
) -> list[Row]:
    opcode = make_opcode(OpOsDiagnose, output_fields=list(fields), names=list(names))
    [result] = execute(context, options, opcode)
    rows = result if isinstance(result, list) else []
    found = [dict(zip(fields, row, strict=True)) for row in rows]
    return sorted(found, key=lambda row: natural_sort_key(str(row["name"])))


def variants_of(row: Row) -> list[str]:
    """Return the full names of a definition, one for each variant."""
    variants = row["variants"]
    if isinstance(variants, list) and variants:
        return [f"{row['name']}+{variant}" for variant in variants]
    return [str(row["name"])]


def usable_names(context: Context, options: Options) -> list[str]:
    """Return the full names of the operating systems that are usable on all nodes."""
    rows = _diagnose(context, options, _LIST_FIELDS)
    usable = [row for row in rows if row["valid"] and not row["hidden"] and not row["blacklisted"]]
    return [name for row in usable for name in variants_of(row)]


def list_os(context: Context, options: Options, _args: list[str]) -> None:
    """List the definitions that are usable on all nodes."""
    names = usable_names(context, options)
    if not options.no_headers:
        context.write("Name")
    context.terminal.write_lines(names)


def info(context: Context, options: Options, args: list[str]) -> int:
    """Show parameters and variants of definitions."""
    rows = _diagnose(context, options, _INFO_FIELDS, args)
    status = EXIT_SUCCESS
    for name in args:
        if name not in {str(row["name"]) for row in rows}:
            context.terminal.error(f"OS {name!r} is unknown")
            status = EXIT_FAILURE
    facts = Facts((str(row["name"]), _describe(row)) for row in rows)
    context.terminal.write_lines(format_report(facts))
    return status


def _describe(row: Row) -> Facts:
    parameters = row["parameters"]
    return Facts(
        [
            ("valid", row["valid"]),
            ("hidden", row["hidden"]),
            ("blacklisted", row["blacklisted"]),
            ("API versions", _joined(row["api_versions"])),
            ("variants", _joined(row["variants"])),
            (
                "parameters",
                Facts((str(name), text) for name, text in parameters)
                if isinstance(parameters, list)
                else "",
            ),
        ]
    )


def _joined(value: object) -> str:
    return ", ".join(str(item) for item in value) if isinstance(value, list) else ""


def diagnose(context: Context, options: Options, _args: list[str]) -> int:
    """Show which definitions are usable on which node, and why not."""
    rows = _diagnose(context, options, _DIAGNOSE_FIELDS)
    status = EXIT_SUCCESS
    for row in rows:
        flags = [word for word in ("hidden", "blacklisted") if row[word]]
        words = ["valid" if row["valid"] else "invalid", *flags]
        context.write(f"OS: {row['name']} [{', '.join(words)}]")
        if not row["valid"]:
            status = EXIT_FAILURE
        by_node = row["node_status"]
        if isinstance(by_node, Mapping):
            for node in sorted(by_node, key=natural_sort_key):
                context.terminal.write_lines(_on_node(node, by_node[node]))
        context.write()
    return status


def _on_node(node: str, found: object) -> list[str]:
    """Return the lines about a definition on one node.

    Each copy there is [path, usable, message, variants, parameters, API versions].
    """
    copies = found if isinstance(found, list) else []
    if not copies:
        return [f"  Node: {node}, no OS found"]
    lines = []
    for position, copy in enumerate(copies):
        path, usable, message = [*copy, None, None, None][:3]
        words = "valid" if usable else f"invalid: {message}"
        hidden = " (hidden by the one above)" if position else ""
        lines.append(f"  Node: {node}, path: {path}, {words}{hidden}")
    return lines


def modify(context: Context, options: Options, args: list[str]) -> None:
    """Change how a definition is used."""
    [name] = args
    wanted = os_changes(name, options)
    if not wanted:
        raise OpPrereqError("nothing to change; give at least one option")
    execute(context, options, make_opcode(OpClusterSetParams, **wanted))


def os_changes(name: str, options: Options) -> dict[str, object]:
    """Return what the options change of the cluster's settings about one definition."""
    wanted: dict[str, object] = {}
    for parameter, value in (
        ("os_hvp", dict(options.hvparams)),
        ("osparams", options.osparams),
        ("osparams_private_cluster", options.osparams_private),
    ):
        if value:
            wanted[parameter] = {name: value}
    for parameter, switch in (
        ("hidden_os", options.hidden),
        ("blacklisted_os", options.blacklisted),
    ):
        if switch is not None:
            wanted[parameter] = [["add" if switch else "remove", name]]
    return wanted


COMMANDS: Final = (
    command(diagnose, "--priority"),
    command(info, "[<os>...] --priority", aliases=("show",)),
    command(
        list_os,
        "--no-headers --priority",
        title="list: list the definitions that are usable on all nodes",
    ),
    command(
        modify,
        "<os> --os-parameters --os-parameters-private CHANGE",
        opt.yes_no("--blacklisted", "whether new instances may not use it"),
        opt.yes_no("--hidden", "whether lists leave it out"),
        opt.HYPERVISORS_PARAMETERS,
        description="""These are settings of the cluster: parameters for all instances with
this definition, which an instance's own ones override.""",
        examples="gnt-os modify --hidden=yes old-image  # leave it out of lists",
    ),
)
