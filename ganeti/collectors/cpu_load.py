"""Collector "cpu-avg-load": how busy the processors of this node are.

Source: mond.json, collector "cpu-avg-load"; proc(5), /proc/stat.
"""

from __future__ import annotations

import os
import re
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.base.text import natural_sorted
from ganeti.collectors.load_window import LoadWindow
from ganeti.collectors.node_view import Collect, NodeView, read_text
from ganeti.system import clock

STAT: Final = "/proc/stat"
_PROCESSOR: Final = re.compile(r"cpu[0-9]+")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
# user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user
_BUSY_COLUMNS: Final = (0, 1, 2, 5, 6, 7)


def parse(text: str) -> dict[str, int]:
    """Return {processor: ticks that it was busy} of /proc/stat.

    Raises:
        GenericError: there is no processor in it, or a number is none.
    """
    found = {}
    for line in text.splitlines():
        name, *values = line.split() or [""]
        if _PROCESSOR.fullmatch(name):
            try:
                found[name] = sum(int(values[i]) for i in _BUSY_COLUMNS if i < len(values))
            except ValueError as err:
                raise GenericError(f"{STAT}: cannot understand {line!r}") from err
    if not found:
        raise GenericError(f"{STAT} names no processor")
    return found


def make(source: str = STAT) -> Collect:
    """Make the collector; it remembers what it saw."""
    window = LoadWindow()

    def collect(_view: NodeView) -> object:
        ticks = parse(read_text(source))
        used_s = {name: busy / _TICKS_PER_SECOND for name, busy in ticks.items()}
        window.add(clock.monotonic(), used_s)
        loads = window.loads()
        in_order = [loads[name] for name in natural_sorted(loads)]
        return {"cpu_number": len(in_order), "cpus": in_order, "cpu_total": sum(in_order)}

    return collect
