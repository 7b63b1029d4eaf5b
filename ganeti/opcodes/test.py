"""Operations that test the machinery.

Source: opcodes.json.
"""

from ganeti.base.json import JsonValue
from ganeti.objects.allocation_modes import EvacMode, IAllocatorDirection, IAllocatorMode
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.hypervisors import Hypervisor
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.values import NicSettings, NonEmptyStr, NonNegativeInt, SecretParams


class OpTestAllocator(OpCode, frozen=True, kw_only=True):
    """Ask an allocator, or show the question that it would be asked."""

    SUMMARY_FIELD = "iallocator"
    RESULT = str

    direction: IAllocatorDirection
    mode: IAllocatorMode
    name: NonEmptyStr
    nics: list[NicSettings] | None = None
    disks: list[JsonValue] | None = None
    hypervisor: Hypervisor | None = None
    iallocator: NonEmptyStr | None = None
    tags: list[NonEmptyStr] = []
    memory: NonNegativeInt | None = None
    vcpus: NonNegativeInt | None = None
    os: NonEmptyStr | None = None
    disk_template: DiskTemplate | None = None
    instances: list[NonEmptyStr] | None = None
    evac_mode: EvacMode | None = None
    target_groups: list[NonEmptyStr] | None = None
    spindle_use: NonNegativeInt = 1
    count: NonNegativeInt = 1
    group_name: NonEmptyStr | None = None
    limit: NonNegativeInt | None = None
    explain: bool | None = None


class OpTestDelay(OpCode, frozen=True, kw_only=True):
    """Wait on the master and on nodes."""

    SUMMARY_FIELD = "duration"

    duration: float
    on_master: bool = True
    on_nodes: list[NonEmptyStr] = []
    on_node_uuids: list[NonEmptyStr] | None = None
    repeat: NonNegativeInt = 0
    interruptible: bool = False
    no_locks: bool = True


class OpTestDummy(OpCode, frozen=True, kw_only=True):
    """Carry parameters of any kind; there is no work behind it."""

    REQUIRED_BY_LUXID = frozenset({"reason", "result", "messages", "fail", "submit_jobs"})

    result: JsonValue = None
    messages: JsonValue = None
    fail: JsonValue = None
    submit_jobs: JsonValue = None


class OpTestJqueue(OpCode, frozen=True, kw_only=True):
    """Go through all states of a job, with notifications."""

    RESULT = bool

    notify_waitlock: bool = False
    notify_exec: bool = False
    log_messages: list[str] = []
    fail: bool = False


class OpTestOsParams(OpCode, frozen=True, kw_only=True):
    """Carry secret parameters, to test that they are never stored."""

    osparams_secret: SecretParams | None = None
