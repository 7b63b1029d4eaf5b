"""From an export to an OVF or OVA for other programs; of a chain the newest point is taken."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError, ProtocolError, wrong_state
from ganeti.cli.ovf import envelope, images
from ganeti.cli.ovf.envelope import OvfDisk, OvfMachine
from ganeti.node_ops.disks import chains
from ganeti.node_ops.disks.chains import Point
from ganeti.protocol.export_description import (
    CONFIG_NAME,
    DumpedDisk,
    ExportDescription,
    is_difference,
    parse_description,
)
from ganeti.storage.stream import streamed_bytes
from ganeti.store.working_directory import OVF, working_directory
from ganeti.system import files

_MIB: Final = 1 << 20
_CONFIG_BYTES_MAX: Final = 1 << 20
_DIRECTORY_MODE: Final = 0o750
_FILE_MODE: Final = 0o640
_NETWORK: Final = "bridged"


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be written: a directory of files, or one archive."""

    directory: str
    name: str | None
    format: str
    is_archive: bool


def export_ovf(path: str, target: Target, say: Callable[[str], None]) -> str:
    """Write an export as OVF; returns the path of what was written.

    Args:
        say: is told of each disk.

    Raises:
        OpPrereqError: there is no such export, or it cannot be written so; nothing is left.
        OpExecError: a disk cannot be converted; nothing is left.
        OSError: something cannot be read or written.
    """
    source = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
    points = _read(source)
    name = target.name or points[-1].description.name
    final = os.path.join(target.directory, f"{name}.ova" if target.is_archive else name)
    if "/" in name or os.path.lexists(final):
        raise wrong_state(f"there is {final} already, or its name has a slash")
    files.ensure_directory(target.directory, _DIRECTORY_MODE)
    with working_directory(OVF, target.directory) as work:
        made = os.path.join(work, name)
        files.ensure_directory(made, _DIRECTORY_MODE)
        names = _write(points, made, name, target.format, say)
        if target.is_archive:
            archive = os.path.join(work, "archive")
            _pack(made, names, archive)
            made = archive
        os.rename(made, final)
        files.fsync_directory(target.directory)
    return final


def _read(directory: str) -> list[Point]:
    """Return the points of an export; the files of the newest one, which are written, are there."""
    path = os.path.join(directory, CONFIG_NAME)
    data = files.read_bytes_or_none(path, _CONFIG_BYTES_MAX)
    if data is None:
        raise OpPrereqError(f"there is no export in {directory}", ErrorCode.NOENT)
    try:
        found = parse_description(data.decode("utf-8", "replace"))
    except ProtocolError as err:
        raise OpPrereqError(f"{path}: {err.message}") from err
    if any(is_difference(disk.dump) for disk in found.disks):
        raise OpPrereqError("the export has only what changed; take the whole one of its chain")
    points = chains.points_of(directory)
    for disk in points[-1].description.disks:
        path = os.path.join(points[-1].directory, disk.dump or "?")
        if not os.path.isfile(path):
            raise OpPrereqError(f"the dump {disk.dump!r} is missing", ErrorCode.NOENT)
        if disk.sha256 and images.digest_of(path) != disk.sha256:
            raise OpPrereqError(f"the dump {disk.dump} is damaged: its checksum is another one")
    return points


def _raw(points: Sequence[Point], disk: DumpedDisk, scratch: str) -> tuple[str, int]:
    """Return a raw image of a disk at the newest point, and its size.

    Args:
        scratch: where the image is made if the dump is none.

    Raises:
        OpExecError: the dump is no whole disk.
        GenericError: something of the export is missing or damaged.
    """
    path = os.path.join(points[-1].directory, disk.dump)
    size = os.path.getsize(path)
    if disk.root:
        layers, root = chains.layers_of(points, points[-1].number, disk.dump)
    else:
        layers, root = [path], ""
    if disk.root or streamed_bytes(path):
        path = scratch
        size = images.expand(layers, root, path)
    if -(-size // _MIB) < disk.size_mib:
        raise OpExecError(
            f"the dump {disk.dump} has {size} bytes, and the disk {disk.size_mib} MiB: it is not"
            " the whole disk, but what the export script of its operating system made of it"
        )
    return path, size


def _write(
    points: Sequence[Point], made: str, name: str, kind: str, say: Callable[[str], None]
) -> list[str]:
    """Write all files; returns their names in the order of an archive."""
    found, scratch = points[-1].description, os.path.join(made, ".disk")
    vcpus, memory_mib = _count(found, "vcpus", "1"), _count(found, "maxmem", "128")
    disks, digests = list[OvfDisk](), dict[str, str]()
    for index, disk in enumerate(found.disks):
        file = f"{name}-disk{index}{images.ENDINGS[kind]}"
        written = os.path.join(made, file)
        say(f"Disk {index}: {disk.size_mib} MiB, as {kind}")
        raw, size = _raw(points, disk, scratch)
        images.from_raw(raw, kind, written)
        files.remove_if_exists(scratch)
        os.chmod(written, _FILE_MODE)
        disks.append(
            OvfDisk(file=file, size_bytes=size, format=kind, file_bytes=os.path.getsize(written))
        )
        digests[file] = images.digest_of(written)
    machine = OvfMachine(
        name=name,
        vcpus=vcpus,
        memory_mib=memory_mib,
        disks=disks,
        nics=[
            {"network": nic.get("network") or nic.get("link") or _NETWORK}
            | ({"mac": nic["mac"]} if "mac" in nic else {})
            for nic in found.nics
        ],
    )
    document, manifest = f"{name}.ovf", f"{name}.mf"
    files.write_durable(os.path.join(made, document), envelope.write_machine(machine), _FILE_MODE)
    digests = {document: images.digest_of(os.path.join(made, document)), **digests}
    text = envelope.write_manifest(digests)
    files.write_durable(os.path.join(made, manifest), text.encode(), _FILE_MODE)
    return [document, manifest, *(disk.file for disk in disks)]


def _count(found: ExportDescription, name: str, default: str) -> int:
    """Return a back-end parameter that is a number."""
    try:
        return envelope.quantity(found.beparams.get(name, default), name)
    except ProtocolError as err:
        raise OpPrereqError(f"the export cannot be written so: {err.message}") from err


def _pack(made: str, names: list[str], path: str) -> None:
    """Write an archive.

    Raises:
        OpExecError: the kind of archive that OVF wants cannot hold a file.
    """
    with open(path, "xb") as out:
        os.fchmod(out.fileno(), _FILE_MODE)  # it has the contents of all disks
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name in names:
                try:
                    archive.add(os.path.join(made, name), arcname=name)
                except ValueError as err:  # too large, or its name too long, for this kind
                    raise OpExecError(
                        f"{name} cannot be in an OVA ({err}); leave out --ova"
                    ) from err
