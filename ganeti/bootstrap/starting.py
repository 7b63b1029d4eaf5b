"""Starting daemons as a step that can be undone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack

from ganeti.base.daemons import Place
from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.system import daemon_control

logger = logging.getLogger(__name__)


def start_daemons(
    paths: Paths,
    places: frozenset[Place],
    undo: ExitStack,
    report: Callable[[str], None] = logger.info,
    *,
    hostname: str | None = None,
) -> None:
    """Start the daemons of some places, and push the way back.

    Raises:
        CommandError: one that is needed did not come up; its own words are in the text.
    """
    undo.callback(_stop_again, paths, places)
    daemon_control.start_wanted(paths, places, report, hostname=hostname)


def _stop_again(paths: Paths, places: frozenset[Place]) -> None:
    """Stop them; a failure must not hide the one that led here."""
    try:
        daemon_control.stop_all(paths, places, logger.info)
    except GenericError as err:
        logger.warning("Not everything could be stopped again: %s, ignoring", err.message)
