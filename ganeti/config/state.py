"""The configuration that WConfD keeps: what is durable, and what is on its way there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from msgspec import Raw

from ganeti.base.errors import ConfigurationError, ProtocolError
from ganeti.base.json import dumps, loads_as
from ganeti.config.encoding import ConfigEncoder
from ganeti.config.index import ObjectId
from ganeti.config.transaction import Transaction
from ganeti.config.views import Base, Layer, View
from ganeti.objects.overlay import Stored
from ganeti.objects.split import split_config

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Flush:
    """What is to be written now."""

    pieces: list[bytes]
    serial_no: int
    changed: Mapping[ObjectId, Stored | None]


class ConfigState:
    """The configuration; see `ganeti.config.views` for how its layers work."""

    def __init__(self, data: bytes) -> None:
        """Take the content of ``config.data``.

        Raises:
            ConfigurationError: it is not JSON (the text names the byte), or an object in it is
                not of the right shape (the text names the object).
        """
        split = split_config(data)
        self._base = Base(split.cluster, split.tables, split.top)
        self._encoder = ConfigEncoder(split.tables, split.order)
        self._flushing: Layer | None = None
        self._flush: Flush | None = None
        self._open = Layer(self._base)
        self.serial_no = _top_value(int, split.top, "serial_no", 0)
        self.mtime = _top_value(float, split.top, "mtime", 0.0)
        self._pieces = self._encoder.pieces(self._base.stored, self._top())

    @property
    def durable(self) -> Base:
        """What readers see."""
        return self._base

    @property
    def head(self) -> View:
        """What the next change starts from."""
        return self._open

    @property
    def pieces(self) -> list[bytes]:
        """The bytes of the durable configuration."""
        return self._pieces

    @property
    def has_changes(self) -> bool:
        """True when something accepted is not being written yet."""
        return bool(self._open.objects)

    def begin(self, now: float) -> Transaction:
        """Begin a change; nothing else may be begun before it is accepted or dropped."""
        return Transaction(self._open, now)

    def accept(self, change: Transaction) -> None:
        """Take a change over."""
        self._open.take(change)

    def start_flush(self, now: float) -> Flush:
        """Freeze what was accepted so far and return what is to be written."""
        assert self._flushing is None, "only one flush at a time"
        layer, self._flushing = self._open, self._open
        self._open = Layer(layer)
        for identity, stored in layer.objects.items():
            self._encoder.touch(identity, exists=stored is not None)
        serial_no = self.serial_no + 1
        top = self._top() | {"serial_no": dumps(serial_no), "mtime": dumps(now)}
        pieces = self._encoder.pieces(layer.stored, top)
        self._flush = Flush(pieces, serial_no, layer.objects)
        self._flush_mtime = now
        return self._flush

    def flush_done(self) -> None:
        """Note that the flush is durable: readers see it from now on."""
        assert self._flushing is not None
        assert self._flush is not None
        self._base.take(self._flushing)
        self._open.below = self._base
        self._flushing = None
        self._pieces = self._flush.pieces
        self.serial_no, self.mtime = self._flush.serial_no, self._flush_mtime
        self._base.top["serial_no"] = Raw(dumps(self.serial_no))
        self._base.top["mtime"] = Raw(dumps(self.mtime))

    def flush_failed(self) -> None:
        """Drop what was being written, and all that was accepted on top of it."""
        assert self._flushing is not None
        for identity in self._flushing.objects:
            exists = self._base.stored(identity) is not None
            self._encoder.touch(identity, exists=exists)
        self._flushing = None
        self._open = Layer(self._base)

    def _top(self) -> dict[str, bytes]:
        return {key: bytes(value) for key, value in self._base.top.items()}


def _top_value(kind: type[T], top: Mapping[str, Raw], key: str, default: T) -> T:
    if key not in top:
        return default
    try:
        return loads_as(kind, top[key])
    except ProtocolError as err:
        raise ConfigurationError(f"the configuration's {key}: {err.message}") from err
