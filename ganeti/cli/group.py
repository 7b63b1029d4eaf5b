"""``gnt-group`` add, assign-nodes, evacuate, info, modify, remove and rename."""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.cli.command import ArgKind, Command, Context, Options, command, opt
from ganeti.cli.node.info import parameters
from ganeti.cli.policy import ipolicy_of
from ganeti.cli.run.binding import show_changes
from ganeti.cli.run.jobs import follow_moves
from ganeti.cli.run.report import Facts, format_report
from ganeti.opcodes.group import (
    OpGroupAdd,
    OpGroupAssignNodes,
    OpGroupEvacuate,
    OpGroupRemove,
    OpGroupRename,
    OpGroupSetParams,
)

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


def info(context: Context, _options: Options, args: list[str]) -> None:
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


_PARAMETERS = (
    opt.option(
        "--alloc-policy",
        "preferred, last_resort or unallocable: whether new instances go there",
        str,
        metavar="POLICY",
    ),
    opt.DISK_PARAMETERS,
    opt.DISK_STATE,
    opt.HYPERVISOR_STATE,
    *opt.IPOLICY_GROUP,
    opt.NODE_PARAMETERS,
    *opt.CHANGE,
)
_NEW_GROUP = (opt.Argument(ArgKind.GROUP, metavar="<group>"),)
COMMANDS: Final = (
    Command("add", "make a group", OpGroupAdd, _NEW_GROUP, _PARAMETERS, makes=ipolicy_of),
    Command(
        "assign-nodes",
        "put nodes into a group",
        OpGroupAssignNodes,
        (opt.Argument(ArgKind.GROUP), opt.Argument(ArgKind.NODE, 0, None, dest="nodes")),
        (opt.FORCE, *opt.CHANGE),
    ),
    Command(
        "evacuate",
        "move all instances out of a group",
        OpGroupEvacuate,
        opt.ONE_GROUP,
        (
            opt.EARLY_RELEASE,
            opt.flag("--force-failover", "fail over, do not migrate"),
            opt.IALLOCATOR,
            opt.PRINT_JOB_ID,
            opt.flag("--sequential", "one instance after the other"),
            opt.SUBMIT,
            opt.several(
                "--to",
                "group to move to",
                metavar="<group>",
                dest="target_groups",
                completes=ArgKind.GROUP,
            ),
        ),
        result=follow_moves,
    ),
    command(info, opt.ANY_GROUPS),
    Command(
        "modify",
        "change a group",
        OpGroupSetParams,
        opt.ONE_GROUP,
        _PARAMETERS,
        makes=ipolicy_of,
        changes=True,
        result=show_changes,
    ),
    Command("remove", "remove an empty group", OpGroupRemove, opt.ONE_GROUP, opt.CHANGE),
    Command(
        "rename",
        "rename a group",
        OpGroupRename,
        (opt.Argument(ArgKind.GROUP, 2, 2, dest="group_name new_name"),),
        opt.CHANGE,
    ),
)
