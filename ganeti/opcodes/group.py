"""Operations on node groups.

Source: opcodes.json.
"""

from collections.abc import Mapping
from typing import ClassVar

from ganeti.base.json import JsonValue
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.model import AllocPolicy
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.values import JobIds, NonEmptyStr, Params


class GroupOpCode(OpCode, frozen=True, kw_only=True):
    """Base of the operations on one node group."""

    SUMMARY_FIELD: ClassVar[str | None] = "group_name"

    group_name: NonEmptyStr


class GroupSettings(GroupOpCode, frozen=True, kw_only=True):
    """Base of the operations that set something of a node group."""

    alloc_policy: AllocPolicy | None = None
    ndparams: Params | None = None
    diskparams: Mapping[DiskTemplate, Params] | None = None
    hv_state: Params | None = None
    disk_state: Params | None = None
    ipolicy: Params | None = None


class OpGroupAdd(GroupSettings, frozen=True, kw_only=True):
    """Add a node group."""

    RESULT = JobIds | None


class OpGroupAssignNodes(GroupOpCode, frozen=True, kw_only=True):
    """Move nodes to a group."""

    force: bool = False
    nodes: list[NonEmptyStr]
    node_uuids: list[NonEmptyStr] | None = None


class OpGroupEvacuate(GroupOpCode, frozen=True, kw_only=True):
    """Submit the jobs that move all instances of a group elsewhere."""

    RESULT = JobIds

    early_release: bool = False
    iallocator: NonEmptyStr | None = None
    target_groups: list[NonEmptyStr] | None = None
    sequential: bool = False
    force_failover: bool = False


class OpGroupRemove(GroupOpCode, frozen=True, kw_only=True):
    """Remove a node group, which must be empty."""


class OpGroupRename(GroupOpCode, frozen=True, kw_only=True):
    """Give a node group another name; the result is the new name."""

    SUMMARY_FIELD = None
    RESULT = NonEmptyStr

    new_name: NonEmptyStr


class OpGroupSetParams(GroupSettings, frozen=True, kw_only=True):
    """Change settings of a node group; the result lists the changes."""

    RESULT = list[tuple[NonEmptyStr, JsonValue]]


class OpGroupVerifyDisks(GroupOpCode, frozen=True, kw_only=True):
    """Answer failing nodes, instances to activate and missing disks of a group."""

    RESULT = tuple[Mapping[str, str], list[str], Mapping[str, list[list[str]]]]
