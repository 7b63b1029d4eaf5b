"""Values of the node RPC that have a form of their own on the wire, and back.

Compressed text (ED_COMPRESS), details of an uploaded file (ED_FILE_DETAILS), small records, and the
facts by which nodes agree on the master.  Instances and disks are in ``objects``.

Source: node_rpc.json (encoders, encodings, result_objects); ARCHITECTURE, invariant 9.
"""

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import IntEnum, StrEnum
from typing import NamedTuple, Self

import msgspec

from ganeti.base.errors import ProtocolError
from ganeti.base.json import dumps

ENCODING_NONE = 0
ENCODING_ZLIB_BASE64 = 1

# From this size on text is compressed, at this level.  Source: node_rpc.json, ED_COMPRESS.
COMPRESS_BYTES_MIN = 8192  # packing less costs more than it saves on the way
COMPRESS_LEVEL = 3

# The limit of a decompressed value: ten times the biggest configuration known (5 MB).
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024


# How the contents of a disk can be packed on their way between nodes.
# Source: constants.json, IEC_ALL; lzop is not built.
DISK_COMPRESSIONS = ("none", "gzip", "gzip-fast", "gzip-slow")


# A check of node_verify beside those of 3.0: from directories to the files in and below them.
STORED_DISKS_CHECK = "stored-disks"


# Checks of os_validate beside that of 3.0; the name of a hypervisor, the kind of a script, or the
# path of an image follows.
OS_CHECK_HYPERVISOR = "hypervisor:"
OS_CHECK_SCRIPT = "script:"
OS_CHECK_IMAGE = "image:"

# The disk beside those of an instance by which a machine of its own installs it; it begins with the
# answer of that machine.
PACKAGE_DISK_MIB = 16


# The answer of a receiver when the sender broke off; the sender knows why.
STREAM_ENDED_EARLY = "the stream ended early"


class KeptSnapshot(NamedTuple):
    """A snapshot that a disk keeps within itself; the time is in seconds since 1970."""

    name: str
    ctime: float


class CopySide(NamedTuple):
    """The side of one node of a disk with a copy: what tells which side has the newer data.

    Attributes:
        is_connected: the other side is reached.
        is_open: it can be written on this node.
        is_open_there: it can be on the other node, as far as that is reached.
        is_outdated: it is noted on this side that the other one was written alone.  From here on
            only of a side that is not connected.
        generations: of the data, in hexadecimal digits: now, when the copy was left behind, and
            earlier ones; none without local data.
        alone_since: seconds since 1970 when the connection was lost; None where nobody knows.
        parting: the reason why the connection was given up for good; "" if it was not.
    """

    is_connected: bool
    is_open: bool
    is_open_there: bool
    is_outdated: bool = False
    generations: Sequence[str] = ()
    alone_since: float | None = None
    parting: str = ""


class HookResult(IntEnum):
    """How one hook script went."""

    SKIP = 0
    FAIL = 1
    SUCCESS = 2


class CompressedText:
    """Text or other bytes, compressed on the wire when they are long or no text: ED_COMPRESS.

    It is packed once, however many nodes it is sent to.
    """

    __slots__ = ("_wire", "content")

    def __init__(self, content: bytes | str) -> None:
        self.content = content.encode() if isinstance(content, str) else content
        self._wire: msgspec.Raw | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompressedText) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)

    def __repr__(self) -> str:
        return f"<text of {len(self.content)} bytes>"

    @classmethod
    def from_wire(cls, value: object) -> Self:
        """Unpack ``[encoding, data]``; errors as of `decompress`."""
        return cls(decompress(value))

    def to_wire(self) -> object:
        """Pack the text."""
        if self._wire is None:
            self._wire = msgspec.Raw(dumps(compress(self.content)))
        return self._wire


class PackedText:
    """A compressed text that is unpacked where it is used, so that a broken one spoils no other."""

    __slots__ = ("_wire",)

    def __init__(self, wire: object) -> None:
        self._wire = wire

    @classmethod
    def from_wire(cls, value: object) -> Self:
        """Take it as it is."""
        return cls(value)

    def to_wire(self) -> object:
        """Return it as it is."""
        return self._wire

    def unpack(self) -> bytes:
        """Return the text as UTF-8 bytes; errors as of `decompress`."""
        return decompress(self._wire)


