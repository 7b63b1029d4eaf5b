"""A node on which the guest runs that counts on two disks (`guests.counters`)."""

from __future__ import annotations

import os
import subprocess

from fakes.waiting import wait_until
from guests import counters
from guests.instances import make_instance
from guests.nodes import KvmNode, KvmNodes

from ganeti.hypervisor.interface import AssembledDisk, Instant
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.objects.disk_templates import DiskFormat
from ganeti.storage.nbd import NbdImage

INSTANCE = make_instance(kernel_path="", kvm_flag="disabled")
NAME = INSTANCE.name
SIZE_MIB = 4


class Counting:
    """A node on which the guest with two disks runs."""

    def __init__(self, nodes: KvmNodes, fmt: DiskFormat = DiskFormat.RAW) -> None:
        self.node: KvmNode = nodes.nodes[0]
        self.driver = self.node.driver
        self.directory = str(nodes.base / "exports")
        self.paths = counters.disk_images(nodes.base, SIZE_MIB)
        self.disks = [
            AssembledDisk(
                index=index,
                uuid=f"ee8b6d3b-9c9e-48f4-9373-{index:012}",
                dev_path=str(path),
                size_mib=SIZE_MIB,
                format=fmt,
            )
            for index, path in enumerate(self.paths)
        ]
        self.format = fmt
        if fmt is not DiskFormat.RAW:
            self._convert()
        self.start()

    def _convert(self) -> None:
        for path in self.paths:
            raw = path.rename(path.with_suffix(".raw"))
            subprocess.run(["qemu-img", "convert", "-O", self.format, raw, path], check=True)

    def start(self) -> None:
        """Start the guest, which goes on from where it was."""
        ups = self.node.serial(NAME).count(counters.UP_TEXT)
        self.driver.start(INSTANCE, self.disks)
        wait_until(
            lambda: self.node.serial(NAME).count(counters.UP_TEXT) != ups, "the guest to be up"
        )
        if self.format is DiskFormat.RAW:
            self.goes_on()

    def counter(self) -> int:
        """Return how far the guest is."""
        return counters.live_counter(self.paths[1])

    def goes_on(self, rounds: int = 1) -> None:
        """Wait until the guest has written so many rounds more."""
        wanted = self.counter() + rounds
        wait_until(lambda: self.counter() >= wanted, f"counter {wanted}")

    def take(self, since: str = "", point: str = "") -> list[str]:
        return list(self.driver.snapshots.take(INSTANCE, self.directory, Instant(since, point)))

    def image(self, index: int) -> NbdImage:
        found = self.driver.snapshots.address(NAME, self.disks[index].uuid)
        return NbdImage(found.socket_path, found.export)

    def written(self, index: int) -> list[tuple[int, int]]:
        """Return where a disk was written, as the snapshot tells."""
        found = self.driver.snapshots.address(NAME, self.disks[index].uuid)
        record = NbdImage(found.socket_path, found.export, found.written)
        try:
            return list(record.areas())
        finally:
            record.close()

    def records(self) -> set[str]:
        """Return the names of all dirty bitmaps that have one."""
        with self.monitor() as monitor:
            rows = monitor.query_list("query-named-block-nodes")
        found = [each for row in rows for each in row.get("dirty-bitmaps") or ()]
        return {str(each["name"]) for each in found if "name" in each}

    def read(self, index: int) -> bytes:
        """Return what the snapshot of a disk holds."""
        image = self.image(index)
        try:
            data = bytearray(image.size)
            for begin, end in image.areas():
                data[begin:end] = image.read(begin, end - begin)
            return bytes(data)
        finally:
            image.close()

    def monitor(self) -> Monitor:
        return Monitor.connect(NAME, self.node.files(NAME).socket_path("control"))

    def is_clean(self) -> bool:
        """Tell whether nothing of snapshots is in QEMU or among the files."""
        with self.monitor() as monitor:
            nodes = monitor.query_list("query-named-block-nodes")
            left = [str(row["node-name"]) for row in nodes]
            left += [str(row["id"]) for row in monitor.query_list("query-jobs")]
            exports = monitor.query_list("query-block-exports")
            state = monitor.status()
        return (
            not any(name.startswith("snapshot") for name in left)
            and not exports
            and state == "running"
            and not os.path.exists(self.node.files(NAME).socket_path("nbd"))
            and not os.path.lexists(self.node.files(NAME).link("nbd"))
            and (not os.path.exists(self.directory) or not os.listdir(self.directory))
        )
