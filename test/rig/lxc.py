"""Virtual machines with LXC: their kernel mounts what it is told to, and has control groups of version 2."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from . import installed, store
from .virtual_machines import VirtualMachines, run_directory

PACKAGES: Final = ("lxc", "apparmor")  # which has the profiles of LXC loaded
_FILES: Final = {
    "etc/modules-load.d/ganeti.conf": "drbd\nsoftdog\nloop\nveth\n",
    "etc/default/lxc-net": 'USE_LXC_BRIDGE="false"\n',
}


class LxcMachines(VirtualMachines):
    """Machines whose system has LXC."""

    def files(self) -> Path:
        """As declared."""
        return machine_files()


@cache
def machine_files() -> Path:
    """Return the directory with what a machine with LXC and Ganeti boots."""
    ours = Path(__file__).read_text()
    return store.version("lxc-machines", installed.fingerprint(ours), _make)


def _make(directory: Path) -> None:
    root = store.root("lxc-root", PACKAGES)
    installed.make_machine_files(directory, store.kernel(), root, _FILES)


@contextlib.contextmanager
def lxc_machines(count: int) -> Iterator[LxcMachines]:
    """Yield running machines with LXC and Ganeti, but no cluster."""
    with run_directory() as directory, LxcMachines(count, directory) as running:
        yield running
