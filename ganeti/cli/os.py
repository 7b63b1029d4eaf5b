"""``gnt-os`` and ``gnt-storage``: definitions of operating systems, and providers of storage.

Both are directories of scripts, whose copies on the nodes are compared by a diagnosis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.base.text import natural_sort_key
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options, command, opt
from ganeti.cli.run.binding import NOTHING_TO_CHANGE
from ganeti.cli.run.jobs import execute, make_opcode
from ganeti.cli.run.report import Facts, format_report
from ganeti.opcodes.cluster import OpClusterSetParams
from ganeti.opcodes.query import OpExtStorageDiagnose, OpOsDiagnose

Row = Mapping[str, object]

_LIST_FIELDS: Final = "name variants hidden blacklisted valid"
_INFO_FIELDS: Final = "name valid variants parameters api_versions blacklisted hidden"
_DIAGNOSE_FIELDS: Final = "name valid variants node_status hidden blacklisted"
_PROVIDER_FIELDS: Final = "name node_status nodegroup_status parameters"


def _diagnose(
    context: Context, options: Options, fields: str, names: Sequence[str] = ()
) -> list[Row]:
    kind = OpExtStorageDiagnose if fields == _PROVIDER_FIELDS else OpOsDiagnose
    opcode = make_opcode(kind, output_fields=fields.split(), names=list(names))
    [result] = execute(context, options, opcode)
    rows = result if isinstance(result, list) else []
    return [dict(zip(fields.split(), row, strict=True)) for row in rows]


def _definitions(
    context: Context, options: Options, fields: str, names: Sequence[str] = ()
) -> list[Row]:
    rows = _diagnose(context, options, fields, names)
    return sorted(rows, key=lambda row: natural_sort_key(str(row["name"])))


def _show(
    context: Context, facts: Facts, args: Sequence[str], unknown: str = "OS {!r} is unknown"
) -> int:
    """Print facts by name; the exit status tells whether there are some about each argument."""
    missing = [name for name in args if name not in dict(facts)]
    for name in missing:
        context.terminal.error(unknown.format(name))
    context.terminal.write_lines(format_report(facts))
    return EXIT_FAILURE if missing else EXIT_SUCCESS


def _by_name(value: object) -> list[tuple[str, list[object]]]:
    """Return the list under each name of a status field, in natural order."""
    found = value if isinstance(value, Mapping) else {}
    return [(name, list(found[name] or ())) for name in sorted(found, key=natural_sort_key)]


def _show_copies(context: Context, statuses: object, what: str, usable: str) -> None:
    """Print the copies on each node, which are lists that begin with path, usable, message."""
    for node, copies in _by_name(statuses):
        if not copies:
            context.write(f"  Node: {node}, no {what} found")
        for position, copy in enumerate(copies):
            path, is_usable, message = [*(copy if isinstance(copy, list) else ()), *[None] * 3][:3]
            words = usable if is_usable else f"{_NOT[usable]}: {message}"
            hidden = " (hidden by the one above)" if position else ""
            context.write(f"  Node: {node}, path: {path}, {words}{hidden}")
    context.write()


_NOT: Final = {"valid": "invalid", "usable": "not usable"}


def variants_of(row: Row) -> list[str]:
    """Return the full names of a definition, one for each variant."""
    variants = row["variants"]
    if isinstance(variants, list) and variants:
        return [f"{row['name']}+{variant}" for variant in variants]
    return [str(row["name"])]


def usable_names(context: Context, options: Options) -> list[str]:
    """Return the full names of the operating systems that are usable on all nodes."""
    rows = _definitions(context, options, _LIST_FIELDS)
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
    rows = _definitions(context, options, _INFO_FIELDS, args)
    return _show(context, Facts((str(row["name"]), _describe(row)) for row in rows), args)


def _describe(row: Row) -> Facts:
    facts = Facts((name, row[name]) for name in ("valid", "hidden", "blacklisted"))
    facts.append(("API versions", _joined(row["api_versions"])))
    facts.append(("variants", _joined(row["variants"])))
    facts.append(("parameters", _named(row["parameters"])))
    return facts


def _named(parameters: object) -> object:
    """Return the sentence about each parameter."""
    return Facts(parameters) if isinstance(parameters, list) else ""


def _joined(value: object) -> str:
    return ", ".join(str(item) for item in value) if isinstance(value, list) else ""


def diagnose(context: Context, options: Options, _args: list[str]) -> int:
    """Show which definitions are usable on which node, and why not."""
    rows = _definitions(context, options, _DIAGNOSE_FIELDS)
    for row in rows:
        flags = [word for word in ("hidden", "blacklisted") if row[word]]
        words = ["valid" if row["valid"] else "invalid", *flags]
        context.write(f"OS: {row['name']} [{', '.join(words)}]")
        _show_copies(context, row["node_status"], "OS", "valid")
    return EXIT_SUCCESS if all(row["valid"] for row in rows) else EXIT_FAILURE


def modify(context: Context, options: Options, args: list[str]) -> None:
    """Change how a definition is used."""
    wanted = os_changes(args[0], options)
    if not wanted:
        raise OpPrereqError(NOTHING_TO_CHANGE)
    execute(context, options, make_opcode(OpClusterSetParams, **wanted))


def os_changes(name: str, options: Options) -> dict[str, object]:
    """Return the changes of the cluster's settings about one definition."""
    parameters = {
        "os_hvp": dict(options.hvparams),
        "osparams": options.osparams,
        "osparams_private_cluster": options.osparams_private,
    }
    switches = {"hidden_os": options.hidden, "blacklisted_os": options.blacklisted}
    return {
        **{parameter: {name: values} for parameter, values in parameters.items() if values},
        **{
            parameter: [["add" if switch else "remove", name]]
            for parameter, switch in switches.items()
            if switch is not None
        },
    }


