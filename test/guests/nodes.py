"""Nodes for tests with real QEMU processes: roots below one short directory, nothing left behind."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fakes.waiting import wait_until
from guests.images import boot_sector_image

from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import (
    AssembledDisk,
    Hypervisor,
    MigrationState,
    NodeEnv,
    get_hypervisor,
)
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.state import QemuProcess, find_process
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.system.process import wait_gone

QEMU = shutil.which("qemu-system-x86_64")


@dataclass(frozen=True)
class KvmNode:
    """One node: its environment and its driver."""

    env: NodeEnv
    driver: Hypervisor

    def files(self, name: str) -> MachineFiles:
        return MachineFiles(self.env.paths, name)

    def process(self, name: str) -> QemuProcess | None:
        return find_process(self.files(name))

    def serial(self, name: str) -> str:
        try:
            return Path(self.files(name).serial_log).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def wait_serial(self, name: str, text: str, timeout_s: float = 60) -> str:
        wait_until(
            lambda: text in self.serial(name), f"{text!r} on the console", timeout_s=timeout_s
        )
        return self.serial(name)


@dataclass(frozen=True)
class KvmNodes:
    """Some nodes that see the same directory, as with shared storage."""

    base: Path
    nodes: list[KvmNode]

    def boot_disk(self, index: int = 0, size_mib: int = 1) -> AssembledDisk:
        """Return a disk with the boot-sector guest."""
        path = boot_sector_image(self.base / f"disk{index}", size_mib)
        return AssembledDisk(
            index=index, uuid=f"ee8b6d3b-9c9e-48f4-9373-{index:012}", dev_path=path, size_mib=1
        )

    def move(self, instance: RpcInstance, disks: Sequence[AssembledDisk]) -> None:
        """Migrate a running instance from the first node to the second one."""
        source, target = (node.driver.migration for node in self.nodes)
        info = source.describe(instance)
        where = target.accept(instance, info, self.nodes[1].env.address, disks)
        source.send(instance, where, live=True)
        status = source.status(instance, wait_s=60)
        assert status.status is MigrationState.COMPLETED, status
        target.finish_target(instance, info, success=True)
        source.finish_source(instance, success=True, live=True)


@contextmanager
def kvm_nodes(count: int = 1) -> Iterator[KvmNodes]:
    """Make some nodes; ends every QEMU that was started below them."""
    base = Path(tempfile.mkdtemp(prefix="gk", dir="/tmp"))
    network = f"127.{random.randrange(64, 250)}.{random.randrange(1, 250)}"
    nodes = []
    for index in range(count):
        paths = Paths(str(base / f"node{index + 1}"))
        env = NodeEnv(paths, f"node{index + 1}.example.com", f"{network}.{index + 1}")
        nodes.append(KvmNode(env, get_hypervisor("kvm", env, {})))
    try:
        yield KvmNodes(base, nodes)
    finally:
        kill_below(base)
        shutil.rmtree(base)


def kill_below(base: Path) -> None:
    """Kill every process whose command line names a path below a directory."""
    needle = os.fsencode(f"{base}/")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if command.startswith(b"/usr") and b"qemu" in command and needle in command:
            os.kill(int(entry.name), signal.SIGKILL)
            wait_gone(int(entry.name), 5)
