"""Which parameters the value of an option sets, for help texts, completion and manual pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.cli.declaration.program import Action, Option
from ganeti.objects import parameters
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.parameters import ParamTable


def tables_of(option: Option) -> Mapping[str, ParamTable]:
    """Return the tables of an option's parameters, each by the word before its colon."""
    is_plain = not option.takes_value or option.choices
    return {} if is_plain else _TABLES.get(option.destination, {})


def takes_names(option: Option) -> bool:
    """Tell whether the value names the table that its parameters are of, as ``kvm:acpi=no``."""
    return len(tables_of(option)) > 1 and (
        option.action is Action.APPEND or option.destination == "hypervisor"
    )


_TABLES: Final[Mapping[str, Mapping[str, ParamTable]]] = {
    "beparams": {"": parameters.BACKEND_SETTINGS},
    "diskparams": {name: table for name, table in parameters.DISKPARAMS.items() if table},
    "disks": {"": parameters.all_disk_settings()},
    "hvparams": HVPARAMS,
    "hypervisor": HVPARAMS,
    "ndparams": {"": parameters.NDPARAMS},
    "nicparams": {"": parameters.NICPARAMS},
    "nics": {"": parameters.NIC_SETTINGS},
}