def diagnose_providers(context: Context, options: Options, _args: list[str]) -> int:
    """Show which providers are usable on which node, and why not."""
    is_broken = False
    for row in _diagnose(context, options, _PROVIDER_FIELDS):
        groups = _by_name(row["nodegroup_status"])
        usable = [name for name, (is_usable, *_parameters) in groups if is_usable]
        words = f"usable in {', '.join(usable)}" if usable else "usable in no group"
        context.write(f"Provider: {row['name']} [{words}]")
        _show_copies(context, row["node_status"], "provider", "usable")
        is_broken |= len(usable) < len(groups)
    return EXIT_FAILURE if is_broken else EXIT_SUCCESS


def provider_info(context: Context, options: Options, args: list[str]) -> int:
    """Show the parameters of providers, and which groups can use them."""
    facts = Facts()
    for row in _diagnose(context, options, _PROVIDER_FIELDS, args):
        groups = [name for name, status in _by_name(row["nodegroup_status"]) if status[0]]
        about = [("groups that can use it", ", ".join(groups))]
        facts.append((str(row["name"]), Facts([*about, ("parameters", _named(row["parameters"]))])))
    return _show(context, facts, args, "no node has an external storage provider {!r}")


COMMANDS: Final = {
    "gnt-os": (
        command(
            diagnose,
            "--priority",
            examples="""
gnt-os diagnose  # why an operating system is not usable""",
        ),
        command(info, "[<os>...] --priority", aliases=("show",)),
        command(
            list_os,
            "--no-headers --priority",
            title="list: list the definitions that are usable on all nodes",
            examples="""
gnt-os list  # what -o of gnt-instance add takes""",
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
    ),
    "gnt-storage": (
        command(
            diagnose_providers,
            "--priority",
            title="diagnose: show which providers are usable on which node, and why not",
            examples="""
gnt-storage diagnose  # why a provider is not usable""",
        ),
        command(
            provider_info,
            "[<provider>...]:os@provider --priority",
            title="info: show the parameters of providers, and which groups can use them",
        ),
    ),
}
