"""The data collectors of the monitoring daemon: what they are called.

The configuration switches each of them on and off by its name.  Those that 3.0 knows are always in
it; ours are switched on without being named, and get into it once somebody changes one.

Source: mond.json, "collectors"; constants.json, "mond".
"""

from __future__ import annotations

from typing import Final

OF_3_0: Final = (
    "cpu-avg-load",
    "diskstats",
    "drbd",
    "inst-status-xen",
    "lv",
    "xen-cpu-avg-load",
)
OURS: Final = ("diagnose", "inst-status-kvm", "kvm-cpu-avg-load")
INTERVAL_US: Final = 5_000_000  # constants.json, MOND_TIME_INTERVAL
