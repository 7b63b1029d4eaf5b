"""Errors cross a wire and come back as what they were."""

from __future__ import annotations

import pytest

from ganeti.base import errors, json
from ganeti.base.errors import ErrorCode, GenericError, OpPrereqError, decode_error, encode_error

SAMPLES = [
    GenericError("something"),
    OpPrereqError("no such node 'n9'", ErrorCode.NOENT),
    errors.OpExecError("failed"),
    errors.ConfigVerifyError("bad", ["node n1: x", "node n2: y"]),
    errors.ConfigVersionMismatch(3000000, 2160000),
    errors.ResolverError("nowhere", -2, "Name or service not known"),
    errors.HooksAbort([["n1", "10-deny", "no"]]),
    errors.X509CertError("/x.pem", "expired"),
    errors.LockError("order"),
    errors.JobLost("Job 5 lost"),
]


@pytest.mark.shows("2.0/luxi/errors")
@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_the_wire(error: GenericError) -> None:
    decoded = decode_error(json.loads(json.dumps(encode_error(error))))
    assert type(decoded) is type(error)
    assert decoded.args == error.args
    assert decoded.message == error.message


def test_prerequisite_error_has_the_specified_form() -> None:
    assert encode_error(OpPrereqError("x", ErrorCode.NOENT)) == [
        "OpPrereqError",
        ["x", "unknown_entity"],
    ]


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (errors.NotSupportedError("later"), "OpPrereqError"),
        (errors.ProtocolError("bytes"), "LuxiError"),
        (errors.TransportError("gone"), "GenericError"),
        (errors.NotMasterError("not here", "n2"), "GenericError"),
    ],
)
def test_classes_of_our_own_travel_under_a_known_name(error: GenericError, name: str) -> None:
    encoded = encode_error(error)
    assert encoded[0] == name
    assert type(decode_error(encoded)).__name__ == name


def test_an_error_never_has_an_empty_text() -> None:
    for error in (GenericError(), ValueError(), KeyError("k"), errors.OpExecError()):
        _, args = encode_error(error)
        assert isinstance(args, list)
        assert str(args[0])


def test_full_queue_has_no_arguments() -> None:
    assert encode_error(errors.JobQueueFull("5000 jobs")) == ["JobQueueFull", []]


@pytest.mark.parametrize(
    "value",
    ["plain text", ["NoSuchClass", ["what it said"]], ["OpPrereqError", [1, 2, 3]], 7, None],
)
def test_what_a_peer_said_is_never_swallowed(value: object) -> None:
    error = decode_error(value)
    for part in ("plain text", "what it said", "3", "7"):
        if part in str(value):
            assert part in error.message
