"""``gnt-debug``: tools for developers and testers."""

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
    unflag,
)
from ganeti.cli.declaration.values import ValueType


def _number(*flags: str, help: str, default: int, dest: str = "") -> Option:
    return Option(flags, help, type=ValueType.INT, metavar="N", default=default, dest=dest)


_ALLOCATOR = Command(
    "iallocator",
    "ask an allocator, or show what it would be asked",
    "allocator:ask",
    (Argument(ArgKind.TEXT, 1, None, metavar="<instance>"),),
    (
        _number("--count", help="how many instances", default=2),
        Option(
            ("--dir",),
            "in: show the question; out: ask",
            type=ValueType.CHOICE,
            choices=("out", "in"),
            metavar="DIRECTION",
            default="in",
            dest="direction",
        ),
        opt.DISK_TEMPLATE,
        Option(("--disks",), "sizes of the disks", metavar="DISKS", default="4096,4096"),
        opt.DRY_RUN,
        Option(
            ("--evac-mode",),
            "which instances of the node",
            type=ValueType.CHOICE,
            choices=("all", "primary-only", "secondary-only"),
            metavar="EVAC_MODE",
            default="all",
        ),
        opt.IALLOCATOR,
        Option(("--memory",), "memory", type=ValueType.UNIT, metavar="MEMORY", default=128),
        Option(
            ("-m", "--mode"),
            "kind of question",
            type=ValueType.CHOICE,
            choices=(
                "multi-allocate",
                "change-group",
                "relocate",
                "allocate",
                "allocate-secondary",
                "node-evacuate",
            ),
            metavar="MODE",
            default="relocate",
        ),
        Option(("--nics",), "network interfaces", metavar="NICS", default="00:11:22:33:44:55"),
        opt.OS_TYPE,
        opt.PRIORITY,
        _number("--spindle-use", help="weight on the disks", default=1),
        opt.TAGS,
        Option(
            ("--target-groups",),
            "groups to move to",
            action=Action.APPEND,
            metavar="TARGET_GROUPS",
        ),
        _number("-p", "--vcpus", help="virtual CPUs", default=1),
    ),
    aliases=("allocator",),
    description="""Modes allocate and multi-allocate are about instances that do not exist, and take
their size from the options; the others are about existing ones.  Nothing is changed: the question
(--dir=in) or what the allocator prints (--dir=out) is shown as it is.""",
    examples=(
        ("gnt-debug iallocator -m allocate --dir=out --disks=1g -t file new1", "where would it go"),
        ("gnt-debug iallocator -m relocate web1", "what is asked to relocate web1"),
    ),
)

PROGRAM = Program(
    "gnt-debug",
    "tools for developers and testers",
    "Runs single opcodes, and looks at locks.  Runs on the master node.",
    (
        Command(
            "delay",
            "run a job that only takes time",
            "debug:delay",
            (Argument(ArgKind.TEXT, metavar="<seconds>"),),
            (
                flag("-i", "--interruptible", help="let the job be ended through its socket"),
                Option(
                    ("-n",),
                    "also wait on this node",
                    action=Action.APPEND,
                    metavar="ON_NODES",
                    dest="on_nodes",
                    completes=ArgKind.NODE,
                ),
                flag("-l", "--no-locks", help="take no locks"),
                unflag("--no-master", help="do not wait on the master", dest="on_master"),
                _number("-r", "--repeat", help="how often more to wait", default=0),
                *opt.CHANGE,
            ),
            examples=(("gnt-debug delay 2", "a job of two seconds"),),
        ),
        _ALLOCATOR,
        Command(
            "locks",
            "list locks",
            "debug:locks",
            (),
            (
                Option(
                    ("--interval",),
                    "show them again every so many seconds",
                    type=ValueType.INT,
                    metavar="INTERVAL",
                ),
                *opt.LISTING,
            ),
            description="""For each lock that is held or waited for: how it is held and by
whom, who waits for it in which mode, and with which priority, the most urgent first.""",
            examples=(
                ("gnt-debug locks", "who holds what, and who waits"),
                ("gnt-debug locks --interval=2", "the same every two seconds, until Ctrl-C"),
            ),
        ),
        Command(
            "metad",
            "talk to the metadata daemon",
            "",
            (Argument(ArgKind.TEXT, 1, None, metavar="<word>"),),
        ),
        Command(
            "submit-job",
            "submit opcodes from JSON files",
            "debug:submit_job",
            (Argument(ArgKind.FILE, 1, None),),
            (
                opt.DRY_RUN,
                flag("--each", help="one job for each file, one submission for each job"),
                _number("--job-repeat", help="how many jobs of each file", default=1),
                _number("--op-repeat", help="how often each opcode in a job", default=1),
                opt.PRIORITY,
                flag("--timing-stats", help="show how long it took"),
                opt.VERBOSE,
            ),
            description="""Each file holds one opcode or a list of them, as JSON objects with the
key OP_ID.""",
        ),
        Command(
            "test-jobqueue",
            "try the job queue out",
            "job_trial:try_queue",
            (),
            (opt.PRIORITY,),
            description="""Submits good and bad jobs, jobs that depend on each other, and jobs that
stop in each of their states to be looked at.  It ends with the first thing that is not as it should
be.  Nothing of the cluster is changed.""",
        ),
        Command(
            "test-osparams",
            "show that secret parameters stay secret",
            "job_trial:secrets",
            (),
            (opt.OS_PARAMETERS_SECRET, opt.PRINT_JOB_ID, opt.SUBMIT),
        ),
        Command(
            "wconfd",
            "talk to the configuration daemon",
            "wconfd:wconfd",
            (Argument(ArgKind.TEXT, 1, None, metavar="<word>"),),
            description="""The words are one of: echo TEXT; cleanuplocks, to free what dead
owners hold; listlocks JOB, what a job holds; listalllocks; listalllocksowners;
listlockswaitingstatus, owners and who waits; flushconfig, to return once the configuration is on
enough master candidates.  Any other method is called by its name, with its arguments as JSON; the
answer is printed as JSON.""",
            examples=(
                ("gnt-debug wconfd echo hello", "see that it answers"),
                ("gnt-debug wconfd listlocks 12", "what job 12 holds"),
                ("gnt-debug wconfd getNodes '[\"node1\"]'", "a node as it is stored"),
            ),
        ),
    ),
)


def main() -> int:
    """Run ``gnt-debug`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM)
