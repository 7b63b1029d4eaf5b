"""The example that installs a real Debian, for real: minutes, so only when asked for.

Packages come from the network once; ``.cache/debootstrap`` keeps them for the next run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until

from ganeti.bootstrap.virtual import lifecycle

from .conftest import make_cluster

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "debootstrap"
INSTALL_TIMEOUT_S = 480.0  # with all packages to fetch, on a busy machine
BOOT_TIMEOUT_S = 240.0
FIRST, RENAMED, COPY = "deb1.example.com", "deb2.example.com", "deb3.example.com"

pytestmark = [
    pytest.mark.debootstrap,
    pytest.mark.qemu,
    pytest.mark.root,
    pytest.mark.skipif(
        not os.environ.get("GANETI_TEST_DEBOOTSTRAP"),
        reason="takes minutes; GANETI_TEST_DEBOOTSTRAP=1 runs it",
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts the file system that it makes"),
    pytest.mark.skipif(lifecycle.find_qemu() is None, reason="no QEMU binary is installed"),
]


@pytest.fixture(scope="module")
def machine() -> Iterator[TestCluster]:
    """One node, and nothing left of mounts and loop devices in the end."""
    CACHE.mkdir(parents=True, exist_ok=True)
    yield from make_cluster(1, "kvm")


def mounts_below(cluster: TestCluster) -> list[str]:
    """Return what is mounted from files of the cluster, and the loop devices on them."""
    base = str(cluster.layout.base)
    found = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    return [path for path in found if path.startswith(base)]


def boot(cluster: TestCluster, name: str) -> None:
    """Wait until the guest asks for a login under its name, then stop it."""
    log = Path(f"{cluster.paths.log_kvm_dir}/{name}.serial.log")
    prompt = f"{name.partition('.')[0]} login:"
    wait_until(
        lambda: log.exists() and prompt in log.read_text("latin1"),
        f"{prompt} in {log}",
        timeout_s=BOOT_TIMEOUT_S,
        step_s=0.5,
    )
    cluster.gnt(f"instance shutdown --timeout=90 {name}")
    assert "Power down" in log.read_text("latin1"), "it shut down in order"


def test_debian_is_installed_and_boots_from_its_disk(machine: TestCluster) -> None:
    words = (
        "gnt-instance add --no-name-check --no-ip-check -n node1 -t file --disk 0:size=1200"
        " --disk 1:size=8 -B memory=512 -H kvm:kernel_path= -o debootstrap+bookworm"
        f" -O cache={CACHE} {FIRST}"
    )
    outcome = machine.run(words, timeout_s=INSTALL_TIMEOUT_S)
    assert outcome.status == 0, outcome
    assert not mounts_below(machine)
    boot(machine, FIRST)


def test_it_boots_under_a_new_name(machine: TestCluster) -> None:
    machine.gnt(f"instance rename -f --no-name-check --no-ip-check {FIRST} {RENAMED}")
    assert not mounts_below(machine)
    machine.gnt(f"instance startup {RENAMED}")
    boot(machine, RENAMED)


def test_its_files_move_to_a_disk_of_another_size(machine: TestCluster) -> None:
    export = f"gnt-backup export -n node1 {RENAMED}"
    outcome = machine.run(export, timeout_s=INSTALL_TIMEOUT_S)
    assert outcome.status == 0, outcome
    words = (
        "gnt-backup import --no-name-check --no-ip-check -n node1 -t file --disk 0:size=1600"
        f" --disk 1:size=8 --src-dir {RENAMED} {COPY}"
    )
    outcome = machine.run(words, timeout_s=INSTALL_TIMEOUT_S)
    assert outcome.status == 0, outcome
    assert not mounts_below(machine)
    machine.gnt(f"instance startup {COPY}")
    boot(machine, COPY)
