"""Instances that move between two virtual clusters: real streams, real remote APIs, real failures."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes.rapi import DAEMON, write_users
from fakes.virtual_cluster import TIMEOUT_S, TestCluster, own_cluster
from fakes.waiting import wait_until

from ganeti.base.daemons import FACES
from ganeti.system import process

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOL = os.path.join(ROOT, "tools", "move-instance")
NAME = "web1.example.com"
OTHER_FACES = tuple(face for face in FACES if face != DAEMON)
DISKS_MIB = (4, 3)
TOOL_TIMEOUT_S = 2 * TIMEOUT_S  # it runs a dozen jobs
# Says that it is there, and waits until it is let go, or nobody wants what it waits for any more.
IMPORT = """#!/bin/sh
touch "{place}/begun.$IMPORT_INDEX"
while [ -e "{place}/hold" ]; do [ -e "$IMPORT_DEVICE" ] || exit 1; sleep 0.1; done
exec cat > "$IMPORT_DEVICE"
"""
EXPORT = """#!/bin/sh
exec cat "$EXPORT_DEVICE"
"""


@dataclass(frozen=True)
class Ended:
    """How a run of the tool ended."""

    status: int
    text: str


class Pair:
    """Two clusters, and the tool between them; ``place`` is where scripts and the test meet."""

    def __init__(self, source: TestCluster, destination: TestCluster, place: Path) -> None:
        self.source = source
        self.destination = destination
        self.place = place
        self.hold = place / "hold"
        self.begun = [place / f"begun.{index}" for index in range(len(DISKS_MIB))]
        self.password = place / "password"
        self.password.write_text("secret\n")

    @property
    def clusters(self) -> tuple[TestCluster, TestCluster]:
        return self.source, self.destination

    def prepare(self) -> None:
        """Give both an operating system and users."""
        for cluster in self.clusters:
            write_users(cluster.paths)
            directory = Path(cluster.paths.os_search_path[0]) / "gate"
            directory.mkdir()
            (directory / "ganeti_api_version").write_text("10\n")
            for kind, text in (
                ("create", "#!/bin/sh\n"),
                ("rename", "#!/bin/sh\n"),
                ("import", IMPORT),
                ("export", EXPORT),
            ):
                script = directory / kind
                script.write_text(text.format(place=self.place))
                script.chmod(0o755)

    def start(self, *words: str) -> tuple[process.Child, Path]:
        """Start the tool; returns it and the file with what it says."""
        said = self.place / "said"
        argv = [sys.executable, TOOL]
        for prefix, cluster in zip(("src", "dest"), self.clusters, strict=True):
            argv += [
                f"--{prefix}-username=writer",
                f"--{prefix}-password-file={self.password}",
                f"--{prefix}-ca-file={cluster.paths.rapi_pem}",
            ]
        argv += [f"--dest-primary-node={self.destination.master}", *words]
        argv += [cluster.layout.address_of(cluster.master) for cluster in self.clusters]
        with said.open("wb") as output:
            child = process.spawn(
                [*argv, NAME], env={**os.environ}, stdout=output.fileno(), stderr=output.fileno()
            )
        return child, said

    def end(self, started: tuple[process.Child, Path]) -> Ended:
        child, said = started
        status = child.wait(TOOL_TIMEOUT_S)
        text = said.read_text()
        assert "Traceback" not in text, text
        return Ended(status, text)

    def run(self, *words: str) -> Ended:
        return self.end(self.start(*words))

    def start_and_hold(self) -> tuple[process.Child, Path]:
        """Start the tool; returns once all disks are on their way, which takes no end."""
        for path in self.begun:
            path.unlink(missing_ok=True)
        self.hold.touch()
        started = self.start()
        wait_until(
            lambda: self.has_begun() or "not moved" in started[1].read_text(),
            "the import scripts",
            timeout_s=TOOL_TIMEOUT_S,
        )
        assert self.has_begun(), started[1].read_text()
        return started

    def has_begun(self) -> bool:
        return all(path.exists() for path in self.begun)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two clusters of one node; the first has a running instance with two disks."""
    with ExitStack() as made:
        first, second = (made.enter_context(own_cluster(1, OTHER_FACES)) for _ in range(2))
        found = Pair(first, second, tmp_path_factory.mktemp("moves"))
        found.prepare()
        sizes = " ".join(f"--disk {index}:size={mib}" for index, mib in enumerate(DISKS_MIB))
        first.gnt(
            f"instance add --no-name-check --no-ip-check -t file {sizes} -o gate -B memory=64"
            f" --no-start -n {first.master} {NAME}"
        )
        for index, path in enumerate(disk_files(first)):
            path.write_bytes(os.urandom(DISKS_MIB[index] << 20))
        first.gnt(f"instance startup {NAME}")
        try:
            yield found
        finally:
            found.hold.unlink(missing_ok=True)


