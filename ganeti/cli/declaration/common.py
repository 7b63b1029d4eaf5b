"""Options that several commands share.

Source: cli.json; manual page ganeti(7), "Common options".
"""

from __future__ import annotations

from typing import Final

from ganeti.cli.declaration.program import (
    Action,
    ArgKind,
    Argument,
    Option,
    constant,
    flag,
    unflag,
)
from ganeti.cli.declaration.values import PRIORITIES, ValueType

DISK_TEMPLATES: Final = (
    "plain",
    "blockdev",
    "file",
    "sharedfile",
    "ext",
    "rbd",
    "diskless",
    "drbd",
    "gluster",
)
FILE_DRIVERS: Final = ("blktap2", "loop", "blktap")

# arguments
ONE_INSTANCE: Final = (Argument(ArgKind.INSTANCE),)
ANY_INSTANCES: Final = (Argument(ArgKind.INSTANCE, 0, None),)
ONE_NODE: Final = (Argument(ArgKind.NODE),)
ANY_NODES: Final = (Argument(ArgKind.NODE, 0, None),)
ONE_GROUP: Final = (Argument(ArgKind.GROUP),)
ANY_GROUPS: Final = (Argument(ArgKind.GROUP, 0, None),)
ONE_NETWORK: Final = (Argument(ArgKind.NETWORK),)
ANY_NETWORKS: Final = (Argument(ArgKind.NETWORK, 0, None),)
ANY_FIELDS: Final = (Argument(ArgKind.TEXT, 0, None, metavar="<field>"),)
ANY_TAGS: Final = Argument(ArgKind.TEXT, 0, None, metavar="<tag>")

# submission of jobs
DRY_RUN: Final = flag("--dry-run", help="check everything, change nothing")
SUBMIT: Final = flag("--submit", help="print the job's number and return at once", dest="submit")
PRINT_JOB_ID: Final = flag("--print-jobid", help="print the job's number first", dest="print_jobid")
PRIORITY: Final = Option(
    ("--priority",),
    "priority of the job in the queue",
    type=ValueType.PRIORITY,
    metavar="low|normal|high",
    choices=tuple(PRIORITIES),
)
DEPEND: Final = Option(
    ("--depend",),
    "start only after this job has ended, in success or in one of these statuses; may be repeated",
    type=ValueType.DEPENDENCY,
    action=Action.APPEND,
    metavar="JOB[:STATUS+...]",
    completes=ArgKind.JOB_ID,
)
SUBMISSION: Final = (DEPEND, PRINT_JOB_ID, PRIORITY, SUBMIT)
CHANGE: Final = (DRY_RUN, *SUBMISSION)

# lists
NO_HEADERS: Final = flag("--no-headers", help="leave the line of titles out")
SEPARATOR: Final = Option(
    ("--separator",), "put this between columns instead of aligning them", metavar="SEPARATOR"
)
FIELDS: Final = Option(
    ("-o", "--output"),
    "fields to show, separated by commas; a leading + adds to the usual ones",
    metavar="FIELDS",
    dest="output",
)
UNITS: Final = Option(
    ("--units",),
    "unit of sizes: (h)uman readable, (m)ebi-, (g)ibi- or (t)ebibytes",
    type=ValueType.CHOICE,
    metavar="UNITS",
    choices=("h", "m", "g", "t"),
)
VERBOSE: Final = flag("-v", "--verbose", help="say more; show words instead of ?, - and *")
FORCE_FILTER: Final = flag(
    "-F", "--filter", help="take the argument as a filter, whatever it looks like", dest="filter"
)
LISTING: Final = (NO_HEADERS, FIELDS, SEPARATOR, VERBOSE)
FIELD_LISTING: Final = (NO_HEADERS, SEPARATOR)

# going ahead
FORCE: Final = flag("-f", "--force", help="do not ask, and go on where a warning would stop")
YES_DO_IT: Final = flag("--yes-do-it", "--ya-rly", help="really do it")
IGNORE_IPOLICY: Final = flag(
    "--ignore-ipolicy", help="accept what violates the instance policy, with a warning"
)
IGNORE_CONSISTENCY: Final = flag(
    "--ignore-consistency", help="go on although disks may be behind or unreadable"
)
EARLY_RELEASE: Final = flag(
    "--early-release", help="release the locks on nodes as soon as the old disks are gone"
)

