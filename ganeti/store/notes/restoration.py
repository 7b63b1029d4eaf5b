"""The note on a node that its configuration came from a backup, and is an old copy.

``gnt-cluster restore`` writes it before the configuration.  It counts while this very configuration
is there: a fail-over that comes to its end, here or elsewhere, writes a newer one.  Until then no
daemon of the master starts here by itself, after a reboot for example.
"""

from __future__ import annotations

from typing import Final

from ganeti.base.paths import Paths
from ganeti.system import files

HINT: Final = (
    "its configuration is from a backup, and newer ones may be elsewhere: 'gnt-cluster"
    " master-failover' on this node goes on with the restoration"
)
_MODE: Final = 0o600


def begin(paths: Paths, serial_no: int) -> None:
    """Note the serial number of a configuration that is about to be put in its place.

    Raises:
        OSError: that cannot be written.
    """
    files.write_durable(paths.restore_note, str(serial_no).encode(), _MODE)


def is_old_copy(paths: Paths, serial_no: int) -> bool:
    """Tell whether a configuration of that serial number, which is here, came from a backup."""
    return files.read_bytes_or_none(paths.restore_note) == str(serial_no).encode()


def end(paths: Paths) -> None:
    """Forget it: this node has the newest configuration."""
    if files.remove_if_exists(paths.restore_note):
        files.fsync_directory(paths.data_dir)
