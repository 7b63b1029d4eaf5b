"""``gnt-instance reinstall``."""

from __future__ import annotations

from ganeti.base.errors import NotSupportedError
from ganeti.cli.commands.instance.selection import select_instances
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.confirm import confirm
from ganeti.cli.run.context import Context
from ganeti.cli.run.jobs import JobGroup, make_opcode


def reinstall(context: Context, options: Options, args: list[str]) -> int:
    """Install the operating system of instances again."""
    if options.select_os:
        raise NotSupportedError("--select-os; name the operating system with -o")
    names = select_instances(context, options, args, "reinstall")
    if not options.force:
        confirm(context, f"This destroys the data of {', '.join(names)}.  Go on?")
    jobs = JobGroup(context, options)
    for name in names:
        opcode = make_opcode(
            "OP_INSTANCE_REINSTALL",
            instance_name=name,
            os_type=options.os_type,
            force_variant=options.force_variant,
            osparams=options.osparams or None,
            osparams_private=options.osparams_private or None,
            osparams_secret=options.osparams_secret or None,
        )
        jobs.add(name, opcode)
    return jobs.run()
