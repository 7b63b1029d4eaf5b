"""Collector "diagnose": the report of this node's own diagnose command, signed.

The cluster names a command, the node allows it: by a file of that name in a directory which only
its administrator can write to.  The command prints one JSON object, and the report is signed, so
that nobody else can have a node evacuated by pretending to be it
(`ganeti.protocol.maintenance.diagnosis`).  Without a command everything is taken to be in order.

Source: seed document "Ganeti Maintenance Daemon", "Self-diagnose data collector".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ganeti.base.errors import GenericError, failing_as
from ganeti.base.json import loads
from ganeti.base.metrics import Metric, Sample
from ganeti.collectors.cluster_facts import Need
from ganeti.collectors.collector import Collector, Data, NodeView, Timing
from ganeti.collectors.report import Kind
from ganeti.protocol.maintenance import diagnosis
from ganeti.protocol.maintenance.diagnosis import ALL_WELL, OUTPUT_BYTES_MAX, parse, signed
from ganeti.protocol.maintenance.stored import Action
from ganeti.system import clock, files
from ganeti.system.environment import node_environment
from ganeti.system.programs import find_allowed

TIMEOUT_S: Final = 30.0
_WHAT: Final = "diagnose command"
_ENVIRONMENT: Final = {"PATH": "/sbin:/bin:/usr/sbin:/usr/bin", "LC_ALL": "C"}


def diagnose(view: NodeView, *, timeout_s: float = TIMEOUT_S) -> dict[str, object]:
    """Have the node diagnosed.

    Raises:
        GenericError: it is not known which command is to be run, or it is not allowed here, or did
            not do its work.
    """
    name = view.cluster.diagnose_command
    if name is None:
        raise GenericError(f"it is not known how to diagnose this node: {view.cluster.problem}")
    if not name:
        return dict(ALL_WELL)
    program = find_allowed(view.paths.diagnose_commands_dir, name, _WHAT)
    environment = dict(_ENVIRONMENT)
    if view.paths.root:
        environment.update(node_environment(view.paths, view.hostname))
    result = view.run(
        [program],
        timeout_s=timeout_s,
        env=environment,
        cwd="/",
        output_bytes_max=OUTPUT_BYTES_MAX,
        leaves_nothing=True,  # it runs for ever: each time one process more
    ).check()
    try:
        return parse(result.stdout)
    except GenericError as err:
        raise GenericError(f"{_WHAT} {name!r} {err.message}") from err


class Diagnose(Collector):
    """The collector."""

    name = diagnosis.COLLECTOR
    summary = "the report of this node's own diagnose command, signed"
    category = diagnosis.CATEGORY
    kind = Kind.STATUS
    timing = Timing.ALWAYS  # the first question of a new master must not find it asleep
    needs = frozenset({Need.SETTINGS})
    interval_s_max = 120.0  # its signature is good for 300 s
    metrics = (
        Metric(
            "ganeti_node_diagnose",
            "1 for the action that the node's diagnose command asks for, 0 for all others.",
            ("status",),
        ),
    )

    def collect(self, view: NodeView) -> object:
        """Return the report of the command, signed."""
        with failing_as(GenericError, f"cannot sign: {view.paths.hmac_key} cannot be read"):
            key = files.read_bytes(view.paths.hmac_key)
        return signed(diagnose(view), key, view.hostname, clock.now())

    @classmethod
    def samples(cls, data: Data) -> Iterator[Sample]:
        """Yield which action the node needs."""
        if "msg" in data:
            found: Data = loads(data["msg"])
            for action in Action:
                yield Sample("ganeti_node_diagnose", found["status"] == action, (str(action),))
