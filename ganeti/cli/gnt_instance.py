"""``gnt-instance``: virtual machines."""

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

_HOST = (Argument(ArgKind.HOST, metavar="<instance>"),)
_NEW_SECONDARY = Option(
    ("-n", "--new-secondary"), "the new secondary node", metavar="NODE", completes=ArgKind.NODE
)
_TO_GROUP = Option(
    ("--to",),
    "group to move to",
    action=opt.NODES.action,
    metavar="<group>",
    completes=ArgKind.GROUP,
)
_COMMUNICATION = Option(
    ("-c", "--communication"),
    "give the instance the internal communication interface",
    type=ValueType.BOOL,
    metavar="INSTANCE_COMMUNICATION",
    dest="instance_communication",
)
_NO_REMEMBER = flag("--no-remember", help="do not record the new state in the configuration")
_IGNORE_OFFLINE = flag("--ignore-offline", help="go on when the node is offline: only record it")
_MULTI = opt.multi_instance_options()
_MULTI_TEXT = """Without an option that says otherwise, the arguments are names of instances.  When
more than one instance is meant, the command lists them and asks first, unless --force-multiple is
given."""

_ADD = Command(
    "add",
    "create an instance, install its operating system and start it",
    "instance.add:add",
    _HOST,
    (
        opt.BACKEND_PARAMETERS,
        flag(
            "--commit",
            help="make a forthcoming instance; what is left out is as it was planned",
        ),
        _COMMUNICATION,
        opt.DISK,
        opt.DISK_TEMPLATE,
        opt.DRY_RUN,
        opt.FILE_DRIVER,
        opt.FILE_STORAGE_DIR,
        opt.FORCE_VARIANT,
        flag("--forthcoming", help="only plan it: keep its name, node and addresses"),
        opt.HELPER_SHUTDOWN_TIMEOUT,
        opt.HELPER_STARTUP_TIMEOUT,
        opt.HYPERVISOR_AND_PARAMETERS,
        opt.IALLOCATOR,
        opt.IGNORE_IPOLICY,
        opt.NET,
        opt.NO_CONFLICTS_CHECK,
        flag("--no-install", help="do not run the operating system's create script"),
        opt.NO_IP_CHECK,
        opt.NO_NAME_CHECK,
        opt.NO_NICS,
        unflag("--no-start", help="do not start it", dest="start"),
        opt.NO_WAIT_FOR_SYNC,
        opt.NODE_PAIR,
        with_help(opt.NODE_GROUP, "node group to put it in"),
        opt.OPPORTUNISTIC_LOCKING,
        opt.OS_PARAMETERS,
        opt.OS_PARAMETERS_PRIVATE,
        opt.OS_PARAMETERS_SECRET,
        opt.OS_SIZE,
        opt.OS_TYPE,
        *opt.SUBMISSION,
        opt.TAGS,
    ),
    description="""The name must resolve, and nobody may answer at its address, unless
--no-name-check and --no-ip-check are given.  Disks are numbered from 0; sizes are MiB unless they
end in g or t.  One network interface is made unless --net or --no-nics is given.""",
    examples=(
        (
            "gnt-instance add -t file -s 1g -o debootstrap+default -n node1 web1.example.com",
            "one disk of 1 GiB in a file on node1",
        ),
        (
            (
                "gnt-instance add -t sharedfile --disk 0:size=10g --disk 1:size=512,name=swap "
                "-B memory=1g,vcpus=2 -o test -n node1 db1.example.com"
            ),
            "two disks, 1 GiB of memory, two CPUs",
        ),
        (
            "gnt-instance add -t diskless -H fake -o test --no-name-check --no-ip-check -n node2 x",
            "no disks; a name that no name server knows",
        ),
    ),
)

