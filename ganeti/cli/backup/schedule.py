"""``gnt-backup`` schedule, set-policy and remove-policy: backups that the watcher makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ganeti.backups.facts import gather
from ganeti.backups.plan import Plan, Standing, Step, Work, plan_backups, tag_problems
from ganeti.backups.policy import FORMS, NONE_TAG, WORDS, Word, WordKind, is_policy, tag_of
from ganeti.base.errors import OpPrereqError
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, ArgKind, Context, Options, command, opt
from ganeti.cli.declaration.program import Option
from ganeti.cli.run.binding import require
from ganeti.cli.run.jobs import execute
from ganeti.cli.run.listing import rows_of_nodes, style_of
from ganeti.cli.run.table import format_plain, format_time
from ganeti.objects.tags import TagKind
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.tags import OpTagsDel, OpTagsSet
from ganeti.system import clock

_COLUMNS: Final = (
    *("Instance", "Policy", "Of", "Newest", "Node", "Next"),
    *("Rehearsed", "Next rehearsal"),
)


def schedule(context: Context, options: Options, args: list[str]) -> int:
    """Show which instances are backed up by the watcher, and when next."""
    client = context.client
    require(context, ArgKind.INSTANCE, args)

    def ask(resource: str, fields: Sequence[str], wanted: Any) -> Sequence[Sequence[object]]:
        return client.query(resource, fields, wanted).rows()

    chosen = {str(name) for [name] in client.query_instances(args, ["name"])} if args else None
    tags = client.query_cluster_info()["tags"]
    facts = gather(ask, tags, now=clock.now(), local=clock.local)
    plan = plan_backups(facts)
    shown = [each for each in plan.standings if chosen is None or each.machine.name in chosen]
    rows = [_row(each, plan, facts.now) for each in shown]
    context.terminal.write_lines(format_plain(_COLUMNS, rows, style_of(context, options)))
    warnings = [
        f"instance {each.machine.name}: {text}"
        for each in shown
        for text in each.warnings(facts.now)
    ]
    wrong_tags = tag_problems(facts) if chosen is None else []
    for text in [*warnings, *wrong_tags]:
        context.terminal.error(f"Warning: {text}")
    return EXIT_FAILURE if warnings else EXIT_SUCCESS


def _row(standing: Standing, plan: Plan, now: float) -> list[str]:
    chosen, export = standing.chosen, standing.export
    policy = "none" if chosen.origin else "-"
    newest, node = ("-", "-") if export is None else (format_time(export.newest), export.node)
    if chosen.policy is not None:
        policy = chosen.policy.text
    step = next((each for each in plan.steps if each.instance == standing.machine.name), None)
    return [
        *(standing.machine.name, policy, chosen.origin or "-", newest, node),
        _next(standing, step, now),
        _rehearsed(standing),
        _next_rehearsal(standing, step, now),
    ]


def _next(standing: Standing, step: Step | None, now: float) -> str:
    """Return what the watcher would do now, or when it will, or why it waits."""
    if step is not None and step.work is Work.EXPORT:
        return f"now, to {step.node}"
    if step is not None and step.work is Work.SHORTEN:
        return f"now: its chain will begin with point {step.before}"
    if standing.due is None:
        return "-"
    if standing.due > now:
        return format_time(standing.due)
    return f"due, but {standing.wait}"


def _rehearsed(standing: Standing) -> str:
    """Return what came of the last rehearsal."""
    last = standing.machine.rehearsed
    if last is None:
        return "-" if standing.rehearsal.due is None else "never"
    return f"{format_time(last.ended)} {'failed' if last.failure else 'ok'}"


def _next_rehearsal(standing: Standing, step: Step | None, now: float) -> str:
    if step is not None and step.work is Work.REHEARSE:
        return f"now, on {step.node}"
    if standing.rehearsal.due is None:
        return "-"
    if standing.rehearsal.due > now:
        return format_time(standing.rehearsal.due)
    return f"due, but {standing.rehearsal.wait}"


def set_policy(context: Context, options: Options, args: list[str]) -> None:
    """Say when instances, a node group or all are backed up."""
    tag = _tag_of(context, options)
    opcodes: list[OpCode] = []
    for kind, name, old in _objects(context, options, args):
        if tag not in old:
            opcodes.append(OpTagsSet(kind=kind, name=name, tags=[tag]))
        if others := [each for each in old if each != tag]:
            opcodes.append(OpTagsDel(kind=kind, name=name, tags=others))
    _run(context, options, opcodes)


def remove_policy(context: Context, options: Options, args: list[str]) -> None:
    """Leave it to farther objects when something is backed up."""
    objects = _objects(context, options, args)
    _run(
        context,
        options,
        [OpTagsDel(kind=kind, name=name, tags=old) for kind, name, old in objects if old],
    )


def _run(context: Context, options: Options, opcodes: Sequence[OpCode]) -> None:
    if opcodes:
        execute(context, options, *opcodes)
    else:
        context.write("Nothing to change")


def _tag_of(context: Context, options: Options) -> str:
    values = {word.name: getattr(options, word.name) for word in WORDS}
    # A number 0 is said, and refused.
    given = {n: str(v) for n, v in values.items() if v is not None and v is not False and v != []}
    if options.none:
        if given:
            raise OpPrereqError(f"--none and --{min(given)} exclude each other")
        return NONE_TAG
    if options.every is None:
        raise OpPrereqError("say how often, with --every, or that there are none, with --none")
    if names := values["to"]:
        given["to"] = "+".join(str(row[0]) for row in rows_of_nodes(context, names, ["name"]))
    return tag_of(given)


def _objects(
    context: Context, options: Options, args: Sequence[str]
) -> Iterator[tuple[TagKind, str | None, list[str]]]:
    """Yield the objects that are meant, with the tags that are policies.

    Raises:
        OpPrereqError: none is named, or objects of several kinds, or it is not known.
    """
    client = context.client
    if bool(args) + bool(options.node_group) + bool(options.cluster) != 1:
        raise OpPrereqError("name instances, or a node group with --node-group, or --cluster")
    if options.cluster:
        yield TagKind.CLUSTER, None, list(filter(is_policy, client.query_tags("cluster", None)))
        return
    kind = TagKind.INSTANCE if args else TagKind.NODEGROUP
    for name in args or [options.node_group]:
        yield kind, name, list(filter(is_policy, client.query_tags(str(kind), name)))


def _option(word: Word) -> Option:
    """Return the option that sets a word."""
    if word.kind is WordKind.FLAG:
        return opt.flag(f"--{word.name}", word.help)
    make = {WordKind.NODES: opt.commas, WordKind.POINTS: opt.number}.get(word.kind, opt.option)
    return make(f"--{word.name}={FORMS[word.kind].metavar}", word.help)


_WHICH: Final = (
    "[<instance>...]",
    opt.flag("--cluster", "the policy of all that have no nearer one"),
    "--node-group SUBMISSION",
)
COMMANDS: Final = (
    command(
        schedule,
        "[<instance>...] FIELDS",
        description="""Backups are made by the watcher, as tags of the instance, its node group or
