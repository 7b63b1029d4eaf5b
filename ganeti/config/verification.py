"""Everything that is wrong with a configuration, for programs that look at the file itself.

WConfD asks the same questions of what it holds in memory (`ganeti.config.checks`).
"""

from __future__ import annotations

from ganeti.config.checks import cluster_problems, problems_of
from ganeti.config.state import ConfigState


def problems_in(data: bytes) -> list[str]:
    """Return what is wrong with a configuration of the current version, a sentence each.

    Raises:
        ConfigurationError: it cannot be read at all; names the byte, or object and field.
    """
    view = ConfigState(data).durable
    found = cluster_problems(view, view.tables)
    for identity in view.identities():
        found += problems_of(view, identity)
    return found
