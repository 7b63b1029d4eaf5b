"""What a node knows of high availability: where etcd is, the times, the watchdog, the helpers.

The master writes the file on every node when high availability is switched on, and takes it away
when it is switched off; without it no agent runs.  Agents, LuxiD and maintd read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import field

from ganeti.availability.timing import Timing
from ganeti.base.errors import ConfigurationError
from ganeti.base.json import loads_as
from ganeti.base.paths import Paths
from ganeti.system import files

_BYTES_MAX: Final = 1 << 20
_WATCHDOG: Final = "/dev/watchdog"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The file.

    Attributes:
        endpoints: URLs of etcd's members for clients.
        prefix: of all keys; it has the cluster's UUID.
        certificate: PEM file with our key and certificate for etcd, below the data directory; ""
            where etcd asks for none.
        authority: PEM file with the authority of etcd's certificates.
        watchdog: path of the device; "" for none.
        helpers: {node: path of its out-of-band program}.
    """

    endpoints: list[str]
    prefix: str
    certificate: str = ""
    authority: str = ""
    watchdog: str = _WATCHDOG
    timing: Timing = field(default_factory=Timing)
    helpers: Mapping[str, str] = {}


def path_of(paths: Paths) -> str:
    """Return the path of the file."""
    return f"{paths.data_dir}/high-availability"


def read(paths: Paths) -> Settings | None:
    """Return the settings; None where high availability is off.

    Raises:
        ConfigurationError: the file cannot be read or understood.
    """
    path = path_of(paths)
    try:
        data = files.read_bytes_or_none(path, _BYTES_MAX)
        return None if data is None else loads_as(Settings, data)
    except Exception as err:
        raise ConfigurationError(f"{path}: {err}") from err
