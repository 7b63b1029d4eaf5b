"""The Debian package on fresh machines: installed, used, upgraded, purged; and 3.0.2 and back.

Guests run on through each change.  The tests build on one another, in the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import packages
from rig.containers import CLUSTER_NAME, Machine, containers

from ganeti.base.daemons import DAEMONS

from .test_containers import QEMU, active, add_bridge, all_healthy, assert_healthy

APT = "DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes --no-install-recommends"
INIT = (
    "gnt-cluster init --master-netdev=eth0 --enabled-hypervisors=kvm"
    f" --enabled-disk-templates=file,diskless -H kvm:kernel_path= -N link=br0 {CLUSTER_NAME}"
)
ADD = (
    "gnt-instance add -t file -s 1g -o bootsector+default -n node1 --no-name-check --no-ip-check"
    " -B memory=128 guest.example.com"
)
USERS = {daemon.name: daemon.user for daemon in DAEMONS if not daemon.only_with}


@pytest.fixture(scope="module")
def deb(root: None) -> Path:
    return packages.package()


def put(machine: Machine, deb: Path) -> None:
    machine.run("cat > /srv/ganeti-python.deb", deb.read_bytes())


def prepare(machine: Machine) -> None:
    add_bridge(machine)
    machine.run("mkdir -p /etc/ganeti /srv/ganeti/file-storage")
    machine.run("echo /srv/ganeti/file-storage > /etc/ganeti/file-storage-paths")


@pytest.fixture(scope="module")
def fresh(deb: Path) -> Iterator[Machine]:
    """A Debian that never had Ganeti."""
    with containers(1, packages.repository(*packages.NEEDED)) as running:
        machine = running.machines[0]
        machine.run("apt-get update")
        prepare(machine)
        put(machine, deb)
        yield machine


def users_of(machine: Machine) -> dict[str, str]:
    """Return the user of each daemon that runs."""
    said = machine.run(
        "for file in /run/ganeti/*.pid; do"
        ' echo "$(basename $file .pid) $(stat -c %U /proc/$(cat $file))"; done'
    )
    return dict(line.split() for line in said.splitlines())


def test_it_is_installed_and_waits_for_a_cluster(fresh: Machine) -> None:
    fresh.run(f"{APT} install /srv/ganeti-python.deb")
    all_healthy(fresh)
    assert active(fresh) == set()
    assert "3.0.2" in fresh.run("gnt-cluster --version")
    fresh.run("test -e /usr/share/man/man8/gnt-cluster.8.gz -a -x /usr/lib/ganeti/ensure-dirs")


def test_a_cluster_works_with_a_user_for_each_daemon(fresh: Machine) -> None:
    fresh.run(INIT)
    assert users_of(fresh) == USERS
    fresh.run(ADD)
    assert fresh.run("gnt-instance list --no-headers -o status").split() == ["running"]
    assert_healthy(fresh)
    assert fresh.run("/usr/lib/ganeti/ensure-dirs --dry-run") == ""


def test_daemon_util_stops_and_starts_what_systemd_runs(fresh: Machine) -> None:
    guest = fresh.run(QEMU)
    fresh.run("/usr/lib/ganeti/daemon-util stop-all")
    assert active(fresh) == set()
    assert fresh.try_run("/usr/lib/ganeti/daemon-util check ganeti-noded").status == 3
    fresh.run("/usr/lib/ganeti/daemon-util start-all")
    fresh.run("/usr/lib/ganeti/daemon-util check ganeti-luxid")
    assert {name.removesuffix(".service") for name in active(fresh)} >= {*USERS}
    assert fresh.run(QEMU) == guest


def test_an_upgrade_of_the_package_restarts_daemons_and_no_guest(fresh: Machine) -> None:
    guest, daemon = fresh.run(QEMU), fresh.run("cat /run/ganeti/ganeti-noded.pid")
    fresh.run(f"{APT} install --reinstall /srv/ganeti-python.deb")
    all_healthy(fresh)
    assert users_of(fresh) == USERS
    assert fresh.run("cat /run/ganeti/ganeti-noded.pid") != daemon
    assert fresh.run(QEMU) == guest
    assert_healthy(fresh)


def test_a_purge_keeps_the_state_of_a_cluster(fresh: Machine) -> None:
    guest = fresh.run(QEMU)
    fresh.run(f"{APT} purge ganeti-python")
    assert fresh.run(QEMU) == guest
    fresh.run("test -s /var/lib/ganeti/config.data")
    fresh.run("! test -e /usr/lib/ganeti-python && ! test -e /usr/sbin/gnt-cluster")
    fresh.run(f"{APT} install /srv/ganeti-python.deb")
    fresh.wait_until("gnt-instance list --no-headers -o status | grep running")


def test_a_purge_leaves_nothing_of_a_machine_without_a_cluster(fresh: Machine) -> None:
    fresh.run("gnt-instance remove -f guest.example.com")
    fresh.run("gnt-cluster destroy --yes-do-it")
    fresh.run(f"{APT} purge ganeti-python")
    left = fresh.run(
        "find / -xdev \\( -path /proc -o -path /sys -o -path /srv -o -path /var/backups \\) -prune"
        " -o \\( -iname '*ganeti*' -o -name 'gnt-*' \\) -print"
    )
    assert left.split() == ["/etc/ganeti"] or left == ""
    all_healthy(fresh)
