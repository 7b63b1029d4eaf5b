"""``gnt-node``: nodes."""

from __future__ import annotations

from ganeti.cli.declaration import common as opt
from ganeti.cli.declaration.program import (
    ArgKind,
    Argument,
    Command,
    Option,
    Program,
    flag,
    unflag,
    with_help,
)
from ganeti.cli.declaration.values import ValueType

_SECONDARY_IP = Option(
    ("-s", "--secondary-ip"), "address in the replication network", metavar="ADDRESS"
)
_NEW_SECONDARY = Option(
    ("-n", "--new-secondary"),
    "the node that the instances move to, or their new secondary node",
    metavar="NODE",
    completes=ArgKind.NODE,
)


def _yes_no(*flags: str, help: str, dest: str = "") -> Option:
    return Option(flags, help, type=ValueType.BOOL, metavar="yes|no", dest=dest)


_MASTER_CAPABLE = _yes_no("--master-capable", help="whether it may become a master candidate")
_VM_CAPABLE = _yes_no("--vm-capable", help="whether it may run instances")
_AUTO_PROMOTE = flag(
    "--auto-promote", help="make other nodes master candidates where this one ceases to be one"
)

_MEMBERSHIP = (
    Command(
        "add",
        "take a node into the cluster",
        "node.add:add",
        (Argument(ArgKind.HOST, metavar="<node>"),),
        (
            opt.DISK_STATE,
            flag("--force-join", help="take it even if it belongs to another cluster"),
            opt.HYPERVISOR_STATE,
            _MASTER_CAPABLE,
            unflag("--no-node-setup", help="do not set up SSH keys on the node", dest="node_setup"),
            opt.NO_SSH_KEY_CHECK,
            with_help(opt.NODE_GROUP, "group to put it in"),
            opt.NODE_PARAMETERS,
            opt.PRIORITY,
            flag("--readd", help="set a known node up again, after repair or reinstallation"),
            _SECONDARY_IP,
            opt.VERBOSE,
            _VM_CAPABLE,
        ),
        description="""The node is reached by SSH as root (nodes of a virtual cluster directly),
gets the cluster's certificate and starts its node daemon; then it is added to the
configuration.""",
        examples=(("gnt-node add node2.example.com", "add node2"),),
    ),
    Command(
        "remove",
        "take a node out of the cluster",
        "node.modify:remove",
        opt.ONE_NODE,
        (opt.DRY_RUN, opt.PRIORITY),
        examples=(("gnt-node remove node2", "node2 must have no instances left"),),
    ),
    Command(
        "modify",
        "change flags and parameters of a node",
        "node.modify:modify",
        opt.ONE_NODE,
        (
            _AUTO_PROMOTE,
            opt.DISK_STATE,
            _yes_no("-D", "--drained", help="whether new instances are kept away from it"),
            opt.FORCE,
            opt.HYPERVISOR_STATE,
            _yes_no("-C", "--master-candidate", help="whether it is a master candidate"),
            _MASTER_CAPABLE,
            opt.NODE_PARAMETERS,
            _yes_no("--node-powered", help="whether it is powered, as recorded"),
            _yes_no("-O", "--offline", help="whether it is left alone because it is broken"),
            _SECONDARY_IP,
            _VM_CAPABLE,
            *opt.CHANGE,
        ),
        examples=(
            ("gnt-node modify --offline yes node3", "node3 is broken: do not talk to it"),
            ("gnt-node modify -C no node2", "node2 is no longer a master candidate"),
        ),
    ),
)

_SHOW = (
    Command(
        "list",
        "list nodes",
        "lists:nodes",
        opt.ANY_NODES,
        (opt.FORCE_FILTER, opt.UNITS, *opt.LISTING),
        description="""The arguments are names, patterns with * and ?, or one filter.  The fields
are named by 'gnt-node list-fields'.""",
        examples=(
            ("gnt-node list", "all nodes"),
            ("gnt-node list -o name,role,pip", "some fields"),
            ("gnt-node list 'master_candidate and not offline'", "a filter"),
        ),
    ),
    Command(
        "list-fields",
        "list the fields of nodes",
        "lists:node_fields",
        opt.ANY_FIELDS,
        opt.FIELD_LISTING,
    ),
    Command("info", "show nodes", "node.info:info", opt.ANY_NODES, (), aliases=("show",)),
    Command("list-tags", "list a node's tags", "tags:list_node", opt.ONE_NODE),
    Command(
        "add-tags",
        "give a node tags",
        "tags:add_node",
        (*opt.ONE_NODE, opt.ANY_TAGS),
        (opt.TAGS_FROM, *opt.SUBMISSION),
    ),
    Command(
        "remove-tags",
        "take tags from a node",
        "tags:remove_node",
        (*opt.ONE_NODE, opt.ANY_TAGS),
        (opt.TAGS_FROM, *opt.SUBMISSION),
    ),
)

