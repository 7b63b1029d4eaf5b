"""``tools/drbd-fence-peer``: what DRBD runs at its events under high availability.

Theory of operation.  Until ``fence-peer`` ends the driver acknowledges no write.  The program
writes to etcd that the other copy is outdated, and only if nobody says that of its own; so of two
nodes that have lost each other one goes on.  A primary node that cannot say so waits, until the
copy is back or the node's watchdog resets it: what is not acknowledged is not lost.

Where etcd answers nobody, no node is proved dead either, and nothing is started elsewhere.  Then
the node goes on as soon as most nodes have vouched for it after the loss, and notes what etcd is to
be told first.  They would not do so if etcd had forgotten this node alone; but that takes a while
(`Timing.noticed_s`), in which their word is worth nothing.

A record is taken back by the node that wrote it, when both copies are the same again: it reads the
record's revision, then looks at the device, and deletes that revision only.  If the node that wrote
it has no copy any more, as after a change of the secondary node, either of the two does so.

Source: drbd.conf(5) of DRBD 8.4, "fence-peer", with its exit statuses; design.md, "A write counts
on both nodes, or the other copy is written off".
"""

from __future__ import annotations

import asyncio
import logging
import logging.handlers
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.availability.records import Outdated, outdated_key
from ganeti.availability.timing import Timing
from ganeti.base.errors import (
    ConfigurationError,
    GenericError,
    OpPrereqError,
    ProtocolError,
    TransportError,
    failing_as,
)
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.cli.command import EXIT_SUCCESS, ArgKind, Context, Options, opt
from ganeti.cli.declaration.program import single_program
from ganeti.clients.etcd import Delete, EtcdClient, Put, Snapshot, Unchanged
from ganeti.storage.drbd import drbdsetup
from ganeti.storage.drbd.show import Resource
from ganeti.storage.drbd.status import Device
from ganeti.store import availability, ssconf
from ganeti.store.availability import Settings
from ganeti.system import clock, files

logger = logging.getLogger("drbd-fence-peer")

PEER_IS_OUTDATED: Final = 4
_REFUSED: Final = 1  # the driver acknowledges nothing until the copy is back
_PAUSE_S: Final = 0.3
_MOMENT_S: Final = 3.0
_PROMOTION_S: Final = 10.0  # a command waits for it
_NOTE_BYTES_MAX: Final = 4096
_SYSTEM_LOG: Final = "/dev/log"
_UP_TO_DATE: Final = "UpToDate"
_ADDRESS: Final = re.compile(r"ipv[46]:\[?(?P<host>[^\]]+?)\]?:(?P<port>\d+)")


@dataclass(frozen=True, slots=True)
class Pair:
    """The two nodes with copies of a disk, and the port by which they talk."""

    own: str
    peer: str
    port: int

    @property
    def own_key(self) -> str:
        """The key that says that the copy here is outdated."""
        return outdated_key(self.own, self.port)

    @property
    def peer_key(self) -> str:
        """The key that says that the other copy is."""
        return outdated_key(self.peer, self.port)


def answer(context: Context, _options: Options, args: list[str]) -> int:
    """Answer an event of DRBD, or settle what is left of earlier ones."""
    _log_to_system()
    match args:
        case ["fence-peer", resource]:
            try:
                return Guard(context.paths).fence(resource)
            except GenericError as err:
                logger.error("%s: %s", resource, err.message)  # noqa: TRY400 - told in one line
                return _REFUSED
        case ["settle"]:
            asyncio.run(Guard(context.paths).settle())
    return EXIT_SUCCESS  # the other events need nothing


def _log_to_system() -> None:
    """Log where the kernel's own words about the event are; nobody reads what is printed."""
    if os.path.exists(_SYSTEM_LOG):
        handler = logging.handlers.SysLogHandler(_SYSTEM_LOG)
        handler.setFormatter(logging.Formatter("%(name)s[%(process)d]: %(message)s"))
        logging.basicConfig(level=logging.INFO, handlers=[handler])


