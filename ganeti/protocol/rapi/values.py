"""The words of the remote API: query arguments, error answers, fields of objects, roles of nodes.

Source: rapi.json, "errors", "object_fields", "node_roles"; RFC 9110.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final

from msgspec import UNSET

from ganeti.base import errors
from ganeti.base.errors import QUEUE_DRAINED, ErrorCode, GenericError
from ganeti.base.json import dumps
from ganeti.protocol.envelope import RefusedError
from ganeti.protocol.service import Argument, TextForm, read_as

DEFAULT_PORT: Final = 5080
CLIENTS_MAX_DEFAULT: Final = 20
REALM: Final = "Ganeti Remote API"
VERSION: Final = 2
FEATURES: Final = (
    *("instance-create-reqv1", "instance-reinstall-reqv1", "node-evac-res1", "node-migrate-reqv1"),
)
WAIT_S: Final = 10
READ: Final = "read"
WRITE: Final = "write"

NODE_ROLES: Final[Mapping[str, str]] = {
    "M": "master",
    "C": "master-candidate",
    "D": "drained",
    "O": "offline",
    "R": "regular",
}

_STAMPS: Final = "ctime mtime uuid serial_no tags"
_COPIES: Final = "disk.copies disk.copied disk.templates"
_INSTANCE: Final = (
    "name admin_state os pnode snodes disk_template nic.ips nic.macs nic.modes"
    " nic.uuids nic.names nic.links nic.networks nic.networks.names nic.bridges network_port"
    " disk.sizes disk.spindles disk_usage disk.uuids disk.names beparams hvparams oper_state"
    " oper_ram oper_vcpus status custom_hvparams custom_beparams custom_nicparams " + _STAMPS
)
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    what: tuple(words.split())
    for what, words in {
        "instance": _INSTANCE,
        "instance_copies": f"{_INSTANCE} {_COPIES}",
        "node": "name offline master_candidate drained dtotal dfree sptotal spfree mtotal mnode"
        " mfree pinst_cnt sinst_cnt ctotal cnos cnodes csockets pip sip role pinst_list sinst_list"
        " master_capable vm_capable ndparams group.uuid " + _STAMPS,
        "network": "name network gateway network6 gateway6 mac_prefix free_count reserved_count map"
        " group_list inst_list external_reservations external_reservations6 " + _STAMPS,
        "group": "alloc_policy name node_cnt node_list ipolicy custom_ipolicy diskparams"
        " custom_diskparams ndparams custom_ndparams " + _STAMPS,
        "filter": "watermark priority predicates action reason_trail uuid",
        "job": "id ops status summary opstatus received_ts start_ts end_ts oplog opresult",
        "job_bulk": "id ops status summary opstatus received_ts start_ts end_ts",
    }.items()
}


class HttpProblem(GenericError):
    """A request that is answered with an error status.

    ``headers`` go into the answer.
    """

    def __init__(
        self, status: int, message: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message or HTTPStatus(status).phrase)
        self.status = status
        self.headers = dict(headers or {})


def problem_body(status: int, message: str) -> bytes:
    """Return the body of an error answer."""
    known = HTTPStatus(status)
    text = html.escape(message or known.phrase)
    body = {"code": status, "message": text, "explain": known.description or known.phrase}
    if status == HTTPStatus.NOT_FOUND:  # clients of 3.0 compare the words
        body |= {"message": known.phrase, "detail": text}
    return dumps(body) + b"\n"


_PREREQ_STATUS: Final[Mapping[str, int]] = {ErrorCode.NOENT: 404, ErrorCode.INVAL: 400}
_STATUS_OF: Final[tuple[tuple[int, tuple[type[GenericError], ...]], ...]] = (
    (503, (errors.JobQueueError,)),
    (404, (errors.JobLost,)),
    (400, (errors.OpCodeUnknown, errors.QueryFilterParseError, errors.ParameterError)),
    (400, (errors.TagError,)),
    (502, (errors.NotMasterError, RefusedError, errors.ProtocolError, errors.TransportError)),
)


def as_problem(error: GenericError) -> HttpProblem:
    """Return the answer to the client for an error of LuxiD or on the way to it."""
    if isinstance(error, HttpProblem):
        return error
    if isinstance(error, errors.OpPrereqError):
        return HttpProblem(_PREREQ_STATUS.get(error.ecode or "", 409), error.message)
    for status, kinds in _STATUS_OF:
        if isinstance(error, kinds):
            return HttpProblem(status, error.message)
    return HttpProblem(503 if error.message == QUEUE_DRAINED else 500, error.message)


NUMBER_MAX: Final = 999_999_999_999


def _switch(text: str) -> bool:
    return {"0": False, "1": True}[text]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _number(text: str) -> int:
    """Read an ordinary decimal number; no underscores, blanks or digits of other scripts."""
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20):
        raise ValueError(text)
    return int(text)


def _natural(text: str) -> int:
    number = _number(text)
    if not 0 <= number <= NUMBER_MAX:
        raise ValueError(text)
    return number


def _numbers(text: str) -> list[int]:
    return [_number(word) for word in _words(text)]


_NATURAL: Final = {"type": "integer", "minimum": 0, "maximum": NUMBER_MAX}
_SEVERAL: Final = {"type": "string", "pattern": r"^[0-9]{1,9}(,[0-9]{1,9})*$"}
Switch = Annotated[bool, TextForm(_switch, "0 or 1", {"type": "integer", "enum": [0, 1]})]
Words = Annotated[list[str], TextForm(_words, "texts with commas between", {"type": "string"})]
Number = Annotated[int, TextForm(_natural, f"a number from 0 to {NUMBER_MAX}", _NATURAL)]
Numbers = Annotated[list[int], TextForm(_numbers, "numbers with commas between", _SEVERAL)]
REPEATED: Final = list[str]
"""The type of an argument that may stand several times, once for each text."""


class QueryArgument(Argument, frozen=True):
    """One query argument of a route; without a value and a default it is left out.

    ``field`` is the parameter of the opcode that it sets, ``schema`` what to say of its values
    beside what its type says.
    """

    default: Any = UNSET
    field: str = ""
    schema: Mapping[str, object] = {}

    def value_of(self, texts: Sequence[str]) -> object:
        """Return the value of a word in a URL.

        Raises:
            HttpProblem: 400; names the argument.
        """
        if self.type == REPEATED:
            return list(texts)
        try:
            return read_as(self.type, texts[0], is_text=True)
        except (ValueError, KeyError) as err:
            expected = self.describe()
            raise HttpProblem(
                400, f"Invalid query argument '{self.name}': expected {expected}, got {texts[0]!r}"
            ) from err


def parse_arguments(
    declared: Sequence[QueryArgument], given: Mapping[str, Sequence[str]]
) -> dict[str, object]:
    """Return the values of the query arguments; undeclared ones are ignored.

    Raises:
        HttpProblem: 400; names the argument.
    """
    values: dict[str, object] = {}
    for argument in declared:
        texts = given.get(argument.name, ())
        if texts:
            values[argument.name] = argument.value_of(texts)
        elif argument.is_required:
            raise HttpProblem(400, f"Missing query argument '{argument.name}'")
        elif argument.default is not UNSET:
            values[argument.name] = argument.default
    return values
