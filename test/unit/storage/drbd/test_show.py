"""The output of ``drbdsetup show``, recorded and damaged."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import GenericError
from ganeti.storage.drbd.show import address, parse

DATA = Path(__file__).parents[3] / "data" / "drbd"
DEFAULTS = (DATA / "show-8.4-defaults.txt").read_text()
TWO = (
    "resource r-of-others {\n options {\n }\n _this_host {\n volume 0 {\n device minor 3;\n }\n"
    ' volume 1 {\n device minor 4;\n disk "/dev/sd a";\n meta-disk internal;\n }\n }\n}\n'
)


def test_a_resource_of_ours_is_read_with_all_its_options() -> None:
    [found] = parse(DEFAULTS)
    assert (found.name, found.local) == ("resource0", "ipv4:10.96.0.11:11000")
    assert found.remote == "ipv4:10.96.0.12:11000"
    assert found.options["shared-secret"] == "abc123def"
    assert found.options["after-sb-1pri"] == "consensus"
    assert found.options["data-integrity-alg"] == ""
    [volume] = found.volumes.values()
    assert (volume.minor, volume.data) == (0, "/dev/xenvg/rec.disk0_data")
    assert volume.meta == "/dev/xenvg/rec.disk0_meta"
    assert volume.options["c-plan-ahead"] == "0"
    assert volume.options["c-fill-target"] == "100s"


def test_the_secret_is_in_no_text() -> None:
    [found] = parse(DEFAULTS)
    assert "abc123def" not in f"{found} {found!r}"


def test_without_a_connection_there_are_no_addresses() -> None:
    [found] = parse((DATA / "show-8.4-standalone.txt").read_text())
    assert (found.local, found.remote, found.options) == ("", "", {})
    assert str(found) == (
        "resource resource0: /dev/xenvg/rec.disk0_data and /dev/xenvg/rec.disk0_meta, no connection"
    )


def test_what_others_made_is_read_too() -> None:
    [empty, several] = parse("resource resource7 {\n    _this_host {\n    }\n}\n" + TWO)
    assert empty.volumes == {}
    assert [each.minor for each in several.volumes.values()] == [3, 4]
    assert several.volumes[1].data == "/dev/sd a"
    assert several.volumes[1].meta == "internal"


@pytest.mark.parametrize("text", ["resource", "resource r {", "x;", "resource r { volume { }"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(GenericError, match="cannot understand the output of drbdsetup show"):
        parse(text)


@given(st.integers(0, len(DEFAULTS)), st.text(alphabet=' {};"#a0\n', max_size=5))
def test_damaged_text_is_read_or_refused(place: int, noise: str) -> None:
    with contextlib.suppress(GenericError):
        parse(DEFAULTS[:place] + noise + DEFAULTS[place + 3 :])


def test_one_address_has_one_form() -> None:
    assert address("10.0.0.1", 11000) == "ipv4:10.0.0.1:11000"
    assert address("FE80:0::1", 11000) == "ipv6:[fe80::1]:11000"
    [found] = parse(
        "resource r { _remote_host { address ipv6 [fe80:0:0::2]:11000; }"
        " _this_host { address ipv6 [fe80::1]:11000; } }"
    )
    assert (found.local, found.remote) == ("ipv6:[fe80::1]:11000", "ipv6:[fe80::2]:11000")
