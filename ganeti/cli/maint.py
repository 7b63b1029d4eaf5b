"""``gnt-maint``: the events of nodes that maintenance acts on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import convert

from ganeti.base.json import dumps
from ganeti.cli.command import Context, Options, command
from ganeti.cli.run.listing import style_of
from ganeti.cli.run.report import Facts, format_report
from ganeti.cli.run.table import format_plain
from ganeti.clients.maintd import Status
from ganeti.protocol.maintenance.stored import Incident, incident_of, switched_off

_COLUMNS: Final = ("Incident", "Node", "Action", "Status", "Jobs")


def _incidents(context: Context) -> Sequence[Incident]:
    """Return all events.

    Raises:
        OpPrereqError: maintenance is off.
    """
    found = context.client.query_maintenance()
    if found is None:
        raise switched_off()
    return found.incidents


def list_incidents(context: Context, options: Options, _args: list[str]) -> None:
    """List the events of nodes."""
    rows = [_row(each) for each in _incidents(context)]
    context.terminal.write_lines(format_plain(_COLUMNS, rows, style_of(context, options)))


def _row(incident: Incident) -> list[object]:
    jobs = ",".join(map(str, incident.jobs)) or "-"
    return [incident.uuid, incident.node, incident.action, incident.repair_status, jobs]


def show(context: Context, _options: Options, args: list[str]) -> None:
    """Show events with the object that their nodes report; without arguments all."""
    incidents = _incidents(context)
    chosen = [incident_of(incidents, uuid) for uuid in args] if args else incidents
    status = convert(context.client.query_maintenance_status(), Status) if chosen else None
    reasons = {each["id"]: each["why"] for each in status.incidents} if status else {}
    context.terminal.write_lines(format_report([_facts(each, reasons) for each in chosen]))


def _facts(incident: Incident, reasons: Mapping[str, str | None]) -> Facts:
    more = [
        ("Tag", incident.tag or "-"),
        ("Waits", reasons.get(incident.uuid) or "-"),
        ("Report", dumps(incident.original).decode()),
    ]
    return Facts([*zip(_COLUMNS, _row(incident), strict=True), *more])


def watch(context: Context, _options: Options, _args: list[str]) -> None:
    """Tell about events of nodes and about rounds as they happen, until it is interrupted."""
    _incidents(context)  # refuses while maintenance is off
    known, lines = -1, set[str]()
    while True:
        found = context.client.query_maintenance_status(known)
        status = convert(found, Status)
        told = list(_lines(status))
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        context.terminal.write_lines([f"{stamp} {each}" for each in told if each not in lines])
        gone = lines - set(told)
        context.terminal.write_lines(
            [f"{stamp} {each.split(': ')[0]}: over" for each in sorted(gone) if _ends(each, told)]
        )
        known, lines = status.serial, set(told)


def _lines(status: Status) -> Iterator[str]:
    for each in status.incidents:
        jobs = f", jobs {', '.join(map(str, each['jobs']))}" if each["jobs"] else ""
        why = f" ({each['why']})" if each["why"] else ""
        state = f"{each['action']} is {each['repair-status']}{jobs}{why}"
        yield f"incident {each['id']} of {each['node-name']}: {state}"
    for node, why in status.round["unknown"].items():
        yield f"health of {node}: not known ({why})"
    if status.round["jobs"]:
        yield f"last round: jobs {', '.join(map(str, status.round['jobs']))}"
    for what in ("balancing", "repairs"):
        if status.round[what]["why"]:
            yield f"{what}: {status.round[what]['why']}"


def _ends(line: str, told: Sequence[str]) -> bool:
    """Tell whether nothing is told any more about the subject of a line."""
    subject = line.split(": ")[0]
    return not any(each.startswith(f"{subject}: ") for each in told)


def cancel(context: Context, _options: Options, args: list[str]) -> None:
    """Have nobody act on events any more."""
    for uuid in args:
        context.client.cancel_repair(uuid)


COMMANDS: Final = (
    command(
        list_incidents,
        "--no-headers --separator",
        title="list: list the events of nodes",
        examples="gnt-maint list  # the events, and which jobs were submitted for them",
    ),
    command(show, "[<uuid>...]:unknown=uuid", examples="gnt-maint show  # all that is known"),
    command(
        watch,
        description="""Each line is told once, with the time at which it became so; what is over is
told as such.  The daemon answers when something has changed, so nothing is missed and nobody
asks again and again.""",
        examples="gnt-maint watch  # what maintenance does now",
    ),
    command(
        cancel,
        "<uuid>...:unknown=uuid",
        description="""Jobs that were submitted already go on.  The event is forgotten once its
node does not report it any more.""",
        examples="gnt-maint cancel 2f6b4b06-1b5c-4c0f-8f0e-6d2a2f6c1a55  # the node stays as it is",
    ),
)
