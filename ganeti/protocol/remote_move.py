"""The messages between two clusters when an instance moves between them, and their signatures.

Both clusters know the cluster domain secret and nothing else of each other.  Everything that one of
them hands to the other (through a third machine, which need not be trusted with it) carries a
signature: the HMAC of its kind, a salt and its words under that secret.

    handshake     [version, digest, salt]             "we know the same secret, and speak the same"
    certificate   X-Ganeti-Signature: salt/digest     above the PEM text of a certificate
    key name      [name, digest, salt]                of the certificate that was made for an export
    disk          [host, port, magic, digest, salt]   where a disk is waited for

The kind that is signed along names the meaning of the words, so that none can be taken for another.

Source: constants.json, "export_import" (RIE_HANDSHAKE, X509_CERT_SIGNATURE_HEADER); opcodes.json.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from ganeti.base.errors import ProtocolError

T = TypeVar("T")

VERSION: Final = 1  # of signatures and streams; 3.0 says 0, and its streams are not understood here
CERTIFICATE_VALIDITY_S: Final = 86400  # RIE_CERT_VALIDITY
LOG_KIND: Final = "remote-import"  # of the entry in the job's log that says where disks are awaited
MAGIC_WORD: Final = re.compile(r"[-_.a-zA-Z0-9]{5,100}")  # IE_MAGIC_RE

_HANDSHAKE: Final = "Hi, I'm Ganeti"
_HEADER: Final = "X-Ganeti-Signature"
_SIGNED: Final = re.compile(
    rf"\s*{_HEADER}: *([0-9A-Za-z-]+)/([0-9a-f]+)\s*\n"
    r"(-----BEGIN CERTIFICATE-----\n.+?\n-----END CERTIFICATE-----)\s*",
    re.DOTALL,
)
_TEXT_LENGTH_MAX: Final = 1 << 16


class Secret:
    """The cluster domain secret; its text is never shown."""

    def __init__(self, data: bytes) -> None:
        self._key = data.strip()

    def __repr__(self) -> str:
        return "Secret(***)"

    def sign(self, salt: str, kind: str, *words: object) -> str:
        """Return the signature of some words of one kind."""
        text = "\0".join([salt, kind, *map(str, words)])
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def has_signed(self, digest: str, salt: str, kind: str, *words: object) -> bool:
        """Tell whether somebody with the same secret said this."""
        own = self.sign(salt, kind, *words)
        return hmac.compare_digest(own.encode(), digest.encode("utf-8", "replace"))


class AwaitedDisk(msgspec.Struct, frozen=True):
    """The place where the other cluster waits for a disk; the sender begins with ``magic``."""

    host: str
    port: int
    magic: str


def handshake(secret: Secret, salt: str) -> list[object]:
    """Return the proof for the other cluster that this one knows the secret."""
    return [VERSION, secret.sign(salt, "handshake", VERSION, _HANDSHAKE), salt]


def check_handshake(secret: Secret, said: object) -> None:
    """Check that the other cluster knows the secret and speaks the same language.

    Raises:
        ProtocolError: it does not; the message names the next step.
    """
    version, digest, salt = _read(tuple[int, str, str], said, "the handshake")
    if version != VERSION:
        raise ProtocolError(
            f"the other cluster speaks version {version} of the language in which instances"
            f" move between clusters, this one version {VERSION}: bring both to the same version"
        )
    if not secret.has_signed(digest, salt, "handshake", version, _HANDSHAKE):
        raise _not_signed("the handshake")


def signed_key_name(secret: Secret, salt: str, name: str) -> list[object]:
    """Return the name of a key so that it can be known again as one of ours."""
    return [name, secret.sign(salt, "key", name), salt]


def read_key_name(secret: Secret, said: object) -> str:
    """Return the name of a key that was signed.

    Raises:
        ProtocolError: it was not.
    """
    name, digest, salt = _read(tuple[str, str, str], said, "the name of the key")
    if not secret.has_signed(digest, salt, "key", name):
        raise _not_signed("the name of the key")
    return name


def signed_certificate(secret: Secret, salt: str, pem: str) -> str:
    """Return a certificate with a signature above it."""
    text = pem.strip()
    return f"{_HEADER}: {salt}/{secret.sign(salt, 'certificate', text)}\n{text}\n"


def read_certificate(secret: Secret, said: str | None, whose: str) -> str:
    """Return a certificate that was signed, as PEM.

    Raises:
        ProtocolError: it was not.
    """
    found = _SIGNED.fullmatch(said or "") if len(said or "") <= _TEXT_LENGTH_MAX else None
    if found is None:
        raise ProtocolError(f"the certificate of {whose} is missing, or not a signed one")
    salt, digest, text = found.groups()
    if not secret.has_signed(digest, salt, "certificate", text):
        raise _not_signed(f"the certificate of {whose}")
    return f"{text}\n"


def signed_disk(secret: Secret, salt: str, index: int, disk: AwaitedDisk) -> list[object]:
    """Return where a disk is waited for, for the other cluster."""
    words = (disk.host, disk.port, disk.magic)
    return [*words, secret.sign(salt, "disk", index, *words), salt]


def read_disks(secret: Secret, said: Sequence[object], count: int) -> list[AwaitedDisk]:
    """Return where the disks of an instance are waited for.

    Raises:
        ProtocolError: they are not as many, or not signed.
    """
    if len(said) != count:
        raise ProtocolError(
            f"the other cluster waits for {len(said)} disk(s), the instance has {count}"
        )
    return [_read_disk(secret, value, index) for index, value in enumerate(said)]


def _read_disk(secret: Secret, value: object, index: int) -> AwaitedDisk:
    what = f"what says where disk {index} is waited for"
    host, port, magic, digest, salt = _read(tuple[str, int, str, str, str], value, what)
    if not secret.has_signed(digest, salt, "disk", index, host, port, magic):
        raise _not_signed(what)
    if not MAGIC_WORD.fullmatch(magic) or not 0 < port < 1 << 16:
        raise ProtocolError(f"{what} makes no sense")
    return AwaitedDisk(host, port, magic)


def _read(form: type[T], value: object, what: str) -> T:
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as err:
        raise ProtocolError(f"{what} is missing, or has another form than this version's") from err


def _not_signed(what: str) -> ProtocolError:
    return ProtocolError(
        f"{what} is not signed with this cluster's domain secret: give both clusters the same one,"
        " with 'gnt-cluster renew-crypto --cluster-domain-secret=FILE'"
    )