def disk_files(cluster: TestCluster) -> list[Path]:
    directory = Path(cluster.paths.localize(f"/srv/ganeti/file-storage/{NAME}"))
    found = list(directory.iterdir()) if directory.exists() else []
    return sorted(found, key=lambda path: path.name[-1])


def checksums(cluster: TestCluster) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in disk_files(cluster)]


def transfers(cluster: TestCluster) -> list[Path]:
    directory = Path(cluster.paths.import_export_dir)
    return list(directory.iterdir()) if directory.exists() else []


def check_untouched(pair: Pair, before: list[str]) -> None:
    """The instance runs where it was, and the destination has nothing of it."""
    assert pair.source.instance_field(NAME, "status") == "running"
    assert checksums(pair.source) == before
    assert pair.destination.instance_names() == []
    assert disk_files(pair.destination) == []
    for cluster in pair.clusters:
        assert transfers(cluster) == []


@pytest.mark.shows(
    "backend/overview/other-clusters",
    "2.0/os-scripts/export",
    "2.0/os-scripts/import",
    "2.0/os-input/export-device",
    "2.0/os-input/import-device",
)
def test_instances_move_only_when_all_is_well(pair: Pair, tmp_path: Path) -> None:
    before = checksums(pair.source)
    _refused_without_the_same_secret(pair)
    _refused_for_all_that_is_missing(pair)
    check_untouched(pair, before)
    _nothing_is_left_when_the_receiver_dies(pair)
    check_untouched(pair, before)
    _nothing_is_left_when_it_is_canceled(pair)
    check_untouched(pair, before)
    _moved(pair, before)


def _refused_without_the_same_secret(pair: Pair) -> None:
    refused = pair.run()
    assert refused.status == 1
    assert "not signed with this cluster's domain secret" in refused.text
    secret = pair.place / "secret"
    secret.write_text("0123456789abcdef\n")
    for cluster in pair.clusters:
        cluster.gnt(f"cluster renew-crypto -f --cluster-domain-secret={secret}")


def _refused_for_all_that_is_missing(pair: Pair) -> None:
    there = pair.destination
    there.gnt(
        f"instance add --no-name-check --no-ip-check -t diskless --no-install -o gate --no-start"
        f" -n {there.master} {NAME}"
    )
    refused = pair.run("--dest-disk-template=plain", "--net=0:network=lan", "--compress=zip")
    assert refused.status == 1
    for problem in (
        f"has an instance '{NAME}' already",
        "has no disk template 'plain'",
        "has no network 'lan'",
        "has no compression 'zip'",
    ):
        assert problem in refused.text
    there.gnt(f"instance remove -f {NAME}")
    assert pair.run("--dry-run").text == "Nothing is missing.\n"


def _nothing_is_left_when_the_receiver_dies(pair: Pair) -> None:
    started = pair.start_and_hold()
    assert pair.source.instance_field(NAME, "status") == "ADMIN_down"
    assert pair.destination.instance_field(NAME, "forthcoming") == "Y"
    [killed, *_] = transfers(pair.destination)
    os.kill(int((killed / "pid").read_text()), signal.SIGKILL)
    ended = pair.end(started)
    assert ended.status == 1
    assert "not moved" in ended.text
    assert "the instance runs again in the source cluster" in ended.text


def _nothing_is_left_when_it_is_canceled(pair: Pair) -> None:
    started = pair.start_and_hold()
    os.kill(started[0].pid, signal.SIGTERM)
    ended = pair.end(started)
    assert ended.status == 1
    assert "canceled; the instance runs again in the source cluster" in ended.text


def _moved(pair: Pair, before: list[str]) -> None:
    mac = pair.source.instance_field(NAME, "nic.macs")
    pair.hold.unlink()
    moved = pair.run("--compress=gzip-fast", "-B", "vcpus=2")
    assert moved.status == 0, moved.text
    assert pair.source.instance_names() == []
    assert disk_files(pair.source) == []
    assert checksums(pair.destination) == before
    fields = {"status": "running", "nic.macs": mac, "be/vcpus": "2", "be/maxmem": "64"}
    for field, value in fields.items():
        assert pair.destination.instance_field(NAME, field) == value
    for cluster in pair.clusters:
        assert transfers(cluster) == []
    keys = Path(pair.destination.paths.crypto_keys_dir)
    assert list(keys.iterdir()) == []
