"""Disks for hypervisors of one kernel: a file system with a shell and an init script."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ganeti.hypervisor.interface import AssembledDisk

INIT = """#!/bin/sh
echo "$1" >> /calls
[ "$1" != start ] || sleep 1000 > /dev/null 2>&1 &
"""
CONTAINER_INIT = """#!/bin/sh
echo "hello from $0"
trap 'echo asked to stop; exit 0' PWR
trap 'echo asked to reboot; exit 0' INT
while :; do sleep 1 & wait; done
"""


def put_program(tree: Path, name: str) -> None:
    """Copy a program of this machine into a tree, with the libraries that it needs."""
    path = shutil.which(name)
    assert path is not None
    listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    libraries = [word for word in listed.split() if word.startswith("/")]
    shutil.copy(path, tree / "bin" / name)
    for library in libraries:
        target = tree / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)


def tree_disk(base: Path, init: str = "ganeti-chroot", text: str = INIT) -> AssembledDisk:
    """Make a disk in a directory; skips the test where that cannot be used."""
    mkfs = shutil.which("mkfs.ext4", path=f"{os.environ['PATH']}:/sbin:/usr/sbin")
    if os.geteuid() != 0 or mkfs is None:
        pytest.skip("needs root and mkfs.ext4")
    tree = base / "tree"
    for name in ("bin", "dev", "mnt", "proc", "sbin", "sys"):
        (tree / name).mkdir(parents=True)
    (tree / "dev" / "null").touch()  # a shell wants it for what it starts in the background
    for name in ("sh", "sleep"):
        put_program(tree, name)
    script = tree / init
    script.write_text(text)
    script.chmod(0o755)
    path = str(base / "disk")
    subprocess.run([mkfs, "-q", "-d", str(tree), path, "32M"], check=True)
    mount_point = base / "try"
    mount_point.mkdir()
    if subprocess.run(["mount", "-o", "loop", path, str(mount_point)], check=False).returncode:
        pytest.skip("cannot mount here")
    subprocess.run(["umount", str(mount_point)], check=True)
    return AssembledDisk(0, "uuid", path, 32)


def container_disk(base: Path) -> AssembledDisk:
    """Make a disk whose file system has an init for a container."""
    return tree_disk(base, "sbin/init", CONTAINER_INIT)


def remove_groups(name: str) -> None:
    """Remove the empty control groups that LXC leaves of a container, and its place to leave them."""
    for pattern in (f"lxc.*.{name}*", "lxc.pivot"):
        for group in Path("/sys/fs/cgroup").rglob(pattern):
            with contextlib.suppress(OSError):  # in use, or gone
                group.rmdir()
