"""Values of the node RPC that have a form of their own on the wire, and back.

Compressed text (ED_COMPRESS), details of an uploaded file (ED_FILE_DETAILS) and small records.
Instances and disks are encoded by ``objects``.

Source: node_rpc.json (encoders, encodings, result_objects).
"""

import base64
import binascii
import zlib
from enum import IntEnum
from typing import NamedTuple

import msgspec

from ganeti.base.errors import ProtocolError

ENCODING_NONE = 0
ENCODING_ZLIB_BASE64 = 1

# From this size on text is compressed, at this level.  Source: node_rpc.json, ED_COMPRESS.
COMPRESS_BYTES_MIN = 512
COMPRESS_LEVEL = 3

# What a compressed value may grow to: ten times the biggest configuration known (5 MB).
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024


# How the contents of a disk can be packed on their way between nodes.
# Source: constants.json, IEC_ALL; lzop is not built.
DISK_COMPRESSIONS = ("none", "gzip", "gzip-fast", "gzip-slow")


# A check of node_verify beside those of 3.0: from directories to the files in and below them.
STORED_DISKS_CHECK = "stored-disks"


# A check of os_validate beside that of 3.0; the name of a hypervisor follows.
OS_CHECK_HYPERVISOR = "hypervisor:"


# What a receiver says when the sender broke off; the sender knows why.
STREAM_ENDED_EARLY = "the stream ended early"


class HookResult(IntEnum):
    """How one hook script went."""

    SKIP = 0
    FAIL = 1
    SUCCESS = 2


class FileDetails(NamedTuple):
    """One file to be written on a node: ED_FILE_DETAILS and the arguments of upload_file_single."""

    path: str
    content: bytes
    mode: int
    owner: str
    group: str
    atime: float
    mtime: float


class MasterNetworkParameters(msgspec.Struct, frozen=True):
    """The master address and where it belongs."""

    uuid: str
    ip: str
    netmask: int
    netdev: str
    ip_family: int


def compress(content: bytes | str) -> list[object]:
    """Return ``[encoding, data]`` for text or UTF-8 bytes."""
    data = content.encode() if isinstance(content, str) else content
    if len(data) < COMPRESS_BYTES_MIN:
        return [ENCODING_NONE, _text(data)]
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


def encode_file_details(details: FileDetails) -> list[object]:
    """Return ED_FILE_DETAILS: path, compressed content, mode, owner, group, atime, mtime."""
    return [details.path, compress(details.content), *details[2:]]


def decode_file_details(value: object) -> FileDetails:
    """Read ED_FILE_DETAILS or the seven arguments of upload_file_single.

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
            return FileDetails(path, decompress(content), mode, owner, group, atime, mtime)
        case _:
            raise ProtocolError(
                "file details are not [path, content, mode, owner, group, atime, mtime]"
            )


def _text(data: bytes) -> str:
    """Return bytes as text; what is not UTF-8 cannot cross a JSON wire."""
    try:
        return data.decode()
    except UnicodeDecodeError as err:
        raise ProtocolError("content to be sent is not UTF-8 text") from err


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
