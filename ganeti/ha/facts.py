"""What the node's own files say of the cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from ganeti.availability.electorate import digest_of
from ganeti.base.paths import Paths
from ganeti.store import ssconf
from ganeti.store.availability import Settings


@dataclass(frozen=True)
class Facts:
    """What an agent knows of its cluster.

    Attributes:
        addresses: {name: IP address} of all nodes.
        helped: nodes that have an out-of-band helper.
        witness: the node that only votes; "" for none.
    """

    master: str
    addresses: Mapping[str, str]
    candidates: Collection[str]
    offline: Collection[str] = ()
    helped: Collection[str] = ()
    witness: str = ""

    @cached_property
    def digest(self) -> str:
        """By which list of nodes this one counts."""
        return digest_of(self.addresses)


def read_facts(paths: Paths, settings: Settings) -> Facts:
    """Return what the node's own files say of the cluster.

    Raises:
        ConfigurationError: they cannot be read, or this node is part of no cluster.
    """
    addresses = dict(line.split(maxsplit=1) for line in _lines(paths, "node_primary_ips"))
    return Facts(
        master=ssconf.read_key(paths, "master_node"),
        addresses=addresses,
        candidates=frozenset(_lines(paths, "master_candidates")),
        offline=frozenset(_lines(paths, "offline_nodes")),
        helped=frozenset(settings.helpers),
        witness=settings.witness,
    )


def _lines(paths: Paths, key: str) -> list[str]:
    return (ssconf.read_key_or_none(paths, key) or "").splitlines()
