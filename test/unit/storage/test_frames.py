"""Streams whose end is told."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import StorageError
from ganeti.storage.stream import FrameReader, framed

PIECES = st.lists(st.binary(max_size=50), max_size=8)


def read_all(data: bytes, count: int = 7) -> bytes:
    reader = FrameReader(io.BytesIO(data))
    found = b""
    while part := reader.read(count):
        found += part
    assert reader.read(count) == b""
    return found


@given(PIECES, st.integers(1, 60))
def test_what_is_written_is_read(pieces: list[bytes], count: int) -> None:
    assert read_all(b"".join(framed(pieces)), count) == b"".join(pieces)


@given(PIECES, st.data())
def test_a_stream_that_breaks_off_is_never_whole(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(framed(pieces))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(StorageError, match="ended early"):
        read_all(whole[:cut])
