"""The configuration file, as bytes; `ganeti.objects` and `ganeti.config` know their meaning.

Source: config.json, "file"; ARCHITECTURE, invariant 4.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from ganeti.base.errors import ConfigurationError
from ganeti.base.paths import Paths
from ganeti.system import files

FILE_MODE: Final = 0o640
NAMES_PER_SECOND_MAX: Final = 100  # a second name is needed only if somebody tries in a loop
SIZE_BYTES_MAX: Final = 1 << 30  # 200 times the 5,000 instances that 3.0 can bear


def read_config(paths: Paths) -> bytes:
    """Return the content of the configuration file.

    Raises:
        ConfigurationError: there is none, or it cannot be read.
    """
    path = paths.config_data
    try:
        return files.read_bytes(path, SIZE_BYTES_MAX)
    except FileNotFoundError as err:
        raise ConfigurationError(
            f"{path} does not exist; is this node the master or a candidate of a cluster?"
        ) from err
    except OSError as err:
        raise ConfigurationError(f"cannot read {path}: {err.strerror}") from err


Identity = tuple[int, int, int]
"""Tells versions of the file apart without reading it."""


def identity(paths: Paths) -> Identity:
    """Return a value that changes whenever the file does.

    Raises:
        ConfigurationError: there is none, or it cannot be looked at.
    """
    try:
        found = os.stat(paths.config_data)
    except OSError as err:
        raise ConfigurationError(f"cannot read {paths.config_data}: {err.strerror}") from err
    return found.st_ino, found.st_mtime_ns, found.st_size


def has_config(paths: Paths) -> bool:
    """Tell whether this node has a configuration file."""
    return os.path.exists(paths.config_data)


def write_config(paths: Paths, data: bytes) -> None:
    """Replace the configuration file; returns once that survives a power cut.

    Raises:
        OSError: the old configuration stays.
    """
    files.write_durable(paths.config_data, data, FILE_MODE)


def write_config_pieces(paths: Paths, pieces: Sequence[bytes]) -> None:
    """As `write_config`, from pieces that need not be joined first."""
    files.write_durable(paths.config_data, pieces, FILE_MODE)


def free_name(path: str, label: str, now: float) -> str:
    """Return a name beside the file that tells the reason and the time of a copy.

    Raises:
        ConfigurationError: no name is free.
    """
    moment = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"{path}.{label}-{moment}"
    for number in range(NAMES_PER_SECOND_MAX):
        candidate = f"{name}.{number}" if number else name
        if not os.path.exists(candidate):
            return candidate
    raise ConfigurationError(f"{name} and {NAMES_PER_SECOND_MAX} names like it exist already")
