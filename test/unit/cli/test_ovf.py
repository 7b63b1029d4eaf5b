"""Machines of other programs become exports; bad archives are refused in one line."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ganeti.base.errors import GenericError
from ganeti.cli.ovf import envelope
from ganeti.cli.ovf.exporting import Target, export_ovf
from ganeti.cli.ovf.images import QEMU_IMG
from ganeti.cli.ovf.importing import Wish, import_ovf
from ganeti.protocol.export_description import CONFIG_NAME, parse_description

if shutil.which(QEMU_IMG) is None:
    pytest.skip("qemu-img is not installed", allow_module_level=True)

MIB = 1 << 20
WISH = Wish(name=None, os="cloud", hypervisor="kvm", disk_template="file")
MACHINE = envelope.OvfMachine(
    name="web1.example.com",
    vcpus=3,
    memory_mib=384,
    disks=[envelope.OvfDisk(file="web1-0.vmdk", size_bytes=2 * MIB, format="vmdk", file_bytes=1)],
    nics=[{"network": "bridged", "mac": "aa:00:00:00:00:01"}],
)
# As another program writes it: other units, another order, things that nobody knows.
FOREIGN = """<?xml version="1.0"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:o="http://schemas.dmtf.org/ovf/envelope/1"
  xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData"
  xmlns:x="http://example.com/x" o:version="1.0" x:made="yes">
 <References><File o:href="a%20disk.img" o:id="f1" o:compression="gzip"/></References>
 <DiskSection><Info>x</Info>
  <Disk o:capacity="2" o:capacityAllocationUnits="byte * 2^20" o:diskId="d1" o:fileRef="f1"/>
 </DiskSection>
 <VirtualSystem o:id="guest9"><Info>x</Info><x:Thing/>
  <VirtualHardwareSection><Info>x</Info>
   <Item><rasd:HostResource>ovf:/disk/d1</rasd:HostResource><rasd:ResourceType>17</rasd:ResourceType></Item>
   <Item><rasd:AllocationUnits>GigaBytes</rasd:AllocationUnits>
     <rasd:ResourceType>4</rasd:ResourceType><rasd:VirtualQuantity>2</rasd:VirtualQuantity></Item>
  </VirtualHardwareSection></VirtualSystem>
