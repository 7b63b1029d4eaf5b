"""The data collectors, loaded from their table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final, cast

from ganeti.collectors.collector import Collector
from ganeti.objects.model import DATA_COLLECTORS


def _load() -> Iterator[type[Collector]]:
    for row in DATA_COLLECTORS.values():
        module, _, name = row.target.partition(":")
        yield cast("type[Collector]", getattr(import_module(module), name))


COLLECTORS: Final[Mapping[str, type[Collector]]] = {each.name: each for each in _load()}
