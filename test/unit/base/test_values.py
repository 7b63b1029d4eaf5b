"""Sizes, paths, secrets and the JSON seam."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base import json
from ganeti.base.errors import OpPrereqError, ProtocolError, UnitParseError
from ganeti.base.paths import VIRTUAL_PATH_PREFIX, Paths
from ganeti.base.secret import Secret
from ganeti.base.units import format_unit, parse_unit


@pytest.mark.shows("2.0/disk/size")
@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512", 512),
        ("1g", 1024),
        ("1.5G", 1536),
        ("2T", 2 << 20),
        ("1", 4),
        (" 10 m ", 12),
        (".5g", 512),
    ],
)
def test_sizes_are_mib_in_steps_of_four(text: str, mib: int) -> None:
    assert parse_unit(text) == mib


@pytest.mark.parametrize("text", ["", "g", "1x", "-1", "1 g g", "0x10", "9" * 20, "9" * 400])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UnitParseError):
        parse_unit(text)


def test_sizes_are_shown_in_the_unit_asked_for() -> None:
    assert [format_unit(1536, unit) for unit in "hmgt"] == ["1.5G", "1536", "1.5", "0.0"]
    assert format_unit(128) == "128M"
    assert format_unit(2 << 20) == "2.0T"


segments = st.text(alphabet="abc.-_9", min_size=1, max_size=5).filter(
    lambda s: s not in (".", "..")
)


@given(st.lists(segments, min_size=1, max_size=5))
def test_paths_go_out_and_come_back(parts: list[str]) -> None:
    wire = "/" + "/".join(parts)
    for paths in (Paths(""), Paths("/srv/vc/node1")):
        assert paths.globalize(paths.localize(wire)) == wire
        assert paths.localize(VIRTUAL_PATH_PREFIX + wire) == paths.localize(wire)


@pytest.mark.parametrize("path", ["", "a/b", "/a/../../etc/passwd", "/a/\0b", "../x"])
def test_a_path_cannot_leave_the_root(path: str) -> None:
    with pytest.raises(OpPrereqError):
        Paths("/srv/vc/node1").localize(path)


def test_well_known_paths_lie_below_the_root() -> None:
    paths = Paths("/r/")
    assert paths.config_data == "/r/var/lib/ganeti/config.data"
    assert paths.job_livelock(7, 1700000000) == "/r/var/run/ganeti/livelocks/job_000007_1700000000"
    assert paths.archived_job_file(12345) == "/r/var/lib/ganeti/queue/archive/1/job-12345"
    assert paths.log_file("ganeti-noded") == "/r/var/log/ganeti/node-daemon.log"
    with pytest.raises(AttributeError, match="no_such"):
        _ = paths.no_such


def test_a_secret_shows_itself_only_when_asked() -> None:
    secret = Secret("s3cret")
    assert "s3cret" not in f"{secret} {secret!r} {[secret]}"
    assert secret.reveal() == "s3cret"


@pytest.mark.parametrize("data", [b"", b"{", b"[1,]", b'"\xff"', b"[" * 100_000, b"nul"])
def test_bad_json_is_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="invalid"):
        json.loads(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"a": 1, "b": x}', "invalid character (byte 14)"),
        (b'{"a": "b\xff"}', "invalid UTF-8 at byte 8"),
        ('{"a": "\ud800"}', "invalid UTF-8 at byte 7"),
    ],
)
def test_a_json_error_names_the_byte(data: bytes | str, text: str) -> None:
    for load in (json.loads, lambda data: json.loads_as(dict, data)):
        with pytest.raises(ProtocolError) as caught:
            load(data)
        assert caught.value.message.endswith(text)


def test_text_that_is_no_utf_8_is_not_written() -> None:
    with pytest.raises(ProtocolError, match=r"can be sent as UTF-8: 'a\\udcff'"):
        json.dumps(["a\udcff"])
