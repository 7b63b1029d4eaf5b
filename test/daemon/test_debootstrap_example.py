"""The example that installs a real Debian: what it would do."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from guests.trees import put_program

from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.instances import os_definitions

EXAMPLE = Path(__file__).resolve().parents[2] / "doc" / "examples" / "os" / "debootstrap"
DISK = {"DISK_COUNT": "1", "DISK_0_PATH": "/nowhere/disk", "DISK_0_SIZE": "2048"}
INSTANCE = {"INSTANCE_NAME": "deb1.example.com", "OS_VARIANT": "bookworm", "OSP_DRY_RUN": "yes"}


def run(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [EXAMPLE / script],
        env={"PATH": os.environ["PATH"], **INSTANCE, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_is_a_valid_definition(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    shutil.copytree(EXAMPLE, Path(paths.os_search_path[0]) / "debootstrap")
    definition = os_definitions.load(paths, "debootstrap+bookworm")
    assert definition.variants == ("bookworm", "trixie")
    assert definition.hypervisors == ("kvm", "fake")
    context = NodeContext(paths, "node1.example.com")
    for params, is_valid in (
        ({"mirror": "http://deb.example.com", "packages": "vim,less"}, True),
        ({"mirror": "ftp://deb.example.com"}, False),
        ({"packages": "vim; rm"}, False),
        ({"dry_run": "maybe"}, False),
        ({"kernel": "linux-image-amd64"}, True),
        ({"kernel": "linux-image-amd64,vim"}, False),
        ({"kernel": "vim"}, False),
        ({"cache": "/"}, True),
        ({"cache": "packages"}, False),
        ({"cache": "/nowhere/at/all"}, False),
        ({"root_password_hash": "$6$salt$hash"}, True),
        ({"root_password_hash": "in clear"}, False),
    ):
        arguments = (True, "debootstrap+trixie", ["parameters"], params, False)
        if is_valid:
            assert os_definitions.OsDefinitions(context).os_validate(*arguments)
        else:
            with pytest.raises(Exception, match=next(iter(params))):
                os_definitions.OsDefinitions(context).os_validate(*arguments)


def test_what_create_would_do_is_in_order_and_undone() -> None:
    result = run("create", **DISK, NIC_0_IP="192.0.2.5", NIC_0_NETWORK_SUBNET="192.0.2.0/24")
    assert result.returncode == 0, result.stderr
    steps = ["sfdisk", "mkfs.ext4", "mount -t ext4", "debootstrap --variant", "extlinux --install"]
    steps += ["mbr.bin", "umount", "rmdir"]
    places = [result.stdout.index(step) for step in steps]
    assert places == sorted(places)


@pytest.mark.shows("2.0/variable-nics/os-interface", "2.0/os/generic")
def test_every_network_card_gets_its_settings() -> None:
    result = run("create", **DISK, NIC_COUNT="2")
    assert "interfaces.d/eth0" in result.stdout
    assert "interfaces.d/eth1" in result.stdout
    assert "interfaces.d" not in run("create", **DISK).stdout


def test_an_address_of_ipv6_is_written_as_such() -> None:
    networks = {"NIC_0_NETWORK_SUBNET": "192.0.2.0/24", "NIC_0_NETWORK_GATEWAY": "192.0.2.1"}
    networks |= {"NIC_0_NETWORK_SUBNET6": "2001:db8::/64", "NIC_0_NETWORK_GATEWAY6": "2001:db8::1"}
    for address, text in (
        ("2001:db8::77", "inet6 static address 2001:db8::77/64 gateway 2001:db8::1"),
        ("192.0.2.77", "inet static address 192.0.2.77/24 gateway 192.0.2.1"),
    ):
        result = run("create", **DISK, NIC_COUNT="1", NIC_0_IP=address, **networks)
        assert f"iface eth0 {text}" in " ".join(result.stdout.split())


def test_rename_mounts_and_undoes() -> None:
    result = run("rename", **DISK, OLD_INSTANCE_NAME="old.example.com")
    assert result.returncode == 0, result.stderr
    assert "would write: /tmp/target/etc/hostname" in result.stdout
    assert "would run: umount --recursive /tmp/target" in result.stdout


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ({}, "has no disk"),
        ({"DISK_COUNT": "1"}, "has no path"),
        ({**DISK, "DISK_0_SIZE": "64"}, "1024 MiB or more"),
    ],
)
def test_disks_that_will_not_do(env: dict[str, str], text: str) -> None:
    result = run("create", **env)
    assert result.returncode == 1
    assert text in result.stderr


def run_on_disk(
    script: str, tmp_path: Path, given: bytes = b"", **env: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a script on the disk of a guest, with a boot loader of the node's own."""
    programs = tmp_path / "programs"
    programs.mkdir()
    loader = programs / "extlinux"
    loader.write_text(f"#!/bin/sh\necho $* > {tmp_path}/loaded\n")
    loader.chmod(0o755)
    (tmp_path / "mbr").write_bytes(b"\x90" * 440)
    env |= {
        "OUR_MBR": f"{tmp_path}/mbr",
        "PATH": f"{programs}:{os.environ['PATH']}:/sbin:/usr/sbin",
    }
    env |= {"DISK_0_PATH": f"{tmp_path}/disk", "IMPORT_DEVICE": f"{tmp_path}/disk"}
    return subprocess.run(
        [EXAMPLE / script],
        env={**DISK, **INSTANCE, "OSP_DRY_RUN": "no", **env},
        input=given,
        capture_output=True,
        timeout=60,
        check=False,
    )


