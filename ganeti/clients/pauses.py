"""For how long high availability is still paused.

Asked before the daemons of all nodes are stopped, which its agents would take for losses.
"""

from __future__ import annotations

import asyncio

from ganeti.availability.records import PAUSE_KEY, Pause
from ganeti.base.errors import OpPrereqError, ProtocolError, TransportError, wrong_state
from ganeti.base.paths import Paths
from ganeti.clients.etcd import EtcdClient
from ganeti.store import availability, lease
from ganeti.system import clock


def check(paths: Paths, what: str, *, wanted_s: float, hint: str) -> float:
    """Return until when high availability is paused; 0 where it is off.

    Args:
        what: the work that stops the daemons, with its article.
        hint: the command that pauses for long enough.

    Raises:
        OpPrereqError: it is on, and not paused for long enough, or etcd does not tell.
    """
    if not lease.is_on(paths):
        return 0.0
    state = availability.read_state(paths)
    if state is not None and not state.pause:
        raise _unpaused(hint)
    try:
        until = paused_until(paths)
    except (TransportError, ProtocolError) as err:
        raise wrong_state(
            f"etcd does not tell for how long high availability is paused: {err.message}; once it"
            f" answers ('daemon-util start ganeti-etcd' on its members): {hint}"
        ) from err
    left_s = until - clock.now()
    if left_s <= 0:
        raise _unpaused(hint)
    if left_s < wanted_s:
        raise wrong_state(
            f"high availability is paused for {left_s / 60:.0f} minutes only, and {what} wants"
            f" {wanted_s / 60:.0f}: {hint}"
        )
    return until


def _unpaused(hint: str) -> OpPrereqError:
    return wrong_state(
        "the daemons of all nodes are stopped for a while, which high availability would take for"
        f" losses; pause it first: {hint}"
    )


def paused_until(paths: Paths) -> float:
    """Return until when high availability is paused, in seconds since the epoch; 0 if it is not.

    Raises:
        TransportError, ProtocolError: etcd does not answer.
    """
    settings = availability.read(paths)

    async def read() -> Pause | None:
        assert settings is not None
        async with EtcdClient.of(settings, settings.timing.command_s) as etcd:
            return (await etcd.read()).one(PAUSE_KEY, Pause)

    pause = asyncio.run(read()) if settings is not None else None
    return 0.0 if pause is None else pause.until
