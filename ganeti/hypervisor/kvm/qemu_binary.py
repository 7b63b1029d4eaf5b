"""Which QEMU to run.

The default of parameter ``kvm_path`` does not exist everywhere; other usual places are tried then.
A path that somebody chose is taken as it is.
"""

from __future__ import annotations

import os
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.objects.parameters import HVPARAMS

_USUAL_PLACES: Final = (
    "/usr/bin/qemu-system-x86_64",
    "/usr/local/bin/qemu-system-x86_64",
    "/usr/bin/qemu-kvm",
    "/usr/libexec/qemu-kvm",
)
_DEFAULT_PATH: Final = str(HVPARAMS["kvm"]["kvm_path"].default)


def is_usual_place(path: str) -> bool:
    """Tell whether QEMU is where distributions put it, so that nobody needs to ask what it is."""
    return path in (*_USUAL_PLACES, _DEFAULT_PATH)


def _is_executable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def find_qemu(kvm_path: str = _DEFAULT_PATH) -> str:
    """Return the path of QEMU.

    Raises:
        OpPrereqError: there is none.
    """
    if kvm_path != _DEFAULT_PATH:
        if _is_executable(kvm_path):
            return kvm_path
        raise OpPrereqError(
            f"hypervisor parameter kvm_path: there is no program {kvm_path}", ErrorCode.ENVIRON
        )
    for path in (*_USUAL_PLACES, _DEFAULT_PATH):
        if _is_executable(path):
            return path
    raise OpPrereqError(
        f"no QEMU found at {', '.join((*_USUAL_PLACES, _DEFAULT_PATH))};"
        " install it (package qemu-system-x86) or set hypervisor parameter kvm_path",
        ErrorCode.ENVIRON,
    )
