"""The allocator interface: the question that an allocator program gets, and its answer.

Both sides use these declarations: the logical units, which ask, and allocators of our own, which
read the question and answer.  How a program is found and run is the business of the node daemon.

An allocator is started with the path of a file that holds the question as JSON, then with options;
it prints its answer as one JSON object and exits with 0.  The form of the answer depends on the
mode of the question (`RESULTS`).

Source: iallocator.json; for balance and capacity design-2.1, "IAllocator changes".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, field

from ganeti.base.errors import ProtocolError
from ganeti.base.json import JsonValue, dumps, loads_as
from ganeti.objects.allocation_modes import EvacMode, IAllocatorMode

VERSION: Final = 2

# Where the name of the cluster's default allocator can stand.
DEFAULT_SHORTCUT: Final = "."

# An option for the allocator, given in mode node-evacuate when the operator asks for it.
IGNORE_SOFT_ERRORS: Final = "ignore-soft-errors"

# One of ours, given when the operator asks for it: the answer has an `explanation` then.
EXPLAIN: Final = "explain"

# The opcodes that an allocator may ask for in modes node-evacuate, change-group and balance.
JOB_OPCODES: Final = frozenset(
    {"OP_INSTANCE_FAILOVER", "OP_INSTANCE_MIGRATE", "OP_INSTANCE_REPLACE_DISKS"}
)


# The facts about the cluster.  Memory and disk are MiB.


class AllocatorGroup(Struct, frozen=True, kw_only=True):
    """A node group; ``networks`` are UUIDs, ``ipolicy`` is filled."""

    name: str
    alloc_policy: str
    networks: list[str] = []
    ipolicy: Mapping[str, Any]
    tags: list[str] = []


class AllocatorNode(Struct, frozen=True, kw_only=True):
    """A node; its resources are known only of nodes that are online and vm_capable.

    Attributes:
        group: UUID of its group.
        reserved_memory: the node's own use.
        free_memory: less the amount that running instances may still take up to their maximum.
        i_pri_memory: maximum memory of its primary instances.
        i_pri_up_memory: the same of the ones that are meant to be up.
    """

    tags: list[str] = []
    primary_ip: str
    secondary_ip: str
    offline: bool
    drained: bool
    master_candidate: bool
    group: str
    master_capable: bool
    vm_capable: bool
    ndparams: Mapping[str, Any]
    total_memory: int | UnsetType = UNSET
    reserved_memory: int | UnsetType = UNSET
    free_memory: int | UnsetType = UNSET
    total_disk: int | UnsetType = UNSET
    free_disk: int | UnsetType = UNSET
    total_spindles: int | UnsetType = UNSET
    free_spindles: int | UnsetType = UNSET
    total_cpus: int | UnsetType = UNSET
    reserved_cpus: int | UnsetType = UNSET
    i_pri_memory: int | UnsetType = UNSET
    i_pri_up_memory: int | UnsetType = UNSET


class AllocatorNic(Struct, frozen=True, kw_only=True):
    """A network interface of an instance; ``bridge`` only where it is bridged."""

    mac: str
    ip: str | None
    mode: str
    link: str
    bridge: str | UnsetType = UNSET


class AllocatorDisk(Struct, frozen=True, kw_only=True):
    """A disk of an instance."""

    dev_type: str
    size: int
    mode: str
    spindles: int | None = None


class AllocatorInstance(Struct, frozen=True, kw_only=True):
    """An instance; ``nodes`` are names, the primary first; ``memory`` is its maximum."""

    tags: list[str] = []
    admin_state: str
    vcpus: int
    memory: int
    spindle_use: int
    os: str
    nodes: list[str]
    nics: list[AllocatorNic]
    disks: list[AllocatorDisk]
    disk_template: str
    disks_active: bool
    hypervisor: str
    disk_space_total: int


# The requests, by mode.


class NewInstance(Struct, frozen=True, kw_only=True):
    """An instance to be made.

    Attributes:
        disks: size, mode, dev_type and further settings as they were given.
        nics: as they were given, with mode and link filled in.
        group_name: the only group that it may go to, if any.
        required_nodes: 1, or 2 where the disks are mirrored between two nodes.
        restrict_to_nodes: the only nodes it may go to, where that is limited.
    """

    name: str
    memory: int
    vcpus: int
    spindle_use: int
    disks: list[Mapping[str, JsonValue]]
    disk_space_total: int
    disk_template: str
    group_name: str | None = None
    os: str
    tags: list[str] = []
    nics: list[Mapping[str, JsonValue]]
    required_nodes: int
    hypervisor: str
    restrict_to_nodes: list[str] | UnsetType = field(default=UNSET, name="restrict-to-nodes")


class Allocate(NewInstance, frozen=True, kw_only=True, tag_field="type", tag="allocate"):
    """Where is one new instance to go?"""


class MultiAllocate(Struct, frozen=True, kw_only=True, tag_field="type", tag="multi-allocate"):
    """Where are several new instances to go?"""

    instances: list[NewInstance]


class Relocate(Struct, frozen=True, kw_only=True, tag_field="type", tag="relocate"):
    """Where is an instance to go instead of these nodes, within their group?"""

    name: str
    disk_space_total: int
    required_nodes: int = 1
    relocate_from: list[str]


class NodeEvacuate(Struct, frozen=True, kw_only=True, tag_field="type", tag="node-evacuate"):
    """How are instances to leave the node that they are on?"""

    instances: list[str]
    evac_mode: EvacMode


class ChangeGroup(Struct, frozen=True, kw_only=True, tag_field="type", tag="change-group"):
    """How are instances to leave the group that they are in?

    ``target_groups`` are UUIDs; none means any group but their own.
    """

    instances: list[str]
    target_groups: list[str]


class AllocateSecondary(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="allocate-secondary"
):
    """Which node is to be the secondary one of an instance?"""

    name: str


class Balance(Struct, frozen=True, kw_only=True, tag_field="type", tag="balance"):
    """Which moves make groups better balanced, in the order in which they are to be made?

    Attributes:
        groups: UUIDs; none means all groups.  No instance leaves its group.
        moves_max: how many jobs there may be at most.
    """

    groups: list[str]
    moves_max: int


class Capacity(NewInstance, frozen=True, kw_only=True, tag_field="type", tag="capacity"):
    """How many more instances of this kind fit, and on which nodes, one after the other?

    ``count_max``: as many are enough.
    """

    count_max: int


Wanted: TypeAlias = (
    Allocate
    | MultiAllocate
    | Relocate
    | NodeEvacuate
    | ChangeGroup
    | AllocateSecondary
    | Balance
    | Capacity
)


class AllocatorRequest(Struct, frozen=True, kw_only=True):
    """The whole question; groups by UUID, nodes and instances by name."""

    version: int = VERSION
    cluster_name: str
    cluster_tags: list[str]
    enabled_hypervisors: list[str]
    ipolicy: Mapping[str, Any]
    nodegroups: Mapping[str, AllocatorGroup]
    nodes: Mapping[str, AllocatorNode]
    instances: Mapping[str, AllocatorInstance]
    request: Wanted

    @property
    def mode(self) -> IAllocatorMode:
        """The kind of the request."""
        return IAllocatorMode(str(type(self.request).__struct_config__.tag))


# Answers.


class AllocatorResponse(Struct, frozen=True, kw_only=True):
    """The whole answer; ``result`` is of the mode's type in `RESULTS`, or [] on failure.

    ``explanation``: lines for people, from allocators of our own that are asked for them.
    """

    success: bool
    info: str
    result: Any = []
    explanation: list[str] | UnsetType = UNSET


class Explained(Struct, frozen=True):
    """The part of an answer that is for people only."""

    info: str = ""
    explanation: list[str] = []


NodeNames: TypeAlias = list[str]
"""[primary node, secondary node if there is one]."""

MultiAllocateResult: TypeAlias = tuple[list[tuple[str, NodeNames]], list[str]]
"""[[[instance, nodes], ...], [instance that fits nowhere, ...]]."""

EvacuateResult: TypeAlias = tuple[
    list[tuple[str, str, NodeNames]], list[tuple[str, str | None]], list[list[dict[str, JsonValue]]]
]
"""[[[instance, group name, nodes], ...], [[failed instance, reason], ...], [job, ...]].