the cluster say: the nearest one decides ('gnt-backup set-policy').  The columns about the next one
say what the watcher would do now, or when it will, or what it waits for.  The exit status is 1 if
the newest export of an instance is too old, or if its last rehearsal failed or is too old.""",
        examples="""
gnt-backup schedule  # of all instances
gnt-backup schedule web1 && echo well  # is the newest export of web1 young enough?""",
    ),
    command(
        set_policy,
        _WHICH,
        *map(_option, WORDS),
        opt.flag("--none", "make no backups"),
        description="""Replaces the policy of these objects, which is a tag of theirs that begins
with ganeti:backup:. Without --keep exports are full ones, of which there is one. Without --stop a
running instance goes on, which needs KVM. Without --late an export is too old at twice the age of
--every, and a day more with --at. With --rehearse the newest export is brought back so often, as by
'gnt-backup rehearse'; 'gnt-backup schedule' and 'gnt-cluster verify' tell the result. The tag
ganeti:backup:per-node:N of the cluster says how many backups and rehearsals may be under way on a
node; without it that is one.""",
        examples="""
gnt-backup set-policy --cluster --every=1d --at=22-6 --keep=7  # each night, all that run on KVM
gnt-backup set-policy --every=4h --to=node4,node5 --keep=42 db1  # this one more often
gnt-backup set-policy --every=1d --rehearse=30d web1  # and try each month whether it comes back
gnt-backup set-policy --node-group=lab --none  # and these never""",
    ),
    command(
        remove_policy,
        _WHICH,
        description="""Removes the tags.  The policy of the node group, or else of the cluster, is
in force then; to have no backups, set one with --none.""",
        examples="gnt-backup remove-policy db1  # as the others of its node group",
    ),
)
