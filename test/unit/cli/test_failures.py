"""Errors: each class has its text and its exit status."""

from __future__ import annotations

import os

import pytest

from ganeti.base import errors
from ganeti.base.errors import QUEUE_DRAINED, ErrorCode, GenericError
from ganeti.cli.run.failures import NodeSetupError, NotConfirmed, explain, told_by


@pytest.mark.parametrize(
    ("error", "text", "status"),
    [
        (errors.OpPrereqError("no node 'x'", ErrorCode.NOENT), "error type: unknown_entity", 1),
        (errors.OpExecError("disk is gone"), "disk is gone", 1),
        (errors.NotSupportedError("drbd"), "not supported: drbd", 1),
        (errors.NotMasterError("no", None), "Cluster not initialized", 5),
        (errors.NotMasterError("no", "node7"), "'node7'", 11),
        (errors.ConfigurationError("bad file"), "bad file", 2),
        (NotConfirmed("no"), "no", 1),
        (NodeSetupError("ssh failed"), "ssh failed", 12),
        (errors.JobLost("job 5 is gone"), "job 5 is gone", 1),
        (errors.JobQueueFull(), "queue is full", 1),
        (errors.ResolverError("nowhere", -2, "unknown"), "'nowhere'", 1),
        (errors.HooksAbort([["n1", "00-check", "disk low"]]), "script 00-check: disk low", 1),
        (errors.TransportError("no answer"), "no answer", 1),
        (GenericError("something"), "something", 1),
        (GenericError(QUEUE_DRAINED), "Failure: Queue drained: no new jobs are taken", 1),
        (GenericError(QUEUE_DRAINED), "'gnt-cluster queue undrain'", 1),
    ],
)
def test_text_and_status(error: GenericError, text: str, status: int) -> None:
    told, code = explain(error)
    assert text in told
    assert code == status


@pytest.mark.parametrize("cls", sorted(errors.WIRE_CLASSES.values(), key=lambda cls: cls.__name__))
def test_every_error_of_the_wire_has_a_text(cls: type[GenericError]) -> None:
    error = errors.decode_error([cls.__name__, ["what happened"]])
    text, status = explain(error)
    assert text.strip()
    assert status in (1, 2)


SINGLE_TEXT = [  # the others make their text from several arguments
    cls for cls in errors.WIRE_CLASSES.values() if cls.message is GenericError.message
]


@pytest.mark.parametrize("cls", SINGLE_TEXT)
def test_an_error_with_an_empty_text_says_at_least_that(cls: type[GenericError]) -> None:
    for blank in ("", " \n"):
        wire = errors.encode_error(errors.decode_error([cls.__name__, [blank]]))
        text, _ = explain(errors.decode_error(wire))
        assert errors.NO_DETAILS in text or cls is errors.JobQueueFull
    assert errors.encode_error(ValueError())[1] == ["ValueError()"]


def test_an_error_of_the_system_names_the_file_and_who_may(monkeypatch: pytest.MonkeyPatch) -> None:
    error = PermissionError(13, "Permission denied", "/var/lib/ganeti/config.data")
    for user, hint in ((0, ""), (65534, "; run it as root")):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        text = f"/var/lib/ganeti/config.data: Permission denied{hint}"
        assert explain(error) == (f"Failure: {text}", 1)
        assert told_by("hbal")(error) == (f"hbal: {text}", 1)
    assert explain(OSError(28, "No space left on device")) == (
        "Failure: No space left on device",
        1,
    )