_MODIFY = Command(
    "modify",
    "change an instance",
    "instance.modify:modify",
    opt.ONE_INSTANCE,
    (
        opt.BACKEND_PARAMETERS,
        _COMMUNICATION,
        opt.DISK,
        opt.DISK_TEMPLATE,
        opt.DRY_RUN,
        Option(
            ("-e", "--ext-params"),
            "parameters for the conversion to external storage",
            type=ValueType.KEYVAL,
            metavar="EXT_PARAMS",
            default={},
        ),
        opt.FILE_DRIVER,
        opt.FILE_STORAGE_DIR,
        opt.FORCE,
        opt.FORCE_VARIANT,
        flag("--hotplug", help="change devices of the running instance, or fail"),
        flag("--hotplug-if-possible", help="change devices of the running instance where it can"),
        opt.INSTANCE_HYPERVISOR_PARAMETERS,
        opt.IALLOCATOR,
        opt.IGNORE_IPOLICY,
        opt.NET,
        Option(
            ("--new-primary",), "the new primary node", metavar="<node>", completes=ArgKind.NODE
        ),
        opt.NO_CONFLICTS_CHECK,
        opt.NO_WAIT_FOR_SYNC,
        with_help(opt.NODE, "the new secondary node"),
        flag("--offline", help="mark the instance as offline: never to be started"),
        flag("--online", help="mark an offline instance as down"),
        opt.OS_PARAMETERS,
        opt.OS_PARAMETERS_PRIVATE,
        opt.OS_TYPE,
        *opt.SUBMISSION,
        Option(
            ("-m", "--runtime-memory"),
            "memory of the running guest",
            type=ValueType.UNIT,
            metavar="<size>",
        ),
    ),
)

_LIFE = (
    Command(
        "startup",
        "start instances",
        "instance.life:startup",
        opt.ANY_INSTANCES,
        (
            opt.BACKEND_PARAMETERS,
            opt.FORCE,
            opt.INSTANCE_HYPERVISOR_PARAMETERS,
            _IGNORE_OFFLINE,
            _NO_REMEMBER,
            flag("--paused", help="start it, but let it wait", dest="startup_paused"),
            *opt.CHANGE,
            *_MULTI,
        ),
        aliases=("start",),
        description=_MULTI_TEXT,
        examples=(
            ("gnt-instance startup web1 web2", "start two instances"),
            ("gnt-instance startup --node node3", "start all instances of a node"),
        ),
    ),
    Command(
        "shutdown",
        "stop instances",
        "instance.life:shutdown",
        opt.ANY_INSTANCES,
        (
            opt.FORCE,
            _IGNORE_OFFLINE,
            _NO_REMEMBER,
            Option(
                ("--timeout",),
                "seconds that the guest gets to shut down by itself",
                type=ValueType.INT,
                metavar="TIMEOUT",
                default=120,
            ),
            *opt.CHANGE,
            *_MULTI,
        ),
        aliases=("stop",),
        description=_MULTI_TEXT,
        examples=(
            ("gnt-instance shutdown --timeout=10 web1", "wait ten seconds, then pull the plug"),
        ),
    ),
    Command(
        "reboot",
        "restart instances",
        "instance.life:reboot",
        opt.ANY_INSTANCES,
        (
            flag("--ignore-secondaries", help="go on when secondary disks cannot be opened"),
            opt.SHUTDOWN_TIMEOUT,
            Option(
                ("-t", "--type"),
                "soft: inside the hypervisor; hard: stop and start; full: with its disks",
                type=ValueType.CHOICE,
                metavar="<REBOOT>",
                choices=("soft", "full", "hard"),
                default="hard",
                dest="reboot_type",
            ),
            *opt.CHANGE,
            *_MULTI,
        ),
        description=_MULTI_TEXT,
    ),
)

