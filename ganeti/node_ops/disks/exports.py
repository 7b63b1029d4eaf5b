"""Exported instances that lie on this node.

Source: node_rpc.json, calls export_*; constants.json, "export_import".
"""

import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from ganeti.base.errors import GenericError
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.base.text import shown
from ganeti.node_ops.context import NodeHandler
from ganeti.node_ops.disks import chains
from ganeti.node_ops.disks.chains import CHECKSUM_SUFFIX, ROOT_SUFFIX
from ganeti.node_ops.leftovers import end_transfers_into
from ganeti.objects.disk_templates import MIXED
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance, RpcNIC
from ganeti.protocol import export_description
from ganeti.protocol.export_description import (
    PARTIAL_SUFFIX,
    DumpedDisk,
    ExportDescription,
    difference_name,
    dump_name,
    sums_name,
)
from ganeti.protocol.node_rpc_values import ChainPoint
from ganeti.protocol.service import read_as
from ganeti.storage.stream import streamed_bytes
from ganeti.system import clock, files

logger = logging.getLogger(__name__)

_NOTE_NAME: Final = "note"
_TEMPORARY: Final = (CHECKSUM_SUFFIX, ROOT_SUFFIX, _NOTE_NAME)  # until it is complete
_EXPORT_NAME: Final = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]*({re.escape(PARTIAL_SUFFIX)})?")
_CONFIG_BYTES_MAX: Final = 1 << 20
_CONFIG_MODE: Final = 0o600  # it holds private parameters
_DIRECTORY_MODE: Final = 0o750


class Exports(NodeHandler):
    """Exports."""

    def export_list(self) -> list[str]:
        try:
            chains.recover_all(self.paths.export_dir)
            names = os.listdir(self.paths.export_dir)
        except FileNotFoundError:
            return []
        valid = filter(_EXPORT_NAME.fullmatch, names)
        return sorted(name for name in valid if os.path.isdir(f"{self.paths.export_dir}/{name}"))

    def export_info(self, path: str) -> str:
        config_path = os.path.join(local_path(self.paths, path), export_description.CONFIG_NAME)
        data = files.read_bytes_or_none(config_path, _CONFIG_BYTES_MAX)
        if data is None:
            known = shown(self.export_list()) or "none"
            raise GenericError(f"there is no export in {path!r}; exports on this node: {known}")
        return data.decode("utf-8", "replace")

    def export_remove(self, export: str) -> None:
        if not _EXPORT_NAME.fullmatch(export):
            raise GenericError(f"{export!r} is not the name of an export")
        path = os.path.join(self.paths.export_dir, export)
        end_transfers_into(self.node, path)
        chains.recover(path)
        if not os.path.isdir(path):
            raise GenericError(f"there is no export {export!r}")
        chains.discard_old(path)
        chains.discard(path)

    def export_chains(self, exports: Sequence[str]) -> list[tuple[str, list[ChainPoint]]]:
        if exports:
            return [(name, self._points(name)) for name in exports]
        return [(name, self._points_if_readable(name)) for name in self.export_list()]

    def _points_if_readable(self, name: str) -> list[ChainPoint]:
        """Return the points of an export; none if it cannot be read: others are asked for, too."""
        try:
            return self._points(name)
        except (GenericError, OSError) as err:
            logger.warning("Cannot read the export %s: %s; taking it for broken", name, err)
            return []

    def _points(self, name: str) -> list[ChainPoint]:
        directory = local_path(self.paths, name)
        try:
            return _look(directory)
        except FileNotFoundError:  # it was replaced, or grew, in this moment
            return _look(directory)

    def export_note(self, export: str, method: str, point: str = "", number: int = 0) -> None:
        if method not in set(export_description.ReadMethod):
            raise GenericError(f"{method!r} is no way to read the disks of an export")
        directory = local_path(self.paths, export)
        end_transfers_into(self.node, directory)
        files.ensure_directory(directory, _DIRECTORY_MODE)
        note = dumps(_Note(export_description.ReadMethod(method), point, number))
        files.write_atomic(os.path.join(directory, _NOTE_NAME), note, _CONFIG_MODE)

    def finalize_export(self, instance: RpcInstance, snap_disks: Sequence[object]) -> None:
        final = os.path.join(self.paths.export_dir, instance.name)
        partial = final + PARTIAL_SUFFIX
        if not os.path.isdir(partial):
            files.ensure_directory(partial, _DIRECTORY_MODE)
        dumped = [read_as(RpcDisk, disk) if disk else None for disk in snap_disks]
        if len(dumped) != len(instance.disks_info):
            raise GenericError(f"instance {instance.name!r} has another number of disks")
        description = _describe(instance, dumped, partial)
        path = os.path.join(partial, export_description.CONFIG_NAME)
        text = export_description.format_description(description)
        files.write_durable(path, text.encode(), _CONFIG_MODE)
        for name in os.listdir(partial):
            if name.endswith(_TEMPORARY):
                os.unlink(os.path.join(partial, name))
        if description.number:
            chains.append(final, partial, description.number)
        else:
            chains.put_in_place(partial, final)


