"""Identifiers, each a type of its own so that a name is never taken for a UUID."""

from typing import NewType

NodeUuid = NewType("NodeUuid", str)
GroupUuid = NewType("GroupUuid", str)
InstanceUuid = NewType("InstanceUuid", str)
DiskUuid = NewType("DiskUuid", str)
NetworkUuid = NewType("NetworkUuid", str)
JobId = NewType("JobId", int)
