"""Control groups of containers, in the words of kernels with version 1, version 2 and both."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti.hypervisor.lxc.cgroups import (
    NEEDED,
    V1,
    V2,
    Hierarchies,
    Mount,
    Usage,
    limits_swap,
    parse_cpu_stat,
    parse_memory,
    parse_mounts,
    payload_groups,
    usage_of,
)

NAME = "web1.example.com"
BOTH = """31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 /inner /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
GROUPS_1 = f"""9:name=systemd:/user.slice/lxc.payload.{NAME}
5:devices:/lxc.payload.{NAME}-1
4:memory:/inner/noded/lxc.payload.{NAME}
2:cpu,cpuacct:/lxc.payload.{NAME}
1:pids:/
0::/
"""
GROUPS_2 = f"0::/system.slice/noded/lxc.payload.{NAME}/init.scope\n"


def test_version_1_limits_where_there_are_both() -> None:
    here = parse_mounts(BOTH)
    assert here.keys is V1
    assert here.unified == Mount("/sys/fs/cgroup/unified", "/")
    assert set(NEEDED) <= here.known
    assert "xattr" not in here.known or here.legacy["xattr"].point == "/sys/fs/cgroup/systemd"


def test_version_2_alone() -> None:
    here = parse_mounts(UNIFIED)
    assert here.keys is V2
    assert here.known == frozenset()
    here = Hierarchies({}, here.unified, frozenset({"cpuset", "memory"}))
    assert set(NEEDED) <= here.known
    assert here.mount_of("memory") == here.mount_of("devices") == here.unified
    assert here.mount_of("blkio") is None


ODD_NAMES = ["a\x0cb", "a\x1cb", "a\x85b", "a\u2028b"]  # one line to the kernel, two to Python


@pytest.mark.parametrize("name", ODD_NAMES)
def test_mounts_of_others_may_have_any_name(name: str) -> None:
    others = f"50 1 0:9 / /mnt/{name} rw - tmpfs tmpfs rw\n"
    assert parse_mounts(others + BOTH + others) == parse_mounts(BOTH)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_groups_that_a_guest_makes_may_have_any_name(name: str) -> None:
    text = f"0::/lxc.payload.{NAME}/{name}\n"
    assert payload_groups(text, NAME) == {"": f"/lxc.payload.{NAME}"}


def test_groups_of_a_container_are_found_below_those_of_whoever_started_it() -> None:
    groups = payload_groups(GROUPS_1, NAME)
    assert groups == {
        "name=systemd": f"/user.slice/lxc.payload.{NAME}",
        "devices": f"/lxc.payload.{NAME}-1",
        "memory": f"/inner/noded/lxc.payload.{NAME}",
        "cpu": f"/lxc.payload.{NAME}",
        "cpuacct": f"/lxc.payload.{NAME}",
    }
    assert payload_groups(GROUPS_2, NAME) == {"": f"/system.slice/noded/lxc.payload.{NAME}"}
    assert payload_groups(GROUPS_2, "web1") == {}
    here = parse_mounts(BOTH)
    memory = here.legacy["memory"].directory(groups["memory"])
    assert memory == f"/sys/fs/cgroup/memory/noded/lxc.payload.{NAME}"


@pytest.mark.parametrize(
    ("text", "limit_mib"), [("134217728\n", 128), ("max\n", None), ("9223372036854771712\n", None)]
)
def test_limits_of_memory(text: str, limit_mib: int | None) -> None:
    assert parse_memory(text) == limit_mib


def test_processor_time_of_version_2() -> None:
    assert parse_cpu_stat("usage_usec 2500000\nuser_usec 1\n") == 2.5
    assert parse_cpu_stat("") == 0.0


def place(directory: Path, **files: str) -> None:
    directory.mkdir(parents=True)
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)


def test_usage_is_read_from_both_versions(tmp_path: Path) -> None:
    legacy = {name: Mount(str(tmp_path / name), "/") for name in ("memory", "cpuacct")}
    place(tmp_path / "memory/g", memory__limit_in_bytes="16777216\n")
    place(tmp_path / "cpuacct/g", cpuacct__usage="1500000000\n")
    old = Usage(Hierarchies(legacy), {"memory": "/g", "cpuacct": "/g"})
    assert (old.memory_mib(), old.cpu_time_s()) == (16, 1.5)
    place(tmp_path / "two/g", memory__max="33554432\n", cpu__stat="usage_usec 10\n")
    unified = Hierarchies({}, Mount(str(tmp_path / "two"), "/"), frozenset({"memory"}))
    new = Usage(unified, {"": "/g"})
    assert (new.memory_mib(), new.cpu_time_s()) == (32, 1e-5)
    gone = usage_of(1 << 30, "x", unified)
    assert (gone.memory_mib(), gone.cpu_time_s()) == (None, 0.0)


def test_whether_swap_can_be_limited(tmp_path: Path) -> None:
    assert not limits_swap(Hierarchies())
    place(tmp_path / "memory")
    legacy = Hierarchies({"memory": Mount(str(tmp_path / "memory"), "/")})
    assert not limits_swap(legacy)
    (tmp_path / "memory" / V1.swap).touch()
    assert limits_swap(legacy)
    two = Hierarchies({}, Mount(str(tmp_path / "two"), "/"), frozenset({"memory"}))
    place(tmp_path / "two/a")
    assert not limits_swap(two)
    (tmp_path / "two/a" / V2.swap).touch()
    assert limits_swap(two)
