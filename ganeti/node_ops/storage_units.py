"""What disks take their space from, and the machine that holds it all.

Source: node_rpc.json, node_info and "storage_calls".
"""

import logging

from ganeti.base.errors import GenericError, NotSupportedError
from ganeti.node_ops import drivers
from ganeti.node_ops.context import NodeContext
from ganeti.storage import units
from ganeti.system import clock

logger = logging.getLogger(__name__)


def node_info(
    context: NodeContext,
    storage_units: list[tuple[str, str, list[object]]] | None,
    hv_specs: list[tuple[str, dict[str, object]]] | None,
) -> list[object]:
    """Return [boot id, [storage info], [hypervisor info]]; null for what was not asked.

    A storage unit that cannot be looked at has null in the place of its numbers.
    """
    storage = hypervisors = None
    if storage_units is not None:
        storage = [_storage_info(context, kind, name) for kind, name, _params in storage_units]
    if hv_specs is not None:
        hypervisors = [drivers.hypervisor(context, name).node_info() for name, _hvp in hv_specs]
    return [clock.boot_id(), storage, hypervisors]


def storage_list(
    context: NodeContext,
    su_name: str,
    su_args: list[object],
    name: str | None,
    fields: list[str],
) -> list[list[object]]:
    """Return the asked fields of each storage unit of a type, or of the one named.

    ``su_args`` of file storage holds the list of its directories.

    Raises:
        NotSupportedError: no storage of that type can be listed.
        OpPrereqError: an unknown field.
    """
    env = drivers.node_env(context)
    return units.list_units(su_name, _directories(su_args), name, fields, env)


def storage_modify(
    _context: NodeContext,
    su_name: str,
    _su_args: list[object],
    name: str,
    changes: dict[str, object],
) -> None:
    """Change a storage unit; of those that are supported, none can be changed.

    Raises:
        NotSupportedError: always, naming what was asked for.
    """
    wanted = ", ".join(changes) or "nothing"
    raise NotSupportedError(f"{wanted} of {su_name} storage unit {name!r} cannot be changed")


def storage_execute(
    _context: NodeContext, su_name: str, _su_args: list[object], name: str, op: str
) -> None:
    """Repair a storage unit; of those that are supported, none can be repaired.

    Raises:
        NotSupportedError: always, naming what was asked for.
    """
    raise NotSupportedError(f"operation {op!r} is not possible on {su_name} storage unit {name!r}")


def _storage_info(context: NodeContext, kind: str, name: str) -> dict[str, object]:
    """Return what is free in one storage unit."""
    try:
        return units.storage_space(kind, name, drivers.node_env(context)).to_wire()
    except GenericError as err:
        logger.info("%s, so its space is not reported", err.message)
        return units.StorageSpace(kind, name, None, None).to_wire()


def _directories(su_args: list[object]) -> list[str]:
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
