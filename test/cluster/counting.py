"""An instance with two disks in network storage, whose guest counts on both (`guests.counters`)."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until
from guests import counters

SIZE_MIB: Final = 4
MIB: Final = 1 << 20
_ANYWHERE: Final = "--no-name-check --no-ip-check"


class Storage(Protocol):
    """The rig's Ceph or Gluster."""

    template: str
    driver: str  # first word of the logical IDs of its disks

    def contents(self, name: str) -> bytes:
        """Return the bytes of a disk, which may be in use."""

    def fill(self, name: str, data: bytes) -> None:
        """Overwrite the beginning of a disk that nobody uses."""

    def names(self) -> list[str]:
        """Return the names of all disks."""


def add(template: str) -> str:
    """Return the beginning of the command that adds an instance."""
    return f"instance add -t {template} {_ANYWHERE} -B memory=16 -o bootsector+default"


class Counting:
    """One instance; ``name`` is its name."""

    def __init__(self, cluster: TestCluster, storage: Storage, name: str) -> None:
        self.cluster, self.storage, self.name = cluster, storage, name

    def disk(self, index: int = 0) -> str:
        """Return the name of a disk in the storage."""
        shown = self.cluster.gnt(f"instance info {self.name}").out
        sign = f"logical_id: ['{self.storage.driver}'"
        return [line for line in shown.splitlines() if sign in line][index].split("'")[3]

    def contents(self, index: int = 0) -> bytes:
        """Return the bytes of a disk."""
        return self.storage.contents(self.disk(index))

    def counted(self) -> int:
        """Return how far the guest is."""
        return counters.live_counter_of(self.contents(1))

    def make(self, node: str, directory: Path) -> None:
        """Add it, look whether its operating system was installed, and start its guest instead of that."""
        disks = f"--disk 0:size={SIZE_MIB} --disk 1:size={SIZE_MIB}"
        self.cluster.gnt(f"{add(self.storage.template)} {disks} --no-start -n {node} {self.name}")
        assert self.contents()[510:512] == b"\x55\xaa", "it was not installed"
        for index, source in enumerate(counters.disk_images(directory, SIZE_MIB)):
            self.storage.fill(self.disk(index), source.read_bytes())

    def start(self) -> None:
        """Start the guest, and wait until all of its notes are of this run."""
        self.cluster.gnt(f"instance startup {self.name}")
        wait_until(lambda: self.counted() > counters.LOG_SECTORS, "the guest to count")

    def goes_on(self) -> int:
        """Wait until it has counted more; returns how far it is at least."""
        before = self.counted()
        wait_until(lambda: self.counted() > before, "the guest to go on")
        return before

    def changes_while_it_runs(self) -> None:
        """Migrate it, grow a disk, add one."""
        self.cluster.gnt(f"instance migrate -f {self.name}")
        self.goes_on()
        self.cluster.gnt(f"instance grow-disk {self.name} 0 {SIZE_MIB}")
        assert len(self.contents()) == 2 * SIZE_MIB * MIB
        self.cluster.gnt(f"instance modify --hotplug --disk add:size={SIZE_MIB} {self.name}")
        assert len(self.storage.names()) == 3
        self.goes_on()

    def copied(self, name: str, node: str, export: str) -> Counting:
        """Return an instance made of an export on a node; ``export`` are options of the export."""
        self.cluster.gnt(f"backup export {export} -n {node} {self.name}")
        self.cluster.gnt(
            f"backup import -t {self.storage.template} {_ANYWHERE} -n {node} --src-node {node}"
            f" --src-dir {self.name} {name}"
        )
        return Counting(self.cluster, self.storage, name)

    def copied_at_one_instant(self, name: str, node: str) -> tuple[Counting, int]:
        """Return such an instance, made while it ran, and the counter at that instant."""
        before = self.counted()
        copy = self.copied(name, node, "--noshutdown")
        found = counters.check_one_instant(
            [copy.contents(index)[: SIZE_MIB * MIB] for index in (0, 1)]
        )
        assert found >= before
        return copy, found

    def remove(self) -> None:
        """Remove it."""
        self.cluster.gnt(f"instance remove -f --shutdown-timeout=1 {self.name}")


def all_is_well(cluster: TestCluster, row: str) -> None:
    """Check that the storage is listed with this row and that the cluster has no errors."""
    template = row.partition(" ")[0]
    assert row in " ".join(cluster.gnt(f"node list-storage -t {template}").out.split())
    verify = cluster.gnt("cluster verify").out
    assert "ERROR" not in verify, verify
