"""A node and a disk as drivers of storage see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ganeti.base.paths import Paths


@dataclass(frozen=True)
class Node:
    """What a driver knows of its node."""

    paths: Paths


@dataclass(frozen=True)
class Disk:
    """A disk of the configuration, with what the master adds before it asks a node; the size in MiB."""

    dev_type: str
    logical_id: Sequence[object]
    params: Mapping[str, object] | None = None
    uuid: str = "d1"
    size: int = 4
    name: str | None = None
    children: Sequence[Disk] = ()
    spindles: int | None = None
    dynamic_params: Mapping[str, object] = field(default_factory=dict)
