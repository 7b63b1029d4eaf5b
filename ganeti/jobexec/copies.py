"""Gets the job file to the other master candidates: with LuxiD's help, or without.

LuxiD keeps connections to all candidates open and lends them.  When it is not there, the job
process talks to the candidates itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import NodeRpcClient, Target
from ganeti.jobexec.hand import Hand
from ganeti.store import ssconf
from ganeti.system import environment


class MasterRoleLostError(Exception):
    """Another node is master: what became of the job is for that one to say."""


class Copier:
    """Sends versions of one job's file.

    Args:
        pause: sleeps, whatever the job is asked to do meanwhile.
        lagging: candidates where an older version may still arrive after ours, so that what they
            got from us does not count until they acknowledge something a second time; those that
            LuxiD itself serves come in order.
    """

    def __init__(
        self,
        paths: Paths,
        hand: Hand,
        rpc: NodeRpcClient,
        lagging: Collection[str],
        pause: Callable[[float], None],
    ) -> None:
        self._paths = paths
        self._hand = hand
        self._rpc = rpc
        self._lagging = frozenset(lagging)
        self._pause = pause

    def __call__(
        self, path: str, data: bytes, wait_s: float
    ) -> tuple[Collection[str], Collection[str]]:
        """Send a version to all; returns who the others are, and who has it now.

        Args:
            wait_s: how long to wait before; not so long if LuxiD has news of the candidates.

        Raises:
            MasterRoleLostError: this node is not the master any more.
            GenericError: nothing can be sent.
        """
        copied = self._hand.copy(data.decode(), wait_s)
        if copied is not None:
            return copied.others, copied.reached
        self._pause(wait_s)
        return self._send(path, data)

    def _send(self, path: str, data: bytes) -> tuple[Collection[str], Collection[str]]:
        own_name = environment.own_hostname()
        master = ssconf.master_node(self._paths)
        if master != own_name:
            raise MasterRoleLostError(master)
        others = [node for node in ssconf.master_candidates(self._paths) if node.name != own_name]
        if not others:
            return [], []

        offline = ssconf.offline_nodes(self._paths)
        args = [self._paths.globalize(path), data]
        targets = {
            Target(node.name, node.ip, offline=node.name in offline): args for node in others
        }
        results = self._rpc.call("jobqueue_update", targets)
        names = [node.name for node in others]
        reached = [name for name in names if results[name].error is None]
        counted = [name for name in reached if name not in self._lagging]
        self._lagging -= frozenset(reached)
        return names, counted
