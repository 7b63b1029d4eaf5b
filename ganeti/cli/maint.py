"""``gnt-maint``: the events of nodes that maintenance acts on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import wrong_state
from ganeti.base.json import dumps
from ganeti.cli.command import Context, Options, command
from ganeti.cli.run.listing import style_of
from ganeti.cli.run.report import Facts, format_report
from ganeti.cli.run.table import format_plain
from ganeti.protocol.maintenance.stored import Incident, incident_of

_COLUMNS: Final = ("Incident", "Node", "Action", "Status", "Jobs")


def _incidents(context: Context) -> Sequence[Incident]:
    """Return all events.

    Raises:
        OpPrereqError: maintenance is off.
    """
    found = context.client.query_maintenance()
    if found is None:
        raise wrong_state(
            "maintenance is switched off; 'gnt-cluster modify --maintenance-interval=300'"
            " switches it on"
        )
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
    context.terminal.write_lines(format_report([_facts(each) for each in chosen]))


def _facts(incident: Incident) -> Facts:
    more = [("Tag", incident.tag or "-"), ("Report", dumps(incident.original).decode())]
    return Facts([*zip(_COLUMNS, _row(incident), strict=True), *more])


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
        cancel,
        "<uuid>...:unknown=uuid",
        description="""Jobs that were submitted already go on.  The event is forgotten once its
node does not report it any more.""",
        examples="gnt-maint cancel 2f6b4b06-1b5c-4c0f-8f0e-6d2a2f6c1a55  # the node stays as it is",
    ),
)
