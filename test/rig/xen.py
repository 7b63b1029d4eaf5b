"""A machine on which Xen runs: the hypervisor and Debian's plain kernel as dom0, in a machine of QEMU.

QEMU boots Xen as it boots every multiboot kernel: its modules are dom0's kernel and initial RAM disk.
Guests are paravirtual ones from a kernel and an initial RAM disk in ``/srv/guest``, which say
``GUEST-UP`` on their console, and what they count; or machines with firmware, without a system.
"""

from __future__ import annotations

import contextlib
import gzip
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from . import image, installed, store
from .virtual_machines import VirtualMachine, VirtualMachines, run_directory

_VERSION: Final = "4.17"
_HYPERVISOR: Final = f"xen-hypervisor-{_VERSION}-amd64"
_PACKAGES: Final = (f"xen-utils-{_VERSION}", "xen-utils-common", "qemu-system-xen")
GUEST: Final = "/srv/guest"
CONSOLES: Final = "/var/log/xen/console"
_DOM0_MB: Final = 704
# Xen's log goes to the serial port, dom0's console through it.  Commas separate modules.
_OPTIONS: Final = (
    f"console=com1 com1=115200,8n1 loglvl=warning guest_loglvl=warning spec-ctrl=no"
    f" dom0_mem={_DOM0_MB}M,max:{_DOM0_MB}M dom0_max_vcpus=1"
)
_GUEST_MODULES: Final = ("xen-blkfront", "xen-netfront")
_GUEST_INIT: Final = """#!/bin/busybox sh
export PATH=/bin:/sbin
/bin/busybox mkdir -p /sbin
/bin/busybox --install -s /bin
for name in poweroff reboot; do  # the kernel runs them when Xen asks it to end
  printf '#!/bin/sh\\necho GUEST-%s > /dev/console\\nbusybox %s -f\\n' $name $name > /sbin/$name
  chmod 755 /sbin/$name
done
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in @MODULES@; do modprobe $module; done
echo "GUEST-UP disks=$(ls /sys/block | tr '\\n' ',') nics=$(ls /sys/class/net | tr '\\n' ',')"
beat=0
while sleep 1; do
  beat=$((beat + 1))
  echo "BEAT $beat"
done
"""
_FILES: Final = {
    "etc/default/xen": "XENCONSOLED_ARGS=--log=all\n",
    "etc/modules-load.d/ganeti.conf": "xen-blkback\nxen-netback\nloop\ndm-mod\ndrbd\n",
    f"{CONSOLES[1:]}/.keep": "",
}


class XenMachines(VirtualMachines):
    """Machines whose kernel is Xen's dom0."""

    boots = ("xen", *VirtualMachines.boots)
    # With SMAP a paravirtual dom0 dies in its first instructions when QEMU emulates the processor,
    # with RDTSCP guests with firmware do, and with XSAVE processes and guests, now and then.
    processor = "max,-smap,-rdtscp,-xsave,-avx,-avx2"
    memory_mb = 1536

    def files(self) -> Path:
        """As declared, with the hypervisor."""
        return machine_files()

    def kernel(self, command_line: str) -> tuple[str, ...]:
        """As declared: the hypervisor, and dom0 as its modules."""
        boot = self.directory
        words = command_line.replace("console=ttyS0", "console=hvc0").replace(",", ",,")
        modules = f"{boot}/vmlinuz {words},{boot}/initrd"
        return ("-kernel", f"{boot}/xen", "-append", _OPTIONS, "-initrd", modules)


@cache
def machine_files() -> Path:
    """Return the directory with what a machine with Xen and Ganeti boots."""
    ours = Path(__file__).read_text()
    kind = store.kernel_name(store.FULL_KERNEL)
    return store.version("xen-machines", installed.fingerprint(ours, kind), _make)


def _make(directory: Path) -> None:
    kernel = store.kernel(store.FULL_KERNEL)
    packed = hypervisor() / f"boot/xen-{_VERSION}-amd64.gz"
    (directory / "xen").write_bytes(gzip.decompress(packed.read_bytes()))
    guest = image.vmlinuz(store.kernel()).read_bytes()
    with tempfile.TemporaryDirectory(dir=directory) as place:
        initrd = Path(place) / "initrd"
        image.pack_initrd(initrd, store.kernel(), _GUEST_MODULES, (), _GUEST_INIT)
        files: dict[str, str | bytes] = {
            **_FILES,
            f"{GUEST[1:]}/vmlinuz": guest,
            f"{GUEST[1:]}/initrd": initrd.read_bytes(),
        }
    installed.make_machine_files(directory, kernel, store.root("xen-root", _PACKAGES), files)


def hypervisor() -> Path:
    """Return the directory with the unpacked package of the hypervisor."""
    return store.cached("xen", _HYPERVISOR, lambda path: store.unpack(path, (_HYPERVISOR,)))


@contextlib.contextmanager
def xen_machine() -> Iterator[VirtualMachine]:
    """Yield a machine with Xen, LVM and Ganeti, but no cluster."""
    with run_directory() as directory, XenMachines(1, directory) as running:
        yield running.machines[0]
