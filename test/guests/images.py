"""Guests for tests: a boot sector that is up in 0.2 s, and a tiny Linux with a heartbeat.

The Linux guest is Debian's cloud kernel with busybox and an init script of ours.  The packages are
fetched by ``apt-get download`` into ``.cache/guests`` once; where that is not possible,
`tiny_linux` returns None and says why in `why_no_linux`.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ganeti.hypervisor.kvm.qemu import boot_sector

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "guests"
MODULES = (
    *("virtio_pci", "virtio_blk", "virtio_net", "virtio_balloon", "virtiofs"),
    *("evdev", "button"),
)
INITRD_VERSION = 4  # raised when INIT or MODULES change
LINUX_MEMORY_MIB = 128  # the cloud kernel does not boot with 64

INIT = """\
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev 2>/dev/null
while read -r module; do insmod "$module" || echo "insmod $module failed"; done < /modules
uptime() { cut -d' ' -f1 /proc/uptime; }
devices() { echo disks=$(ls /sys/block | tr '\\n' ',') nics=$(ls /sys/class/net | tr '\\n' ','); }
for word in $(cat /proc/cmdline); do
  case $word in tiny_ip=*) ADDRESS=${word#*=};; tiny_ping=*) TARGETS=${word#*=};;
    tiny_get=*) URL=${word#*=};; tiny_share=*) SHARES=${word#*=};; esac
done
for tag in $(echo "$SHARES" | tr ',' ' '); do  # says what is in it, and writes a file
  mkdir -p /shares/$tag; mount -t virtiofs $tag /shares/$tag
  echo "SHARE $tag has $(cat /shares/$tag/greeting) of $(ls -ln /shares/$tag/greeting)"
  echo "from the guest" > /shares/$tag/answer && echo "SHARE $tag written"
done
address() {  # an interface that comes anew gets it again
  [ -n "$ADDRESS" ] && [ -e /sys/class/net/eth0 ] || return
  case "$(ip addr show dev eth0)" in *" $ADDRESS/"*) return;; esac
  ip addr add $ADDRESS/24 dev eth0; ip link set eth0 up
}
address
echo "TINY-UP uptime=$(uptime) $(devices) cmdline=$(cat /proc/cmdline)"
for event in /dev/input/event*; do  # the power button is the only input device
  [ -c $event ] && ( dd if=$event bs=24 count=1 >/dev/null 2>&1; echo TINY-OFF; poweroff -f ) &
