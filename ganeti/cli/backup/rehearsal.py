"""``gnt-backup`` rehearse: does an instance come back from its export?

It is made beside the original under a name of its own, without network interfaces, started, looked
at and removed: each step is a job.  A tag marks it, so that a rehearsal that broke off is cleared
away by the next one, and nothing else ever is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, GenericError, OpExecError, OpPrereqError
from ganeti.base.text import meant_by
from ganeti.cli.command import Context, Options, command, opt
from ganeti.cli.instance import devices, guest
from ganeti.cli.run.binding import bound
from ganeti.cli.run.jobs import execute
from ganeti.cli.run.table import format_time
from ganeti.objects.tags import BACKUP_TAGS
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceRemove, OpInstanceStartup
from ganeti.system import clock

PREFIX: Final = "rehearsal."
TAG: Final = "ganeti:rehearsal"
_TAGS: Final = [TAG, f"{BACKUP_TAGS}none"]
_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Export:
    name: str
    node: str
    newest: object


def rehearse(context: Context, options: Options, args: list[str]) -> None:
    """Try whether an instance comes back from its export, beside the original."""
    export = _find(context, args[0], options.src_node)
    name = PREFIX + export.name
    if _is_left(context, name):
        context.write(f"* Removing {name}, which an earlier rehearsal left")
        _remove(context, options, name)
    of = "" if options.src_point is None else f", point {options.src_point}"
    context.write(f"* Bringing back {export.name} from its export on {export.node}{of}, as {name}")
    try:
        create = bound(
            context.command,
            options,
            [name],
            **devices.settings_of_new(options),
            src_node=export.node,
            src_path=export.name,
            tags=_TAGS,
        )
        execute(context, options, create, OpInstanceStartup(instance_name=name))
        result = _watch(context, name, options.seconds, wants_agent=options.agent)
    except GenericError as err:
        if _is_left(context, name):
            _remove(context, options, name)
        raise OpExecError(f"{export.name} does not come back from its export: {err}") from err
    _remove(context, options, name)
    made = "" if options.src_point is not None else f" of {format_time(export.newest)}"
    context.write(f"{export.name} comes back from its export{made}{of}: {result}")


def _find(context: Context, text: str, src_node: str | None) -> _Export:
    """Return the newest export of an instance, which need not exist any more.

    Raises:
        OpPrereqError: there is none.
    """
    rows = context.client.query("export", ["export", "node", "newest"]).rows()
    known = {str(name): str(name) for name, _, _ in rows if name}
    name = meant_by(text, known)
    nodes = {str(node): str(node) for _, node, _ in rows}
    wanted = None if src_node is None else meant_by(src_node, nodes)
    found = [
        _Export(str(export), str(node), newest)
        for export, node, newest in rows
        if export == name and name is not None and wanted in (None, str(node))
    ]
    if not found or (src_node is not None and wanted is None):
        where = "" if src_node is None else f" on node {src_node!r}"
        text = f"there is no export of {text!r}{where}; see 'gnt-backup list'"
        raise OpPrereqError(text, ErrorCode.NOENT)
    return max(found, key=lambda each: each.newest if isinstance(each.newest, list) else [0, 0])


def _is_left(context: Context, name: str) -> bool:
    """Tell whether the instance of a rehearsal is there.

    Raises:
        OpPrereqError: one of that name is there that is no rehearsal.
    """
    for found, tags in context.client.query_instances([name], ["name", "tags"]):
        if isinstance(tags, list) and TAG in tags:
            return True
        text = f"instance {found} is no rehearsal: it does not have the tag {TAG}"
        raise OpPrereqError(text, ErrorCode.EXISTS)
    return False


def _remove(context: Context, options: Options, name: str) -> None:
    execute(context, options, OpInstanceRemove(instance_name=name, shutdown_timeout=0))


def _watch(context: Context, name: str, seconds: int, *, wants_agent: bool) -> str:
    """Watch the instance run; returns what was seen.

    Raises:
        OpExecError: it has stopped, or its agent does not answer; with the end of its console.
    """
    context.write(f"* It is started; looking for {seconds} s")
    began = clock.monotonic()
    while True:
        found = guest.look(context, name)
        passed_s = clock.monotonic() - began
        if not found.is_running:
            raise OpExecError(guest.failure(found, f"it stopped within {passed_s:.0f} s"))
        if wants_agent and found.guest.agent:
            return f"its guest agent answered after {passed_s:.0f} s"
        if passed_s >= seconds:
            break
        context.terminal.progress(f"{passed_s:.0f} s: {guest.last_line(found.guest.console)}")
        clock.pause(min(_LOOK_S, seconds - passed_s))
    context.terminal.progress("")
    if wants_agent:
        text = f"its guest agent has not answered within {seconds} s"
        raise OpExecError(guest.failure(found, text))
    said = guest.last_line(found.guest.console)
    return f"it ran for {seconds} s" + (f"; the last line of its console: {said}" if said else "")


COMMANDS: Final = (
    command(
        rehearse,
        "<instance>=instance_name@export --backend-parameters --iallocator --priority",
        devices.DISK_KIND,
        opt.HYPERVISOR_AND_PARAMETERS,
        opt.NODE_PAIR,
        opt.option("--src-node=<node>", "node that has the export"),
        opt.number("--point=NUMBER -> src_point", "point of a chain; the newest if none is given"),
        opt.number("--seconds=SECONDS", "how long it is looked at", default=60),
        opt.flag("--agent", "wait for its guest agent, and count it as failed without an answer"),
        description="""Makes an instance from the export under the name rehearsal.NAME, without
network interfaces, starts it, and looks at it: it has to go on running, or with --agent its guest
agent has to answer.  Then it is removed, whatever was seen.  The original is left as it is, and
need not exist any more.  The new instance takes as much memory and disk space; -B maxmem=... and
-t plain make that less.  If the command is interrupted, the next one removes what is left.  The
exit status tells whether the instance came back.""",
        examples="""
gnt-backup rehearse -n node4 web1  # does web1 start from its newest export?
gnt-backup rehearse -n node4 -t plain --agent --seconds=300 --point=3 web1 \
 # and as it was at point 3, until its agent answers""",
        opcode=OpInstanceCreate,
        fixed={
            "mode": "import",
            "start": False,
            "no_nics": True,
            "nics": [],
            "disks": [],
            "name_check": False,
            "ip_check": False,
        },
    ),
)
