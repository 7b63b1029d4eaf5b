"""Changes users, roles and tokens of the remote API, for its users.

They are changed in the files of this node, as by ``gnt-rapi``, and a job sends these to the other
master candidates.  A token changes nothing but goes: who finds one has it until it ends and no
longer.  Nobody changes rights and roles of oneself, nor what such a role lets its users do: an
administrator is left, and who may change some roles gets no other rights by them.
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
from ganeti.protocol.rapi.jobs import Inputs
from ganeti.protocol.rapi.routes import (
    AccessChange,
    NewToken,
    RoleRemoval,
    RoleSetting,
    TokenRemoval,
    UserRemoval,
    UserSetting,
)
from ganeti.protocol.rapi.values import HttpProblem
from ganeti.rapid.access import Access
from ganeti.store.rapi_access import RapiAccess
from ganeti.system import clock

logger = logging.getLogger(__name__)

_DAY_S: Final = 86400
_OP_ID: Final = "OP_CLUSTER_REDIST_CONF"

Ask = Callable[[str, list[object]], Awaitable[Raw]]


class AccessChanges:
    """Changes the files, one after another.

    Args:
        ask: calls LuxiD.
    """

    def __init__(self, access: Access, ask: Ask) -> None:
        self._files = RapiAccess(access.paths)
        self._access = access
        self._ask = ask
        self._turn = asyncio.Lock()
        self._job_id = 0

    async def carry_out(
        self, action: AccessChange, inputs: Inputs, user: str, authorization: str
    ) -> bytes:
        """Change something for a user; answer the job, with a new token and its end if it is one.

        Args:
            authorization: how the user came.

        Raises:
            HttpProblem: 403: the user came with a token, or wants to change rights of oneself; 404:
                there is no such token.
            OpPrereqError: there is no such thing, or it cannot be so, or there are too many.
            OpExecError: a file cannot be written.
        """
        if authorization.strip().lower().startswith("bearer") and action != TokenRemoval():
            what = "makes no tokens" if action == NewToken() else "changes no users and roles"
            raise HttpProblem(403, f"A token {what}: this needs the password")
        async with self._turn:
            made = await self._change(action, inputs, user)
            self._access.reload()
            job_id = await self._distribute(user)
        return dumps(job_id if made is None else {**made, "job": job_id})

    async def _change(
        self, action: AccessChange, inputs: Inputs, user: str
    ) -> dict[str, object] | None:
        """Change the files; returns what there is to tell."""
        files, path = self._files, inputs.path
        match action:
            case NewToken():
                return await self._add_token(user, inputs.body.days)
            case TokenRemoval():
                owner, token_id = path.get("user", user), path["token"]
                if token_id not in [each["id"] for each in self._access.tokens_of(owner)]:
                    raise no_such("token", token_id)
                await asyncio.to_thread(files.remove_token, token_id)
            case UserSetting():
                body, name = inputs.body, path["user"]
                if name == user and (body.rights, body.roles) != (None, None):
                    raise HttpProblem(403, f"User '{user}' cannot change what '{user}' may do")
                await asyncio.to_thread(
                    files.set_user, name, body.password, body.rights, body.roles
                )
            case UserRemoval():
                if path["user"] == user:
                    raise HttpProblem(403, f"User '{user}' cannot remove '{user}'")
                await asyncio.to_thread(files.remove_user, path["user"])
            case RoleSetting():
                if path["role"] in self._access.roles_of(user):
                    text = f"User '{user}' has the role '{path['role']}', and cannot change it"
                    raise HttpProblem(403, text)
                await asyncio.to_thread(files.set_role, path["role"], inputs.body.grants)
            case RoleRemoval():
                await asyncio.to_thread(files.remove_role, path["role"])
        return None

    async def _add_token(self, user: str, days: int) -> dict[str, object]:
        expires = int(clock.now()) + days * _DAY_S
        token = await asyncio.to_thread(self._files.add_token, user, expires)
        return {"token": token, "expires": expires}

    async def _distribute(self, user: str) -> int | None:
        """Have the files sent to the candidates; return the job, None if there cannot be one.

        One that has not begun yet sends them too: nobody fills the queue with them.
        """
        reason = ["gnt:library:rlib2:access", f"user {user}", clock.now_ns()]
        try:
            if not await self._is_queued():
                job_id = await self._ask("SubmitJob", [[{"OP_ID": _OP_ID, "reason": [reason]}]])
                self._job_id = int(bytes(job_id))
        except GenericError as err:
            logger.warning("The users were changed, and no other node is told: %s", err.message)
            return None
        return self._job_id

    async def _is_queued(self) -> bool:
        if not self._job_id:
            return False
        rows = await self._ask("QueryJobs", [[self._job_id], ["status"]])
        return bool(loads_as(list[Any], bytes(rows)) == [["queued"]])
