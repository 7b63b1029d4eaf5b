"""The stages of an instance's life, each a job of some opcodes; a table of them.

Source: cli.json, "burnin".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.jobs import make_opcode
from ganeti.objects.disk_templates import DiskTemplate, Traits
from ganeti.opcodes.backup import OpBackupExport, OpBackupRemove
from ganeti.opcodes.instance import (
    OpInstanceActivateDisks,
    OpInstanceCreate,
    OpInstanceDeactivateDisks,
    OpInstanceFailover,
    OpInstanceGrowDisk,
    OpInstanceMigrate,
    OpInstanceMove,
    OpInstanceReboot,
    OpInstanceReinstall,
    OpInstanceRemove,
    OpInstanceRename,
    OpInstanceReplaceDisks,
    OpInstanceSetParams,
    OpInstanceShutdown,
    OpInstanceStartup,
    ReplaceDisksMode,
)
from ganeti.opcodes.opcode import OpCode

ADDED_DISK_MIB: Final = 128


@dataclass(frozen=True, slots=True)
class Guest:
    """An instance as it is before a stage; before its creation with the nodes that it is to get."""

    name: str
    primary: str = ""
    secondary: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """What is tried, on which nodes.

    Attributes:
        nodes: in the order in which instances are spread over them.
        other_name: the full name that an instance is given for a while, or "".
    """

    options: Options
    nodes: Sequence[str]
    disk_sizes_mib: Sequence[int]
    disk_growth_mib: Sequence[int]
    beparams: Mapping[str, object] = field(default_factory=dict)
    other_name: str = ""

    @property
    def traits(self) -> Traits:
        """The traits of the disk template."""
        return DiskTemplate(self.options.disk_template).traits

    def other_node(self, *taken: str) -> str | None:
        """Return the node after the first of these that is none of them."""
        start = self.nodes.index(taken[0]) if taken[0] in self.nodes else 0
        rest = [*self.nodes[start:], *self.nodes[:start]]
        return next((node for node in rest if node not in taken), None)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage.

    Attributes:
        jobs: the opcodes of each job for an instance, one after the other; none to leave it out.
        option: the option that has to be given, or not to be taken away.
        fits: whether it is possible with a disk template.
    """

    text: str
    jobs: Callable[[Trial, Guest], Sequence[Sequence[OpCode]]]
    option: str = ""
    fits: Callable[[Traits], bool] = lambda _traits: True

    def is_wanted(self, trial: Trial) -> bool:
        """Tell whether it is part of a trial."""
        is_chosen = not self.option or bool(trial.options.get(self.option))
        return is_chosen and self.fits(trial.traits)


def _op(kind: type[OpCode], guest: Guest, **params: Any) -> OpCode:
    return make_opcode(kind, instance_name=guest.name, **params)


def creation(trial: Trial, guest: Guest, **more: Any) -> OpCode:
    """Return the opcode that makes an instance."""
    options = trial.options
    place: dict[str, object] = {"iallocator": options.iallocator}
    if not options.iallocator:
        place = {"pnode": guest.primary}
        if trial.traits.mirrored:
            place["snode"] = guest.secondary
    hypervisor, hvparams = options.hypervisor or (None, {})
    chosen = {"hypervisor": hypervisor, "hvparams": hvparams} if hypervisor else {}
    has_disks = trial.traits.has_disks
    params = {
        "mode": "create",
        "os_type": options.os,
        "disk_template": options.disk_template,
        "disks": [{"size": size} for size in trial.disk_sizes_mib] if has_disks else [],
        "nics": [] if options.no_nics else [{}],
        "beparams": dict(trial.beparams),
        "osparams": options.osparams,
        "name_check": options.name_check,
        "ip_check": options.ip_check and options.name_check,
        "start": True,
        **place,
        **chosen,
        **more,
    }
    return _op(OpInstanceCreate, guest, **params)