class FileDetails(NamedTuple):
    """One file to be written on a node: ED_FILE_DETAILS and the arguments of upload_file_single."""

    path: str
    content: CompressedText
    mode: int
    owner: str
    group: str
    atime: float
    mtime: float

    @classmethod
    def from_wire(cls, value: object) -> Self:
        """Read path, compressed content, mode, owner, group, atime, mtime.

        Raises:
            ProtocolError: not seven values, or one of a wrong type.
        """
        match value:
            case [
                str(path),
                content,
                int(mode),
                str(owner),
                str(group),
                int(atime) | float(atime),
                int(mtime) | float(mtime),
            ]:
                text = CompressedText.from_wire(content)
                return cls(path, text, mode, owner, group, atime, mtime)
            case _:
                raise ProtocolError(
                    "file details are not [path, content, mode, owner, group, atime, mtime]"
                )

    def to_wire(self) -> list[object]:
        """Return the seven values."""
        return [self.path, self.content.to_wire(), *self[2:]]


class ConfigVersion(msgspec.Struct, frozen=True, array_like=True):
    """Which configuration it is: its serial number, and when it came to be."""

    serial_no: int
    mtime: float


class ConfigPatch(msgspec.Struct, frozen=True):
    """The next version of ``config.data``, as parts of the one before and texts between them.

    Attributes:
        base: the version before.
        parts: the offset and the length of bytes to be kept, in the file before; or a new text.
    """

    base: ConfigVersion
    version: ConfigVersion
    parts: Sequence[tuple[int, int] | str]


class SsconfPatch(msgspec.Struct, frozen=True):
    """The next state of the simple configuration, as the values that differ from another.

    Attributes:
        serial_no: of a configuration that the master has.
        base: the name of the state before; "" if these are all values.
        state: the name of the state that comes out.
    """

    serial_no: int
    base: str
    state: str
    values: Mapping[str, str]


class TokenAction(StrEnum):
    """The actions of node_crypto_tokens."""

    GET = "get"
    CREATE = "create"
    DELETE = "delete"


class TokenOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to make a token; ``cert_file`` may be another file of the data directory."""

    serial_no: int | None = None
    cert_file: str | None = None


class TokenRequest(msgspec.Struct, frozen=True, array_like=True):
    """One action on a token of the node."""

    kind: str
    action: TokenAction
    options: TokenOptions | None = None


class StreamForm(StrEnum):
    """The form of the stream that carries a disk.

    Attributes:
        PLAIN: bytes, ended by the end of the connection, as between nodes of 3.0.
        FRAMES: frames with a checksum, and an answer at the end.
    """

    PLAIN = "plain"
    FRAMES = "frames"


class TransferOptions(msgspec.Struct, frozen=True):
    """How both sides of a transfer talk.

    Attributes:
        form: a master of 3.0 names none.
        key_name: of the certificate to show (`x509_cert_create`); None for the cluster's own.
        ca_pem: the certificate that the peer must show; None for any that the cluster issued.
    """

    key_name: str | None = None
    ca_pem: str | None = None
    compress: str = "none"
    magic: str | None = None
    ipv6: bool = False
    connect_timeout: int | None = None
    form: StreamForm = StreamForm.PLAIN


class ChainPoint(msgspec.Struct, frozen=True):
    """One point of a chain of exports, as its node has it.

    Attributes:
        timestamp: when it was made, in seconds since 1970.
        size: the room that it takes, in bytes.
        with_sums: the UUIDs of the disks whose blocks have checksums there.
    """

    number: int
    timestamp: int
    size: int
    with_sums: Sequence[str] = ()


def compress(content: bytes | str) -> list[object]:
    """Return ``[encoding, data]``; bytes that are no text are packed, however few they are."""
    data = content.encode() if isinstance(content, str) else content
    if len(data) < COMPRESS_BYTES_MIN:
        with suppress(UnicodeDecodeError):
            return [ENCODING_NONE, data.decode()]
    packed = zlib.compress(data, COMPRESS_LEVEL)
    return [ENCODING_ZLIB_BASE64, base64.b64encode(packed).decode("ascii")]


def decompress(value: object) -> bytes:
    """Return the bytes that ``[encoding, data]`` stands for.

    Raises:
        ProtocolError: not such a pair, broken data, or more than 64 MiB.
    """
    match value:
        case [0, str(text)]:
            return text.encode()
        case [1, str(text)]:
            return _unpack(text)
        case _:
            raise ProtocolError("compressed value is not of the form [encoding, text]")


def _unpack(text: str) -> bytes:
    """Undo base64 and zlib, within the size limit."""
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(base64.b64decode(text, validate=True), DECOMPRESSED_BYTES_MAX)
    except (binascii.Error, ValueError, zlib.error) as err:
        raise ProtocolError("compressed value cannot be unpacked") from err
    if unpacker.unconsumed_tail:
        raise ProtocolError(f"compressed value unpacks to over {DECOMPRESSED_BYTES_MAX} bytes")
    if not unpacker.eof:
        raise ProtocolError("compressed value ends too early")
    return data


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The files, daemons and memory of masters that a node has.

    Attributes:
        master_name: the master node as it knows it; "" if it does not.
        cluster_uuid: of its copy of the configuration; "" without one.
        config_serial: serial number of that copy; 0 without one.
        last_job_id: the highest job id that it has ever seen.
        candidates: the master candidates as it knows them.
        claim_serial: the configuration that it has promised itself to, see `claim_name`; or 0.
        claim_name: the node that announced that configuration, in order to become master.
        daemons: the master's daemons that run here.
        running_jobs: jobs whose processes live here.
        takes_many_files: it knows the call ``jobqueue_write``.
        fails_over: a fail-over that is to make it the master is at work there.
        patches_config: it knows the calls ``config_patch`` and ``config_append``.
        keeps_ssconf: it knows the call ``ssconf_accept``.
        patches_ssconf: it knows the call ``ssconf_patch``.
        patches_both: it knows the call ``copies_patch``.
        confirms_config: it knows the call ``config_confirm``.
    """

    master_name: str
    cluster_uuid: str = ""
    config_serial: int = 0
    last_job_id: int = 0
    candidates: tuple[str, ...] = ()
    claim_serial: int = 0
    claim_name: str = ""
    daemons: tuple[str, ...] = ()
    running_jobs: tuple[int, ...] = ()
    takes_many_files: bool = False
    fails_over: bool = False
    patches_config: bool = False
    keeps_ssconf: bool = False
    patches_ssconf: bool = False
    patches_both: bool = False
    confirms_config: bool = False