_MOVES = (
    Command(
        "failover",
        "stop an instance and start it on another node",
        "instance.move:failover",
        opt.ONE_INSTANCE,
        (
            flag("--cleanup", help="put right what a failed failover left"),
            opt.FORCE,
            opt.IALLOCATOR,
            opt.IGNORE_CONSISTENCY,
            opt.IGNORE_IPOLICY,
            opt.SHUTDOWN_TIMEOUT,
            opt.TARGET_NODE,
            *opt.CHANGE,
        ),
        examples=(("gnt-instance failover -n node2 web1", "start web1 on node2"),),
    ),
    Command(
        "migrate",
        "move a running instance to another node",
        "instance.move:migrate",
        opt.ONE_INSTANCE,
        (
            flag("--allow-failover", help="fail over instead where migration is not possible"),
            flag("--cleanup", help="put right what a failed migration left"),
            opt.FORCE,
            opt.IALLOCATOR,
            flag("--ignore-hvversions", help="go on between different hypervisor versions"),
            opt.IGNORE_IPOLICY,
            opt.MIGRATION_MODE,
            opt.NO_RUNTIME_CHANGES,
            opt.NON_LIVE,
            opt.TARGET_NODE,
            *opt.CHANGE,
        ),
        examples=(
            ("gnt-instance migrate -f -n node2 web1", "move web1 to node2 while it runs"),
            ("gnt-instance migrate --cleanup web1", "find out where web1 runs and record that"),
        ),
    ),
    Command(
        "move",
        "copy an instance to another node and run it there",
        "instance.move:move",
        opt.ONE_INSTANCE,
        (
            opt.COMPRESS,
            opt.FORCE,
            opt.IGNORE_CONSISTENCY,
            opt.IGNORE_IPOLICY,
            with_help(opt.NODE, "the node to move to"),
            opt.SHUTDOWN_TIMEOUT,
            *opt.CHANGE,
        ),
    ),
    Command(
        "change-group",
        "move an instance to another node group",
        "instance.move:change_group",
        opt.ONE_INSTANCE,
        (opt.EARLY_RELEASE, opt.IALLOCATOR, *opt.SUBMISSION, _TO_GROUP),
    ),
)

_DISKS = (
    Command(
        "activate-disks",
        "make an instance's disks usable on its node",
        "instance.disks:activate",
        opt.ONE_INSTANCE,
        (
            flag("--ignore-size", help="do not compare with the recorded size"),
            *opt.SUBMISSION,
            flag("--wait-for-sync", help="wait until the disks are in step"),
        ),
    ),
    Command(
        "deactivate-disks",
        "put an instance's disks to rest",
        "instance.disks:deactivate",
        opt.ONE_INSTANCE,
        (opt.FORCE, *opt.CHANGE),
    ),
    Command(
        "grow-disk",
        "make a disk larger",
        "instance.disks:grow",
        (
            Argument(ArgKind.INSTANCE),
            Argument(ArgKind.TEXT, metavar="<disk>"),
            Argument(ArgKind.TEXT, metavar="<size>"),
        ),
        (
            flag("--absolute", help="the size is the new size, not what to add"),
            opt.IGNORE_IPOLICY,
            opt.NO_WAIT_FOR_SYNC,
            *opt.CHANGE,
        ),
    ),
    Command(
        "recreate-disks",
        "make an instance's lost disks anew, empty",
        "instance.disks:recreate",
        opt.ONE_INSTANCE,
        (
            with_help(opt.DISK, "only this disk, perhaps changed"),
            opt.IALLOCATOR,
            with_help(opt.NODE_PAIR, "nodes to make them on"),
            *opt.CHANGE,
        ),
    ),
    Command(
        "replace-disks",
        "replace a mirrored disk",
        "instance.disks:replace",
        opt.ONE_INSTANCE,
        (
            flag("-a", "--auto", help="find out which disks are broken"),
            Option(("--disks",), "numbers of the disks, separated by commas", metavar="DISKS"),
            opt.EARLY_RELEASE,
            opt.IALLOCATOR,
            opt.IGNORE_IPOLICY,
            _NEW_SECONDARY,
            flag("-p", "--on-primary", help="replace the disks on the primary node"),
            flag("-s", "--on-secondary", help="replace the disks on the secondary node"),
            *opt.CHANGE,
        ),
    ),
)