_INSTANCES_OF_NODE = (
    Command(
        "evacuate",
        "move instances away from a node",
        "node.leaving:evacuate",
        opt.ONE_NODE,
        (
            opt.EARLY_RELEASE,
            opt.FORCE,
            opt.IALLOCATOR,
            flag("--ignore-soft-errors", help="ignore advice of the allocator"),
            _NEW_SECONDARY,
            flag("-p", "--primary-only", help="only instances whose primary it is"),
            flag("-s", "--secondary-only", help="only instances whose secondary it is"),
            *opt.SUBMISSION,
        ),
    ),
    Command(
        "failover",
        "fail over all instances of a node",
        "node.leaving:failover",
        opt.ONE_NODE,
        (opt.FORCE, opt.IALLOCATOR, opt.IGNORE_CONSISTENCY, opt.PRIORITY, opt.TARGET_NODE),
    ),
    Command(
        "migrate",
        "migrate all instances of a node",
        "node.leaving:migrate",
        opt.ONE_NODE,
        (
            opt.FORCE,
            opt.IALLOCATOR,
            opt.IGNORE_IPOLICY,
            opt.MIGRATION_MODE,
            opt.NO_RUNTIME_CHANGES,
            opt.NON_LIVE,
            *opt.SUBMISSION,
            opt.TARGET_NODE,
        ),
    ),
    Command(
        "list-drbd",
        "list the DRBD devices of a node",
        "node.drbd:list_drbd",
        opt.ONE_NODE,
        opt.FIELD_LISTING,
    ),
    Command(
        "volumes",
        "list logical volumes",
        "node.storage:volumes",
        opt.ANY_NODES,
        (opt.NO_HEADERS, opt.FIELDS, opt.PRIORITY, opt.SEPARATOR, opt.UNITS),
    ),
)

_STORAGE = (
    Command(
        "list-storage",
        "list storage units",
        "node.storage:list_storage",
        opt.ANY_NODES,
        (
            opt.NO_HEADERS,
            opt.FIELDS,
            opt.PRIORITY,
            opt.SEPARATOR,
            Option(
                ("-t", "--storage-type"),
                "kind of storage",
                type=ValueType.CHOICE,
                metavar="STORAGE_TYPE",
                choices=("file", "lvm-pv", "lvm-vg", "sharedfile", "gluster"),
            ),
            opt.UNITS,
        ),
    ),
    Command(
        "modify-storage",
        "change a storage unit",
        "node.storage:modify_storage",
        (
            Argument(ArgKind.NODE),
            Argument(ArgKind.CHOICE, choices=("lvm-pv",)),
            Argument(ArgKind.FILE),
        ),
        (_yes_no("--allocatable", help="whether disks may be put there"), *opt.CHANGE),
    ),
    Command(
        "repair-storage",
        "repair a storage unit",
        "node.storage:repair_storage",
        (
            Argument(ArgKind.NODE),
            Argument(ArgKind.CHOICE, choices=("lvm-vg",)),
            Argument(ArgKind.FILE),
        ),
        (opt.IGNORE_CONSISTENCY, *opt.CHANGE),
    ),
)

_POWER = (
    Command(
        "health",
        "ask the out-of-band helper for the health of nodes",
        "node.power:health",
        opt.ANY_NODES,
        (opt.NO_HEADERS, opt.OOB_TIMEOUT, opt.PRIORITY, opt.SEPARATOR),
    ),
    Command(
        "power",
        "switch nodes on and off by the out-of-band helper",
        "node.power:power",
        (
            Argument(ArgKind.CHOICE, choices=("cycle", "off", "on", "status")),
            Argument(ArgKind.NODE, 0, None),
        ),
        (
            _AUTO_PROMOTE,
            opt.FORCE,
            flag("--ignore-status", help="switch even a node that is not offline"),
            opt.NO_HEADERS,
            opt.OOB_TIMEOUT,
            opt.POWER_DELAY,
            opt.SEPARATOR,
            *opt.SUBMISSION,
        ),
    ),
    Command(
        "powercycle",
        "restart a node's machine at once",
        "node.power:powercycle",
        opt.ONE_NODE,
        (opt.FORCE, flag("--yes", help="do not ask", dest="confirm"), *opt.CHANGE),
    ),
    Command(
        "restricted-command",
        "run a command that nodes allow",
        "node.power:restricted_command",
        (Argument(ArgKind.TEXT, metavar="<command>"), Argument(ArgKind.NODE, 0, None)),
        (
            opt.NODE_GROUP,
            flag("-M", "--show-machine-names", help="put the node's name before each line"),
            flag("--sync", help="run while nothing else changes the nodes"),
            *opt.SUBMISSION,
        ),
    ),
)

PROGRAM = Program(
    "gnt-node",
    "manage nodes",
    """Adds machines to the cluster, changes, shows and removes them.  Runs on the master
node.""",
    tuple(
        sorted(
            (*_MEMBERSHIP, *_SHOW, *_INSTANCES_OF_NODE, *_STORAGE, *_POWER),
            key=lambda command: command.name,
        )
    ),
    {"list": "GNT_NODE_LIST"},
)


def main() -> int:
    """Run ``gnt-node`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM)
