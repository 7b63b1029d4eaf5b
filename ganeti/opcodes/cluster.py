"""Operations on the cluster itself.

Source: opcodes.json.
"""

from collections.abc import Mapping
from enum import StrEnum

from ganeti.base.json import JsonValue
from ganeti.objects.allocation_modes import IAllocatorMode
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.hypervisors import Hypervisor
from ganeti.objects.model import SshKeyType
from ganeti.objects.record import PrivateParams
from ganeti.objects.verify_errors import VerifyErrorCode
from ganeti.opcodes import values
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.values import (
    JobIds,
    NonEmptyStr,
    NonNegativeFloat,
    NonNegativeInt,
    Params,
    PositiveInt,
)


class OptionalCheck(StrEnum):
    """Checks of a verification that can be skipped."""

    NPLUSONE_MEM = "nplusone_mem"


class OsListChange(StrEnum):
    """A change of one entry of a list of operating systems."""

    ADD = "add"
    ATTACH = "attach"
    DETACH = "detach"
    REMOVE = "remove"


class VolumeGroupRepair(JobIds):
    """What became of the volume groups of all nodes."""

    health: str
    action: str
    why: str


class OpClusterActivateMasterIp(OpCode, frozen=True, kw_only=True):
    """Bring up the cluster's address on the master node."""


class OpClusterConfigQuery(OpCode, frozen=True, kw_only=True):
    """Answer values of the configuration by name."""

    RESULT = list[JsonValue]

    output_fields: list[NonEmptyStr]


class OpClusterDeactivateMasterIp(OpCode, frozen=True, kw_only=True):
    """Take down the cluster's address on the master node."""


class OpClusterDestroy(OpCode, frozen=True, kw_only=True):
    """Destroy the cluster, which must be empty; the result is the master node's UUID."""

    RESULT = NonEmptyStr


class OpClusterPostInit(OpCode, frozen=True, kw_only=True):
    """Run the hooks of a cluster that was just made."""

    RESULT = bool


class OpClusterQuery(OpCode, frozen=True, kw_only=True):
    """Answer the cluster's settings."""

    RESULT = Params


class OpClusterSetAvailability(OpCode, frozen=True, kw_only=True):
    """Switch high availability on or off, or write its settings on all nodes again."""

    enabled: bool | None = None
    """Whether it is to be on; without it nothing but the nodes is brought up to date."""
    members: list[NonEmptyStr] = []
    endpoints: list[NonEmptyStr] = []
    watchdog: str | None = None
    timing: Mapping[str, NonNegativeFloat] = {}
    limits: Mapping[str, PositiveInt] = {}
    lease_disk: str | None = None
    """A disk that all nodes reach, on which they hold leases, too; "" for none."""
    witness: str | None = None
    """A master candidate that only votes, and runs no instances; "" for none."""
    adopted: bool = False
    """The witness was made a node for that."""


class OpClusterRedistConf(OpCode, frozen=True, kw_only=True):
    """Send the configuration and all redistributed files to the nodes again."""


class OpClusterRename(OpCode, frozen=True, kw_only=True):
    """Give the cluster another name; the result is the new name."""

    SUMMARY_FIELD = "name"
    RESULT = NonEmptyStr

    name: NonEmptyStr


class OpClusterRenewCrypto(OpCode, frozen=True, kw_only=True):
    """Replace the certificates and SSH keys of the nodes."""

    node_certificates: bool = False
    etcd_certificates: bool | None = None
    """Those of the etcd that the cluster runs itself, and its authority."""
    renew_ssh_keys: bool = False
    ssh_key_type: SshKeyType | None = None
    ssh_key_bits: PositiveInt | None = None
    verbose: bool = False
    debug: bool = False


class OpClusterRepairDiskSizes(OpCode, frozen=True, kw_only=True):
    """Compare recorded and real sizes of disks, and correct the record."""

    RESULT = list[tuple[NonEmptyStr, NonNegativeInt, NonEmptyStr, NonNegativeInt]]

    instances: list[NonEmptyStr] = []


