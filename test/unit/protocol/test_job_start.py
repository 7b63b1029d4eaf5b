"""The hand-over dialog, both sides played with bytes."""

import pytest

from ganeti.base.errors import ProtocolError
from ganeti.protocol.job_start import (
    Assign,
    Confirm,
    Copied,
    Copy,
    Dialog,
    Message,
    Named,
    Progress,
    Ready,
    Side,
    Stage,
)

SCRIPT: list[tuple[Side, Message]] = [
    ("process", Ready("/warm", 42)),
    ("luxid", Assign(7)),
    ("process", Named("/job_000007_1")),
    ("luxid", Confirm((None, {"osparams_secret": {"pw": "x"}}), ("n3",))),
]


def talk(count: int) -> dict[Side, Dialog]:
    """Play the first messages."""
    sides: dict[Side, Dialog] = {"process": Dialog("process"), "luxid": Dialog("luxid")}
    for sender, message in SCRIPT[:count]:
        receiver: Side = "luxid" if sender == "process" else "process"
        assert sides[receiver].receive(sides[sender].send(message)) == message
    return sides


@pytest.mark.shows("2.12/execution/pipe", "2.0/master-caveats/separate")
def test_both_sides_agree_to_the_end() -> None:
    sides = talk(len(SCRIPT))
    assert {dialog.stage for dialog in sides.values()} == {Stage.CONFIRMED}


def test_progress_is_told_at_any_time_and_not_answered() -> None:
    sides = talk(len(SCRIPT))
    for message in (Progress("1"), Progress("2"), Copy("3")):
        assert sides["luxid"].receive(sides["process"].send(message)) == message
    with pytest.raises(ProtocolError):
        sides["process"].send(Progress("4"))
    assert sides["process"].receive(sides["luxid"].send(Copied((), ()))) == Copied((), ())
    with pytest.raises(ProtocolError):
        sides["luxid"].send(Progress("5"))


@pytest.mark.shows("2.12/execution/pipe")
@pytest.mark.parametrize("done", range(len(SCRIPT) + 1))
@pytest.mark.parametrize("wrong", range(len(SCRIPT)))
def test_whatever_is_out_of_turn_is_refused(done: int, wrong: int) -> None:
    if wrong == done:
        return
    sides = talk(done)
    sender, message = SCRIPT[wrong]
    receiver: Side = "luxid" if sender == "process" else "process"
    data = Dialog(sender)
    data.stage = list(Stage)[wrong]
    bytes_sent = data.send(message)
    with pytest.raises(ProtocolError):
        sides[receiver].receive(bytes_sent)
    with pytest.raises(ProtocolError):
        sides[sender].send(message)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"type":"nonsense"}', b'{"type":"assign"}', b"\xff"]
)
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        talk(1)["process"].receive(data)


def test_secrets_are_not_in_the_way_of_a_message_without_any() -> None:
    sides = talk(3)
    assert sides["process"].receive(sides["luxid"].send(Confirm())) == Confirm()
