"""Containers of LXC as instances, on two machines with a kernel of their own: real programs, real network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from guests.trees import CONTAINER_INIT
from rig.cluster import make_cluster
from rig.containers import Machine
from rig.lxc import LxcMachines, lxc_machines

NAME = "web1.example.com"
OS = "/srv/ganeti/os/tree"
MEMORY_MIB = 32
# The file system of an instance: the node's own shell, and an init that says what it is asked.
CREATE = f"""#!/bin/sh
set -e
mke2fs -q -t ext4 -F "$DISK_0_PATH"
mount -o "$([ -b "$DISK_0_PATH" ] || echo loop,)rw" "$DISK_0_PATH" /mnt
trap 'cd /; umount /mnt' EXIT
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
def rig(root: None) -> Iterator[LxcMachines]:
    with lxc_machines(2) as running:
        make_cluster(running.machines)
        for machine in running.machines:
            machine.run(f"mkdir -p {OS}; cp -r $(dirname {OS})/bootsector/. {OS}")
            machine.run(f"cat > {OS}/create", CREATE)
            machine.run(f"cat > {OS}/init", CONTAINER_INIT)
        running.machines[0].run("gnt-cluster modify --enabled-hypervisors=kvm,lxc")
        yield running


def field(machine: Machine, name: str) -> str:
    return machine.run(f"gnt-instance list --no-headers -o {name} {NAME}").strip()


def console(machine: Machine) -> str:
    return machine.run(f"cat /var/log/ganeti/lxc/{NAME}.console.log")


def test_nodes_have_all_that_containers_need(rig: LxcMachines) -> None:
    found = rig.machines[0].try_run("gnt-cluster verify")
    assert "lxc" not in found.out + found.err


def test_a_container_is_made_and_runs(rig: LxcMachines) -> None:
    first = rig.machines[0]
    first.run(
        f"gnt-instance add -H lxc -t file -s 64m -o tree+default -n node1 --no-name-check"
        f" --no-ip-check -B memory={MEMORY_MIB} --net 0:link=br0 {NAME}"
    )
    assert field(first, "status,oper_ram").split() == ["running", f"{MEMORY_MIB}M"]
    first.wait_until(f"grep 'hello from' /var/log/ganeti/lxc/{NAME}.console.log")
    assert "gnt" in first.run("bridge link show | grep br0")


def test_it_outlives_the_node_daemon(rig: LxcMachines) -> None:
    first = rig.machines[0]
    first.run("systemctl restart ganeti-noded")
    assert field(first, "status") == "running"


def test_its_memory_and_its_reboot(rig: LxcMachines) -> None:
    first = rig.machines[0]
    first.run(f"gnt-instance modify -B memory=48 {NAME}; gnt-instance modify -m 48m {NAME}")
    assert field(first, "oper_ram") == "48M"
    first.run(f"gnt-instance reboot {NAME}")
    assert field(first, "status") == "running"
    assert "asked to" in console(first)


def test_console_and_shutdown(rig: LxcMachines) -> None:
    first = rig.machines[0]
    assert f"lxc-console -P /run/ganeti/lxc-hypervisor -n {NAME}" in first.run(
        f"gnt-instance console --show-cmd {NAME}"
    ).replace("'", "").replace("/var/run", "/run")
    first.run(f"gnt-instance shutdown {NAME}")
    assert "asked to stop" in console(first)
    assert field(first, "status") == "ADMIN_down"
    assert "lxc-hypervisor" not in first.run("cat /proc/mounts")


def test_it_moves_and_is_removed(rig: LxcMachines) -> None:
    first = rig.machines[0]
    first.run(f"gnt-instance move -f -n node2 {NAME}; gnt-instance startup {NAME}")
    assert field(first, "pnode,status").split() == ["node2.example.com", "running"]
    first.run(f"gnt-instance remove -f {NAME}")
    assert rig.machines[1].run("ls /var/run/ganeti/lxc-hypervisor") == ""
