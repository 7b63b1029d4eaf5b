"""Files of the node that parameters name: where they are, and what is in them.

On a virtual node a file below its root comes first; what is not there is the machine's.
"""

from __future__ import annotations

import os
from typing import Final

from ganeti.base.errors import ErrorCode, GenericError
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm.params import VNC_PASSWORD_BYTES_MAX, KvmParams, wrong_param
from ganeti.system.files import read_bytes

FILE_PARAMETERS: Final = (
    "cdrom2_image_path",
    "cdrom_image_path",
    "floppy_image_path",
    "initrd_path",
    "kernel_path",
    "spice_password_file",
    "vnc_password_file",
)
DIRECTORY_PARAMETERS: Final = ("mem_path", "vnc_x509_path")
_PASSWORD_BYTES_MAX: Final = 256


def local_file(path: str, paths: Paths) -> str:
    """Return where a file is on this node."""
    if paths.root and path.startswith("/"):
        below = os.path.normpath(paths.root + path)
        if below.startswith(paths.root + "/") and os.path.exists(below):
            return below
    return path


def local_files(params: KvmParams, paths: Paths) -> dict[str, str]:
    """Return {path in a parameter: path on this node} for those that differ."""
    named = (params.text(name) for name in (*FILE_PARAMETERS, *DIRECTORY_PARAMETERS))
    found = {path: local_file(path, paths) for path in named if path.startswith("/")}
    return {path: local for path, local in found.items() if local != path}


def read_password(parameter: str, path: str, paths: Paths) -> str:
    """Return the first line of a password file.

    Raises:
        OpPrereqError: it cannot be read, is empty, or longer than the protocol allows.
    """
    try:
        data = read_bytes(local_file(path, paths), _PASSWORD_BYTES_MAX)
    except (OSError, GenericError) as err:
        text = err.message if isinstance(err, GenericError) else err.strerror
        raise wrong_param(parameter, f"cannot read {path}: {text}", ErrorCode.ENVIRON) from err
    password = data.partition(b"\n")[0].decode("utf-8", "replace").strip()
    if not password:
        raise wrong_param(parameter, f"there is no password in {path}", ErrorCode.ENVIRON)
    if parameter == "vnc_password_file" and len(password.encode()) > VNC_PASSWORD_BYTES_MAX:
        text = f"the password in {path} has more than {VNC_PASSWORD_BYTES_MAX} characters"
        raise wrong_param(parameter, text, ErrorCode.ENVIRON)
    return password
