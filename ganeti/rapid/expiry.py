"""Complains of a certificate that is not valid any more, or will not be for long.

The server goes on with it: that is better than silence, and clients say what is wrong as well.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.system import certificates, clock, files

logger = logging.getLogger(__name__)

_DAY_S: Final = 24 * 3600.0
_WARN_S: Final = 30 * _DAY_S
_FILE_BYTES_MAX: Final = 1 << 20
_CURE: Final = "write a new one there, it is taken up without a restart"


def complaint(not_before: float, not_after: float, now: float) -> tuple[int, str] | None:
    """Return how bad it is, as a level of the log, and what there is to say of a certificate."""
    if now >= not_after:
        return logging.ERROR, f"expired on {_date(not_after)}, clients refuse it; {_CURE}"
    if now < not_before:
        text = f"is valid from {_date(not_before)} only, clients refuse it; look at the clock"
        return logging.ERROR, text
    if now >= not_after - _WARN_S:
        return logging.WARNING, f"expires on {_date(not_after)}; {_CURE}"
    return None


def _date(stamp: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(stamp))


def check(path: str) -> None:
    """Log what is wrong with the certificate in a file; whether it can be read others say."""
    try:
        facts = certificates.facts(files.read_bytes(path, _FILE_BYTES_MAX), path)
    except (OSError, GenericError):
        return
    found = complaint(facts.not_before, facts.not_after, clock.now())
    if found is not None:
        level, text = found
        logger.log(level, "The certificate in %s %s", path, text)


async def check_daily(path: str) -> None:
    """Look at the certificate each day, for as long as the daemon runs."""
    while True:
        await asyncio.sleep(_DAY_S)
        check(path)
