"""``gnt-cluster`` verify, verify-config, verify-disks and repair-disk-sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options, job, opt
from ganeti.cli.run.jobs import JobGroup, make_opcode, results_of_all, submitted_jobs
from ganeti.objects.verify_errors import VerifyErrorCode
from ganeti.opcodes import cluster
from ganeti.opcodes.instance import OpInstanceActivateDisks
from ganeti.opcodes.opcode import OpCode


def show_verification(context: Context, _opcode: OpCode, result: object) -> int:
    """Follow the jobs that verify; the exit status tells whether all is well."""
    failures, results = results_of_all(context, submitted_jobs(result))
    is_well = not failures and all(each for results_of_job in results for each in results_of_job)
    return EXIT_SUCCESS if is_well else EXIT_FAILURE


def show_verdict(context: Context, _opcode: OpCode, is_well: object) -> int:
    """Say whether all is well; so does the exit status."""
    if not is_well:
        context.terminal.error("The configuration has errors; see above.")
        return EXIT_FAILURE
    context.write("The configuration has no errors.")
    return EXIT_SUCCESS


def show_disks(context: Context, _opcode: OpCode, result: object) -> int:
    """Say which disks are missing, and activate those that are not in use where they should be.

    The exit status tells whether all is well.
    """
    failures, results = results_of_all(context, submitted_jobs(result))
    is_well = not failures
    inactive = JobGroup(context, Options({}))
    for [answer] in results:
        match answer:
            case [{**failing}, [*names], {**missing}]:
                is_well = _tell(context, failing, missing) and is_well
                for name in names:
                    context.write(f"Activating disks for instance '{name}'")
                    inactive.add(
                        str(name), make_opcode(OpInstanceActivateDisks, instance_name=name)
                    )
    if inactive:
        is_well = inactive.run() == EXIT_SUCCESS and is_well
    return EXIT_SUCCESS if is_well else EXIT_FAILURE


def show_repair(context: Context, _opcode: OpCode, result: object) -> int:
    """Say what was decided, and follow the repair; the status tells whether all is well."""
    if isinstance(result, Mapping):
        context.write(f"{result.get('health')}: {result.get('why')}")
    failures, _ = results_of_all(context, submitted_jobs(result), announces=True)
    is_well = isinstance(result, Mapping) and (result.get("health") == "good" or result.get("jobs"))
    return EXIT_SUCCESS if is_well and not failures else EXIT_FAILURE


_INDEX: Final = re.compile(r"disk/(\d+) ")  # how a disk that is no volume is named


def _tell(
    context: Context, failing: Mapping[object, object], missing: Mapping[object, object]
) -> bool:
    """Print the broken nodes and missing disks; returns whether there are none."""
    for node, text in failing.items():
        context.terminal.error(f"Node {node} cannot be asked: {text}")
    copied = _with_copies(context, [str(name) for name in missing])
    for instance, disks in missing.items():
        context.write(f"Instance {instance} has missing disks:")
        rows = disks if isinstance(disks, list) else []
        for node, disk in rows:
            context.write(f"  {node} {disk}")
        known = [found for _node, disk in rows if (found := _INDEX.match(str(disk)))]
        which = "".join(f"--disk {each[1]} " for each in known) if len(known) == len(rows) else ""
        context.write(f"  To make them anew, empty: gnt-instance recreate-disks {which}{instance}")
        if instance in copied:
            context.write(
                f"  From the copy on its other node: gnt-instance replace-disks -a {instance}"
            )
    return not failing and not missing


def _with_copies(context: Context, names: Sequence[str]) -> set[str]:
    """Return the names of the instances whose disks have copies on a secondary node."""
    rows = context.client.query_instances(names, ["name", "snodes"]) if names else []
    return {str(name) for name, seconds in rows if seconds}


def show_sizes(context: Context, _opcode: OpCode, result: object) -> None:
    """Print the sizes that were recorded wrongly; a dry run has not looked."""
    if result is None:
        return
    changed = result if isinstance(result, list) else []
    for instance, index, what, value in changed:
        context.write(f"Disk {index} of instance {instance}: {what} is {value} MiB")
    if not changed:
        context.write("The recorded sizes of all disks that could be looked at are right.")


_IGNORE_ERRORS = opt.several(
    "-I --ignore-errors",
    "count this error as a warning",
    choices=tuple(code.value for code in VerifyErrorCode),
)


def skipped_checks(options: Options) -> Mapping[str, object]:
    """Return the checks that are left out."""
    return {"skip_checks": ["nplusone_mem"]} if options.no_nplus1_mem else {}


_NODE_GROUP = replace(opt.NODE_GROUP, dest="group_name")
COMMANDS: Final = (
    job(
        "verify: check the whole cluster",
        cluster.OpClusterVerify,
        "--dry-run --priority --verbose",
        opt.flag("--debug-simulate-errors", "end as if an error had been found"),
        opt.flag("--error-codes", "report in a form for programs"),
        _IGNORE_ERRORS,
        opt.flag("--no-nplus1-mem", "do not check that any one node may fail"),
        _NODE_GROUP,
        opt.flag(
            "--verify-ssh-clutter -> verify_clutter",
            "look for old SSH keys that still let somebody in",
        ),
        makes=skipped_checks,
        result=show_verification,
        examples="""
gnt-cluster verify  # check everything; the exit status says whether all is well
gnt-cluster verify --error-codes --ignore-errors=ENODEVERSION  # for a script""",
    ),
    job(
        "verify-config: check the configuration and the certificates, asking no node",
        cluster.OpClusterVerifyConfig,
        "--priority --verbose",
        opt.flag("--debug-simulate-errors", "end as if an error had been found"),
        opt.flag("--error-codes", "report in a form for programs"),
        _IGNORE_ERRORS,
        description="""Reports names, UUIDs, addresses, ports and DRBD minors that are used
twice, references to what is not there, values of a wrong type or out of range, policies that
contradict themselves, too few master candidates, and address maps of networks that do not fit
what instances use.  The exit status is 1 when there is an error.  The configuration daemon
refuses changes that would introduce such an error, so what is found has been there before, or
came in by editing the file.""",
        examples="gnt-cluster verify-config  # see that the configuration is sound",
        result=show_verdict,
    ),
    job(
        "verify-disks: check the disks of all instances and activate inactive ones",
        cluster.OpClusterVerifyDisks,
        "--priority",
        _NODE_GROUP,
        result=show_disks,
        examples="""
gnt-cluster verify-disks  # find disks that are not in use where they should be""",
    ),
    job(
        "repair-volume-groups: put a node's volume group right if that is safe",
        cluster.OpClusterRepairVolumeGroups,
        "--priority",
        description="""Looks at the volume groups of all nodes, and remembers whether they are
consistent.  If they were, and now that of one single node is not, and other nodes have good
copies of all disks in it, the missing physical volumes are taken out of it.  In all other cases
nothing is changed.  The line of the job's log that begins with 'volume-group-repair:' says what was
done and why; it is also in the log of the jobs, for programs that watch it.  Meant to be run again
and again, for example by cron.  The exit status is 1 while a group is not consistent.""",
        examples="""
gnt-cluster repair-volume-groups  # look, and repair if that is safe""",
        result=show_repair,
    ),
    job(
        "repair-disk-sizes: record the real sizes of disks",
        cluster.OpClusterRepairDiskSizes,
        "[<instance>...] --dry-run --priority",
        result=show_sizes,
    ),
)
