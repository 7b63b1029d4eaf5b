"""A logical unit carries out one opcode, in five steps; state passes between them as values.

    resolve   turn names into objects, and nothing else; no lock is held.
    place     where no node is named: have an allocator choose one, and reserve room there.
    locks     name the locks that the work needs, from the objects found.
    plan      locks held, the work not begun: decide everything, refuse what cannot be done.
    execute   carry the plan out.

``resolve`` and ``place`` return the objects found, ``plan`` returns a frozen plan.  The processor
looks first without locks, takes the locks, and looks again with a fresh unit.  If the second look
needs more than is held, the locks are given back and it starts over; if not, everything has been
read under the locks.  So ``resolve`` reads the configuration freely and nothing needs to be checked
twice.  A place stays chosen from the first look to the second: room there is reserved.

A unit is declared by its class: the type argument names the opcode, ``hooks`` the directory of its
scripts.  Nothing is stored on a unit but its arguments, and the cluster and its master
once they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Generic, TypeVar, get_args

from ganeti.logical_units import lookup
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.hooks import HookPoint
from ganeti.logical_units.locks import LockNeed
from ganeti.objects.model import Cluster, Node
from ganeti.opcodes.opcode import OpCode
from ganeti.protocol.wconfd import WConfCalls

OpType = TypeVar("OpType", bound=OpCode)
FoundType = TypeVar("FoundType")
PlanType = TypeVar("PlanType")


class LogicalUnit(Generic[OpType, FoundType, PlanType]):
    """One opcode being carried out.

    Class attributes:
        opcode: the opcode; it is the type argument.
        mode: only opcodes whose parameter ``mode`` has this value; "" for all others.
        hooks: where the scripts of the operator are, if it has any.
        exclusive_bgl: nothing else may run meanwhile (the cluster lock is taken exclusively).
    """

    opcode: ClassVar[type[OpCode]]
    mode: ClassVar[str] = ""
    hooks: ClassVar[HookPoint | None] = None
    exclusive_bgl: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in cls.__dict__.get("__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type) and issubclass(argument, OpCode):
                    cls.opcode = argument

    def __init__(self, context: JobContext, op: OpType) -> None:
        self.context = context
        self.op = op

    @property
    def config(self) -> WConfCalls:
        """The configuration."""
        return self.context.config

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster object, read once; a unit that reads it with other objects sets it."""
        return self.config.get_cluster()

    @cached_property
    def master(self) -> Node:
        """The master node, read once."""
        return lookup.require_node(self.config, self.cluster.master_node)

    def resolve(self) -> FoundType:
        """Turn names into objects.

        Raises:
            OpPrereqError: a name is not known, or the parameters contradict each other.
        """
        raise NotImplementedError

    def place(self, found: FoundType, earlier: FoundType | None) -> FoundType:
        """Return the objects with the place chosen; by default there is nothing to choose.

        Args:
            earlier: the objects of the first look; the place chosen stays if it is still usable.

        Raises:
            OpPrereqError: there is no place.
        """
        return found

    def locks(self, found: FoundType) -> LockNeed:
        """Return the locks that the work needs; the default needs none."""
        return {}

    def check_state(self, found: FoundType) -> None:
        """Refuse an object on which no work at all can be done; asked first, with locks held.

        Raises:
            OpPrereqError: it is in no such state.
        """

    def plan(self, found: FoundType) -> PlanType:
        """Decide everything, and refuse work that cannot be done.

        Raises:
            OpPrereqError: it cannot be done as things stand.
        """
        raise NotImplementedError

    def rehearsal(self, plan: PlanType) -> object:
        """Return the result of a dry run: what was chosen, if anything was."""
        return None

    def execute(self, plan: PlanType) -> object:
        """Carry the plan out and return the opcode's result."""
        raise NotImplementedError

    def hook_nodes(self, plan: PlanType) -> Sequence[Node]:
        """Return the nodes for hooks before the work."""
        return [self.master]

    def hook_nodes_after(self, plan: PlanType) -> Sequence[Node]:
        """Return the nodes for hooks after the work; by default they are the same."""
        return self.hook_nodes(plan)

    def hook_values(self, plan: PlanType) -> Mapping[str, object]:
        """Return the operation's own values for hooks before the work."""
        return {}

    def hook_values_after(self, plan: PlanType) -> Mapping[str, object]:
        """Return the values as they are after the work; by default they are the same."""
        return self.hook_values(plan)

    def judge_hooks(self, answers: Mapping[str, object], result: object) -> object:
        """Judge the output of the hooks after the work, by node name; returns the final result."""
        return result


class SimpleUnit(LogicalUnit[OpType, FoundType, FoundType], Generic[OpType, FoundType]):
    """A unit with nothing to decide: its plan is the objects found."""

    def plan(self, found: FoundType) -> FoundType:
        return found


class NamelessUnit(SimpleUnit[OpType, None], Generic[OpType]):
    """A unit whose opcode names no object."""

    def resolve(self) -> None:
        pass
