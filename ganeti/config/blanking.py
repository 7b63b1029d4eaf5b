"""Blank every secret in a configuration, so that it can be shown to others.  Pure.

The configuration may be of any version and may hold keys that nobody here knows, so nothing is
assumed about its shape.  Rather one value too many is blanked than one too few: every key that has
the name of a secret loses its value, in any place.  Empty values stay, they hide nothing.

Source: config.json, "disk_logical_id"; constants.json, "hvparams".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base.secret import REDACTED

PRIVATE_GROUPS: Final = frozenset({"osparams_private", "osparams_private_cluster"})
"""Parameters that are private as a whole, under any name."""

SECRET_KEYS: Final = frozenset(
    {"rsahostkeypub", "dsahostkeypub", "spice_password_file", "vnc_password_file", "vnc_x509_path"}
)
"""Host keys, and files that hold passwords or keys."""

_SECRET_NAME: Final = re.compile(
    r"pass(wd|word|phrase)|secret|token|credential|hmac|private|(api|auth|access)[_-]?key|\bpsk\b",
    re.IGNORECASE,
)
_SECRET_TEXT: Final = re.compile(
    r"""(pass(wd|word|phrase)|secret|token|credential)s?["']?\s*[=:,]""", re.IGNORECASE
)
_USER_IN_URL: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_DRBD_TYPES: Final = frozenset({"drbd", "drbd8"})


def blank_secrets(value: Any) -> Any:
    """Return the value, a configuration or a part of one, with every secret blanked."""
    if isinstance(value, Mapping):
        kind = value.get("dev_type")  # one that is no text could be anything
        is_drbd = kind in _DRBD_TYPES if isinstance(kind, str) else kind is not None
        return {key: _member(key, item, is_drbd=is_drbd) for key, item in value.items()}
    if isinstance(value, list):
        return [blank_secrets(item) for item in value]
    if isinstance(value, str):
        return _text(value)
    return value


def _member(key: str, value: Any, *, is_drbd: bool) -> Any:
    if key in PRIVATE_GROUPS:
        return _blank_all(value)
    if key in SECRET_KEYS or _SECRET_NAME.search(key):
        return _blank_all(value)
    if is_drbd and key in ("logical_id", "physical_id") and isinstance(value, list) and value:
        return [*value[:-1], _blank_all(value[-1])]  # the secret is the last one of both
    return blank_secrets(value)


def _blank_all(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _blank_all(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_blank_all(item) for item in value]
    return REDACTED if value not in (None, "") and not isinstance(value, bool) else value


def _text(value: str) -> str:
    if _SECRET_TEXT.search(value):
        return REDACTED
    return _USER_IN_URL.sub(REDACTED, value)
