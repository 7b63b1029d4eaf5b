"""Containers of the real LXC on this machine: all that the promises of every driver leave out."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from guests.instances import make_instance
from guests.trees import container_disk, remove_groups

from ganeti.base.errors import HypervisorError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import AssembledDisk, InstanceState, NodeEnv
from ganeti.hypervisor.lxc import config, root, tools
from ganeti.hypervisor.lxc.driver import LxcHypervisor
from ganeti.objects.hypervisors import RebootType

NAME = "container1.example.com"
NODE_NIC = "gnt3cf1863fbc00"

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(shutil.which("lxc-start") is None, reason="needs the programs of LXC"),
]


@pytest.fixture
def lxc(tmp_path: Path) -> Iterator[LxcHypervisor]:
    env = NodeEnv(Paths(str(tmp_path)), "node1.example.com", "127.0.0.1")
    driver = LxcHypervisor("lxc", env, {})
    yield driver
    driver.stop(NAME, force=True)
    assert driver.all_instances_info() == []
    remove_groups(NAME)


@pytest.fixture
def disk(tmp_path: Path) -> AssembledDisk:
    return container_disk(tmp_path)


def instance(**more):  # type: ignore[no-untyped-def]
    return make_instance(NAME, "lxc", **more)


def wait_for(check: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def pid(driver: LxcHypervisor) -> int:
    found = driver._lxc.info(NAME).pid
    assert found is not None
    return found


def said(driver: LxcHypervisor) -> str:
    return driver.guest(instance()).console


def test_init_is_asked_to_stop_and_to_reboot(lxc: LxcHypervisor, disk: AssembledDisk) -> None:
    lxc.start(instance(), [disk])
    wait_for(lambda: "hello from /sbin/init" in said(lxc))
    before = pid(lxc)
    lxc.reboot(instance(), [disk], kind=RebootType.SOFT, timeout_s=5)
    wait_for(lambda: "asked to reboot" in said(lxc))
    assert pid(lxc) != before
    lxc.stop(NAME, timeout_s=10)
    assert "asked to stop" in said(lxc)
    assert os.listdir(lxc.env.paths.lxc_dir) == []


def test_who_shuts_down_from_inside_stays_known(lxc: LxcHypervisor, disk: AssembledDisk) -> None:
    lxc.start(instance(), [disk])
    os.kill(pid(lxc), 9)
    wait_for(lambda: not lxc._lxc.info(NAME).runs)
    info = lxc.instance_info(NAME)
    assert info is not None
    assert info.state is InstanceState.SHUTDOWN
    lxc.start(instance(), [disk])
    [info] = lxc.all_instances_info()
    assert info.state is InstanceState.RUNNING


def test_memory_can_shrink_and_grow(lxc: LxcHypervisor, disk: AssembledDisk) -> None:
    lxc.start(instance(memory_mib=32), [disk])
    for size_mib in (16, 64, 24):
        lxc.balloon(NAME, size_mib)
        info = lxc.instance_info(NAME)
        assert info is not None
        assert info.memory_mib == size_mib
    with pytest.raises(HypervisorError, match="cannot be limited"):
        lxc.balloon("nobody", 16)


def test_a_partition_is_found_and_mounted(
    lxc: LxcHypervisor, disk: AssembledDisk, tmp_path: Path
) -> None:
    parted = tmp_path / "parted"
    content = Path(disk.dev_path).read_bytes()
    head = bytearray(1 << 20)
    struct.pack_into("<B3xB3xII", head, 446, 0x80, 0x83, 2048, len(content) // 512)
    head[510:512] = b"\x55\xaa"
    parted.write_bytes(bytes(head) + content)
    lxc.start(instance(), [AssembledDisk(0, "u", str(parted), 33)])
    assert os.path.exists(f"/proc/{pid(lxc)}/root/sbin/init")


def test_the_file_system_is_not_for_the_users_of_the_node(
    lxc: LxcHypervisor, disk: AssembledDisk
) -> None:
    lxc.start(instance(), [disk])
    wait_for(lambda: "hello from /sbin/init" in said(lxc))
    assert os.stat(f"{lxc.env.paths.lxc_dir}/{NAME}").st_mode & 0o777 == 0o700


def test_the_log_of_a_console_cannot_fill_the_disk(
    lxc: LxcHypervisor, disk: AssembledDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "_LOG_MIB", 1)
    lxc.start(instance(), [disk])
    log = lxc._files(NAME).console_log
    with open(f"/proc/{pid(lxc)}/root/dev/console", "wb", buffering=0) as console:
        # Its last words come in the middle of a log: LXC drops a few bytes where one begins anew.
        for _ in range((3 << 4) + 8):
            console.write(b"x" * (1 << 16) + b"\n")
            assert os.path.getsize(log) <= 2 << 20
        console.write(b"at last\n")
    wait_for(lambda: "at last" in said(lxc))


def test_what_is_mounted_is_never_removed(
    lxc: LxcHypervisor, disk: AssembledDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start whose job was gone may mount the disk just before the directory is removed."""
    lxc.start(instance(), [disk])
    with monkeypatch.context() as late:
        late.setattr(root, "unmount", lambda _name, _place: None)
        with pytest.raises(HypervisorError, match=r"/root cannot be removed: .*busy"):
            lxc.stop(NAME, force=True)
    place = lxc._files(NAME).root
    assert os.path.exists(f"{place}/sbin/init")
    assert os.path.exists(f"{place}/bin/sh")


