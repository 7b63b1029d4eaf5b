"""The example that installs cloud images: what it writes on disks, and what it refuses."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.instances import os_definitions

EXAMPLE = Path(__file__).resolve().parents[2] / "doc" / "examples" / "os" / "cloud"
MIB = 1 << 20
SECTOR = 512
IMAGE_MIB = 4
CONTENT = b"the content of the only partition"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample somebody@example.com"
ENVIRONMENT = {
    "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
    "INSTANCE_NAME": "web1.example.com",
    "INSTANCE_UUID": "d57ad28d-8ef1-47df-9747-d09279cc8352",
    "INSTANCE_OS": "cloud+debian-12",
    "OS_VARIANT": "debian-12",
    "OSP_SSH_KEY": f"{KEY}\nssh-rsa AAAAB3 another",
}
NICS = {
    "NIC_COUNT": "2",
    "NIC_0_MAC": "aa:00:00:00:00:01",
    "NIC_0_IP": "192.0.2.5",
    "NIC_0_NETWORK_SUBNET": "192.0.2.0/24",
    "NIC_0_NETWORK_GATEWAY": "192.0.2.1",
    "NIC_1_MAC": "aa:00:00:00:00:02",
    "OSP_DNS": "192.0.2.53 2001:db8::53",
}
NETWORK_CONFIG = """\
version: 1
config:
  - type: physical
    name: eth0
    mac_address: "aa:00:00:00:00:01"
    subnets:
      - type: static
        address: 192.0.2.5/24
        gateway: 192.0.2.1
        dns_nameservers:
          - "192.0.2.53"
          - "2001:db8::53"
  - type: physical
    name: eth1
    mac_address: "aa:00:00:00:00:02"
    subnets:
      - type: dhcp4
"""
META_DATA = f"""\
instance-id: d57ad28d-8ef1-47df-9747-d09279cc8352
local-hostname: web1.example.com
public-keys:
  - "{KEY}"
  - "ssh-rsa AAAAB3 another"
