"""The messages between two clusters when an instance moves between them, and their signatures.

Both clusters know the cluster domain secret and nothing else of each other.  Everything that one of
them hands to the other (through a third machine, which need not be trusted with it) carries a
signature: an HMAC of a salt and the words under that secret.

    handshake     [0, digest, salt]                   "we know the same secret"
    certificate   X-Ganeti-Signature: salt/digest     above the PEM text of a certificate
    key name      [name, digest, salt]                of the certificate that was made for an export
    disk          [host, port, magic, digest, salt]   where a disk is waited for

The other cluster may be one of 3.0, whose streams are plain bytes.  Nobody knows that when the
handshake is made, so handshake and certificate have the form of 3.0, with HMACs of SHA-1, and the
salt of the handshake says that this cluster can send frames too (`StreamForm`).  The receiver
decides: by the form in which it signs the disks it tells the sender which stream it waits for.

Key names, which come back to their own cluster, and disks that are waited for in frames are signed
by HMACs of SHA-256 along with their kind, so that none can be taken for another.

Source: constants.json, "export_import" (RIE_HANDSHAKE, X509_CERT_SIGNATURE_HEADER); opcodes.json;
the forms of 3.0 as two of its clusters show them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from ganeti.base.errors import ProtocolError
from ganeti.protocol.node_rpc_values import StreamForm

T = TypeVar("T")

VERSION: Final = 0  # of the messages
SECRET_BYTES_MAX: Final = 1 << 16
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
_CAN_FRAMES: Final = "-frames"  # at the end of a handshake's salt
_SHA1_DIGITS: Final = hashlib.sha1(usedforsecurity=False).digest_size * 2


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

    def sign_text(self, salt: str, text: str) -> str:
        """Return the signature of a text as 3.0 makes it."""
        return hmac.new(self._key, f"{salt}{text}".encode(), hashlib.sha1).hexdigest()


class AwaitedDisk(msgspec.Struct, frozen=True):
    """The place where the other cluster waits for a disk; the sender begins with ``magic``."""

    host: str
    port: int
    magic: str


def handshake(secret: Secret, salt: str) -> list[object]:
    """Return the proof for the other cluster that this one knows the secret."""
    salt += _CAN_FRAMES
    return [VERSION, secret.sign_text(salt, _greeting()), salt]


def check_handshake(secret: Secret, said: object) -> StreamForm:
    """Check that the other cluster knows the secret, and return the form in which it shall send.

    Raises:
        ProtocolError: it does not; the message names the next step.
    """
    version, digest, salt = _read(tuple[int, str, str], said, "the handshake")
    if version != VERSION:
        raise ProtocolError(
            f"the other cluster speaks version {version} of the language in which instances"
            f" move between clusters, this one version {VERSION}: bring both to the same version"
        )
    _check(secret.sign_text(salt, _greeting()), digest, "the handshake")
    return StreamForm.FRAMES if salt.endswith(_CAN_FRAMES) else StreamForm.PLAIN


def _greeting() -> str:
    return f"{VERSION}:{_HANDSHAKE}"


def signed_key_name(secret: Secret, salt: str, name: str) -> list[object]:
    """Return the name of a key so that it can be known again as one of ours."""
    return [name, secret.sign(salt, "key", name), salt]


def read_key_name(secret: Secret, said: object) -> str:
    """Return the name of a key that was signed.

    Raises:
        ProtocolError: it was not.
    """
    name, digest, salt = _read(tuple[str, str, str], said, "the name of the key")
    _check(secret.sign(salt, "key", name), digest, "the name of the key")
    return name


def signed_certificate(secret: Secret, salt: str, pem: str) -> str:
    """Return a certificate with a signature above it; in its salt 3.0 takes no dashes."""
    salt = salt.replace("-", "")
    text = f"{pem.strip()}\n"
    return f"{_HEADER}: {salt}/{secret.sign_text(salt, text)}\n\n{text}"


def read_certificate(secret: Secret, said: str | None, whose: str) -> str:
    """Return a certificate that was signed, as PEM.

    Raises:
        ProtocolError: it was not.
    """
    found = _SIGNED.fullmatch(said or "") if len(said or "") <= _TEXT_LENGTH_MAX else None
    if found is None:
        raise ProtocolError(f"the certificate of {whose} is missing, or not a signed one")
    salt, digest, text = found.groups()
    pem = f"{text}\n"
    _check(secret.sign_text(salt, pem), digest, f"the certificate of {whose}")
    return pem


def signed_disk(
    secret: Secret, salt: str, index: int, disk: AwaitedDisk, form: StreamForm
) -> list[object]:
    """Return where a disk is waited for, and in which form, for the other cluster."""
    words = (disk.host, disk.port, disk.magic)
    return [*words, _sign_disk(secret, salt, index, disk, form), salt]


def _sign_disk(secret: Secret, salt: str, index: int, disk: AwaitedDisk, form: StreamForm) -> str:
    words = (index, disk.host, disk.port, disk.magic)
    if form is StreamForm.FRAMES:
        return secret.sign(salt, "disk", *words)
    return secret.sign_text(salt, ":".join(map(str, words)))


def read_disks(
    secret: Secret, said: Sequence[object], count: int
) -> list[tuple[AwaitedDisk, StreamForm]]:
    """Return where the disks of an instance are waited for, and in which form.

    Raises:
        ProtocolError: they are not as many, or not signed.
    """
    if len(said) != count:
        raise ProtocolError(
            f"the other cluster waits for {len(said)} disk(s), the instance has {count}"
        )
    return [_read_disk(secret, value, index) for index, value in enumerate(said)]


def _read_disk(secret: Secret, value: object, index: int) -> tuple[AwaitedDisk, StreamForm]:
    what = f"what says where disk {index} is waited for"
    host, port, magic, digest, salt = _read(tuple[str, int, str, str, str], value, what)
    disk = AwaitedDisk(host, port, magic)
    form = StreamForm.PLAIN if len(digest) == _SHA1_DIGITS else StreamForm.FRAMES
    _check(_sign_disk(secret, salt, index, disk, form), digest, what)
    if not MAGIC_WORD.fullmatch(magic) or not 0 < port < 1 << 16:
        raise ProtocolError(f"{what} makes no sense")
    return disk, form


def _read(form: type[T], value: object, what: str) -> T:
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as err:
        raise ProtocolError(f"{what} is missing, or has another form than this version's") from err


def _check(own: str, digest: str, what: str) -> None:
    """Check that somebody with the same secret said something."""
    if hmac.compare_digest(own.encode(), digest.encode("utf-8", "replace")):
        return
    raise ProtocolError(
        f"{what} is not signed with this cluster's domain secret: give both clusters the same one,"
        " with 'gnt-cluster renew-crypto --cluster-domain-secret=FILE'"
    )