# objects
IALLOCATOR: Final = Option(
    ("-I", "--iallocator"),
    'choose nodes with this allocator; "." is the default one',
    metavar="<NAME>",
    completes=ArgKind.IALLOCATOR,
)
NODE: Final = Option(("-n", "--node"), "the node", metavar="<node>", completes=ArgKind.NODE)
NODES: Final = Option(
    ("-n", "--node"),
    "only this node",
    action=Action.APPEND,
    metavar="<node>",
    dest="nodes",
    completes=ArgKind.NODE,
)
NODE_PAIR: Final = Option(
    ("-n", "--node"),
    "primary node, and secondary node where the disk template has one",
    metavar="<pnode>[:<snode>]",
    completes=ArgKind.NODE_PAIR,
)
TARGET_NODE: Final = Option(
    ("-n", "--target-node"),
    "the node to move to, where the disk template leaves a choice",
    metavar="NODE",
    completes=ArgKind.NODE,
)
NODE_GROUP: Final = Option(
    ("-g", "--node-group"),
    "only this node group",
    metavar="<nodegroup>",
    completes=ArgKind.GROUP,
)
TAGS_FROM: Final = Option(
    ("--from",),
    "read more tags from this file, one per line; - is the standard input",
    metavar="TAGS_SOURCE",
    dest="tags_source",
)
TAGS: Final = Option(("--tags",), "tags for the new object, separated by commas", metavar="TAGS")
SHUTDOWN_TIMEOUT: Final = Option(
    ("--shutdown-timeout",),
    "seconds that the guest gets to shut down by itself",
    type=ValueType.INT,
    metavar="SHUTDOWN_TIMEOUT",
    default=120,
)

