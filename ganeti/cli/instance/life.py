"""``gnt-instance`` startup, shutdown, reboot, remove and reinstall: of one instance or many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.text import natural_sorted
from ganeti.cli.command import ArgKind, Context, Each, Options, command, confirm, job, opt
from ganeti.cli.run.binding import bound, require
from ganeti.cli.run.context import Terminal, confirm_many
from ganeti.cli.run.failures import NotConfirmed
from ganeti.cli.run.jobs import JobGroup
from ganeti.cli.run.listing import rows_of_nodes
from ganeti.opcodes import instance

_PRIMARY: Final = ("pinst_list",)
_SECONDARY: Final = ("sinst_list",)
# mode -> the node fields that list instances
_BY_NODE: Final = {
    "nodes": _PRIMARY + _SECONDARY,
    "nodes-pri": _PRIMARY,
    "nodes-sec": _SECONDARY,
    "nodes-by-tags": _PRIMARY + _SECONDARY,
    "nodes-pri-by-tags": _PRIMARY,
    "nodes-sec-by-tags": _SECONDARY,
}
_IS_PLANNED: Final = ["?", "forthcoming"]


def select_instances(
    context: Context, options: Options, args: Sequence[str], what: str
) -> list[str]:
    """Return the names of the instances meant, after asking when they are several.

    Those that are only planned are meant where they are named.

    Raises:
        OpPrereqError: none is meant, or a name is unknown.
        NotConfirmed: the user does not want that.
    """
    mode = options.multi_mode or "instances"
    names = _find(context, mode, args)
    if mode != "instances" and names:
        planned = set(_names(context.client.query("instance", ["name"], _IS_PLANNED).rows()))
        names = [name for name in names if name not in planned]
    if not names:
        raise OpPrereqError("the selection holds no instances", ErrorCode.NOENT)
    # Names that a script spelled out are meant; the names of a selection are shown first.
    is_spelled_out = mode == "instances" and not context.terminal.is_interactive
    if len(names) > 1 and not (options.force_multiple or is_spelled_out):
        confirm_many(context, what, names, option="--force-multiple")
    return names


def _find(context: Context, mode: str, args: Sequence[str]) -> list[str]:
    client = context.client
    if mode == "cluster":
        if args:
            raise OpPrereqError("--all takes no names")
        return _names(client.query_instances([], ["name"]))
    if not args:
        raise OpPrereqError("no instances given")
    if mode == "instances":
        return _distinct(context, args)
    if mode == "instances-by-tags":
        wanted = set(args)
        rows = client.query_instances([], ["name", "tags"])
        return natural_sorted(str(name) for name, tags in rows if wanted & set(_texts(tags)))
    return _of_nodes(context, mode, args)


def _of_nodes(context: Context, mode: str, args: Sequence[str]) -> list[str]:
    fields = _BY_NODE[mode]
    by_tags = mode.endswith("by-tags")
    rows = rows_of_nodes(context, [] if by_tags else args, ["name", "tags", *fields])
    found: set[str] = set()
    for _, tags, *lists in rows:
        if not by_tags or set(args) & set(_texts(tags)):
            for names in lists:
                found.update(_texts(names))
    return natural_sorted(found)


def _names(rows: Sequence[Sequence[object]]) -> list[str]:
    return natural_sorted(str(row[0]) for row in rows)


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _distinct(context: Context, names: Sequence[str]) -> list[str]:
    """Return the names, of each instance that has several among them the first one.

    Raises:
        OpPrereqError: one of several is unknown; so nothing is done to the others.
    """
    given = list(dict.fromkeys(names))
    if len(given) == 1:
        return given  # its job says whether it is known
    found: dict[str, str] = {}
    for name in given:
        rows = context.client.query_instances([name], ["name"])
        if not rows:
            text = f"instance {name!r} is not known; see 'gnt-instance list'"
            raise OpPrereqError(text, ErrorCode.NOENT)
        found.setdefault(str(rows[0][0]), name)
    return list(found.values())


def each_instance(what: str) -> Each:
    """Return the function that yields the instances; ``what`` is the verb of the question."""

    def each(
        context: Context, options: Options, args: Sequence[str]
    ) -> Iterator[tuple[str, Mapping[str, object]]]:
        for name in select_instances(context, options, args, what):
            yield name, {"instance_name": name}

    return each


def reinstall(context: Context, options: Options, args: list[str]) -> int:
    """Install the operating system of instances again."""
    os_type = _select_os(context, options) if options.select_os else options.os_type
    names = select_instances(context, options, args, "reinstall, which destroys their data,")
    # A user who was asked about several, or did not want to be, is not asked twice.
    is_settled = options.force_multiple or context.terminal.is_interactive
    if not options.force and not (len(names) > 1 and is_settled):
        require(context, ArgKind.INSTANCE, names)
        confirm(context, f"This destroys the data of {', '.join(names)}.  Go on?")
    jobs = JobGroup(context, options)
    for name in names:
        jobs.add(name, bound(context.command, options, [], instance_name=name, os_type=os_type))
    return jobs.run()


def _select_os(context: Context, options: Options) -> str:
    """Let the user choose among the operating systems that all nodes have.

    Raises:
        OpPrereqError: nobody is there to choose, or there is nothing to choose from.
        NotConfirmed: the user wants none of them.
    """
    from ganeti.cli.os import usable_names  # with opcodes that no other command here needs

    if options.os_type:
        raise OpPrereqError("--select-os and -o exclude each other")
    if not context.terminal.is_interactive:
        raise OpPrereqError(
            "--select-os needs a terminal to ask on; name the operating system with -o"
            " (gnt-os list shows them)"
        )
    names = usable_names(context, options)
    if not names:
        raise OpPrereqError("no operating system is usable on all nodes; see gnt-os diagnose")
    context.write("Available operating systems:")
    context.terminal.write_lines([f"{number:3}: {name}" for number, name in enumerate(names)])
    return choose(context.terminal, names)


def choose(terminal: Terminal, names: Sequence[str]) -> str:
    """Ask for the number of one of the names, until it is one.

    Raises:
        NotConfirmed: the answer is ``x``, or there is none.
    """
    while True:
        answer = terminal.ask("Enter the number of the operating system (x to leave): ")
        if answer.lower() in ("", "x"):
            raise NotConfirmed("No operating system was chosen, nothing was done.")
        if answer.isascii() and answer.isdigit() and int(answer) < len(names):
            return names[int(answer)]
        terminal.error(f"{answer!r} is not a number from 0 to {len(names) - 1}")


_MULTI_TEXT = """Without an option that says otherwise, the arguments are names of instances.  When
more than one instance is meant, the command lists them and asks first, unless --force-multiple is
given."""
_IGNORE_OFFLINE = opt.flag(
    "--ignore-offline -> ignore_offline_nodes", "go on when the node is offline: only record it"
)
_NO_REMEMBER = opt.flag("--no-remember", "do not record the new state in the configuration")
COMMANDS: Final = (
    job(
        "startup: start instances",
        instance.OpInstanceStartup,
        "[<instance>...] --backend-parameters --force CHANGE SELECTION",
        opt.INSTANCE_HYPERVISOR_PARAMETERS,
        _IGNORE_OFFLINE,
        _NO_REMEMBER,
        opt.flag("--paused -> startup_paused", "start it, but let it wait"),
        aliases=("start",),
        description=_MULTI_TEXT,
        examples="""