class _Note(msgspec.Struct, frozen=True):
    """What is known of an export before its dumps are there."""

    method: export_description.ReadMethod | None = None
    point: str = ""
    number: int = 0


def _noted(directory: str) -> _Note:
    data = files.read_bytes_or_none(os.path.join(directory, _NOTE_NAME), _CONFIG_BYTES_MAX)
    return _Note() if data is None else loads_as(_Note, data)


def _look(directory: str) -> list[ChainPoint]:
    chains.recover(directory)
    return [_chain_point(point) for point in chains.points_of(directory)]


def _chain_point(point: chains.Point) -> ChainPoint:
    with_sums = [
        disk
        for each in point.description.disks
        if os.path.isfile(
            f"{point.directory}/{sums_name(disk := export_description.disk_of_dump(each.dump))}"
        )
    ]
    return ChainPoint(
        number=point.number,
        timestamp=point.description.timestamp,
        size=chains.room_of(point.directory),
        with_sums=with_sums,
    )


def local_path(paths: Paths, path: str) -> str:
    """Return where an export lies: a name, or a path below the export directory.

    Raises:
        GenericError: somewhere else.
    """
    if _EXPORT_NAME.fullmatch(path):
        return os.path.join(paths.export_dir, path)
    local = paths.localize(path)
    if not local.startswith(paths.export_dir + "/"):
        raise GenericError(f"{path!r} does not lie in the export directory")
    return local


def _describe(
    instance: RpcInstance, dumped: Sequence[RpcDisk | None], directory: str
) -> ExportDescription:
    disks = [
        _dumped(disk, directory) if disk else DumpedDisk(size_mib=known.size, iv_name=known.iv_name)
        for disk, known in zip(dumped, instance.disks_info, strict=True)
    ]
    if instance.disk_template == MIXED:
        types = [disk.dev_type for disk in instance.disks_info]
        disks = [replace(each, dev_type=kind) for each, kind in zip(disks, types, strict=True)]
    note = _noted(directory)
    return ExportDescription(
        name=instance.name,
        os=instance.os,
        source_node=str(instance.primary_node),
        timestamp=int(clock.now()),
        hypervisor=instance.hypervisor,
        disk_template=instance.disk_template or "",
        disks=disks,
        nics=[_nic_settings(nic) for nic in instance.nics],
        tags=instance.tags,
        hvparams=_texts(instance.hvparams),
        beparams=_texts({**instance.beparams}),
        osparams=_texts(instance.osparams.reveal()),
        osparams_private=_texts(instance.osparams_private.reveal()),
        method=note.method,
        instance_uuid=instance.uuid if note.point else "",
        point=note.point,
        number=note.number,
    )


def _dumped(disk: RpcDisk, directory: str) -> DumpedDisk:
    for name in (dump_name, difference_name):
        dump = name(disk.uuid)
        if (checksum := _beside(directory, dump, CHECKSUM_SUFFIX)) is not None:
            root = _beside(directory, dump, ROOT_SUFFIX) or ""
            # All extents of a volume are dumped, whatever is recorded: so much has to be made.
            size_mib = max(disk.size, -(-streamed_bytes(os.path.join(directory, dump)) >> 20))
            found = DumpedDisk(size_mib=size_mib, name=disk.name, iv_name=disk.iv_name)
            return replace(found, dump=dump, sha256=checksum, root=root)
    raise GenericError(f"the dump of {disk.iv_name} is not complete")


def _beside(directory: str, dump: str, suffix: str) -> str | None:
    data = files.read_bytes_or_none(os.path.join(directory, dump + suffix), _CONFIG_BYTES_MAX)
    return None if data is None else data.decode()


def _nic_settings(nic: RpcNIC) -> dict[str, str]:
    network = nic.netinfo.name if nic.netinfo is not None else nic.network
    values = {"mac": nic.mac, "ip": nic.ip, "network": network, "name": nic.name}
    values |= {name: str(value) for name, value in nic.nicparams.items()}
    return {name: value for name, value in values.items() if value}


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}
