"""Objects kept as the JSON they were read from, changed by laying new values over it.

Records know the keys that they declare; a configuration may hold more, and they must survive.  So
an object is stored as raw JSON, decoded for use, and a change replaces only the keys it names.
Within a changed value, equal parts keep their text: order of keys, form of numbers, and in
NICs and child disks (told apart by UUID) the keys that we do not know.

Source: config.json, "file"; ARCHITECTURE "Compatible where others connect".
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from ganeti.base.errors import ConfigurationError
from ganeti.base.json import loads
from ganeti.objects.model import DataCollectorConfig, Disk
from ganeti.objects.nic import NIC
from ganeti.objects.record import Record, decode_private, plain, wrong_record

R = TypeVar("R", bound=Record)

NESTED_OBJECTS: Final[Mapping[str, type[Record]]] = {
    "nics": NIC,
    "children": Disk,
    "data_collectors": DataCollectorConfig,
}
"""Fields that hold objects, in a list (told apart by UUID) or by key, of any parent."""

_fields: Final = msgspec.json.Decoder(dict[str, Raw])
_items: Final = msgspec.json.Decoder(list[Raw])
_any: Final = msgspec.json.Decoder()
_encoder: Final = msgspec.json.Encoder()
_record_decoders: Final[dict[type[Record], msgspec.json.Decoder[Record]]] = {}

_DECODED_MAX: Final = 2048  # of some 2 KB each; the objects of a large cluster would be 80 MB


class Run:
    """The joined texts of some objects, so that each is in memory only once."""

    __slots__ = ("_ends", "data")

    def __init__(self, data: bytes, ends: Iterable[int]) -> None:
        """Take the bytes; ``ends`` has beginning and end of the text of place 0, of place 1 ..."""
        self.data = data
        self._ends = array("I", ends)

    def text_at(self, place: int) -> bytes:
        """Return the text at a place."""
        return self.data[self._ends[2 * place] : self._ends[2 * place + 1]]


class Stored(msgspec.Struct, gc=False, eq=False):
    """One object as raw JSON; its value never changes.

    There is one for each object of a large cluster, so it is as small as can be, and the collector
    of garbage does not look at it: nothing that it holds leads back to it.
    """

    _text: bytes | Raw | Run
    _place: int = 0  # in the run
    _decoded: Record | None = None

    @property
    def raw(self) -> bytes:
        """The text of the object."""
        text = self._text
        return text.text_at(self._place) if isinstance(text, Run) else bytes(text)

    def lies_in(self, run: Run, place: int) -> None:
        """Note that its text is in a run, instead of keeping it once more.

        A thread that writes the journal may read meanwhile, so the place is the same in all runs
        that an object lies in.
        """
        self._place = place
        self._text = run

    @classmethod
    def of(cls, record: Record) -> Stored:
        """Store a new object."""
        return cls(_encoder.encode(record.to_wire()))

    def decode(self, kind: type[R]) -> R:
        """Decode the object; the result is kept for a while, so asking again costs nothing.

        Raises:
            ConfigurationError: it is not of that kind; names object and field.
        """
        decoded = self._decoded
        if not isinstance(decoded, kind):
            decoded = decode_record(self.raw, kind)
            if self._decoded is None:
                if len(_decoded) == _DECODED_MAX:
                    _decoded.popleft()._decoded = None  # noqa: SLF001 - one of its own
                _decoded.append(self)
            self._decoded = decoded
        return decoded

    def with_changes(
        self, changes: Mapping[str, object], kind: type[Record] | None = None
    ) -> Stored:
        """Return the object with some of its fields replaced.

        Values are records or plain JSON values; None removes a field.  With ``kind`` given, a
        field that its record leaves out at this value is removed as well.

        Raises:
            ConfigurationError: the stored value is not an object.
        """
        left_out = kind.LEFT_OUT if kind is not None else {}
        fields = split_fields(self.raw)
        for name, changed in changes.items():
            value = plain(changed)
            if value is None or (name in left_out and value == left_out[name]):
                fields.pop(name, None)
            else:
                fields[name] = _laid_over(fields.get(name), value, NESTED_OBJECTS.get(name))
        return Stored(_encoder.encode(fields))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stored) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"Stored({len(self.raw)} bytes)"  # the content may be private


_decoded: Final[deque[Stored]] = deque()  # those with a decoded record, the oldest first


def decode_record(raw: bytes | Raw, kind: type[R]) -> R:
    """Decode raw JSON into a record.

    Raises:
        ConfigurationError: it is not of that kind; names object and field.
    """
    decoder = _record_decoders.get(kind)
    if decoder is None:
        decoder = msgspec.json.Decoder(kind, dec_hook=decode_private)
        _record_decoders[kind] = decoder
    try:
        record = decoder.decode(raw)
    except msgspec.ValidationError as err:
        wire = loads(bytes(raw))
        if isinstance(wire, dict):
            return kind.from_wire(wire)  # forthcoming objects, or an error that names the object
        raise wrong_record(kind, wire, err) from err
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as err:
        raise ConfigurationError(f"{kind.__name__}: not JSON: {err}") from err
    assert isinstance(record, kind)
    return record


def split_fields(raw: bytes | Raw) -> dict[str, Raw]:
    """Split one object into the raw values of its fields.

    Raises:
        ConfigurationError: it is not an object.
    """
    try:
        return _fields.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as err:
        raise ConfigurationError(f"not a JSON object: {err}") from err


def _laid_over(old: Raw | None, new: object, nested: type[Record] | None) -> Raw:
    """Return the new value, in the old text wherever nothing changed."""
    if old is None:
        return Raw(_encoder.encode(new))
    before = _any.decode(old)
    if _same(before, new):
        return old
    if nested is not None and isinstance(before, list) and isinstance(new, list):
        return _list_laid_over(_items.decode(old), before, new, nested)
    if nested is not None and isinstance(before, dict) and isinstance(new, Mapping):
        return _table_laid_over(_fields.decode(old), new, nested)
    if isinstance(before, dict) and isinstance(new, Mapping):
        return _object_laid_over(_fields.decode(old), new, None)
    if isinstance(before, list) and isinstance(new, list):
        texts = _items.decode(old)
        kept = [_laid_over(text, value, None) for text, value in zip(texts, new, strict=False)]
        added = [Raw(_encoder.encode(value)) for value in new[len(kept) :]]
        return Raw(_encoder.encode([*kept, *added]))
    return Raw(_encoder.encode(new))


def _object_laid_over(
    old: Mapping[str, Raw], new: Mapping[str, object], kind: type[Record] | None
) -> Raw:
    """Lay an object over another; keys that the kind does not declare stay."""
    known = None if kind is None else frozenset(kind.__struct_fields__)
    fields: dict[str, Raw] = {}
    for name, text in old.items():
        if name in new:
            fields[name] = _laid_over(text, new[name], _nested(kind, name))
        elif known is not None and name not in known:
            fields[name] = text
    for name, value in new.items():
        if name not in fields:
            fields[name] = Raw(_encoder.encode(value))
    return Raw(_encoder.encode(fields))


def _table_laid_over(old: Mapping[str, Raw], new: Mapping[str, object], kind: type[Record]) -> Raw:
    """Lay objects by key over others, each over the one with the same key."""
    kept = [key for key in old if key in new]
    return Raw(
        _encoder.encode(
            {
                key: _item_laid_over(old.get(key), new[key], kind)
                for key in dict.fromkeys([*kept, *new])
            }
        )
    )


def _item_laid_over(old: Raw | None, new: object, kind: type[Record]) -> Raw:
    if old is not None and isinstance(new, Mapping) and isinstance(_any.decode(old), dict):
        return _object_laid_over(_fields.decode(old), new, kind)
    return Raw(_encoder.encode(new))


def _nested(kind: type[Record] | None, name: str) -> type[Record] | None:
    return None if kind is None else NESTED_OBJECTS.get(name)


def _list_laid_over(
    texts: list[Raw], before: list[object], new: list[object], kind: type[Record]
) -> Raw:
    """Lay a list of objects over another, each over the one with the same UUID."""
    by_uuid = {
        uuid: text for item, text in zip(before, texts, strict=True) if (uuid := _uuid(item))
    }
    return Raw(_encoder.encode([_item_laid_over(by_uuid.get(_uuid(i)), i, kind) for i in new]))


def _uuid(item: object) -> str:
    uuid = item.get("uuid") if isinstance(item, Mapping) else None
    return uuid if isinstance(uuid, str) else ""


def _same(one: object, other: object) -> bool:
    """Compare JSON values; unlike ``==``, true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other