gnt-instance startup web1 web2  # start two instances
gnt-instance startup --node node3  # start all instances of a node""",
        each=each_instance("start"),
    ),
    job(
        "shutdown: stop instances",
        instance.OpInstanceShutdown,
        "[<instance>...] --force CHANGE SELECTION",
        _IGNORE_OFFLINE,
        _NO_REMEMBER,
        opt.number("--timeout", "seconds that the guest gets to shut down by itself", default=120),
        aliases=("stop",),
        description=_MULTI_TEXT,
        examples="""
gnt-instance shutdown --timeout=10 web1  # wait ten seconds, then pull the plug""",
        each=each_instance("stop"),
    ),
    job(
        "reboot: restart instances",
        instance.OpInstanceReboot,
        "[<instance>...] --shutdown-timeout CHANGE SELECTION",
        opt.flag("--ignore-secondaries", "go on when secondary disks cannot be opened"),
        opt.option(
            "-t --type=<REBOOT> -> reboot_type",
            "soft: inside the hypervisor; hard: stop and start; full: with its disks",
            choices=("soft", "full", "hard"),
            default="hard",
        ),
        description=_MULTI_TEXT,
        each=each_instance("restart"),
        examples="""
gnt-instance reboot web1  # as a power button would
gnt-instance reboot -t full web1  # stop and start it, so that changed parameters count""",
    ),
    job(
        "remove: remove an instance and its disks",
        instance.OpInstanceRemove,
        "<instance> --force --shutdown-timeout CHANGE",
        opt.flag("--ignore-failures", "remove it from the configuration after any failure"),
        examples="gnt-instance remove -f web1  # remove web1 without asking",
        confirm="This removes instance {instance_name} and all its data.  Go on?",
    ),
    command(
        reinstall,
        "[<instance>...] --force --force-variant --os-parameters --os-parameters-private",
        "--os-parameters-secret --os-type CHANGE SELECTION",
        opt.flag("--select-os", "choose the operating system from a list"),
        opcode=instance.OpInstanceReinstall,
        examples="""
gnt-instance reinstall -f -o debootstrap+bookworm web1  # when it is stopped; its data are lost""",
    ),
)
