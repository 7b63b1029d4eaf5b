"""LXC for containers of the rig: Debian's packages as a layer over the plain system."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from . import store

PACKAGES: Final = ("lxc", "liblxc1", "liblxc-common", "libapparmor1", "libseccomp2")


def layer() -> Path:
    """Return the directory of the layer."""
    return store.cached("lxc", PACKAGES, lambda path: store.unpack(path, PACKAGES))
