"""What WConfD does about other masters: it keeps out of their way, or overrules them.

Source: ARCHITECTURE, invariants 8 and 9.
"""

from __future__ import annotations

import logging

from ganeti.base.errors import GenericError
from ganeti.clients import mastership as clients
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.node_rpc import Target
from ganeti.config.index import CLUSTER_ID
from ganeti.daemon.context import DaemonContext
from ganeti.daemon.mastership import MasterWatch, poll_everybody
from ganeti.jobs.mastership import SERIAL_LEAP, Answer
from ganeti.wconfd.keeper import Keeper

logger = logging.getLogger(__name__)


class Returning:
    """Looks whom a node follows that was away, before it gets anything from us.

    One that is behind missed who is master; one that is ahead follows another one by now.
    """

    def __init__(
        self, keeper: Keeper, rpc: AsyncNodeRpcClient, watch: MasterWatch, own_name: str
    ) -> None:
        self._keeper = keeper
        self._rpc = rpc
        self._watch = watch
        self._own_name = own_name

    async def __call__(self, target: Target) -> str | None:
        """Return why a node gets nothing, or None."""
        answer = await clients.ask_one(self._rpc, target)
        if isinstance(answer, str):
            return answer
        if answer.master_name in ("", self._own_name) or await self._may_overrule(answer):
            return None
        return f"it follows {answer.master_name} as the master"

    async def _may_overrule(self, answer: Answer) -> bool:
        facts = answer.facts
        if facts is not None:
            if max(facts.config_serial, facts.claim_serial) <= self._keeper.state.serial_no:
                return True
            self._watch.prompt()
            return False
        try:
            return await self._watch.check()
        except GenericError as err:
            logger.warning("Cannot ask who is master: %s; trying again", err.message)
            return False


async def overrule(context: DaemonContext, keeper: Keeper, rpc: AsyncNodeRpcClient) -> None:
    """Make the configuration newer than any other, after a start without a vote.

    Nodes refuse an older one, and the operator wants this one to count.
    """
    try:
        poll = await poll_everybody(rpc, context.paths, context.hostname)
        highest = max(
            max(facts.config_serial, facts.claim_serial) for facts in poll.known().values()
        )
        if highest <= keeper.state.serial_no:
            return
        logger.warning(
            "Others have a configuration with serial number %s, this one has %s and is raised"
            " above it",
            highest,
            keeper.state.serial_no,
        )
        keeper.state.serial_no = highest + SERIAL_LEAP
        await keeper.change(lambda change: change.touch(CLUSTER_ID))
    except GenericError as err:
        logger.warning("Cannot overrule other configurations: %s; ignoring", err.message)