def _create(trial: Trial, guest: Guest) -> list[list[OpCode]]:
    return [[creation(trial, guest)]]


def _replace_on_both(trial: Trial, guest: Guest) -> list[list[OpCode]]:
    modes = (ReplaceDisksMode.ON_SECONDARY, ReplaceDisksMode.ON_PRIMARY)
    early = trial.options.early_release
    return [[_op(OpInstanceReplaceDisks, guest, mode=m, early_release=early) for m in modes]]


def _replace_secondary(trial: Trial, guest: Guest) -> list[list[OpCode]]:
    allocator = trial.options.iallocator
    node = None if allocator else trial.other_node(guest.primary, guest.secondary)
    if not allocator and node is None:
        return []
    where = {"iallocator": allocator} if allocator else {"remote_node": node}
    mode, early = ReplaceDisksMode.NEW_SECONDARY, trial.options.early_release
    return [[_op(OpInstanceReplaceDisks, guest, mode=mode, early_release=early, **where)]]


def _to(trial: Trial, guest: Guest) -> dict[str, object] | None:
    """Return the node to go to; the secondary one needs no name, None if there is none."""
    if trial.traits.mirrored:
        return {}
    if trial.options.iallocator:
        return {"iallocator": trial.options.iallocator}
    node = trial.other_node(guest.primary)
    return None if node is None else {"target_node": node}


def _fail_over(trial: Trial, guest: Guest) -> list[list[OpCode]]:
    where = _to(trial, guest)
    return [] if where is None else [[_op(OpInstanceFailover, guest, **where)]]


def _migrate(trial: Trial, guest: Guest) -> list[list[OpCode]]:
    where = _to(trial, guest)
    if where is None:
        return []
    return [[_op(OpInstanceMigrate, guest, **where)]]


def _move(trial: Trial, guest: Guest) -> list[list[OpCode]]:
    node = trial.other_node(guest.primary)
    return [] if node is None else [[_op(OpInstanceMove, guest, target_node=node)]]


def _grow(trial: Trial, guest: Guest) -> list[list[OpCode]]:
    growth = list(enumerate(trial.disk_growth_mib[: len(trial.disk_sizes_mib)]))
    grown = [_op(OpInstanceGrowDisk, guest, disk=i, amount=mib) for i, mib in growth if mib]
    return [grown] if grown else []


def _export_and_import(trial: Trial, guest: Guest) -> list[list[OpCode]]:
    """Export it, remove it, and make it again from the export, which goes then."""
    node = trial.other_node(guest.primary) or guest.primary
    source = {"mode": "import", "src_node": node, "src_path": guest.name}
    again = creation(trial, guest, **source, disks=[], nics=[], start=False)  # as in the export
    return [
        [_op(OpBackupExport, guest, target_node=node, mode="local", shutdown=True)],
        [_op(OpInstanceRemove, guest)],
        [again, _op(OpInstanceStartup, guest)],
        [export_removal(guest)],
    ]


def _start_and_stop(_trial: Trial, guest: Guest) -> list[list[OpCode]]:
    return [[_op(OpInstanceShutdown, guest), _op(OpInstanceStartup, guest)]]


def _reinstall(trial: Trial, guest: Guest) -> list[list[OpCode]]:
    """Install it again, as the system that it has and as one that is named."""
    ops = [
        _op(OpInstanceShutdown, guest),
        _op(OpInstanceReinstall, guest),
        _op(OpInstanceReinstall, guest, os_type=trial.options.os),
        _op(OpInstanceStartup, guest),
    ]
    return [ops]


def _reboot(trial: Trial, guest: Guest) -> list[list[OpCode]]:
    kinds = trial.options.reboot_types
    return [[_op(OpInstanceReboot, guest, reboot_type=kind) for kind in kinds]] if kinds else []


