"""The options that tools for placement share, each declared once; a tool lists those it has.

Source: cli.json, "htools"; manual page htools(1), "Common options".
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from ganeti.cli.command import ArgKind, opt
from ganeti.cli.declaration.program import DEBUG, VERSION, Option
from ganeti.cli.declaration.values import PRIORITIES, Float, Priority
from ganeti.objects.disk_templates import DiskTemplate

_YES: Final = partial(opt.option, choices=("yes", "no"), alone="yes")
_KINDS: Final[dict[str, Any]] = {
    "text": opt.option,
    "text?": partial(opt.option, alone=""),  # the value may be left out
    "file": partial(opt.option, completes=ArgKind.FILE),
    "file?": partial(opt.option, completes=ArgKind.FILE, alone=""),
    "node...": partial(opt.several, completes=ArgKind.NODE),
    "text...": opt.several,
    "group": partial(opt.option, completes=ArgKind.GROUP),
    "list": opt.commas,
    "number": opt.number,
    "size": opt.size,
    "ratio": partial(opt.option, type=Float),
    "priority": partial(opt.option, type=Priority, choices=tuple(PRIORITIES)),
    "yes?": _YES,
    "template": partial(opt.option, choices=tuple(DiskTemplate)),
    "flag": opt.flag,
    "count": opt.count,
}

# Kind, flags, meaning, and for some the default.
_TABLE: Final = """
file? | -L --luxi=SOCKET | ask the master daemon, on this socket or the usual one
text | -m --master=ADDRESS | ask the remote API of this cluster
file | -t --text-data=FILE | read the cluster from this file
file | -I --ialloc-src=FILE | read the cluster from a question to an allocator
text... | --simulate=SPEC | make an empty group up: policy,nodes,disk,memory,cpus[,spindles]
node... | -O --offline=NODE | take this node for offline
number | --static-kvm-node-memory=N | MiB that a KVM node needs itself; 0 is what it reports | 0
file | -U --dynu-file=FILE | read lines with an instance and its load of CPU, memory, disk, network
flag | --ignore-dynu | take the dynamic utilisation of every instance for 0
yes? | --mond=CHOICE | whether to ask the monitoring daemons for the CPU load of the nodes
file | --mond-data=FILE | with --mond, read the answers of the monitoring daemons from this file
flag | --mond-xen | with --mond, ask for the CPU load of Xen domains too
flag | --exit-on-missing-mond-data | with --mond, fail unless all nodes tell their load
list | --exclusion-tags=TAG,... | tags of instances that begin with TAG: are exclusion tags too
ratio | --max-cpu=RATIO | most virtual CPUs for each CPU of a node
ratio | --min-disk=RATIO | least part of the disk of a node to stay free, 0 to 1
group | -G --group=ID | the node group to work on, by name or UUID
number | -l --max-length=N | stop after so many moves or allocations
ratio | -e --min-score=EPSILON | stop when the score is that close to the least possible | 1e-9
ratio | -g --min-gain=DELTA | stop when a step gains less, below --min-gain-limit | 0.01
ratio | --min-gain-limit=SCORE | the score below which --min-gain counts | 0.1
flag | -E --evac-mode | move instances away from offline and drained nodes only
flag | --restricted-migration | migrate no instance twice; with -E only from drained nodes
flag | --no-disk-moves | only migrate and fail over, copy no disks
flag | --no-instance-moves | only replace secondary nodes
list | --select-instances=INSTS | move these instances only
list | --exclude-instances=INSTS | do not move these instances
flag | --ignore-soft-errors | ignore ratios of CPUs and spindles, exclusion tags, N+1 of mirrors
flag | --no-capacity-checks | do not ask that the instances of any one node could restart elsewhere
flag | -X --exec | carry the moves out by jobs; with --luxi
flag | --plan | find a whole plan before the first move, which copies as little data as it can
size | --max-data=SIZE | with --plan, the most data to copy, in MiB unless a unit is given
ratio | --max-downtime=SECONDS | with --plan, how long instances may stand still, all together
ratio | --migration-downtime=SECONDS | with --plan, how long a migration stops an instance | 0.03
ratio | --plan-time=SECONDS | with --plan, how long to look for one at most | 120
flag | --first-job-group | carry out the first set of jobs only
flag | --dry-run | show what would be done, and do nothing
text | --reason=REASON | kept in the reason trail of the jobs
priority | --priority | priority of the jobs
text? | -p --print-nodes=FIELDS | print the nodes, with these fields; after + besides the usual ones
flag | --print-instances | print the instances
file? | -C --print-commands=FILE | print the commands for the moves, or write them to a file
file | -S --save=FILE | write the cluster to files whose names begin so
text | --standard-alloc=SPEC | size of instances: disk,memory,cpus[,spindles]
text | --tiered-alloc=SPEC | size to begin with, going on with smaller ones: like --standard-alloc
template | --disk-template=TEMPLATE | disk template of the instances
number | --spindle-use=N | load of an instance on the spindles of its nodes
flag | --independent-groups | leave groups out in which a node is not N+1 happy
flag | --accept-existing-errors | leave only the nodes out that are not N+1 happy
number | --forecast=WEEKS | tell how long there is room at the growth of the last weeks; with --luxi
flag | --no-simulation | do not try what balancing would bring
ratio | --minimal-resources=FACTOR | standard instances for which each node must have room | 2
ratio | --target-resources=FACTOR | the same once others are switched off | 2
ratio | --job-delay=SECONDS | seconds that each job waits first | 10
yes? | --machine-readable=CHOICE | print keys and values for programs
flag | --no-headers | print no header lines
count | -v --verbose | say more
count | -q --quiet | say less
"""


def _option(line: str) -> Option:
    kind, flags, meaning, *default = line.split(" | ")
    made: Option = _KINDS[kind](
        flags, meaning, **({"default": float(default[0])} if default else {})
    )
    return made


_DEBUG: Final = replace(DEBUG, flags=("--debug",))  # -d is another option of some of them
# By long name without the dashes; only those of the tool that runs are made.
_LINES: Final = {
    line.split("--")[1].partition("=")[0].split()[0]: line for line in _TABLE.strip().splitlines()
}


def shared(*names: str) -> tuple[Option, ...]:
    """Return options by their long names, given in any number of texts, and those of every tool."""
    found = [_option(_LINES[name]) for text in names for name in text.split()]
    return (*found, VERSION, _DEBUG)


SOURCES: Final = "luxi master text-data ialloc-src"
"""The sources that most tools have."""
MOND: Final = "mond mond-data"
