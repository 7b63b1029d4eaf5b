"""``gnt-instance`` startup, shutdown, reboot and remove."""

from __future__ import annotations

from ganeti.cli.commands.instance.parameters import backend_parameters, unset_as_default
from ganeti.cli.commands.instance.selection import select_instances
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.confirm import confirm
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.jobs import JobGroup, execute, make_opcode


def startup(context: Context, options: Options, args: list[str]) -> int:
    """Start instances."""
    jobs = JobGroup(context, options)
    for name in select_instances(context, options, args, "start"):
        opcode = make_opcode(
            "OP_INSTANCE_STARTUP",
            instance_name=name,
            force=options.force,
            ignore_offline_nodes=options.ignore_offline,
            no_remember=options.no_remember,
            startup_paused=options.startup_paused,
            hvparams=unset_as_default(options.hvparams),
            beparams=backend_parameters(options.beparams),
        )
        jobs.add(name, opcode)
    return jobs.run()


def shutdown(context: Context, options: Options, args: list[str]) -> int:
    """Stop instances."""
    jobs = JobGroup(context, options)
    for name in select_instances(context, options, args, "stop"):
        opcode = make_opcode(
            "OP_INSTANCE_SHUTDOWN",
            instance_name=name,
            force=options.force,
            timeout=options.timeout,
            ignore_offline_nodes=options.ignore_offline,
            no_remember=options.no_remember,
        )
        jobs.add(name, opcode)
    return jobs.run()


def reboot(context: Context, options: Options, args: list[str]) -> int:
    """Restart instances."""
    jobs = JobGroup(context, options)
    for name in select_instances(context, options, args, "restart"):
        opcode = make_opcode(
            "OP_INSTANCE_REBOOT",
            instance_name=name,
            reboot_type=options.reboot_type,
            ignore_secondaries=options.ignore_secondaries,
            shutdown_timeout=options.shutdown_timeout,
        )
        jobs.add(name, opcode)
    return jobs.run()


def remove(context: Context, options: Options, args: list[str]) -> int:
    """Remove an instance and its disks."""
    [name] = args
    if not options.force:
        confirm(context, f"This removes instance {name} and all its data.  Go on?")
    opcode = make_opcode(
        "OP_INSTANCE_REMOVE",
        instance_name=name,
        ignore_failures=options.ignore_failures,
        shutdown_timeout=options.shutdown_timeout,
    )
    execute(context, options, opcode)
    return EXIT_SUCCESS
