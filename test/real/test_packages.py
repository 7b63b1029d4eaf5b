"""The Debian package on fresh machines: installed, used, upgraded, purged; and 3.0.2 and back.

Guests run on through each change.  The tests build on one another, in the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import packages
from rig.containers import CLUSTER_NAME, Containers, Machine, assert_healthy, containers

from ganeti.base.daemons import DAEMONS

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
QEMU = "pgrep --full ^/usr/bin/qemu-system"
# The programs of an unpacked package.
UNPACKED = (
    "PYTHONPATH=$(echo /root/new/usr/lib/ganeti-python/lib/python3.*/site-packages)"
    " python3 /root/new/usr/lib/ganeti-python/bin/gnt-cluster"
)
FILE = "/root/ganeti-python_0_amd64.deb"


@pytest.fixture(scope="module")
def deb(root: None) -> Path:
    return packages.package()


def active(machine: Machine) -> set[str]:
    units = machine.run(
        "systemctl list-units --state=active --no-legend --plain 'ganeti-*.service'"
    )
    return {line.split()[0].removesuffix(".service") for line in units.splitlines()}


def all_healthy(machine: Machine) -> None:
    """Wait until no unit is starting any more, and none has failed."""
    machine.wait_until("systemctl is-system-running | grep -qv -e starting -e initializing")
    assert machine.run("systemctl list-units --failed --plain --no-legend") == ""


def statuses(machine: Machine) -> list[str]:
    return machine.run("gnt-instance list --no-headers -o status").split()


def put(machine: Machine, deb: Path) -> None:
    machine.run(f"cat > {FILE}", deb.read_bytes())


def prepare(machine: Machine) -> None:
    machine.run("apt-get update")
    machine.run("ip link add br0 type bridge && ip link set br0 up")
    machine.run("mkdir -p /etc/ganeti /srv/ganeti/file-storage")
    machine.run("echo /srv/ganeti/file-storage > /etc/ganeti/file-storage-paths")


@pytest.fixture(scope="module")
def fresh(deb: Path) -> Iterator[Machine]:
    """A Debian that never had Ganeti."""
    with containers(1, packages.repository(*packages.NEEDED)) as running:
        machine = running.machines[0]
        prepare(machine)
        put(machine, deb)
        yield machine


def users_of(machine: Machine) -> dict[str, str]:
    """Return the user of each daemon that runs."""
    said = machine.run(
        "for file in /run/ganeti/*.pid; do"
        ' echo "$(basename $file .pid) $(stat -c %U /proc/$(cat $file))"; done'
    )
    rows = (line.split() for line in said.splitlines())
    return {
        row[0]: row[1] for row in rows if len(row) == 2
    }  # 3.0 may leave a file of one that ended


def test_it_is_installed_and_waits_for_a_cluster(fresh: Machine) -> None:
    fresh.run(f"{APT} install {FILE}")
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
    # Confined daemons see who their clients are.
    fresh.run("grep gnt-instance /var/log/ganeti/audit.log")


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
    fresh.run(f"{APT} install --reinstall {FILE}")
    all_healthy(fresh)
    assert users_of(fresh) == USERS
    assert fresh.run("cat /run/ganeti/ganeti-noded.pid") != daemon
    assert fresh.run(QEMU) == guest
    assert_healthy(fresh)


def test_a_removal_that_is_given_up_leaves_all_at_work(fresh: Machine) -> None:
    guest, before = fresh.run(QEMU), active(fresh)
    rotation = "/etc/logrotate.d/ganeti-python"
    fresh.run(f"rm {rotation} && {APT} install --reinstall {FILE} && ! test -e {rotation}")
    # The package's own script fails, when all daemons are stopped and settings are back.
    fresh.run("echo false >> /var/lib/dpkg/info/ganeti-python.prerm")
    fresh.run(f"! {APT} remove ganeti-python")
    fresh.run("sed -i '$d' /var/lib/dpkg/info/ganeti-python.prerm")
    assert "install ok installed" in fresh.run(
        "dpkg-query --show --showformat='${Status}' ganeti-python"
    )
    all_healthy(fresh)
    assert active(fresh) == before
    assert fresh.run(QEMU) == guest
    assert_healthy(fresh)


def test_a_purge_keeps_the_state_of_a_cluster(fresh: Machine) -> None:
    guest = fresh.run(QEMU)
    fresh.run(f"{APT} purge ganeti-python")
    assert fresh.run(QEMU) == guest
    fresh.run("test -s /var/lib/ganeti/config.data")
    fresh.run("! test -e /usr/lib/ganeti-python && ! test -e /usr/sbin/gnt-cluster")
    fresh.run(f"{APT} install {FILE}")
    fresh.run("test -e /etc/logrotate.d/ganeti-python")
    fresh.wait_until("gnt-instance list --no-headers -o status | grep running")


def test_a_purge_leaves_nothing_of_a_machine_without_a_cluster(fresh: Machine) -> None:
    fresh.run("gnt-instance remove -f guest.example.com")
    fresh.run("gnt-cluster destroy --yes-do-it")
    fresh.run(f"{APT} purge ganeti-python")
    left = fresh.run(
        "find / -xdev \\( -path /proc -o -path /sys -o -path /srv -o -path /var/backups \\) -prune"
        f" -o \\( -iname '*ganeti*' -o -name 'gnt-*' \\) ! -path '{FILE}' ! -path '/var/lib/systemd/*' -print"
    )
    assert set(left.split()) <= {"/etc/ganeti", "/etc/ganeti/file-storage-paths"}
    all_healthy(fresh)


@pytest.fixture(scope="module")
def old(deb: Path) -> Iterator[Containers]:
    """Two nodes of Debian's Ganeti 3.0.2, each with a guest."""
    with containers(2, packages.repository(*packages.GANETI_3_0)) as running:
        first, second = running.machines
        for machine in running.machines:
            prepare(machine)
            machine.run(f"{APT} install ganeti")
        put(first, deb)
        first.run(f"dpkg -x {FILE} /root/new")
        example = first.run("cd /root/new/usr/share/ganeti/os; tar -c bootsector | base64")
        for machine in running.machines:
            machine.run("mkdir -p /srv/ganeti/os; base64 -d | tar -x -C /srv/ganeti/os", example)
        emulated = "kvm_path=/usr/bin/qemu-system-x86_64,kvm_flag=disabled,vnc_bind_address="
        first.run(INIT.replace("kernel_path=", f"kernel_path=,{emulated}"))
        key = first.run("cat /root/.ssh/id_rsa.pub")
        second.run("cat >> /root/.ssh/authorized_keys", key)
        first.run(f"ssh-keyscan {second.name} {second.address} >> /root/.ssh/known_hosts")
        first.run(f"gnt-node add --no-ssh-key-check {second.name}")
        for number, machine in enumerate(running.machines, 1):
            first.run(guest(f"guest{number}.example.com", machine.name))
        yield running


