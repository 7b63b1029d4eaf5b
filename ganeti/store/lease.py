"""What high availability means for the master's daemons, and for whoever wants to be the master.

Where it is off, as it is by default, nothing of it is imported, and only the name of the file with
its settings is looked for.
"""

from __future__ import annotations

import os

from ganeti.base.paths import Paths
from ganeti.system import clock


def is_on(paths: Paths) -> bool:
    """Tell whether high availability is on."""
    return os.path.exists(paths.high_availability)


def is_held(paths: Paths) -> bool:
    """Tell whether this node holds the lease of the master; so it does where there is none."""
    if not is_on(paths):
        return True
    from ganeti.store import availability  # most clusters do without it

    state = availability.read_state(paths)
    return state is not None and state.is_master(clock.monotonic())
