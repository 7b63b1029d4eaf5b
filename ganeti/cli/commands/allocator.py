"""``gnt-debug iallocator``: ask an allocator, or show what it would be asked."""

from __future__ import annotations

from ganeti.base.errors import OpPrereqError
from ganeti.base.units import parse_unit
from ganeti.cli.commands.instance.parameters import split_tags
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.jobs import execute, make_opcode
from ganeti.objects.allocation_modes import IAllocatorMode

_OF_INSTANCES = (IAllocatorMode.CHANGE_GROUP, IAllocatorMode.NODE_EVACUATE)
_NIC_PARTS = ("mac", "ip", "link")


def ask(context: Context, options: Options, args: list[str]) -> int:
    """Make the question, and print it or the answer."""
    several = options.mode in _OF_INSTANCES
    if len(args) > 1 and not several:
        raise OpPrereqError(f"mode {options.mode} is about one instance, {len(args)} were given")
    opcode = make_opcode(
        "OP_TEST_ALLOCATOR",
        direction=options.direction,
        mode=options.mode,
        name=args[0],
        instances=args if several else None,
        iallocator=options.iallocator,
        disks=disks_of(options.disks),
        disk_template=options.disk_template,
        nics=nics_of(options.nics),
        os=options.os_type,
        tags=split_tags(options.tags),
        memory=options.memory,
        vcpus=options.vcpus,
        spindle_use=options.spindle_use,
        count=options.count,
        evac_mode=options.evac_mode,
        target_groups=list(options.target_groups or []) or None,
    )
    [result] = execute(context, options, opcode)
    context.write(str(result).rstrip("\n"))
    return EXIT_SUCCESS


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
