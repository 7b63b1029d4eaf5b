"""The frame of a tool for placement: its data loaded and checked, and what every tool prints.

A tool begins with `start`, which reads the cluster from the source that the options name, and
prints through the `Run` that it gets.  Tables of nodes and instances, and warnings, go to the
standard error, as with 3.0.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ganeti.allocation.model import Group
from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.state import ClusterState, make_state
from ganeti.base.errors import GenericError
from ganeti.cli.command import Context, Options
from ganeti.cli.htools.printing import inconsistencies, instance_table, node_table, shown_nodes
from ganeti.cli.htools.sources import load


class Run(Struct, frozen=True):
    """One run of a tool.

    Attributes:
        snapshot: the cluster as it was loaded.
        state: the same, to be scored and searched.
        verbosity: 1, more with -v and less with -q.
    """

    context: Context
    options: Options
    snapshot: Snapshot
    state: ClusterState
    verbosity: int

    def say(self, text: str, level: int = 0) -> None:
        """Write a line, if the verbosity is at least this."""
        if self.verbosity >= level:
            self.context.write(text)

    def warn(self, lines: Iterable[str]) -> None:
        """Write lines to the standard error."""
        self.context.terminal.error("\n".join(lines))

    def print_nodes(
        self, title: str, state: ClusterState | None = None, only: Iterable[str] | None = None
    ) -> None:
        """Print the nodes of groups, with -p."""
        fields = self.options.get("print_nodes")
        if fields is not None:
            nodes = shown_nodes(self.snapshot, state or self.state, only)
            self.warn(["", title, *node_table(nodes, fields), ""])

    def print_instances(
        self, title: str, state: ClusterState | None = None, only: str | None = None
    ) -> None:
        """Print the instances (with their primary node in this group), with --print-instances."""
        if self.options.get("print_instances"):
            nodes, instances = self.snapshot.nodes, (state or self.state).instances.values()
            shown = [each for each in instances if only in (None, nodes[each.primary].group)]
            self.warn(["", title, *instance_table(shown)])


def start(context: Context, options: Options) -> Run:
    """Load the cluster and tell what does not fit in it.

    Raises:
        GenericError: there is no source, or it cannot be read.
    """
    try:
        snapshot = load(context, options)
    except GenericError as err:
        raise GenericError(f"failed to load data, aborting: {err.message}") from err
    verbosity = 1 + options.verbose - (options.get("quiet") or 0)
    run = Run(context, options, snapshot, make_state(snapshot), verbosity)
    if verbosity > 0:
        lines = inconsistencies(shown_nodes(snapshot, run.state))
        if lines:
            run.warn(["Warning: cluster has inconsistent data:", *lines, ""])
    return run


def counted(count: int, word: str) -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def group_of(run: Run, wanted: str | None) -> Group:
    """Return the group to work on: the one named, or the only one.

    Raises:
        GenericError: there is no such group, or none of several is named.
    """
    groups = run.snapshot.groups
    if wanted is None and len(groups) == 1:
        return next(iter(groups.values()))
    found = [group for group in groups.values() if wanted in (group.name, group.uuid)]
    if found:
        return found[0]
    names = "".join(f"\n  {group.name}" for group in groups.values())
    if wanted is None:
        raise GenericError(f"Found multiple node groups; choose one with --group:{names}")
    raise GenericError(f"Node group {wanted} not found. Node group list is:{names}")
