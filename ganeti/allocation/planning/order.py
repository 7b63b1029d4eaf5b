"""The order of steps by which instances get from where they are to where a plan wants them.

Each step is one that hbal could take where its turn comes: the rules of
`ganeti.allocation.balancing` are asked in the state before it, where old copies of disks still take
their room.  Of the steps that are open the one that makes the score best is taken.  An instance
that gets two new nodes makes two steps.  Those for which no step ever opens are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

import numpy as np

from ganeti.allocation.balancing.arrays import Arrays
from ganeti.allocation.balancing.gains import CLOSED, SWITCH, WAYS, Evaluation, nodes_of
from ganeti.allocation.balancing.search import Done
from ganeti.allocation.balancing.steps import Limits, Step, actions_of
from ganeti.allocation.limits import Redundancy
from ganeti.allocation.state import ClusterState

Nodes = tuple[str, ...]
_Entry = tuple[float, int, Nodes]


class Ordering:
    """Steps towards the nodes that are wanted for instances.

    Attributes:
        done: the steps that were found.
        left: the instances that do not get where they are wanted.
    """

    def __init__(
        self, cluster: ClusterState, group: str, limits: Limits, wanted: Mapping[str, Nodes]
    ) -> None:
        instances = [cluster.instances[name] for name in wanted]
        self._arrays = Arrays(cluster, group, instances, limits.rules)
        self._evaluation = Evaluation(self._arrays, limits)
        self._wanted = list(wanted.values())
        self._has_movers = any(load.movable for load in self._arrays.loads)
        self.done: list[Done] = []
        self._go()
        rows = enumerate(self._arrays.instances)
        self.left = [each.name for row, each in rows if each.nodes != self._wanted[row]]

    def cluster(self) -> ClusterState:
        """Return the cluster after the steps."""
        return self._arrays.cluster()

    def _go(self) -> None:
        rows = enumerate(self._arrays.instances)
        pending = [row for row, each in rows if each.nodes != self._wanted[row]]
        queue: list[_Entry] = []
        is_whole = False  # whether every gain in the queue is that of the present state
        while pending:
            if not queue:
                if is_whole:
                    return
                queue = [entry for row in pending for entry in self._open_steps(row)]
                heapify(queue)
                is_whole = True
                continue
            _, row, nodes = heappop(queue)
            if not is_whole:
                entry = next(iter(sorted(self._open_steps(row))), None)
                if entry is None:
                    continue
                if queue and entry[0] > queue[0][0]:
                    heappush(queue, entry)
                    continue
                _, row, nodes = entry
            if not self._keeps_redundancy(row, nodes):
                continue
            self._take(row, nodes)
            queue = [entry for entry in queue if entry[1] != row]
            heapify(queue)
            is_whole = False
            if nodes == self._wanted[row]:
                pending.remove(row)
            else:
                for entry in self._open_steps(row):
                    heappush(queue, entry)

    def _take(self, row: int, nodes: Nodes) -> None:
        before = self._arrays.instances[row]
        self._arrays.move(row, nodes)
        step = Step(before, self._arrays.instances[row], actions_of(before, nodes))
        self.done.append(Done(step, self._arrays.score))

    def _open_steps(self, row: int) -> Iterator[_Entry]:
        """Yield the steps of an instance that are open now and lead where it is wanted."""
        instance, wanted = self._arrays.instances[row], self._wanted[row]
        columns = np.array(self._arrays.columns(wanted))
        found = self._evaluation.gains(np.array([row]), columns)
        new = set(wanted) - set(instance.nodes)
        if len(new) < 2 and found.switches[0] > CLOSED and nodes_of(instance, SWITCH, "") == wanted:
            yield -float(found.switches[0]), row, wanted
        for place, name in enumerate(wanted):
            for way in range(WAYS) if name in new else ():
                nodes = nodes_of(instance, way, name)
                gain = found.ways[way, 0, place]
                if gain > CLOSED and (nodes == wanted or len(new) > 1):
                    yield -float(gain), row, nodes

    def _keeps_redundancy(self, row: int, nodes: Nodes) -> bool:
        """Tell whether as much as before could be restarted elsewhere if any one node failed."""
        arrays = self._arrays
        if not self._has_movers or not all(
            arrays.usable[column] for column in arrays.columns(arrays.instances[row].nodes)
        ):
            return True
        after = arrays.loads_after(row, nodes)
        changes = {arrays.names[column]: load for column, load in after.items()}
        now = dict(zip(arrays.names, arrays.loads, strict=True))
        return not Redundancy(now).gets_worse(changes)
