"""The fields of queries that Ganeti 3.0 does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

OWN_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "instance": frozenset(
        {
            "disk.copies",
            "disk.copied",
            "disk.modes",
            "disk.status",
            "disk.templates",
            "guest",
            "hv/firmware",
            "hv/max_memory",
            "hv/max_vcpus",
            "hv/pcie_ports",
            "hv/shared_dirs",
            "hv/tpm",
            "rehearsal",
        }
    ),
    "export": frozenset({"newest", "points", "size", "sizes"}),
    "lock": frozenset({"priorities"}),
    "network": frozenset({"external_reservations6"}),
}
