"""Options that several commands share.

Source: cli.json; manual page ganeti(7), "Common options".
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from ganeti.cli.declaration.program import Action as Action
from ganeti.cli.declaration.program import ArgKind
from ganeti.cli.declaration.program import Argument as Argument
from ganeti.cli.declaration.program import Option as Option
from ganeti.cli.declaration.values import (
    PRIORITIES,
    BackendSettings,
    Commas,
    Dependency,
    Float,
    Int,
    KeyValues,
    MaybeFloat,
    NamedValues,
    Names,
    PlainValues,
    Priority,
    Settings,
    Size,
    SpecGroups,
    YesNo,
    by_name,
    disk_state,
)


def option(flags: str, help: str, type: Any = None, **more: Any) -> Option:
    """Declare an option that takes a value; flags are separated by spaces."""
    return Option(tuple(flags.split()), help, type, **more)


def several(flags: str, help: str, type: Any = None, **more: Any) -> Option:
    """Declare an option that takes a value and may be given several times."""
    return option(flags, help, type, action=Action.APPEND, **more)


def flag(flags: str, help: str, dest: str = "") -> Option:
    """Declare an option without a value that is false until given."""
    return option(flags, help, action=Action.TRUE, dest=dest)


def unflag(flags: str, help: str, dest: str) -> Option:
    """Declare an option without a value that is true until given."""
    return option(flags, help, action=Action.FALSE, dest=dest)


def count(flags: str, help: str) -> Option:
    """Declare an option without a value that counts how often it is given."""
    return option(flags, help, action=Action.COUNT)


def constant(flags: str, help: str, dest: str, const: object) -> Option:
    """Declare an option without a value that stores a constant."""
    return option(flags, help, action=Action.CONST, dest=dest, const=const)


def with_help(option: Option, help: str) -> Option:
    """Return the option with a help text that fits one command."""
    return replace(option, help=help)


number: Final = partial(option, type=Int)
size: Final = partial(option, type=Size)
yes_no: Final = partial(option, type=YesNo)
names: Final = partial(option, type=Names)
commas: Final = partial(option, type=Commas)
settings: Final = partial(option, type=Settings)

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
DRY_RUN: Final = flag("--dry-run", "check everything, change nothing")
SUBMIT: Final = flag("--submit", "print the job's number and return at once", dest="submit")
PRINT_JOB_ID: Final = flag("--print-jobid", "print the job's number first", dest="print_jobid")
PRIORITY: Final = option(
    "--priority", "priority of the job in the queue", Priority, choices=tuple(PRIORITIES)
)
DEPEND: Final = several(
    "--depend",
    "start only after this job has ended, in success or in one of these statuses",
    Dependency,
    metavar="JOB[:STATUS+...]",
    completes=ArgKind.JOB_ID,
)
SUBMISSION: Final = (DEPEND, PRINT_JOB_ID, PRIORITY, SUBMIT)
CHANGE: Final = (DRY_RUN, *SUBMISSION)

# lists
NO_HEADERS: Final = flag("--no-headers", "leave the line of titles out")
SEPARATOR: Final = option("--separator", "put this between columns instead of aligning them")
FIELDS: Final = option(
    "-o --output",
    "fields to show, separated by commas; a leading + adds to the usual ones",
    metavar="FIELDS",
    dest="output",
)
UNITS: Final = option(
    "--units",
    "unit of sizes: (h)uman readable, (m)ebi-, (g)ibi- or (t)ebibytes",
    choices=("h", "m", "g", "t"),
)
VERBOSE: Final = flag("-v --verbose", "say more; show words instead of ?, - and *")
FORCE_FILTER: Final = flag(
    "-F --filter", "take the argument as a filter, whatever it looks like", dest="filter"
)
LISTING: Final = (NO_HEADERS, FIELDS, SEPARATOR, VERBOSE)
FIELD_LISTING: Final = (NO_HEADERS, SEPARATOR)

# going ahead
FORCE: Final = flag("-f --force", "do not ask, and go on where a warning would stop")
YES_DO_IT: Final = flag("--yes-do-it --ya-rly", "really do it")
IGNORE_IPOLICY: Final = flag(
    "--ignore-ipolicy", "accept what violates the instance policy, with a warning"
)
IGNORE_CONSISTENCY: Final = flag(
    "--ignore-consistency", "go on although disks may be behind or unreadable"
)
EARLY_RELEASE: Final = flag(
    "--early-release", "release the locks on nodes as soon as the old disks are gone"
)

# objects
IALLOCATOR: Final = option(
    "-I --iallocator",
    'choose nodes with this allocator; "." is the default one',
    metavar="<NAME>",
    completes=ArgKind.IALLOCATOR,
)
NODE: Final = option("-n --node", "the node", metavar="<node>", completes=ArgKind.NODE)
NODES: Final = several(
    "-n --node", "only this node", metavar="<node>", dest="nodes", completes=ArgKind.NODE
)
NODE_PAIR: Final = option(
    "-n --node",
    "primary node, and secondary node where the disk template has one",
    metavar="<pnode>[:<snode>]",
    completes=ArgKind.NODE_PAIR,
)
TARGET_NODE: Final = option(
    "-n --target-node",
    "the node to move to, where the disk template leaves a choice",
    metavar="NODE",
    completes=ArgKind.NODE,
)
NODE_GROUP: Final = option(
    "-g --node-group", "only this node group", metavar="<nodegroup>", completes=ArgKind.GROUP
)
TAGS_FROM: Final = option(
    "--from",
    "read more tags from this file, one per line; - is the standard input",
    dest="tags_source",
)
TAGS: Final = names("--tags", "tags for the new object")
SHUTDOWN_TIMEOUT: Final = number(
    "--shutdown-timeout", "seconds that the guest gets to shut down by itself", default=120
)

# parameters
BACKEND_PARAMETERS: Final = option(
    "-B --backend-parameters",
    "memory (or minmem and maxmem), vcpus, auto_balance, always_failover, spindle_use",
    BackendSettings,
    dest="beparams",
    default={},
)
HYPERVISOR_AND_PARAMETERS: Final = option(
    "-H --hypervisor-parameters", "hypervisor, and parameters of it", NamedValues, dest="hypervisor"
)
HYPERVISORS_PARAMETERS: Final = several(
    "-H --hypervisor-parameters",
    "default parameters of one hypervisor",
    NamedValues,
    dest="hvparams",
    gather=by_name("hypervisor"),
)
INSTANCE_HYPERVISOR_PARAMETERS: Final = settings(
    "-H --hypervisor-parameters",
    "parameters of the instance's hypervisor",
    dest="hvparams",
    default={},
)
NIC_PARAMETERS: Final = settings(
    "-N --nic-parameters",
    "defaults of network interfaces: mode, link, vlan",
    dest="nicparams",
    default={},
)
NODE_PARAMETERS: Final = settings(
    "--node-parameters", "node parameters, such as oob_program or ssh_port", dest="ndparams"
)
DISK_PARAMETERS: Final = several(
    "-D --disk-parameters",
    "parameters of one disk template",
    NamedValues,
    dest="diskparams",
    gather=by_name("disk template"),
)
HYPERVISOR_STATE: Final = several(
    "--hypervisor-state",
    "static figures per hypervisor: cpu_total, mem_total, ...",
    NamedValues,
    dest="hv_state",
    gather=by_name("hypervisor state"),
)
DISK_STATE: Final = several(
    "--disk-state",
    "static figures per storage: TYPE/NAME:disk_total=...",
    NamedValues,
    dest="disk_state",
    gather=disk_state,
)
OS_TYPE: Final = option(
    "-o --os-type",
    "operating system definition, with variant where it has some: NAME+VARIANT",
    metavar="<os>",
    completes=ArgKind.OS_NAME,
)
OS_PARAMETERS: Final = settings(
    "-O --os-parameters",
    "parameters of the operating system definition",
    dest="osparams",
    default={},
)
OS_PARAMETERS_PRIVATE: Final = option(
    "--os-parameters-private",
    "parameters that are kept but not shown",
    PlainValues,
    dest="osparams_private",
    default={},
)
OS_PARAMETERS_SECRET: Final = option(
    "--os-parameters-secret",
    "parameters that are neither kept nor shown",
    PlainValues,
    dest="osparams_secret",
    default={},
)
OS_SIZE: Final = size(
    "-s --os-size", "size of the only disk; short for --disk 0:size=SIZE", metavar="<size>"
)
FORCE_VARIANT: Final = flag(
    "--force-variant", "accept a variant that the operating system does not list"
)
DISK: Final = several(
    "--disk", "one disk: N:size=SIZE[,mode=ro][,name=...][,vg=...]", NamedValues, dest="disks"
)
NET: Final = several(
    "--net",
    "one network interface: N:[mac=...][,ip=...][,mode=...][,link=...][,network=...]",
    NamedValues,
    dest="nics",
)
FILE_STORAGE_DIR: Final = option(
    "--file-storage-dir",
    "directory for the disks, below the cluster's file storage directory",
    metavar="<DIR>",
)
NO_WAIT_FOR_SYNC: Final = unflag(
    "--no-wait-for-sync", "do not wait until the disks are in step", dest="wait_for_sync"
)
NO_NAME_CHECK: Final = unflag(
    "--no-name-check", "do not ask that the name resolves", dest="name_check"
)
NO_IP_CHECK: Final = unflag(
    "--no-ip-check", "do not ask that nobody answers at the address", dest="ip_check"
)
NO_CONFLICTS_CHECK: Final = unflag(
    "--no-conflicts-check",
    "accept addresses that lie in a network of the cluster",
    dest="conflicts_check",
)
NO_NICS: Final = flag("--no-nics", "no network interfaces")
OPPORTUNISTIC_LOCKING: Final = flag(
    "--opportunistic-locking", "take the node locks that are free instead of all of them"
)
HELPER_STARTUP_TIMEOUT: Final = number(
    "--helper-startup-timeout", "seconds that a helper instance gets to start"
)
HELPER_SHUTDOWN_TIMEOUT: Final = number(
    "--helper-shutdown-timeout", "seconds that a helper instance gets to finish"
)
COMPRESS: Final = option("--compress", "compression of what is sent", default="none")


# everything that a new instance may have, also one of an export
OS_SETTINGS: Final = (OS_PARAMETERS, OS_PARAMETERS_PRIVATE, OS_PARAMETERS_SECRET)
NEW_INSTANCE: Final = (
    *(BACKEND_PARAMETERS, HYPERVISOR_AND_PARAMETERS, *OS_SETTINGS, TAGS),
    *(DISK, FILE_STORAGE_DIR, OS_SIZE, NO_WAIT_FOR_SYNC),
    *(NET, NO_CONFLICTS_CHECK, NO_IP_CHECK, NO_NAME_CHECK, NO_NICS),
    *(NODE_PAIR, IALLOCATOR, IGNORE_IPOLICY, OPPORTUNISTIC_LOCKING),
    *(HELPER_SHUTDOWN_TIMEOUT, HELPER_STARTUP_TIMEOUT),
    *CHANGE,
)

COMMUNICATION: Final = yes_no(
    "-c --communication",
    "give the instance the internal communication interface",
    dest="instance_communication",
)

# instance policy
IPOLICY_BOUNDS: Final = option(
    "--ipolicy-bounds-specs",
    "smallest and largest instances: min:memory-size=...,.../max:...",
    SpecGroups,
)
IPOLICY_STD: Final = option(
    "--ipolicy-std-specs", "the usual instance: memory-size=...,disk-size=...", KeyValues
)
IPOLICY_DISK_TEMPLATES: Final = commas(
    "--ipolicy-disk-templates", "disk templates that instances may have"
)
IPOLICY_SPINDLE_RATIO: Final = option(
    "--ipolicy-spindle-ratio", "how many instances may share a spindle", MaybeFloat
)
IPOLICY_VCPU_RATIO: Final = option(
    "--ipolicy-vcpu-ratio", "how many virtual CPUs a real one may serve", MaybeFloat
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
    "pause the guest while it is moved (same as --migration-mode=non-live)",
    dest="live",
)
MIGRATION_MODE: Final = option(
    "--migration-mode",
    "live or non-live, instead of the hypervisor's default",
    choices=("live", "non-live"),
)
NO_RUNTIME_CHANGES: Final = unflag(
    "--no-runtime-changes",
    "fail rather than shrink the guest's memory to fit",
    dest="allow_runtime_changes",
)

SSH_KEY_BITS: Final = number("--ssh-key-bits", "length of the SSH key")
SSH_KEY_TYPE: Final = option(
    "--ssh-key-type", "kind of the SSH key", choices=("rsa", "ecdsa", "dsa")
)
NO_SSH_KEY_CHECK: Final = unflag(
    "--no-ssh-key-check", "accept unknown SSH host keys", dest="ssh_key_check"
)
OOB_TIMEOUT: Final = number("--oob-timeout", "seconds that the out-of-band helper gets", default=60)
POWER_DELAY: Final = option(
    "--power-delay", "seconds between switching on two nodes", Float, default=2.0
)


def multi_instance_options() -> tuple[Option, ...]:
    """Return the options that say what the arguments of a command on many instances name."""
    rows = (
        ("--all", "all instances", "cluster"),
        ("--instance", "the arguments are instances", "instances"),
        ("--node", "the arguments are nodes: all instances on them", "nodes"),
        ("--primary", "the arguments are nodes: instances whose primary they are", "nodes-pri"),
        ("--secondary", "the arguments are nodes: instances whose secondary they are", "nodes-sec"),
        ("--tags", "the arguments are tags of instances", "instances-by-tags"),
        ("--node-tags", "the arguments are tags of nodes: all instances on them", "nodes-by-tags"),
        ("--pri-node-tags", "the arguments are tags of primary nodes", "nodes-pri-by-tags"),
        ("--sec-node-tags", "the arguments are tags of secondary nodes", "nodes-sec-by-tags"),
    )
    return (
        flag("--force-multiple", "do not ask before acting on several instances"),
        *(constant(name, text, dest="multi_mode", const=mode) for name, text, mode in rows),
    )