# parameters
BACKEND_PARAMETERS: Final = Option(
    ("-B", "--backend-parameters"),
    "memory (or minmem and maxmem), vcpus, auto_balance, always_failover, spindle_use",
    type=ValueType.KEYVAL,
    metavar="BEPARAMS",
    dest="beparams",
    default={},
)
HYPERVISOR_AND_PARAMETERS: Final = Option(
    ("-H", "--hypervisor-parameters"),
    "hypervisor, and parameters of it",
    type=ValueType.IDENT_KEYVAL,
    metavar="HYPERVISOR",
    dest="hypervisor",
)
HYPERVISORS_PARAMETERS: Final = Option(
    ("-H", "--hypervisor-parameters"),
    "default parameters of one hypervisor",
    type=ValueType.IDENT_KEYVAL,
    action=Action.APPEND,
    metavar="HVPARAMS",
    dest="hvparams",
)
INSTANCE_HYPERVISOR_PARAMETERS: Final = Option(
    ("-H", "--hypervisor-parameters"),
    "parameters of the instance's hypervisor",
    type=ValueType.KEYVAL,
    metavar="HVPARAMS",
    dest="hvparams",
    default={},
)
NIC_PARAMETERS: Final = Option(
    ("-N", "--nic-parameters"),
    "defaults of network interfaces: mode, link, vlan",
    type=ValueType.KEYVAL,
    metavar="NICPARAMS",
    dest="nicparams",
    default={},
)
NODE_PARAMETERS: Final = Option(
    ("--node-parameters",),
    "node parameters, such as oob_program or ssh_port",
    type=ValueType.KEYVAL,
    metavar="NDPARAMS",
    dest="ndparams",
)
DISK_PARAMETERS: Final = Option(
    ("-D", "--disk-parameters"),
    "parameters of one disk template",
    type=ValueType.IDENT_KEYVAL,
    action=Action.APPEND,
    metavar="DISKPARAMS",
    dest="diskparams",
)
HYPERVISOR_STATE: Final = Option(
    ("--hypervisor-state",),
    "static figures per hypervisor: cpu_total, mem_total, ...",
    type=ValueType.IDENT_KEYVAL,
    action=Action.APPEND,
    metavar="HV_STATE",
    dest="hv_state",
)
DISK_STATE: Final = Option(
    ("--disk-state",),
    "static figures per storage: TYPE/NAME:disk_total=...",
    type=ValueType.IDENT_KEYVAL,
    action=Action.APPEND,
    metavar="DISK_STATE",
    dest="disk_state",
)
OS_TYPE: Final = Option(
    ("-o", "--os-type"),
    "operating system definition, with variant where it has some: NAME+VARIANT",
    metavar="<os>",
    completes=ArgKind.OS_NAME,
)
OS_PARAMETERS: Final = Option(
    ("-O", "--os-parameters"),
    "parameters of the operating system definition",
    type=ValueType.KEYVAL,
    metavar="OSPARAMS",
    dest="osparams",
    default={},
)
OS_PARAMETERS_PRIVATE: Final = Option(
    ("--os-parameters-private",),
    "parameters that are kept but not shown",
    type=ValueType.KEYVAL_PRIVATE,
    metavar="OSPARAMS_PRIVATE",
    dest="osparams_private",
    default={},
)
OS_PARAMETERS_SECRET: Final = Option(
    ("--os-parameters-secret",),
    "parameters that are neither kept nor shown",
    type=ValueType.KEYVAL_PRIVATE,
    metavar="OSPARAMS_SECRET",
    dest="osparams_secret",
    default={},
)
OS_SIZE: Final = Option(
    ("-s", "--os-size"),
    "size of the only disk; short for --disk 0:size=SIZE",
    type=ValueType.UNIT,
    metavar="<size>",
)
FORCE_VARIANT: Final = flag(
    "--force-variant", help="accept a variant that the operating system does not list"
)
DISK: Final = Option(
    ("--disk",),
    "one disk: N:size=SIZE[,mode=ro][,name=...][,vg=...]",
    type=ValueType.IDENT_KEYVAL,
    action=Action.APPEND,
    metavar="DISKS",
    dest="disks",
)
NET: Final = Option(
    ("--net",),
    "one network interface: N:[mac=...][,ip=...][,mode=...][,link=...][,network=...]",
    type=ValueType.IDENT_KEYVAL,
    action=Action.APPEND,
    metavar="NICS",
    dest="nics",
)
DISK_TEMPLATE: Final = Option(
    ("-t", "--disk-template"),
    "kind of disks",
    type=ValueType.CHOICE,
    metavar="TEMPL",
    choices=DISK_TEMPLATES,
)
FILE_DRIVER: Final = Option(
    ("--file-driver",),
    "how files become disks",
    type=ValueType.CHOICE,
    metavar="<DRIVER>",
    choices=FILE_DRIVERS,
)
FILE_STORAGE_DIR: Final = Option(
    ("--file-storage-dir",),
    "directory for the disks, below the cluster's file storage directory",
    metavar="<DIR>",
)
NO_WAIT_FOR_SYNC: Final = unflag(
    "--no-wait-for-sync",
    help="do not wait until the disks are in step",
    dest="wait_for_sync",
)
NO_NAME_CHECK: Final = unflag(
    "--no-name-check", help="do not ask that the name resolves", dest="name_check"
)
NO_IP_CHECK: Final = unflag(
    "--no-ip-check", help="do not ask that nobody answers at the address", dest="ip_check"
)
NO_CONFLICTS_CHECK: Final = unflag(
    "--no-conflicts-check",
    help="accept addresses that lie in a network of the cluster",
    dest="conflicts_check",
)
NO_NICS: Final = flag("--no-nics", help="no network interfaces")
OPPORTUNISTIC_LOCKING: Final = flag(
    "--opportunistic-locking", help="take the node locks that are free instead of all of them"
)
HELPER_STARTUP_TIMEOUT: Final = Option(
    ("--helper-startup-timeout",),
    "seconds that a helper instance gets to start",
    type=ValueType.INT,
    metavar="HELPER_STARTUP_TIMEOUT",
)
HELPER_SHUTDOWN_TIMEOUT: Final = Option(
    ("--helper-shutdown-timeout",),
    "seconds that a helper instance gets to finish",
    type=ValueType.INT,
    metavar="HELPER_SHUTDOWN_TIMEOUT",
)
COMPRESS: Final = Option(
    ("--compress",), "compression of what is sent", metavar="COMPRESS", default="none"
)

