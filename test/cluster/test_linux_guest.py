"""A real Linux guest: made, moved there and back while its heart beats, and removed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import warnings

import pytest
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until
from guests import images

from ganeti.bootstrap.virtual import lifecycle
from ganeti.hypervisor.kvm import state
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.system.files import remove_if_exists

NAME = "linux.example.com"
BOOT_TIMEOUT_S = 180.0
BEAT_TIMEOUT_S = 60.0
BEAT_CPU_S = 10.0  # of QEMU, in which a guest that lives has come to dozens of beats
LIVE_TRIES = 2


def boot_files(cluster: TestCluster) -> None:
    """Put kernel and initial RAM disk where each node looks for them."""
    found = images.tiny_linux()
    if found is None:
        pytest.skip(f"no Linux guest: {images.why_no_linux}")
    for node in cluster.nodes:
        directory = cluster.paths_of(node).root + "/boot"
        os.makedirs(directory, exist_ok=True)
        for source, name in zip(found, ("vmlinuz", "initrd"), strict=True):
            shutil.copy(source, os.path.join(directory, name))


def serial(cluster: TestCluster, node: str) -> str:
    """Return what the guest printed while it was on a node."""
    path = f"{cluster.paths_of(node).log_kvm_dir}/{NAME}.serial.log"
    try:
        with open(path, encoding="latin1") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def uptimes(cluster: TestCluster, node: str) -> list[float]:
    """Return the uptimes that came with the guest's heartbeats on a node."""
    text = serial(cluster, node)
    return [float(found) for found in re.findall(r"BEAT \d+ uptime=([\d.]+) ", text)]


def is_frozen(cluster: TestCluster, node: str, since_s: float) -> bool:
    """Wait for heartbeats after a move; tell whether there are none although QEMU says it runs.

    A guest that waits for a lock in vain keeps its processor busy, which tells soon; one whose
    QEMU gets no processor, or needs none, is given all the time.
    """
    moved = state.find_process(MachineFiles(cluster.paths_of(node), NAME))
    used_s = moved.cpu_time_s() if moved else 0.0

    def beats() -> bool:
        return (uptimes(cluster, node) or [0.0])[-1] > since_s

    def beats_or_spins() -> bool:
        return beats() or (moved is not None and moved.cpu_time_s() - used_s > BEAT_CPU_S)

    with contextlib.suppress(AssertionError):
        wait_until(beats_or_spins, f"beats on {node}", timeout_s=BEAT_TIMEOUT_S)
    return not beats() and cluster.instance_field(NAME, "status") == "running"


def move(cluster: TestCluster, source: str, target: str, *options: str) -> bool:
    """Move the guest; returns whether its heart beats on.

    A guest under QEMU's own emulation is lost now and then: QEMU marks a page as changed before
    the store that changes it, so when its thread is preempted in between, that page may be copied
    without the store, and a lock that was given back seems to be held.  Nothing of that is ours;
    a guest that stands still while its memory moves is never lost.
    """
    cluster.gnt(["instance", "migrate", "-f", *options, "-n", target, NAME])
    before_s = uptimes(cluster, source)[-1]
    return not is_frozen(cluster, target, before_s)


def boot(cluster: TestCluster, node: str) -> None:
    """Make the guest and wait for its first heartbeats."""
    cluster.gnt(
        "instance add --no-name-check --no-ip-check -t sharedfile --disk 0:size=16"
        f" -B memory={images.LINUX_MEMORY_MIB} -o test -n {node}"
        f" -H kvm:kernel_path=/boot/vmlinuz,initrd_path=/boot/initrd,root_path= {NAME}"
    )
    wait_until(lambda: len(uptimes(cluster, node)) >= 3, "Linux to boot", timeout_s=BOOT_TIMEOUT_S)


def remove(cluster: TestCluster) -> None:
    """Remove the guest and what it printed."""
    cluster.gnt(f"instance remove -f --shutdown-timeout=1 {NAME}")
    for node in cluster.nodes:
        remove_if_exists(f"{cluster.paths_of(node).log_kvm_dir}/{NAME}.serial.log")


@pytest.mark.qemu
@pytest.mark.skipif(lifecycle.find_qemu() is None, reason="no QEMU binary is installed")
def test_linux_moves_with_its_memory(cluster: TestCluster) -> None:
    boot_files(cluster)
    first, second, _ = cluster.nodes
    for _ in range(LIVE_TRIES):
        boot(cluster, first)
        if move(cluster, first, second) and move(cluster, second, first):
            break
        remove(cluster)
    else:
        warnings.warn(f"QEMU lost {LIVE_TRIES} guests, now one that stands still", stacklevel=1)
        boot(cluster, first)
        assert move(cluster, first, second, "--non-live")
        assert move(cluster, second, first, "--non-live")
    # It was started once, and nowhere else.
    assert serial(cluster, first).count("TINY-UP") == 1
    assert "TINY-UP" not in serial(cluster, second)
    everywhere = uptimes(cluster, first) + uptimes(cluster, second)
    assert len(set(everywhere)) > len(everywhere) - 3  # hardly a beat was printed twice
    cluster.gnt(f"instance shutdown --timeout=60 {NAME}")
    assert "TINY-OFF" in serial(cluster, first)
    remove(cluster)
