"""``gnt-node info``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.cli.command import Context, Options, command
from ganeti.cli.run.listing import rows_of_nodes
from ganeti.cli.run.report import Facts, format_report

FIELDS: Final = (
    "name",
    "pip",
    "sip",
    "pinst_list",
    "sinst_list",
    "master_candidate",
    "drained",
    "offline",
    "master_capable",
    "vm_capable",
    "powered",
    "ndparams",
    "custom_ndparams",
)


def info(context: Context, _options: Options, args: list[str]) -> None:
    """Show nodes."""
    rows = rows_of_nodes(context, args, FIELDS)
    facts = [describe(dict(zip(FIELDS, row, strict=True))) for row in rows]
    context.terminal.write_lines(format_report(facts))


def describe(node: Mapping[str, object]) -> Facts:
    """Return what is shown of a node."""
    facts = Facts(
        [
            ("Node name", node["name"]),
            ("primary ip", node["pip"]),
            ("secondary ip", node["sip"]),
            ("master candidate", node["master_candidate"]),
            ("drained", node["drained"]),
            ("offline", node["offline"]),
            ("master_capable", node["master_capable"]),
            ("vm_capable", node["vm_capable"]),
        ]
    )
    if node["powered"] is not None:
        facts.append(("powered", node["powered"]))
    if node["vm_capable"]:
        facts.append(("primary for instances", node["pinst_list"] or []))
        facts.append(("secondary for instances", node["sinst_list"] or []))
    filled, own = node["ndparams"], node["custom_ndparams"]
    if isinstance(filled, Mapping):
        facts.append(("node parameters", parameters(filled, own)))
    return facts


def parameters(filled: Mapping[str, object], own: object) -> Facts:
    """Return filled parameters; those that are not an own value are marked as defaults."""
    own_values = own if isinstance(own, Mapping) else {}
    return Facts(
        (str(name), filled[name] if name in own_values else f"default ({filled[name]})")
        for name in sorted(filled)
    )


COMMANDS: Final = (command(info, "[<node>...]", aliases=("show",)),)
