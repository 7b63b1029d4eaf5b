"""``gnt-node`` evacuate, failover and migrate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.base.text import natural_sorted
from ganeti.cli.command import EXIT_SUCCESS, Context, Options, command, confirm, job, opt
from ganeti.cli.instance.moves import migration_mode
from ganeti.cli.run.binding import bound
from ganeti.cli.run.jobs import JobGroup, follow_moves
from ganeti.cli.run.listing import rows_of_nodes
from ganeti.opcodes.instance import OpInstanceFailover
from ganeti.opcodes.node import OpNodeEvacuate, OpNodeMigrate

_EVACUATED: Final = {
    (False, False): ("all", "all instances"),
    (True, False): ("primary-only", "all instances whose primary node it is"),
    (False, True): ("secondary-only", "all instances whose secondary node it is"),
}


def evacuation_mode(options: Options) -> Mapping[str, object]:
    """Return which instances move away."""
    mode, _ = _EVACUATED[options.primary_only, options.secondary_only]
    return {"mode": mode}


def evacuation_question(options: Options) -> str:
    """Return the question before an evacuation."""
    _, instances = _EVACUATED[options.primary_only, options.secondary_only]
    return f"This moves {instances} away from node {{node_name}}.  Go on?"


def _without_planned(context: Context, names: list[str]) -> list[str]:
    """Leave out the instances that are only planned and cannot be failed over, and name them."""
    rows = context.client.query_instances(names, ["name", "forthcoming"]) if names else []
    planned = {str(name) for name, is_forthcoming in rows if is_forthcoming is True}
    for name in natural_sorted(planned):
        context.terminal.error(
            f"Warning: instance {name} is not made yet, only planned; make it on another node with"
            f" 'gnt-instance add --commit -n NODE {name}', or drop it with 'gnt-instance remove"
            f" {name}'."
        )
    return [name for name in names if name not in planned]


def failover(context: Context, options: Options, args: list[str]) -> int:
    """Fail over all instances of a node."""
    [name] = args
    rows = rows_of_nodes(context, [name], ["name", "pinst_list"])
    [[full_name, found]] = rows
    names = [str(each) for each in found] if isinstance(found, list) else []
    names = _without_planned(context, names)
    if not names:
        context.terminal.error(f"Node {full_name} has no primary instances, nothing to do.")
        return EXIT_SUCCESS
    if not options.force:
        confirm(context, f"This fails over the instances {', '.join(names)}.  Go on?")
    jobs = JobGroup(context, options)
    for instance in names:
        jobs.add(instance, bound(context.command, options, [], instance_name=instance))
    return jobs.run()


COMMANDS: Final = (
    job(
        "evacuate: move instances away from a node",
        OpNodeEvacuate,
        "<node> --early-release --force --iallocator SUBMISSION",
        opt.flag("--ignore-soft-errors", "ignore advice of the allocator"),
        opt.option(
            "-n --new-secondary=NODE -> remote_node",
            "the node that the instances move to, or their new secondary node",
        ),
        opt.flag("-p --primary-only", "only instances whose primary it is"),
        opt.flag("-s --secondary-only", "only instances whose secondary it is"),
        makes=evacuation_mode,
        confirm=evacuation_question,
        result=follow_moves,
        exclusive=(("--primary-only", "--secondary-only"),),
        examples="""
gnt-node evacuate -I hail -f node3  # move all instances away, to nodes that hail chooses""",
    ),
    command(
        failover,
        "<node> --force --iallocator --ignore-consistency --priority --target-node",
        opcode=OpInstanceFailover,
        examples="""
gnt-node failover -f node3  # restart its instances elsewhere""",
    ),
    job(
        "migrate: migrate all instances of a node",
        OpNodeMigrate,
        "<node> --force --iallocator --ignore-ipolicy --migration-mode --no-runtime-changes",
        "--non-live SUBMISSION --target-node",
        makes=migration_mode,
        exclusive=(("--non-live", "--migration-mode"),),
        confirm="This migrates all instances that run on node {node_name}.  Go on?",
        result=follow_moves,
        description="""Each instance moves in a job of its own; those that do not run are failed
over.  One that cannot move, as its disks are on this node only, holds no other back: it is named
at the end, and the exit status is 1.""",
        examples="""
gnt-node migrate -f -n node2 node3  # move its running instances to node2""",
    ),
)
