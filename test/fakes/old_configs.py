"""Configuration files of older versions, and what they become; in ``test/data/config``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import count
from typing import Any

OLD_VERSIONS = ("2.0", "2.7", "2.12", "2.16")
CURRENT_VERSION = "3.0"
NOW = 1400000000.5

_DATA = os.path.join(os.path.dirname(__file__), os.pardir, "data", "config")


def config_bytes(name: str) -> bytes:
    """Return the content of a file: a version, or a version and ``.upgraded``."""
    with open(os.path.join(_DATA, f"{name}.json"), "rb") as stream:
        return stream.read()


def load_config(name: str) -> Any:
    """Return a file decoded."""
    return json.loads(config_bytes(name))


def counted_uuids() -> Callable[[], str]:
    """Return a source of UUIDs that gives the same ones every time."""
    numbers = count(1)
    return lambda: f"ffffffff-0000-4000-8000-{next(numbers):012x}"
