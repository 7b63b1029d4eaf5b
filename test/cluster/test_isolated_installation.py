"""An operating system whose script must not run on a node is installed by a real machine."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from fakes.shell_scripts import write_script
from fakes.virtual_cluster import TestCluster

from ganeti.bootstrap.virtual import lifecycle

NAME, OS, IMAGE = "isolated.example.com", "untrusted", "/srv/install.img"
ADD = f"instance add --no-name-check --no-ip-check --no-start -B memory=16 -t file -o {OS}"
SIZE_MIB, SECTOR_BYTES, MIB = 2, 512, 1 << 20

_CODE: Final = bytes.fromhex(
    "ea057c000031c08ed88ec08ed0bc007cfbbe857c31dbe84a00be987cbb0100e84100b80042b282c706bc7c00"
    "08beb47ccd137224b80043b281c706bc7c0000beb47ccd137212b80086b9180031d2cd15beac7c31dbe80b00"
    "ba0406b80020effaf4ebfcbf007eb9000131c0f3abbf007eacaa84c075fa891ebc7cbeb47cb80043b282cd13"
    "c370726f67726573732068616c66207761790a00636f7079696e670a7468652073797374656d0a0065786974"
    "20300a0010000100007e"
)
_STOPS: Final = b"\xfa\xf4\xeb\xfc"  # and never ends


@pytest.fixture
def untrusted(cluster: TestCluster) -> Iterator[TestCluster]:
    """The cluster with such an operating system on its first node."""
    directory = Path(cluster.paths_of(cluster.nodes[0]).localize(f"/srv/ganeti/os/{OS}"))
    write_script(directory / "create_untrusted", "echo on the node > /dev/kmsg; exit 1")
    (directory / "ganeti_api_version").write_text("15\n")
    (directory / "variants.list").write_text("")
    try:
        yield cluster
    finally:
        cluster.gnt("cluster modify --install-image=")
        shutil.rmtree(directory)


def put_image(cluster: TestCluster, sector: bytes) -> None:
    path = Path(cluster.paths_of(cluster.nodes[0]).localize(IMAGE))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(sector.ljust(SECTOR_BYTES - 2, b"\0") + b"\x55\xaa")


def disks_of(cluster: TestCluster, name: str) -> list[Path]:
    storage = cluster.paths_of(cluster.nodes[0]).localize(f"/srv/ganeti/file-storage/{name}")
    return sorted(Path(storage).iterdir()) if Path(storage).exists() else []


@pytest.mark.qemu
@pytest.mark.skipif(lifecycle.find_qemu() is None, reason="no QEMU binary is installed")
def test_an_untrusted_script_runs_in_a_machine_of_its_own(untrusted: TestCluster) -> None:
    cluster, one = untrusted, untrusted.nodes[0]
    add = f"{ADD} --disk 0:size={SIZE_MIB} -n {one}"
    cluster.refused(f"{add} -H kvm {NAME}", "gnt-cluster modify --install-image=PATH")
    cluster.gnt(f"cluster modify --install-image={IMAGE}")
    cluster.refused(f"{add} -H kvm {NAME}", f"has no install image {IMAGE}")
    put_image(cluster, _CODE)
    cluster.refused(f"{add} -H fake {NAME}", "'fake' starts no machine from a disk")
    cluster.refused(
        f"{add} -H kvm --helper-startup-timeout=-1 {NAME}", "--helper-startup-timeout must be more"
    )
    said = cluster.gnt(f"{add} -H kvm {NAME}").out
    assert "the machine says: progress half way" in said
    [disk] = disks_of(cluster, NAME)
    assert disk.read_bytes()[:SECTOR_BYTES].startswith(b"run\0"), "the first file of the package"
    assert cluster.instance_field(NAME, "status") == "ADMIN_down"
    logs = cluster.files_below(one, "/var/log/ganeti/os")
    [log] = [path for path in logs if f"add-{OS}-{NAME}" in path]
    assert Path(log).read_text() == "copying\nthe system\n"

    put_image(cluster, _CODE.replace(b"exit 0", b"exit 7"))
    reinstall = f"instance reinstall -f {NAME}"
    refused = cluster.refused(reinstall, "the machine said 'exit 7'")
    assert "copying" in refused.err + refused.out
    assert disks_of(cluster, NAME) == [disk], "nothing of the machine is left"
    cluster.gnt(f"instance remove -f {NAME}")

    put_image(cluster, _STOPS)
    cluster.refused(
        f"{add} -H kvm --helper-startup-timeout=2 {NAME}", "has told nothing within 2 seconds"
    )
    put_image(cluster, _CODE.replace(b"exit 0", b"unsure"))
    cluster.refused(f"{add} -H kvm {NAME}", "the machine said 'unsure'")
    assert NAME not in cluster.instance_names()
    assert not disks_of(cluster, NAME)


def test_the_image_is_what_its_source_says(tmp_path: Path) -> None:
    if not (shutil.which("as") and shutil.which("ld")):
        pytest.skip("needs as and ld to assemble the guest")
    source = Path(__file__).parents[1] / "guests" / "installing.S"
    subprocess.run(["as", "--32", source, "-o", tmp_path / "guest.o"], check=True)
    link = ["ld", "-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary"]
    subprocess.run([*link, tmp_path / "guest.o", "-o", tmp_path / "guest.bin"], check=True)
    assert (tmp_path / "guest.bin").read_bytes().rstrip(b"\0") == _CODE.rstrip(b"\0")
