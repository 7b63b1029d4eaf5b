"""``gnt-debug iallocator``: ask an allocator, or show the question."""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.base.json import loads_as
from ganeti.base.units import parse_unit
from ganeti.cli.command import Context, Options, command, opt
from ganeti.cli.instance.devices import DISK_TEMPLATE
from ganeti.cli.run.binding import submit
from ganeti.objects.allocation_modes import IAllocatorDirection, IAllocatorMode
from ganeti.opcodes.test import OpTestAllocator
from ganeti.protocol.iallocator import Explained

_OF_SEVERAL = (IAllocatorMode.BALANCE, IAllocatorMode.CHANGE_GROUP, IAllocatorMode.NODE_EVACUATE)
_NIC_PARTS = ("mac", "ip", "link")


def ask(context: Context, options: Options, args: list[str]) -> None:
    """Make the question, and print it or the answer."""
    if options.explain and options.direction != IAllocatorDirection.OUT:
        raise OpPrereqError("--explain is about an answer: it needs --dir=out")
    several = options.mode in _OF_SEVERAL
    if len(args) > 1 and not several:
        raise OpPrereqError(f"mode {options.mode} is about one instance, {len(args)} were given")
    said = submit(
        context,
        options,
        [],
        name=args[0],
        instances=args if several else None,
        disks=disks_of(options.disks),
        nics=nics_of(options.nics),
        os=options.os_type,
    )
    text = str(said).rstrip("\n")
    context.write("\n".join(_explained(text)) if options.explain else text)


def _explained(answer: str) -> list[str]:
    """Return what an answer says for people.

    Raises:
        ProtocolError: it is no answer.
    """
    said = loads_as(Explained, answer.encode())
    return said.explanation or [said.info]


def disks_of(text: str) -> list[dict[str, object]]:
    """Return disks of given sizes: ``4g,1024``; an empty text means none.

    Raises:
        UnitParseError: one is no size.
    """
    return [{"size": parse_unit(size)} for size in text.split(",") if size]


def nics_of(text: str) -> list[dict[str, str]]:
    """Return network interfaces: ``MAC[/IP[/LINK]],...``; an empty text means none.

    Raises:
        OpPrereqError: one has more parts.
    """
    nics = []
    for given in filter(None, text.split(",")):
        parts = given.split("/")
        if len(parts) > len(_NIC_PARTS):
            raise OpPrereqError(f"--nics: {given!r} is not of the form MAC[/IP[/LINK]]")
        nics.append({name: part for name, part in zip(_NIC_PARTS, parts, strict=False) if part})
    return nics


COMMANDS: Final = (
    command(
        ask,
        "<instance>...:unknown --dry-run --iallocator --os-type --priority --tags",
        opt.number("--count=N", "how many instances", default=2),
        opt.option(
            "--dir -> direction",
            "in: show the question; out: ask",
            choices=("out", "in"),
            default="in",
        ),
        DISK_TEMPLATE,
        opt.option("--disks", "sizes of the disks", default="4096,4096"),
        opt.flag(
            "--explain", "print why, and why not elsewhere, instead of the answer (with --dir=out)"
        ),
        opt.option(
            "--evac-mode",
            "which instances of the node",
            choices=("all", "primary-only", "secondary-only"),
            default="all",
        ),
        opt.number(
            "--limit=N",
            "at most so many moves (balance; 10 by default) or instances (capacity; 1000)",
        ),
        opt.size("--memory", "memory", default=128),
        opt.option(
            "-m --mode",
            "kind of question",
            choices=(
                "multi-allocate",
                "change-group",
                "relocate",
                "allocate",
                "allocate-secondary",
                "node-evacuate",
                "balance",
                "capacity",
            ),
            default="relocate",
        ),
        opt.option("--nics", "network interfaces", default="00:11:22:33:44:55"),
        opt.number("--spindle-use=N", "weight on the disks", default=1),
        opt.several("--target-groups", "groups to move to"),
        opt.number("-p --vcpus=N", "virtual CPUs", default=1),
        title="iallocator: ask an allocator, or show the question for it",
        aliases=("allocator",),
        opcode=OpTestAllocator,
        description="""Modes allocate, multi-allocate and capacity are about instances that do not
exist, and take their size from the options; balance is about node groups, whose names are given
instead of those of instances; the others are about existing ones.  Capacity asks how many more
instances of a size fit, and where, and balance which moves make the use of nodes more even: these
two are asked of our own hail, or of allocators that know them.  Nothing is changed: the
question (--dir=in) or the answer of the allocator (--dir=out) is shown as it is.""",
        examples="""
gnt-debug iallocator -m allocate --dir=out --disks=1g -t file new1  # where would it go
gnt-debug iallocator -m capacity --dir=out --disks=10g --memory=2g -t drbd more  # how many fit
gnt-debug iallocator -m balance --dir=out --limit=5 default  # five moves within group default
gnt-debug iallocator -m relocate web1  # the question to relocate web1""",
    ),
)
