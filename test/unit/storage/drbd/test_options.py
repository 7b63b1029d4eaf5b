"""Options of the device from parameters of the disk."""

from __future__ import annotations

import pytest

from ganeti.base.errors import BlockDeviceError
from ganeti.storage.drbd import options


def test_without_parameters_the_defaults_of_3_0_hold() -> None:
    params = options.checked(None)
    assert options.disk_options(params) == {
        "on-io-error": "detach",
        "disk-barrier": "no",
        "disk-flushes": "yes",
        "disk-drain": "yes",
        "md-flushes": "yes",
        "c-plan-ahead": "0",  # else the fixed speed would not count
        "resync-rate": "61440k",
    }
    assert options.net_options(params, "x", dual_primary=False) == {
        "protocol": "C",
        "after-sb-0pri": "discard-zero-changes",
        "after-sb-1pri": "consensus",
        "cram-hmac-alg": "md5",
        "shared-secret": "x",
        "allow-two-primaries": "no",
    }


@pytest.mark.parametrize(
    ("letters", "off"),
    [
        ("n", set()),
        ("f", {"disk-flushes"}),
        ("bd", {"disk-drain"}),
        ("bfd", {"disk-flushes", "disk-drain"}),
    ],
)
def test_barriers_are_letters(letters: str, off: set[str]) -> None:
    found = options.disk_options(options.checked({"disabled-barriers": letters}))
    assert found["disk-barrier"] == "no"
    assert {name for name in ("disk-flushes", "disk-drain") if found[name] == "no"} == off


def test_a_controller_chooses_the_speed_where_it_may() -> None:
    given = {"dynamic-resync": True, "c-fill-target": 100, "c-max-rate": 50000}
    found = options.disk_options(options.checked({**given, "disable-meta-flush": True}))
    assert found["md-flushes"] == "no"
    assert "resync-rate" not in found
    assert (found["c-plan-ahead"], found["c-fill-target"]) == ("20", "100s")
    assert (found["c-max-rate"], found["c-min-rate"]) == ("50000k", "4096k")


def test_a_migration_needs_protocol_c() -> None:
    params = options.checked({"protocol": "A"})
    assert options.net_options(params, "x", dual_primary=False)["protocol"] == "A"
    found = options.net_options(params, "x", dual_primary=True)
    assert (found["protocol"], found["allow-two-primaries"]) == ("C", "yes")


def test_options_of_the_operator_are_added() -> None:
    custom = "--max-buffers=8000 --verify-alg 'crc32c' --always-asbp"
    found = options.net_options(options.checked({"net-custom": custom}), "x", dual_primary=False)
    assert found["max-buffers"] == "8000"
    assert found["verify-alg"] == "crc32c"
    assert found["always-asbp"] == "yes"
    with pytest.raises(BlockDeviceError, match="'stray', which is no option of drbdsetup"):
        options.disk_options(options.checked({"disk-custom": "--a=1 --b c stray"}))


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"protocol": "Z"}, "'protocol': 'Z' is not one of A, B, C"),
        ({"disabled-barriers": "zzz"}, "'disabled-barriers': 'zzz' is not n, or"),
        ({"resync-rate": -4}, "'resync-rate': -4"),
        ({"dynamic-resync": True, "c-plan-ahead": 0}, "set dynamic-resync=false"),
    ],
)
def test_values_that_cannot_be_are_refused_before_drbd_is_asked(
    params: dict[str, object], words: str
) -> None:
    with pytest.raises(BlockDeviceError, match=words.replace("(", r"\(")):
        options.checked(params)


def test_parameters_of_others_are_none_of_ours() -> None:
    assert "access" not in options.checked({"access": "kernelspace"})


def test_values_are_compared_in_their_units() -> None:
    wanted = {"size": "256m", "resync-rate": "60m", "c-plan-ahead": "0", "protocol": "C"}
    found = {"size": "524288s", "resync-rate": "61440k", "c-plan-ahead": "20", "protocol": "C"}
    assert options.differences(wanted, found) == {"c-plan-ahead": "0"}
    assert options.differences({"new": "yes"}, {}) == {"new": "yes"}
    assert options.arguments({"a": "1", "b": ""}) == ["--a=1", "--b="]
