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
        names, params = _units(su_args)
        storage = storage_of_kind(su_name, self.node.env, params)
        wanted = [] if name is None else [name]
        if storage.kind.units is not None and storage.kind.units.are_named:
            wanted = [each for each in names if name is None or each == name]
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
        """Return the free space of one storage unit.

        Args:
            params: [exclusive storage] for LVM, [parameters of its disks] for some others.
        """
        try:
            storage = storage_of_kind(kind, self.node.env, _params(params))
            storage.exclusive = params[:1] == [True]
            return storage.space(name).to_wire()
        except GenericError as err:
            logger.info("%s, so its space is not reported", err.message)
            return StorageUnit(kind, name).to_wire()


def _params(values: Sequence[object]) -> Mapping[str, object]:
    """Return the parameters of disks among the arguments of a storage unit, if they are there."""
    return next((value for value in values if isinstance(value, Mapping)), {})


def _units(su_args: Sequence[object]) -> tuple[list[str], Mapping[str, object]]:
    """Return the units that a list call is about, and the parameters of their disks.

    Raises:
        GenericError: the arguments are not [[unit, ...]], perhaps with parameters behind.
    """
    match su_args:
        case [[*names], *rest] if all(isinstance(name, str) for name in names):
            return [str(name) for name in names], _params(rest)
        case []:
            return [], {}
        case _:
            raise GenericError("storage units are listed by [[directory or pool, ...]]")