class OpClusterSetParams(OpCode, frozen=True, kw_only=True):
    """Change settings of the cluster."""

    RESULT = JobIds | None

    force: bool = False
    hv_state: Params | None = None
    disk_state: Params | None = None
    vg_name: str | None = None
    enabled_hypervisors: list[Hypervisor] | None = None
    hvparams: Mapping[str, Params] | None = None
    beparams: Params | None = None
    os_hvp: Mapping[str, Params] | None = None
    osparams: Mapping[str, Params] | None = None
    osparams_private_cluster: Mapping[str, PrivateParams] | None = None
    diskparams: Mapping[DiskTemplate, Params] | None = None
    candidate_pool_size: PositiveInt | None = None
    max_running_jobs: PositiveInt | None = None
    max_tracked_jobs: PositiveInt | None = None
    uid_pool: list[tuple[int, int]] | None = None
    add_uids: list[tuple[int, int]] | None = None
    remove_uids: list[tuple[int, int]] | None = None
    maintain_node_health: bool | None = None
    prealloc_wipe_disks: bool | None = None
    nicparams: values.NicSettings | None = None
    ndparams: Params | None = None
    ipolicy: Params | None = None
    drbd_helper: str | None = None
    default_iallocator: str | None = None
    default_iallocator_params: Params | None = None
    mac_prefix: NonEmptyStr | None = None
    master_netdev: str | None = None
    master_netmask: NonNegativeInt | None = None
    reserved_lvs: list[NonEmptyStr] | None = None
    hidden_os: list[tuple[OsListChange, NonEmptyStr]] | None = None
    blacklisted_os: list[tuple[OsListChange, NonEmptyStr]] | None = None
    use_external_mip_script: bool | None = None
    enabled_disk_templates: list[DiskTemplate] | None = None
    modify_etc_hosts: bool | None = None
    file_storage_dir: str | None = None
    shared_file_storage_dir: str | None = None
    gluster_storage_dir: str | None = None
    install_image: str | None = None
    instance_communication_network: str | None = None
    zeroing_image: str | None = None
    compression_tools: list[NonEmptyStr] | None = None
    enabled_user_shutdown: bool | None = None
    enabled_data_collectors: Mapping[str, bool] | None = None
    data_collector_interval: Mapping[str, int] | None = None
    diagnose_data_collector_filename: str | None = None
    max_disk_transfers: NonNegativeInt | None = None
    maint_round_delay: NonNegativeInt | None = None
    maint_balance: bool | None = None
    maint_balance_threshold: NonNegativeFloat | None = None
    maint_use_load: bool | None = None
    maint_move_disks: bool | None = None
    maint_auto_repair: bool | None = None
    default_iallocators: Mapping[IAllocatorMode, list[NonEmptyStr]] | None = None
    silent_node_tries: NonNegativeInt | None = None


class OpClusterRepairVolumeGroups(OpCode, frozen=True, kw_only=True):
    """Have the volume group of a node put right, if it alone is broken and is copied elsewhere."""

    RESULT = VolumeGroupRepair


class OpClusterVerify(OpCode, frozen=True, kw_only=True):
    """Submit the jobs that verify the configuration and every group."""

    RESULT = JobIds

    debug_simulate_errors: bool = False
    error_codes: bool = False
    skip_checks: frozenset[OptionalCheck] = frozenset()
    ignore_errors: frozenset[VerifyErrorCode] = frozenset()
    verbose: bool = False
    group_name: NonEmptyStr | None = None
    verify_clutter: bool = False


class OpClusterVerifyConfig(OpCode, frozen=True, kw_only=True):
    """Verify that the configuration does not contradict itself."""

    RESULT = bool

    debug_simulate_errors: bool = False
    error_codes: bool = False
    ignore_errors: frozenset[VerifyErrorCode] = frozenset()
    verbose: bool = False


class OpClusterVerifyDisks(OpCode, frozen=True, kw_only=True):
    """Submit the jobs that verify the disks of every group."""

    RESULT = JobIds

    group_name: NonEmptyStr | None = None


class OpClusterVerifyGroup(OpCode, frozen=True, kw_only=True):
    """Verify the nodes and instances of one group."""

    SUMMARY_FIELD = "group_name"
    RESULT = bool

    group_name: NonEmptyStr
    debug_simulate_errors: bool = False
    error_codes: bool = False
    skip_checks: frozenset[OptionalCheck] = frozenset()
    ignore_errors: frozenset[VerifyErrorCode] = frozenset()
    verbose: bool = False
    verify_clutter: bool = False
