"""Gets the job file to the other master candidates: with LuxiD's help, or without.

LuxiD keeps connections to all candidates open and lends them.  When it is not there, the job
process calls the candidates itself, by the same rules (`ganeti.copies.node`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import NodeRpcClient, Target
from ganeti.copies.node import NodeCopies, Trip
from ganeti.copies.quorum import Tally
from ganeti.jobexec.luxid_link import LuxidLink
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import CompressedText
from ganeti.store import ssconf
from ganeti.system import clock, environment


class MasterRoleLostError(Exception):
    """Another node is master: what became of the job is for that one to say."""


class JobCopies:
    """The copies of one job's file.

    Args:
        path: the file.
        lagging: candidates where an older version may still arrive after ours: what LuxiD itself
            sends comes in order, but what we send does not count until a second acknowledgement.
        pause: sleeps, whatever the job is asked to do meanwhile.
    """

    def __init__(
        self,
        paths: Paths,
        path: str,
        link: LuxidLink,
        rpc: NodeRpcClient,
        lagging: Collection[str],
        pause: Callable[[float], None],
    ) -> None:
        self._paths = paths
        self._path = path
        self._link = link
        self._rpc = rpc
        self._lagging = frozenset(lagging)
        self._pause = pause
        self._nodes: dict[str, NodeCopies] = {}
        self._data = b""
        self._version = 0

    def __call__(self, data: bytes, wait_s: float) -> Tally:
        """Send a version to all candidates; returns how many have it now.

        Args:
            wait_s: how long to wait for candidates that come back.

        Raises:
            MasterRoleLostError: this node is not the master any more.
            GenericError: nothing can be sent.
        """
        copied = self._link.copy(data.decode(), wait_s)
        if copied is not None:
            return Tally(copied.others, copied.reached)
        self._pause(wait_s)
        return self._send(data)

    def _send(self, data: bytes) -> Tally:
        """Send the newest version to all candidates that lack it."""
        own_name = environment.own_hostname()
        master = ssconf.master_node(self._paths)
        if master != own_name:
            raise MasterRoleLostError(master)
        offline = ssconf.offline_nodes(self._paths)
        others = [
            Target(node.name, node.ip, offline=node.name in offline)
            for node in ssconf.master_candidates(self._paths)
            if node.name != own_name
        ]
        if data != self._data:
            self._data, self._version = data, self._version + 1
        trips = {target: trip for target in others if (trip := self._begin(target.name))}
        if trips:
            self._call(trips)
        names = [target.name for target in others]
        return Tally(names, [name for name in names if self._has_it(name)])

    def _begin(self, name: str) -> Trip | None:
        copies = self._nodes.get(name)
        if copies is None:
            copies = self._nodes[name] = NodeCopies()
            if name in self._lagging:
                copies.in_doubt.add(self._path)
        copies.want(self._path, self._version)
        copies.hurry()
        return copies.next_trip(clock.monotonic(), may_send=lambda _: True, files_max=1)

    def _call(self, trips: dict[Target, Trip]) -> None:
        path = self._paths.globalize(self._path)
        content = CompressedText(self._data)
        results = self._rpc.call_all(NodeCalls.jobqueue_update, trips, path, content)
        now_s = clock.monotonic()
        for target, trip in trips.items():
            copies, result = self._nodes[target.name], results[target.name]
            if result.error is None:
                copies.arrived(trip, trip.versions, {}, now_s)
            elif result.address or result.offline:
                copies.lost(trip, result.error, now_s)
            else:
                copies.arrived(trip, {}, {self._path: result.error}, now_s)

    def _has_it(self, name: str) -> bool:
        return self._nodes[name].has_version(self._path, self._version)
