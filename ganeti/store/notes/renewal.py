"""The note on the master that its certificates are being replaced, read if it finds itself cut off.

It is there from before the daemons stop until all nodes were told and the jobs have ended.
"""

from __future__ import annotations

import os
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.system import files

HINT: Final = (
    "certificates were being replaced here when that was cut off: 'gnt-cluster renew-crypto' on"
    " this node goes on with it"
)
_MODE: Final = 0o600


def is_cut_off(paths: Paths) -> bool:
    """Tell whether a renewal was begun here that has not come to its end."""
    return os.path.exists(paths.renewal_note)


def begin(paths: Paths) -> None:
    """Note that one begins.

    Raises:
        GenericError: that cannot be written.
    """
    path = paths.renewal_note
    try:
        files.write_durable(path, b"", _MODE)
    except OSError as err:
        raise GenericError(f"cannot write {path}: {err.strerror}; nothing was changed") from err


def end(paths: Paths) -> None:
    """Forget it."""
    if files.remove_if_exists(paths.renewal_note):
        files.fsync_directory(paths.data_dir)
