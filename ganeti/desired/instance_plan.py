"""The plan of one instance: made, changed, started or stopped."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import UNSET, UnsetType

from ganeti.desired.changes import Draft, Facts, differing, holds, tag_changes
from ganeti.desired.living import LivingDisk, LivingInstance, LivingNic
from ganeti.desired.spec import InstanceSpec, NicSpec, State, type_hvparams
from ganeti.objects.disk_templates import DiskMode, DiskTemplate
from ganeti.objects.nic import (
    FROM_POOLS,
    IP_FROM_POOL6,
    MAC_AUTO,
    MAC_GENERATE,
    NicMode,
    leads_to_node,
    parse_vlan,
)
from ganeti.objects.tags import TagKind
from ganeti.opcodes.instance import (
    OpInstanceCreate,
    OpInstanceGrowDisk,
    OpInstanceSetParams,
    OpInstanceShutdown,
    OpInstanceStartup,
)

T = TypeVar("T")

_NONE: Final = "none"
_NIC_KEYS: Final = ("mac", "ip", "network", "mode", "link", "vlan", "name")
_COMPARED: Final = frozenset({"size", "mode", "name"})  # of disks; all else counts when it is made


def plan_instance(
    draft: Draft,
    spec: InstanceSpec,
    living: LivingInstance | None,
    facts: Facts,
    network_names: Collection[str],
) -> None:
    """Add the opcodes of one instance to a draft."""
    if spec.nics is not UNSET:
        for number, nic in enumerate(spec.nics):
            network = nic.network
            if network not in (UNSET, None, _NONE) and network not in network_names:
                draft.wrong(f"network {network!r} is not known", "nics", number, "network")
    if living is None:
        _make(draft, spec)
    else:
        _change(draft, spec, living, facts)


def _make(draft: Draft, spec: InstanceSpec) -> None:
    if spec.disk_template is UNSET:
        draft.wrong("disk_template is missing; it is needed to make the instance")
    is_diskless = spec.disk_template == DiskTemplate.DISKLESS
    if spec.disks is UNSET and not is_diskless:
        draft.wrong("disks are missing; they are needed to make the instance")
    if spec.install and spec.os is UNSET:
        draft.wrong("os is missing; give one, or install: false")
    if draft.problems:
        return
    state = _given(spec.state, State.UP)
    params = {
        "os_type": _given(spec.os, None),
        "hypervisor": _given(spec.hypervisor, None),
        "disk_template": spec.disk_template,
        "beparams": _given(spec.beparams, {}),
        "hvparams": _given(spec.hvparams, {}),
        "osparams": _given(_as_text(spec.osparams), {}),
        "tags": _given(spec.tags, []),
        "pnode": spec.node,
        "snode": spec.secondary,
        "iallocator": spec.iallocator,
        "group_name": spec.group,
        "file_driver": spec.file_driver,
        "file_storage_dir": spec.file_storage_dir,
    }
    nics: list[NicSpec] = _given(spec.nics, [NicSpec()])
    disks = [] if is_diskless else _given(spec.disks, [])
    where = f" on {spec.node}" if spec.node else ""
    draft.do(
        f"make it{where}, {spec.disk_template}"
        + (", and start it" if state is State.UP and spec.install else ""),
        OpInstanceCreate,
        instance_name=draft.name,
        mode="create",
        disks=[_without_none(disk) for disk in disks],
        nics=[_nic_settings(nic) for nic in nics],
        no_install=not spec.install,
        start=state is State.UP and spec.install,
        name_check=spec.name_check,
        ip_check=spec.ip_check and spec.name_check,
        **{key: value for key, value in params.items() if value not in (None, {}, [])},
    )
    if state is State.UP and not spec.install:  # what was not installed is not started at once
        draft.do("start it", OpInstanceStartup, instance_name=draft.name)
    if state is State.OFFLINE:
        _set_offline(draft, is_offline=True)


def _given(value: T | UnsetType, default: T) -> T:
    return default if isinstance(value, UnsetType) else value


def _without_none(settings: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in settings.items() if value is not None}


def _nic_settings(nic: NicSpec) -> dict[str, object]:
    given = {key: getattr(nic, key) for key in _NIC_KEYS}
    return {
        key: None if value is None else str(value)
        for key, value in given.items()
        if value is not UNSET
    }


def _change(draft: Draft, spec: InstanceSpec, living: LivingInstance, facts: Facts) -> None:
    if spec.hypervisor not in (UNSET, living.hypervisor):
        draft.wrong(f"is {living.hypervisor}, and cannot be changed", "hypervisor")
    if spec.disk_template not in (UNSET, living.disk_template):
        draft.wrong(
            f"is {living.disk_template}; 'gnt-instance modify -t' changes it", "disk_template"
        )
    changes: dict[str, object] = {}
    texts: list[str] = []
    if spec.os not in (UNSET, living.os):
        changes["os_name"] = spec.os
        texts.append(f"os {spec.os} (was {living.os})")
    hvparams = spec.hvparams
    if hvparams is not UNSET:
        hvparams = type_hvparams(hvparams, living.hypervisor)
    for key, given in (
        ("beparams", spec.beparams),
        ("hvparams", hvparams),
        ("osparams", _as_text(spec.osparams)),
    ):
        have = getattr(living, key)
        changed = {} if given is UNSET else differing(given, have)
        if changed:
            changes[key] = changed
            texts += [
                f"{name} {value}" + (f" (was {have[name]})" if name in have else "")
                for name, value in changed.items()
            ]
    disks, grown = _disk_changes(draft, spec, living, facts)
    nics = _nic_changes(draft, spec, living, facts)
    texts += [*_told("disk", disks), *_told("nic", nics)]
    changes |= {"disks": disks} if disks else {}
    changes |= {"nics": nics} if nics else {}
    _before(draft, spec, living)
    if changes:
        is_up = living.admin_state == State.UP
        draft.do(
            "set " + ", ".join(texts),
            OpInstanceSetParams,
            instance_name=draft.name,
            hotplug_if_possible=is_up and bool(disks or nics),
            **changes,
        )
    for index, size in grown:
        draft.do(
            f"grow disk {index} to {size} MiB",
            OpInstanceGrowDisk,
            instance_name=draft.name,
            disk=index,
            amount=size,
            absolute=True,
        )
    tag_changes(draft, TagKind.INSTANCE, spec.tags, living.tags)
    if spec.state is State.UP and living.admin_state != State.UP:
        draft.do("start it", OpInstanceStartup, instance_name=draft.name)


def _as_text(params: Mapping[str, object] | UnsetType) -> Mapping[str, object] | UnsetType:
    """Return parameters of an operating system as they are stored."""
    if isinstance(params, UnsetType):
        return params
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in params.items()
    }


def _before(draft: Draft, spec: InstanceSpec, living: LivingInstance) -> None:
    """Stop an instance that is to be down, or make one that is offline usable, at first."""
    if spec.state is UNSET or spec.state == living.admin_state:
        return
    if living.admin_state == State.UP:
        draft.do("shut it down", OpInstanceShutdown, instance_name=draft.name)
    if living.admin_state == State.OFFLINE or spec.state is State.OFFLINE:
        _set_offline(draft, is_offline=spec.state is State.OFFLINE)


def _set_offline(draft: Draft, *, is_offline: bool) -> None:
    text = "mark it as offline" if is_offline else "mark it as no longer offline"
    draft.do(text, OpInstanceSetParams, instance_name=draft.name, offline=is_offline)


def _told(what: str, changes: list[list[object]]) -> list[str]:
    told = []
    for action, index, settings in changes:
        assert isinstance(settings, Mapping)
        words = " ".join(f"{key}={value}" for key, value in settings.items())
        number = "" if action == "add" else f" {index}"
        told.append(f"{what}{number} {'' if action == 'modify' else action} {words}".rstrip())
    return [" ".join(text.split()) for text in told]


_Changes = list[list[object]]


def _disk_changes(
    draft: Draft, spec: InstanceSpec, living: LivingInstance, facts: Facts
) -> tuple[_Changes, list[tuple[int, int]]]:
    """Return the changes of disks, and those to grow with their size."""
    changes: _Changes = []
    grown: list[tuple[int, int]] = []
    if spec.disks is UNSET:
        return changes, grown
    for index, (disk, have) in enumerate(zip(spec.disks, living.disks, strict=False)):
        settings, size = _disk_change(draft, index, disk, have)
        if settings:
            changes.append(["modify", index, settings])
        if size:
            grown.append((index, size))
    for disk in spec.disks[len(living.disks) :]:
        changes.append(["add", -1, _without_none(disk)])
    changes += _surplus(draft, facts, "disk", range(len(spec.disks), len(living.disks)))
    return changes, grown


def _surplus(draft: Draft, facts: Facts, what: str, surplus: Sequence[int]) -> _Changes:
    """Take away the devices of these numbers, the last one first, if that may be done."""
    if surplus and not facts.removes:
        numbers = ", ".join(map(str, surplus))
        draft.held.append(f"it keeps {what} {numbers}, which the file does not have")
        return []
    draft.removes |= bool(surplus)
    return [["remove", index, {}] for index in reversed(surplus)]


def _disk_change(
    draft: Draft, index: int, disk: Mapping[str, object], have: LivingDisk
) -> tuple[dict[str, object], int | None]:
    size = disk.get("size", have.size)
    assert isinstance(size, int)
    if size < have.size:
        draft.wrong(
            f"has {have.size} MiB, and disks do not shrink; they are copied to smaller ones",
            *("disks", index, "size"),
        )
    settings: dict[str, object] = {}
    if "mode" in disk and disk["mode"] != have.mode:
        settings["mode"] = str(DiskMode(str(disk["mode"])))
    if "name" in disk and (disk["name"] or _NONE) != (have.name or _NONE):
        settings["name"] = disk["name"] or _NONE
    return settings, size if size > have.size else None


def _nic_changes(
    draft: Draft, spec: InstanceSpec, living: LivingInstance, facts: Facts
) -> _Changes:
    changes: _Changes = []
    if spec.nics is UNSET:
        return changes
    numbers = _nics_of_the_file(spec.nics, living.nics)
    for nic, index in zip(spec.nics, numbers, strict=False):
        settings = _nic_change(nic, living.nics[index])
        if settings:
            changes.append(["modify", index, settings])
    for nic in spec.nics[len(numbers) :]:
        changes.append(["add", -1, _nic_settings(nic)])
    return changes + _surplus(draft, facts, "nic", numbers[len(spec.nics) :])


def _nics_of_the_file(nics: Sequence[NicSpec], have: Sequence[LivingNic]) -> list[int]:
    """Return the numbers of the interfaces that a file is about.

    That by which an instance communicates with its node is not, unless the file names it.
    """
    is_named = any(leads_to_node(str(nic.name)) for nic in nics)
    return [n for n, nic in enumerate(have) if is_named or not leads_to_node(nic.name)]


def _nic_change(nic: NicSpec, have: LivingNic) -> dict[str, object]:
    changed = {
        key: _NONE if value is None else value
        for key, value in _nic_settings(nic).items()
        if not _nic_holds(key, value, have)
    }
    if "network" in changed and nic.ip is not UNSET:  # an address belongs to its network
        changed["ip"] = nic.ip or _NONE
    return changed


def _nic_holds(key: str, value: object, have: LivingNic) -> bool:
    """Tell whether an interface is so already."""
    text = _NONE if value in (None, "") else str(value)
    current = str(getattr(have, key) or _NONE)
    if key == "mac":
        return text in (MAC_AUTO, MAC_GENERATE) or text.lower() == current.lower()
    if key == "ip" and text in FROM_POOLS:
        return have.ip is not None and (text != IP_FROM_POOL6 or ":" in have.ip)
    if key == "mode" and text == NicMode.POOL:
        return have.network is not None
    if key == "vlan" and text != _NONE:
        return holds(str(parse_vlan(text)), current)
    return text == current