_SHOW = (
    Command(
        "list",
        "list instances",
        "lists:instances",
        opt.ANY_INSTANCES,
        (opt.FORCE_FILTER, opt.UNITS, *opt.LISTING),
        description="""The arguments are names, patterns with * and ?, or one filter.  The fields
are named by 'gnt-instance list-fields'.""",
        examples=(
            ("gnt-instance list", "all instances"),
            ("gnt-instance list -o +be/vcpus,tags 'web*'", "more fields, some instances"),
            ("""gnt-instance list 'pnode == "node1" and not admin_up'""", "a filter"),
        ),
    ),
    Command(
        "list-fields",
        "list the fields of instances",
        "lists:instance_fields",
        opt.ANY_FIELDS,
        opt.FIELD_LISTING,
    ),
    Command(
        "info",
        "show everything about instances",
        "instance.info:info",
        opt.ANY_INSTANCES,
        (
            flag("--all", help="all instances (slow on large clusters)", dest="show_all"),
            opt.PRIORITY,
            flag("--roman", help="show some numbers the Roman way"),
            flag("-s", "--static", help="only what the configuration says; asks no node"),
        ),
        aliases=("show",),
        examples=(("gnt-instance info web1", "show web1"),),
    ),
    Command(
        "console",
        "connect to an instance's console",
        "instance.console:console",
        opt.ONE_INSTANCE,
        (opt.PRIORITY, flag("--show-cmd", help="print the command instead of running it")),
    ),
)

_TAGS = (
    Command("list-tags", "list an instance's tags", "tags:list_instance", opt.ONE_INSTANCE),
    Command(
        "add-tags",
        "give an instance tags",
        "tags:add_instance",
        (*opt.ONE_INSTANCE, opt.ANY_TAGS),
        (opt.TAGS_FROM, *opt.SUBMISSION),
    ),
    Command(
        "remove-tags",
        "take tags from an instance",
        "tags:remove_instance",
        (*opt.ONE_INSTANCE, opt.ANY_TAGS),
        (opt.TAGS_FROM, *opt.SUBMISSION),
    ),
)

_OTHERS = (
    Command(
        "batch-create",
        "create many instances from a JSON file",
        "instance.batch_create:batch_create",
        (Argument(ArgKind.FILE),),
        (opt.IALLOCATOR, *opt.CHANGE),
        description="""The file holds a list with one object for each instance, whose keys are the
parameters of the opcode OP_INSTANCE_CREATE; sizes of disks may have units.  Each instance needs its
node (pnode).  Each is made by a job of its own, all at the same time.""",
        examples=(
            (
                "gnt-instance batch-create instances.json",
                'with [{"instance_name": "web1", "pnode": "node1", "disk_template": "diskless"}]',
            ),
        ),
    ),
    Command(
        "reinstall",
        "install the operating system of instances again",
        "instance.reinstall:reinstall",
        opt.ANY_INSTANCES,
        (
            opt.FORCE,
            opt.FORCE_VARIANT,
            opt.OS_PARAMETERS,
            opt.OS_PARAMETERS_PRIVATE,
            opt.OS_PARAMETERS_SECRET,
            opt.OS_TYPE,
            flag("--select-os", help="choose the operating system from a list"),
            *opt.CHANGE,
            *_MULTI,
        ),
    ),
    Command(
        "remove",
        "remove an instance and its disks",
        "instance.life:remove",
        opt.ONE_INSTANCE,
        (
            opt.FORCE,
            flag("--ignore-failures", help="remove it from the configuration whatever fails"),
            opt.SHUTDOWN_TIMEOUT,
            *opt.CHANGE,
        ),
        examples=(("gnt-instance remove -f web1", "remove web1 without asking"),),
    ),
    Command(
        "rename",
        "rename an instance",
        "instance.modify:rename",
        (Argument(ArgKind.INSTANCE), Argument(ArgKind.HOST, metavar="<new-name>")),
        (opt.FORCE, opt.NO_IP_CHECK, opt.NO_NAME_CHECK, *opt.CHANGE),
        description="""The instance must be stopped.  A rename that was cut off is completed by
running it again; with the name that the instance has as the new one, the directory of its disks is
put back.""",
    ),
)

PROGRAM = Program(
    "gnt-instance",
    "manage virtual machines",
    """Creates, starts, stops, moves, shows and removes the virtual machines of the cluster.  Runs
on the master node.""",
    tuple(
        sorted(
            (_ADD, _MODIFY, *_LIFE, *_MOVES, *_DISKS, *_SHOW, *_TAGS, *_OTHERS),
            key=lambda command: command.name,
        )
    ),
    {"list": "GNT_INSTANCE_LIST"},
)


def main() -> int:
    """Run ``gnt-instance`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM)
