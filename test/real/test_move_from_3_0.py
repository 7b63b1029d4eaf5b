"""An instance moves between a cluster of Debian's Ganeti 3.0.2 and one of ours, there and back.

Both tools move it, ours and that of 3.0.  The tests build on one another, in the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from rig import packages
from rig.containers import CLUSTER_NAME, NETWORK, Machine, containers

APT = "DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes --no-install-recommends"
FILE = "/root/ganeti-python_0_amd64.deb"
NAME = "web.example.com"
OTHER_NAME = "other.example.com"
HOSTS = f"{NETWORK}101 {OTHER_NAME}\n{NETWORK}200 {NAME}\n"
STORAGE = "/srv/ganeti/file-storage"
SYSTEM = "/srv/ganeti/os/dump"
SECRET = "/var/lib/ganeti/cluster-domain-secret"
PASSWORD = "not-a-secret"
DISKS_MIB = (24, 16)
SCRIPTS = {
    "create": "exit 0",
    "rename": "exit 0",
    "verify": "exit 0",
    "export": 'exec dd "if=$EXPORT_DEVICE" bs=1M',
    "import": 'exec dd "of=$IMPORT_DEVICE" bs=1M conv=notrunc,fsync',
}
FAILS = "dd of=/dev/null bs=1M; exit 3"
BOUNDS = (
    "min:cpu-count=1,disk-count=0,disk-size=16,memory-size=16,nic-count=0,spindle-use=1"
    "/max:cpu-count=8,disk-count=16,disk-size=1048576,memory-size=32768,nic-count=8,spindle-use=12"
)


@dataclass
class Place:
    """One of the two clusters, of one machine, and the tool that it brings."""

    machine: Machine
    name: str
    tool: str = "/usr/lib/ganeti/tools/move-instance"

    def prepare(self) -> None:
        run = self.machine.run
        run("cat >> /etc/hosts", HOSTS)
        run("apt-get update")
        run("ip link add br0 type bridge && ip link set br0 up")
        run(f"mkdir -p /etc/ganeti {STORAGE} {SYSTEM}")
        run(f"echo {STORAGE} > /etc/ganeti/file-storage-paths")
        run(f"cd {SYSTEM}; echo 20 > ganeti_api_version; echo default > variants.list")
        run(f"touch {SYSTEM}/parameters.list")
        for name, text in SCRIPTS.items():
            self.write_script(name, text)

    def write_script(self, name: str, text: str) -> None:
        path = f"{SYSTEM}/{name}"
        self.machine.run(f"cat > {path}; chmod +x {path}", f"#!/bin/sh\n{text}\n")

    def init(self) -> None:
        self.machine.run(
            "gnt-cluster init --master-netdev=eth0 --enabled-hypervisors=fake"
            f" --enabled-disk-templates=file,diskless -N link=br0 {self.name}"
        )
        self.machine.run(f"gnt-cluster modify --ipolicy-bounds-specs={BOUNDS}")
        self.machine.run("cat > /root/password", f"{PASSWORD}\n")

    def status(self) -> list[str]:
        """Return the status of the instance, if it is here."""
        return self.machine.run("gnt-instance list --no-headers -o status").split()

    def checksums(self) -> list[str]:
        """Return those of its disks."""
        files = f"$(find {STORAGE} -name '*.disk?' -type f)"
        return sorted(line.split()[0] for line in self.machine.run(f"md5sum {files}").splitlines())

    def move(self, source: Place, goal: Place, *options: str) -> tuple[int, str]:
        """Move it by this cluster's tool; returns the exit status and what was printed."""
        words = [f"--dest-primary-node={goal.machine.name}"]
        for option, place in (("src", source), ("dest", goal)):
            words += [
                f"--{option}-ca-file=/root/{place.name}.pem",
                f"--{option}-username=mover",
                f"--{option}-password-file=/root/password",
            ]
        answer = self.machine.try_run(
            " ".join([self.tool, *words, *options, source.name, goal.name, NAME])
        )
        return answer.status, answer.out + answer.err


@dataclass
class Pair:
    """Both clusters, and the checksums of the disks."""

    theirs: Place
    ours: Place
    disks: list[str]