MKFS = shutil.which("mkfs.ext4", path=f"{os.environ['PATH']}:/sbin:/usr/sbin")
needs_mkfs = pytest.mark.skipif(MKFS is None, reason="needs mkfs.ext4")


def make_disk(tmp_path: Path, tree: Path) -> None:
    options = ("-q", "-d", tree, "-E", f"offset={1 << 20}")
    subprocess.run([str(MKFS), *options, tmp_path / "disk", "14m"], check=True)


@needs_mkfs
@pytest.mark.root
@pytest.mark.parametrize("how", ["file", "directory", "pipe", "device", "plain"])
def test_a_guest_cannot_have_files_of_the_node_written(tmp_path: Path, how: str) -> None:
    """The new name was written through a link of the guest, to any file of the node."""
    tree, node = tmp_path / "tree", tmp_path / "node"
    node.mkdir()
    (node / "hostname").write_text("node1")
    tree.mkdir()
    if how == "directory":
        (tree / "etc").symlink_to(node)
    else:
        (tree / "etc").mkdir()
        name = tree / "etc" / "hostname"
        if how == "file":
            name.symlink_to(node / "hostname")
        elif how == "pipe":
            os.mkfifo(name)
        elif how == "device":
            os.mknod(name, 0o020666, os.makedev(1, 5))
        else:
            name.write_text("old")
    make_disk(tmp_path, tree)
    result = run_on_disk("rename", tmp_path, OLD_INSTANCE_NAME="old.example.com")
    assert (node / "hostname").read_text() == "node1"
    assert result.returncode == (how == "directory"), result.stderr
    if how == "directory":
        assert b"/etc is a link on the disk of deb1.example.com" in result.stderr
    else:
        assert b"deb1.example.com\n" in (tmp_path / "disk").read_bytes()


@needs_mkfs
@pytest.mark.root
def test_no_program_of_a_guest_is_run_when_it_is_imported(tmp_path: Path) -> None:
    """The guest's own extlinux was, as root, with the devices of the node."""
    tree = tmp_path / "tree"
    for name in ("bin", "boot/extlinux", "dev", "etc", "proc", "sys", "usr/lib/syslinux/mbr"):
        (tree / name).mkdir(parents=True)
    put_program(tree, "sh")
    mark = f"run-by-{os.getpid()}"
    (tree / "bin" / "extlinux").write_text(f"#!/bin/sh\necho > /dev/{mark}\n")
    (tree / "bin" / "extlinux").chmod(0o755)
    (tree / "boot" / "extlinux" / "ldlinux.sys").symlink_to(tmp_path / "victim")
    (tree / "usr/lib/syslinux/mbr/mbr.bin").write_bytes(b"s" * 440)
    files = subprocess.run(["tar", "-c", "-C", tree, "."], capture_output=True, check=True).stdout
    with (tmp_path / "disk").open("xb") as disk:
        disk.truncate(2048 << 20)
    result = run_on_disk("import", tmp_path, b"files\n" + files, IMPORT_INDEX="0")
    try:
        assert result.returncode == 0, result.stderr
        assert not Path("/dev", mark).exists()
    finally:
        Path("/dev", mark).unlink(missing_ok=True)
    assert (tmp_path / "loaded").read_text().startswith("--install /tmp/")
    with (tmp_path / "disk").open("rb") as disk:
        assert disk.read(440) == b"\x90" * 440
