"""A file system as a disk image for virtual machines, and the initial RAM disk that mounts it.

One image, read-only, is the root of all machines; what a machine writes goes to a disk of its own, so
it is there again after a reset.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from . import store
from .store import run

# Directories of modules that the machines' kernel may want.
_MODULES: Final = (
    "arch/x86",
    "crypto",
    "drivers/acpi",
    "drivers/block",
    "drivers/char",
    "drivers/md",
    "drivers/net",
    "drivers/scsi",
    "drivers/vhost",
    "drivers/virtio",
    "drivers/watchdog",
    "drivers/xen",
    "fs/ext4",
    "fs/jbd2",
    "fs/mbcache.ko",
    "fs/overlayfs",
    "lib",
    "net",
    "virt",
)
# Those of them that are parts of the kernel are not looked for.
_EARLY_MODULES: Final = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "overlay")
_IMAGE_SIZE: Final = "3G"
_MERGE: Final = """
mount -t overlay overlay -o lowerdir="$1",upperdir="$2/upper",workdir="$2/work" "$2/root"
mke2fs -q -t ext4 -O ^has_journal -d "$2/root" "$3"
"""
_INIT: Final = """#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in @MODULES@; do modprobe $module; done
while [ ! -b /dev/vdb ]; do sleep 0.05; done
mount -t ext4 -o ro,noload /dev/vda /image
mount -t ext4 /dev/vdb /own
mkdir -p /own/upper /own/work
mount -t overlay -o lowerdir=/image,upperdir=/own/upper,workdir=/own/work overlay /new
mount --move /dev /new/dev
umount /sys /proc
exec switch_root /new /sbin/init
"""
_NETWORK: Final = """[Unit]
Description=The addresses from the kernel's command line, and a bridge for guests
DefaultDependencies=no
After=local-fs.target systemd-udevd.service
Before=network.target ssh.service ganeti-noded.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'modprobe virtio_net; while [ ! -e /sys/class/net/eth1 ]; do sleep 0.1; done; \\
 ip link set lo up; \\
 for card in eth0 eth1; do \\
 ip address add $(sed "s/.*$$card=\\\\([^ ]*\\\\).*/\\\\1/" /proc/cmdline)/24 dev $$card; ip link set $$card up; done; \\
 ip link add br0 type bridge; ip link set br0 up'

[Install]
WantedBy=sysinit.target
"""
_FILES: Final = {
    "etc/systemd/system/own-address.service": _NETWORK,
    "etc/modules-load.d/ganeti.conf": "drbd\nkvm-amd\nsoftdog\n",
    # As Ganeti's installation has it; a page of the sender must not change below an emulated card.
    "etc/modprobe.d/drbd.conf": "options drbd minor_count=128 usermode_helper=/bin/true disable_sendpage=1\n",
}


def vmlinuz(kernel: Path) -> Path:
    """Return the file that boots, of an unpacked kernel package."""
    return next((kernel / "boot").glob("vmlinuz-*"))


def _modules(kernel: Path) -> Path:
    """Return the directory of its modules."""
    modules = next((kernel / "lib/modules").iterdir())
    if not (modules / "modules.dep").exists():
        run(store.tools() / "depmod", "-b", kernel, modules.name)
    return modules


def make_initrd(directory: Path, kernel: Path) -> None:
    """Make the initial RAM disk ``initrd``."""
    pack_initrd(directory / "initrd", kernel, _EARLY_MODULES, ("image", "own", "new"), _INIT)


def pack_initrd(
    target: Path, kernel: Path, names: Sequence[str], mounts: Sequence[str], init: str
) -> None:
    """Make an initial RAM disk of busybox, modules, directories to mount on, and a program.

    Args:
        init: loads ``@MODULES@``.
    """
    tree, modules = target.with_suffix(".tree"), _modules(kernel)
    for name in ("bin", "dev", "proc", "sys", *mounts):
        (tree / name).mkdir(parents=True)
    run("cp", store.tools() / "bin/busybox", tree / "bin/busybox")
    needed = {name: _needed(modules, name) for name in names}
    _copy_modules(tree, modules, [path for paths in needed.values() for path in paths])
    loaded = " ".join(name for name, paths in needed.items() if paths)
    (tree / "init").write_text(init.replace("@MODULES@", loaded))
    (tree / "init").chmod(0o755)
    pack = f"find . | {tree}/bin/busybox cpio -o -H newc 2>/dev/null | gzip -1 > {target}"
    subprocess.run(["sh", "-ec", pack], cwd=tree, check=True, timeout=store.TIMEOUT_S)
    shutil.rmtree(tree)


def _needed(modules: Path, name: str) -> list[str]:
    """Return the files of a module and of all that it needs; none for what the kernel has in it."""
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        if path.endswith(f"/{name}.ko"):
            return [path, *others.split()]
    assert f"/{name}.ko" in (modules / "modules.builtin").read_text(), f"no {name} in {modules}"
    return []


def _copy_modules(tree: Path, modules: Path, names: Sequence[str]) -> None:
    target = tree / "lib/modules" / modules.name
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        run("cp", "-r", modules / name, (target / name).parent)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        run("cp", modules / name, target)
    run(store.tools() / "depmod", "-b", tree, modules.name)


def make_image(directory: Path, kernel: Path, base: Sequence[Path], extra: Path) -> None:
    """Make ``image`` of these file systems, the topmost first, with what lies in ``extra`` on top."""
    modules = _modules(kernel)
    there = [name for name in _MODULES if (modules / "kernel" / name).exists()]
    _copy_modules(extra / "usr", modules, [f"kernel/{name}" for name in there])
    for name, text in _FILES.items():
        (extra / name).parent.mkdir(parents=True, exist_ok=True)
        if not (extra / name).exists():
            (extra / name).write_text(text)
    wanted = extra / "etc/systemd/system/sysinit.target.wants"
    wanted.mkdir()
    (wanted / "own-address.service").symlink_to("../own-address.service")
    # Enabled again by the first boot of a machine; tests of the watcher run it themselves.
    (extra / "etc/systemd/system/ganeti-watcher.timer").symlink_to("/dev/null")
    merged = directory / "merged"
    for name in ("work", "root"):
        (merged / name).mkdir(parents=True)
    os.rename(extra, merged / "upper")
    path = directory / "image"
    run("truncate", "-s", _IMAGE_SIZE, path)
    lower = ":".join(map(str, base))
    merge = ("sh", "-ec", _MERGE, "merge", lower, merged, path)
    run("unshare", "--mount", "--propagation=private", *merge)
    shutil.rmtree(merged)


def make_disk(path: Path, size: str) -> Path:
    """Make an empty disk with a file system."""
    run("truncate", "-s", size, path)
    run("mke2fs", "-q", "-t", "ext4", path)
    return path
