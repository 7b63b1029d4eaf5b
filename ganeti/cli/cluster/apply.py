"""``gnt-cluster`` apply and export-spec: a cluster as a file says, and the file of a cluster."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import Final

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options, command, confirm, opt
from ganeti.cli.run.jobs import JobGroup
from ganeti.desired import document, living
from ganeti.desired.plan import Plan, plan
from ganeti.desired.spec import SECTIONS, read
from ganeti.system import files

STDIN: Final = "-"
_FILE_BYTES_MAX: Final = 32 << 20  # fifty thousand instances
_PROBLEMS_SHOWN: Final = 20


def apply(context: Context, options: Options, args: list[str]) -> int:
    """Make networks, groups and instances what a file says."""
    [path] = args
    name = "standard input" if path == STDIN else path
    found = document.parse(_text_of(path), name)
    spec, problems = read(found.value)
    made = plan(spec, read_cluster(context), removes=options.remove)
    problems += made.problems
    if problems:
        told = [problem.told(found, name) for problem in problems]
        more = len(told) - _PROBLEMS_SHOWN
        rest = [f"... and {more} more"] if more > 0 else []
        raise OpPrereqError("\n".join([*told[:_PROBLEMS_SHOWN], *rest]))
    _show(context, made)
    if options.dry_run or not made.steps:
        return EXIT_SUCCESS
    removals = [step for step in made.steps if step.removes]
    if removals and not options.force:
        names = ", ".join(f"{step.kind} {step.name}" for step in removals)
        confirm(context, f"Something is removed of: {names}.  Go on?")
    return _carry_out(context, options, made)


def _text_of(path: str) -> str:
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(_FILE_BYTES_MAX + 1)
            if len(data) > _FILE_BYTES_MAX:  # a part of it would have the rest removed
                raise GenericError(f"the standard input has more than {_FILE_BYTES_MAX} bytes")
        else:
            data = files.read_bytes(path, _FILE_BYTES_MAX)
        return data.decode()
    except OSError as err:
        raise GenericError(f"cannot read {path}: {err.strerror}") from err
    except UnicodeDecodeError as err:
        raise OpPrereqError(f"{path}: not text in UTF-8") from err


def read_cluster(context: Context) -> living.Living:
    """Ask what the cluster has."""
    client = context.client
    return living.from_rows(
        client.query_groups([], living.GROUP_FIELDS),
        client.query_networks([], living.NETWORK_FIELDS),
        client.query_instances([], living.INSTANCE_FIELDS),
    )


def _show(context: Context, made: Plan) -> None:
    for step in made.steps:
        context.write(f"{step.kind} {step.name}:")
        context.terminal.write_lines([f"  {text}" for text in step.texts])
    for text in made.held:
        context.terminal.error(f"Not done without --remove: {text}")
    if not made.steps:
        context.write("Nothing to do.")


def _carry_out(context: Context, options: Options, made: Plan) -> int:
    """Run the jobs of each phase at once; a failure keeps the later phases from starting."""
    for phase, steps in groupby(made.steps, key=lambda step: step.phase):
        jobs = JobGroup(context, options)
        for step in steps:
            jobs.add(f"{step.kind} {step.name}", *step.opcodes)
        if jobs.run():
            left = [step for step in made.steps if step.phase > phase]
            if left:
                context.terminal.error(
                    f"Not begun: {', '.join(f'{step.kind} {step.name}' for step in left)}"
                )
            context.terminal.error("Run the command again once the cause is gone.")
            return EXIT_FAILURE
    return EXIT_SUCCESS


def export_spec(context: Context, _options: Options, args: list[str]) -> None:
    """Write the file that describes the cluster as it is."""
    entries = living.export(read_cluster(context))
    wanted = args or list(SECTIONS)
    context.terminal.write_lines(
        document.write({name: entries[name] for name in wanted}).splitlines()
    )


COMMANDS: Final = (
    command(
        apply,
        "<file> --priority",
        opt.flag("--dry-run", "only say what would be done"),
        opt.flag("-f --force", "do not ask before something is removed"),
        opt.flag(
            "--remove",
            "also remove what the file does not have: objects of the sections that it has, disks,"
            " network interfaces, connections of networks",
        ),
        description="""The file is YAML with the sections groups, networks and instances, each with
one key for each object.  The plan is shown first, then done: only what differs is changed, by one
job for each object, and a second run finds nothing to do.  A key that is left out is left alone; of
parameters only those that are named count, and the value default forgets one; lists of disks,
network interfaces, tags and reserved addresses are complete.  Nodes that a group lists are put into
it.  The keys node, secondary, iallocator, group, install, name_check, ip_check, file_driver and
file_storage_dir of an instance count only when it is made, as do settings of disks other than size,
mode and name.  Changes of a running instance wait for its next start where 'gnt-instance modify'
would say so.  A mistake is told with its line, and nothing is done then.  "-" reads the standard
input.""",
        examples="""
gnt-cluster apply --dry-run cluster.yaml  # what would be done
gnt-cluster apply --reason=ticket-17 cluster.yaml  # do it
gnt-cluster apply --remove cluster.yaml  # and remove what the file does not have""",
    ),
    command(
        export_spec,
        "[{groups|networks|instances}...]",
        description="""The file is one for 'gnt-cluster apply', which finds nothing to do in it.
Private parameters of operating systems are left out.""",
        examples="""
gnt-cluster export-spec  # all of it, as YAML
gnt-cluster export-spec networks  # one section""",
    ),
)
