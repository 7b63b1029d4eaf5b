"""Makes and removes tokens, for users of the remote API themselves.

They are changed in the file of this node, as by ``gnt-rapi``, and a job sends that to the other
master candidates.  A token makes no token: who finds one has it until it ends and no longer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Raw

from ganeti.base.errors import GenericError
from ganeti.base.json import dumps, loads_as
from ganeti.protocol.rapi.answers import no_such
from ganeti.protocol.rapi.values import HttpProblem
from ganeti.rapid.access import Access
from ganeti.store.rapi_access import RapiAccess
from ganeti.system import clock

logger = logging.getLogger(__name__)

TOKENS_MAX: Final = 50  # of one user
_DAY_S: Final = 86400
_OP_ID: Final = "OP_CLUSTER_REDIST_CONF"

Ask = Callable[[str, list[object]], Awaitable[Raw]]


class TokenChanges:
    """Changes tokens, one after another.

    Args:
        ask: calls LuxiD.
    """

    def __init__(self, access: Access, ask: Ask) -> None:
        self._files = RapiAccess(access.paths)
        self._access = access
        self._ask = ask
        self._turn = asyncio.Lock()
        self._job_id = 0

    async def add(self, user: str, days: int, authorization: str) -> bytes:
        """Make a token for a user who came with the password; answer it, its end, and the job.

        Raises:
            HttpProblem: 403: the user came with a token; 400: there are too many.
            OpExecError: the file cannot be written.
        """
        if authorization.strip().lower().startswith("bearer"):
            raise HttpProblem(403, "A token makes no tokens: this needs the password")
        async with self._turn:
            if len(self._access.tokens_of(user)) >= TOKENS_MAX:
                raise HttpProblem(400, f"There are {TOKENS_MAX} tokens of {user}: remove some")
            expires = int(clock.now()) + days * _DAY_S
            token = await asyncio.to_thread(self._files.add_token, user, expires)
            self._access.reload()
            job_id = await self._distribute(user)
        return dumps({"token": token, "expires": expires, "job": job_id})

    async def remove(self, owner: str, token_id: str, user: str) -> bytes:
        """Remove a token of its owner, as a user wants it; answer the job.

        Raises:
            HttpProblem: 404: the owner has no such token.
            OpExecError: the file cannot be written.
        """
        async with self._turn:
            if token_id not in [each["id"] for each in self._access.tokens_of(owner)]:
                raise no_such("token", token_id)
            await asyncio.to_thread(self._files.remove_token, token_id)
            self._access.reload()
            return dumps(await self._distribute(user))

    async def _distribute(self, user: str) -> int | None:
        """Have the files sent to the candidates; return the job, None if there cannot be one.

        One that has not begun yet sends them too: nobody fills the queue with them.
        """
        reason = ["gnt:library:rlib2:user_tokens", f"user {user}", clock.now_ns()]
        try:
            if not await self._is_queued():
                job_id = await self._ask("SubmitJob", [[{"OP_ID": _OP_ID, "reason": [reason]}]])
                self._job_id = int(bytes(job_id))
        except GenericError as err:
            logger.warning("Tokens were changed, and no other node is told: %s", err.message)
            return None
        return self._job_id

    async def _is_queued(self) -> bool:
        if not self._job_id:
            return False
        rows = await self._ask("QueryJobs", [[self._job_id], ["status"]])
        return bool(loads_as(list[Any], bytes(rows)) == [["queued"]])
