"""Operations on node groups.

Source: opcodes.json.
"""

from collections.abc import Mapping

from ganeti.base.json import JsonValue
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.model import AllocPolicy
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.values import JobIds, NonEmptyStr, Params


class OpGroupAdd(OpCode, frozen=True, kw_only=True):
    """Add a node group."""

    SUMMARY_FIELD = "group_name"
    RESULT = JobIds | None

    group_name: NonEmptyStr
    alloc_policy: AllocPolicy | None = None
    ndparams: Params | None = None
    diskparams: Mapping[DiskTemplate, Params] | None = None
    hv_state: Params | None = None
    disk_state: Params | None = None
    ipolicy: Params | None = None


class OpGroupAssignNodes(OpCode, frozen=True, kw_only=True):
    """Move nodes to a group."""

    SUMMARY_FIELD = "group_name"

    group_name: NonEmptyStr
    force: bool = False
    nodes: list[NonEmptyStr]
    node_uuids: list[NonEmptyStr] | None = None


class OpGroupEvacuate(OpCode, frozen=True, kw_only=True):
    """Submit the jobs that move all instances of a group elsewhere."""

    SUMMARY_FIELD = "group_name"
    RESULT = JobIds

    group_name: NonEmptyStr
    early_release: bool = False
    iallocator: NonEmptyStr | None = None
    target_groups: list[NonEmptyStr] | None = None
    sequential: bool = False
    force_failover: bool = False


class OpGroupRemove(OpCode, frozen=True, kw_only=True):
    """Remove a node group, which must be empty."""

    SUMMARY_FIELD = "group_name"

    group_name: NonEmptyStr


class OpGroupRename(OpCode, frozen=True, kw_only=True):
    """Give a node group another name; the result is the new name."""

    RESULT = NonEmptyStr

    group_name: NonEmptyStr
    new_name: NonEmptyStr


class OpGroupSetParams(OpCode, frozen=True, kw_only=True):
    """Change settings of a node group; the result lists what was changed."""

    SUMMARY_FIELD = "group_name"
    RESULT = list[tuple[NonEmptyStr, JsonValue]]

    group_name: NonEmptyStr
    alloc_policy: AllocPolicy | None = None
    ndparams: Params | None = None
    diskparams: Mapping[DiskTemplate, Params] | None = None
    hv_state: Params | None = None
    disk_state: Params | None = None
    ipolicy: Params | None = None


class OpGroupVerifyDisks(OpCode, frozen=True, kw_only=True):
    """Answer failing nodes, instances to activate and missing disks of a group."""

    SUMMARY_FIELD = "group_name"
    RESULT = tuple[Mapping[str, str], list[str], Mapping[str, list[list[str]]]]

    group_name: NonEmptyStr
