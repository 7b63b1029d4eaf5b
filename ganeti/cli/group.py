"""``gnt-group`` add, assign-nodes, evacuate, info, modify, remove and rename."""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.cli.command import ArgKind, Context, Options, command, job, opt
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
    "<group> --disk-parameters --disk-state --hypervisor-state --node-parameters IPOLICY CHANGE",
    opt.option(
        "--alloc-policy=POLICY",
        "preferred, last_resort or unallocable: whether new instances go there",
        str,
    ),
)
COMMANDS: Final = (
    job("add: make a group", OpGroupAdd, _PARAMETERS, makes=ipolicy_of),
    job(
        "assign-nodes: put nodes into a group",
        OpGroupAssignNodes,
        "<group> [<node>...]=nodes --force CHANGE",
    ),
    job(
        "evacuate: move all instances out of a group",
        OpGroupEvacuate,
        "<group> --early-release --iallocator --print-jobid --submit --to",
        opt.flag("--force-failover", "fail over, do not migrate"),
        opt.flag("--sequential", "one instance after the other"),
        result=follow_moves,
    ),
    command(info, "[<group>...]"),
    job(
        "modify: change a group",
        OpGroupSetParams,
        _PARAMETERS,
        makes=ipolicy_of,
        changes=True,
        result=show_changes,
    ),
    job("remove: remove an empty group", OpGroupRemove, "<group> CHANGE"),
    job(
        "rename: rename a group",
        OpGroupRename,
        "CHANGE",
        opt.Argument(ArgKind.GROUP, 2, 2, dest="group_name new_name"),
    ),
)
