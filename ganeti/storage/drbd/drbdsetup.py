"""The programs of DRBD: their commands, and their failures without the secrets in them.

Source: drbdsetup(8), drbdmeta(8) of DRBD 8.4.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import BlockDeviceError, GenericError
from ganeti.storage.drbd.status import NOT_LOADED, PROC_DRBD, Status, look
from ganeti.system import process

_TIMEOUT_S: Final = 60.0  # the driver gives up on a dead peer before
_HIDDEN: Final = "--shared-secret="


def run(argv: Sequence[str], *, timeout_s: float = _TIMEOUT_S) -> bytes:
    """Run a program of DRBD and return what it printed.

    Raises:
        BlockDeviceError: it failed; the text has its last words, and no secret.
    """
    env = {**os.environ, "LC_ALL": "C"}
    try:
        result = process.run(argv, timeout_s=timeout_s, env=env)
    except GenericError as err:
        raise BlockDeviceError(err.message) from err
    if result.status != 0 or result.timed_out or result.truncated:
        shown = " ".join(_HIDDEN + "***" if each.startswith(_HIDDEN) else each for each in argv)
        said = " ".join(result.output_tail(5).split())
        end = process.describe_end(result)
        raise BlockDeviceError(f"{shown!r} {end}: {said}" if said else f"{shown!r} {end}")
    return result.stdout


def status(source: str = PROC_DRBD) -> Status:
    """Return the state of all devices of this node.

    Raises:
        BlockDeviceError: DRBD is not loaded.
    """
    found = look(run, source)
    if found is None:
        raise BlockDeviceError(NOT_LOADED)
    return found