@pytest.fixture(scope="module")
def pair(root: None) -> Iterator[Pair]:
    """A cluster of 3.0.2 with an instance, and one of ours without."""
    deb = packages.package()
    with containers(2, packages.repository(*packages.GANETI_3_0)) as running:
        first, second = running.machines
        # Without a number of tries, that tool of 3.0.2 ends with a traceback.
        tool = f"{Place.tool} --verbose --opportunistic-tries=0"
        theirs, ours = Place(first, CLUSTER_NAME, tool), Place(second, OTHER_NAME)
        for place in (theirs, ours):
            place.prepare()
        first.run(f"{APT} install ganeti")
        second.run(f"cat > {FILE}", deb.read_bytes())
        second.run(f"{APT} install {FILE}")
        for place in (theirs, ours):
            place.init()
        _join(theirs, ours)
        sizes = " ".join(f"--disk {index}:size={mib}m" for index, mib in enumerate(DISKS_MIB))
        first.run(
            f"gnt-instance add -t file {sizes} -o dump+default -n {first.name} --no-name-check"
            f" --no-ip-check --no-start -B memory=64 {NAME}"
        )
        first.run(
            f"for file in $(find {STORAGE} -name '*.disk?' -type f); do"
            f" dd if=/dev/urandom of=$file bs=1M count={DISKS_MIB[1]} conv=notrunc; done"
        )
        first.run(f"gnt-instance startup {NAME}")
        found = Pair(theirs, ours, theirs.checksums())
        assert len(found.disks) == len(DISKS_MIB)
        yield found


def _join(theirs: Place, ours: Place) -> None:
    """Let both know the same secret, users, and each other's certificates."""
    first, second = theirs.machine, ours.machine
    second.run("cat > /root/secret", first.run(f"cat {SECRET}"))
    second.run("gnt-cluster renew-crypto -f --cluster-domain-secret=/root/secret")
    first.run("cat > /var/lib/ganeti/rapi/users", f"mover {PASSWORD} write\n")
    first.run("chown gnt-rapi: /var/lib/ganeti/rapi/users")
    first.run(
        "sed -i 's/^RAPI_ARGS=.*/RAPI_ARGS=\"--require-authentication\"/' /etc/default/ganeti"
    )
    first.run("/usr/lib/ganeti/daemon-util stop ganeti-rapi")
    first.run("/usr/lib/ganeti/daemon-util start ganeti-rapi")
    second.run("gnt-rapi set-user --rights=read,write mover", f"{PASSWORD}\n")
    for place in (theirs, ours):
        pem = place.machine.run("sed -n '/BEGIN CERT/,$p' /var/lib/ganeti/rapi.pem")
        for machine in (first, second):
            machine.run(f"cat > /root/{place.name}.pem", pem)


def assert_is_at(pair: Pair, place: Place) -> None:
    """Compare the instance with what was once written."""
    other = pair.theirs if place is pair.ours else pair.ours
    assert place.status() == ["running"]
    assert other.status() == []
    assert place.checksums() == pair.disks


def test_from_3_0_by_our_tool(pair: Pair) -> None:
    assert pair.ours.move(pair.theirs, pair.ours, "--dry-run")[0] == 0
    status, said = pair.ours.move(pair.theirs, pair.ours)
    assert status == 0, said
    assert_is_at(pair, pair.ours)


def test_our_tool_notices_what_3_0_takes_for_a_success(pair: Pair) -> None:
    pair.theirs.write_script("import", FAILS)
    status, said = pair.ours.move(pair.ours, pair.theirs)
    assert status == 1
    assert "failed to receive data" in said
    assert "the instance runs again in the source cluster" in said
    assert_is_at(pair, pair.ours)
    pair.theirs.write_script("import", SCRIPTS["import"])


def test_to_3_0_by_our_tool_packed(pair: Pair) -> None:
    status, said = pair.ours.move(pair.ours, pair.theirs, "--compress=gzip")
    assert status == 0, said
    assert_is_at(pair, pair.theirs)


def test_3_0_notices_what_we_could_not_write(pair: Pair) -> None:
    pair.ours.write_script("import", FAILS)
    _, said = pair.theirs.move(pair.theirs, pair.ours)
    assert "Export failed, errors in disk export: disk(s) 0, 1" in said
    assert pair.ours.status() == []
    assert len(pair.theirs.status()) == 1, "it is still there"
    assert pair.theirs.checksums() == pair.disks
    pair.theirs.machine.run(f"gnt-instance startup {NAME}")
    pair.ours.write_script("import", SCRIPTS["import"])


def test_from_3_0_by_its_own_tool_packed(pair: Pair) -> None:
    status, said = pair.theirs.move(pair.theirs, pair.ours, "--compress=gzip-fast")
    assert status == 0, said
    assert_is_at(pair, pair.ours)


def test_to_3_0_by_its_own_tool(pair: Pair) -> None:
    status, said = pair.theirs.move(pair.ours, pair.theirs)
    assert status == 0, said
    assert_is_at(pair, pair.theirs)


def test_nothing_is_left_of_transfers(pair: Pair) -> None:
    left = pair.ours.machine.run("ls -A /run/ganeti/crypto; ls -A /run/ganeti/import-export")
    assert left == ""
