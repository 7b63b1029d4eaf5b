"""Operations on nodes and their storage.

Source: opcodes.json.
"""

from enum import StrEnum
from typing import ClassVar

from ganeti.base.json import JsonValue
from ganeti.objects.allocation_modes import EvacMode
from ganeti.objects.disk_templates import StorageType
from ganeti.objects.hypervisors import MigrationMode
from ganeti.objects.query_words import ResultStatus
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.values import JobIds, NonEmptyStr, Params


class OobCommand(StrEnum):
    """Commands of the out-of-band helper."""

    HEALTH = "health"
    POWER_CYCLE = "power-cycle"
    POWER_OFF = "power-off"
    POWER_ON = "power-on"
    POWER_STATUS = "power-status"


class NodeOpCode(OpCode, frozen=True, kw_only=True):
    """Base of the operations on one node."""

    SUMMARY_FIELD: ClassVar[str | None] = "node_name"

    node_name: NonEmptyStr
    node_uuid: NonEmptyStr | None = None


class OpNodeAdd(OpCode, frozen=True, kw_only=True):
    """Add a node to the cluster, or take a known one in again."""

    SUMMARY_FIELD = "node_name"

    node_name: NonEmptyStr
    hv_state: Params | None = None
    disk_state: Params | None = None
    primary_ip: NonEmptyStr | None = None
    secondary_ip: NonEmptyStr | None = None
    readd: bool = False
    group: NonEmptyStr | None = None
    master_capable: bool | None = None
    vm_capable: bool | None = None
    ndparams: Params | None = None
    node_setup: bool = False


class OpNodeEvacuate(OpCode, frozen=True, kw_only=True):
    """Submit the jobs that move instances away from a node."""

    SUMMARY_FIELD = "node_name"
    RESULT = JobIds

    early_release: bool = False
    node_name: NonEmptyStr
    node_uuid: NonEmptyStr | None = None
    remote_node: NonEmptyStr | None = None
    remote_node_uuid: NonEmptyStr | None = None
    iallocator: NonEmptyStr | None = None
    mode: EvacMode
    ignore_soft_errors: bool | None = None


class OpNodeMigrate(NodeOpCode, frozen=True, kw_only=True):
    """Submit the jobs that migrate all primary instances of a node."""

    RESULT = JobIds

    mode: MigrationMode | None = None
    live: bool | None = None
    target_node: NonEmptyStr | None = None
    target_node_uuid: NonEmptyStr | None = None
    allow_runtime_changes: bool = True
    ignore_ipolicy: bool = False
    iallocator: NonEmptyStr | None = None


class OpNodeModifyStorage(NodeOpCode, frozen=True, kw_only=True):
    """Change settings of a storage unit."""

    storage_type: StorageType
    name: NonEmptyStr | None = None
    changes: Params


class OpNodePowercycle(NodeOpCode, frozen=True, kw_only=True):
    """Reset a node the hard way, from inside."""

    RESULT = NonEmptyStr | None

    force: bool = False


class OpNodeQueryvols(OpCode, frozen=True, kw_only=True):
    """Answer the logical volumes of nodes."""

    RESULT = list[JsonValue]

    output_fields: list[NonEmptyStr]
    nodes: list[NonEmptyStr] = []


class OpNodeQueryStorage(OpCode, frozen=True, kw_only=True):
    """Answer the storage units of nodes."""

    RESULT = list[list[JsonValue]]

    output_fields: list[NonEmptyStr]
    storage_type: StorageType | None = None
    nodes: list[NonEmptyStr] = []
    name: NonEmptyStr | None = None


class OpNodeRemove(NodeOpCode, frozen=True, kw_only=True):
    """Remove a node from the cluster."""


class OpNodeSetParams(NodeOpCode, frozen=True, kw_only=True):
    """Change flags and settings of a node; the result lists the changes."""

    RESULT = list[tuple[NonEmptyStr, JsonValue]]

    force: bool = False
    hv_state: Params | None = None
    disk_state: Params | None = None
    master_candidate: bool | None = None
    offline: bool | None = None
    drained: bool | None = None
    auto_promote: bool = False
    master_capable: bool | None = None
    vm_capable: bool | None = None
    secondary_ip: NonEmptyStr | None = None
    ndparams: Params | None = None
    powered: bool | None = None


class OpOobCommand(OpCode, frozen=True, kw_only=True):
    """Run an out-of-band command for nodes; the result is [status, value] pairs for each."""

    RESULT = list[list[tuple[ResultStatus, JsonValue]]]

    node_names: list[NonEmptyStr] = []
    node_uuids: list[NonEmptyStr] | None = None
    command: OobCommand
    timeout: int = 60
    ignore_status: bool = False
    power_delay: float = 2.0


class OpRepairNodeStorage(NodeOpCode, frozen=True, kw_only=True):
    """Repair a storage unit."""

    storage_type: StorageType
    name: NonEmptyStr | None = None
    ignore_consistency: bool = False


# Commands that nodes allow.


class OpRestrictedCommand(OpCode, frozen=True, kw_only=True):
    """Run one of the commands that nodes allow; the result is [success, output] for each."""

    RESULT = list[tuple[bool, str]]

    use_locking: bool = False
    nodes: list[NonEmptyStr]
    node_uuids: list[NonEmptyStr] | None = None
    command: NonEmptyStr


class OpRepairCommand(OpCode, frozen=True, kw_only=True):
    """Run one of the commands for repairs that a node allows, on an input; returns its output."""

    SUMMARY_FIELD = "node_name"
    RESULT = str

    node_name: NonEmptyStr
    command: NonEmptyStr
    input: NonEmptyStr | None = None
