"""What the rig keeps between runs: a Debian root file system, a kernel, wheels.

All of it lies below ``~/.cache/ganeti-test-rig`` (or ``GANETI_TEST_RIG``) and is made when missing:
one and a half minutes and 1 GB of disk the first time.  Nothing is installed on this machine: the
tools are unpacked there, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).parents[2]
DIRECTORY: Final = Path(
    os.environ.get("GANETI_TEST_RIG") or os.path.expanduser("~/.cache/ganeti-test-rig")
)
TIMEOUT_S: Final = 900
RUN: Final = "run-"  # directories for the time of a run
SUITE: Final = "bookworm"

# Debian packages that are unpacked beside the root file system, for the machine that runs the rig.
TOOLS: Final = ("debootstrap", "systemd-container", "busybox-static", "kmod")
# Each names the package of the newest version.
KERNEL: Final = "linux-image-cloud-amd64"
FULL_KERNEL: Final = "linux-image-amd64"

# What doc/installation.md asks for, and what makes a machine out of a Debian minimal system.
FOR_GANETI: Final = (
    "python3-venv",
    "make",
    "openssh-server",
    "openssh-client",
    "iproute2",
    "iputils-arping",
    "qemu-system-x86",
    "qemu-utils",
)
FOR_A_MACHINE: Final = (
    "systemd-sysv",
    "dbus",
    "udev",
    "kmod",
    "python3",
    "iputils-ping",
    "procps",
    "ca-certificates",
    "busybox-static",
)
FOR_STORAGE: Final = ("lvm2", "thin-provisioning-tools", "drbd-utils")
FOR_AVAILABILITY: Final = ("etcd-server",)
FOR_PEOPLE: Final = ("rsync",)
PACKAGES: Final = (*FOR_A_MACHINE, *FOR_GANETI, *FOR_STORAGE, *FOR_AVAILABILITY, *FOR_PEOPLE)


def run(*words: object, cwd: Path | None = None, **environment: str) -> str:
    """Run a command and return what it printed; its errors are part of the exception."""
    outcome = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if outcome.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {outcome.stdout}{outcome.stderr}")
    return outcome.stdout


def own_name(kind: str, process: int = 0) -> str:
    """Return how the names of directories and networks begin that a process makes, by default this one."""
    return f"{kind}{process or os.getpid()}-"


_KEPT: Final = 3  # versions of what has a fingerprint in its name
_holds: list[int] = []


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold the store for oneself; within, it may be held again."""
    if _holds:
        yield
        return
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with open(DIRECTORY / "lock", "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _holds.append(file.fileno())
        try:
            yield
        finally:
            _holds.clear()


def cached(name: str, recipe: object, make: Callable[[Path], object]) -> Path:
    """Return a directory of the store; it is made anew when its recipe has changed."""
    target, stamp = DIRECTORY / name, DIRECTORY / f"{name}.recipe"
    wanted = hashlib.sha256(repr(recipe).encode()).hexdigest()

    def is_made() -> bool:
        return stamp.exists() and stamp.read_text() == wanted

    if is_made():  # whoever makes something else is not waited for
        return target
    with _alone():
        if not is_made():
            print(f"--- rig: making {target}", file=sys.stderr)
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            make(target)
            stamp.write_text(wanted)
    return target


def found(kind: str, fingerprint: str) -> Path | None:
    """Return the directory of one version of something, if it is there."""
    path = DIRECTORY / kind / fingerprint
    return path if path.exists() else None


def version(kind: str, fingerprint: str, make: Callable[[Path], None]) -> Path:
    """Return the directory of one version of something, made when missing; few are kept of a kind."""
    target = DIRECTORY / kind / fingerprint
    if not target.exists():
        with _alone():
            if not target.exists():
                _make_version(target, make)
    os.utime(target)
    return target


def _make_version(target: Path, make: Callable[[Path], None]) -> None:
    print(f"--- rig: making {target}", file=sys.stderr)
    unready = target.with_suffix(".unready")
    shutil.rmtree(unready, ignore_errors=True)
    unready.mkdir(parents=True)
    make(unready)
    unready.rename(target)
    newest_first = sorted(target.parent.iterdir(), key=lambda path: -path.stat().st_mtime)
    for old in newest_first[_KEPT:]:
        shutil.rmtree(old)


def key() -> Path:
    """Return the SSH key that opens the virtual machines."""
    directory = cached(
        "key",
        "ed25519",
        lambda path: run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path / "key"),
    )
    return directory / "key"


