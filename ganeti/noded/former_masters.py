"""The masters that this node followed before: what is left of their jobs is refused.

A master that stands still while another one takes over learns of it seconds after it goes on.  Its
queue belongs to the new master by then, which has told that its jobs died; but they go on, too, and
must not change what jobs of the new master work on.  The name in the certificate tells who asks;
where all nodes have the same certificate nothing is refused.

What a node that has only not heard of the new master yet would refuse is done all the same: that
one was no master before, as far as the node remembers.  A node that was offline while the role came
back to a former master is told so by the job that takes it in again, with calls that it refuses to
nobody: `ssconf_accept` looks at the serial number, and `config_set_aside` follows a vote.
"""

from __future__ import annotations

import os

from ganeti.base.errors import ConfigurationError
from ganeti.base.paths import Paths
from ganeti.base.text import name_in_certificate
from ganeti.store import ssconf


class FormerMasters:
    """Remembers, until the daemon ends, whom this node has followed."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._seen: tuple[int, int] | None = None
        self._former: set[str] = set()
        self.master = ""
        self.look()

    def look(self) -> None:
        """Learn of another master; to be called with each request, as one brings the news."""
        try:
            status = os.stat(self._paths.ssconf_file("master_node"))
            seen = (status.st_mtime_ns, status.st_ino)
            if seen == self._seen:
                return
            master = ssconf.master_node(self._paths)
        except (OSError, ConfigurationError):  # this node is in no cluster, or on its way into one
            return
        self._seen = seen
        if master != self.master:
            self._former = (self._former | {self.master}) - {master, ""}
            self.master = master

    def refusal(self, name: str) -> str | None:
        """Return why jobs of a node are refused, or None if they are not.

        Args:
            name: in the certificate of the node.
        """
        former = set(map(name_in_certificate, self._former))
        if name not in former - {name_in_certificate(self.master)}:
            return None
        return (
            f"node {name} is not the master any more, so its jobs may change nothing: node"
            f" {self.master} is"
        )
