"""The instances of a node, however many: asked of RConfD in as many questions as it takes.

One answer holds some sixty instances.  Where there are more it is refused; then the instances are
listed by serial number, and those are asked for one by one that are new or have changed.

Source: confd.json, "query_types" and "transport".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final, Protocol, TypeVar

import msgspec

from ganeti.base.errors import ConfdClientError, GenericError, TransportError
from ganeti.collectors import cluster_facts
from ganeti.collectors.cluster_facts import InstanceFacts, NodeInstances
from ganeti.protocol.confd_queries import QueryType

_AT_ONCE: Final = 16  # questions that are under way together
# For all that is to be asked at one time; what came until then is kept, the rest asked next time.
_DEADLINE_S: Final = 20.0

T = TypeVar("T")


class Ask(Protocol):
    """Puts a question to RConfD."""

    async def __call__(self, query_type: QueryType, query: object = None) -> object:
        """Return the answer; None if there is no such thing.

        Raises:
            ConfdClientError: RConfD could not make one.
            GenericError: no answer.
        """


class InstanceLookup:
    """Looks up the instances of one node, and what they are made of."""

    def __init__(self, hostname: str, ask: Ask) -> None:
        self._hostname = hostname
        self._ask = ask
        self._known: dict[str, InstanceFacts] = {}  # those that were asked for one by one, by UUID
        self._is_asking = asyncio.Lock()  # whoever comes second finds what the first one learned

    async def instances(self) -> NodeInstances:
        """Return the instances of this node.

        Raises:
            GenericError: RConfD did not answer, or nothing that can be understood.
        """
        try:
            answer = await self._ask(QueryType.NODE_INSTANCES, self._hostname)
        except ConfdClientError:  # most likely too many; if not, the next question fails as well
            async with self._is_asking:
                return await self._one_by_one()
        self._known.clear()
        return cluster_facts.decode_instances(answer)

    async def _one_by_one(self) -> NodeInstances:
        parts = cluster_facts.decode_serials(
            await self._ask(QueryType.NODE_INSTANCE_SERIALS, self._hostname)
        )
        listed = {uuid: serial for part in parts for uuid, serial in part}
        known = self._known
        for uuid in known.keys() - listed.keys():
            del known[uuid]
        changed = [
            uuid
            for uuid, serial in listed.items()
            if uuid not in known or known[uuid].serial_no != serial
        ]

        async def refresh(uuid: str) -> None:
            answer = await self._ask(QueryType.CONFIG_QUERY, f"/instances/{uuid}")
            if answer is None:  # it has just gone
                known.pop(uuid, None)
            else:
                known[uuid] = cluster_facts.decode_instance(answer)

        await _for_each(refresh, changed)
        primary, secondary = (
            tuple(known[uuid] for uuid, _serial in part if uuid in known) for part in parts
        )
        return NodeInstances(primary, secondary)

    async def with_disks(self, instances: Iterable[InstanceFacts]) -> list[InstanceFacts]:
        """Return those of the instances that have disks, with what these are.

        Raises:
            GenericError: as of `instances`.
        """
        found: dict[str, InstanceFacts] = {}

        async def look(instance: InstanceFacts) -> None:
            answer = await self._ask(QueryType.INSTANCE_DISKS, instance.uuid)
            disks = cluster_facts.decode_disks(answer or ())  # it may just have gone
            found[instance.uuid] = msgspec.structs.replace(instance, disks=disks)

        await _for_each(look, [instance for instance in instances if instance.disks])
        return list(found.values())


async def _for_each(look: Callable[[T], Awaitable[None]], things: Collection[T]) -> None:
    """Look at all things, some at a time; the first that fails ends it.

    Raises:
        GenericError: that of the first, or the time was not enough.
    """
    rest = iter(things)

    async def work() -> None:
        for thing in rest:
            await look(thing)

    try:
        async with asyncio.timeout(_DEADLINE_S), asyncio.TaskGroup() as tasks:
            for number in range(min(_AT_ONCE, len(things))):
                tasks.create_task(work(), name=f"questions to RConfD {number}")
    except TimeoutError as err:
        raise TransportError(
            f"RConfD did not answer {len(things)} questions within {_DEADLINE_S:g} s"
        ) from err
    except BaseExceptionGroup as group:
        failed, others = group.split(GenericError)
        if failed is None or others is not None:
            raise
        raise failed.exceptions[0] from group