</Envelope>"""


def qemu_img(*words: object) -> None:
    subprocess.run([QEMU_IMG, *map(str, words)], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def content() -> bytes:
    return os.urandom(MIB) + b"\0" * MIB


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> dict[str, bytes]:
    """The files of an OVA."""
    place = tmp_path_factory.mktemp("sample")
    (place / "raw").write_bytes(content)
    qemu_img("convert", "-f", "raw", "-O", "vmdk", "-o", "subformat=streamOptimized",
             place / "raw", place / "disk")  # fmt: skip
    return with_manifest(
        {"web1.ovf": envelope.write_machine(MACHINE), "web1-0.vmdk": (place / "disk").read_bytes()}
    )


def with_manifest(files: dict[str, bytes]) -> dict[str, bytes]:
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return {**files, "web1.mf": envelope.write_manifest(digests).encode()}


def pack(path: Path, files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def take(path: Path, target: Path, wish: Wish = WISH) -> str:
    return import_ovf(str(path), str(target), wish, lambda _text: None)


def test_an_ova_becomes_an_export(tmp_path: Path, sample: dict[str, bytes], content: bytes) -> None:
    name = take(pack(tmp_path / "a.ova", sample), tmp_path / "out")
    assert name == "web1.example.com"
    made = tmp_path / "out" / name
    found = parse_description((made / CONFIG_NAME).read_text())
    assert found.beparams == {"maxmem": "384", "minmem": "384", "vcpus": "3"}
    assert found.nics == [{"mac": "aa:00:00:00:00:01"}]
    assert (found.os, found.hypervisor, found.disk_template) == ("cloud", "kvm", "file")
    [disk] = found.disks
    assert (made / disk.dump).read_bytes() == content
    assert disk.sha256 == hashlib.sha256(content).hexdigest()
    assert disk.size_mib == 2
    assert sorted(os.listdir(made)) == sorted([CONFIG_NAME, disk.dump])
    assert os.listdir(tmp_path / "out") == [name]


@pytest.mark.parametrize("kind", ["vmdk", "cow", "raw"])
@pytest.mark.parametrize("is_archive", [True, False])
def test_an_export_goes_out_and_comes_back(
    tmp_path: Path, sample: dict[str, bytes], content: bytes, kind: str, is_archive: bool
) -> None:
    name = take(pack(tmp_path / "a.ova", sample), tmp_path)
    target = Target(str(tmp_path / "out"), "copy", kind, is_archive)
    path = export_ovf(str(tmp_path / name), target, lambda _text: None)
    assert path == str(tmp_path / "out" / ("copy.ova" if is_archive else "copy"))
    back = Path(path) if is_archive else Path(path) / "copy.ovf"
    take(back, tmp_path / "back")
    found = parse_description((tmp_path / "back" / "copy" / CONFIG_NAME).read_text())
    assert (tmp_path / "back" / "copy" / found.disks[0].dump).read_bytes() == content
    with pytest.raises(GenericError, match="already"):
        export_ovf(str(tmp_path / name), target, lambda _text: None)


def test_what_other_programs_write_is_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.ovf").write_text(FOREIGN)
    (tmp_path / "a disk.img").write_bytes(gzip.compress(content, 1))
    assert take(tmp_path / "x.ovf", tmp_path / "out") == "guest9"
    found = parse_description((tmp_path / "out" / "guest9" / CONFIG_NAME).read_text())
    assert found.beparams == {"maxmem": "2048", "minmem": "2048", "vcpus": "1"}
    assert (tmp_path / "out" / "guest9" / found.disks[0].dump).read_bytes() == content


Files = dict[str, bytes]


def replaced(files: Files, old: bytes, new: bytes) -> Files:
    """Other words in the description, whose checksum is right."""
    plain = {name: data for name, data in files.items() if not name.endswith(".mf")}
    assert old in plain["web1.ovf"]
    return with_manifest({**plain, "web1.ovf": plain["web1.ovf"].replace(old, new)})


def other_disk(files: Files, data: bytes) -> Files:
    return with_manifest({"web1.ovf": files["web1.ovf"], "web1-0.vmdk": data})


def less(files: Files, name: str) -> Files:
    return {each: data for each, data in files.items() if each != name}


BAD: dict[str, tuple[Callable[[Files], Files], str]] = {
    "traversal": (lambda f: {**f, "../evil": b"x"}, "'../evil', which is not a file of its own"),
    "absolute": (lambda f: {**f, "/tmp/evil": b"x"}, "member '/tmp/evil'"),
    "path of a disk": (lambda f: replaced(f, b"web1-0.vmdk", b"../../etc/passwd"), "not taken"),
    "coded path": (lambda f: replaced(f, b"web1-0.vmdk", b"..%2Fpasswd"), "not taken"),
    "missing disk": (lambda f: less(less(f, "web1-0.vmdk"), "web1.mf"), "'web1-0.vmdk' is missing"),
    "missing in manifest": (lambda f: less(f, "web1-0.vmdk"), "is missing"),
    "checksum": (lambda f: {**f, "web1-0.vmdk": f["web1-0.vmdk"] + b"x"}, "checksum is not that"),
    "manifest": (lambda f: {**f, "web1.mf": b"nonsense"}, "the manifest has the line"),
    "no description": (lambda f: less(f, "web1.ovf"), "does not begin with an .ovf file"),
    "no xml": (lambda f: with_manifest({**less(f, "web1.mf"), "web1.ovf": b"<a"}), "is not XML"),
    "entities": (lambda f: replaced(f, b"<ovf:Env", b"<!DOCTYPE a []><ovf:Env"), "document type"),
    "quantity": (lambda f: replaced(f, b">384<", b">-1<"), "VirtualQuantity of Memory is '-1'"),
    "unit": (lambda f: replaced(f, b"byte * 2^20", b"pages"), "the unit 'pages' is not known"),
    "name": (lambda f: replaced(f, b"web1.example.com", b"../web1"), "no name of an instance"),
    "larger": (lambda f: replaced(f, b"2097152", b"1000"), "the description says 1000"),
    "damaged disk": (lambda f: other_disk(f, b"KDMV" + b"\xff" * 600), "cannot be read as vmdk"),
    "descriptor": (
        lambda f: other_disk(f, b'# Disk DescriptorFile\nRW 1 FLAT "/etc/passwd" 0\n'),
        "only describes other files",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_archives_are_refused_in_one_line(
    tmp_path: Path, sample: dict[str, bytes], case: str
) -> None:
    change, text = BAD[case]
    path = pack(tmp_path / "a.ova", change(dict(sample)))
    with pytest.raises(GenericError) as raised:
        take(path, tmp_path / "out")
    assert text in raised.value.message
    assert "\n" not in raised.value.message.strip()
    assert os.listdir(tmp_path / "out") == []
    assert not (tmp_path / "evil").exists()


def test_links_in_an_archive_are_refused(tmp_path: Path, sample: dict[str, bytes]) -> None:
    path = tmp_path / "a.ova"
    with tarfile.open(pack(path, less(sample, "web1-0.vmdk")), "a") as archive:
        link = tarfile.TarInfo("web1-0.vmdk")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(GenericError, match="not a file of its own"):
        take(path, tmp_path / "out")


def test_a_disk_that_refers_to_files_of_this_machine_is_refused(
    tmp_path: Path, sample: dict[str, bytes]
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * 2 * MIB)
    image = tmp_path / "image"
    qemu_img("create", "-q", "-f", "qcow2", "-b", secret, "-F", "raw", image)
    path = pack(tmp_path / "a.ova", other_disk(sample, image.read_bytes()))
    with pytest.raises(GenericError, match="refers to other files"):
        take(path, tmp_path / "out")
    data_file = tmp_path / "data"
    qemu_img("create", "-q", "-f", "qcow2", "-o", f"data_file={data_file}", image, "2M")
    path = pack(tmp_path / "b.ova", other_disk(sample, image.read_bytes()))
    with pytest.raises(GenericError, match="refers to other files"):
        take(path, tmp_path / "out")


def test_a_disk_cannot_fill_the_machine(tmp_path: Path) -> None:
    (tmp_path / "x.ovf").write_text(FOREIGN)
    with gzip.open(tmp_path / "a disk.img", "wb", compresslevel=1) as file:
        for _ in range(80):
            file.write(b"\0" * MIB)
    with pytest.raises(GenericError, match="more content than the disk"):
        take(tmp_path / "x.ovf", tmp_path / "out")


def test_damaged_exports_are_refused(tmp_path: Path, sample: dict[str, bytes]) -> None:
    name = take(pack(tmp_path / "a.ova", sample), tmp_path)
    [dump] = (tmp_path / name).glob("*.dump")
    dump.write_bytes(b"\1" * 2 * MIB)
    target = Target(str(tmp_path / "out"), None, "raw", is_archive=True)
    with pytest.raises(GenericError, match="checksum is another one"):
        export_ovf(str(tmp_path / name), target, lambda _text: None)
    dump.unlink()
    with pytest.raises(GenericError, match="is missing"):
        export_ovf(str(tmp_path / name), target, lambda _text: None)
    with pytest.raises(GenericError, match="there is no export"):
        export_ovf(str(tmp_path / "nowhere"), target, lambda _text: None)
