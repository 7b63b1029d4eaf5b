"""Options of DRBD: from the parameters of a disk to those of drbdsetup, and read back.

A value is compared in its own units: 61440k is 62914560.  Options that a parameter does not speak
of keep the default of the driver.

Source: constants.json, "diskparams_on_device_level", DRBD_HMAC_ALG, DRBD_MIGRATION_NET_PROTOCOL;
drbdsetup(8) of DRBD 8.4, "attach", "connect", "disk-options", "net-options".
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ganeti.base.errors import BlockDeviceError
from ganeti.objects import parameters
from ganeti.objects.rpc_instance import DRBD_DEVICE_NAMES

PROTOCOL_OF_MIGRATION: Final = "C"  # both nodes write: each waits for the other's disk
TWO_PRIMARIES: Final = "allow-two-primaries"
SIZE: Final = "size"
HIDDEN: Final = "shared-secret"  # the name of the option

_TABLE: Final[parameters.ParamTable] = {
    DRBD_DEVICE_NAMES.get(name, name): spec for name, spec in parameters.DISKPARAMS["drbd"].items()
}
_PEERS: Final = {
    "after-sb-0pri": "discard-zero-changes",  # a copy without changes gives way
    "after-sb-1pri": "consensus",  # the secondary does, where that rule says so too
    "cram-hmac-alg": "md5",
}
_BARRIERS: Final = {"b": "disk-barrier", "f": "disk-flushes", "d": "disk-drain"}
_FACTORS: Final = {"": 1, "s": 512, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_NUMBER: Final = re.compile(r"(-?\d+)([skmgt]?)", re.IGNORECASE)


def checked(params: Mapping[str, object] | None) -> dict[str, Any]:
    """Return the parameters of a device, with defaults for those that are not given.

    Raises:
        BlockDeviceError: one has a value that cannot be; DRBD is not asked.
    """
    given = {name: value for name, value in (params or {}).items() if name in _TABLE}
    for problem in parameters.problems(given, _TABLE, what="DRBD parameter"):
        raise BlockDeviceError(problem)
    found = {**parameters.defaults_of(_TABLE), **given}
    if found["dynamic-resync"] and not found["c-plan-ahead"]:
        raise BlockDeviceError(
            "DRBD parameter 'c-plan-ahead': 0 switches the controller of the speed off; set"
            " dynamic-resync=false for that"
        )
    return found


def disk_options(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of the local half; ``params`` are `checked`."""
    off = params["disabled-barriers"]
    return {
        "on-io-error": "detach",
        # Barriers were never on by default since 8.4.2, and modern kernels have none.
        **{name: _flag(letter != "b" and letter not in off) for letter, name in _BARRIERS.items()},
        "md-flushes": _flag(not params["disable-meta-flush"]),
        **_speeds(params),
        **dict(_custom(params["disk-custom"])),
    }


def _speeds(params: Mapping[str, Any]) -> dict[str, str]:
    if not params["dynamic-resync"]:
        return {"c-plan-ahead": "0", "resync-rate": f"{params['resync-rate']}k"}
    return {
        "c-plan-ahead": str(params["c-plan-ahead"]),
        "c-fill-target": f"{params['c-fill-target']}s",
        "c-delay-target": str(params["c-delay-target"]),
        "c-max-rate": f"{params['c-max-rate']}k",
        "c-min-rate": f"{params['c-min-rate']}k",
    }


def net_options(params: Mapping[str, Any], secret: str, *, dual_primary: bool) -> dict[str, str]:
    """Return the options of the connection; ``params`` are `checked`."""
    return {
        "protocol": PROTOCOL_OF_MIGRATION if dual_primary else params["protocol"],
        **_PEERS,
        HIDDEN: secret,
        TWO_PRIMARIES: _flag(dual_primary),
        **dict(_custom(params["net-custom"])),
    }


def _flag(value: bool) -> str:
    return "yes" if value else "no"


def _custom(text: str) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of options as the operator wrote them: ``--name=value``, ``--name``.

    Raises:
        BlockDeviceError: there is something else.
    """
    words = shlex.split(text)
    while words:
        word = words.pop(0)
        name, has_value, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            raise BlockDeviceError(f"{text!r} has {word!r}, which is no option of drbdsetup")
        if not has_value and words and not words[0].startswith("--"):
            value, has_value = words.pop(0), "="
        yield name, value if has_value else "yes"


def arguments(options: Mapping[str, str]) -> list[str]:
    """Return options as arguments of drbdsetup."""
    return [f"--{name}={value}" for name, value in options.items()]


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    """Return the wanted options that the device does not have."""
    return {
        name: value
        for name, value in wanted.items()
        if _plain(value) != _plain(found.get(name, ""))
    }


def _plain(value: str) -> str | int:
    """Return a value without its unit."""
    match = _NUMBER.fullmatch(value)
    return int(match[1]) * _FACTORS[match[2].lower()] if match else value
