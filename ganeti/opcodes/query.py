"""Queries as jobs; also for operating system definitions and external storage providers.

Source: opcodes.json.
"""

from typing import TypedDict

from ganeti.base.json import JsonValue
from ganeti.objects.query_words import FieldKind, QueryResource, ResultStatus
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.values import NonEmptyStr


class QueryFieldDef(TypedDict):
    """Description of one field."""

    name: NonEmptyStr
    title: NonEmptyStr
    kind: FieldKind
    doc: NonEmptyStr


class QueryFieldsResult(TypedDict):
    """Descriptions of fields."""

    fields: list[QueryFieldDef]


class QueryResult(TypedDict):
    """Descriptions of fields, and for each thing [status, value] of each field."""

    fields: list[QueryFieldDef]
    data: list[list[tuple[ResultStatus, JsonValue]]]


class OpQuery(OpCode, frozen=True, kw_only=True):
    """Answer fields of a kind of thing."""

    SUMMARY_FIELD = "what"
    RESULT = QueryResult

    what: QueryResource
    use_locking: bool = False
    fields: list[NonEmptyStr]
    qfilter: list[JsonValue] | None = None


class OpQueryFields(OpCode, frozen=True, kw_only=True):
    """Answer which fields a kind of thing has."""

    SUMMARY_FIELD = "what"
    RESULT = QueryFieldsResult

    what: QueryResource
    fields: list[NonEmptyStr] | None = None


class OpExtStorageDiagnose(OpCode, frozen=True, kw_only=True):
    """Answer which external storage providers the nodes have."""

    RESULT = list[list[JsonValue]]

    output_fields: list[NonEmptyStr]
    names: list[NonEmptyStr] = []


class OpOsDiagnose(OpCode, frozen=True, kw_only=True):
    """Answer which operating systems the nodes have."""

    RESULT = list[list[JsonValue]]

    output_fields: list[NonEmptyStr]
    names: list[NonEmptyStr] = []
