"""Space for disks on this node: storage units, directories of files, external storage providers.

Source: node_rpc.json, node_info, "storage_calls", file_storage_dir_*, extstorage_diagnose.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import GenericError, NotSupportedError, OpPrereqError
from ganeti.node_ops.context import NodeHandler
from ganeti.storage.external import list_providers
from ganeti.storage.file import create_directory, remove_directory, rename_directory
from ganeti.storage.interface import UNIT_FIELDS, StorageUnit
from ganeti.storage.registry import storage_of_kind
from ganeti.system import clock

FIX_CONSISTENCY: Final = "fix-consistency"  # VALID_STORAGE_OPERATIONS

logger = logging.getLogger(__name__)


class Storage(NodeHandler):
    """Storage units and their space."""

    def node_info(
        self,
        storage_units: Sequence[tuple[str, str, list[object]]] | None,
        hv_specs: Sequence[tuple[str, Mapping[str, object]]] | None,
    ) -> list[object]:
        storage = hypervisors = None
        if storage_units is not None:
            storage = [self._space(*unit) for unit in storage_units]
        if hv_specs is not None:
            hypervisors = [self.node.hypervisor(*spec).node_info() for spec in hv_specs]
        return [clock.boot_id(), storage, hypervisors]

    def storage_list(
        self, su_name: str, su_args: Sequence[object], name: str | None, fields: Sequence[str]
    ) -> list[list[object]]:
        unknown = [field for field in fields if field not in UNIT_FIELDS]
        if unknown:
            raise OpPrereqError(f"unknown storage fields {', '.join(unknown)}")
        storage = storage_of_kind(su_name, self.node.env)
        wanted = [] if name is None else [name]
        if storage.kind.units is not None and storage.kind.units.is_directory:
            wanted = [each for each in _directories(su_args) if name is None or each == name]
        rows = [unit.fields() for unit in storage.units(wanted)]
        return [[row[field] for field in fields] for row in rows]

    def storage_modify(
        self, su_name: str, su_args: Sequence[object], name: str, changes: Mapping[str, object]
    ) -> None:
        storage_of_kind(su_name, self.node.env).modify_unit(name, changes)

    def storage_execute(self, su_name: str, su_args: Sequence[object], name: str, op: str) -> None:
        if op != FIX_CONSISTENCY:
            unit = f"{su_name} storage unit {name!r}"
            raise NotSupportedError(f"operation {op!r} is not possible on {unit}")
        storage_of_kind(su_name, self.node.env).repair_unit(name)

    def file_storage_dir_create(self, file_storage_dir: str) -> None:
        create_directory(file_storage_dir, self.paths)

    def file_storage_dir_remove(self, file_storage_dir: str) -> None:
        remove_directory(file_storage_dir, self.paths)

    def file_storage_dir_rename(self, old_file_storage_dir: str, new_file_storage_dir: str) -> None:
        rename_directory(old_file_storage_dir, new_file_storage_dir, self.paths)

    def extstorage_diagnose(self) -> list[list[object]]:
        return [provider.to_wire() for provider in list_providers(self.paths)]

    def _space(self, kind: str, name: str, params: Sequence[object]) -> dict[str, object]:
        """Return the free space of one storage unit; ``params`` are [exclusive storage] for LVM."""
        try:
            storage = storage_of_kind(kind, self.node.env)
            storage.exclusive = params[:1] == [True]
            return storage.space(name).to_wire()
        except GenericError as err:
            logger.info("%s, so its space is not reported", err.message)
            return StorageUnit(kind, name).to_wire()


def _directories(su_args: Sequence[object]) -> list[str]:
    """Return the directories that a list call is about.

    Raises:
        GenericError: the arguments are not [[path, ...]].
    """
    match su_args:
        case [[*paths]] if all(isinstance(path, str) for path in paths):
            return [str(path) for path in paths]
        case []:
            return []
        case _:
            raise GenericError("file storage is listed by [[directory, ...]]")
