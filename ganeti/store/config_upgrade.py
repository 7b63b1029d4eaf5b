"""Old configuration files: read, upgraded, backed up, replaced.

The changes of an upgrade are decided in `ganeti.config.upgrade`.  For a daemon, two lines are all::

    with only_writer(paths):
        data = load_and_upgrade(paths, new_uuid=clock.new_uuid, tell=logger.info)

The backup is durable before the file is replaced, so one of both is whole even after a crash.

Source: ARCHITECTURE, invariant 4; config.json, "file".
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable

from ganeti.base.errors import ConfigurationError
from ganeti.base.paths import Paths
from ganeti.config.upgrade.upgrading import needs_upgrade, upgrade_bytes
from ganeti.config.upgrade.versions import Version
from ganeti.store.config_file import SIZE_BYTES_MAX, free_name, read_config
from ganeti.system import clock, files

logger = logging.getLogger(__name__)


def load_and_upgrade(
    paths: Paths, *, new_uuid: Callable[[], str], tell: Callable[[str], None] = logger.debug
) -> bytes:
    """Return the content of the configuration file, upgraded on disk first if it is old.

    A configuration that is as it should be is returned as it stands, after a cheap look.  Call it
    as the `config_file.only_writer`.

    Args:
        tell: is given a sentence for each thing that was changed, and the name of the backup.

    Raises:
        ConfigurationError: there is no file, or it is not a configuration; names the byte.
        UnsupportedVersion: it cannot be upgraded (a `ConfigVersionMismatch`); gives the next step.
        OSError: the new file, or the backup, could not be written; the old one stays.
    """
    data = read_config(paths)
    if not needs_upgrade(data):
        return data
    now = clock.now()
    upgraded, plan = upgrade_bytes(data, new_uuid=new_uuid, now=now)
    if not plan.notes:
        return data
    backup = replace_with_backup(paths.config_data, data, upgraded, version=plan.version, now=now)
    for note in plan.notes:
        tell(f"Configuration upgraded: {note}")
    tell(f"The configuration as it was before: {backup}")
    return upgraded


def read_config_at(path: str) -> bytes:
    """Return the content of a configuration file that lies anywhere.

    Raises:
        ConfigurationError: there is none, or it cannot be read.
    """
    try:
        return files.read_bytes(path, SIZE_BYTES_MAX)
    except OSError as err:
        raise ConfigurationError(f"cannot read {path}: {err.strerror}") from err


def replace_with_backup(path: str, old: bytes, new: bytes, *, version: Version, now: float) -> str:
    """Replace a configuration file durably, after a durable copy of the old content.

    Owner and mode stay as they are.

    Returns:
        The path of the copy.

    Raises:
        OSError: the old configuration stays.
        ConfigurationError: no name is free for the copy; the old configuration stays.
    """
    status = os.stat(path)
    mode = stat.S_IMODE(status.st_mode)
    owner = (status.st_uid, status.st_gid) if os.geteuid() == 0 else None
    backup = free_name(path, f"backup-{version}", now)
    files.write_durable(backup, old, mode, owner=owner)
    files.write_durable(path, new, mode, owner=owner)
    return backup
