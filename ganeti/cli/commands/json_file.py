"""Files of JSON that people hand to commands."""

from __future__ import annotations

from typing import Final

from ganeti.base import json
from ganeti.base.errors import GenericError, OpPrereqError, ProtocolError
from ganeti.system.files import read_bytes

_FILE_BYTES_MAX: Final = 64 << 20  # a hundred thousand opcodes or more


def read_json(path: str) -> object:
    """Return what a file holds.

    Raises:
        GenericError: it cannot be read.
        OpPrereqError: it is not JSON.
    """
    try:
        return json.loads(read_bytes(path, _FILE_BYTES_MAX))
    except OSError as err:
        raise GenericError(f"cannot read {path}: {err.strerror}") from err
    except ProtocolError as err:
        raise OpPrereqError(f"{path}: {err.message}") from err