"""

pytestmark = pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("sfdisk", "mkfs.vfat", "mcopy", "qemu-img")),
    reason="no sfdisk, mkfs.vfat, mcopy or qemu-img",
)


def command(*words: object, text: str = "") -> str:
    """Run a command and return what it prints."""
    return subprocess.run(
        list(map(str, words)), input=text, capture_output=True, text=True, check=True, timeout=60
    ).stdout


def make_image(path: Path, label: str = "gpt") -> Path:
    """Write an image of 4 MiB with one partition at 1 MiB; qcow2 if its name says so."""
    raw = path.with_suffix(".raw")
    with open(raw, "wb") as file:
        file.truncate(IMAGE_MIB * MIB)
    if label:
        command("sfdisk", "--quiet", raw, text=f"label: {label}\nstart=2048,size=2048\n")
    with open(raw, "r+b") as file:
        file.seek(MIB)
        file.write(CONTENT)
    if path.suffix == ".qcow2":
        command("qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, path)
    return path


def run(script: str, tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script on an empty disk, or on the one that is there."""
    size_mib = int(env.get("DISK_0_SIZE", "16"))
    disk = tmp_path / "disk"
    if not disk.exists():
        with open(disk, "wb") as file:
            file.truncate(size_mib * MIB)
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    given = {"DISK_COUNT": "1", "DISK_0_PATH": str(disk), "DISK_0_SIZE": str(size_mib)}
    result = subprocess.run(
        [EXAMPLE / script],
        env={**ENVIRONMENT, **given, "TMPDIR": str(scratch), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not list(scratch.iterdir())
    return result


def seed(place: str) -> dict[str, str]:
    """Return the files of a seed, whose place is given as mtools name it."""
    names = ("meta-data", "network-config", "vendor-data", "user-data")
    return {name: command("mtype", "-i", place, f"::{name}") for name in names}


def partitions(disk: Path) -> list[dict[str, object]]:
    table = json.loads(command("sfdisk", "--json", disk))["partitiontable"]
    found: list[dict[str, object]] = table["partitions"]
    return found


@pytest.mark.parametrize(
    ("name", "label"), [("a.raw", "gpt"), ("a.raw", "dos"), ("a.qcow2", "gpt"), ("a.qcow2", "dos")]
)
def test_the_image_is_copied_and_a_partition_has_the_seed(
    tmp_path: Path, name: str, label: str
) -> None:
    image = make_image(tmp_path / name, label)
    result = run("create", tmp_path, OSP_OS_IMAGE=str(image), **NICS)
    assert result.returncode == 0, result.stderr
    disk = tmp_path / "disk"
    assert disk.stat().st_size == 16 * MIB
    assert disk.read_bytes()[MIB:].startswith(CONTENT)
    first, last = partitions(disk)
    assert (first["start"], last["start"], last["size"]) == (2048, 14 * 2048, 2048)
    files = seed(f"{disk}@@{14 * MIB}")
    assert files["meta-data"] == META_DATA
    assert files["network-config"] == NETWORK_CONFIG
    assert files["vendor-data"] == "#cloud-config\nusers: []\ndisable_root: false\n"
    assert files["user-data"] == "#cloud-config\n{}\n"

    command("sfdisk", "--verify", disk)
    new_name = {"INSTANCE_NAME": "new.example.com", "OLD_INSTANCE_NAME": "web1.example.com"}
    assert run("rename", tmp_path, **new_name).returncode == 0
    renamed = seed(f"{disk}@@{14 * MIB}")
    assert renamed["meta-data"] == META_DATA.replace("web1", "new")
    assert renamed["network-config"] == NETWORK_CONFIG


CONFIG_6 = """\
    subnets:
      - type: static6
        address: "2001:db8::5/64"
        gateway: "2001:db8::1"
"""


def test_an_ipv6_address_is_given_with_the_prefix_and_gateway_of_its_kind(tmp_path: Path) -> None:
    image = make_image(tmp_path / "a.raw", "gpt")
    card = {"NIC_COUNT": "1", "NIC_0_MAC": NICS["NIC_0_MAC"], "NIC_0_IP": "2001:db8::5"}
    network = {"SUBNET": "192.0.2.0/24", "GATEWAY": "192.0.2.1"}
    network |= {"SUBNET6": "2001:db8::/64", "GATEWAY6": "2001:db8::1"}
    card |= {f"NIC_0_NETWORK_{name}": value for name, value in network.items()}
    result = run("create", tmp_path, OSP_OS_IMAGE=str(image), **card)
    assert result.returncode == 0, result.stderr
    assert seed(f"{tmp_path / 'disk'}@@{14 * MIB}")["network-config"].endswith(CONFIG_6)


def test_a_disk_can_be_the_seed(tmp_path: Path) -> None:
    image, second = make_image(tmp_path / "a.raw", ""), tmp_path / "second"
    with open(second, "wb") as file:
        file.truncate(2 * MIB)
    disks = {"DISK_COUNT": "2", "DISK_1_PATH": str(second), "DISK_1_NAME": "cidata"}
    user = {"OSP_USER": "joe", "OSP_USER_DATA": "#cloud-config\npackages: [vim]"}
    size = {"DISK_0_SIZE": str(IMAGE_MIB)}  # it takes nothing of the first disk
    result = run("create", tmp_path, OSP_OS_IMAGE=str(image), **disks, **user, **size)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "disk").read_bytes() == image.read_bytes()
    files = seed(str(second))
    assert files["vendor-data"] == "#cloud-config\nusers: [default]\nuser: joe\n"
    assert files["user-data"] == "#cloud-config\npackages: [vim]\n"
    assert run("rename", tmp_path, **disks, OLD_INSTANCE_NAME="x").returncode == 0


def test_a_guest_without_its_seed_keeps_its_name(tmp_path: Path) -> None:
    result = run("rename", tmp_path, OLD_INSTANCE_NAME="old.example.com")
    assert (result.returncode, result.stderr) == (
        0,
        "--- the guest has removed its seed, so it keeps the name that it has\n",
    )


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ({"OSP_OS_IMAGE": ""}, "image 'debian-12' is not declared: gnt-os modify -O os-image="),
        ({"OSP_OS_IMAGE": "/nowhere/image"}, "there is no image /nowhere/image on this node"),
        ({"OSP_CHECKSUM": "sha256:" + "0" * 64}, "has another checksum than sha256:000"),
        ({"DISK_0_SIZE": "5"}, "the first disk has 5 MiB, {image} needs 6 MiB or more (-s 6m)"),
        ({"DISK_COUNT": "0"}, "web1.example.com has no disk to install on"),
        ({"OSP_USER_DATA": "/nowhere/data"}, "there is no file /nowhere/data on this node"),
    ],
)
def test_what_is_wrong_is_said_before_the_disk_is_written_to(
    tmp_path: Path, env: dict[str, str], text: str
) -> None:
    image = str(make_image(tmp_path / "a.qcow2"))
    result = run("create", tmp_path, **{"OSP_OS_IMAGE": image, **env})
    assert result.returncode == 1
    assert text.format(image=image) in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not any((tmp_path / "disk").read_bytes())


