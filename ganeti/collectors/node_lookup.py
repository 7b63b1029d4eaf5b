"""The instances of a node, however many, and the owners of its disks, as RConfD knows them.

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
from ganeti.protocol.confd import Answer, ErrorKind, ReplyStatus
from ganeti.protocol.confd_queries import QueryType

_AT_ONCE: Final = 16  # questions that are under way together
# For all questions of one round; the answers until then are kept, the rest is asked next time.
_DEADLINE_S: Final = 20.0

_NO_SUCH_THING: Final = (ErrorKind.UNKNOWN_ENTRY, ErrorKind.ARGUMENT)

T = TypeVar("T")


def value_or_none(answer: Answer) -> object:
    """Return the value of an answer; None if there is no such thing.

    Raises:
        ConfdClientError: RConfD could not make an answer; the text says why.
    """
    if answer.status is ReplyStatus.ERROR and answer.value in _NO_SUCH_THING:
        return None
    return answer.check()


class Ask(Protocol):
    """Puts a question to RConfD."""

    async def __call__(self, query_type: QueryType, query: object = None) -> object:
        """Return the answer; None if there is no such thing.

        Raises:
            ConfdClientError: RConfD could not make one.
            GenericError: no answer.
        """


class NodeLookup:
    """Looks up the instances of one node, and their disks."""

    def __init__(self, hostname: str, ask: Ask) -> None:
        self._hostname = hostname
        self._ask = ask
        self._known: dict[str, InstanceFacts] = {}  # instances asked for one by one, by UUID
        self._is_asking = asyncio.Lock()  # a second question finds the answers to the first

    async def instances(self) -> NodeInstances:
        """Return the instances of this node.

        Raises:
            GenericError: RConfD did not answer, or nothing that can be understood.
        """
        try:
            answer = await self._ask_of_node(QueryType.NODE_INSTANCES)
        except ConfdClientError:  # most likely too many; if not, the next question fails as well
            async with self._is_asking:
                return await self._one_by_one()
        self._known = {}
        return cluster_facts.decode_instances(answer)

    async def _ask_of_node(self, query_type: QueryType) -> object:
        answer = await self._ask(query_type, self._hostname)
        if answer is None:
            raise GenericError(f"RConfD knows no node {self._hostname}")
        return answer

    async def _one_by_one(self) -> NodeInstances:
        answer = await self._ask_of_node(QueryType.NODE_INSTANCE_SERIALS)
        parts = cluster_facts.decode_serials(answer)
        listed = {uuid: serial for part in parts for uuid, serial in part}
        # Ours until we return, even if somebody else finds that all fits into one answer again.
        known = {uuid: one for uuid, one in self._known.items() if uuid in listed}
        self._known = known
        serials = {uuid: one.serial_no for uuid, one in known.items()}
        changed = [uuid for uuid, serial in listed.items() if serials.get(uuid) != serial]

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

    async def drbd_owners(self) -> dict[int, str]:
        """Return {minor on this node: name of the instance}; errors as of `instances`."""
        try:
            answer = await self._ask_of_node(QueryType.NODE_DRBD)
        except ConfdClientError:  # as above
            found = await self.instances()
            primary = await self._with_disks(found.primary)
            secondary = await self._with_disks(found.secondary)
            return cluster_facts.owners_of_minors(primary, secondary)
        return cluster_facts.decode_drbd_owners(answer)

    async def volume_owners(self, known: NodeInstances) -> dict[tuple[str, str], str]:
        """Return {(volume group, logical volume): name of the instance}, for all of these.

        Raises:
            GenericError: as of `instances`.
        """
        everyone = (*known.primary, *known.secondary)
        return cluster_facts.owners_of_volumes(await self._with_disks(everyone))

    async def _with_disks(self, instances: Iterable[InstanceFacts]) -> list[InstanceFacts]:
        """Return the instances that have disks, with the disks themselves."""
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
        questions = f"{len(things)} questions within {_DEADLINE_S:g} s"
        raise TransportError(f"RConfD did not answer {questions}") from err
    except BaseExceptionGroup as group:
        failed, others = group.split(GenericError)
        if failed is None or others is not None:
            raise
        raise failed.exceptions[0] from group
