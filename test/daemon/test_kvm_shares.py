"""Real QEMU, a real virtiofsd and a real Linux: directories of the node that a guest mounts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.waiting import wait_until
from guests import images
from guests.instances import make_instance
from guests.nodes import QEMU, KvmNode, KvmNodes, kvm_nodes

from ganeti.base.errors import HypervisorError, OpPrereqError
from ganeti.hypervisor.interface import Instant
from ganeti.hypervisor.kvm.hardware import virtiofs
from ganeti.objects.rpc_instance import RpcInstance

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64"),
    pytest.mark.skipif(
        not any(os.path.exists(path) for path in virtiofs._PLACES), reason="needs virtiofsd"
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="virtiofsd shuts itself in as root only"),
]
SHARED = "data=/srv/data;docs=/srv/docs:ro"
NAME = make_instance().name
MEMORY_MIB = 2 * images.LINUX_MEMORY_MIB  # room for what is to be more takes some of it
BOOT_TIMEOUT_S = 180.0


@pytest.fixture
def nodes() -> Iterator[KvmNodes]:
    with kvm_nodes() as found:
        node = found.nodes[0]
        for name in ("data", "docs"):
            directory = local(node, f"/srv/{name}")
            directory.mkdir(parents=True)
            (directory / "greeting").write_text(f"a {name} file")
            (directory / "greeting").chmod(0o640)
            os.chown(directory / "greeting", 1234, 1234)
        allow(node, "/srv/data", "/srv/docs  # to read")
        yield found


def local(node: KvmNode, path: str) -> Path:
    return Path(node.env.paths.localize(path))


def allow(node: KvmNode, *directories: str) -> None:
    path = Path(node.env.paths.shared_dir_paths_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{directory}\n" for directory in directories))


def instance(**hvparams: object) -> RpcInstance:
    values: dict[str, object] = {"kernel_path": "", "kvm_flag": "disabled", "shared_dirs": SHARED}
    return make_instance(**(values | hvparams))  # type: ignore[arg-type]  # only hvparams


def beats(node: KvmNode) -> int:
    """Return what the guest has counted to, which writes it after it has said so."""
    try:
        return int(local(node, "/srv/data/beat").read_text() or 0)
    except FileNotFoundError:
        return 0


def processes(node: KvmNode) -> set[int]:
    """Return the processes virtiofsd of a node."""
    needle = os.fsencode(node.files(NAME).shares)
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and needle in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def test_a_guest_reads_and_writes_files_of_its_node(nodes: KvmNodes) -> None:
    found = images.tiny_linux()
    if found is None:
        pytest.skip(f"no Linux guest: {images.why_no_linux}")
    node = nodes.nodes[0]
    words = "tiny_share=data,docs memhp_default_state=online"
    linux = dict(zip(("kernel_path", "initrd_path"), found, strict=True))
    sizes: dict[str, object] = {"memory_mib": MEMORY_MIB, "max_memory": 512}
    of = instance(kernel_args=words, root_path="", **linux, **sizes)
    node.driver.start(of, [])
    text = node.wait_serial(NAME, "BEAT 1 ", BOOT_TIMEOUT_S)
    assert "SHARE data has a data file of -rw-r-----    1 1234     1234" in text
    assert "SHARE docs has a docs file of -rw-r-----    1 1234     1234" in text
    assert "SHARE data written" in text
    assert local(node, "/srv/data/answer").read_text() == "from the guest\n"
    assert "SHARE docs written" not in text
    assert sorted(os.listdir(local(node, "/srv/docs"))) == ["greeting"]
    # It goes on when memory comes, which virtiofsd has to see too.
    node.driver.hotplug.grow(of, vcpus=1, memory_mib=MEMORY_MIB + 128)
    before = beats(node)
    wait_until(lambda: beats(node) > before + 1, "beats after growth", timeout_s=60)


def test_shares_live_with_their_machine(nodes: KvmNodes) -> None:
    node, disk = nodes.nodes[0], nodes.boot_disk()
    of = instance(max_memory=512)
    node.driver.check_on_node(of.hvparams)
    node.driver.start(of, [disk])
    assert len(processes(node)) >= 2
    assert node.driver.verify() is None
    # Memory that comes later is shared too, and disks can be kept while it runs.
    node.driver.hotplug.grow(of, vcpus=1, memory_mib=16 + 128)
    node.driver.snapshots.take(of, str(nodes.base), Instant())
    node.driver.snapshots.drop(NAME)
    with pytest.raises(HypervisorError, match=r"shared_dirs.*cannot hand over.*use failover"):
        node.driver.migration.check(of)
    assert node.driver.verify() is None
    pid = int(Path(f"{node.files(NAME).shares}/docs/pid").read_text())
    os.killpg(pid, signal.SIGKILL)
    wait_until(lambda: node.driver.verify() is not None, "the loss to be seen")
    assert f"instance {NAME} has lost its shared directory docs" in (node.driver.verify() or "")
    node.driver.stop(NAME, force=True)
    assert processes(node) == set()
    assert not os.path.exists(node.files(NAME).shares)
    assert node.driver.verify() is None


def test_a_killed_machine_leaves_nothing(nodes: KvmNodes) -> None:
    node, disk = nodes.nodes[0], nodes.boot_disk()
    node.driver.start(instance(), [disk])
    first, process = processes(node), node.process(NAME)
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not processes(node), "virtiofsd to end")
    node.driver.start(instance(), [disk])  # over the remains
    assert processes(node)
    assert not processes(node) & first
    assert (local(node, "/srv/data") / "greeting").exists()


def test_what_is_missing_is_named(nodes: KvmNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    node, disk = nodes.nodes[0], nodes.boot_disk()
    allow(node, "/srv/docs")
    text = r"shared_dirs: node node1.* does not share /srv/data: .*shared-dir-paths .*\(/srv/docs\)"
    for action in (
        lambda: node.driver.check_on_node(instance().hvparams),
        lambda: node.driver.start(instance(), [disk]),
    ):
        with pytest.raises(OpPrereqError, match=text):
            action()
    allow(node, "/srv/docs", "/srv/data")
    with monkeypatch.context() as patch:
        patch.setattr(virtiofs, "_PLACES", ("/no/virtiofsd",))
        with pytest.raises(OpPrereqError, match="does not have the program virtiofsd"):
            node.driver.start(instance(), [disk])
    # One that cannot start is heard; the other one may end before it.
    monkeypatch.setattr(virtiofs, "_SCRIPT", 'echo "no view of $4"; exit 1')
    with pytest.raises(HypervisorError, match=r"(?s)virtiofsd: .*no view of /\S*/srv/data"):
        node.driver.start(instance(), [disk])
    assert node.process(NAME) is None
    assert processes(node) == set()
    assert not os.path.exists(node.files(NAME).shares)
