"""The common base of configuration objects: values of a fixed shape, from JSON and back.

A record is frozen; `msgspec.structs.replace` makes a changed copy.  Records forget keys that they
do not declare: code that must keep them works on the raw JSON (`ganeti.config.overlay`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import ClassVar, Final, TypeVar, cast

import msgspec

from ganeti.base.errors import ConfigurationError
from ganeti.base.secret import HIDDEN

RecordType = TypeVar("RecordType", bound="Record")

_PLACE: Final = re.compile(
    r"^(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$?\.?(?P<place>.*)`)?$", re.DOTALL
)
_ABOUT_FIELD: Final = re.compile(
    r"^Object (?P<what>missing required|contains unknown) field `(?P<name>.*)`$"
)


def explain_validation(error: msgspec.ValidationError) -> tuple[str, str]:
    """Split a validation error into the place of the value and its fault.

    Returns:
        Place as a path such as ``nics[0].mac`` or ``hvparams[...]`` for some value of an object
        ("" for the whole value), and a text such as ``expected str, got int``, ``is missing`` or
        ``is unknown`` that reads on after it; it begins with ``key:`` when a key is wrong.
    """
    match = _PLACE.match(str(error))
    assert match is not None  # both parts of the pattern may be empty
    place = match["place"] or ""
    about_field = _ABOUT_FIELD.match(match["what"])
    if about_field is not None:
        inner = f"{place}.{about_field['name']}" if place else about_field["name"]
        missing = about_field["what"] == "missing required"
        return inner, "is missing" if missing else "is unknown"
    what = match["what"].replace("`", "")
    if match["key"]:
        return place, f"key: {what[:1].lower()}{what[1:]}"
    return place, what[:1].lower() + what[1:]


def decode_private(kind: type, value: object) -> object:
    """Let msgspec make `PrivateParams` out of a JSON object."""
    if kind is PrivateParams and isinstance(value, Mapping):
        return PrivateParams(value)
    raise TypeError(f"expected {'object' if kind is PrivateParams else kind.__name__}")


_PLAIN_TYPES: Final = frozenset({str, int, float, bool, type(None)})


def plain(value: object) -> object:
    """Turn a value built of containers, enumerations and our own types into plain JSON values.

    Types with ``to_wire`` write themselves.
    """
    kind = type(value)
    if kind in _PLAIN_TYPES:  # most values; the other questions cost more
        return value
    if kind is list or kind is tuple:
        return [plain(item) for item in cast("list[object]", value)]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, PrivateParams):
        return value.reveal()
    if isinstance(value, Enum):
        return value.value
    own = getattr(value, "to_wire", None)
    return value if own is None else own()


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A value that has a JSON form; subclasses only declare fields.

    No record can be part of itself, so the collector of cycles need not look at any.
    """

    LEFT_OUT: ClassVar[Mapping[str, object]] = {}
    """Fields whose key is not written while they have this value."""

    OURS: ClassVar[frozenset[str]] = frozenset()
    """Those of them that 3.0 does not know."""

    @classmethod
    def from_wire(cls: type[RecordType], wire: Mapping[str, object]) -> RecordType:
        """Make the record from its JSON form; keys that it does not declare are ignored.

        A whole number may be written as ``5000000.0``, as 3.0's own upgrade does and 3.0 reads.

        Raises:
            ConfigurationError: a field is missing or of the wrong type; names object and field.
        """
        try:
            return msgspec.convert(wire, cls, dec_hook=decode_private)
        except msgspec.ValidationError as err:
            try:
                return msgspec.convert(_whole_numbers(wire), cls, dec_hook=decode_private)
            except msgspec.ValidationError:
                raise wrong_record(cls, wire, err) from err

    def to_wire(self) -> dict[str, object]:
        """Return the JSON form, private parameters included as plain values."""
        left_out = self.LEFT_OUT
        wire: dict[str, object] = {}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in left_out and value == left_out[name]:
                continue
            wire[name] = plain(value)
        return wire


def _whole_numbers(value: object) -> object:
    """Return JSON whose numbers without a fraction are integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _whole_numbers(item) for key, item in value.items()}
    return [_whole_numbers(item) for item in value] if isinstance(value, list) else value


def wrong_record(
    kind: type[Record], wire: object, error: msgspec.ValidationError
) -> ConfigurationError:
    """Say which object and field a validation error is about."""
    name = None
    if isinstance(wire, Mapping):
        name = wire.get("name") or wire.get("uuid")
    place, what = explain_validation(error)
    subject = f"{kind.__name__} {name!r}" if name else kind.__name__
    return ConfigurationError(
        f"{subject}: field {place!r}: {what}" if place else f"{subject}: {what}"
    )


_EMPTY: Final[Mapping[str, object]] = {}


class PrivateParams:
    """Named values; ``repr`` shows the names only, `reveal` gives the values.

    Deliberately not a Mapping: unpacking it by accident must not show the values.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, object] = _EMPTY) -> None:
        self._values = dict(values)

    def reveal(self) -> dict[str, object]:
        """Return a new dictionary of the values, for the one place that needs them."""
        return dict(self._values)

    def names(self) -> list[str]:
        """Return the names of the parameters."""
        return list(self._values)

    def merged(self, changes: PrivateParams | Mapping[str, object]) -> PrivateParams:
        """Return these parameters with others laid over them."""
        over = changes.reveal() if isinstance(changes, PrivateParams) else changes
        return PrivateParams({**self._values, **over})

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrivateParams) and other._values == self._values

    __hash__ = None  # type: ignore[assignment]  # mutable values inside, like a dict

    def __repr__(self) -> str:
        inner = ", ".join(f"{name!r}: {HIDDEN}" for name in self._values)
        return f"{{{inner}}}"
