"""``gnt-cluster`` queue and watcher."""

from __future__ import annotations

import time
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.store.job_files import JobFiles
from ganeti.system import clock

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def queue(context: Context, _options: Options, args: list[str]) -> int:
    """Stop or allow the submission of jobs, or tell which it is."""
    [what] = args
    if what == "info":
        [is_drained] = context.client.query_config_values(["drain_flag"])
        by = JobFiles(context.paths).drained_by()
        whose = f", by {by}: run that again, or 'gnt-cluster queue undrain'" if by else ""
        context.write(f"The drain flag is {'set' if is_drained else 'unset'}{whose}")
    else:
        context.client.set_drain_flag(what == "drain")
    return EXIT_SUCCESS


def watcher(context: Context, _options: Options, args: list[str]) -> int:
    """Pause the watcher, let it go on, or tell which it is."""
    what, *rest = args
    if what == "pause":
        if not rest:
            raise OpPrereqError("for how long? for example: gnt-cluster watcher pause 1h")
        until = context.client.set_watcher_pause(clock.now() + parse_duration(rest[0]))
        context.write(f"The watcher is paused until {_format(until)}.")
        return EXIT_SUCCESS
    if rest:
        raise OpPrereqError(f"{what!r} takes no time")
    if what == "continue":
        context.client.set_watcher_pause(None)
        context.write("The watcher is no longer paused.")
    else:
        [until_value] = context.client.query_config_values(["watcher_pause"])
        if isinstance(until_value, int | float) and until_value > clock.now():
            context.write(f"The watcher is paused until {_format(until_value)}.")
        else:
            context.write("The watcher is not paused.")
    return EXIT_SUCCESS


def _format(moment: float | None) -> str:
    return "?" if moment is None else time.ctime(moment)


def parse_duration(text: str) -> int:
    """Parse a time such as 90, 30m, 4h, 2d or 1w to seconds.

    Raises:
        OpPrereqError: it cannot be understood.
    """
    number, unit = (text[:-1], text[-1]) if text and text[-1] in _SECONDS else (text, "s")
    if not number.isdigit():
        raise OpPrereqError(f"{text!r} is not a time such as 90, 30m, 4h, 2d or 1w")
    return int(number) * _SECONDS[unit]
