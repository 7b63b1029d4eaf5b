"""New client certificates for master candidates, and new SSH keys for root of the nodes.

Certificates are replaced node by node.  SSH keys are replaced while logging in goes on working, in
an order that may be cut off anywhere: every node makes a key beside the present one, all nodes let
the new keys in, the file of keys names old and new ones, the nodes take theirs, and only then the
old ones are let in no more.  Run again, it uses the keys that were made before; keys that the file
still names as old are let out at its end.

Source: opcodes.json, "OP_CLUSTER_RENEW_CRYPTO"; config.json, "SSH_PUB_KEYS".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Concatenate, Final, ParamSpec, TypeVar

from msgspec.structs import replace

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError, refuse, wrong_state
from ganeti.base.text import ssh_key_of
from ganeti.clients.node_rpc import RpcResult
from ganeti.logical_units import lookup
from ganeti.logical_units.base import SimpleUnit
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive
from ganeti.logical_units.node.candidates import (
    Keys,
    change_access,
    keys_alone,
    read_keys,
    trust,
    write_keys,
)
from ganeti.objects.model import SSH_KEY_BITS, Cluster, Node, SshKeyType, ssh_key_problem
from ganeti.opcodes.cluster import OpClusterRenewCrypto
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.service import call_of
from ganeti.protocol.wconfd import ObjectKind

P = ParamSpec("P")
R = TypeVar("R")

_AGAIN: Final = (
    "; put that right, or mark the node offline, and run 'gnt-cluster renew-crypto --new-ssh-keys'"
    " again"
)


class SshRenewal:
    """One renewal; the caller holds the locks of all nodes, and keeps other jobs from the keys.

    Args:
        cluster: with the kind and length of the new keys.
    """

    def __init__(self, context: JobContext, cluster: Cluster, nodes: Sequence[Node]) -> None:
        self._context = context
        self._cluster = cluster
        self._kind = str(cluster.ssh_key_type)
        self._nodes = nodes
        self._online = [node for node in nodes if not node.offline]
        self._known = read_keys(context)
        self._owners = [
            node for node in self._online if node.master_candidate or node.uuid in self._known
        ]
        for node in nodes:
            if node.offline:
                context.warn(
                    f"node {node.name} is offline and keeps its SSH key, and those that it lets in;"
                    f" 'gnt-node modify --offline=no {node.name}' tells it the new ones, and"
                    " 'gnt-node add --readd' cannot log in there before"
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
        in_use = {ssh_key_of(key) for uuid in failed for key in both[uuid]}
        forgetful = self._let_out(
            key for keys in old.values() for key in keys if ssh_key_of(key) not in in_use
        )
        if not forgetful:
            settled: Keys = {uuid: [new[uuid]] for uuid in old}
            # The key that a node has is the last one.
            kept: Keys = {uuid: [new[uuid], *both[uuid][:-1]] for uuid in failed}
            self._write({**self._known, **settled, **kept})
        if failed or forgetful:
            self._complain([names[uuid].name for uuid in failed], forgetful)

    def _make(self) -> dict[str, str]:
        self._context.info(f"making {self._kind} keys on {len(self._owners)} nodes")
        answers = self._call(
            NodeCalls.ssh_next_key, self._owners, self._kind, self._cluster.ssh_key_bits
        )
        return {node.uuid: answers[node.name].payload for node in self._owners}

    def _let_in(self, new: dict[str, str]) -> None:
        keys = [new[node.uuid] for node in self._owners if node.master_candidate]
        self._call(NodeCalls.ssh_authorize, self._online, keys, [])

    def _call(
        self,
        method: Callable[Concatenate[NodeCalls, P], R],
        nodes: Sequence[Node],
        *args: P.args,
        **named: P.kwargs,
    ) -> dict[str, RpcResult[R]]:
        """Make a call without which nothing can be replaced.

        Raises:
            OpExecError: names the nodes that failed.
        """
        answers = self._context.nodes.call_all(method, nodes, *args, **named)
        failed = [f"{name}: {each.error}" for name, each in answers.items() if each.error]
        if failed:
            raise OpExecError(
                f"the old SSH keys are still in use, as call {call_of(method).name} failed on"
                f" {'; '.join(failed)}{_AGAIN}"
            )
        return answers

    def _take(self, new: dict[str, str]) -> list[str]:
        """Let the nodes take their keys; returns the UUIDs of the nodes that failed."""
        failed: list[str] = []
        for node in self._owners:
            result = self._context.nodes.call_one(
                NodeCalls.ssh_take_key, node, self._kind, new[node.uuid]
            )
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
        return change_access(self._context, self._cluster, self._nodes, remove=keys)

    def _write(self, keys: Keys) -> None:
        write_keys(self._context, self._cluster, keys, self._online)

    @staticmethod
    def _complain(failed: Sequence[str], forgetful: Sequence[str]) -> None:
        parts = [f"no new SSH key on {', '.join(failed)}"] if failed else []
        parts += [f"old SSH keys are still let in on {', '.join(forgetful)}"] if forgetful else []
        raise OpExecError(" and ".join(parts) + _AGAIN)


@dataclass(frozen=True, slots=True)
class RenewalNodes:
    """The nodes concerned.

    Attributes:
        certificates: the candidates that can be asked for a new certificate, without the master.
        ssh_keys: all nodes, if SSH keys are to be replaced.
        etcd: all nodes, if those of etcd are.
    """

    certificates: Sequence[Node]
    ssh_keys: Sequence[Node]
    etcd: Sequence[Node] = ()


class LUClusterRenewCrypto(SimpleUnit[OpClusterRenewCrypto, RenewalNodes]):
    """Let every candidate but the master make another client certificate, or nodes new SSH keys.

    The master's own certificate signs the requests of this job, so it is replaced with all daemons
    stopped.
    """

    def resolve(self) -> RenewalNodes:
        nodes, master_uuid = lookup.all_nodes(self.config), self.cluster.master_node
        candidates = [
            node
            for node in nodes
            if node.master_candidate and not node.offline and node.uuid != master_uuid
        ]
        return RenewalNodes(
            candidates,
            nodes if self.op.renew_ssh_keys else [],
            nodes if self.op.etcd_certificates else [],
        )

    def locks(self, found: RenewalNodes) -> LockNeed:
        """Lock nodes exclusively: none may cease to be a candidate, or become one, meanwhile."""
        nodes = found.ssh_keys or found.etcd or found.certificates
        return exclusive(LockLevel.NODE, [node.uuid for node in nodes])

    def plan(self, found: RenewalNodes) -> RenewalNodes:
        """Refuse to do nothing, and SSH keys that the cluster does not manage."""
        op = self.op
        if not (op.node_certificates or op.renew_ssh_keys or op.etcd_certificates):
            raise OpPrereqError("please say what is to be replaced")
        if (self.op.ssh_key_type or self.op.ssh_key_bits) and not self.op.renew_ssh_keys:
            raise OpPrereqError(
                "type and length are those of new SSH keys; renew_ssh_keys is missing"
            )
        if self.op.renew_ssh_keys and not self.cluster.modify_ssh_setup:
            raise wrong_state(
                "the SSH keys of this cluster are managed by hand (it was made with"
                " --no-ssh-init); replace them by hand on each node"
            )
        if op.renew_ssh_keys:
            refuse(ssh_key_problem(*self._key_kind()))
        return found

    def _key_kind(self) -> tuple[SshKeyType, int]:
        """Return type and length of new keys: a length is one of keys of the same type."""
        op, before = self.op, self.cluster
        kind = op.ssh_key_type or before.ssh_key_type
        kept = before.ssh_key_bits
        if kind != before.ssh_key_type or ssh_key_problem(kind, kept):
            kept = SSH_KEY_BITS[kind]
        return kind, op.ssh_key_bits or kept

    def execute(self, plan: RenewalNodes) -> None:
        """Replace certificates, then keys; the errors of both are told."""
        if plan.etcd:
            from ganeti.logical_units.cluster.etcd_certificates import renew  # rarely needed

            renew(self.context, self.cluster, plan.etcd)
        if self.op.node_certificates:
            self._renew_certificates(plan.certificates)
        if self.op.renew_ssh_keys:
            self._renew_ssh_keys(plan.ssh_keys)

    def _renew_ssh_keys(self, nodes: Sequence[Node]) -> None:
        before = self.cluster
        kind, bits = self._key_kind()
        after = replace(before, ssh_key_type=kind, ssh_key_bits=bits)
        with keys_alone(self.context):
            SshRenewal(self.context, after, nodes).run()
            if (kind, bits) != (before.ssh_key_type, before.ssh_key_bits):
                fields = {"ssh_key_type": str(kind), "ssh_key_bits": bits}
                self.config.modify(ObjectKind.CLUSTER, "", fields)

    def _renew_certificates(self, candidates: Sequence[Node]) -> None:
        """Replace them one after the other; failures are named at the end.

        Raises:
            OpExecError: some nodes have no certificate that is trusted.
        """
        failed = []
        for node in candidates:
            try:
                trust(self.context, node)
            except GenericError as err:
                self.context.warn(f"{err.message}; going on")
                failed.append(node.name)
            else:
                self.context.info(f"node {node.name} has a new client certificate")
        if failed:
            raise OpExecError(
                f"no new client certificate for {', '.join(failed)}; put that right and run"
                " 'gnt-cluster renew-crypto --new-node-certificates', or take the node in again by"
                " 'gnt-node add --readd'"
            )