def test_one_whose_monitor_hangs_is_not_taken_for_stopped(
    lxc: LxcHypervisor, disk: AssembledDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk was unmounted and its directory removed, and a second copy could start."""
    lxc.start(instance(), [disk])
    monitor = int(Path(f"/proc/{pid(lxc)}/stat").read_text().rpartition(")")[2].split()[1])
    monkeypatch.setattr(tools, "_TIMEOUT_S", 1.0)
    os.kill(monitor, signal.SIGSTOP)
    try:
        [info] = lxc.all_instances_info()
        assert info.state is InstanceState.RUNNING
        for change in (lambda: lxc.stop(NAME, force=True), lambda: lxc.start(instance(), [disk])):
            with pytest.raises(HypervisorError, match="may run or not: lxc-info did not end in"):
                change()
        assert os.path.ismount(lxc._files(NAME).root)
    finally:
        os.kill(monitor, signal.SIGCONT)


def test_a_paused_one_stands_still(lxc: LxcHypervisor, disk: AssembledDisk) -> None:
    lxc.start(instance(), [disk], paused=True)
    assert lxc._lxc.info(NAME).state == "FROZEN"
    lxc.stop(NAME, timeout_s=1)


def test_failures_leave_nothing(lxc: LxcHypervisor, disk: AssembledDisk, tmp_path: Path) -> None:
    with pytest.raises(HypervisorError, match="has no disk"):
        lxc.start(instance(), [])
    file = AssembledDisk(1, "v", disk.dev_path, 1)
    with pytest.raises(HypervisorError, match="disk 1 is a file"):
        lxc.start(instance(), [disk, file])
    with pytest.raises(HypervisorError, match=f"instance '{NAME}' did not start"):
        lxc.start(instance(extra_config="lxc.init.cmd=/none"), [disk])
    with pytest.raises(OpPrereqError, match="no control groups for 'turbo'"):
        lxc.start(instance(extra_cgroups="turbo"), [disk])
    assert lxc.all_instances_info() == []
    assert str(tmp_path / "var") not in Path("/proc/self/mountinfo").read_text()


def has_bridge() -> bool:
    return os.path.isdir("/sys/class/net/xen-br0")


@pytest.mark.skipif(not has_bridge(), reason="needs a bridge xen-br0")
def test_its_interface_is_on_the_bridge(lxc: LxcHypervisor, disk: AssembledDisk) -> None:
    link = Path(f"/sys/class/net/{NODE_NIC}")
    lxc.start(instance(nics=1), [disk])
    master = link / "master"
    assert master.resolve().name == "xen-br0"
    inside = ("nsenter", "--net", "--target", str(pid(lxc)), "ip", "link", "show", "eth0")
    shown = subprocess.run(inside, capture_output=True, text=True, check=True).stdout
    assert "aa:00:00:00:00:00" in shown
    lxc.reboot(instance(nics=1), [disk], kind=RebootType.SOFT, timeout_s=5)
    wait_for(lambda: master.exists() and master.resolve().name == "xen-br0")
    lxc.stop(NAME, force=True)
    assert not link.exists()
