"""What is looked at before WConfD serves: whether the files can be read.

A configuration that cannot be read is refused with the place of the mistake and with what could
take its place; nothing is guessed.

Source: ARCHITECTURE, invariant 4.
"""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Callable

from ganeti.base.errors import ConfigurationError, ConfigVersionMismatch, GenericError
from ganeti.base.paths import Paths
from ganeti.config import reservation_file
from ganeti.config.reservation_file import decode_reservations
from ganeti.config.state import ConfigState
from ganeti.locking import serialisation
from ganeti.locking.serialisation import decode_locks
from ganeti.store import ssconf
from ganeti.store.config_upgrade import load_and_upgrade
from ganeti.system import clock, files
from ganeti.system.filelock import is_alive
from ganeti.wconfd import signalling
from ganeti.wconfd.keeper import StateFiles
from ganeti.wconfd.signalling import decode_signalled

logger = logging.getLogger(__name__)


def read_files(paths: Paths) -> StateFiles:
    """Read and check the files that hold the state.

    Raises:
        ConfigurationError: one cannot be used; the text says where it is broken and what to do.
    """
    config = _read_config(paths)
    return StateFiles(
        config,
        _read_volatile(paths, paths.locks_data, serialisation.EMPTY, decode_locks),
        _read_volatile(paths, paths.locks_own_data, signalling.EMPTY, decode_signalled),
        _read_volatile(
            paths,
            paths.tempres_data,
            reservation_file.EMPTY,
            lambda data: decode_reservations(data, None),
        ),
        _read_volatile(
            paths,
            paths.tempres_own_data,
            reservation_file.EMPTY_OWN,
            lambda data: decode_reservations(reservation_file.EMPTY, data),
        ),
    )


def _read_config(paths: Paths) -> ConfigState:
    try:
        data = load_and_upgrade(paths, new_uuid=clock.new_uuid, tell=logger.info)
        return ConfigState(data)
    except ConfigVersionMismatch:
        raise
    except OSError as err:
        raise ConfigurationError(
            f"cannot upgrade {paths.config_data}: {err.strerror}; it stays as it was"
        ) from err
    except GenericError as err:
        raise ConfigurationError(
            f"{paths.config_data} cannot be used: {err.message}. {_way_back(paths)}"
        ) from err


def _way_back(paths: Paths) -> str:
    """Say what could take the place of a configuration that cannot be read."""
    ways = []
    backups = sorted(glob.glob(glob.escape(paths.config_data) + ".*"))
    if backups:
        ways.append(f"copies on this node: {', '.join(backups)}")
    try:
        candidates = [node.name for node in ssconf.master_candidates(paths)]
        own = ssconf.read_key_or_none(paths, "master_node")
        others = [name for name in candidates if name != own]
        if others:
            ways.append(f"these master candidates have one as well: {', '.join(others)}")
    except ConfigurationError as err:
        ways.append(f"the list of master candidates is not known ({err.message})")
    return (
        "Put a good copy in its place and start again; "
        + ("; ".join(ways) or "no copy is known")
        + "."
    )


def _read_volatile(
    paths: Paths, path: str, empty: bytes, check: Callable[[bytes], object]
) -> bytes:
    """Read a file of which a power cut may have left anything, but only if nobody lives.

    After a power cut all owners are dead, and the file may begin anew.  If an owner lives, the
    file matters and must be readable.
    """
    try:
        data = files.read_bytes_or_none(path)
    except OSError as err:
        raise ConfigurationError(f"cannot read {path}: {err.strerror}") from err
    if data is None:
        return empty
    try:
        check(data)
    except GenericError as err:
        living = _living(paths)
        if living:
            raise ConfigurationError(
                f"{path} cannot be used: {err.message}. These are alive and may own what it"
                f" listed: {', '.join(living)}. End them, move the file away and start again."
            ) from err
        logger.warning("%s cannot be used, beginning anew: %s", path, err.message)
        return empty
    return data


def _living(paths: Paths) -> list[str]:
    try:
        names = sorted(os.listdir(paths.livelock_dir))
    except FileNotFoundError:
        return []
    return [
        name
        for name in names
        if not name.startswith((".", "luxi-daemon_", "wconf-daemon_"))
        and is_alive(os.path.join(paths.livelock_dir, name))
    ]
