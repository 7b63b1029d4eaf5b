"""Operations on exports of instances.

Source: opcodes.json.
"""

from enum import StrEnum

from ganeti.base.json import JsonValue
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.hypervisors import Hypervisor
from ganeti.opcodes.opcode import InstanceOpCode, OpCode
from ganeti.opcodes.values import NonEmptyStr, NonNegativeInt, Params


class ExportMode(StrEnum):
    """Where an export goes."""

    LOCAL = "local"
    REMOTE = "remote"


class OpBackupExport(InstanceOpCode, frozen=True, kw_only=True):
    """Write the disks and settings of an instance to a node, or send them to another cluster."""

    RESULT = tuple[bool, list[bool]]

    compress: str = "none"
    shutdown_timeout: NonNegativeInt = 120
    target_node: NonEmptyStr | list[JsonValue]
    target_node_uuid: NonEmptyStr | None = None
    shutdown: bool = True
    remove_instance: bool = False
    ignore_remove_failures: bool = False
    mode: ExportMode = ExportMode.LOCAL
    x509_key_name: list[JsonValue] | None = None
    destination_x509_ca: NonEmptyStr | None = None
    zero_free_space: bool = False
    zeroing_timeout_fixed: int | None = None
    zeroing_timeout_per_mib: float | None = None
    long_sleep: bool = False
    incremental: bool | None = None
    snapshot: NonEmptyStr | None = None
    quiesce: bool | None = None


class OpBackupPrepare(InstanceOpCode, frozen=True, kw_only=True):
    """Make ready for an export: keys and certificates for one to another cluster."""

    RESULT = Params | None

    mode: ExportMode


class OpBackupRemove(InstanceOpCode, frozen=True, kw_only=True):
    """Remove the exports of an instance from all nodes, or only the oldest points of a chain."""

    before: NonNegativeInt | None = None


class OpBackupRehearse(OpCode, frozen=True, kw_only=True):
    """Try whether an instance comes back from its export, and tell what was seen."""

    SUMMARY_FIELD = "instance_name"
    RESULT = str

    instance_name: NonEmptyStr
    src_node: NonEmptyStr | None = None
    src_point: NonNegativeInt | None = None
    pnode: NonEmptyStr | None = None
    snode: NonEmptyStr | None = None
    iallocator: NonEmptyStr | None = None
    disk_template: DiskTemplate | None = None
    hypervisor: Hypervisor | None = None
    hvparams: Params = {}
    beparams: Params = {}
    seconds: NonNegativeInt = 60
    agent: bool = False
