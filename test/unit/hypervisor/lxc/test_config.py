"""The configuration of a container: every parameter has its lines."""

from __future__ import annotations

import pytest
from guests.instances import make_instance

from ganeti.hypervisor.lxc.cgroups import Hierarchies, Mount
from ganeti.hypervisor.lxc.config import (
    DEFAULT_PROFILE,
    Place,
    config_text,
    listed,
    maps_user_ids,
    memory_settings,
    missing_profile,
    problems,
)
from ganeti.hypervisor.params import HvParams
from ganeti.netdev.backends import BackendKind, NicBackend
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.rpc_instance import RpcInstance

V1 = Hierarchies({"memory": Mount("/sys/fs/cgroup/memory", "/")})
V2 = Hierarchies({}, Mount("/sys/fs/cgroup", "/"), frozenset({"memory"}))
PLACE = Place("/run/i/root", "/log/i", ["/run/i/nic0-up"], limits_swap=True)
MEMORY = str(16 << 20)


def made(
    instance: RpcInstance, here: Hierarchies = V1, *nics: NicBackend, place: Place = PLACE
) -> list[str]:
    return config_text(instance, here, nics, place).splitlines()


def test_an_instance_without_network_interfaces_sees_none() -> None:
    lines = made(make_instance("web1", "lxc"))
    assert lines[:4] == [
        "lxc.uts.name = web1",
        "lxc.rootfs.path = dir:/run/i/root",
        "lxc.pty.max = 1024",
        "lxc.tty.max = 6",
    ]
    assert lines[-1] == "lxc.net.0.type = empty"
    assert lines.count("lxc.cap.drop = sys_admin") == 1


def test_limits_are_told_in_the_words_of_the_nodes_version() -> None:
    instance = make_instance(hypervisor="lxc", cpu_mask="0-1", devices="c 1:3 rw,b 7:* rwm")
    old, new = made(instance), made(instance, V2)
    assert [line for line in old if "cgroup." in line] == [
        f"lxc.cgroup.memory.limit_in_bytes = {MEMORY}",
        f"lxc.cgroup.memory.memsw.limit_in_bytes = {MEMORY}",
        "lxc.cgroup.cpuset.cpus = 0-1",
        "lxc.cgroup.devices.deny = a",
        "lxc.cgroup.devices.allow = c 1:3 rw",
        "lxc.cgroup.devices.allow = b 7:* rwm",
    ]
    assert [line for line in new if "cgroup2" in line][:3] == [
        f"lxc.cgroup2.memory.max = {MEMORY}",
        "lxc.cgroup2.memory.swap.max = 0",
        "lxc.cgroup2.cpuset.cpus = 0-1",
    ]
    assert memory_settings(V2, 16, swap=False) == [("memory.max", MEMORY)]


def test_network_interfaces_are_connected_by_their_scripts() -> None:
    instance = make_instance(hypervisor="lxc", nics=2)
    tap = NicBackend("u0", BackendKind.TAP, tap="gnt0")
    lines = made(instance, V1, tap, NicBackend("u1", BackendKind.USER))
    assert [line for line in lines if ".net." in line] == [
        "lxc.net.0.type = veth",
        "lxc.net.0.name = eth0",
        "lxc.net.0.hwaddr = aa:00:00:00:00:00",
        "lxc.net.0.veth.pair = gnt0",
        "lxc.net.0.flags = up",
        "lxc.net.0.script.up = /run/i/nic0-up",
        "lxc.net.1.type = empty",
    ]


def test_further_disks_are_devices() -> None:
    place = Place("/r", "/l", [], limits_swap=False, devices=[(1, "/dev/xenvg/d1", "254:3")])
    lines = made(make_instance(hypervisor="lxc"), place=place)
    assert "lxc.cgroup.devices.allow = b 254:3 rwm" in lines
    assert "lxc.mount.entry = /dev/xenvg/d1 dev/disk1 none bind,create=file 0 0" in lines


def test_further_lines_come_last() -> None:
    extra = r"lxc.environ=A=1\,2, lxc.apparmor.profile = unconfined"
    lines = made(make_instance(hypervisor="lxc", num_ttys=2, extra_config=extra))
    assert lines[-2:] == ["lxc.environ=A=1,2", "lxc.apparmor.profile = unconfined"]
    assert "lxc.tty.max = 2" in lines


@pytest.mark.parametrize(
    ("lines", "is_mapped"),
    [
        ("", False),
        ("lxc.environ=lxc.idmap=1", False),
        ("lxc.idmap=u 0 100000 65536,lxc.idmap=g 0 100000 65536", True),
        ("lxc.environ=A=1,lxc.include = /usr/share/lxc/config/userns.conf", True),
    ],
)
def test_whether_users_of_a_container_are_others_on_the_node(lines: str, is_mapped: bool) -> None:
    assert maps_user_ids(HvParams({"extra_config": lines})) is is_mapped


def test_lists() -> None:
    assert listed("") == []
    assert listed(r" a,b\,c ,,d") == ["a", "b,c", "d"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("devices", "c 1:3", "a rule of devices"),
        ("drop_capabilities", "sys_admin,../x", "a capability"),
        ("extra_config", "network=none", "a line of configuration"),
        ("extra_config", "lxc.a=1\nlxc.b=2", "a line of configuration"),
        ("extra_cgroups", "pids,a b", "a controller"),
        ("cpu_mask", "0:1", "one list of processors"),
        ("cpu_mask", "all", "one list of processors"),
        ("cpu_mask", "x", "not a list of processors"),
    ],
)
def test_wrong_parts_are_named(name: str, value: str, words: str) -> None:
    defaults = {key: spec.default for key, spec in HVPARAMS["lxc"].items()}
    assert list(problems(defaults)) == []
    [problem] = problems({**defaults, name: value})
    assert words in str(problem)
    assert name in str(problem)


LOADED = f"/usr/bin/man (enforce)\n{DEFAULT_PROFILE} (enforce)\nlxc own (v2) (complain)\n"
UNLIKE = "/usr/bin/man (enforce)\nlxc-container-default (enforce)\n"


@pytest.mark.parametrize(
    ("enabled", "loaded", "extra", "missing"),
    [
        ("N\n", UNLIKE, "", ""),
        ("", None, "", ""),
        ("Y\n", None, "", ""),
        ("Y\n", LOADED, "", ""),
        ("Y\n", UNLIKE, "", DEFAULT_PROFILE),
        ("Y\n", "", "", DEFAULT_PROFILE),
        ("Y\n", UNLIKE, "lxc.environ=A=1", DEFAULT_PROFILE),
        ("Y\n", UNLIKE, "lxc.apparmor.profile=unconfined", ""),
        ("Y\n", UNLIKE, "lxc.apparmor.profile = generated", ""),
        ("Y\n", UNLIKE, "lxc.apparmor.profile=unchanged", ""),
        ("Y\n", UNLIKE, "lxc.apparmor.profile=", DEFAULT_PROFILE),
        ("Y\n", UNLIKE, "lxc.apparmor.profile=unconfined,lxc.apparmor.profile=mine", "mine"),
        ("Y\n", LOADED, "lxc.apparmor.profile=lxc own (v2)", ""),
        ("Y\n", UNLIKE, "lxc.apparmor.profile=:lxc://inner", ""),
    ],
)
def test_the_profile_of_apparmor_that_is_missing(
    enabled: str, loaded: str | None, extra: str, missing: str
) -> None:
    params = HvParams({"extra_config": extra})
    assert missing_profile(params, enabled, loaded) == missing
