"""What two clusters tell each other about a move, and what they do not believe."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti.base.errors import ProtocolError
from ganeti.protocol import remote_move
from ganeti.protocol.remote_move import AwaitedDisk, Secret

SECRET = Secret(b"0123456789abcdef\n")
OTHER = Secret(b"fedcba9876543210\n")
SALT = "9aa6ce92-8336-11de-af38-001d093e835f"
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
DISKS = [AwaitedDisk("192.0.2.7", 40000, "word-0"), AwaitedDisk("2001:db8::7", 40001, "word-1")]


def signed_disks(secret: Secret = SECRET) -> list[list[object]]:
    return [remote_move.signed_disk(secret, SALT, index, disk) for index, disk in enumerate(DISKS)]


def test_what_was_signed_is_read() -> None:
    remote_move.check_handshake(SECRET, remote_move.handshake(SECRET, SALT))
    said = remote_move.signed_key_name(SECRET, SALT, "x509-1")
    assert remote_move.read_key_name(SECRET, said) == "x509-1"
    text = remote_move.signed_certificate(SECRET, SALT, PEM)
    assert text.startswith(f"X-Ganeti-Signature: {SALT}/")
    assert remote_move.read_certificate(SECRET, text, "the other") == PEM
    assert remote_move.read_disks(SECRET, signed_disks(), 2) == DISKS


def test_white_space_around_the_secret_does_not_count() -> None:
    same = Secret(b"  0123456789abcdef")
    remote_move.check_handshake(same, remote_move.handshake(SECRET, SALT))
    assert "0123" not in repr(SECRET)


@pytest.mark.shows("backend/certificates/domain-secret")
def test_another_secret_is_refused_with_what_to_do() -> None:
    says = "renew-crypto --cluster-domain-secret"
    with pytest.raises(ProtocolError, match=says):
        remote_move.check_handshake(SECRET, remote_move.handshake(OTHER, SALT))
    with pytest.raises(ProtocolError, match=says):
        remote_move.read_key_name(SECRET, remote_move.signed_key_name(OTHER, SALT, "x509-1"))
    text = remote_move.signed_certificate(OTHER, SALT, PEM)
    with pytest.raises(ProtocolError, match=says):
        remote_move.read_certificate(SECRET, text, "the other")
    with pytest.raises(ProtocolError, match=says):
        remote_move.read_disks(SECRET, signed_disks(OTHER), 2)


def test_no_word_of_what_was_signed_can_be_changed() -> None:
    first, second = signed_disks()
    for index, value in ((0, "192.0.2.8"), (1, 40009), (2, "word-9"), (3, "0" * 64), (4, "salt")):
        changed = list(first)
        changed[index] = value
        with pytest.raises(ProtocolError, match="not signed"):
            remote_move.read_disks(SECRET, [changed, second], 2)
    with pytest.raises(ProtocolError, match="not signed"):
        remote_move.read_disks(SECRET, [second, first], 2)
    text = remote_move.signed_certificate(SECRET, SALT, PEM).replace("MIIB", "MIIC")
    with pytest.raises(ProtocolError, match="not signed"):
        remote_move.read_certificate(SECRET, text, "the other")


def test_a_signature_of_one_thing_is_none_of_another() -> None:
    _version, digest, salt = remote_move.handshake(SECRET, SALT)
    with pytest.raises(ProtocolError, match="not signed"):
        remote_move.read_key_name(SECRET, ["x509-1", digest, salt])


def test_another_version_is_named() -> None:
    with pytest.raises(ProtocolError, match=r"speaks version 0 .* this one version 1"):
        remote_move.check_handshake(SECRET, [0, "x", "y"])


@pytest.mark.parametrize("said", [None, [], "x", [1], [1, "a", "b", "c"], ["1", "a", "b"], {}])
def test_what_is_no_handshake(said: Any) -> None:
    with pytest.raises(ProtocolError, match="handshake is missing, or has another form"):
        remote_move.check_handshake(SECRET, said)


@pytest.mark.parametrize("said", [None, "", PEM, "X-Ganeti-Signature: a/b\n", "x" * 100_000])
def test_what_is_no_signed_certificate(said: str | None) -> None:
    with pytest.raises(ProtocolError, match="certificate of the other is missing"):
        remote_move.read_certificate(SECRET, said, "the other")


def test_as_many_disks_as_there_are() -> None:
    with pytest.raises(ProtocolError, match=r"waits for 2 disk\(s\), the instance has 3"):
        remote_move.read_disks(SECRET, signed_disks(), 3)
    odd = [remote_move.signed_disk(SECRET, SALT, 0, AwaitedDisk("h", 0, "word-0"))]
    with pytest.raises(ProtocolError, match="makes no sense"):
        remote_move.read_disks(SECRET, odd, 1)
