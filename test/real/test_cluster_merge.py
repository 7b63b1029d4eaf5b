"""Two clusters of two machines become one over SSH: root's password opens the other master.

The tests build on one another, in the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rig.containers import (
    CLUSTER_NAME,
    MASTER_ADDRESS,
    NETWORK,
    Answer,
    Containers,
    Machine,
    add_bridge,
    assert_healthy,
    assert_well,
    containers,
)
from rig.installed import commands

OTHER = "other.example.com"
OTHER_ADDRESS = f"{NETWORK}101"
PASSWORD = "not-a-secret"
MERGE = "/opt/ganeti/lib/ganeti/tools/cluster-merge"
GUEST, IDLE = "guest.example.com", "idle.example.com"
GONE = "ssh-rsa AAAAB3NzaGone root@gone.example.com"
"""The key of a former candidate of the other cluster."""
QEMU = "pgrep --full '[q]emu-system'"  # not the shell that looks


@pytest.fixture(scope="module")
def rig(installed: Path) -> Iterator[Containers]:
    with containers(4, installed) as running:
        for machine in running.machines:
            for command in commands("prepare"):
                machine.run(command)
            machine.run("cat >> /etc/hosts", f"{OTHER_ADDRESS} {OTHER}\n")
            add_bridge(machine)
        own, second, other, fourth = running.machines
        make_cluster(own, CLUSTER_NAME, second)
        make_cluster(other, OTHER, fourth)
        for name, more in ((GUEST, "-n node4"), (IDLE, "-n node3 --no-start")):
            other.run(
                f"gnt-instance add -t file -s 1g -o bootsector+default {more} --no-name-check"
                f" --no-ip-check -B memory=128 {name}"
            )
        yield running


def make_cluster(master: Machine, name: str, node: Machine) -> None:
    """Make a cluster of two nodes, by the commands of the page."""
    init = commands("init")[0]
    assert init.endswith(f" {CLUSTER_NAME}")
    master.run(f"{init.removesuffix(CLUSTER_NAME)}{name}")
    node.run("cat >> /root/.ssh/authorized_keys", master.run("cat /root/.ssh/id_rsa.pub"))
    master.run(f"ssh-keyscan {node.name} >> /root/.ssh/known_hosts")
    master.run(f"gnt-node add {node.name}")


def merge(machine: Machine, *words: str, password: str = "") -> Answer:
    """Run the tool; the password is given if it asks for one."""
    found = machine.try_run(f"{MERGE} {' '.join(words)}", password and f"{password}\n")
    print(found)
    return found


def refused(found: Answer, *texts: str) -> None:
    assert found.status == 1, found
    assert all(text in found.err for text in texts), found
    assert "Traceback" not in found.err, found


def keys_of(machine: Machine) -> list[str]:
    return sorted(machine.run("cat /root/.ssh/authorized_keys").splitlines())


def nodes_of(machine: Machine) -> list[str]:
    return machine.run("gnt-node list --no-headers -o name").split()


def test_a_stranger_is_told_how_to_be_let_in(rig: Containers) -> None:
    own, _, other, _ = rig.machines
    refused(merge(own, "--dry-run", OTHER), "host key", "ssh-keyscan")
    own.run(f"ssh-keyscan {OTHER} {other.name} >> /root/.ssh/known_hosts")
    refused(merge(own, "--dry-run", OTHER), "no key of root's opens", "no password was given")
    refused(merge(own, "--dry-run", OTHER, password="wrong"), "Permission denied")


def test_the_password_opens_the_other_master_and_its_key_the_other_nodes(rig: Containers) -> None:
    own, _, other, _ = rig.machines
    other.run(f"echo root:{PASSWORD} | chpasswd")
    other.run("echo 'PermitRootLogin yes' > /etc/ssh/sshd_config.d/root.conf")
    other.run("systemctl restart ssh")
    before = [keys_of(machine) for machine in rig.machines]
    refused(merge(own, "--dry-run", OTHER, password=PASSWORD), "group default", "--groups=merge")
    found = merge(own, "--dry-run", "--groups=rename", OTHER, password=PASSWORD)
    assert found.status == 0, found
    assert f"group default there becomes group default-{OTHER}" in found.out
    assert [keys_of(machine) for machine in rig.machines] == before
    assert PASSWORD not in own.run("cat /var/log/ganeti/*.log")


def kill_one(own: Machine, fourth: Machine) -> None:
    """Begin a merge, and kill the tool when the instances are stopped."""
    own.run("cat > /root/password", f"{PASSWORD}\n")
    command = f"{MERGE} --groups=rename {OTHER} < /root/password > /root/merge.log 2>&1 & echo $!"
    pid = own.run(command).strip()
    fourth.wait_until(f"! {QEMU}")
    own.run(f"kill -KILL {pid}")


def test_one_that_was_killed_is_taken_back(rig: Containers) -> None:
    own, _, other, fourth = rig.machines
    before = [keys_of(machine) for machine in rig.machines]
    guest = fourth.run(QEMU)
    kill_one(own, fourth)
    refused(merge(own, "--groups=rename", "elsewhere"), "was cut off")
    assert keys_of(fourth) != before[3]
    found = merge(own, "--rollback", password=PASSWORD)
    assert found.status == 0, found
    assert [keys_of(machine) for machine in rig.machines] == before
    assert fourth.wait_until(QEMU) != guest
    for master, count in ((own, 2), (other, 2)):
        assert len(nodes_of(master)) == count
        assert_healthy(master)


def test_it_is_taken_back_without_a_node_that_is_lost(rig: Containers) -> None:
    own, _, other, fourth = rig.machines
    before = [keys_of(machine) for machine in rig.machines]
    kill_one(own, fourth)
    rig.pull_plug(fourth)
    refused(merge(own, "--rollback", password=PASSWORD), fourth.name)
    found = merge(own, "--rollback", f"--lost-nodes={fourth.name}", password=PASSWORD)
    assert found.status == 0, found
    assert f"Node {fourth.name} lets this node's key in" in found.out
    assert [keys_of(machine) for machine in rig.machines[:3]] == before[:3]
    rig.start(fourth)  # all the same
    fourth.wait_until("systemctl is-system-running --quiet")
    add_bridge(fourth)
    fourth.run("cat > /root/.ssh/authorized_keys", "\n".join(before[3]) + "\n")
    other.run(f"gnt-instance start {GUEST}")
    for master in (own, other):
        assert_healthy(master)


def test_two_clusters_become_one(rig: Containers) -> None:
    own, _, other, fourth = rig.machines
    other.run(f"echo 'gone-uuid {GONE}' >> /var/lib/ganeti/ganeti_pub_keys")
    fourth.run(f"echo '{GONE}' >> /root/.ssh/authorized_keys")
    found = merge(own, "--groups=rename", OTHER, password=PASSWORD)
    assert_well(found)
    assert nodes_of(own) == [machine.name for machine in rig.machines]
    rows = own.run("gnt-instance list --no-headers --separator=: -o name,pnode,status").split()
    assert rows == [f"{GUEST}:{fourth.name}:running", f"{IDLE}:{other.name}:ADMIN_down"]
    fourth.run(QEMU)
    assert_healthy(own)
    assert "not paused" in own.run("gnt-cluster watcher info")
    greeting = own.run("gnt-cluster command hostname --fqdn")
    assert all(machine.name in greeting for machine in rig.machines)
    host_keys = {machine.run("cat /etc/ssh/ssh_host_rsa_key.pub") for machine in rig.machines}
    assert len(host_keys) == 1
    master_key = own.run("cat /root/.ssh/id_rsa.pub").split()[1]
    for machine in (other, fourth):
        assert any(master_key in line for line in keys_of(machine))
        assert GONE not in keys_of(machine), "no candidate has it any more"
        kept = machine.run("ls /var/backups/ganeti-*/var/lib/ganeti/config.data").split()
        assert len(kept) == 1, "the other cluster's configuration"
    assert OTHER_ADDRESS not in other.run("ip address show eth0")
    own.run("! ls /var/lib/ganeti | grep cluster-merge | grep --invert-match '[.]lock$'")


def test_a_node_that_was_taken_in_can_become_the_master(rig: Containers) -> None:
    own, _, other, _ = rig.machines
    own.run(f"gnt-node modify --master-candidate=yes {other.name}")
    other.run("gnt-cluster master-failover")
    assert other.run("gnt-cluster getmaster").strip() == other.name
    other.wait_until(f"ip address show eth0 | grep {MASTER_ADDRESS}")
    other.wait_until("gnt-instance list --no-headers -o status | grep running")
    assert_healthy(other)
