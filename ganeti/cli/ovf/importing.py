"""From an OVF or OVA to an export that ``gnt-backup import`` takes.

The archive comes from anywhere.  Everything is looked at before the first disk is converted, and
the export appears by one rename of its directory.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, GenericError, OpPrereqError, ProtocolError, wrong_state
from ganeti.cli.ovf import envelope, images
from ganeti.cli.ovf.envelope import OvfDisk, OvfMachine
from ganeti.protocol.export_description import (
    CONFIG_NAME,
    DumpedDisk,
    ExportDescription,
    dump_name,
    format_description,
)
from ganeti.store.working_directory import OVF, working_directory
from ganeti.system import clock, files

_MIB: Final = 1 << 20
_XML_BYTES_MAX: Final = 16 << 20
_DOCUMENT: Final = ".ovf"
_SLACK_BYTES: Final = 64 << 20  # of formats with tables of their own
_DIRECTORY_MODE: Final = 0o750
_CONFIG_MODE: Final = 0o600
_PLAIN_NAME: Final = re.compile(r"[^/\0]+")
_INSTANCE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user wants to be otherwise; None is as in the archive."""

    name: str | None
    os: str
    hypervisor: str
    disk_template: str


@dataclass(frozen=True, slots=True)
class Source:
    """The files of a machine, in one directory, and what it is."""

    directory: str
    machine: OvfMachine

    def path_of(self, disk: OvfDisk) -> str:
        """Return the path of a disk's file."""
        return os.path.join(self.directory, disk.file)


def import_ovf(path: str, directory: str, wish: Wish, say: Callable[[str], None]) -> str:
    """Write the export of a machine below a directory; returns its name.

    Args:
        say: is told of each disk.

    Raises:
        OpPrereqError: the archive cannot be taken; nothing is left.
        OpExecError: a disk cannot be converted; nothing is left.
        OSError: something cannot be read or written.
    """
    if not os.path.isfile(path):
        raise OpPrereqError(f"{path} is no file", ErrorCode.NOENT)
    files.ensure_directory(directory, _DIRECTORY_MODE)
    with working_directory(OVF, directory) as work:
        source = _open(path, work)
        name = wish.name or source.machine.name
        if not _INSTANCE_NAME.fullmatch(name):
            raise OpPrereqError(f"{name!r} is no name of an instance; give one with -n")
        target = os.path.join(directory, name)
        if os.path.lexists(target):
            raise wrong_state(f"there is an export {target} already")
        made = os.path.join(work, "export")
        files.ensure_directory(made, _DIRECTORY_MODE)
        description = _write(source, made, name, wish, say)
        text = format_description(description)
        files.write_durable(os.path.join(made, CONFIG_NAME), text.encode(), _CONFIG_MODE)
        os.rename(made, target)
        files.fsync_directory(directory)
    return name


def _open(path: str, work: str) -> Source:
    """Unpack an OVA, or take the files beside an OVF; all of use are there, and as they were."""
    _check_compression(path)
    with _reading_archive():
        is_archive = tarfile.is_tarfile(path)
    if is_archive:
        directory = os.path.join(work, "archive")
        files.ensure_directory(directory, _DIRECTORY_MODE)
        document, machine = _unpack(path, directory)
    else:
        directory, document = os.path.split(os.path.abspath(path))
        machine = _described(document, directory)
    _check_files(machine, directory)
    _check_manifest(document, machine, directory)
    return Source(directory, machine)


def _check_compression(path: str) -> None:
    """Refuse a compressed archive: nobody knows how much is in it."""
    with open(path, "rb") as file:
        head = file.read(images.HEAD_BYTES)
    if program := images.begins_as(images.COMPRESSED, head):
        raise OpPrereqError(f"{path} is compressed by {program}, and an OVA is not; decompress it")


def _described(document: str, directory: str) -> OvfMachine:
    """Read the description of a machine."""
    try:
        data = files.read_bytes(os.path.join(directory, document), _XML_BYTES_MAX)
        return envelope.read_machine(data)
    except ProtocolError as err:
        raise OpPrereqError(f"{document} cannot be used: {err.message}") from err


def _unpack(path: str, directory: str) -> tuple[str, OvfMachine]:
    """Unpack the first file of an archive, and those that this one describes.

    Returns:
        Its name, and the machine that it describes.
    """
    document, machine = "", None
    seen, wanted = set[str](), set[str]()
    with _reading_archive(), tarfile.open(path, "r:") as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if name in seen or not _is_plain(name) or not _is_whole(member):
                raise OpPrereqError(
                    f"the archive has a member {member.name!r}, which is not a file of its own"
                    " directory with all of its content; it is not taken"
                )
            seen.add(name)
            if machine is None:
                _unpack_member(archive, member, os.path.join(directory, name))
                document, machine = name, _first(name, directory)
                wanted = {_manifest_of(name), *(disk.file for disk in machine.disks)}
            elif name in wanted:
                _unpack_member(archive, member, os.path.join(directory, name))
    if machine is None:
        raise OpPrereqError("the archive is empty")
    return document, machine