def guest(name: str, node: str) -> str:
    return ADD.replace("guest.example.com", name).replace("-n node1", f"-n {node}")


def guests(running: Containers) -> list[str]:
    return [machine.run(QEMU) for machine in running.machines]


def test_a_cluster_of_3_0_2_is_taken_over_with_its_guests(old: Containers) -> None:
    first, second = old.machines
    before = guests(old)
    said = first.run(f"{UNPACKED} upgrade --to {FILE}")
    assert "All nodes have" in said
    assert guests(old) == before
    assert users_of(first) == USERS
    assert statuses(first) == ["running"] * 2
    for machine in old.machines:
        assert "ganeti-python" in machine.run("dpkg-query --show ganeti-python")
        all_healthy(machine)
    assert_healthy(first)
    first.run("gnt-instance reboot --type=full guest2.example.com")
    first.run(guest("guest3.example.com", second.name))
    assert statuses(first) == ["running"] * 3


def test_and_goes_back_with_its_guests(old: Containers) -> None:
    first, _ = old.machines
    before = guests(old)
    said = first.run("gnt-cluster upgrade --to ganeti=3.0.2-3")
    assert "All nodes have" in said
    assert guests(old) == before
    assert "ganeti-3.0" in first.run("dpkg-query --show ganeti-3.0")
    assert statuses(first) == ["running"] * 3
    first.run("gnt-instance reboot guest1.example.com")
    first.run("gnt-instance shutdown guest3.example.com")
    first.run("gnt-instance startup guest3.example.com")
    assert statuses(first) == ["running"] * 3
    assert first.run("ls /etc/cron.d/ganeti /etc/init.d/ganeti").split()
    starts = "ls /etc/rc?.d/*ganeti*; systemctl is-enabled ganeti; systemctl is-active ganeti"
    before = first.run(f"{starts}; true")
    assert "active" in before.split()
    first.run(f"{APT} purge ganeti-python")  # what is left of it
    assert first.run(f"{starts}; true") == before
    assert guests(old)[0]


def test_a_node_of_ours_under_a_master_of_3_0_2(old: Containers) -> None:
    first, second = old.machines
    second.run(f"{APT} install {FILE}")
    first.run("gnt-instance reboot guest2.example.com")
    first.run(guest("guest4.example.com", second.name))
    first.run("gnt-instance grow-disk guest4.example.com 0 10m")
    assert statuses(first) == ["running"] * 4
    first.run("gnt-instance remove -f guest4.example.com")
    written = first.run("md5sum < /var/lib/ganeti/config.data").strip()
    second.wait_until(f"md5sum < /var/lib/ganeti/config.data | grep '{written}'")


def test_a_daemon_that_hangs_is_started_anew(old: Containers) -> None:
    _, second = old.machines
    daemon = second.run("cat /run/ganeti/ganeti-noded.pid").strip()
    before = second.run(QEMU)
    second.run(f"kill -STOP {daemon}")
    second.wait_until(f"[ $(cat /run/ganeti/ganeti-noded.pid) != {daemon} ]", 150)
    all_healthy(second)
    assert second.run(QEMU) == before
