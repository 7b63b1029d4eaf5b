"""Values with a form of their own on the node wire."""

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import ProtocolError
from ganeti.base.json import dumps, loads
from ganeti.protocol import node_rpc_values as values
from ganeti.protocol.node_rpc_values import CompressedText, FileDetails


@given(st.text())
def test_text_survives(text: str) -> None:
    assert values.decompress(values.compress(text)) == text.encode()
    assert values.decompress(values.compress(text * 9000)) == (text * 9000).encode()


def test_short_text_stays_and_long_text_is_packed() -> None:
    short = "x" * (values.COMPRESS_BYTES_MIN - 1)
    assert values.compress(short) == [0, short]
    encoding, data = values.compress("x" * values.COMPRESS_BYTES_MIN)
    assert encoding == 1
    assert zlib.decompress(base64.b64decode(str(data))) == b"x" * values.COMPRESS_BYTES_MIN


def test_bytes_count_not_characters() -> None:
    assert values.compress("é" * (values.COMPRESS_BYTES_MIN // 2))[0] == 1


@given(st.binary())
def test_what_is_not_text_is_packed(data: bytes) -> None:
    assert values.decompress(values.compress(data)) == data
    assert CompressedText.from_wire(loads(dumps(CompressedText(data).to_wire()))).content == data
    assert values.compress(b"\xff")[0] == 1


@pytest.mark.parametrize(
    "wire", [None, [], [0], [2, "x"], [0, 1], [1, "!"], [1, "eA=="], [0, "x", "y"], ["0", "x"]]
)
def test_a_wrong_form_is_refused(wire: object) -> None:
    with pytest.raises(ProtocolError):
        values.decompress(wire)


def test_a_cut_value_is_refused() -> None:
    packed = base64.b64encode(zlib.compress(b"x" * 5000)[:-6]).decode()
    with pytest.raises(ProtocolError, match="too early"):
        values.decompress([1, packed])


def test_a_value_that_unpacks_to_too_much_is_refused() -> None:
    bomb = base64.b64encode(zlib.compress(bytes(values.DECOMPRESSED_BYTES_MAX + 1))).decode()
    with pytest.raises(ProtocolError, match="over"):
        values.decompress([1, bomb])


DETAILS = FileDetails("/etc/hosts", CompressedText(b"text"), 0o644, "root", "adm", 1.5, 2.0)


def test_file_details() -> None:
    wire = loads(dumps(DETAILS.to_wire()))
    assert wire == ["/etc/hosts", [0, "text"], 420, "root", "adm", 1.5, 2.0]
    assert FileDetails.from_wire(wire) == DETAILS


def test_a_text_is_packed_once() -> None:
    text = CompressedText("x" * values.COMPRESS_BYTES_MIN)
    assert text.to_wire() is text.to_wire()
    assert CompressedText.from_wire(loads(dumps(text.to_wire()))) == text


@pytest.mark.parametrize("wire", [None, ["/x"], ["/x", [0, ""], "0644", "root", "adm", 1, 2]])
def test_wrong_file_details_are_refused(wire: object) -> None:
    with pytest.raises(ProtocolError):
        FileDetails.from_wire(wire)
