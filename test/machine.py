"""Programs of the machine that the demo and the tests use, and the Debian packages that bring them.

``python3 test/machine.py demo`` or ``test`` installs those that this machine lacks, after saying so.
It needs root; without root, or with ``INSTALL=no``, it leaves the machine as it is, and the tests
that need them are left out.  The tests end with `left_out`.

With ``GANETI_TEST_WITHOUT`` the tests run as on a machine without the optional programs, although
they are here: `hide` takes them out of PATH.  Runs with any Python 3.11, without other packages.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

NO_INSTALL = "no"
INSTALL_VARIABLE = "INSTALL"
HIDE_VARIABLE = "GANETI_TEST_WITHOUT"
MEMORY = "/dev/shm"
MEMORY_BYTES_MIN = 6 << 30
RUN_PREFIX = "gnt-"  # short: a socket's path has 107 bytes, and pytest's own names leave too few
RUN_SECONDS_MAX = 24 * 3600  # how long the files of a run that failed are kept


@dataclass(frozen=True)
class Program:
    """A program or file of the machine: ``sign`` is looked for, a name in PATH or a path."""

    sign: str
    packages: tuple[str, ...]
    use: str
    in_demo: bool = False
    optional: bool = True  # hidden by `HIDE_VARIABLE`

    @property
    def is_there(self) -> bool:
        """Tell whether this machine has it."""
        if self.sign.startswith("/"):
            return os.path.exists(self.sign) and not (self.optional and hides())
        return shutil.which(self.sign) is not None


PROGRAMS = (
    Program("qemu-system-x86_64", ("qemu-system-x86", "ipxe-qemu"), "real virtual machines", True),
    Program("qemu-img", ("qemu-utils",), "disk images", True),
    Program("sfdisk", ("fdisk",), "cloud images", optional=False),
    Program("mkfs.vfat", ("dosfstools",), "cloud images", optional=False),
    Program("mcopy", ("mtools",), "cloud images", optional=False),
    Program("curl", ("curl",), "cloud images", optional=False),
    Program("/usr/share/OVMF/OVMF_CODE_4M.fd", ("ovmf",), "machines with UEFI", optional=False),
    Program("swtpm", ("swtpm",), "machines with a TPM"),
    Program("qemu-storage-daemon", ("qemu-system-common",), "disks in images, as raw files"),
    Program("/usr/lib/qemu/virtiofsd", ("qemu-system-common",), "directories that guests mount"),
    Program("ceph-mon", ("ceph-mon", "ceph-osd", "ceph-mgr", "ceph-common"), "disks in Ceph"),
    Program("glusterd", ("glusterfs-server", "glusterfs-client"), "disks in Gluster"),
    Program("lxc-start", ("lxc",), "containers as instances"),
    Program("etcd", ("etcd-server",), "the lease of high availability"),
    Program("ipmitool", ("ipmitool",), "management boards of nodes"),
    Program("ipmi_sim", ("openipmi",), "management boards of nodes"),
    Program(
        "/usr/lib/x86_64-linux-gnu/qemu/block-rbd.so",
        ("qemu-block-extra",),
        "disks in Ceph and Gluster that QEMU opens",
    ),
    Program("chromium", ("chromium",), "the dashboard in a browser"),
    Program("chromedriver", ("chromium-driver",), "the dashboard in a browser"),
    # A client of Ganeti 3.0 that the tests use as it is; it has no program of its own.
    Program(
        "/usr/lib/python3/dist-packages/ganeti/rapi",
        ("python3-ganeti-rapi",),
        "the RAPI client of Ganeti 3.0",
    ),
    Program("/usr/lib/ganeti/iallocators/hail", ("ganeti-htools",), "the htools of Ganeti 3.0"),
    Program("ip", ("iproute2",), "networks", True, optional=False),
    Program("ssh-keygen", ("openssh-client",), "SSH keys", True, optional=False),
    Program("as", ("binutils",), "guests written in assembler", optional=False),
)


def hides() -> bool:
    """Tell whether the optional programs count as absent."""
    return bool(os.environ.get(HIDE_VARIABLE))


def missing() -> list[Program]:
    """Return the programs that this machine lacks."""
    return [program for program in PROGRAMS if not program.is_there]


def packages_of(programs: Collection[Program]) -> list[str]:
    """Return the Debian packages that bring the programs."""
    return sorted({name for program in programs for name in program.packages})


def command_for(programs: Collection[Program]) -> str:
    """Return the command that installs the programs."""
    return f"apt-get install --no-install-recommends {' '.join(packages_of(programs))}"


def left_out(skipped: Mapping[str, int]) -> list[str]:
    """Return the closing paragraph of a test run.

    Args:
        skipped: {reason: number of tests}
    """
    if not skipped:
        return []
    total = sum(skipped.values())
    lines = [f"{total} tests were left out:"]
    lines += [f"  {count:4} {reason}" for reason, count in sorted(skipped.items())]
    lacking = missing()
    if lacking and not hides():
        uses = ", ".join(dict.fromkeys(program.use for program in lacking))
        lines.append(f"This machine lacks programs for: {uses}.  This command brings them:")
        lines.append(f"  {command_for(lacking)}")
    return lines


def hide(directory: Path) -> None:
    """Make a PATH without the optional programs, of links in a directory, for this process."""
    hidden = {program.sign for program in PROGRAMS if program.optional}
    hidden |= {"kvm", "qemu-kvm", "qemu-system-i386"}
    for place in os.environ["PATH"].split(os.pathsep):
        if not os.path.isdir(place):
            continue
        for entry in os.scandir(place):
            link = directory / entry.name
            if entry.name not in hidden and not link.is_symlink():
                link.symlink_to(entry.path)
    os.environ["PATH"] = str(directory)


def work_in_memory() -> None:
    """Have temporary files made in memory, unless there is little of it or TMPDIR says where.

    On a disk, the tests wait for it half of their time.  Memory keeps what is flushed and what is
    not, like a disk while its power is on; power cuts are tests of real nodes.
    """
    if "TMPDIR" in os.environ or not os.path.isdir(MEMORY):
        return
    table = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(table["MemAvailable"].split()[0]) << 10
    if min(available, shutil.disk_usage(MEMORY).free) >= MEMORY_BYTES_MIN:
        os.environ["TMPDIR"] = MEMORY
        tempfile.tempdir = None  # it looks again


def directory_of_run() -> str:
    """Make the directory for the files of a test run; those of yesterday's failures go.

    Its name has the same length in every run, unlike those that pytest counts.
    """
    temporary = tempfile.gettempdir()
    for entry in os.scandir(temporary):
        if entry.name.startswith(RUN_PREFIX) and entry.name.endswith("-run"):
            with contextlib.suppress(FileNotFoundError):  # another run removes it, too
                if time.time() - entry.stat().st_mtime > RUN_SECONDS_MAX:
                    shutil.rmtree(entry.path, ignore_errors=True)
    return tempfile.mkdtemp(prefix=RUN_PREFIX, suffix="-run")


def install(programs: Sequence[Program]) -> int:
    """Install programs if this user may; returns the exit status."""
    if not programs:
        return 0
    if os.environ.get(INSTALL_VARIABLE) == NO_INSTALL:
        return 0
    command = command_for(programs)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"--- not installed, since only root can: {' '.join(packages_of(programs))}")
        print(f"    (as root: {command})", flush=True)
        return 0
    print(f"--- installing {' '.join(packages_of(programs))}", flush=True)
    print(f"    ({INSTALL_VARIABLE}={NO_INSTALL} does without them)", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for line in (["apt-get", "update", "-qq"], [*command.split(), "-y", "-qq"]):
        done = subprocess.run(line, env=environment, stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            print(f"--- '{' '.join(line)}' failed; going on without them", flush=True)
            break
    return 0


def main(argv: Sequence[str]) -> int:
    """Install what the demo or the tests lack."""
    if argv not in (["demo"], ["test"]):
        print("usage: machine.py demo|test", file=sys.stderr)
        return 2
    return install([each for each in missing() if each.in_demo or argv == ["test"]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
