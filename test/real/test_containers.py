"""Three machines with systemd, installed and joined by the commands of doc/installation.md.

The tests build on one another, in the order of the file: a cluster is made, used, hurt and mended.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig.containers import (
    MASTER_ADDRESS,
    Containers,
    Machine,
    add_bridge,
    assert_healthy,
    containers,
)
from rig.installed import commands

from ganeti.base.daemons import DAEMONS, Place

NODE_DAEMONS = {d.name for d in DAEMONS if d.place is Place.NODE and not d.only_with}
MASTER_DAEMONS = {daemon.name for daemon in DAEMONS if daemon.place is Place.MASTER}
WATCHDOG_S = 60.0  # of each unit
QEMU = "pgrep --full qemu-system"


@pytest.fixture(scope="module")
def rig(installed: Path) -> Iterator[Containers]:
    with containers(3, installed) as running:
        for machine in running.machines:
            for command in commands("prepare"):
                machine.run(command)
            add_bridge(machine)
        yield running


def active(machine: Machine) -> set[str]:
    units = machine.run(
        "systemctl list-units --state=active --no-legend --plain 'ganeti-*.service'"
    )
    return {line.split()[0].removesuffix(".service") for line in units.splitlines()}


def all_healthy(machine: Machine) -> None:
    """Wait until no unit is starting any more, and none has failed."""
    machine.wait_until("systemctl is-system-running --quiet")


def follow_page(machine: Machine, section: str) -> None:
    for command in commands(section):
        answer = machine.try_run(command)
        if not command.startswith("gnt-cluster verify"):
            assert answer.status == 0, f"{command}: {answer}"
    if "gnt-cluster verify" in commands(section):
        assert_healthy(machine)


def test_units_are_in_order_before_there_is_a_cluster(rig: Containers) -> None:
    machine = rig.machines[0]
    units = " ".join(f"{name}.service" for name in NODE_DAEMONS | MASTER_DAEMONS)
    units += " ganeti-watcher.timer ganeti-cleaner-node.timer ganeti-cleaner-master.timer"
    assert machine.run(f"systemd-analyze --man=no verify ganeti.target {units} 2>&1") == ""
    all_healthy(machine)
    assert active(machine) == set()
    assert "enabled" in machine.run(f"systemctl is-enabled {units}")


def test_a_cluster_is_made_and_systemd_runs_its_daemons(rig: Containers) -> None:
    first = rig.machines[0]
    follow_page(first, "init")
    assert active(first) == NODE_DAEMONS | MASTER_DAEMONS
    assert MASTER_ADDRESS in first.wait_until(f"ip address show eth0 | grep {MASTER_ADDRESS}")


def test_machines_join_over_ssh(rig: Containers) -> None:
    first, *others = rig.machines
    stranger = first.try_run("gnt-node add node2.example.com")
    assert stranger.status
    assert "ssh-copy-id" in stranger.err
    key = first.run("cat /root/.ssh/id_rsa.pub")
    for machine in others:
        machine.run("cat >> /root/.ssh/authorized_keys", key)
    follow_page(first, "join")
    for machine in others:
        assert active(machine) == NODE_DAEMONS
    host_keys = {machine.run("cat /etc/ssh/ssh_host_rsa_key.pub") for machine in rig.machines}
    assert len(host_keys) == 1
    greeting = first.run("gnt-cluster command hostname --fqdn")
    assert all(machine.name in greeting for machine in rig.machines)


def test_a_guest_runs(rig: Containers) -> None:
    first = rig.machines[0]
    follow_page(first, "instance")
    first.run(
        "gnt-instance add -t file -s 1g -o bootsector+default -n node1 --no-name-check --no-ip-check"
        " -B memory=128 guest.example.com"
    )
    assert first.run("gnt-instance list --no-headers -o status").split() == ["running"]


@pytest.mark.parametrize("daemon", sorted(NODE_DAEMONS | MASTER_DAEMONS))
def test_guests_outlive_the_restart_of_any_daemon(rig: Containers, daemon: str) -> None:
    first = rig.machines[0]
    guest = first.run(QEMU)
    before = first.run(f"systemctl show --property=MainPID {daemon}")
    first.run(f"systemctl restart {daemon}")
    assert first.run(f"systemctl show --property=MainPID {daemon}") != before
    assert first.run(QEMU) == guest
    assert first.run("gnt-instance list --no-headers -o status").split() == ["running"]


@pytest.mark.parametrize("daemon", sorted(NODE_DAEMONS | MASTER_DAEMONS))
def test_a_daemon_that_was_killed_comes_back(rig: Containers, daemon: str) -> None:
    first = rig.machines[0]
    before = first.run(f"cat /run/ganeti/{daemon}.pid").strip()
    first.run(f"systemctl kill --kill-who=main --signal=KILL {daemon}")
    first.wait_until(
        f"systemctl is-active --quiet {daemon} && [ $(cat /run/ganeti/{daemon}.pid) != {before} ]"
    )
    all_healthy(first)
    assert first.run("gnt-instance list --no-headers -o status").split() == ["running"]


@pytest.mark.parametrize(
    "daemons",
    [("ganeti-luxid",), ("ganeti-wconfd",), ("ganeti-luxid", "ganeti-wconfd")],
    ids=["luxid", "wconfd", "both"],
)
def test_one_that_hangs_is_replaced_long_before_the_watchdog_of_its_unit(
    rig: Containers, daemons: tuple[str, ...]
) -> None:
    first = rig.machines[0]
    before = {each: first.run(f"cat /run/ganeti/{each}.pid").strip() for each in daemons}
    begun = time.monotonic()
    first.run(f"kill -STOP {' '.join(before.values())}")
    for daemon, pid in before.items():
        first.wait_until(
            f"systemctl is-active --quiet {daemon} && [ $(cat /run/ganeti/{daemon}.pid) != {pid} ]"
        )
    first.run("gnt-debug delay 0")
    assert time.monotonic() - begun < WATCHDOG_S / 2
    shown = first.run(f"systemctl show --property=Result,NRestarts {daemons[0]}")
    assert "Result=success" in shown, "systemd runs the new one"


def test_guests_outlive_stopping_everything(rig: Containers) -> None:
    first = rig.machines[0]
    guest = first.run(QEMU)
    first.run("systemctl stop 'ganeti*'")
    assert active(first) == set()
    assert first.run(QEMU) == guest
    first.run("systemctl start ganeti.target")
    all_healthy(first)
    first.wait_until("systemctl is-active --quiet ganeti-rapi")
    assert active(first) == NODE_DAEMONS | MASTER_DAEMONS
    assert first.run("gnt-instance list --no-headers -o status").split() == ["running"]


def test_a_guest_runs_under_a_user_id_of_the_pool(rig: Containers) -> None:
    first = rig.machines[0]
    first.run("gnt-cluster modify --uid-pool 6000-6001")
    first.run("gnt-instance modify -H security_model=pool guest.example.com")
    first.run("gnt-instance reboot --type=full guest.example.com")
    assert re.fullmatch(r"600[01]", first.run("ps -o uid= -C qemu-system-x86_64").strip())


def test_a_node_that_was_restarted_is_back_by_itself(rig: Containers) -> None:
    first, second, _ = rig.machines
    rig.reboot(second)
    all_healthy(second)
    assert active(second) == NODE_DAEMONS
    add_bridge(second)
    assert_healthy(first)


def test_a_master_that_was_restarted_is_master_again(rig: Containers) -> None:
    first = rig.machines[0]
    rig.reboot(first)
    all_healthy(first)
    assert active(first) == NODE_DAEMONS | MASTER_DAEMONS
    first.wait_until(f"ip address show eth0 | grep {MASTER_ADDRESS}")
    assert first.run("gnt-instance list --no-headers -o status").split() == ["ERROR_down"]
    add_bridge(first)
    first.run("gnt-instance start guest.example.com")
    assert_healthy(first)


def test_the_master_changes_and_takes_its_address_along(rig: Containers) -> None:
    first, second, third = rig.machines
    second.run("gnt-cluster master-failover")
    second.wait_until(f"ip address show eth0 | grep {MASTER_ADDRESS}")
    assert MASTER_ADDRESS not in first.run("ip address show eth0")
    assert active(second) == NODE_DAEMONS | MASTER_DAEMONS
    assert active(first) == NODE_DAEMONS
    third.run(f"ping -c 1 -W 20 {MASTER_ADDRESS}")
    assert_healthy(second)


def test_a_new_master_does_not_wait_for_a_dead_one(rig: Containers) -> None:
    _, second, third = rig.machines
    rig.pull_plug(second)
    third.run("gnt-cluster master-failover")
    assert active(third) == NODE_DAEMONS | MASTER_DAEMONS
    third.wait_until(f"ip address show eth0 | grep {MASTER_ADDRESS}")
    third.run("gnt-node modify --offline=yes node2.example.com")


def test_an_old_master_that_comes_back_knows_its_place(rig: Containers) -> None:
    _, second, third = rig.machines
    rig.start(second)
    # It is no candidate any more, so the others do not answer it, and each daemon asks for a minute.
    second.wait_until("systemctl is-system-running --quiet", 300)
    # Only the remote API, a face without a say, hears of it when the node comes back to the cluster.
    assert active(second) - {"ganeti-rapi"} == NODE_DAEMONS
    assert MASTER_ADDRESS not in second.run("ip address show eth0")
    add_bridge(second)
    third.run("gnt-node add --readd node2.example.com")
    second.wait_until("! systemctl is-active --quiet ganeti-rapi")
    assert active(second) == NODE_DAEMONS
    assert_healthy(third)


def test_a_node_leaves(rig: Containers) -> None:
    _, second, third = rig.machines
    third.run("gnt-node remove node2.example.com")
    second.wait_until("! systemctl is-active --quiet ganeti-noded")
    assert active(second) == set()
    assert second.run("ls /var/lib/ganeti/*.pem 2>/dev/null || true") == ""
