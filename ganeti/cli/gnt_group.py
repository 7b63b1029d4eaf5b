"""``gnt-group``: groups of nodes."""

from __future__ import annotations

from ganeti.cli.declaration import common as opt
from ganeti.cli.declaration.program import (
    Action,
    ArgKind,
    Argument,
    Command,
    Option,
    Program,
    flag,
)

_NEW_GROUP = (Argument(ArgKind.GROUP, metavar="<group>"),)
_PARAMETERS = (
    Option(
        ("--alloc-policy",),
        "preferred, last_resort or unallocable: whether new instances go there",
        metavar="POLICY",
    ),
    opt.DISK_PARAMETERS,
    opt.DISK_STATE,
    opt.HYPERVISOR_STATE,
    *opt.IPOLICY_GROUP,
    opt.NODE_PARAMETERS,
    *opt.CHANGE,
)

PROGRAM = Program(
    "gnt-group",
    "manage node groups",
    """Every node belongs to one group; groups have policies and parameters of their own.  Runs on
the master node.""",
    (
        Command("add", "make a group", "group:add", _NEW_GROUP, _PARAMETERS),
        Command(
            "add-tags",
            "give a group tags",
            "tags:add_group",
            (*opt.ONE_GROUP, opt.ANY_TAGS),
            (opt.TAGS_FROM, *opt.SUBMISSION),
        ),
        Command(
            "assign-nodes",
            "put nodes into a group",
            "group:assign_nodes",
            (Argument(ArgKind.GROUP), Argument(ArgKind.NODE, 0, None)),
            (opt.FORCE, *opt.CHANGE),
        ),
        Command(
            "evacuate",
            "move all instances out of a group",
            "group:evacuate",
            opt.ONE_GROUP,
            (
                opt.EARLY_RELEASE,
                flag("--force-failover", help="fail over, do not migrate"),
                opt.IALLOCATOR,
                opt.PRINT_JOB_ID,
                flag("--sequential", help="one instance after the other"),
                opt.SUBMIT,
                Option(
                    ("--to",),
                    "group to move to",
                    action=Action.APPEND,
                    metavar="<group>",
                    completes=ArgKind.GROUP,
                ),
            ),
        ),
        Command("info", "show groups", "group:info", opt.ANY_GROUPS),
        Command(
            "list",
            "list groups",
            "lists:groups",
            opt.ANY_GROUPS,
            (opt.FORCE_FILTER, *opt.LISTING),
        ),
        Command(
            "list-fields",
            "list the fields of groups",
            "lists:group_fields",
            opt.ANY_FIELDS,
            opt.FIELD_LISTING,
        ),
        Command("list-tags", "list a group's tags", "tags:list_group", opt.ONE_GROUP),
        Command("modify", "change a group", "group:modify", opt.ONE_GROUP, _PARAMETERS),
        Command("remove", "remove an empty group", "group:remove", opt.ONE_GROUP, opt.CHANGE),
        Command(
            "remove-tags",
            "take tags from a group",
            "tags:remove_group",
            (*opt.ONE_GROUP, opt.ANY_TAGS),
            (opt.TAGS_FROM, *opt.SUBMISSION),
        ),
        Command(
            "rename",
            "rename a group",
            "group:rename",
            (Argument(ArgKind.GROUP, 2, 2),),
            opt.CHANGE,
        ),
        Command(
            "show-ispecs-cmd",
            "show the command line that would recreate a group's instance policy",
            "policy:show_of_groups",
            opt.ANY_GROUPS,
            (flag("--include-defaults", help="with what comes from the cluster"),),
        ),
    ),
    {"list": "GNT_GROUP_LIST"},
)


def main() -> int:
    """Run ``gnt-group`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM)