# instance policy
IPOLICY_BOUNDS: Final = Option(
    ("--ipolicy-bounds-specs",),
    "smallest and largest instances: min:memory-size=...,.../max:...",
    type=ValueType.MULTI_LIST_IDENT_KEYVAL,
    metavar="IPOLICY_BOUNDS_SPECS",
)
IPOLICY_STD: Final = Option(
    ("--ipolicy-std-specs",),
    "the usual instance: memory-size=...,disk-size=...",
    type=ValueType.KEYVAL,
    metavar="IPOLICY_STD_SPECS",
)
IPOLICY_DISK_TEMPLATES: Final = Option(
    ("--ipolicy-disk-templates",),
    "disk templates that instances may have",
    type=ValueType.LIST,
    metavar="IPOLICY_DISK_TEMPLATES",
)
IPOLICY_SPINDLE_RATIO: Final = Option(
    ("--ipolicy-spindle-ratio",),
    "how many instances may share a spindle",
    type=ValueType.MAYBE_FLOAT,
    metavar="IPOLICY_SPINDLE_RATIO",
)
IPOLICY_VCPU_RATIO: Final = Option(
    ("--ipolicy-vcpu-ratio",),
    "how many virtual CPUs a real one may serve",
    type=ValueType.MAYBE_FLOAT,
    metavar="IPOLICY_VCPU_RATIO",
)
IPOLICY_GROUP: Final = (
    IPOLICY_BOUNDS,
    IPOLICY_DISK_TEMPLATES,
    IPOLICY_SPINDLE_RATIO,
    IPOLICY_VCPU_RATIO,
)
IPOLICY_CLUSTER: Final = (*IPOLICY_GROUP, IPOLICY_STD)

# migration
NON_LIVE: Final = unflag(
    "--non-live",
    help="pause the guest while it is moved (same as --migration-mode=non-live)",
    dest="live",
)
MIGRATION_MODE: Final = Option(
    ("--migration-mode",),
    "live or non-live, instead of the hypervisor's default",
    type=ValueType.CHOICE,
    metavar="MIGRATION_MODE",
    choices=("live", "non-live"),
)
NO_RUNTIME_CHANGES: Final = unflag(
    "--no-runtime-changes",
    help="fail rather than shrink the guest's memory to fit",
    dest="allow_runtime_changes",
)

SSH_KEY_BITS: Final = Option(
    ("--ssh-key-bits",), "length of the SSH key", type=ValueType.INT, metavar="SSH_KEY_BITS"
)
SSH_KEY_TYPE: Final = Option(
    ("--ssh-key-type",),
    "kind of the SSH key",
    type=ValueType.CHOICE,
    metavar="SSH_KEY_TYPE",
    choices=("rsa", "ecdsa", "dsa"),
)
NO_SSH_KEY_CHECK: Final = unflag(
    "--no-ssh-key-check", help="accept unknown SSH host keys", dest="ssh_key_check"
)
OOB_TIMEOUT: Final = Option(
    ("--oob-timeout",),
    "seconds that the out-of-band helper gets",
    type=ValueType.INT,
    metavar="OOB_TIMEOUT",
    default=60,
)
POWER_DELAY: Final = Option(
    ("--power-delay",),
    "seconds between switching on two nodes",
    type=ValueType.FLOAT,
    metavar="POWER_DELAY",
    default=2.0,
)


def multi_instance_options() -> tuple[Option, ...]:
    """Return the options that say what the arguments of a command on many instances name."""
    return (
        flag("--force-multiple", help="do not ask before acting on several instances"),
        constant("--all", help="all instances", dest="multi_mode", const="cluster"),
        constant(
            "--instance", help="the arguments are instances", dest="multi_mode", const="instances"
        ),
        constant(
            "--node",
            help="the arguments are nodes: all instances on them",
            dest="multi_mode",
            const="nodes",
        ),
        constant(
            "--primary",
            help="the arguments are nodes: instances whose primary they are",
            dest="multi_mode",
            const="nodes-pri",
        ),
        constant(
            "--secondary",
            help="the arguments are nodes: instances whose secondary they are",
            dest="multi_mode",
            const="nodes-sec",
        ),
        constant(
            "--tags",
            help="the arguments are tags of instances",
            dest="multi_mode",
            const="instances-by-tags",
        ),
        constant(
            "--node-tags",
            help="the arguments are tags of nodes: all instances on them",
            dest="multi_mode",
            const="nodes-by-tags",
        ),
        constant(
            "--pri-node-tags",
            help="the arguments are tags of primary nodes",
            dest="multi_mode",
            const="nodes-pri-by-tags",
        ),
        constant(
            "--sec-node-tags",
            help="the arguments are tags of secondary nodes",
            dest="multi_mode",
            const="nodes-sec-by-tags",
        ),
    )
