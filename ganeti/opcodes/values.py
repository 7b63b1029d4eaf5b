"""Types of opcode parameters that several opcodes share.

Source: opcodes.json, "type_syntax".
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final, Self, TypeAlias, TypedDict

import msgspec
from msgspec import Meta

from ganeti.base.json import JsonValue
from ganeti.objects.disk_templates import DISKS_MAX, DeviceAction
from ganeti.objects.record import PrivateParams, explain_validation

NonEmptyStr: TypeAlias = Annotated[str, Meta(min_length=1)]
NonNegativeInt: TypeAlias = Annotated[int, Meta(ge=0)]
NonNegativeFloat: TypeAlias = Annotated[float, Meta(ge=0)]
PositiveInt: TypeAlias = Annotated[int, Meta(gt=0)]
DiskIndex: TypeAlias = Annotated[int, Meta(ge=0, le=DISKS_MAX - 1)]

Params: TypeAlias = Mapping[str, JsonValue]
DiskSettings: TypeAlias = Mapping[str, NonEmptyStr | int]
"""Settings of one disk, with parameters of its template; others go to its storage provider."""

NicSettingName: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"\A(bridge|ip|link|mac|mode|name|network|vlan)\Z",
        description="one of bridge, ip, link, mac, mode, name, network, vlan",
    ),
]
NicSettings: TypeAlias = Mapping[NicSettingName, str | None]
"""Settings of one network interface."""


class SecretParams(PrivateParams):
    """Private parameters that are never stored: a job file has ``<redacted>`` in their place."""

    __slots__ = ()


LAST_DEVICE: Final = -1


def _action(value: object) -> DeviceAction:
    try:
        return DeviceAction(str(value))
    except ValueError as err:
        raise ValueError(
            f"action: expected one of {', '.join(DeviceAction)}, got {value!r}"
        ) from err


def _index(value: object) -> object:
    """Return an index that came as text, as the commands of 3.0 send it, as a number."""
    is_index = isinstance(value, str) and value.removeprefix("-").isdecimal()
    return int(str(value)) if is_index else value


class DeviceChange:
    """One change of the disks or NICs of an instance.

    On the wire [action, index or name or UUID, settings]; in the older form
    [add|attach|detach|remove, settings], which means the last device, or [index, settings], which
    means to modify.  The form is kept.
    """

    SETTINGS: ClassVar[object] = Params
    DESCRIPTION: ClassVar[str] = "[action, index or name, object of settings]"
    __slots__ = ("_wire", "action", "identifier", "settings")

    def __init__(
        self, action: DeviceAction, identifier: int | str, settings: Mapping[str, object]
    ) -> None:
        self.action = action
        self.identifier = identifier
        self.settings = settings
        self._wire: list[object] = [str(action), identifier, dict(settings)]

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        """Make a change from any of its forms.

        Raises:
            ValueError: it has none of them; names the forms expected.
        """
        if not isinstance(wire, Sequence) or isinstance(wire, str) or len(wire) not in (2, 3):
            raise ValueError(f"expected {cls.DESCRIPTION}")
        what = _index(wire[0])
        if len(wire) == 3:
            action, identifier = _action(what), _index(wire[1])
        elif isinstance(what, int):
            action, identifier = DeviceAction.MODIFY, what
        else:
            action, identifier = _action(what), LAST_DEVICE
            if action is DeviceAction.MODIFY:
                raise ValueError("action: modify needs the index or name of a device")
        if isinstance(identifier, bool) or not isinstance(identifier, int | str):
            raise ValueError(  # noqa: TRY004 - one error for all wrong forms
                f"device: expected an index or name, got {identifier!r}"
            )
        try:
            settings = msgspec.convert(wire[-1], cls.SETTINGS)
        except msgspec.ValidationError as err:
            place, text = explain_validation(err)
            raise ValueError(f"settings{place}: {text}") from err
        change = cls(action, identifier, settings)
        change._wire = list(wire)
        return change

    def to_wire(self) -> list[object]:
        """Return the JSON form, the one it came in."""
        return list(self._wire)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceChange) and other._wire == self._wire

    def __hash__(self) -> int:
        return hash((self.action, self.identifier))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.action}, {self.identifier!r}, {self.settings!r})"


class DiskChange(DeviceChange):
    """One change of the disks of an instance."""

    SETTINGS = DiskSettings
    __slots__ = ()


class NicChange(DeviceChange):
    """One change of the network interfaces of an instance."""

    SETTINGS = NicSettings
    __slots__ = ()


class Version(msgspec.Struct, frozen=True):
    """An object of the configuration as it was at one time; its text is ``UUID/SERIAL``."""

    uuid: str
    serial_no: int

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read a text that matches `VersionText`."""
        uuid, _, serial = text.rpartition("/")
        return cls(uuid, int(serial))

    def __str__(self) -> str:
        return f"{self.uuid}/{self.serial_no}"

    @property
    def tag(self) -> str:
        """The ETag of the object in the remote API."""
        return f'"{self}"'


VersionText: TypeAlias = Annotated[str, Meta(pattern=r"\A[0-9A-Za-z-]{1,64}/[0-9]{1,18}\Z")]


class JobIds(TypedDict):
    """Result of an opcode that submits jobs: [accepted, job id or error text] for each."""

    jobs: list[tuple[bool, str | int]]
