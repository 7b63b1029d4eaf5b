"""Machines of other programs become exports; bad archives are refused in one line."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import re
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.cli.declaration.parser import parse
from ganeti.cli.ovf import envelope, images, importing
from ganeti.cli.ovf.command import PROGRAM
from ganeti.cli.ovf.exporting import Target, export_ovf
from ganeti.cli.ovf.images import QEMU_IMG
from ganeti.cli.ovf.importing import Wish, import_ovf
from ganeti.cli.run.context import Context, Terminal
from ganeti.cli.run.endings import ENDINGS
from ganeti.cli.run.main import carry_out
from ganeti.protocol.export_description import (
    CONFIG_NAME,
    DumpedDisk,
    ExportDescription,
    format_description,
    parse_description,
)
from ganeti.storage.chains.layers import RootCounter
from ganeti.storage.stream import DiskReader, LocalImage, Run, encoded

if shutil.which(QEMU_IMG) is None:
    pytest.skip("qemu-img is not installed", allow_module_level=True)

MIB = 1 << 20
VMDK = "http://www.vmware.com/interfaces/specifications/vmdk.html"
WISH = Wish(name=None, os="cloud", hypervisor="kvm", disk_template="file")
MACHINE = envelope.OvfMachine(
    name="web1.example.com",
    vcpus=3,
    memory_mib=384,
    disks=[envelope.OvfDisk(file="web1-0.vmdk", size_bytes=2 * MIB, format="vmdk")],
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


@pytest.mark.parametrize("number", ENDINGS)
def test_the_end_of_the_session_leaves_no_disks(
    tmp_path: Path,
    sample: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    def end(*_args: object) -> None:
        signal.raise_signal(number)

    take(pack(tmp_path / "a.ova", sample), tmp_path)
    monkeypatch.setattr(images, "to_raw", end)
    monkeypatch.setattr(images, "from_raw", end)
    before = {each: signal.getsignal(each) for each in ENDINGS}
    target = str(tmp_path / "out")
    for command, file in (("import", "a.ova"), ("export", "web1.example.com")):
        for each in ENDINGS:
            signal.signal(each, signal.SIG_DFL)
        with pytest.raises(KeyboardInterrupt):
            act(command, str(tmp_path / file), "--output-dir", target)
        assert os.listdir(target) == []
    for each, handler in before.items():
        signal.signal(each, handler)


def act(*words: str) -> None:
    """Run the program."""
    line = parse(PROGRAM, list(words), {})
    terminal = Terminal(io.StringIO(), io.StringIO(), io.StringIO())
    carry_out(Context(PROGRAM.name, line.command, line.options, terminal), line)


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


def described(directory: Path, disk: DumpedDisk, number: int = 0) -> None:
    """Write the description of an export."""
    found = ExportDescription(
        name="web1",
        os="cloud",
        source_node="",
        timestamp=1,
        hypervisor="kvm",
        disk_template="plain",
        disks=[disk],
        nics=[],
        beparams={"vcpus": f"{number + 1}"},
        instance_uuid="u",
        point=f"p{number}",
        number=number,
    )
    directory.mkdir(parents=True, exist_ok=True)
    (directory / CONFIG_NAME).write_text(format_description(found))


def converted(export: Path, target: Path) -> bytes:
    """Write an export as raw disks; returns the disk."""
    path = export_ovf(str(export), Target(str(target), None, "raw", False), lambda _text: None)
    assert sorted(os.listdir(path)) == ["web1-disk0.raw", "web1.mf", "web1.ovf"]
    data = (Path(path) / "web1-disk0.raw").read_bytes()
    assert f'capacity="{len(data)}"' in (Path(path) / "web1.ovf").read_text()
    return data


@pytest.mark.parametrize("tail", [b"", b"beyond the recorded size".ljust(MIB)])
def test_a_dump_in_the_form_of_streams_goes_out_as_a_disk(
    tmp_path: Path, content: bytes, tail: bytes
) -> None:
    """As running instances, and those without a system, are dumped."""
    described(tmp_path / "e", DumpedDisk(size_mib=2, dump="d.dump"))
    (tmp_path / "raw").write_bytes(content + tail)
    (tmp_path / "e/d.dump").write_bytes(
        b"".join(DiskReader(LocalImage(str(tmp_path / "raw"))).pieces())
    )
    assert converted(tmp_path / "e", tmp_path / "out") == content + tail


def test_of_a_chain_the_newest_point_goes_out(tmp_path: Path, content: bytes) -> None:
    size = len(content)
    new = b"new" * 21845 + b"!"
    changed: list[Run] = [(0, len(new), new), (3 << 16, 1 << 16, None)]
    newest = new + content[1 << 16 : 3 << 16] + bytes(1 << 16) + content[4 << 16 :]

    def root_of(data: bytes) -> str:
        counter = RootCounter(size)
        list(counter.passing(iter([(0, MIB, data[:MIB]), (MIB, MIB, data[MIB:])])))
        return counter.root()

    first, second = tmp_path / "e", tmp_path / "e" / "increments" / "0001"
    described(first, DumpedDisk(size_mib=2, dump="d.dump", root=root_of(content)))
    whole: list[Run] = [(0, MIB, content[:MIB])]
    (first / "d.dump").write_bytes(b"".join(encoded(whole, size)))
    described(second, DumpedDisk(size_mib=2, dump="d.diff", root=root_of(newest)), 1)
    (second / "d.diff").write_bytes(b"".join(encoded(changed, size, is_difference=True)))
    assert converted(first, tmp_path / "out") == newest
    assert ">2<" in (tmp_path / "out/web1/web1.ovf").read_text(), "the processors of that point"
    with pytest.raises(GenericError, match="only what changed"):
        converted(second, tmp_path / "other")
    (first / "d.dump").write_bytes(b"".join(encoded([(5, 1, b"?")], size)))
    with pytest.raises(GenericError, match="differs from the one exported"):
        converted(first, tmp_path / "other")
    assert os.listdir(tmp_path / "other") == []


def test_what_a_script_made_of_a_disk_does_not_go_out_as_a_disk(tmp_path: Path) -> None:
    described(tmp_path / "e", DumpedDisk(size_mib=2, dump="d.dump"))
    (tmp_path / "e/d.dump").write_bytes(b"an archive".ljust(MIB, b"x"))
    with pytest.raises(GenericError, match=r"has 1048576 bytes, and the disk 2 MiB: it is not"):
        converted(tmp_path / "e", tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []


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


def in_utf_16(files: Files) -> Files:
    """A name that is an entity, in an encoding in which no words of ASCII are found."""
    text = files["web1.ovf"].decode().replace("utf-8", "utf-16")
    text = text.replace("<ovf:Env", '<!DOCTYPE a [<!ENTITY e "web2">]><ovf:Env', 1)
    text = text.replace("<ovf:Name>web1.example.com<", "<ovf:Name>&e;<")
    return with_manifest({**less(files, "web1.mf"), "web1.ovf": text.encode("utf-16")})


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
    "entities in UTF-16": (in_utf_16, "document type"),
    "digits": (
        lambda f: replaced(f, b"Quantity>3<", b"Quantity>%s<" % (b"9" * 5000)),
        "no number that can be",
    ),
    "capacity": (lambda f: replaced(f, b"2097152", b"9" * 30), "of disk 'disk0' is '9999"),
    "unit of a capacity": (
        lambda f: replaced(
            f, b"capacity=", b'capacityAllocationUnits="byte * 10^60" ovf:capacity='
        ),
        "the size of disk 'disk0' is above 9223372036854775807 bytes",
    ),
    "quantity": (lambda f: replaced(f, b">384<", b">-1<"), "VirtualQuantity of Memory is '-1'"),
    "unit": (lambda f: replaced(f, b"byte * 2^20", b"pages"), "the unit 'pages' is not known"),
    "name": (lambda f: replaced(f, b"web1.example.com", b"../web1"), "no name of an instance"),
    "larger": (lambda f: replaced(f, b"2097152", b"1000"), "the description says 1000"),
    "damaged disk": (lambda f: other_disk(f, b"KDMV" + b"\xff" * 600), "cannot be read as vmdk"),
    "damaged magic": (
        lambda f: other_disk(f, b"\xff" * 4 + f["web1-0.vmdk"][4:]),
        "web1-0.vmdk is damaged: it does not begin as a disk of the format that is declared",
    ),
    "size of a file": (
        lambda f: replaced(f, b"<ovf:File ", b'<ovf:File ovf:size="99999999" '),
        " bytes, and its description says 99999999: it is not complete",
    ),
    "no size of a file": (
        lambda f: replaced(f, b"<ovf:File ", b'<ovf:File ovf:size="all" '),
        "the size of file 'disk0' is 'all'",
    ),
    "sparse disk of ESX": (lambda f: other_disk(f, b"COWD" + b"\0" * 600), "(COWD), which is not"),
    "compressed disk": (
        lambda f: other_disk(f, gzip.compress(f["web1-0.vmdk"])),
        "is compressed by gzip, which its description does not say",
    ),
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


@pytest.mark.parametrize(
    "headers",
    [
        {"GNU.sparse.size": ""},
        {"GNU.sparse.realsize": "7V"},
        {"GNU.sparse.map": "1,x"},
        {"size": "9" * 30},
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_wrong_numbers_in_extended_headers_are_damage(
    tmp_path: Path, sample: dict[str, bytes], headers: dict[str, str], is_first: bool
) -> None:
    path = tmp_path / "a.ova"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in sample.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            member.pax_headers = headers if is_first == name.endswith(".ovf") else {}
            archive.addfile(member, io.BytesIO(data))
    with pytest.raises(OpPrereqError, match="the archive "):
        take(path, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_many_extended_headers_are_damage(tmp_path: Path) -> None:
    one = tarfile.TarInfo("x")
    one.type = tarfile.XHDTYPE
    (tmp_path / "a.ova").write_bytes(one.tobuf() * 2000 + bytes(1024))
    with pytest.raises(OpPrereqError, match="the archive is damaged"):
        take(tmp_path / "a.ova", tmp_path / "out")


def test_sparse_members_are_refused(tmp_path: Path, sample: dict[str, bytes]) -> None:
    path = pack(tmp_path / "a.ova", {"web1.ovf": sample["web1.ovf"]})
    with tarfile.open(path, "a", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("web1-0.vmdk")
        member.pax_headers = {
            "GNU.sparse.major": "0",
            "GNU.sparse.minor": "1",
            "GNU.sparse.size": str(80 * MIB),
            "GNU.sparse.map": f"{80 * MIB},0",
        }
        archive.addfile(member)
    with pytest.raises(GenericError, match="with all of its content"):
        take(path, tmp_path / "out")


@pytest.mark.parametrize("program", [gzip, bz2, lzma])
def test_compressed_archives_are_refused(
    tmp_path: Path, sample: dict[str, bytes], program: ModuleType
) -> None:
    path = pack(tmp_path / "a.ova", sample)
    path.write_bytes(program.compress(path.read_bytes()))
    with pytest.raises(GenericError, match="and an OVA is not; decompress it"):
        take(path, tmp_path / "out")


def test_only_files_of_use_are_unpacked(
    tmp_path: Path, sample: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked: list[str] = []
    unpack = importing._unpack_member

    def see(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
        unpacked.append(member.name)
        unpack(archive, member, path)

    monkeypatch.setattr(importing, "_unpack_member", see)
    plain = less(sample, "web1.mf")
    files = with_manifest({**plain, "tools.iso": b"x"})
    take(pack(tmp_path / "a.ova", {**files, "other.vmdk": b"y"}), tmp_path / "out")
    assert unpacked == ["web1.ovf", "web1-0.vmdk", "web1.mf"]


def of_hardware(*sections: str, options: str = "") -> envelope.OvfMachine:
    """Read a machine with sections of hardware."""
    head = FOREIGN.partition("<References>")[0].partition("?>")[2]
    all_of_it = "".join(
        f"<VirtualHardwareSection>{each}</VirtualHardwareSection>" for each in sections
    )
    text = f"{head}{options}<VirtualSystem o:id='a'>{all_of_it}</VirtualSystem></Envelope>"
    return envelope.read_machine(text.encode())


def item(kind: int, quantity: int, number: int, attributes: str = "") -> str:
    values = {"InstanceID": number, "ResourceType": kind, "VirtualQuantity": quantity}
    inside = "".join(f"<rasd:{key}>{value}</rasd:{key}>" for key, value in values.items())
    return f"<Item {attributes}>{inside}</Item>"


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ("", (1, 512)),
        ('<Configuration o:id="small"/><Configuration o:id="big"/>', (1, 512)),
        ('<Configuration o:id="small"/><Configuration o:id="big" o:default="true"/>', (8, 16384)),
    ],
)
def test_a_machine_has_the_hardware_of_one_configuration(
    options: str, size: tuple[int, int]
) -> None:
    section = "".join(
        [
            item(3, 1, 1),
            item(4, 512, 2),
            item(4, 256, 2, 'o:bound="min"'),
            item(4, 1024, 2, 'o:bound="max"'),
            item(3, 8, 1, 'o:configuration="big huge"'),
            item(4, 16384, 2, 'o:configuration="big"'),
            item(4, 65536, 2, 'o:configuration="huge"'),
        ]
    )
    options = f"<DeploymentOptionSection>{options}</DeploymentOptionSection>"
    machine = of_hardware(section, options=options)
    assert (machine.vcpus, machine.memory_mib) == size


def test_of_several_sections_of_hardware_the_first_counts() -> None:
    machine = of_hardware(item(3, 2, 1) + item(4, 512, 2), item(3, 2, 1) + item(4, 640, 2))
    assert (machine.vcpus, machine.memory_mib) == (2, 512)


@pytest.mark.parametrize("declared", ["", envelope.FORMATS["raw"], f"{VMDK}#monolithicFlat"])
def test_raw_disks_have_no_magic(
    tmp_path: Path, sample: dict[str, bytes], content: bytes, declared: str
) -> None:
    files = replaced(sample, envelope.FORMATS["vmdk"].encode(), declared.encode())
    path = pack(tmp_path / "a.ova", other_disk(files, content))
    made = tmp_path / "out" / take(path, tmp_path / "out")
    [disk] = parse_description((made / CONFIG_NAME).read_text()).disks
    assert (made / disk.dump).read_bytes() == content


@pytest.mark.parametrize("is_gzip", [False, True])
def test_a_raw_disk_that_was_cut_off_is_refused(
    tmp_path: Path, content: bytes, *, is_gzip: bool
) -> None:
    text = FOREIGN if is_gzip else FOREIGN.replace('o:compression="gzip"', "")
    form: Callable[[bytes], bytes] = gzip.compress if is_gzip else bytes
    (tmp_path / "x.ovf").write_text(text)
    (tmp_path / "a disk.img").write_bytes(form(content[:-512]))
    with pytest.raises(GenericError, match="img is not complete: as a raw disk it has 2096640 by"):
        take(tmp_path / "x.ovf", tmp_path / "out")
    data = form(content)
    (tmp_path / "a disk.img").write_bytes(data)
    for size in (len(data) - 1, len(data)):  # of the file as it lies there
        sized = text.replace("<File ", f'<File o:size="{size}" ')
        (tmp_path / "x.ovf").write_text(sized)
        if size < len(data):
            with pytest.raises(GenericError, match=f"description says {size}"):
                take(tmp_path / "x.ovf", tmp_path / "out")
    assert take(tmp_path / "x.ovf", tmp_path / "out") == "guest9"


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


def test_a_damaged_compressed_disk_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.ovf").write_text(FOREIGN)
    data = gzip.compress(content, 1)
    (tmp_path / "a disk.img").write_bytes(data[:10] + b"\xff" * 100 + data[110:])
    with pytest.raises(GenericError, match="img is damaged"):
        take(tmp_path / "x.ovf", tmp_path / "out")


@pytest.mark.parametrize("is_archive", [True, False])
def test_contents_of_disks_are_not_for_everybody(
    tmp_path: Path, sample: dict[str, bytes], is_archive: bool
) -> None:
    name = take(pack(tmp_path / "a.ova", sample), tmp_path)
    target = Target(str(tmp_path / "out"), "copy", "vmdk", is_archive)
    path = Path(export_ovf(str(tmp_path / name), target, lambda _text: None))
    found = {each.stat().st_mode & 0o777 for each in ([path] if is_archive else path.iterdir())}
    assert found == {0o640}


@pytest.mark.parametrize("setting", ["vcpus = auto", "maxmem = 1g", f"vcpus = {'9' * 5000}"])
def test_settings_that_are_no_numbers(
    tmp_path: Path, sample: dict[str, bytes], setting: str
) -> None:
    name = take(pack(tmp_path / "a.ova", sample), tmp_path)
    config = tmp_path / name / CONFIG_NAME
    key, _, value = setting.partition(" = ")
    config.write_text(re.sub(rf"(?m)^{key} = .*", f"{key} = {value}", config.read_text()))
    target = Target(str(tmp_path / "out"), None, "raw", is_archive=True)
    with pytest.raises(GenericError, match=f"{key} is '.*', which is no number"):
        export_ovf(str(tmp_path / name), target, lambda _text: None)


def test_names_that_no_ova_can_hold(tmp_path: Path, sample: dict[str, bytes]) -> None:
    name = take(pack(tmp_path / "a.ova", sample), tmp_path)
    target = Target(str(tmp_path / "out"), "n" * 150, "raw", is_archive=True)
    with pytest.raises(GenericError, match="cannot be in an OVA"):
        export_ovf(str(tmp_path / name), target, lambda _text: None)


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
