"""What two clusters tell each other about a move, and what they do not believe."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ganeti.base.errors import ProtocolError
from ganeti.protocol import remote_move
from ganeti.protocol.node_rpc_values import StreamForm
from ganeti.protocol.remote_move import AwaitedDisk, Secret

SECRET = Secret(b"0123456789abcdef\n")
OTHER = Secret(b"fedcba9876543210\n")
SALT = "9aa6ce92-8336-11de-af38-001d093e835f"
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
DISKS = [AwaitedDisk("192.0.2.7", 40000, "word-0"), AwaitedDisk("2001:db8::7", 40001, "word-1")]


# Words that two clusters of 3.0.2 said to each other, and their secret.
SECRET_3_0 = Secret(b"799b8825ff18900c91db982cbd47011b1fec9239\n")
HANDSHAKE_3_0 = [0, "3e4949b0b0342d206b0b2143d565f88ee1d5d69f", "e8fc505ea435b5b3"]
DISK_3_0 = [
    "10.95.0.12",
    43875,
    "3d04a980c2c01bad482630e0698d2d076570deef",
    "421f3a6a4f4cf43f00aecb232d66392af5ad62bf",
    "aa7f5e9cb3e034a4",
]
PEM_3_0 = """-----BEGIN CERTIFICATE-----
MIICrzCCAZcCBGsLIpIwDQYJKoZIhvcNAQELBQAwHDEaMBgGA1UEAwwRbm9kZTIu
ZXhhbXBsZS5jb20wHhcNMjYxMTI4MTg1MDU5WhcNMjYxMTI5MTg1MDU5WjAcMRow
GAYDVQQDDBFub2RlMi5leGFtcGxlLmNvbTCCASIwDQYJKoZIhvcNAQEBBQADggEP
ADCCAQoCggEBAOzSky8ta1T/uOJX68S6+Tvit3ZTJwHV/+cCziUjiyB6V5Xuvvqs
+M/o1sSIaS1jiredHZDGKi28j4A2UUPiMwojH+9ayS/dRXvDnmVYhNMUcABcUsXk
sk+c8INJPrLL5+dNi78gYpu+6GBKg7MvJcw0MmuoGgSXNtjg2O9DyP/yJDeLteQ8
Hj3on5S0Xi8t72z31+Z78B78L9+6glDScDPjRWJnmk8o473mocv0zc+syy9EthP9
pMz+u7ZI6Nth06kGlWdUSVt4FXLyr1qu637fBRxco6P76pRybIvoHfHFci+zasRE
hDaC/sEq0txYFKUVKevS4SrTpa4PenlrGBkCAwEAATANBgkqhkiG9w0BAQsFAAOC
AQEAYe1ai9uHDgdSDDw1Jxen2yrnJavSPAC/7rbobmI8QVVi9jNlk1cxbctZtV6G
wy8gXP3qzUhXxdobRZp+0lSsOcR3B9+ZD/TOIwI0DS1C+gTh0H7rx7Y6bCAmBukn
CgJYw3/tyx+qN28/l3fAqvFyyDTKEBrEZw5/aDtVd09nAh8Y19GfBp23fUetHznd
3VejyCi6hNSosh8U+8mb6TuKqqvgxeNQyvdFuW7cxQKRyx9w6FjaXbv0ZRb35JD+
+E9PmwFa0itnxjRhPIb74OMXSw85QTzlztetyskVi+VzmIzN6FOB+qdtlq/GbGEO
4jg2CFaeG43rncpdZzxZ9sK3Hg==
-----END CERTIFICATE-----
"""
SIGNED_3_0 = (
    f"X-Ganeti-Signature: a368a3754f775023/f8fd1a5f0c3ec8d7c2edac91fafbe1088735b6fa\n\n{PEM_3_0}"
)


def signed_disks(
    secret: Secret = SECRET, form: StreamForm = StreamForm.FRAMES
) -> list[list[object]]:
    return [
        remote_move.signed_disk(secret, SALT, index, disk, form) for index, disk in enumerate(DISKS)
    ]


def test_the_words_of_3_0_are_read() -> None:
    assert remote_move.check_handshake(SECRET_3_0, HANDSHAKE_3_0) is StreamForm.PLAIN
    assert remote_move.read_certificate(SECRET_3_0, SIGNED_3_0, "the other") == PEM_3_0
    [(disk, form)] = remote_move.read_disks(SECRET_3_0, [DISK_3_0], 1)
    assert (disk.host, disk.port, disk.magic) == tuple(DISK_3_0[:3])
    assert form is StreamForm.PLAIN


def test_words_are_signed_as_3_0_signs_them() -> None:
    version, digest, salt = remote_move.handshake(SECRET_3_0, SALT)
    assert (version, len(str(digest))) == (0, 40)
    assert digest == SECRET_3_0.sign_text(str(salt), "0:Hi, I'm Ganeti")
    assert HANDSHAKE_3_0[1] == SECRET_3_0.sign_text(str(HANDSHAKE_3_0[2]), "0:Hi, I'm Ganeti")
    assert remote_move.signed_certificate(SECRET_3_0, "a368a3754f775023", PEM_3_0) == SIGNED_3_0
    [disk, _] = remote_move.read_disks(SECRET_3_0, [DISK_3_0], 1)[0]
    salt = str(DISK_3_0[4])
    assert remote_move.signed_disk(SECRET_3_0, salt, 0, disk, StreamForm.PLAIN) == DISK_3_0


def test_the_salt_of_a_certificate_has_no_dashes() -> None:
    signed = remote_move.signed_certificate(SECRET, SALT, PEM)
    assert re.match(r"X-Ganeti-Signature: [0-9a-f]+/[0-9a-f]{40}\n\n-----BEGIN", signed)


def test_what_was_signed_is_read() -> None:
    said = remote_move.handshake(SECRET, SALT)
    assert remote_move.check_handshake(SECRET, said) is StreamForm.FRAMES
    said = remote_move.signed_key_name(SECRET, SALT, "x509-1")
    assert remote_move.read_key_name(SECRET, said) == "x509-1"
    text = remote_move.signed_certificate(SECRET, SALT, PEM)
    assert remote_move.read_certificate(SECRET, text, "the other") == PEM
    for form in StreamForm:
        found = remote_move.read_disks(SECRET, signed_disks(form=form), 2)
        assert found == [(disk, form) for disk in DISKS]


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


@pytest.mark.parametrize("form", StreamForm)
def test_no_word_of_what_was_signed_can_be_changed(form: StreamForm) -> None:
    first, second = signed_disks(form=form)
    digests = ("0" * 64, "0" * 40, str(first[3])[:40], "")
    changes = [(0, "192.0.2.8"), (1, 40009), (2, "word-9"), (4, "salt")]
    for index, value in (*changes, *((3, digest) for digest in digests if digest != first[3])):
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
    with pytest.raises(ProtocolError, match=r"speaks version 1 .* this one version 0"):
        remote_move.check_handshake(SECRET, [1, "x", "y"])


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
    disk = AwaitedDisk("h", 0, "word-0")
    odd = [remote_move.signed_disk(SECRET, SALT, 0, disk, StreamForm.FRAMES)]
    with pytest.raises(ProtocolError, match="makes no sense"):
        remote_move.read_disks(SECRET, odd, 1)
