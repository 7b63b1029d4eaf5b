"""Changes of an instance's list of devices, disks or NICs alike: plain decisions over plain values.

The changes are played one after the other on the list: an index means the place at that moment, so
after ``0:remove`` the index 0 is the next device.  The form of a new or changed device is up to
the `Makers` of its kind; nothing is done to any node here.

Source: opcodes.json, "type_syntax" (SetParamsMods); constants.json, "DDMS_VALUES_WITH_MODIFY".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.objects.disk_templates import DISKS_MAX, DeviceAction
from ganeti.objects.nic import NICS_MAX
from ganeti.opcodes.values import LAST_DEVICE, DeviceChange


class Device(Protocol):
    """The common part of disks and NICs."""

    @property
    def uuid(self) -> str:
        """Identify the device."""

    @property
    def name(self) -> str | None:
        """Return the name that the operator gave it."""


DeviceType = TypeVar("DeviceType", bound=Device)
Settings = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """A kind of devices; ``word`` names it in messages."""

    word: str
    many_max: int
    actions: frozenset[DeviceAction]


DISKS: Final = DeviceKind("disk", DISKS_MAX, frozenset(DeviceAction))
NICS: Final = DeviceKind(
    "nic", NICS_MAX, frozenset({DeviceAction.ADD, DeviceAction.MODIFY, DeviceAction.REMOVE})
)

# Devices that these actions are about are in the list already.
_PRESENT: Final = frozenset({DeviceAction.MODIFY, DeviceAction.REMOVE, DeviceAction.DETACH})
_WITHOUT_SETTINGS: Final = frozenset({DeviceAction.REMOVE, DeviceAction.DETACH})


@dataclass(frozen=True, slots=True)
class DeviceStep(Generic[DeviceType]):
    """One change as it will be carried out.

    ``index`` is the place of the device in the list as it is when this step is reached; ``before``
    is None for add and attach, ``after`` for remove and detach.
    """

    action: DeviceAction
    index: int
    before: DeviceType | None
    after: DeviceType | None
    settings: Settings

    @property
    def device(self) -> DeviceType:
        """The device as it will be, or as it was if it goes."""
        found = self.before if self.after is None else self.after
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class DevicePlan(Generic[DeviceType]):
    """The list of devices as it will be, and the steps that lead there."""

    devices: tuple[DeviceType, ...]
    steps: tuple[DeviceStep[DeviceType], ...]

    def of(self, *actions: DeviceAction) -> list[DeviceStep[DeviceType]]:
        """Return the steps with one of these actions, in order."""
        return [step for step in self.steps if step.action in actions]


class Makers(Protocol[DeviceType]):
    """How new and changed devices of one kind come about; each may raise OpPrereqError.

    ``what`` names the device in errors, for example ``disk/1``.
    """

    def add(self, what: str, index: int, settings: Settings) -> DeviceType:
        """Return a device to be made; values still to be drawn may be marked in it."""

    def attach(self, what: str, index: int, settings: Settings) -> DeviceType:
        """Return an existing device that belongs to no instance."""

    def modify(self, what: str, index: int, device: DeviceType, settings: Settings) -> DeviceType:
        """Return the device with some settings changed."""


def plan_changes(
    kind: DeviceKind,
    devices: Sequence[DeviceType],
    changes: Sequence[DeviceChange],
    makers: Makers[DeviceType],
) -> DevicePlan[DeviceType]:
    """Play changes on a list of devices.

    Raises:
        OpPrereqError: one of them is impossible; names the device.
    """
    current = list(devices)
    steps: list[DeviceStep[DeviceType]] = []
    for change in changes:
        step = _step(kind, current, change, makers)
        steps.append(step)
        if step.before is None:
            current.insert(step.index, step.device)
        elif step.after is None:
            del current[step.index]
        else:
            current[step.index] = step.after
        if len(current) > kind.many_max:
            raise OpPrereqError(
                f"an instance can have at most {kind.many_max} {kind.word}s", ErrorCode.NORES
            )
    check_names(kind, current)
    return DevicePlan(tuple(current), tuple(steps))


def _step(
    kind: DeviceKind,
    current: Sequence[DeviceType],
    change: DeviceChange,
    makers: Makers[DeviceType],
) -> DeviceStep[DeviceType]:
    action, settings = change.action, change.settings
    if action not in kind.actions:
        raise OpPrereqError(f"a {kind.word} cannot be {action.value}ed: that is for disks only")
    if action in _WITHOUT_SETTINGS and settings:
        raise OpPrereqError(
            f"{kind.word} {change.identifier}: {action.value} takes no settings, got"
            f" {', '.join(sorted(settings))}"
        )
    if action in _PRESENT:
        index = find_device(kind, current, change.identifier)
        before = current[index]
        after = None
        if action is DeviceAction.MODIFY:
            if not settings:
                raise OpPrereqError(f"{kind.word} {change.identifier}: nothing to change was given")
            after = makers.modify(f"{kind.word}/{index}", index, before, settings)
        return DeviceStep(action, index, before, after, settings)
    index = _new_place(kind, len(current), change.identifier)
    make = makers.add if action is DeviceAction.ADD else makers.attach
    after = make(f"{kind.word}/{index}", index, settings)
    return DeviceStep(action, index, None, after, settings)


def find_device(kind: DeviceKind, devices: Sequence[Device], identifier: int | str) -> int:
    """Return the place of a device by its index (-1: the last), name or UUID.

    Raises:
        OpPrereqError: there is none, or a name means several.
    """
    if isinstance(identifier, str):
        found = [
            index
            for index, device in enumerate(devices)
            if identifier in (device.uuid, device.name)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            places = ", ".join(map(str, found))
            raise OpPrereqError(
                f"{kind.word} {identifier!r}: several have that name ({places}); give the index"
            )
        raise OpPrereqError(
            f"{kind.word} {identifier!r} not found; give an index, name or UUID as 'gnt-instance"
            " info' shows them",
            ErrorCode.NOENT,
        )
    index = len(devices) - 1 if identifier == LAST_DEVICE else identifier
    if not 0 <= index < len(devices):
        have = f"{len(devices)} {kind.word}(s)" if devices else f"no {kind.word}s"
        raise OpPrereqError(
            f"{kind.word} {identifier} not found: the instance has {have}", ErrorCode.NOENT
        )
    return index


def _new_place(kind: DeviceKind, count: int, identifier: int | str) -> int:
    """Return where a new device goes: at the end, or at an index, the others moving up."""
    if isinstance(identifier, str):
        raise OpPrereqError(
            f"{kind.word} {identifier!r}: a new {kind.word} is given the index it is to have, or -1"
        )
    if identifier == LAST_DEVICE:
        return count
    if not 0 <= identifier <= count:
        raise OpPrereqError(
            f"{kind.word} {identifier}: a new {kind.word} can have an index from 0 to {count}"
        )
    return identifier


def check_names(kind: DeviceKind, devices: Sequence[Device]) -> None:
    """Refuse two devices of one instance with the same name.

    Raises:
        OpPrereqError: the name is taken (already_exists).
    """
    places: dict[str, int] = {}
    for index, device in enumerate(devices):
        if device.name is None:
            continue
        if device.name in places:
            raise OpPrereqError(
                f"{kind.word} {index} cannot be called {device.name!r}: {kind.word}"
                f" {places[device.name]} is called that",
                ErrorCode.NOTUNIQUE,
            )
        places[device.name] = index
