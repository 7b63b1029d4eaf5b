"""Collector "diagnose": the report of this node's own diagnose command, signed.

The cluster names a command, the node allows it: by a file of that name in a directory which only
its administrator can write to.  The command prints one JSON object and its report is signed with
the cluster's HMAC key, so that no other machine can have a node evacuated by pretending to be it.
Without a command everything is taken to be in order.

Source: seed document "Ganeti Maintenance Daemon", "Self-diagnose data collector"; maintd.json,
"data_collectors"; confd.json, "packet".
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from ganeti.base.errors import GenericError, ProtocolError, failing_as
from ganeti.base.json import dumps, loads
from ganeti.collectors.cluster_facts import Need
from ganeti.collectors.collector import Collector, Data, Metric, NodeView, Sample, Timing
from ganeti.collectors.report import Kind
from ganeti.protocol.confd import sign
from ganeti.system import clock, files
from ganeti.system.environment import node_environment
from ganeti.system.programs import find_allowed, is_plugin_name

TIMEOUT_S: Final = 30.0
OUTPUT_BYTES_MAX: Final = 64 << 10  # it is passed on whole, to the configuration in the end
_SHOWN_CHARS: Final = 200
_WHAT: Final = "diagnose command"
_ENVIRONMENT: Final = {"PATH": "/sbin:/bin:/usr/sbin:/usr/bin", "LC_ALL": "C"}


class Action(StrEnum):
    """The action that a node needs; the words go over the wire."""

    OK = "Ok"
    LIVE_REPAIR = "live-repair"
    EVACUATE = "evacuate"
    EVACUATE_FAILOVER = "evacuate-failover"


ALL_WELL: Final = {"status": Action.OK}


def parse(output: bytes) -> dict[str, object]:
    """Return the object that a diagnose command printed.

    Raises:
        GenericError: it breaks the rules of the protocol; the text says which.
    """
    try:
        found = loads(output)
    except ProtocolError as err:
        shown = output[:_SHOWN_CHARS].decode("utf-8", "replace")
        raise GenericError(f"prints no JSON: {err.message}: {shown!r}") from err
    if not isinstance(found, dict):
        raise GenericError(f"prints {str(found)[:_SHOWN_CHARS]!r}, which is no JSON object")
    status, command = found.get("status"), found.get("command")
    if status not in tuple(Action):
        known = ", ".join(Action)
        raise GenericError(f"gives the status {status!r:.{_SHOWN_CHARS}}; known are: {known}")
    if command is None:
        return found
    if not isinstance(command, str) or not is_plugin_name(command):
        raise GenericError(f"asks for the command {command!r:.{_SHOWN_CHARS}}, which is no name")
    if status != Action.LIVE_REPAIR:
        raise GenericError(f"asks for a command, but only {Action.LIVE_REPAIR} has one")
    return found


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
        [program], timeout_s=timeout_s, env=environment, cwd="/", output_bytes_max=OUTPUT_BYTES_MAX
    ).check()
    try:
        return parse(result.stdout)
    except GenericError as err:
        raise GenericError(f"{_WHAT} {name!r} {err.message}") from err


def signed(found: dict[str, object], key: bytes, now_s: float) -> dict[str, str]:
    """Sign an object as packets of RConfD are signed; good for 300 s."""
    message, salt = dumps(found).decode(), str(int(now_s))
    return {"msg": message, "salt": salt, "hmac": sign(key, salt, message)}


class Diagnose(Collector):
    """The collector."""

    name = "diagnose"
    summary = "the report of this node's own diagnose command, signed"
    category = "node"
    kind = Kind.STATUS
    timing = Timing.WHEN_ASKED
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
        return signed(diagnose(view), key, clock.now())

    @classmethod
    def samples(cls, data: Data) -> Iterator[Sample]:
        """Yield which action the node needs."""
        if "msg" in data:
            found: Data = loads(data["msg"])
            for action in Action:
                yield Sample("ganeti_node_diagnose", found["status"] == action, (str(action),))