@contextlib.contextmanager
def _reading_archive() -> Iterator[None]:
    """Refuse a damaged archive: of wrong numbers in extended headers, tarfile has no words.

    Raises:
        OpPrereqError: it is damaged.
    """
    try:
        yield
    except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as err:
        raise OpPrereqError(f"the archive is damaged: {err}") from err


def _is_whole(member: tarfile.TarInfo) -> bool:
    """Tell whether a member of an archive is a file that takes its whole size there."""
    return member.isfile() and not member.issparse() and member.size >= 0


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    file = archive.extractfile(member)
    assert file is not None
    with file, open(path, "xb") as out:
        shutil.copyfileobj(file, out)


def _first(name: str, directory: str) -> OvfMachine:
    """Read the description that an archive begins with."""
    if not name.endswith(_DOCUMENT):
        raise OpPrereqError("the archive does not begin with an .ovf file, so it is no OVA")
    return _described(name, directory)


def _manifest_of(document: str) -> str:
    return f"{document.removesuffix(_DOCUMENT)}.mf"


def _is_plain(name: str) -> bool:
    return bool(_PLAIN_NAME.fullmatch(name)) and name not in (".", "..")


def _check_files(machine: OvfMachine, directory: str) -> None:
    """Refuse disks whose files lie elsewhere, are missing, or have another size than described."""
    for disk in machine.disks:
        if not _is_plain(disk.file):
            raise OpPrereqError(
                f"a disk is in {disk.file!r}, which is not in the same directory; it is not taken"
            )
        path = os.path.join(directory, disk.file)
        if os.path.islink(path) or not os.path.isfile(path):
            raise OpPrereqError(f"the disk {disk.file!r} is missing", ErrorCode.NOENT)
        if disk.file_bytes and (size := os.path.getsize(path)) != disk.file_bytes:
            raise OpPrereqError(
                f"the file {disk.file!r} has {size} bytes, and its description says"
                f" {disk.file_bytes}: it is not complete, or another one"
            )


def _check_manifest(document: str, machine: OvfMachine, directory: str) -> None:
    """Compare the digests of the files of use with those of a manifest, if there is one."""
    name = _manifest_of(document)
    data = files.read_bytes_or_none(os.path.join(directory, name), _XML_BYTES_MAX)
    if data is None:
        return
    try:
        digests = envelope.read_manifest(data.decode("utf-8", "replace"))
    except ProtocolError as err:
        raise OpPrereqError(f"{name} cannot be used: {err.message}") from err
    for file in (document, *(disk.file for disk in machine.disks)):
        if file not in digests:
            continue
        algorithm, wanted = digests[file]
        if images.digest_of(os.path.join(directory, file), algorithm) != wanted:
            raise OpPrereqError(f"{file} is damaged: its checksum is not that of the manifest")


def _write(
    source: Source, made: str, name: str, wish: Wish, say: Callable[[str], None]
) -> ExportDescription:
    """Convert all disks, after a look at each."""
    machine = source.machine
    looked = [_looked_at(source, disk, made, i) for i, disk in enumerate(machine.disks)]
    disks = []
    for index, (path, kind, size_bytes) in enumerate(looked):
        say(f"Disk {index}: {size_bytes} bytes, {kind}")
        dump = dump_name(clock.new_uuid())
        target = os.path.join(made, dump)
        images.to_raw(path, kind, target)
        size_mib = -(-size_bytes // _MIB)
        with open(target, "r+b") as file:
            file.truncate(size_mib * _MIB)
            os.fsync(file.fileno())
        digest = images.digest_of(target)
        disks.append(
            DumpedDisk(size_mib=size_mib, dump=dump, iv_name=f"disk/{index}", sha256=digest)
        )
        if path.startswith(made):
            os.unlink(path)
    memory, vcpus = str(machine.memory_mib), str(machine.vcpus)
    return ExportDescription(
        name=name,
        os=wish.os,
        source_node="",
        timestamp=int(clock.now()),
        hypervisor=wish.hypervisor,
        disk_template=wish.disk_template,
        disks=disks,
        nics=[{"mac": nic["mac"]} if "mac" in nic else {} for nic in machine.nics],
        beparams={"maxmem": memory, "minmem": memory, "vcpus": vcpus},
    )


def _looked_at(source: Source, disk: OvfDisk, made: str, index: int) -> tuple[str, str, int]:
    """Return path, format and size of a disk, decompressed."""
    path = source.path_of(disk)
    if disk.is_gzip:
        unpacked = os.path.join(made, f".{index}")
        images.unpack_gzip(path, unpacked, bytes_max=disk.size_bytes + _SLACK_BYTES)
        path = unpacked
    kind = images.format_of(path, disk.format)
    size = images.size_of(path, kind)
    if size > max(disk.size_bytes, 1) + _MIB:
        raise OpPrereqError(
            f"{disk.file} has {size} bytes, and the description says {disk.size_bytes}"
        )
    if size == 0:
        raise GenericError(f"{disk.file} is empty")
    if kind == "raw" and size < disk.size_bytes:
        raise OpPrereqError(
            f"{disk.file} is not complete: as a raw disk it has {size} bytes, and the description"
            f" says {disk.size_bytes}"
        )
    return path, kind, max(size, disk.size_bytes)
