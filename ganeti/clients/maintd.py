"""Asks the maintenance daemon of this node what it knows and why it does nothing.

It alone knows that: the configuration has the events, not the reasons.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ganeti.base.errors import ConfigurationError, OpPrereqError, TransportError
from ganeti.base.json import loads, loads_as
from ganeti.base.paths import Paths
from ganeti.clients import mond
from ganeti.store import ssconf
from ganeti.system import environment
from ganeti.transport.addresses import addresses_of

PORT: Final = 1816  # maintd.json, "daemon"
CHANGES: Final = "/1/changes"
AVAILABILITY: Final = "/1/availability"
WAIT_S_MAX: Final = 25.0  # for a change
_ANSWER_S: Final = 10.0  # besides
_BYTES_MAX: Final = 96 << 20  # a thousand incidents of 64 KiB


class Status(msgspec.Struct, frozen=True):
    """What the daemon tells.

    Attributes:
        serial: another number after every change, and after a start of the daemon.
        incidents: as at ``/1/status``.
        round: as at ``/1/round``.
    """

    serial: int
    incidents: list[dict[str, Any]]
    round: dict[str, Any]


def listen_address(paths: Paths, hostname: str) -> str:
    """Return the address on the master network device; a virtual node has one of its own.

    Raises:
        OpPrereqError: the device has no address, or it is not known.
    """
    if paths.root:
        return environment.resolve(hostname, paths)[1]
    try:
        device = ssconf.read_key_or_none(paths, "master_netdev") or ""
    except ConfigurationError as err:
        raise OpPrereqError(f"the master network device is not known: {err.message}") from err
    found = addresses_of(device)
    if not found:
        raise OpPrereqError(f"the master network device {device!r} has no address; use --bind")
    return found[0]


async def ask_status(paths: Paths, hostname: str, known: int = -1) -> Status:
    """Return what the daemon of this node, the master, knows; waits a while for news.

    Args:
        known: serial of the status that is known already; -1 for none.

    Raises:
        GenericError: it does not answer.
    """
    return loads_as(Status, await _ask(paths, hostname, f"{CHANGES}/{known}"))


async def ask_availability(paths: Paths, hostname: str) -> dict[str, Any] | None:
    """Return how high availability is; None while it is off.

    Raises:
        GenericError: as of `ask_status`.
    """
    found = loads(await _ask(paths, hostname, AVAILABILITY))
    return found if isinstance(found, dict) else None


async def _ask(paths: Paths, hostname: str, path: str) -> bytes:
    asked = {"": listen_address(paths, hostname)}
    found = await mond.fetch_all(
        asked,
        path,
        body_bytes_max=_BYTES_MAX,
        timeout_s=WAIT_S_MAX + _ANSWER_S,
        service=mond.Service("the maintenance daemon", PORT),
    )
    answer = found[""]
    if isinstance(answer, str):
        raise TransportError(answer)
    return answer
