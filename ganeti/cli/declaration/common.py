"""Commands and options in short forms, and the options that several commands share.

A command is a function, or an opcode with a title, and a text of its arguments and shared options,
as a manual page would show them: ``"<node> <file>=name [<tag>...] --force --iallocator CHANGE"``.

* ``<instance>`` names one thing of a kind, or anything; ``:kind`` says which where it is another,
  ``=name`` the parameter of the opcode that it sets, ``@what`` what the shell offers for it where
  the kind does not say that; ``{a|b}`` is a choice.
* ``--force`` is the shared option with that flag, and a word in capitals is a group of them.

An option's own flags are written the same way: ``-s --secondary-ip=ADDRESS -> ip`` takes a value
that is called ADDRESS in help texts, and sets the parameter ``ip``.

Source: cli.json; manual page ganeti(7), "Common options".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec.structs import replace

from ganeti.cli.declaration import values
from ganeti.cli.declaration.program import Action as Action
from ganeti.cli.declaration.program import ArgKind, Command, Handler, sort_key
from ganeti.cli.declaration.program import Argument as Argument
from ganeti.cli.declaration.program import Option as Option

if TYPE_CHECKING:
    from ganeti.opcodes.opcode import OpCode  # costs a list of instances 8 ms

Part: TypeAlias = "str | Argument | Option | Iterable[Part]"
"""A part of a declaration: a text of arguments and shared options, or some of them."""


def command(
    does: Handler | type[OpCode] | None, *parts: Part, title: str = "", **more: Any
) -> Command:
    """Return the command that a function carries out, or that submits an opcode.

    Args:
        title: name and summary, ``rename: rename a group``; by default the name of the function
            and the first line of its docstring.
        more: other attributes of `Command`; examples are a text with one in each line, behind it
            two blanks and ``# purpose``.
    """
    if not title:
        assert does is not None
        name = does.__name__.strip("_").replace("_", "-")
        summary = (does.__doc__ or "").partition("\n")[0].removesuffix(".")
        title = f"{name}: {summary[:1].lower()}{summary[1:]}"
    name, _, summary = title.partition(": ")
    found = [*_flat(parts), *more.pop("options", ())]
    options = sorted((each for each in found if isinstance(each, Option)), key=sort_key)
    args = tuple(each for each in found if isinstance(each, Argument))
    examples = more.pop("examples", ())
    if isinstance(examples, str):
        lines = [line.partition("  # ") for line in examples.strip().splitlines()]
        examples = tuple((line, text) for line, _, text in lines)
    return Command(name, summary, does, args, tuple(options), examples=examples, **more)


def job(title: str, opcode: type[OpCode], *parts: Part, **more: Any) -> Command:
    """Return the command that submits an opcode, whose title is ``name: summary``."""
    return command(opcode, *parts, title=title, **more)


def _flat(parts: Iterable[Part]) -> Iterator[Argument | Option]:
    """Yield the arguments and options of a declaration."""
    for part in parts:
        if isinstance(part, Argument | Option):
            yield part
        elif isinstance(part, str):
            for word in part.split():
                shared = None if word[0] in "[<{" else SHARED[word]
                yield from (_argument(word),) if shared is None else _flat((shared,))
        else:
            yield from _flat(part)


_KINDS: Final = {Argument(kind).label: kind for kind in reversed(ArgKind)}


def _argument(word: str) -> Argument:
    """Return the argument that a word such as ``[<node>...]=nodes`` declares."""
    word, _, completes = word.partition("@")
    shape, _, dest = word.partition("=")
    shape, _, kind = shape.partition(":")
    label = shape.strip("[.]")
    bounds = (0 if shape.startswith("[") else 1, None if "..." in shape else 1)
    if label.startswith("{"):
        return Argument(ArgKind.CHOICE, *bounds, tuple(label[1:-1].split("|")), dest=dest)
    known = ArgKind(kind) if kind else _KINDS.get(label, ArgKind.TEXT)
    return Argument(known, *bounds, metavar=label, dest=dest, completes=completes)


def option(flags: str, help: str, type: Any = None, **more: Any) -> Option:
    """Declare an option that takes a value.

    Args:
        flags: separated by blanks, with ``=LABEL`` and ``-> name`` as above.
    """
    words, _, dest = flags.partition(" -> ")
    words, _, label = words.partition("=")
    if dest:
        more["dest"] = dest
    if label:
        more = {"metavar": label, "completes": _COMPLETES.get(label), **more}
    return Option(tuple(words.split()), help, type, **more)


_COMPLETES: Final = {
    "<node>": ArgKind.NODE,
    "NODE": ArgKind.NODE,
    "<pnode>[:<snode>]": ArgKind.NODE_PAIR,
    "<group>": ArgKind.GROUP,
    "<nodegroup>": ArgKind.GROUP,
    "<NAME>": ArgKind.IALLOCATOR,
    "<os>": ArgKind.OS_NAME,
    "JOB[:STATUS+...]": ArgKind.JOB_ID,
}

flag: Final = partial(option, action=Action.TRUE)  # false until given
count: Final = partial(option, action=Action.COUNT)  # how often it is given
several: Final = partial(option, action=Action.APPEND)  # a value each time that it is given
number: Final = partial(option, type=values.Int)
size: Final = partial(option, type=values.Size)
yes_no: Final = partial(option, type=values.YesNo)
names: Final = partial(option, type=values.Names)
commas: Final = partial(option, type=values.Commas)
pairs: Final = partial(option, type=values.KeyValues, default={})
plain_pairs: Final = partial(option, type=values.PlainValues, default={})
settings: Final = partial(option, type=values.Settings, default={})
by_kind: Final = partial(several, type=values.NamedValues)


def unflag(flags: str, help: str, **more: Any) -> Option:
    """Declare an option without a value, ``--no-name``, that is true until given."""
    name = flags.removeprefix("--no-").replace("-", "_")
    flags = flags if " -> " in flags or "dest" in more else f"{flags} -> {name}"
    return option(flags, help, action=Action.FALSE, **more)


def constant(flags: str, help: str, dest: str, const: object) -> Option:
    """Declare an option without a value that stores a constant."""
    return option(flags, help, action=Action.CONST, dest=dest, const=const)


def with_help(option: Option, help: str, dest: str = "") -> Option:
    """Return the option with a help text that fits one command, and perhaps another parameter."""
    return replace(option, help=help, dest=dest or option.dest)


# of which the commands of other modules take variants
BACKEND_PARAMETERS: Final = option(
    "-B --backend-parameters -> beparams",
    "memory (or minmem and maxmem), vcpus, auto_balance, always_failover, spindle_use",
    values.BackendSettings,
    default={},
)
INSTANCE_HYPERVISOR_PARAMETERS: Final = settings(
    "-H --hypervisor-parameters -> hvparams", "parameters of the instance's hypervisor"
)
COMPRESS: Final = option("--compress", "compression of the data sent", default="none")
DISK: Final = by_kind("--disk -> disks", "one disk: N:size=SIZE,...; settings below")
IALLOCATOR: Final = option(
    "-I --iallocator=<NAME>", 'choose nodes with this allocator; "." is the default one'
)
NET: Final = by_kind(
    "--net -> nics", "one network interface: N:[mac=...][,ip=...][,link=...]...; settings below"
)
NODE: Final = option("-n --node=<node>", "the node")
NODE_GROUP: Final = option("-g --node-group=<nodegroup>", "only this node group")
NODE_PAIR: Final = option(
    "-n --node=<pnode>[:<snode>]",
    "primary node, and secondary node where the disk template has one",
)
OS_PARAMETERS: Final = settings(
    "-O --os-parameters -> osparams", "parameters of the operating system definition"
)
OS_PARAMETERS_PRIVATE: Final = plain_pairs(
    "--os-parameters-private -> osparams_private", "parameters that are kept but not shown"
)
OS_TYPE: Final = option(
    "-o --os-type=<os>", "operating system definition, with variant where it has some: NAME+VARIANT"
)

# of which several have one flag
NODES: Final = several("-n --node=<node> -> nodes", "only this node")
HYPERVISOR_AND_PARAMETERS: Final = option(
    "-H --hypervisor-parameters -> hypervisor",
    "hypervisor, and parameters of it",
    values.NamedValues,
)
HYPERVISORS_PARAMETERS: Final = by_kind(
    "-H --hypervisor-parameters -> hvparams",
    "default parameters of one hypervisor",
    gather=values.by_name("hypervisor"),
)
_OPTIONS: Final = (
    # jobs
    flag("--dry-run", "check everything, change nothing"),
    flag("--submit", "print the job's number and return at once"),
    flag("--print-jobid", "print the job's number first"),
    option(
        "--priority",
        "priority of the job in the queue",
        values.Priority,
        choices=tuple(values.PRIORITIES),
    ),
    several(
        "--depend=JOB[:STATUS+...]",
        "start only after this job has ended, in success or in one of these statuses",
        values.Dependency,
    ),
    # lists
    flag("--no-headers", "leave the line of titles out"),
    option("--separator", "put this between columns instead of aligning them"),
    option(
        "-o --output=FIELDS",
        "fields to show, separated by commas; a leading + adds to the usual ones",
    ),
    option(
        "--units",
        "unit of sizes: (h)uman readable, (m)ebi-, (g)ibi- or (t)ebibytes",
        choices=("h", "m", "g", "t"),
    ),
    flag("-v --verbose", "say more; show words instead of ?, - and *"),
    flag("-F --filter", "take the argument as a filter in any case"),
    # going ahead
    flag("-f --force", "do not ask, and go on where a warning would stop"),
    flag("--yes-do-it --ya-rly", "really do it"),
    flag("--ignore-ipolicy", "accept violations of the instance policy, with a warning"),
    flag("--ignore-consistency", "go on although disks may be behind or unreadable"),
    flag("--early-release", "release the locks on nodes as soon as the old disks are gone"),
    # objects
    *(BACKEND_PARAMETERS, COMPRESS, DISK, IALLOCATOR, NET, NODE_GROUP, OS_TYPE),
    *(OS_PARAMETERS, OS_PARAMETERS_PRIVATE),
    option("-n --target-node=NODE", "the node to move to, where the disk template leaves a choice"),
    several("--to=<group> -> target_groups", "group to move to"),
    option(
        "--from -> tags_source",
        "read more tags from this file, one per line; - is the standard input",
    ),
    names("--tags", "tags for the new object"),
    number("--shutdown-timeout", "seconds that the guest gets to shut down by itself", default=120),
    # parameters
    settings(
        "-N --nic-parameters -> nicparams", "defaults of network interfaces: mode, link, vlan"
    ),
    option(
        "--node-parameters -> ndparams",
        "node parameters, such as oob_program or ssh_port",
        values.Settings,
    ),
    by_kind(
        "-D --disk-parameters -> diskparams",
        "parameters of one disk template",
        gather=values.by_name("disk template"),
    ),
    by_kind(
        "--hypervisor-state -> hv_state",
        "static figures per hypervisor: cpu_total, mem_total, ...",
        gather=values.by_name("hypervisor state"),
    ),
    by_kind(
        "--disk-state",
        "static figures per storage: TYPE/NAME:disk_total=...",
        gather=values.disk_state,
    ),
    plain_pairs(
        "--os-parameters-secret -> osparams_secret", "parameters that are neither kept nor shown"
    ),
    # new instances
    size("-s --os-size=<size>", "size of the only disk; short for --disk 0:size=SIZE"),
    flag("--force-variant", "accept a variant that the operating system does not list"),
    option(
        "--file-storage-dir=<DIR>",
        "directory for the disks, below the cluster's file storage directory",
    ),
    unflag("--no-wait-for-sync", "do not wait until the disks are in step"),
    unflag("--no-name-check", "do not ask that the name resolves"),
    unflag("--no-ip-check", "do not ask that nobody answers at the address"),
    unflag("--no-conflicts-check", "accept addresses that lie in a network of the cluster"),
    flag("--no-nics", "no network interfaces"),
    flag(
        "--opportunistic-locking",
        "let the allocator choose only among nodes that no other job has locked, and keep the"
        " locks of the chosen ones",
    ),
    number("--helper-startup-timeout", "seconds that a helper instance gets to start"),
    number("--helper-shutdown-timeout", "seconds that a helper instance gets to finish"),
    yes_no(
        "-c --communication -> instance_communication",
        "give the instance the internal communication interface",
    ),
    # instance policies
    option(
        "--ipolicy-bounds-specs",
        "smallest and largest instances: min:memory-size=...,.../max:...",
        values.SpecGroups,
    ),
    option(
        "--ipolicy-std-specs", "the usual instance: memory-size=...,disk-size=...", values.KeyValues
    ),
    commas("--ipolicy-disk-templates", "disk templates that the policy allows"),
    option("--ipolicy-spindle-ratio", "how many instances may share a spindle", values.MaybeFloat),
    option("--ipolicy-vcpu-ratio", "how many virtual CPUs a real one may serve", values.MaybeFloat),
    # migration
    unflag(
        "--non-live -> live",
        "pause the guest while it is moved (same as --migration-mode=non-live)",
    ),
    option(
        "--migration-mode",
        "live or non-live, instead of the hypervisor's default",
        choices=("live", "non-live"),
    ),
    unflag(
        "--no-runtime-changes -> allow_runtime_changes",
        "fail rather than shrink the guest's memory to fit",
    ),
    # nodes
    number("--ssh-key-bits", "length of the SSH key"),
    option("--ssh-key-type", "kind of the SSH key", choices=("rsa", "ecdsa", "dsa")),
    unflag("--no-ssh-key-check", "accept unknown SSH host keys"),
    number("--oob-timeout -> timeout", "seconds that the out-of-band helper gets", default=60),
    option("--power-delay", "seconds between switching on two nodes", values.Float, default=2.0),
    option("-s --secondary-ip=ADDRESS", "address in the replication network"),
    flag("--auto-promote", "make other nodes master candidates where this one ceases to be one"),
    yes_no("--vm-capable", "whether it may run instances"),
    yes_no("--master-capable", "whether it may become a master candidate"),
    flag("-M --show-machine-names", "put the node's name before each line"),
)
_SELECTIONS: Final = (
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
SHARED: Final[dict[str, Part]] = {
    **{each.long: each for each in _OPTIONS},
    "SUBMISSION": "--depend --print-jobid --priority --submit",
    "CHANGE": "--dry-run SUBMISSION",
    "FIELDS": "--no-headers --separator",
    "LISTING": "FIELDS --output --verbose",
    "IPOLICY": (
        "--ipolicy-bounds-specs --ipolicy-disk-templates"
        " --ipolicy-spindle-ratio --ipolicy-vcpu-ratio"
    ),
    # several instances, which the arguments name directly or otherwise
    "SELECTION": (
        flag("--force-multiple", "do not ask before acting on several instances"),
        *(constant(name, text, dest="multi_mode", const=mode) for name, text, mode in _SELECTIONS),
    ),
    # everything that a new instance may have, also one of an export
    "NEW_INSTANCE": (
        "--backend-parameters --os-parameters --os-parameters-private --os-parameters-secret",
        "--disk --file-storage-dir --os-size --no-wait-for-sync",
        "--net --no-conflicts-check --no-ip-check --no-name-check --no-nics --tags",
        "--iallocator --ignore-ipolicy --opportunistic-locking",
        "--helper-shutdown-timeout --helper-startup-timeout CHANGE",
        *(HYPERVISOR_AND_PARAMETERS, NODE_PAIR),
    ),
}