class QueueListing(msgspec.Struct, frozen=True, kw_only=True):
    """The copy of the job queue on a node: the digest of each job's file, and archived jobs."""

    jobs: dict[int, str] = {}
    archived: tuple[int, ...] = ()
    is_drained: bool = False


class DrainResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of the wish that a master be idle: the jobs that are not done yet.

    ``was_drained``: the queue took no jobs before that either.
    """

    left: tuple[int, ...] = ()
    was_drained: bool = False


class Visibility(StrEnum):
    """A parameter of an operating system: stored, stored and hidden, or never stored."""

    PUBLIC = "public"
    PRIVATE = "private"
    SECRET = "secret"  # noqa: S105 - a word


class GuestNic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An interface, as its guest is told."""

    mac: str
    ip: str = ""
    name: str = ""
    network: str = ""
    gateway: str = ""


class GuestMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """All that a guest may ask its node for.

    Attributes:
        address: of the guest, in the network for communication.
        memory: in MiB.
        disks: the sizes, in MiB.
        parameters: of the operating system: value and visibility.
    """

    name: str
    uuid: str
    address: str
    os: str = ""
    hypervisor: str = ""
    memory: int = 0
    vcpus: int = 0
    tags: Sequence[str] = ()
    nics: Sequence[GuestNic] = ()
    disks: Sequence[int] = ()
    parameters: Mapping[str, tuple[str, Visibility]] = {}

    @classmethod
    def from_wire(cls, value: object) -> Self:
        """Read it from JSON.

        Raises:
            ProtocolError: it is none; says why.
        """
        try:
            return msgspec.convert(value, cls)
        except msgspec.ValidationError as err:
            raise ProtocolError(f"metadata of an instance cannot be used: {err}") from err

    def to_wire(self) -> dict[str, object]:
        """Return it as JSON."""
        found: dict[str, object] = msgspec.to_builtins(self)
        return found

    def without_secrets(self) -> Self:
        """Return it without the parameters that may not be stored."""
        kept = {
            name: parameter
            for name, parameter in self.parameters.items()
            if parameter[1] is not Visibility.SECRET
        }
        return msgspec.structs.replace(self, parameters=kept)