def test_a_program_that_is_missing_is_named_with_its_package(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("dirname", "env", "sfdisk", "qemu-img", "mkfs.vfat"):
        (programs / name).symlink_to(shutil.which(name) or "")
    result = run("create", tmp_path, OSP_OS_IMAGE="/image", PATH=str(programs))
    text = "mcopy is not installed on this node (Debian package mtools)\n"
    assert (result.returncode, result.stderr) == (1, text)


def test_an_image_that_only_changes_another_is_refused(tmp_path: Path) -> None:
    make_image(tmp_path / "a.qcow2")
    options = ("-F", "qcow2", "-b", tmp_path / "a.qcow2")
    command("qemu-img", "create", "-f", "qcow2", *options, tmp_path / "b.qcow2")
    result = run("create", tmp_path, OSP_OS_IMAGE=str(tmp_path / "b.qcow2"))
    assert "b.qcow2 is only the changes to another image" in result.stderr


def test_an_image_with_its_data_in_a_file_of_the_node_is_refused(tmp_path: Path) -> None:
    """Whoever made the image would get to read that file."""
    (tmp_path / "secret").write_bytes(b"s" * (1 << 20))
    options = ("-o", f"data_file={tmp_path}/secret,data_file_raw=on")
    command("qemu-img", "create", "-f", "qcow2", *options, tmp_path / "a.qcow2", "1M")
    result = run("create", tmp_path, OSP_OS_IMAGE=str(tmp_path / "a.qcow2"))
    assert result.returncode == 1
    assert "or has its data in another file" in result.stderr
    assert not any((tmp_path / "disk").read_bytes())


def test_an_image_without_partitions_needs_a_disk_for_the_seed(tmp_path: Path) -> None:
    image = make_image(tmp_path / "a.raw", "")
    result = run("create", tmp_path, OSP_OS_IMAGE=str(image))
    assert result.returncode == 1
    assert f"{image} has no partitions; give the instance a second disk with name=cidata" in (
        result.stderr
    )


class Requests(http.server.SimpleHTTPRequestHandler):
    """Serves files, and counts."""

    count = 0

    def do_GET(self) -> None:
        type(self).count += 1
        super().do_GET()

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A web server with one image."""
    make_image(tmp_path / "www.qcow2")
    monkeypatch.chdir(tmp_path)
    Requests.count = 0
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Requests) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/www.qcow2"
        server.shutdown()


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_images_come_from_urls_with_the_right_checksum_only(tmp_path: Path, site: str) -> None:
    digits = hashlib.sha512((tmp_path / "www.qcow2").read_bytes()).hexdigest()
    env = {"OSP_OS_IMAGE": site, "OSP_CHECKSUM": f"sha512:{digits}"}
    result = run("create", tmp_path, **env)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "disk").read_bytes()[MIB:].startswith(CONTENT)

    cache = tmp_path / "cache"
    cache.mkdir()
    for _time in range(2):
        assert run("create", tmp_path, **env, OSP_CACHE=str(cache)).returncode == 0
        assert [each.name for each in cache.iterdir()] == [digits]
    assert Requests.count == 2
    (cache / digits).write_bytes(b"spoilt")
    assert run("create", tmp_path, **env, OSP_CACHE=str(cache)).returncode == 0
    assert Requests.count == 3

    (tmp_path / "disk").unlink()
    wrong = {"OSP_CHECKSUM": "sha512:" + "0" * 128}
    for changed, text in (
        (wrong, f"{site} has another checksum than sha512:000"),
        ({**wrong, "OSP_CACHE": str(cache)}, f"{site} has another checksum than sha512:000"),
        ({"OSP_OS_IMAGE": f"{site}x"}, f"cannot download {site}x"),
        ({"OSP_OS_IMAGE": "http://127.0.0.1:9/x"}, "cannot download http://127.0.0.1:9/x"),
    ):
        result = run("create", tmp_path, **{**env, **changed})
        assert result.returncode == 1
        assert text in result.stderr
        assert not any((tmp_path / "disk").read_bytes())


def test_it_is_a_valid_definition(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    shutil.copytree(EXAMPLE, Path(paths.os_search_path[0]) / "cloud")
    definition = os_definitions.load(paths, "cloud+debian-12")
    assert "debian-12" in definition.variants
    assert definition.hypervisors == ("kvm", "fake")
    assert not definition.missing
    context = NodeContext(paths, "node1.example.com")
    digits = "0123456789abcdef" * 4
    for params, is_valid in (
        ({"os-image": "/a/file"}, True),
        ({"checksum": f"sha256:{digits}", "os-image": "https://example.com/a"}, True),
        ({"checksum": "", "os-image": "https://example.com/a"}, False),
        ({"checksum": f"sha512:{digits}"}, False),
        ({"checksum": f"sha256:{digits[1:]}g"}, False),
        ({"checksum": f"md5:{digits}"}, False),
        ({"cache": "/"}, True),
        ({"cache": "images"}, False),
        ({"user": "debian"}, True),
        ({"user": "Joe: x"}, False),
        ({"ssh_key": f"{KEY}\n{KEY}"}, True),
        ({"ssh_key": "/root/.ssh/id.pub"}, False),
        ({"user_data": "#cloud-config\npackages: [vim]"}, True),
        ({"user_data": "packages: [vim]"}, False),
        ({"dns": "192.0.2.1 2001:db8::1"}, True),
        ({"dns": "192.0.2.1; rm"}, False),
    ):
        arguments = (True, "cloud+debian-12", ["parameters"], params, False)
        if is_valid:
            assert os_definitions.OsDefinitions(context).os_validate(*arguments)
        else:
            with pytest.raises(Exception, match=next(iter(params))):
                os_definitions.OsDefinitions(context).os_validate(*arguments)
