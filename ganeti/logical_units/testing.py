"""Operations for tests: a delay, messages and notifications of a job, secret parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError
from ganeti.base.secret import REDACTED
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator import asking
from ganeti.logical_units.allocator.moves import find_targets
from ganeti.logical_units.allocator.placing import relocation
from ganeti.logical_units.allocator.question import Snapshot, request_for_new
from ganeti.logical_units.base import LogicalUnit, NamelessUnit, SimpleUnit
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive
from ganeti.objects.allocation_modes import EvacMode, IAllocatorDirection, IAllocatorMode
from ganeti.objects.model import Node
from ganeti.opcodes.instance import OpInstanceCreate
from ganeti.opcodes.registry import decode_opcode
from ganeti.opcodes.test import OpTestAllocator, OpTestDelay, OpTestJqueue, OpTestOsParams
from ganeti.opcodes.values import SecretParams
from ganeti.protocol import iallocator
from ganeti.protocol.iallocator import Wanted
from ganeti.protocol.node_calls import NodeCalls
from ganeti.transport.rendezvous import Rendezvous

# Source: constants.json, "JQT_*" and "ELOG_*".
MESSAGE_PREFIX: Final = "TESTMSG="
LOG_DELAY: Final = "delay-test"
LOG_NOTIFICATION: Final = "jqueue-test"
NOTIFY_EXPAND_NAMES: Final = "expandnames"
NOTIFY_EXEC: Final = "exec"
NOTIFY_START_MESSAGES: Final = "startmsg"
NOTIFY_MESSAGE: Final = "logmsg"
CLIENT_COMES_S: Final = 20.0  # a test that does not come is a test that died
CLIENT_LEAVES_S: Final = 60.0


class LUTestDelay(SimpleUnit[OpTestDelay, Sequence[Node]]):
    """Wait on the master, on nodes, or both; can be canceled all the while."""

    def resolve(self) -> list[Node]:
        """Look the nodes up.

        Raises:
            OpPrereqError: one is not known, or the duration is negative.
        """
        if not self.op.duration >= 0:
            raise OpPrereqError(f"the duration must be at least 0, not {self.op.duration}")
        names = self.op.on_node_uuids or self.op.on_nodes
        return lookup.require_nodes(self.config, names) if names else []

    def locks(self, found: Sequence[Node]) -> LockNeed:
        """Lock the nodes, if that is asked for."""
        if self.op.no_locks:
            return {}
        return exclusive(LockLevel.NODE, [node.uuid for node in found])

    def execute(self, plan: Sequence[Node]) -> None:
        """Wait, once or as often as asked."""
        for number in range(self.op.repeat or 1):
            if self.op.repeat:
                self.context.info(f"Test delay iteration {number}/{self.op.repeat - 1}")
            self._wait(plan)

    def _wait(self, nodes: Sequence[Node]) -> None:
        if self.op.interruptible:
            self._wait_for_visitor()
        elif self.op.on_master and self.op.duration > 0:
            self.context.wait(self.op.duration)
        with self.context.interruptible():
            answers = self.context.nodes.call_all(NodeCalls.test_delay, nodes, self.op.duration)
        for name, result in answers.items():
            if result.error is not None:
                raise OpExecError(f"cannot wait on node {name!r}, call test_delay: {result.error}")

    def _wait_for_visitor(self) -> None:
        """Wait for a client at the socket that the log names, at most the duration."""
        with Rendezvous() as rendezvous:
            self.context.feedback([rendezvous.path], LOG_DELAY)
            with self.context.interruptible():
                rendezvous.wait(self.op.duration)


class LUTestJqueue(SimpleUnit[OpTestJqueue, bool]):
    """Log the messages asked for, then succeed or fail as asked.

    A notification is a log entry [socket, kind, argument]; the job waits there until a client has
    come and gone, so that the client can look at the job in just that state.
    """

    def resolve(self) -> bool:
        """Tell whether to notify a client that the job waits for its locks."""
        return self.op.notify_waitlock

    def place(self, found: bool, earlier: bool | None) -> bool:
        """Notify at the first look only, before there are locks."""
        if found and earlier is None:
            self._notify(NOTIFY_EXPAND_NAMES)
        return found

    def execute(self, plan: bool) -> bool:
        """Log and end."""
        if self.op.notify_exec:
            self._notify(NOTIFY_EXEC)
        if self.op.log_messages and self.op.notify_exec:
            self._notify(NOTIFY_START_MESSAGES, len(self.op.log_messages))
        for number, message in enumerate(self.op.log_messages, start=1):
            self.context.feedback(MESSAGE_PREFIX + message)
            if self.op.notify_exec:
                self._notify(NOTIFY_MESSAGE, number)
        if self.op.fail:
            raise OpExecError("Opcode failure was requested")
        return True

    def _notify(self, kind: str, argument: object = None) -> None:
        with Rendezvous() as rendezvous:
            self.context.feedback([rendezvous.path, kind, argument], LOG_NOTIFICATION)
            with self.context.interruptible():
                try:
                    came = rendezvous.wait(CLIENT_COMES_S, CLIENT_LEAVES_S)
                except TimeoutError as err:
                    raise OpExecError(f"the client of {kind!r} stays too long") from err
        if not came:
            raise OpExecError(f"no client came for notification {kind!r}")


class LUTestOsParams(NamelessUnit[OpTestOsParams]):
    """Show that secret parameters arrive, and do not show themselves."""

    def execute(self, plan: None) -> None:
        """Log them as any log would show them."""
        secrets = self.op.osparams_secret or SecretParams()
        values = secrets.reveal()
        lost = [name for name in secrets if values[name] == REDACTED]
        if lost:
            raise OpExecError(f"the values of these parameters are lost: {', '.join(lost)}")
        self.context.info(f"secret parameters that arrived: {secrets!r}")


COUNT_MAX: Final = 1000
MOVES_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Test:
    """A request, and the allocator that it goes to; None if it is only shown."""

    snapshot: Snapshot
    wanted: Wanted
    allocator: asking.Allocator | None


class LUTestAllocator(LogicalUnit[OpTestAllocator, Snapshot, Test]):
    """Make a question about the cluster as it is; nothing is locked and nothing is changed."""

    def resolve(self) -> Snapshot:
        return asking.read_snapshot(self.config)

    def plan(self, found: Snapshot) -> Test:
        """Make the request.

        Raises:
            OpPrereqError: a parameter that the mode needs is missing, or names nothing.
        """
        wanted = _REQUESTS[self.op.mode](self, found)
        if self.op.direction is IAllocatorDirection.IN:
            return Test(found, wanted, None)
        allocator = asking.choose_allocator(
            self.cluster, self.op.iallocator, "this test", self.op.mode
        )
        if self.op.explain:
            allocator = allocator.with_option(iallocator.EXPLAIN)
        return Test(found, wanted, allocator)

    def execute(self, plan: Test) -> str:
        """Return the question (direction ``in``) or the output of the allocator (``out``)."""
        hypervisor = str(self.op.hypervisor) if self.op.hypervisor else None
        question = asking.make_question(
            self.context, plan.snapshot, plan.wanted, hypervisor=hypervisor
        )
        if plan.allocator is None:
            return iallocator.encode_request(question)
        return asking.run_allocator(self.context, plan.allocator, question)

    # The request of each mode.

    def request(self, name: str) -> iallocator.NewInstance:
        """Return the request for a new instance of a name, from the parameters of the opcode."""
        op = self.op
        beparams: dict[str, object] = {"spindle_use": op.spindle_use}
        for key, value in (("memory", op.memory), ("vcpus", op.vcpus)):
            if value is None:
                raise _missing(op, key)
            beparams[key] = value
        creation = decode_opcode(
            {
                "OP_ID": "OP_INSTANCE_CREATE",
                "instance_name": name,
                "mode": "create",
                "disks": self._disks(),
                "disk_template": op.disk_template and op.disk_template.value,
                "nics": [{k: v for k, v in nic.items() if v is not None} for nic in op.nics or []],
                "beparams": beparams,
                "os_type": op.os,
                "tags": op.tags,
                "group_name": op.group_name,
                "hypervisor": op.hypervisor and op.hypervisor.value,
            }
        )
        assert isinstance(creation, OpInstanceCreate)
        return request_for_new(self.config, self.cluster, creation, name)

    def _disks(self) -> list[Mapping[str, object]]:
        disks = self.op.disks or []
        if not all(isinstance(disk, Mapping) for disk in disks):
            raise OpPrereqError(f"each of the disks must be an object, got {disks!r}")
        return [disk for disk in disks if isinstance(disk, Mapping)]

    def allocate(self, _snapshot: Snapshot) -> Wanted:
        """Ask for a place for a new instance."""
        if lookup.present(self.config.get_instances([self.op.name])):
            raise OpPrereqError(
                f"instance {self.op.name!r} is already in the cluster", ErrorCode.EXISTS
            )
        request = self.request(self.op.name)
        return iallocator.Allocate(
            **{name: getattr(request, name) for name in iallocator.NewInstance.__struct_fields__}
        )

    def multi_allocate(self, _snapshot: Snapshot) -> Wanted:
        """Ask for places for several new instances, which are alike but for a number."""
        count = self.op.count
        if not 0 < count <= COUNT_MAX:
            raise OpPrereqError(f"count: {count} is not between 1 and {COUNT_MAX}")
        requests = [self.request(f"{self.op.name}{number}") for number in range(count)]
        return iallocator.MultiAllocate(instances=requests)

    def relocate(self, snapshot: Snapshot) -> Wanted:
        """Ask for another node for an instance."""
        instance = lookup.require_instance(self.config, self.op.name)
        return relocation(instance.name)(snapshot)

    def allocate_secondary(self, _snapshot: Snapshot) -> Wanted:
        """Ask for a secondary node for an instance."""
        instance = lookup.require_instance(self.config, self.op.name)
        return iallocator.AllocateSecondary(name=instance.name)

    def node_evacuate(self, _snapshot: Snapshot) -> Wanted:
        """Ask how instances are to leave their nodes."""
        return iallocator.NodeEvacuate(
            instances=self._instances(), evac_mode=self.op.evac_mode or EvacMode.ALL
        )

    def change_group(self, _snapshot: Snapshot) -> Wanted:
        """Ask how instances are to leave their groups."""
        targets = find_targets(self.config, self.op.target_groups, {}, "this test")
        uuids: list[str] = [group.uuid for group in targets] if self.op.target_groups else []
        return iallocator.ChangeGroup(instances=self._instances(), target_groups=uuids)

    def balance(self, _snapshot: Snapshot) -> Wanted:
        """Ask which moves make groups better balanced; the groups are named like instances."""
        groups = [
            lookup.require_group(self.config, name).uuid
            for name in self.op.instances or [self.op.name]
        ]
        return iallocator.Balance(groups=[*groups], moves_max=self._limit(MOVES_MAX))

    def capacity(self, _snapshot: Snapshot) -> Wanted:
        """Ask how many more instances of a kind fit."""
        request = self.request(self.op.name)
        return iallocator.Capacity(
            count_max=self._limit(COUNT_MAX),
            **{name: getattr(request, name) for name in iallocator.NewInstance.__struct_fields__},
        )

    def _limit(self, otherwise: int) -> int:
        return otherwise if self.op.limit is None else self.op.limit

    def _instances(self) -> list[str]:
        if not self.op.instances:
            raise _missing(self.op, "instances")
        return [each.name for each in lookup.require_instances(self.config, self.op.instances)]


def _missing(op: OpTestAllocator, key: str) -> OpPrereqError:
    return OpPrereqError(f"mode {op.mode.value} needs {key!r}")


_REQUESTS: Final[Mapping[IAllocatorMode, Callable[[LUTestAllocator, Snapshot], Wanted]]] = {
    IAllocatorMode.ALLOCATE: LUTestAllocator.allocate,
    IAllocatorMode.ALLOCATE_SECONDARY: LUTestAllocator.allocate_secondary,
    IAllocatorMode.BALANCE: LUTestAllocator.balance,
    IAllocatorMode.CAPACITY: LUTestAllocator.capacity,
    IAllocatorMode.CHANGE_GROUP: LUTestAllocator.change_group,
    IAllocatorMode.MULTI_ALLOCATE: LUTestAllocator.multi_allocate,
    IAllocatorMode.NODE_EVACUATE: LUTestAllocator.node_evacuate,
    IAllocatorMode.RELOCATE: LUTestAllocator.relocate,
}
