"""How to reach the console of an instance.

Source: node_rpc.json, "InstanceConsole".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ganeti.objects.hypervisors import ConsoleKind
from ganeti.objects.record import Record


class InstanceConsole(Record, frozen=True, kw_only=True):
    """One way to a console; ``kind`` says which of the other fields are set.

    msg: message.  ssh: host, user, command (a list of words).  vnc and spice: host, port, and
    for vnc the display.
    """

    LEFT_OUT: ClassVar[Mapping[str, object]] = {
        "message": None,
        "host": None,
        "port": None,
        "user": None,
        "command": None,
        "display": None,
    }

    instance: str
    kind: ConsoleKind
    message: str | None = None
    host: str | None = None
    port: int | None = None
    user: str | None = None
    command: list[str] | None = None
    display: int | str | None = None
