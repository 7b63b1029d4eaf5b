"""What all operations on one existing instance share: reading it, its locks, its hooks.

The instance is locked exclusively, its nodes shared: so different instances never wait for each
other, and a node cannot be changed or removed under an instance that is being worked on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.instance.hooks_env import instance_env
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, exclusive, shared
from ganeti.objects.rpc_instance import build_rpc_disk, build_rpc_instance, disk_template
from ganeti.opcodes import instance as ops
from ganeti.opcodes.backup import OpBackupExport, OpBackupPrepare

if TYPE_CHECKING:
    from ganeti.base.ids import NodeUuid
    from ganeti.clients.wconfd_values import InstanceContext
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.disk import Disk
    from ganeti.objects.instance import Instance
    from ganeti.objects.node import Node
    from ganeti.objects.nodegroup import NodeGroup
    from ganeti.objects.private import PrivateParams

InstanceOp = (
    OpBackupExport
    | OpBackupPrepare
    | ops.OpInstanceActivateDisks
    | ops.OpInstanceConsole
    | ops.OpInstanceDeactivateDisks
    | ops.OpInstanceFailover
    | ops.OpInstanceGrowDisk
    | ops.OpInstanceMigrate
    | ops.OpInstanceMove
    | ops.OpInstanceReboot
    | ops.OpInstanceRecreateDisks
    | ops.OpInstanceReinstall
    | ops.OpInstanceRemove
    | ops.OpInstanceRename
    | ops.OpInstanceReplaceDisks
    | ops.OpInstanceSetParams
    | ops.OpInstanceShutdown
    | ops.OpInstanceStartup
)
InstanceOpType = TypeVar("InstanceOpType", bound=InstanceOp)


def is_planned(instance: Instance, disks: Sequence[Disk]) -> bool:
    """Tell whether an instance is only planned, so that no node has anything of it yet."""
    return instance.forthcoming and all(disk.forthcoming for disk in disks)


class Subject:
    """An instance with everything around it, as of one instant, in the form that nodes get it."""

    def __init__(self, found: InstanceContext) -> None:
        self.cluster: Cluster = found.cluster
        self.instance: Instance = found.instance
        self.disks: list[Disk] = found.disks
        self.nodes: list[Node] = found.nodes
        self.networks = {str(network.uuid): network for network in found.networks}
        self._groups = {group.uuid: group for group in found.groups}

    @property
    def primary(self) -> Node:
        """The primary node."""
        return self.nodes[0]

    @property
    def group(self) -> NodeGroup:
        """The group of the primary node."""
        return self._groups[self.primary.group]

    @property
    def template(self) -> str:
        """The disk template."""
        return disk_template(self.disks)

    @property
    def is_planned(self) -> bool:
        """Whether no node has anything of it yet."""
        return is_planned(self.instance, self.disks)

    def wire(
        self,
        *,
        primary_node: NodeUuid | None = None,
        hvp: Mapping[str, object] | None = None,
        bep: Mapping[str, object] | None = None,
        osp: PrivateParams | Mapping[str, object] | None = None,
    ) -> dict[str, object]:
        """Return the instance as a node gets it, perhaps as if it had another primary node."""
        instance = self.instance
        if primary_node is not None:
            from msgspec.structs import replace

            instance = replace(instance, primary_node=primary_node)
        return build_rpc_instance(
            self.cluster,
            self.group,
            instance,
            self.disks,
            networks=self.networks,
            hvp=hvp,
            bep=bep,
            osp=osp,
        ).to_wire()

    def disk_wire(self, disk: Disk) -> dict[str, object]:
        """Return a disk as a node gets it."""
        return build_rpc_disk(self.cluster, self.group, disk).to_wire()

    def env(self) -> dict[str, object]:
        """Return the values that hooks are told about every instance."""
        return instance_env(self.cluster, self.instance, self.disks, self.nodes, self.networks)


class InstanceUnit(LogicalUnit[InstanceOpType], Generic[InstanceOpType]):
    """An operation on one existing instance.

    Class attributes:
        takes_incomplete: it can be done to an instance whose disks were never filled.
    """

    takes_incomplete: ClassVar[bool] = False
    subject: Subject

    def expand_names(self) -> None:
        """Read the instance and all around it."""
        found = lookup.require_instance_context(
            self.config, self.op.instance_name, self.op.instance_uuid
        )
        self.subject = Subject(found)

    def check_fitness(self) -> None:
        """Refuse an instance that the job which was to make it did not complete."""
        name = self.instance.name
        if self.instance.forthcoming and not self.takes_incomplete:
            remedy = (
                f"is only planned; make it with 'gnt-instance add --commit {name}', or drop it"
                f" with 'gnt-instance remove {name}'"
                if self.subject.is_planned
                else "is not complete: the job that was to make it ended before its disks were"
                f" filled; install it anew with 'gnt-instance reinstall {name}', or remove it"
                f" with 'gnt-instance remove {name}' and make it again"
            )
            raise OpPrereqError(f"instance {name!r} {remedy}", ErrorCode.STATE)

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster as it was read together with the instance."""
        return self.subject.cluster

    @property
    def instance(self) -> Instance:
        """The instance."""
        return self.subject.instance

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the instance exclusively and its nodes shared."""
        match level:
            case LockLevel.INSTANCE:
                return exclusive(level, [self.instance.name])
            case LockLevel.NODE:
                return shared(level, [node.uuid for node in self.subject.nodes])
            case _:
                return {}

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on the master and the nodes of the instance."""
        nodes = [self.master, *self.subject.nodes]
        return nodes, nodes

    def hooks_env(self) -> Mapping[str, object]:
        """Tell about the instance and the values of this operation."""
        return self.subject.env() | dict(self.own_env())

    def own_env(self) -> Mapping[str, object]:
        """Return the values of this operation alone; by default there are none."""
        return {}

    def hooks_env_after(self) -> Mapping[str, object]:
        """Tell about the instance as it is now."""
        found = self.config.get_instance_context(self.instance.uuid)
        return Subject(found).env() | dict(self.own_env())


def check_node_online(node: Node, what: str) -> None:
    """Refuse to work on a node that is marked offline.

    Raises:
        OpPrereqError: it is offline (wrong_state).
    """
    if node.offline:
        raise OpPrereqError(f"{what} node {node.name!r} is marked offline", ErrorCode.STATE)
