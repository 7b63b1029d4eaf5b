"""SIGHUP to clients that wait for locks by the old call, `updateLocksWaiting`.

Nobody else may get it: it would end a process that does not expect it.  ``locks.data`` has no
place for the way in which an owner waits (Ganeti 3.0 rejects unknown keys), so a file beside it
keeps that over a restart.

Source: wconfd.json, "files" and "methods" (updateLocksWaiting).
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from typing import Any, Final

from ganeti.base.errors import ConfigurationError
from ganeti.base.json import dumps, loads
from ganeti.protocol.wconfd import ClientId
from ganeti.wconfd.owners import Owners
from ganeti.wconfd.volatile import VolatileFile

logger = logging.getLogger(__name__)

EMPTY: Final = b"[]"


def decode_signalled(data: bytes) -> set[ClientId]:
    """Return the clients that a file lists.

    Raises:
        GenericError: not JSON, or not of the right shape.
    """
    clients: Any = loads(data)
    if not isinstance(clients, list):
        raise ConfigurationError("locks-own.data must be [client, ...]")
    return {ClientId.from_wire(client) for client in clients}


class Signals:
    """The owners that are to get a signal, with the file behind them."""

    def __init__(self, path: str, content: bytes, owners: Owners) -> None:
        self._owners = owners
        self._expecting = decode_signalled(content)
        self._file = VolatileFile(path, content, self._encode, self._restore)

    def _encode(self) -> bytes:
        return dumps(sorted((client.to_wire() for client in self._expecting), key=str))

    def _restore(self, content: bytes) -> None:
        self._expecting = decode_signalled(content)

    def close(self) -> None:
        """Stop using the file."""
        self._file.close()

    def expecting(self) -> list[ClientId]:
        """Return the owners that are to get a signal some time."""
        return list(self._expecting)

    def is_expected_by(self, owner: ClientId) -> bool:
        """Tell whether an owner is to get a signal."""
        return owner in self._expecting

    async def expect(self, owner: ClientId) -> None:
        """Note, lastingly, that an owner waits for a signal.

        Raises:
            GenericError: the file could not be written.
        """
        self._expecting.discard(owner)  # the process may be another one by now
        self._expecting.add(owner)
        await self._file.save()

    def forget(self, owner: ClientId) -> None:
        """Note that an owner expects no signal any more; the file follows."""
        if owner in self._expecting:
            self._expecting.discard(owner)
            self._file.begin_save()

    def send(self, owner: ClientId) -> bool:
        """Signal an owner, if it lives, that its request was granted.

        Returns:
            False if it is not known whether it lives, so that this has to be tried again.
        """
        try:
            is_alive = owner.pid > 1 and self._owners.is_alive(owner)
        except OSError as err:
            logger.warning("Cannot look whether %s lives: %s; trying again", owner, err)
            return False
        if is_alive:
            with contextlib.suppress(ProcessLookupError, PermissionError, OverflowError):
                os.kill(owner.pid, signal.SIGHUP)
        self.forget(owner)
        return True
