"""Real QEMU with a TPM: its state on a disk, its process, and its way to another node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from guests.instances import make_instance
from guests.nodes import QEMU, KvmNode, KvmNodes, kvm_nodes

from ganeti.base.errors import OpPrereqError
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.hypervisor.kvm.hardware import tpm
from ganeti.hypervisor.kvm.monitor import Monitor

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64"),
    pytest.mark.skipif(not os.path.exists("/usr/bin/swtpm"), reason="needs swtpm"),
]
INSTANCE = make_instance(kernel_path="", kvm_flag="disabled", tpm=True)
NAME = INSTANCE.name


@pytest.fixture
def nodes() -> Iterator[KvmNodes]:
    with kvm_nodes(2) as found:
        yield found


def store(nodes: KvmNodes) -> AssembledDisk:
    """Return an empty disk for the state of a TPM."""
    disk = nodes.boot_disk(1)
    os.truncate(disk.dev_path, 0)
    return replace(disk, size_mib=4, name="tpm-state")


def tpm_process(node: KvmNode) -> int | None:
    """Return the process that is the TPM; None if it has ended."""
    try:
        pid = int(Path(node.files(NAME).tpm_pid_file).read_text())
    except FileNotFoundError:
        return None
    return pid if Path(f"/proc/{pid}").exists() else None


def test_a_tpm_lives_with_its_machine_and_moves_with_it(nodes: KvmNodes) -> None:
    source, target = nodes.nodes
    boot, kept = nodes.boot_disk(), store(nodes)
    source.driver.start(INSTANCE, [boot, kept])
    with Monitor.connect(NAME, source.files(NAME).socket_path("control")) as monitor:
        (found,) = monitor.query_list("query-tpm")
    assert found["model"] == "tpm-crb"
    first = tpm_process(source)
    assert first is not None
    header = Path(kept.dev_path).read_bytes()[:8]
    assert header == b"nilmptws"  # the store of swtpm
    assert os.path.getsize(kept.dev_path) == 4 << 20
    nodes.move(INSTANCE, [boot, kept])
    assert tpm_process(source) is None
    assert tpm_process(target) not in (None, first)
    target.driver.stop(NAME, force=True)
    assert tpm_process(target) is None
    source.driver.start(INSTANCE, [boot, kept], paused=True)  # with the state of then
    assert os.path.getsize(kept.dev_path) == 4 << 20
    assert "Formatting" not in Path(source.files(NAME).tpm_log).read_text()


def test_what_is_missing_is_named(nodes: KvmNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    node, boot = nodes.nodes[0], nodes.boot_disk()
    with pytest.raises(OpPrereqError, match="--disk add:size=4m,name=tpm-state inst1"):
        node.driver.start(INSTANCE, [boot])
    with pytest.raises(OpPrereqError, match="disk tpm-state must be raw"):
        node.driver.start(INSTANCE, [boot, replace(store(nodes), uri="rbd:pool/x")])
    monkeypatch.setattr(tpm, "_PLACES", ("/no/swtpm",))
    with pytest.raises(OpPrereqError, match=r"tpm: node node1.* does not have .* .package swtpm"):
        node.driver.check_on_node(INSTANCE.hvparams)
    assert node.process(NAME) is None
