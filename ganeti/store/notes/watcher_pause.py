"""The file that says until when the watcher pauses.

Source: config.json, "watcher.pause".
"""

from __future__ import annotations

import logging
from typing import Final

from ganeti.base.paths import Paths
from ganeti.system import clock, files

logger = logging.getLogger(__name__)

_BYTES_MAX: Final = 4096
_MODE: Final = 0o644


def read(paths: Paths) -> float | None:
    """Return until when the watcher pauses (seconds since the epoch); None if it does not."""
    data = files.read_bytes_or_none(paths.watcher_pause, _BYTES_MAX)
    try:
        until = float(data or b"0")
    except ValueError:
        logger.debug("%s is not a time: %r; ignoring", paths.watcher_pause, data)
        return None
    return until if until > clock.now() else None


def write(paths: Paths, until: float | None) -> None:
    """Pause the watcher until a time (seconds since the epoch); None ends the pause."""
    if until is None:
        files.remove_if_exists(paths.watcher_pause)
    else:
        text = f"{until:.6f}".rstrip("0").rstrip(".")
        files.write_durable(paths.watcher_pause, f"{text}\n".encode(), _MODE)
