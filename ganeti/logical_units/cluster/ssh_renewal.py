"""New SSH keys for root of the nodes that may log in to others, while logging in goes on working.

In an order that may be cut off anywhere: every node makes a key beside the present one, all nodes
let the new keys in, the file of keys names old and new ones, the nodes take theirs, and only then
the old ones are let in no more.  Run again, it uses what was made before, and what the file still
names as old is let out at its end.

Source: opcodes.json, "OP_CLUSTER_RENEW_CRYPTO"; config.json, "SSH_PUB_KEYS".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ganeti.base.errors import OpExecError
from ganeti.logical_units.node import ssh_keys
from ganeti.logical_units.node_calls import call_node, call_nodes

if TYPE_CHECKING:
    from ganeti.clients.node_rpc import RpcResult
    from ganeti.logical_units.context import JobContext
    from ganeti.logical_units.node.ssh_keys import Keys
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.node import Node

_AGAIN: Final = (
    "; put that right, or mark the node offline, and run 'gnt-cluster renew-crypto --new-ssh-keys'"
    " again"
)


class SshRenewal:
    """One renewal; the caller holds the locks of all nodes.

    Args:
        cluster: with the kind and length of the new keys.
    """

    def __init__(self, context: JobContext, cluster: Cluster, nodes: Sequence[Node]) -> None:
        self._context = context
        self._cluster = cluster
        self._kind = str(cluster.ssh_key_type)
        self._online = [node for node in nodes if not node.offline]
        self._known = ssh_keys.read_keys(context)
        self._owners = [
            node for node in self._online if node.master_candidate or node.uuid in self._known
        ]
        for node in nodes:
            if node.offline and node.uuid in self._known:
                context.warn(
                    f"node {node.name} is offline and keeps its SSH key; 'gnt-node add --readd'"
                    " takes it in again"
                )

    def run(self) -> None:
        """Replace the keys.

        Raises:
            OpExecError: some nodes have their old keys, or let old ones in; it names them.
        """
        new = self._make()
        self._let_in(new)
        names: dict[str, Node] = {node.uuid: node for node in self._owners}
        both = {
            uuid: [*(key for key in self._known.get(uuid, ()) if key != new[uuid]), new[uuid]]
            for uuid in names
        }
        self._write({**self._known, **both})
        failed = self._take(new)
        old = {uuid: keys[:-1] for uuid, keys in both.items() if uuid not in failed}
        forgetful = self._let_out(key for keys in old.values() for key in keys)
        if not forgetful:
            settled: Keys = {uuid: [new[uuid]] for uuid in old}
            # The key that a node has is the last one.
            kept: Keys = {uuid: [new[uuid], *both[uuid][:-1]] for uuid in failed}
            self._write({**self._known, **settled, **kept})
        if failed or forgetful:
            self._complain([names[uuid].name for uuid in failed], forgetful)

    def _make(self) -> dict[str, str]:
        self._context.info(f"making {self._kind} keys on {len(self._owners)} nodes")
        answers = self._call(self._owners, "ssh_next_key", self._kind, self._cluster.ssh_key_bits)
        return {node.uuid: str(answers[node.name].payload) for node in self._owners}

    def _let_in(self, new: dict[str, str]) -> None:
        keys = [new[node.uuid] for node in self._owners if node.master_candidate]
        self._call(self._online, "ssh_authorize", keys, [])

    def _call(self, nodes: Sequence[Node], call: str, *args: object) -> dict[str, RpcResult]:
        """Make a call without which nothing can be replaced.

        Raises:
            OpExecError: names the nodes that failed.
        """
        answers = call_nodes(self._context, nodes, call, *args)
        failed = [f"{name}: {each.error}" for name, each in answers.items() if each.error]
        if failed:
            raise OpExecError(
                f"the old SSH keys are still in use, as call {call} failed on {'; '.join(failed)}"
                f"{_AGAIN}"
            )
        return answers

    def _take(self, new: dict[str, str]) -> list[str]:
        """Let the nodes take their keys; returns the UUIDs of those that did not."""
        failed: list[str] = []
        for node in self._owners:
            result = call_node(self._context, node, "ssh_take_key", self._kind, new[node.uuid])
            if result.error is not None:
                self._context.warn(f"node {node.name} keeps its SSH key: {result.error}")
                failed.append(node.uuid)
            else:
                self._context.info(f"node {node.name} has a new SSH key")
        return failed

    def _let_out(self, old: Iterable[str]) -> list[str]:
        """Let the old keys in no more; returns the names of nodes that still do."""
        keys = list(old)
        if not keys:
            return []
        answers = call_nodes(self._context, self._online, "ssh_authorize", [], keys)
        failed = [name for name, result in answers.items() if result.error is not None]
        for name in failed:
            self._context.warn(f"node {name} still lets old keys in: {answers[name].error}")
        return failed

    def _write(self, keys: Keys) -> None:
        ssh_keys.write_keys(self._context, self._cluster, keys, self._online)

    @staticmethod
    def _complain(failed: Sequence[str], forgetful: Sequence[str]) -> None:
        parts = [f"no new SSH key on {', '.join(failed)}"] if failed else []
        parts += [f"old SSH keys are still let in on {', '.join(forgetful)}"] if forgetful else []
        raise OpExecError(" and ".join(parts) + _AGAIN)
