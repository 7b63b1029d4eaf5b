"""When the volume group of a node is put right without anybody asking, and when not.

A disk that fails takes a physical volume away from the volume group of its node.  What is missing
can be taken out of the group safely only while the data is somewhere else.  So the groups of all
nodes are looked at again and again, and what they were the last time is remembered:

    was      is      what is done
    good     good    nothing
    bad      good    it is remembered that they are good: from now on one may fail again
    bad      bad     nothing: the last repair failed, or somebody is at work there
    good     bad     one node alone, all data of which is good elsewhere: its group is put right;
                     otherwise nothing.  In both cases it is remembered that they are bad.

Where nothing is remembered, as on a new master, nothing is done to a group that is bad.  While a
node does not answer nothing is known, and nothing is done or remembered.  What is to be remembered
is written before the repair is begun, so that one that breaks off is not begun again.

Pure.  Source: design-2.0, "LVM self-repair"; design-2.1, "Fix node volume group".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ganeti.base.ids import NodeUuid
from ganeti.logical_units.disk_states import NOT_ASKED, DiskState, DiskStates
from ganeti.objects.disk_templates import LocalDiskStatus, StorageType
from ganeti.objects.model import Disk, Instance


class Health(StrEnum):
    """What is remembered of the volume groups of a cluster."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


class Action(StrEnum):
    """What is done."""

    NOTHING = "nothing"
    REMEMBER = "remember"
    REPAIR = "repair"


@dataclass(frozen=True, slots=True)
class Groups:
    """The volume groups of nodes, by the names of the nodes.

    Attributes:
        broken: what is wrong with those that are not consistent.
        silent: the nodes that did not answer.
    """

    broken: Mapping[str, str]
    silent: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What is done, what is remembered, and why.

    Attributes:
        node: the name of the node whose group is put right.
    """

    action: Action
    health: Health
    why: str
    node: str = ""

    @property
    def line(self) -> str:
        """The line of the log, of one form for programs that watch it."""
        return (
            f"volume-group-repair: action={self.action} health={self.health}"
            f" node={self.node or '-'}: {self.why}"
        )


def decide(before: Health, groups: Groups, uncopied: Sequence[str] = ()) -> Decision:
    """Decide on the volume groups of all nodes.

    Args:
        before: what is remembered.
        uncopied: the disks in the one broken group that have no good copy elsewhere.
    """
    broken = ", ".join(sorted(groups.broken))
    if groups.silent:
        names = ", ".join(sorted(groups.silent))
        return Decision(Action.NOTHING, before, f"no answer of {names}")
    if not groups.broken:
        action = Action.NOTHING if before is Health.GOOD else Action.REMEMBER
        return Decision(action, Health.GOOD, f"all groups are consistent, they were {before}")
    if before is Health.BAD:
        return Decision(Action.NOTHING, Health.BAD, f"the group of {broken} is not consistent yet")
    if before is Health.UNKNOWN:
        why = f"the group of {broken} is not consistent, and it is not known whether it ever was"
        return Decision(Action.REMEMBER, Health.BAD, why)
    if len(groups.broken) > 1:
        why = f"the groups of several nodes are not consistent: {broken}"
        return Decision(Action.REMEMBER, Health.BAD, why)
    if uncopied:
        why = f"the group of {broken} is not consistent; no good copy of {', '.join(uncopied)}"
        return Decision(Action.REMEMBER, Health.BAD, why)
    return Decision(Action.REPAIR, Health.BAD, groups.broken[broken], broken)


def without_copy(
    node: NodeUuid, disks: Iterable[tuple[Instance, Disk]], states: DiskStates
) -> list[str]:
    """Return the disks in the volume group of a node that have no good copy on another node."""
    return [
        f"{disk.iv_name} of instance {instance.name}"
        for instance, disk in disks
        if node in disk.nodes
        and disk.traits.storage is StorageType.LVM_VG
        and not any(
            is_good(states.get((NodeUuid(other), disk.uuid), NOT_ASKED))
            for other in disk.nodes
            if other != node
        )
    ]


def is_good(state: DiskState) -> bool:
    """Tell whether a node has said that its data of a disk is there and up to date."""
    return state.status is not None and state.status[-1] == LocalDiskStatus.OKAY
