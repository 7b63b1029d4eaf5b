"""The data collectors, loaded from their table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pkgutil import resolve_name
from typing import Final, cast

from ganeti.collectors.collector import Collector
from ganeti.objects.model import DATA_COLLECTORS


def _load() -> Iterator[type[Collector]]:
    for row in DATA_COLLECTORS.values():
        yield cast("type[Collector]", resolve_name(row.target))


COLLECTORS: Final[Mapping[str, type[Collector]]] = {each.name: each for each in _load()}
