"""The answers of the maintenance daemon over HTTP.

`/1/status` has the fields of the design, and beside them the name of the node, the action, why
nothing is done now, and the instances that cannot leave.  `/1/round` is ours: the last round, the
nodes whose health is not known, and why instances are not repaired or the cluster is not balanced.
Where high availability is on, nodes that are proved dead are among the events until all their
instances run elsewhere; what is stuck there says why as well.
So is `/1/changes/SERIAL`: both, as soon as there is another state than the one with that number.
`/1/availability` is high availability as `ganeti.availability.status` has it; null while it is off.

Source: seed document "Ganeti Maintenance Daemon", "External Reporting Protocol"; maintd.json,
"http".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.clients.maintd import AVAILABILITY, CHANGES, WAIT_S_MAX, Status
from ganeti.maintd.acting import Worker
from ganeti.maintd.repairs import WORD
from ganeti.maintd.rounds import BALANCING
from ganeti.objects.record import plain
from ganeti.protocol.maintenance.diagnosis import Unknown
from ganeti.protocol.maintenance.stored import Incident, Maintenance, RepairStatus
from ganeti.store import lease
from ganeti.transport.http_message import HttpRequest, HttpResponse

API_VERSIONS: Final = (1,)
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def authorize(request: HttpRequest) -> HttpResponse | None:
    """Refuse all requests but GET; bodies are not even read."""
    if request.method == "GET":
        return None
    refusal = HttpResponse.text(405, "only GET is understood here", close=True)
    refusal.headers = {"Allow": "GET"}
    return refusal


class StatusService:
    """Answers from what the worker knows."""

    def __init__(self, paths: Paths, worker: Worker, first_serial: int) -> None:
        self._paths = paths
        self._worker = worker
        worker.lost = self.lost_nodes
        self._serial = first_serial
        self._published = b""
        self._changed = asyncio.Event()
        self.losses: Callable[[], list[dict[str, object]]] = list  # of nodes that are dead

    def lost_nodes(self) -> list[str]:
        """Return the nodes that are dead, and whose loss is not dealt with yet."""
        return [str(each["node"]) for each in self.losses()]

    def publish(self) -> None:
        """Wake who waits for news, if there are any."""
        text = dumps([self._incidents(), self._round()])
        if text != self._published:
            self._published, self._serial = text, self._serial + 1
            self._changed.set()
            self._changed = asyncio.Event()

    async def _changes(self, known: str) -> HttpResponse:
        """Answer once there is another state than the known one, or after a while."""
        if known == str(self._serial):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S_MAX):
                    await self._changed.wait()
        return _json(Status(self._serial, self._incidents(), self._round()))

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer one request."""
        state = self._worker.state or Maintenance()
        match request.path:
            case "/":
                return _json(API_VERSIONS)
            case "/1/":
                return _json(None)
            case "/1/jobs":
                return _json(state.jobs)
            case "/1/evacuated":
                return _json(state.evacuated)
            case "/1/status":
                return _json(self._incidents())
            case path if path.startswith(f"{CHANGES}/"):
                return await self._changes(path.removeprefix(f"{CHANGES}/"))
            case "/1/round":
                return _json(self._round())
            case path if path == AVAILABILITY:
                try:
                    return HttpResponse(body=await self._availability(as_metrics=False))
                except GenericError as err:
                    return HttpResponse.text(503, err.message)
            case "/metrics":
                body = self._metrics(state) + await self._availability(as_metrics=True)
                return HttpResponse(body=body, content_type=_CONTENT_TYPE)
            case _:
                return HttpResponse.text(404, "there is nothing at this address")

    async def _availability(self, *, as_metrics: bool) -> bytes:
        """Return what there is to tell of high availability.

        Raises:
            GenericError: the files of this node cannot be read.
        """
        if not lease.is_on(self._paths):
            return b"" if as_metrics else b"null"
        from ganeti.maintd import availability  # most clusters do without it

        return await availability.told(self._paths, as_metrics=as_metrics)

    def _told(self, incident: Incident) -> dict[str, object]:
        node = self._worker.nodes.get(incident.node)
        waits = self._worker.waits.get(incident.uuid)
        return {
            "id": incident.uuid,
            "node": incident.node if node is None else node.uuid,
            "original": plain(incident.original),
            "repair-status": incident.repair_status,
            "jobs": incident.jobs,
            "tag": incident.tag,
            "node-name": incident.node,
            "action": incident.action,
            "why": self._why(incident.uuid),
            "stuck": [] if waits is None else list(waits.stuck),
        }

    def _incidents(self) -> list[dict[str, object]]:
        state = self._worker.state
        events = [self._told(each) for each in state.incidents] if state else []
        return [*events, *self.losses()]

    def _round(self) -> dict[str, object]:
        """Return what is known of the last round; times are Unix times in seconds."""
        worker, state = self._worker, self._worker.state or Maintenance()
        return {
            "is-on": worker.state is not None,
            "rounds": worker.rounds,
            "begun": worker.round_s,
            "jobs": state.jobs,
            "unknown": {
                name: health.report.why
                for name, health in worker.healths.items()
                if isinstance(health.report, Unknown)
            },
            "balancing": {"is-on": state.balance, "why": self._why(BALANCING)},
            "repairs": {"is-on": state.auto_repair, "why": self._why(WORD)},
        }

    def _why(self, event: str) -> str | None:
        waits = self._worker.waits.get(event)
        return None if waits is None else waits.why

    def _metrics(self, state: Maintenance) -> bytes:
        """Return the text for Prometheus."""
        worker = self._worker
        counts = Counter(each.repair_status for each in state.incidents)
        unknown = sum(isinstance(each.report, Unknown) for each in worker.healths.values())
        lines = [
            *_gauge("on", "1 while maintenance is switched on.", worker.state is not None),
            *_gauge("nodes_unknown", "Nodes whose health is not known.", unknown),
            *_gauge("round_jobs", "Jobs of the last round.", len(state.jobs)),
            "# HELP ganeti_maintd_incidents Incidents by their status.",
            "# TYPE ganeti_maintd_incidents gauge",
            *(
                f'ganeti_maintd_incidents{{status="{status}"}} {counts[status]}'
                for status in RepairStatus
            ),
            "# HELP ganeti_maintd_rounds_total Rounds begun since the daemon started.",
            "# TYPE ganeti_maintd_rounds_total counter",
            f"ganeti_maintd_rounds_total {worker.rounds}",
        ]
        return "".join(f"{line}\n" for line in lines).encode()


def _gauge(name: str, text: str, value: int) -> tuple[str, str, str]:
    name = f"ganeti_maintd_{name}"
    return f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name} {int(value)}"


def _json(value: object) -> HttpResponse:
    return HttpResponse(body=dumps(value))