A job is a list of opcodes in their JSON form.
"""

CapacityResult: TypeAlias = list[NodeNames]
"""[nodes of the first instance, nodes of the second, ...]."""

RESULTS: Final[Mapping[IAllocatorMode, Any]] = {
    IAllocatorMode.ALLOCATE: NodeNames,
    IAllocatorMode.ALLOCATE_SECONDARY: str,
    IAllocatorMode.BALANCE: EvacuateResult,
    IAllocatorMode.CAPACITY: CapacityResult,
    IAllocatorMode.CHANGE_GROUP: EvacuateResult,
    IAllocatorMode.MULTI_ALLOCATE: MultiAllocateResult,
    IAllocatorMode.NODE_EVACUATE: EvacuateResult,
    IAllocatorMode.RELOCATE: NodeNames,
}


def encode_request(request: AllocatorRequest) -> str:
    """Return a question as JSON text."""
    return dumps(request).decode()


def decode_request(content: bytes) -> AllocatorRequest:
    """Read a question.

    Raises:
        ProtocolError: not JSON, or not a question; the text names object and field.
    """
    try:
        return loads_as(AllocatorRequest, content)
    except ProtocolError:
        _find_object(content)
        raise


_OBJECTS: Final[Mapping[str, tuple[str, Any]]] = {
    "nodegroups": ("node group", AllocatorGroup),
    "nodes": ("node", AllocatorNode),
    "instances": ("instance", AllocatorInstance),
}


def _find_object(content: bytes) -> None:
    """Look for a wrong object in a question: the decoder of the whole does not tell its name.

    Raises:
        ProtocolError: there is one; the text names it.
    """
    whole = loads_as(dict[str, Raw], content)
    for key, (what, kind) in _OBJECTS.items():
        for name, each in loads_as(dict[str, Raw], whole.get(key, b"{}")).items():
            try:
                loads_as(kind, each)
            except ProtocolError as err:
                raise ProtocolError(f"{what} {name!r}: {err.message}") from err


def encode_response(response: AllocatorResponse) -> str:
    """Return an answer as JSON text."""
    return dumps(response).decode()
