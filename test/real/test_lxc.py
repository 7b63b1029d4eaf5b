"""Containers of LXC as instances, on two machines with systemd: real programs, real network."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from guests.trees import CONTAINER_INIT
from rig import lxc
from rig.containers import Containers, Machine, containers
from rig.installed import commands

NAME = "web1.example.com"
OS = "/srv/ganeti/os/tree"
BRIDGE = "ip link add br0 type bridge && ip link set br0 up"
MEMORY_MIB = 32
# The file system of an instance: the node's own shell, and an init that says what it is asked.
CREATE = f"""#!/bin/sh
set -e
mke2fs -q -t ext4 -F "$DISK_0_PATH"
mount -o "$([ -b "$DISK_0_PATH" ] || echo loop,)rw" "$DISK_0_PATH" /mnt
trap 'umount /mnt' EXIT
cd /mnt
mkdir -p bin dev proc sbin sys usr/bin lib64 lib/x86_64-linux-gnu
for program in sh sleep ip; do
    path=$(readlink -f "$(command -v $program)")
    cp "$path" bin/$program
    for library in $(ldd "$path" | grep -o '/[^ ]*'); do
        mkdir -p ".$(dirname $library)"; cp -L $library .$library
    done
done
cp {OS}/init sbin/init; chmod 755 sbin/init
"""


@pytest.fixture(scope="module")
def rig(installed: Path) -> Iterator[Containers]:
    with containers(2, lxc.layer(), installed) as running:
        first, other = running.machines
        for machine in running.machines:
            for command in commands("prepare"):
                machine.run(command)
            machine.run(BRIDGE)
            machine.run(f"mkdir -p {OS}; cp -r $(dirname {OS})/bootsector/. {OS}")
            machine.run(f"cat > {OS}/create", CREATE)
            machine.run(
                f"base64 -d > {OS}/init", base64.b64encode(CONTAINER_INIT.encode()).decode()
            )
        for command in commands("init"):
            first.try_run(command)
        other.run("cat >> /root/.ssh/authorized_keys", first.run("cat /root/.ssh/id_rsa.pub"))
        for command in commands("join"):
            if "node3" not in command:
                first.try_run(command)
        first.run("gnt-cluster modify --enabled-hypervisors=kvm,lxc")
        yield running


def field(machine: Machine, name: str) -> str:
    return machine.run(f"gnt-instance list --no-headers -o {name} {NAME}").strip()


def console(machine: Machine) -> str:
    return machine.run(f"cat /var/log/ganeti/lxc/{NAME}.console.log")


def test_nodes_have_all_that_containers_need(rig: Containers) -> None:
    found = rig.machines[0].try_run("gnt-cluster verify")
    assert "lxc" not in found.out + found.err


def test_a_container_is_made_and_runs(rig: Containers) -> None:
    first = rig.machines[0]
    first.run(
        f"gnt-instance add -H lxc -t file -s 64m -o tree+default -n node1 --no-name-check"
        f" --no-ip-check -B memory={MEMORY_MIB} --net 0:link=br0 {NAME}"
    )
    assert field(first, "status,oper_ram").split() == ["running", f"{MEMORY_MIB}M"]
    first.wait_until(f"grep 'hello from' /var/log/ganeti/lxc/{NAME}.console.log")
    assert "gnt" in first.run("bridge link show | grep br0")


def test_it_outlives_the_node_daemon(rig: Containers) -> None:
    first = rig.machines[0]
    first.run("systemctl restart ganeti-noded")
    assert field(first, "status") == "running"


def test_its_memory_and_its_reboot(rig: Containers) -> None:
    first = rig.machines[0]
    first.run(f"gnt-instance modify -B memory=48 {NAME}; gnt-instance modify -m 48m {NAME}")
    assert field(first, "oper_ram") == "48M"
    first.run(f"gnt-instance reboot {NAME}")
    assert field(first, "status") == "running"
    assert "asked to" in console(first)


def test_console_and_shutdown(rig: Containers) -> None:
    first = rig.machines[0]
    assert f"lxc-console -P /run/ganeti/lxc-hypervisor -n {NAME}" in first.run(
        f"gnt-instance console --show-cmd {NAME}"
    ).replace("'", "").replace("/var/run", "/run")
    first.run(f"gnt-instance shutdown {NAME}")
    assert "asked to stop" in console(first)
    assert field(first, "status") == "ADMIN_down"
    assert "lxc-hypervisor" not in first.run("cat /proc/mounts")


def test_it_moves_and_is_removed(rig: Containers) -> None:
    first = rig.machines[0]
    first.run(f"gnt-instance move -f -n node2 {NAME}; gnt-instance startup {NAME}")
    assert field(first, "pnode,status").split() == ["node2.example.com", "running"]
    first.run(f"gnt-instance remove -f {NAME}")
    assert rig.machines[1].run("ls /var/run/ganeti/lxc-hypervisor") == ""