class Guard:
    """Speaks for the copies of this node."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._settings = availability.read(paths)

    def fence(self, name: str) -> int:
        """Write off the other copy of a disk; returns what DRBD is to be told.

        Raises:
            GenericError: the disk, or the node that has the other copy, is not known.
        """
        if self._settings is None:
            return PEER_IS_OUTDATED  # as without us
        began_s = clock.monotonic()
        pair = self._pair_at_last(name, began_s)
        said, is_known = "", False
        while True:
            try:
                if asyncio.run(self._write_off(pair, self._settings)):
                    logger.info("%s: the copy on %s is written off", name, pair.peer)
                    return PEER_IS_OUTDATED
                trouble = f"the copy here is outdated: {pair.peer} went on without it"
                is_known = True
            except (TransportError, ProtocolError) as err:
                trouble = err.message
                if self._may_go_on_without_etcd(began_s, self._settings.timing):
                    self._note(pair)
                    logger.warning("%s: goes on alone without etcd: %s", name, trouble)
                    return PEER_IS_OUTDATED
            if trouble != said:
                logger.warning("%s: nothing is written: %s", name, trouble)
                said = trouble
            try:
                device = self._device(name)
            except GenericError as err:
                logger.warning("%s: cannot look at it: %s", name, err.message)
                clock.pause(_PAUSE_S)
                continue
            if device is None or device.is_connected:
                return _REFUSED
            if not device.is_primary and (is_known or clock.monotonic() > began_s + _PROMOTION_S):
                return _REFUSED
            clock.pause(_PAUSE_S)

    async def settle(self) -> None:
        """Tell etcd what was noted, and take back records of copies that are the same again.

        A copy may have been lost before high availability was switched on: then nobody wrote it
        off, and it is written off now.

        Raises:
            GenericError: etcd or DRBD does not answer.
        """
        if self._settings is None or not drbdsetup.is_loaded():
            return
        async with EtcdClient.of(self._settings, self._settings.timing.command_s) as etcd:
            for path, pair in self._noted():
                await etcd.change([], _record_of(pair))
                os.unlink(path)
            shelf = await etcd.read()  # before the look at the devices: a later record stays
            seen = drbdsetup.view()
            nodes = self._nodes()
            alone: list[tuple[Resource, Pair]] = []
            for resource in seen.resources:
                ours = pair_of(resource, nodes)
                if ours is None:
                    continue
                if are_same(resource, seen.status.devices):
                    await _take_back(etcd, shelf, ours, resource.name)
                elif is_written_alone(resource, seen.status.devices):
                    alone.append((resource, ours))
            if alone:
                await self._write_off_lost(etcd, alone)

    async def _write_off_lost(
        self, etcd: EtcdClient, alone: Sequence[tuple[Resource, Pair]]
    ) -> None:
        """Write copies off that are lost for more than a moment, as while a job connects them.

        Raises:
            GenericError: etcd or DRBD does not answer.
        """
        await asyncio.sleep(_MOMENT_S)
        devices = drbdsetup.view().status.devices
        for resource, pair in alone:
            if not is_written_alone(resource, devices):
                continue
            unwritten = [Unchanged(key, 0) for key in (pair.own_key, pair.peer_key)]
            if await etcd.change(unwritten, _record_of(pair)):
                logger.info("%s: the copy on %s is written off", resource.name, pair.peer)

    async def _write_off(self, pair: Pair, settings: Settings) -> bool:
        """Write that the other copy is outdated, if nobody says so of the one here.

        Raises:
            TransportError, ProtocolError: etcd has not said that it is written.
        """
        async with EtcdClient.of(settings, settings.timing.command_s) as etcd:
            # Again, if it is there already: who wants to take it back has read it before.
            return await etcd.change([Unchanged(pair.own_key, 0)], _record_of(pair))

    def _may_go_on_without_etcd(self, began_s: float, timing: Timing) -> bool:
        state = availability.read_state(self._paths)
        if state is None or not state.etcd:
            return False
        return state.vouched > max(began_s, state.known + timing.noticed_s)

    def _note(self, pair: Pair) -> None:
        """Note what etcd is to be told.

        Raises:
            ConfigurationError: the note cannot be written.
        """
        with failing_as(ConfigurationError, "cannot note that a copy is outdated"):
            os.makedirs(self._notes, exist_ok=True)
            path = f"{self._notes}/{pair.peer}:{pair.port}"
            files.write_atomic(path, dumps([pair.own, pair.peer, pair.port]))

    @property
    def _notes(self) -> str:
        return f"{self._paths.run_dir}/outdated-copies"

    def _noted(self) -> Iterator[tuple[str, Pair]]:
        names = os.listdir(self._notes) if os.path.isdir(self._notes) else []
        for path in [f"{self._notes}/{name}" for name in names]:
            data = files.read_bytes_or_none(path, _NOTE_BYTES_MAX)
            if data is not None:
                own, peer, port = loads_as(tuple[str, str, int], data)
                yield path, Pair(own, peer, port)

    def _pair_at_last(self, name: str, began_s: float) -> Pair:
        """Return the nodes of a resource; a program that fails once must not stop all writes.

        Raises:
            GenericError: as `_pair`, for some seconds.
        """
        while True:
            try:
                return self._pair(name)
            except GenericError:
                if clock.monotonic() > began_s + _PROMOTION_S:
                    raise
            clock.pause(_PAUSE_S)

    def _pair(self, name: str) -> Pair:
        """Return the nodes of a resource.

        Raises:
            GenericError: it is not there, or its addresses are those of no nodes.
        """
        for resource in drbdsetup.resources():
            if resource.name == name and (pair := pair_of(resource, self._nodes())):
                return pair
        raise OpPrereqError(f"nobody knows which nodes have copies of {name}")

    def _nodes(self) -> dict[str, str]:
        """Return {address for replication: node}."""
        lines = ssconf.read_key(self._paths, "node_secondary_ips").splitlines()
        return {address: node for node, address in (line.split() for line in lines)}

    def _device(self, name: str) -> Device | None:
        seen = drbdsetup.view()
        found = next((each for each in seen.resources if each.name == name), None)
        minors = [] if found is None else [each.minor for each in found.volumes.values()]
        return next((seen.status.devices.get(minor) for minor in minors), None)


def pair_of(resource: Resource, nodes: Mapping[str, str]) -> Pair | None:
    """Return the nodes of a resource; None if it has no connection, or is no disk of the cluster.

    Args:
        nodes: {address for replication: node}.
    """
    local, remote = map(_ADDRESS.fullmatch, (resource.local, resource.remote))
    if local is None or remote is None:
        return None
    own, peer = (nodes.get(each["host"]) for each in (local, remote))
    return Pair(own, peer, int(remote["port"])) if own and peer else None


def are_same(resource: Resource, devices: Mapping[int, Device]) -> bool:
    """Tell whether all copies of a resource are connected and have the same data."""
    found = [devices.get(each.minor) for each in resource.volumes.values()]
    return bool(found) and all(
        each is not None
        and each.is_connected
        and each.local_disk == each.remote_disk == _UP_TO_DATE
        for each in found
    )


def is_written_alone(resource: Resource, devices: Mapping[int, Device]) -> bool:
    """Tell whether a resource is in use here without the other copy."""
    found = [devices.get(each.minor) for each in resource.volumes.values()]
    return any(each is not None and each.is_primary and not each.is_connected for each in found)


async def _take_back(etcd: EtcdClient, shelf: Snapshot, pair: Pair, name: str) -> None:
    """Take back the records of copies that are the same.

    Raises:
        TransportError, ProtocolError: etcd has not said that they are gone.
    """
    for key in (pair.own_key, pair.peer_key):
        record = shelf.one(key, Outdated)
        if record is None or record.by == pair.peer:
            continue  # it alone knows at once that it has lost the other copy
        unchanged = Unchanged(key, shelf.revision_of(key))
        if await etcd.change([unchanged], Delete(key)):
            logger.info("%s: both copies are the same again", name)


def _record_of(pair: Pair) -> Put:
    record = Outdated(by=pair.own, since=clock.now())
    return Put(pair.peer_key, dumps(record.to_wire()))


PROGRAM: Final = single_program(
    "drbd-fence-peer",
    "write off the copy of a disk that DRBD has lost",
    """Is run by DRBD at its events while high availability is switched on; there is nothing to do
by hand.  'fence-peer RESOURCE' means that a primary node has lost the other copy of a disk, or that
a node without the other copy wants to become the primary one: the program tells etcd that the
other copy is outdated, and ends with status 4, or with another one if that cannot be.  'settle' is
run by ganeti-ha: it takes back what is over.  Nothing is done at other events.  What it decides is
in the system's log.""",
    answer,
    args=(
        opt.Argument(ArgKind.TEXT, metavar="EVENT"),
        opt.Argument(ArgKind.TEXT, 0, 1, metavar="RESOURCE"),
    ),
    expected_errors=(GenericError, OSError),
)