def _rename(trial: Trial, guest: Guest, name: str) -> list[list[OpCode]]:
    """Give it a name, and its own one back if that was another."""
    checks = {"name_check": trial.options.name_check}
    checks["ip_check"] = trial.options.name_check and trial.options.ip_check
    ops = [_op(OpInstanceShutdown, guest), _op(OpInstanceRename, guest, new_name=name, **checks)]
    if name != guest.name:
        renamed = Guest(name)
        ops += [
            _op(OpInstanceStartup, renamed),
            _op(OpInstanceShutdown, renamed),
            _op(OpInstanceRename, renamed, new_name=guest.name, **checks),
        ]
    return [[*ops, _op(OpInstanceStartup, guest)]]


def _rename_to_other(trial: Trial, guest: Guest) -> list[list[OpCode]]:
    return _rename(trial, guest, trial.other_name)


def _rename_to_same(trial: Trial, guest: Guest) -> list[list[OpCode]]:
    return _rename(trial, guest, guest.name)


def _disks(_trial: Trial, guest: Guest) -> list[list[OpCode]]:
    added = ["add", -1, {"size": ADDED_DISK_MIB}]
    return [
        [
            _op(OpInstanceSetParams, guest, disks=[added]),
            _op(OpInstanceShutdown, guest),
            _op(OpInstanceSetParams, guest, disks=[["remove", -1, {}]]),
            _op(OpInstanceStartup, guest),
        ]
    ]


def _nics(_trial: Trial, guest: Guest) -> list[list[OpCode]]:
    add, remove = [["add", -1, {}]], [["remove", -1, {}]]
    return [[_op(OpInstanceSetParams, guest, nics=change) for change in (add, remove)]]


def _disks_off_and_on(_trial: Trial, guest: Guest) -> list[list[OpCode]]:
    """Activate the disks of a running and of a stopped instance, and deactivate them."""
    return [
        [
            _op(OpInstanceActivateDisks, guest),
            _op(OpInstanceShutdown, guest),
            _op(OpInstanceActivateDisks, guest),
            _op(OpInstanceDeactivateDisks, guest),
            _op(OpInstanceStartup, guest),
        ]
    ]


def removal(guest: Guest) -> OpCode:
    """Return the opcode that removes an instance, whatever has become of it."""
    return _op(OpInstanceRemove, guest, ignore_failures=True)


def export_removal(guest: Guest) -> OpCode:
    """Return the opcode that removes the exports of an instance."""
    return _op(OpBackupRemove, guest)


def _has_other_node(traits: Traits) -> bool:
    return traits.mirrored or traits.shared


def _is_mirrored(traits: Traits) -> bool:
    return traits.mirrored


def _has_disks(traits: Traits) -> bool:
    return traits.has_disks


EXPORTING: Final = Stage("Exporting and importing", _export_and_import, "importexport", _has_disks)
STAGES: Final = (
    Stage("Creating", _create),
    Stage("Replacing disks on the same nodes", _replace_on_both, "replace1", _is_mirrored),
    Stage("Replacing the secondary node", _replace_secondary, "replace2", _is_mirrored),
    Stage("Failing over", _fail_over, "failover", _has_other_node),
    Stage("Migrating", _migrate, "migrate", _has_other_node),
    Stage("Moving", _move, "move", lambda traits: traits.can_copy),
    Stage("Growing disks", _grow, fits=lambda traits: traits.has_disks and traits.can_grow),
    EXPORTING,
    Stage("Reinstalling", _reinstall, "reinstall", _has_disks),
    Stage("Rebooting", _reboot, "reboot"),
    Stage("Renaming to the same name", _rename_to_same, "renamesame"),
    Stage("Adding and removing disks", _disks, "add_disks", _has_disks),
    Stage("Adding and removing interfaces", _nics, "add_nics"),
    Stage("Deactivating and activating disks", _disks_off_and_on, "activate_disks", _has_disks),
    Stage("Renaming there and back", _rename_to_other, "rename"),
    Stage("Stopping and starting", _start_and_stop, "startstop"),
)
