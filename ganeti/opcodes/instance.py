"""Operations on instances.

Source: opcodes.json.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypedDict

from ganeti.base.json import JsonValue
from ganeti.objects.disk_templates import DiskTemplate, FileDriver
from ganeti.objects.hypervisors import Hypervisor, MigrationMode, RebootType
from ganeti.objects.model import AdminStateSource
from ganeti.objects.record import PrivateParams
from ganeti.opcodes import values
from ganeti.opcodes.opcode import InstanceOpCode, OpCode
from ganeti.opcodes.values import JobIds, NonEmptyStr, NonNegativeInt, Params


class InstanceCreateMode(StrEnum):
    """Where the disks of a new instance come from."""

    CREATE = "create"
    IMPORT = "import"
    REMOTE_IMPORT = "remote-import"


class ReplaceDisksMode(StrEnum):
    """Which half of a mirror is replaced."""

    AUTO = "replace_auto"
    NEW_SECONDARY = "replace_new_secondary"
    ON_PRIMARY = "replace_on_primary"
    ON_SECONDARY = "replace_on_secondary"


class SnapshotAction(StrEnum):
    """What is done with a snapshot."""

    CREATE = "create"
    REMOVE = "remove"
    RESTORE = "restore"


class MultiAllocResult(TypedDict):
    """Submitted jobs, and names of instances with and without a place."""

    jobs: list[tuple[bool, str | int]]
    allocatable: list[str]
    failed: list[str]


class OpInstanceActivateDisks(InstanceOpCode, frozen=True, kw_only=True):
    """Make the disks of an instance ready; the result is [node, name, device] for each."""

    RESULT = list[tuple[NonEmptyStr, NonEmptyStr, NonEmptyStr | None]]

    ignore_size: bool = False
    wait_for_sync: bool = False


class OpInstanceChangeGroup(InstanceOpCode, frozen=True, kw_only=True):
    """Submit the jobs that move an instance to another group."""

    RESULT = JobIds

    early_release: bool = False
    iallocator: NonEmptyStr | None = None
    target_groups: list[NonEmptyStr] | None = None


class OpInstanceConsole(InstanceOpCode, frozen=True, kw_only=True):
    """Answer how to reach the console of an instance."""

    RESULT = Params


class OpInstanceCreate(OpCode, frozen=True, kw_only=True):
    """Make an instance: new, or from an export; the result lists its nodes."""

    SUMMARY_FIELD = "instance_name"
    RESULT = list[NonEmptyStr]

    instance_name: str
    force_variant: bool = False
    wait_for_sync: bool = True
    name_check: bool = True
    ignore_ipolicy: bool = False
    opportunistic_locking: bool = False
    beparams: Params = {}
    disks: list[values.DiskSettings]
    disk_template: DiskTemplate | None = None
    group_name: NonEmptyStr | None = None
    file_driver: FileDriver | None = None
    file_storage_dir: NonEmptyStr | None = None
    hvparams: Params = {}
    hypervisor: Hypervisor | None = None
    iallocator: NonEmptyStr | None = None
    identify_defaults: bool = False
    ip_check: bool = True
    conflicts_check: bool = True
    mode: InstanceCreateMode
    nics: list[values.NicSettings]
    no_install: bool | None = None
    osparams: Params = {}
    osparams_private: PrivateParams | None = None
    osparams_secret: values.SecretParams | None = None
    os_type: NonEmptyStr | None = None
    pnode: NonEmptyStr | None = None
    pnode_uuid: NonEmptyStr | None = None
    snode: NonEmptyStr | None = None
    snode_uuid: NonEmptyStr | None = None
    source_handshake: list[JsonValue] | None = None
    source_instance_name: NonEmptyStr | None = None
    source_shutdown_timeout: NonNegativeInt = 120
    source_x509_ca: NonEmptyStr | None = None
    src_node: NonEmptyStr | None = None
    src_node_uuid: NonEmptyStr | None = None
    src_path: NonEmptyStr | None = None
    src_point: NonNegativeInt | None = None
    compress: str = "none"
    start: bool = True
    forthcoming: bool = False
    commit: bool = False
    tags: list[NonEmptyStr] = []
    instance_communication: bool = False
    helper_startup_timeout: int | None = None
    helper_shutdown_timeout: int | None = None
    no_nics: bool | None = None
    explain: bool | None = None


class OpInstanceDeactivateDisks(InstanceOpCode, frozen=True, kw_only=True):
    """Shut down the disks of an instance."""

    force: bool = False


class OpInstanceFailover(InstanceOpCode, frozen=True, kw_only=True):
    """Shut an instance down and start it on another node that has its disks."""

    shutdown_timeout: NonNegativeInt = 120
    ignore_consistency: bool = False
    target_node: NonEmptyStr | None = None
    target_node_uuid: NonEmptyStr | None = None
    ignore_ipolicy: bool = False
    cleanup: bool = False
    iallocator: NonEmptyStr | None = None


class OpInstanceGrowDisk(InstanceOpCode, frozen=True, kw_only=True):
    """Enlarge a disk; the amount is MiB, added unless it is absolute."""

    wait_for_sync: bool = True
    disk: values.DiskIndex
    amount: NonNegativeInt
    absolute: bool = False
    ignore_ipolicy: bool = False


class OpInstanceMigrate(InstanceOpCode, frozen=True, kw_only=True):
    """Move a running instance to another node that has its disks."""

    mode: MigrationMode | None = None
    live: bool | None = None
    target_node: NonEmptyStr | None = None
    target_node_uuid: NonEmptyStr | None = None
    allow_runtime_changes: bool = True
    ignore_ipolicy: bool = False
    cleanup: bool = False
    iallocator: NonEmptyStr | None = None
    allow_failover: bool = False
    ignore_hvversions: bool = False


class OpInstanceMove(InstanceOpCode, frozen=True, kw_only=True):
    """Copy the disks of an instance to another node and start it there."""

    shutdown_timeout: NonNegativeInt = 120
    ignore_ipolicy: bool = False
    target_node: NonEmptyStr
    target_node_uuid: NonEmptyStr | None = None
    compress: str = "none"
    ignore_consistency: bool = False


class OpInstanceMultiAlloc(OpCode, frozen=True, kw_only=True):
    """Submit the jobs that make several instances, placed by the allocator together."""

    RESULT = MultiAllocResult

    opportunistic_locking: bool = False
    iallocator: NonEmptyStr | None = None
    instances: list[JsonValue] = []


class OpInstanceQueryData(OpCode, frozen=True, kw_only=True):
    """Answer everything that is known about instances."""

    RESULT = Mapping[str, Params]

    use_locking: bool = False
    instances: list[NonEmptyStr] = []
    static: bool = False


class OpInstanceReboot(InstanceOpCode, frozen=True, kw_only=True):
    """Reboot an instance."""

    shutdown_timeout: NonNegativeInt = 120
    ignore_secondaries: bool = False
    reboot_type: RebootType


class OpInstanceRecreateDisks(InstanceOpCode, frozen=True, kw_only=True):
    """Make the disks of an instance anew, after they were lost."""

    disks: list[int | tuple[NonNegativeInt, values.DiskSettings]] = []
    nodes: list[NonEmptyStr] = []
    node_uuids: list[NonEmptyStr] | None = None
    iallocator: NonEmptyStr | None = None

    def __post_init__(self) -> None:
        """Refuse a mixture of both forms of ``disks``, and negative indices.

        msgspec 0.22 corrupts memory for a union of a limited number and a tuple, so the type does
        not say it.
        """
        if len({isinstance(disk, int) for disk in self.disks}) > 1:
            raise ValueError("parameter 'disks': expected indices only, or [index, settings] only")
        if any(isinstance(disk, int) and disk < 0 for disk in self.disks):
            raise ValueError("parameter 'disks': expected indices >= 0")


class OpInstanceReinstall(InstanceOpCode, frozen=True, kw_only=True):
    """Install the operating system of an instance again."""

    force_variant: bool = False
    os_type: NonEmptyStr | None = None
    osparams: Params | None = None
    osparams_private: PrivateParams | None = None
    osparams_secret: values.SecretParams | None = None


class OpInstanceRemove(InstanceOpCode, frozen=True, kw_only=True):
    """Remove an instance and its disks."""

    shutdown_timeout: NonNegativeInt = 120
    ignore_failures: bool = False


class OpInstanceRename(InstanceOpCode, frozen=True, kw_only=True):
    """Give an instance another name; the result is the new name."""

    SUMMARY_FIELD = None
    RESULT = NonEmptyStr

    new_name: NonEmptyStr
    name_check: bool = True
    ip_check: bool = True


class RepairResult(values.JobIds):
    """Submitted jobs, and [index, node, condition, what the node says] of each side of a disk."""

    disks: list[tuple[int, str, str, str]]


class OpInstanceRepair(InstanceOpCode, frozen=True, kw_only=True):
    """Replace the disks that are broken on the primary node of a mirrored instance."""

    RESULT = RepairResult


class OpInstanceReplaceDisks(InstanceOpCode, frozen=True, kw_only=True):
    """Replace disks of a mirrored instance, on the same node or on another."""

    early_release: bool = False
    ignore_ipolicy: bool = False
    mode: ReplaceDisksMode
    disks: list[values.DiskIndex] = []
    remote_node: NonEmptyStr | None = None
    remote_node_uuid: NonEmptyStr | None = None
    iallocator: NonEmptyStr | None = None


class OpInstanceSetParams(InstanceOpCode, frozen=True, kw_only=True):
    """Change settings of an instance; the result lists the changes."""

    RESULT = list[tuple[NonEmptyStr, JsonValue]]

    force: bool = False
    force_variant: bool = False
    ignore_ipolicy: bool = False
    nics: list[values.NicChange] = []
    disks: list[values.DiskChange] = []
    beparams: Params = {}
    runtime_mem: values.PositiveInt | None = None
    hvparams: Params = {}
    disk_template: DiskTemplate | None = None
    ext_params: Params = {}
    file_driver: FileDriver | None = None
    file_storage_dir: NonEmptyStr | None = None
    pnode: NonEmptyStr | None = None
    pnode_uuid: NonEmptyStr | None = None
    remote_node: NonEmptyStr | None = None
    remote_node_uuid: NonEmptyStr | None = None
    iallocator: NonEmptyStr | None = None
    os_name: NonEmptyStr | None = None
    osparams: Params = {}
    osparams_private: PrivateParams | None = None
    wait_for_sync: bool = True
    offline: bool | None = None
    conflicts_check: bool = True
    hotplug: bool = False
    hotplug_if_possible: bool = False
    instance_communication: bool | None = None


class OpInstanceShutdown(InstanceOpCode, frozen=True, kw_only=True):
    """Shut an instance down."""

    force: bool = False
    ignore_offline_nodes: bool = False
    timeout: NonNegativeInt = 120
    no_remember: bool = False
    admin_state_source: AdminStateSource | None = None


class OpInstanceSnapshot(InstanceOpCode, frozen=True, kw_only=True):
    """Keep the contents of all disks of an instance under a name, restore or remove them."""

    action: SnapshotAction
    snapshot_name: NonEmptyStr
    quiesce: bool = False


class OpInstanceListSnapshots(InstanceOpCode, frozen=True, kw_only=True):
    """List the snapshots of an instance: name, time (since 1970, in s), indexes of the disks."""

    RESULT = list[tuple[NonEmptyStr, float, list[NonNegativeInt]]]


class OpInstanceStartup(InstanceOpCode, frozen=True, kw_only=True):
    """Start an instance."""

    force: bool = False
    ignore_offline_nodes: bool = False
    hvparams: Params = {}
    beparams: Params = {}
    no_remember: bool = False
    startup_paused: bool = False
    shutdown_timeout: NonNegativeInt = 120