def tools() -> Path:
    """Return the directory with the unpacked tools."""
    return cached("tools", (TOOLS, "depmod"), _make_tools)


def _make_tools(target: Path) -> None:
    unpack(target, TOOLS)
    (target / "depmod").symlink_to("bin/kmod")  # the program does what its name says


def kernel_name(kind: str = KERNEL) -> str:
    """Return the name of the newest kernel package."""
    return run("apt-cache", "depends", "--important", kind).split()[-1]


def kernel(kind: str = KERNEL) -> Path:
    """Return the directory with the unpacked kernel package: ``boot`` and ``lib/modules``."""
    name, place = kernel_name(kind), "kernel" if kind == KERNEL else "full-kernel"
    return cached(place, name, lambda path: unpack(path, (name,)))


def unpack(target: Path, packages: tuple[str, ...]) -> None:
    """Unpack packages of Debian, without what they need."""
    downloads = target / "packages"
    downloads.mkdir()
    run("apt-get", "--quiet", "download", *packages, cwd=downloads)
    for package in downloads.glob("*.deb"):
        run("dpkg", "-x", package, target)
    shutil.rmtree(downloads)


def nspawn() -> Path:
    """Return the program that starts containers."""
    return tools() / "usr/bin/systemd-nspawn"


_CONSTRAINTS: Final = ".ci/constraints.txt"


def wheels() -> Path:
    """Return a directory with the packages that Ganeti and its book need of PyPI.

    The nodes have no network; versions are those that the package is built with.
    """
    names = ("setup.py", "pyproject.toml", _CONSTRAINTS)
    recipe = [(CHECKOUT / name).read_text() for name in names]
    return cached("wheels", recipe, _download_wheels)


def _download_wheels(target: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    wheel = (*pip, "wheel", "--constraint", CHECKOUT / _CONSTRAINTS, "--wheel-dir", target)
    run(*wheel, f"{CHECKOUT}[docs]", "setuptools>=65,<90", "wheel", cwd=target)
    for ours in target.glob("ganeti-*.whl"):
        ours.unlink()


def root(kind: str = "root", more: tuple[str, ...] = ()) -> Path:
    """Return a file system with Debian and what Ganeti needs of it, but no Ganeti.

    Args:
        more: packages that it has beside those; then it is of another kind.
    """
    programs, packages = tools(), (*PACKAGES, *more)
    return cached(
        kind, (SUITE, packages, _USELESS_UNITS), lambda path: _bootstrap(programs, packages, path)
    )


def _bootstrap(programs: Path, packages: tuple[str, ...], target: Path) -> None:
    downloads = DIRECTORY / "packages"
    downloads.mkdir(exist_ok=True)
    run(
        programs / "usr/sbin/debootstrap",
        "--variant=minbase",
        f"--include={','.join(packages)}",
        f"--cache-dir={downloads}",
        SUITE,
        target,
        DEBOOTSTRAP_DIR=str(programs / "usr/share/debootstrap"),
    )
    for name in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(target / name)
        (target / name).mkdir()
    for key in (target / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (target / "etc/machine-id").write_text("uninitialized\n")
    for unit in _USELESS_UNITS:
        (target / "etc/systemd/system" / unit).symlink_to("/dev/null")


_USELESS_UNITS: Final = (
    "systemd-timesyncd.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty@tty1.service",
    "serial-getty@ttyS0.service",
    "console-getty.service",
    "systemd-hwdb-update.service",
    "systemd-networkd-wait-online.service",  # the rig itself gives the addresses
    "drbd.service",  # Ganeti's disks have no configuration files
    "lvm2-monitor.service",
    "lvm2-lvmpolld.socket",
)
