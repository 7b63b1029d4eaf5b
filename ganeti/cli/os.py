"""``gnt-os`` and ``gnt-storage``: definitions of operating systems, and providers of storage.

Both are directories of scripts, whose copies on the nodes are compared by a diagnosis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.text import natural_sort_key
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options, command, opt
from ganeti.cli.run.binding import NOTHING_TO_CHANGE
from ganeti.cli.run.jobs import execute, make_opcode
from ganeti.opcodes.cluster import OpClusterSetParams
from ganeti.opcodes.query import OpExtStorageDiagnose, OpOsDiagnose

Row = Mapping[str, object]

_LIST_FIELDS: Final = "name variants hidden blacklisted valid"
_INFO_FIELDS: Final = "name valid hidden blacklisted api_versions variants parameters trusted"
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


def _by_name(value: object) -> list[tuple[str, list[object]]]:
    """Return the list under each name of a status field, in natural order."""
    found = value if isinstance(value, Mapping) else {}
    return [(name, list(found[name] or ())) for name in sorted(found, key=natural_sort_key)]


_Pairs = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a definition on a node."""

    path: str = ""
    is_usable: bool = False
    message: str = ""
    variants: Sequence[str] = ()
    parameters: _Pairs = ()
    api_versions: Sequence[int] = ()
    is_trusted: bool | None = None

    @property
    def details(self) -> str:
        """The remarks on the copy, each in brackets."""
        found = [
            ("variants: ", self.variants),
            ("parameters: ", [name for name, _text in self.parameters]),
            ("API versions: ", self.api_versions),
        ]
        texts = [f"{title}{', '.join(map(str, values))}" for title, values in found if values]
        if self.is_trusted is not None:
            texts.append("trusted" if self.is_trusted else "untrusted")
        return "".join(f" [{text}]" for text in texts)


def _show_copies(
    context: Context, statuses: object, what: str, make: Callable[..., Copy] = Copy
) -> None:
    """Print the copies on each node, which come as lists of arguments for ``make``.

    Nodes are told by UUID, as in 3.0, and at the end of the line by name.
    """
    uuids = dict(context.client.query_nodes([], ["name", "uuid"]))
    for node, found in _by_name(statuses):
        head = f"  Node: {uuids.get(node, node)},"
        if not found:
            context.write(f"{head} no {what} found ({node})")
        for position, values in enumerate(found):
            copy = make(*values) if isinstance(values, list) else Copy()
            status = "valid" if copy.is_usable else f"INVALID - {copy.message}"
            place = f"status: {status} (path: {copy.path}){copy.details}"
            context.write(f"    [hidden] {place}" if position else f"{head} {place} ({node})")
    context.write()


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


def info(context: Context, options: Options, args: list[str]) -> None:
    """Show parameters and variants of definitions."""
    rows = _definitions(context, options, _INFO_FIELDS, args)
    for row in rows:
        context.terminal.write_lines([f"{row['name']}:", *describe(row)])
        context.write()
    for name in sorted(set(args) - {row["name"] for row in rows}):
        context.write(f"{name}:")
        context.terminal.error(f"OS {name!r} is unknown; see 'gnt-os list'")
        context.write()


def _listed(title: str, values: object) -> list[str]:
    """Return the lines of a list below its key, which stands as far in as its values."""
    texts = [
        ": ".join(map(str, value)) if isinstance(value, list) else value
        for value in (values if isinstance(values, list) else ())
    ]
    return [f"  - {title}:", *(f"    - {text}" for text in texts)]


_INFO: Final = (
    ("valid", "valid"),
    ("hidden", "hidden"),
    ("blacklisted", "blacklisted"),
    ("API versions", "api_versions"),
    ("variants", "variants"),
    ("parameters", "parameters"),
    ("trusted", "trusted"),
)


def describe(row: Row) -> list[str]:
    """Return the lines about a definition, below its name."""
    lines: list[str] = []
    for title, field in _INFO:
        value = row[field]
        lines += _listed(title, value) if isinstance(value, list) else [f"  - {title}: {value}"]
    return lines


def diagnose(context: Context, options: Options, _args: list[str]) -> int:
    """Show which definitions are usable on which node, and why not."""
    rows = _definitions(context, options, _DIAGNOSE_FIELDS)
    for row in rows:
        flags = [f" [{word}]" for word in ("hidden", "blacklisted") if row[word]]
        status = "valid" if row["valid"] else "invalid"
        context.write(f"OS: {row['name']} [global status: {status}]{''.join(flags)}")
        _show_copies(context, row["node_status"], "OS")
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
        "os_hvp": {name: values for name, values in dict(options.hvparams).items() if values},
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


def _providers(context: Context, options: Options, names: Sequence[str] = ()) -> list[Row]:
    """Return the facts about some providers, or about all.

    Raises:
        OpPrereqError: no node has any.
    """
    rows = _diagnose(context, options, _PROVIDER_FIELDS, names)
    if not rows and not names:
        raise OpPrereqError(
            "no node has an external storage provider; 'gnt-cluster info' shows where they belong",
            ErrorCode.NOENT,
        )
    return rows


def _provider_copy(path: str, is_usable: bool, message: str, parameters: _Pairs) -> Copy:
    return Copy(path, is_usable, message, parameters=parameters)


def diagnose_providers(context: Context, options: Options, _args: list[str]) -> int:
    """Show which providers are usable on which node, and why not."""
    is_broken = False
    for row in _providers(context, options):
        groups = _by_name(row["nodegroup_status"])
        usable = [name for name, (is_usable, *_parameters) in groups if is_usable]
        words = f"usable in {', '.join(usable)}" if usable else "usable in no group"
        context.write(f"Provider: {row['name']} [{words}]")
        _show_copies(context, row["node_status"], "provider", _provider_copy)
        is_broken |= len(usable) < len(groups)
    return EXIT_FAILURE if is_broken else EXIT_SUCCESS


def provider_info(context: Context, options: Options, args: list[str]) -> int:
    """Show the parameters of providers, and which groups can use them."""
    rows = _providers(context, options, args)
    for row in rows:
        context.terminal.write_lines([f"{row['name']}:", *describe_provider(row)])
        context.write()
    missing = sorted(set(args) - {str(row["name"]) for row in rows})
    for name in missing:
        context.terminal.error(f"no node has an external storage provider {name!r}")
    return EXIT_FAILURE if missing else EXIT_SUCCESS


def describe_provider(row: Row) -> list[str]:
    """Return the lines about a provider, below its name."""
    groups = [name for name, status in _by_name(row["nodegroup_status"]) if status[0]]
    if not groups:
        return ["  - Invalid for all nodegroups"]
    return [
        *_listed("Valid for nodegroups", groups),
        *_listed("Supported parameters", row["parameters"]),
    ]


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
gnt-os list  # the values of gnt-instance add -o""",
        ),
        command(
            modify,
            "<os> --os-parameters --os-parameters-private CHANGE",
            opt.yes_no("--blacklisted", "whether new instances may not use it"),
            opt.yes_no("--hidden", "whether lists leave it out"),
            opt.HYPERVISORS_PARAMETERS,
            description="""These are settings of the cluster: parameters for all instances with
this definition, which an instance's own ones override.  They can be set for one variant, and for a
definition that is not there yet.  Hypervisor parameters are tried on all nodes first, and work from
the next start of an instance on; those of a hypervisor that is not enabled wait until it is.""",
            examples="""
gnt-os modify -H kvm:acpi=no old-image  # its guests start without ACPI
gnt-os modify -H kvm:acpi=default old-image  # as the cluster has it again
gnt-os modify --hidden=yes old-image  # leave it out of lists""",
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
