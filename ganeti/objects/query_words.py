"""The words of queries: resources, kinds of fields, status of a value.

Source: query_fields.json; constants.json, "query".
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final


class QueryResource(StrEnum):
    """The things that queries are about."""

    CLUSTER = "cluster"
    EXPORT = "export"
    EXTSTORAGE = "extstorage"
    FILTER = "filter"
    GROUP = "group"
    INSTANCE = "instance"
    JOB = "job"
    LOCK = "lock"
    NETWORK = "network"
    NODE = "node"
    OS = "os"


BY_JOB_ONLY: Final = frozenset({QueryResource.CLUSTER, QueryResource.EXTSTORAGE, QueryResource.OS})
"""Resources that cannot be asked over LUXI, only by an opcode of their own."""


class FieldKind(StrEnum):
    """How a field's value is to be understood and shown."""

    BOOL = "bool"
    FLOAT = "float"
    NUMBER = "number"
    OTHER = "other"
    TEXT = "text"
    TIMESTAMP = "timestamp"  # seconds, or [seconds, microseconds] for times of jobs
    UNIT = "unit"  # MiB
    UNKNOWN = "unknown"


class ResultStatus(IntEnum):
    """Whether a value is there, and why not; the value is null unless NORMAL."""

    NORMAL = 0
    UNKNOWN = 1  # no such field
    NODATA = 2  # it could not be found out
    UNAVAIL = 3  # this thing has no such value
    OFFLINE = 4  # the node that would know is marked offline
