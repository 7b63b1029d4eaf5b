"""What a collector may look at: its node, what is known of the cluster, and a way to run commands.

A collector is a function from a `NodeView` to data; it runs in a thread, and whatever it waits for
has a deadline.  When it cannot do its work it raises a `GenericError` that says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.collectors.cluster_facts import ClusterFacts
from ganeti.system import files, process
from ganeti.system.process import CommandResult

_FILE_BYTES_MAX = 16 << 20  # /proc/diskstats of 50,000 devices is half of it


class RunCommand(Protocol):
    """Runs a command to its end, within limits: `ganeti.system.process.run`, or a part of it."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        output_bytes_max: int = process.OUTPUT_BYTES_MAX,
    ) -> CommandResult:
        """Return what became of it; raises CommandError if it cannot be started."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """The node as collectors see it."""

    paths: Paths
    hostname: str
    cluster: ClusterFacts = field(default_factory=ClusterFacts)
    run: RunCommand = process.run


Collect = Callable[[NodeView], object]


def read_text(path: str) -> str:
    """Read a text file whole; bytes that are no text are replaced.

    Raises:
        GenericError: it cannot be read; the text names it.
    """
    try:
        return files.read_bytes(path, _FILE_BYTES_MAX).decode("utf-8", "replace")
    except OSError as err:
        raise GenericError(f"cannot read {path}: {err.strerror}") from err
