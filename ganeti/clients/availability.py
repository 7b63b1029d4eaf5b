"""Looks at high availability: etcd, this node's configuration, and the memory of the nodes.

Needs no daemon of the master, so it can tell about its loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ganeti.availability.inventory import read_inventory
from ganeti.availability.records import (
    ACTING,
    ALONE_KEY,
    FENCING,
    GUARDS,
    LOSSES,
    MASTER_KEY,
    NODES,
    OUTDATED,
    PAUSE_KEY,
    Fencing,
    Guard,
    Loss,
    Mastership,
    Outdated,
    Pause,
    Presence,
)
from ganeti.availability.status import Seen
from ganeti.base.errors import GenericError, ProtocolError, TransportError
from ganeti.base.paths import Paths
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.etcd import EtcdClient, MemberHealth, Snapshot
from ganeti.config.config_data import split_config
from ganeti.config.tables import Tables
from ganeti.objects.model import Node
from ganeti.protocol.node_calls import NodeCalls
from ganeti.query.live import hypervisor_specs
from ganeti.query.view import NodeLive
from ganeti.store import config_file
from ganeti.store.availability import Settings
from ganeti.system import clock

_MEMORY_S: Final = 5.0  # a node that is slower tells nothing


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen.

    Attributes:
        shelf: what etcd has; None if it did not answer.
        health: of each member, by its URL.
    """

    seen: Seen
    shelf: Snapshot | None
    health: Mapping[str, MemberHealth]


async def look_around(
    paths: Paths, settings: Settings, etcd: EtcdClient, *, with_memory: bool = True
) -> Sight:
    """Return everything that is known.

    Args:
        with_memory: ask the nodes for their free memory.

    Raises:
        ConfigurationError: this node has no configuration, or none that can be understood.
    """
    tables = Tables(split_config(config_file.readable_config(paths)))
    inventory = read_inventory(tables)
    trouble, shelf = "", None
    health = await etcd.health()
    try:
        shelf = await etcd.read()
    except (TransportError, ProtocolError) as err:
        trouble = err.message
    known = shelf or Snapshot({}, 0)
    presences = known.below(NODES, Presence)
    seen = Seen(
        now=clock.now(),
        inventory=inventory,
        timing=settings.timing,
        helpers=frozenset(settings.helpers),
        trouble=trouble,
        witness=settings.witness,
        lease_disk="" if settings.disk is None else settings.disk.path,
        members={url: _trouble(each) for url, each in health.items()},
        free_memory=await _free_memory(paths, tables, presences if with_memory else ()),
        presences=presences,
        guards=known.below(GUARDS, Guard),
        losses=known.below(LOSSES, Loss),
        acting=known.below(ACTING, Mastership),
        fencing=known.below(FENCING, Fencing),
        outdated={
            OUTDATED + name: record for name, record in known.below(OUTDATED, Outdated).items()
        },
        master=known.one(MASTER_KEY, Mastership),
        alone=known.one(ALONE_KEY, Mastership),
        pause=known.one(PAUSE_KEY, Pause),
    )
    return Sight(seen, shelf, health)


def _trouble(member: MemberHealth) -> str:
    return member.trouble or ("" if member.leader else "it has no leader")


async def _free_memory(paths: Paths, tables: Tables, names: Iterable[str]) -> dict[str, int]:
    """Ask the nodes for their free memory, in MiB; one that does not tell is left out."""
    wanted, specs = {*names}, hypervisor_specs(tables.cluster)[:1]
    nodes = [node for node in map(tables.nodes.read, tables.nodes) if node.name in wanted]
    async with AsyncNodeRpcClient(paths) as rpc:

        async def ask(node: Node) -> int | None:
            try:
                async with asyncio.timeout(_MEMORY_S):
                    result = await rpc.call_one(NodeCalls.node_info, node, [], specs)
                return None if result.error else _free_of(result.payload)
            except (TimeoutError, GenericError):
                return None

        found = await asyncio.gather(*map(ask, nodes))
    told = zip(nodes, found, strict=True)
    return {node.name: free for node, free in told if free is not None}


def _free_of(payload: object) -> int | None:
    """Raises ProtocolError: it is no answer to ``node_info``."""
    told = NodeLive.from_rpc(payload).hypervisors
    return told[0].memory_free if told else None