done
beat=0
while :; do
  beat=$((beat+1)); echo "BEAT $beat uptime=$(uptime) $(devices)"
  if [ -b /dev/vda ]; then
    echo "beat $beat" | dd of=/dev/vda bs=512 seek=1 conv=notrunc,sync oflag=direct 2>/dev/null
  fi
  for tag in $(echo "$SHARES" | tr ',' ' '); do echo $beat > /shares/$tag/beat; done 2>/dev/null
  address
  for target in $(echo "$TARGETS" | tr ',' ' '); do
    if ping -c 1 -W 1 $target >/dev/null 2>&1; then echo "PING $target ok";
    else echo "PING $target no"; fi
  done
  # Its wget does not survive being linked statically.
  [ -z "$URL" ] || echo "GET $(printf 'GET /%s HTTP/1.0\\r\\n\\r\\n' ${URL#*/} |
    nc -w 2 ${URL%%/*} 80 | tail -n 1)"
  sleep 0.2
done
"""

why_no_linux = ""


def boot_sector_image(path: str | os.PathLike[str], size_mib: int = 1) -> str:
    """Write a disk image that boots the boot-sector guest; returns its path."""
    with open(path, "wb") as file:
        file.write(boot_sector())
        file.truncate(size_mib << 20)
    return os.fspath(path)


@cache
def tiny_linux() -> tuple[str, str] | None:
    """Return (kernel, initrd) of the Linux guest, made on first use, or None."""
    global why_no_linux
    kernel, initrd = CACHE / "vmlinuz", CACHE / f"initrd-{INITRD_VERSION}.gz"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (kernel.exists() and initrd.exists()):
            try:
                _make(kernel, initrd)
            except (OSError, subprocess.SubprocessError, LookupError) as err:
                output = getattr(err, "stderr", None) or b""
                why_no_linux = f"{err} {output.decode(errors='replace')[-300:]}".strip()
                return None
    return str(kernel), str(initrd)


CLOUD_IMAGE = Path(__file__).resolve().parents[2] / "doc" / "examples" / "cloud-image"


@cache
def cloud_image() -> str | None:
    """Return the tiny image that the shipped builder makes, on first use, or None."""
    global why_no_linux
    version = hashlib.sha256(CLOUD_IMAGE.read_bytes()).hexdigest()[:12]
    path = CACHE / f"cloud-{version}.qcow2"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            try:
                _run([str(CLOUD_IMAGE), "tiny", str(path)], CACHE)
            except (OSError, subprocess.SubprocessError) as err:
                output = getattr(err, "stderr", None) or b""
                why_no_linux = f"{err} {output.decode(errors='replace')[-300:]}".strip()
                return None
    return str(path)


def _make(kernel: Path, initrd: Path) -> None:
    work = CACHE / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    for package in (_kernel_package(), "busybox-static"):
        _run(["apt-get", "download", package], work)
    for archive in work.glob("*.deb"):
        _run(["dpkg", "-x", str(archive), str(work / "root")], work)
    root = work / "root"
    content = gzip.compress(_initrd(root), 1)
    (CACHE / "initrd.new").write_bytes(content)
    shutil.copy(next((root / "boot").glob("vmlinuz-*")), CACHE / "vmlinuz.new")
    (CACHE / "vmlinuz.new").rename(kernel)
    (CACHE / "initrd.new").rename(initrd)
    shutil.rmtree(work)


def _kernel_package() -> str:
    output = _run(["apt-cache", "depends", "linux-image-cloud-amd64"], CACHE)
    found = re.search(r"Depends: (linux-image-\S+)", output)
    if found is None:
        raise LookupError("the package linux-image-cloud-amd64 is not known to apt")
    return found[1]


def _run(argv: list[str], cwd: Path) -> str:
    return subprocess.run(
        argv, cwd=cwd, check=True, capture_output=True, timeout=300, stdin=subprocess.DEVNULL
    ).stdout.decode(errors="replace")


def _initrd(root: Path) -> bytes:
    busybox = next(path for path in root.glob("**/bin/busybox") if path.is_file())
    modules = list(_with_dependencies(root, MODULES))
    files = {
        "init": INIT.encode(),
        "modules": "".join(f"/mod/{path.name}\n" for path in modules).encode(),
        "bin/busybox": busybox.read_bytes(),
        **{f"mod/{path.name}": path.read_bytes() for path in modules},
    }
    return _cpio(["bin", "dev", "proc", "sys", "mod"], files)


def _with_dependencies(root: Path, wanted: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files of kernel modules, each after those that it needs."""
    files = {path.stem.replace("-", "_"): path for path in root.rglob("*.ko")}
    done: set[str] = set()

    def visit(name: str) -> Iterator[Path]:
        if name in done or name not in files:  # not there: built into the kernel
            return
        done.add(name)
        found = re.search(rb"\0depends=([^\0]*)\0", files[name].read_bytes())
        for needed in found[1].decode().split(",") if found else []:
            yield from visit(needed)
        yield files[name]

    for name in wanted:
        yield from visit(name)


def _cpio(directories: list[str], files: dict[str, bytes]) -> bytes:
    """Pack an archive in the "newc" format that the kernel unpacks."""
    entries = [(name, 0o040755, b"") for name in directories]
    entries += [(name, 0o100755, data) for name, data in files.items()]
    entries.append(("TRAILER!!!", 0, b""))
    archive = bytearray()
    for number, (name, mode, data) in enumerate(entries, 1):
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        archive += b"070701" + b"".join(b"%08X" % field for field in fields)
        for part in (name.encode() + b"\0", data):
            archive += part
            archive += bytes(-len(archive) % 4)
    return bytes(archive)
