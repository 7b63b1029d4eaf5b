"""Instances that are processes in a tree of their own; their life needs root and loop devices."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.waiting import wait_until
from guests.instances import make_instance
from guests.trees import tree_disk

from ganeti.base.errors import HypervisorError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.hypervisor.chroot import ChrootHypervisor, mounted_below, processes_in
from ganeti.hypervisor.interface import AssembledDisk, ConsoleNode, InstanceState, NodeEnv
from ganeti.objects.hypervisors import ConsoleKind, RebootType

NAME = "jail1.example.com"
MOUNTS = r"""22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:5 / /run/chroot/a.example.com rw - ext4 /dev/loop0 rw
31 22 0:6 / /run/chroot/a.example.com/proc rw - proc proc rw
32 22 0:7 / /run/chroot/with\040space rw - ext4 /dev/loop1 rw
"""


def test_what_is_mounted() -> None:
    found = mounted_below("/run/chroot", MOUNTS)
    assert found == {"/run/chroot/a.example.com", "/run/chroot/with space"}


@pytest.mark.parametrize("name", ["a\x0cb", "a\x85b", "a\u2028b", "\udcff", "\\134x", "\xa0"])
def test_mounts_of_others_may_have_any_name(name: str) -> None:
    found = mounted_below("/run/chroot", f"{MOUNTS}33 22 0:8 / /mnt/{name} rw - tmpfs x rw\n")
    assert found == {"/run/chroot/a.example.com", "/run/chroot/with space"}


def driver(root: Path) -> ChrootHypervisor:
    return ChrootHypervisor(
        "chroot", NodeEnv(Paths(str(root)), "node1.example.com", "127.0.0.1"), {}
    )


def instance(script: str = "/ganeti-chroot"):  # type: ignore[no-untyped-def]
    return make_instance(NAME, "chroot", init_script=script)


def test_what_it_cannot_do(tmp_path: Path) -> None:
    chroot = driver(tmp_path)
    assert chroot.list_instances() == []
    assert chroot.instance_info(NAME) is None
    chroot.stop(NAME)
    with pytest.raises(HypervisorError, match="needs exactly one"):
        chroot.start(instance(), [])
    assert (chroot.migration, chroot.hotplug, chroot.snapshots) == (None, None, None)
    with pytest.raises(HypervisorError, match="does not limit memory"):
        chroot.balloon(NAME, 1)
    with pytest.raises(HypervisorError, match="cannot be the name"):
        chroot.stop("../x")


@pytest.mark.parametrize("script", ["", "init", "/../bin/sh", "/bin//sh"])
def test_init_scripts_are_absolute(tmp_path: Path, script: str) -> None:
    with pytest.raises(OpPrereqError, match="init_script"):
        driver(tmp_path).check_params({"init_script": script})
    driver(tmp_path).check_params({"init_script": "/ganeti-chroot"})


def test_its_console_is_a_shell_in_the_tree(tmp_path: Path) -> None:
    [console] = driver(tmp_path).consoles(instance(), ConsoleNode("node1", "x"))
    assert console.kind is ConsoleKind.SSH
    assert console.command == ["chroot", f"{tmp_path}/var/run/ganeti/chroot-hypervisor/{NAME}"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[AssembledDisk]:
    """A file system with a shell and an init script."""
    yield tree_disk(tmp_path)
    for found in driver(tmp_path).list_instances():
        driver(tmp_path).stop(found, force=True)


@pytest.mark.root
def test_a_mount_whose_name_is_no_text_is_no_hindrance(tmp_path: Path, disk: AssembledDisk) -> None:
    chroot = driver(tmp_path)
    chroot.start(instance(), [disk])
    inner = f"{chroot.env.paths.chroot_dir}/{NAME}/mnt".encode() + b"/\xff\x0c"
    os.mkdir(inner)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", inner], check=True)
    assert chroot.list_instances() == [NAME]
    chroot.stop(NAME, force=True)
    assert chroot.list_instances() == []


@pytest.mark.root
def test_trees_are_not_for_the_users_of_the_node(tmp_path: Path, disk: AssembledDisk) -> None:
    driver(tmp_path).start(instance(), [disk])
    assert os.stat(driver(tmp_path).env.paths.chroot_dir).st_mode & 0o777 == 0o700


@pytest.mark.root
def test_life_of_an_instance(tmp_path: Path, disk: AssembledDisk) -> None:
    driver(tmp_path).start(instance(), [disk])
    again = driver(tmp_path)
    assert again.list_instances() == [NAME]
    tree = f"{tmp_path}/var/run/ganeti/chroot-hypervisor/{NAME}"
    before = processes_in(tree)
    assert before
    with pytest.raises(HypervisorError, match="runs already"):
        again.start(instance(), [disk])
    info = again.instance_info(NAME)
    assert info is not None
    assert info.memory_mib == 16
    subprocess.run(["mount", "-t", "tmpfs", "none", f"{tree}/mnt"], check=True)
    again.reboot(instance(), [disk], kind=RebootType.HARD)
    assert not set(processes_in(tree)) & set(before)
    assert Path(tree, "calls").read_text().split() == ["start", "stop", "start"]
    again.stop(NAME, force=True)
    assert again.list_instances() == []
    assert not processes_in(tree)
    assert os.listdir(os.path.dirname(tree)) == []


@pytest.mark.root
def test_a_start_that_fails_leaves_nothing(tmp_path: Path, disk: AssembledDisk) -> None:
    chroot = driver(tmp_path)
    with pytest.raises(HypervisorError, match="did not start"):
        chroot.start(instance("/nowhere"), [disk])
    assert chroot.list_instances() == []
    broken = AssembledDisk(0, "uuid", str(tmp_path / "empty"), 1)
    (tmp_path / "empty").write_bytes(bytes(1 << 20))
    with pytest.raises(HypervisorError, match="cannot be mounted"):
        chroot.start(instance(), [broken])
    assert os.listdir(f"{tmp_path}/var/run/ganeti/chroot-hypervisor") == []


@pytest.mark.root
def test_a_start_that_was_cut_off_does_not_count_as_running(
    tmp_path: Path, disk: AssembledDisk
) -> None:
    """Its init script had not run, or not to its end, and no further start called it again."""
    chroot, tree = driver(tmp_path), Path(driver(tmp_path).env.paths.chroot_dir, NAME)
    slow = instance("/bin/slow")
    chroot.start(instance(), [disk], paused=True)
    Path(tree, "bin/slow").write_text("#!/bin/sh\n: >/began\n[ -e /again ] || exec sleep 600\n")
    Path(tree, "bin/slow").chmod(0o755)
    chroot.stop(NAME, force=True)
    pid = os.fork()
    if pid == 0:
        chroot.start(slow, [disk])
        os._exit(0)
    wait_until(Path(tree, "began").exists, "the init script")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    info = chroot.instance_info(NAME)
    assert info is not None
    assert info.state is InstanceState.SHUTDOWN
    Path(tree, "again").touch()
    chroot.stop(NAME, force=True)
    assert not processes_in(str(tree))
    chroot.start(slow, [disk])
    info = chroot.instance_info(NAME)
    assert info is not None
    assert info.state is InstanceState.RUNNING


@pytest.mark.root
def test_a_start_without_room_for_its_record_leaves_nothing_mounted(
    tmp_path: Path, disk: AssembledDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree stayed mounted, and the instance counted as running from then on."""
    chroot = driver(tmp_path)

    def full(_path: str, _data: bytes, _mode: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ganeti.hypervisor.chroot.write_atomic", full)
    with pytest.raises(OSError, match="No space"):
        chroot.start(instance(), [disk])
    assert chroot.list_instances() == []
