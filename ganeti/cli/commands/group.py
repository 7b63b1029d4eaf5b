"""``gnt-group`` add, assign-nodes, evacuate, info, modify, remove and rename."""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.cli.commands.cluster.parameters import by_name, ipolicy_of
from ganeti.cli.commands.instance.modify import show_changes
from ganeti.cli.commands.instance.parameters import unset_as_default
from ganeti.cli.commands.node.add import disk_state
from ganeti.cli.commands.node.info import parameters
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.jobs import execute, follow_moves, make_opcode
from ganeti.cli.run.report import Facts, format_report

_FIELDS: Final = (
    "name",
    "uuid",
    "alloc_policy",
    "ndparams",
    "custom_ndparams",
    "diskparams",
    "ipolicy",
    "node_list",
    "pinst_cnt",
    "tags",
)


def _parameters(options: Options) -> dict[str, object]:
    return {
        "alloc_policy": options.alloc_policy,
        "ndparams": unset_as_default(options.ndparams) if options.ndparams else None,
        "diskparams": by_name("disk template", options.diskparams) or None,
        "ipolicy": ipolicy_of(options) or None,
        "hv_state": dict(options.hv_state) or None,
        "disk_state": disk_state(options.disk_state) or None,
    }


def add(context: Context, options: Options, args: list[str]) -> int:
    """Make a group."""
    opcode = make_opcode("OP_GROUP_ADD", group_name=args[0], **_parameters(options))
    execute(context, options, opcode)
    return EXIT_SUCCESS


def modify(context: Context, options: Options, args: list[str]) -> int:
    """Change a group."""
    [name] = args
    wanted = _parameters(options)
    if all(value is None for value in wanted.values()):
        raise OpPrereqError("nothing to change; give at least one option")
    opcode = make_opcode("OP_GROUP_SET_PARAMS", group_name=name, **wanted)
    [result] = execute(context, options, opcode)
    show_changes(context, f"Modified group {name}", result)
    return EXIT_SUCCESS


def assign_nodes(context: Context, options: Options, args: list[str]) -> int:
    """Put nodes into a group."""
    name, *nodes = args
    if not nodes:
        raise OpPrereqError("no nodes given")
    opcode = make_opcode("OP_GROUP_ASSIGN_NODES", group_name=name, nodes=nodes, force=options.force)
    execute(context, options, opcode)
    return EXIT_SUCCESS


def remove(context: Context, options: Options, args: list[str]) -> int:
    """Remove an empty group."""
    execute(context, options, make_opcode("OP_GROUP_REMOVE", group_name=args[0]))
    return EXIT_SUCCESS


def rename(context: Context, options: Options, args: list[str]) -> int:
    """Rename a group."""
    name, new_name = args
    execute(context, options, make_opcode("OP_GROUP_RENAME", group_name=name, new_name=new_name))
    return EXIT_SUCCESS


def info(context: Context, _options: Options, args: list[str]) -> int:
    """Show groups."""
    rows = context.client.query_groups(args, _FIELDS)
    unknown = set(args) - {str(row[0]) for row in rows} - {str(row[1]) for row in rows}
    if unknown:
        raise OpPrereqError(f"no such group: {', '.join(sorted(unknown))}", ErrorCode.NOENT)
    facts = []
    for row in rows:
        group = dict(zip(_FIELDS, row, strict=True))
        filled = group["ndparams"] if isinstance(group["ndparams"], dict) else {}
        facts.append(
            Facts(
                [
                    ("Group name", group["name"]),
                    ("UUID", group["uuid"]),
                    ("allocation policy", group["alloc_policy"]),
                    ("nodes", group["node_list"] or []),
                    ("primary instances", group["pinst_cnt"]),
                    ("tags", group["tags"] or []),
                    ("node parameters", parameters(filled, group["custom_ndparams"])),
                    ("disk parameters", group["diskparams"]),
                    ("instance policy", group["ipolicy"]),
                ]
            )
        )
    context.terminal.write_lines(format_report(facts))
    return EXIT_SUCCESS


def evacuate(context: Context, options: Options, args: list[str]) -> int:
    """Move all instances out of a group."""
    opcode = make_opcode(
        "OP_GROUP_EVACUATE",
        group_name=args[0],
        early_release=options.early_release,
        iallocator=options.iallocator,
        target_groups=list(options.to) or None,
        sequential=options.sequential,
        force_failover=options.force_failover,
    )
    [result] = execute(context, options, opcode)
    return follow_moves(context, result)
