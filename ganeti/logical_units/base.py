"""What every logical unit is: the carrying out of one opcode, in four steps.

    expand_names   turn names into objects; refuse what cannot be meant.  No lock is held.
    declare_locks  say which locks the work needs, level by level, from what was just read.
    check_prereq   locks held, the work not begun: everything that can be refused is refused here.
    exec           do it.

The processor runs the first two without locks, takes the locks, and then makes a new unit and runs
them again.  If what is needed now is more than what is held, the locks are given back and it starts
over; if not, that second unit has read everything under its locks and goes on.  So a unit reads the
configuration freely in ``expand_names`` and never needs to ask whether what it read is still true.

A unit that has hooks says on which nodes they run and what they are told; which opcodes have hooks
is the table in ``hooks``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Generic, Self, TypeVar

from ganeti.logical_units import lookup
from ganeti.opcodes.opcode import OpCode

if TYPE_CHECKING:
    from ganeti.clients.wconfd_stub import WConfStub
    from ganeti.logical_units.context import JobContext
    from ganeti.logical_units.lock_plan import LockLevel, LockNeed
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.node import Node

OpType = TypeVar("OpType", bound=OpCode)
_NO_LOCKS: LockNeed = {}


class LogicalUnit(Generic[OpType]):
    """One opcode being carried out.

    Class attributes:
        exclusive_bgl: nothing else may run meanwhile (the cluster lock is taken exclusively).
    """

    exclusive_bgl: ClassVar[bool] = False

    def __init__(self, context: JobContext, op: OpType) -> None:
        self.context = context
        self.op = op

    @property
    def config(self) -> WConfStub:
        """The configuration."""
        return self.context.config

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster object, read once."""
        return self.config.get_cluster()

    @cached_property
    def master(self) -> Node:
        """The master node, read once."""
        return lookup.require_node(self.config, self.cluster.master_node)

    def take_over(self, earlier: Self) -> None:
        """Take what must stay the same from the unit that asked for the locks.

        Only the identities of things that are yet to be made; everything else is read again.
        """

    def expand_names(self) -> None:
        """Turn names into objects; the default has none."""

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Say which locks of one level are needed; the default needs none."""
        return _NO_LOCKS

    def check_fitness(self) -> None:
        """Refuse an object on which no work at all can be done; asked first, with locks held.

        Raises:
            OpPrereqError: it is in no such state.
        """

    def check_prereq(self) -> None:
        """Refuse what cannot be done; the default refuses nothing.

        Raises:
            OpPrereqError: it cannot be done as things stand.
        """

    def exec(self) -> object:
        """Do the work and return the opcode's result."""
        raise NotImplementedError

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Return the nodes for hooks before and after the work."""
        return [self.master], [self.master]

    def hooks_env(self) -> Mapping[str, object]:
        """Return the operation's own values for hooks before the work."""
        return {}

    def hooks_env_after(self) -> Mapping[str, object]:
        """Return the values as they are after the work; by default they are the same."""
        return self.hooks_env()

    def hooks_done(self, answers: Mapping[str, object], result: object) -> object:
        """Look at what the post hooks printed, by node name; returns the final result."""
        return result
