"""``gnt-group`` add, assign-nodes, evacuate, modify, remove and rename."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.cli.command import ArgKind, Options, job, opt
from ganeti.cli.policy import ipolicy_of
from ganeti.cli.run.binding import show_changes
from ganeti.cli.run.jobs import follow_moves
from ganeti.opcodes import group


def settings_of(options: Options) -> Mapping[str, object]:
    """Return the settings that are lists of others; without any nothing is to change."""
    return {"diskparams": options.diskparams or {}, **ipolicy_of(options)}


_PARAMETERS = (
    "--disk-parameters --disk-state --hypervisor-state --node-parameters IPOLICY CHANGE",
    opt.option(
        "--alloc-policy=POLICY",
        "preferred, last_resort or unallocable: whether new instances go there",
        str,
    ),
)
COMMANDS: Final = (
    job(
        "add: make a group",
        group.OpGroupAdd,
        "<group>@nothing",
        _PARAMETERS,
        makes=ipolicy_of,
        examples="""
gnt-group add rack2  # a group without nodes yet""",
    ),
    job(
        "assign-nodes: put nodes into a group",
        group.OpGroupAssignNodes,
        "<group> [<node>...]=nodes --force CHANGE",
        examples="""
gnt-group assign-nodes rack2 node4 node5  # move two nodes there""",
    ),
    job(
        "evacuate: move all instances out of a group",
        group.OpGroupEvacuate,
        "<group> --early-release --iallocator --print-jobid --submit --to",
        opt.flag("--force-failover", "fail over, do not migrate"),
        opt.flag("--sequential", "one instance after the other"),
        result=follow_moves,
    ),
    job(
        "modify: change a group",
        group.OpGroupSetParams,
        "<group>",
        _PARAMETERS,
        makes=settings_of,
        result=show_changes,
        examples="""
gnt-group modify --alloc-policy=last_resort rack2  # new instances go elsewhere
gnt-group modify --node-parameters spindle_count=4 rack2  # a default of its nodes""",
    ),
    job("remove: remove an empty group", group.OpGroupRemove, "<group> CHANGE"),
    job(
        "rename: rename a group",
        group.OpGroupRename,
        "CHANGE",
        opt.Argument(ArgKind.GROUP, 2, 2, dest="group_name new_name"),
    ),
)
