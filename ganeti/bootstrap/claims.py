"""Announcing this node as the next master, also when other nodes do so at the same moment.

Each node takes note of one announcement at a time, so at most one author has the majority.  When
nobody has it, the author whose name comes first stays and asks again, and the others withdraw what
they were promised: exactly one of them goes on.

Source: ARCHITECTURE, invariant 9; decided in `ganeti.jobs.votes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.clients import master_poll
from ganeti.clients.node_rpc import NodeRpcClient, RpcResult, Target
from ganeti.jobs.votes import Poll, may_ask_again, votes_needed
from ganeti.protocol.node_calls import NodeCalls
from ganeti.store import master_facts
from ganeti.store.master_facts import Claim
from ganeti.system import clock

# A rival withdraws within two calls; this long a node that follows him may be busy with others.
PATIENCE_S: Final = 30.0
_ASK_AGAIN_S: Final = 0.2


class Announcement:
    """One node's wish to become master with a configuration of that serial number.

    Args:
        poll: the answers of the nodes from which the serial number was chosen.
        targets: the other nodes.
    """

    def __init__(
        self,
        paths: Paths,
        rpc: NodeRpcClient,
        poll: Poll,
        serial_no: int,
        targets: Mapping[str, Target],
    ) -> None:
        self._paths = paths
        self._rpc = rpc
        self._serial_no = serial_no
        self._own_name = poll.own_name
        self._known = poll.known()
        self._needed = votes_needed(len(poll.nodes))
        self._silent_votes = len(poll.answers) - len(self._known)  # of another release
        self._targets = {name: targets[name] for name in self._known if name in targets}
        self._promised: set[str] = set()

    def make(self, *, no_voting: bool) -> None:
        """Let the nodes take note that this one comes next.

        Raises:
            OpPrereqError: another node announced itself first.
        """
        master_facts.take_claim(
            self._paths,
            known_serial=self._known[self._own_name].claim_serial,
            claim=Claim(self._serial_no, self._own_name),
        )
        deadline = clock.monotonic() + PATIENCE_S
        while refused := self._ask():
            if len(self._promised) + 1 + self._silent_votes >= self._needed or no_voting:
                return
            is_contested = any(map(_is_answer, refused)) and self._may_ask_again()
            if clock.monotonic() >= deadline or not is_contested:
                self.withdraw()
                reasons = "; ".join(result.failure_text for result in refused)
                raise OpPrereqError(
                    f"too few nodes agree that this one becomes master: {reasons}. Try again, on"
                    " one node at a time",
                    ErrorCode.STATE,
                )
            clock.pause(_ASK_AGAIN_S)

    def _ask(self) -> list[RpcResult[None]]:
        """Ask all nodes; returns the answers of the nodes that did not agree."""
        args = {
            target: (self._known[name].claim_serial, self._serial_no, self._own_name)
            for name, target in self._targets.items()
        }
        results = self._rpc.call_each(NodeCalls.master_claim, args) if args else {}
        refused = {name: result for name, result in results.items() if result.error is not None}
        self._promised |= results.keys() - refused.keys()
        self._promised -= {name for name, result in refused.items() if _is_answer(result)}
        return list(refused.values())

    def _may_ask_again(self) -> bool:
        found, _ = master_poll.ask_all(self._rpc, list(self._targets.values()))
        facts = [answer.facts for answer in found.values() if answer.facts is not None]
        return may_ask_again(
            [master_facts.own_facts(self._paths), *facts],
            own_name=self._own_name,
            serial_no=self._serial_no,
            needed=self._needed,
        )

    def withdraw(self) -> None:
        """Take the announcement back on the nodes that agreed; a node that misses it does no harm.

        Nobody else is asked: rivals have the same serial number.
        """
        own = self._known[self._own_name]
        before = Claim(own.claim_serial, own.claim_name)
        master_facts.take_claim(self._paths, known_serial=self._serial_no, claim=before)
        args = {
            self._targets[name]: (self._serial_no, facts.claim_serial, facts.claim_name)
            for name, facts in self._known.items()
            if name in self._promised
        }
        if args:
            self._rpc.call_each(NodeCalls.master_claim, args)


def _is_answer(refusal: RpcResult[None]) -> bool:
    """Tell whether a node refused; otherwise it was not reached, and no rival is the reason."""
    return not refusal.address
