"""Finds the user of a request, and the rights of that user.

A password is checked by a slow hash once, then remembered as a digest with a key that lives as long
as the file of users stays the same.  A client with a wrong one waits until a set time after the
request came, for any kind of error.  Slow checks take turns by the places that they are asked from:
a client that sends thousands of wrong passwords waits for itself, others for one check of its.  A
check ends before the next one begins, also where its client has gone away.

Source: rapi.json, "auth"; RFC 7617, RFC 6750.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.protocol.rapi import users as rapi_users
from ganeti.protocol.rapi.routes import Route
from ganeti.protocol.rapi.users import RIGHTS, Grant, Roles, Scheme, Token, User
from ganeti.protocol.rapi.values import READ, REALM, WRITE, HttpProblem
from ganeti.rapid.turns import Turns
from ganeti.system import clock, files
from ganeti.transport.accepting import origin_of

logger = logging.getLogger(__name__)

_CHECKS_WAITING_MAX: Final = 100  # of one origin: ten seconds of them
WRONG_PASSWORD_S: Final = 1.0  # from the request to the answer; ten times the time of the check
_FILE_BYTES_MAX: Final = 16 << 20
_REMEMBERED_MAX: Final = 10_000
_CHALLENGE: Final = {"WWW-Authenticate": f'Basic realm="{REALM}"'}


@dataclass(frozen=True, slots=True)
class Permission:
    """A user's right to call a route; ``grants`` limit it to some instances, none to nothing."""

    grants: Sequence[Grant] = ()


class Access:
    """Users, roles and tokens as the files have them."""

    def __init__(self, paths: Paths, *, always: bool) -> None:
        self.paths = paths
        self._always = always
        self._users: dict[str, User] = {}
        self._roles: Roles = {}
        self._tokens: dict[str, Token] = {}
        self._key = b""
        self._remembered: dict[str, bytes] = {}
        # One slow hash at a time: each takes 16 MiB.
        self._turns = Turns("their passwords to be checked", _CHECKS_WAITING_MAX)

    def reload(self) -> None:
        """Read the files again; an unreadable file is logged, and nobody gets in by it."""
        paths = self.paths
        self._users, wrong = rapi_users.parse_users(_read(paths.rapi_users))
        _warn(paths.rapi_users, wrong)
        self._tokens, wrong = rapi_users.parse_tokens(_read(paths.rapi_tokens))
        _warn(paths.rapi_tokens, wrong)
        try:
            self._roles = rapi_users.parse_roles(_read(paths.rapi_roles).encode())
        except GenericError as err:
            self._roles = {}
            _warn(paths.rapi_roles, [err.message])
        self._key = os.urandom(32)
        self._remembered.clear()
        logger.info("%d users, %d tokens", len(self._users), len(self._tokens))

    def check_named(self, authorization: str | None, route: Route) -> None:
        """Refuse a request without a user, where one is required.

        Raises:
            HttpProblem: 401.
        """
        if authorization is None and (route.access or (self._always and not route.is_public)):
            raise HttpProblem(401, "", _CHALLENGE)

    async def user_of(
        self, authorization: str | None, route: Route, address: str = ""
    ) -> User | None:
        """Return the user of a request from an address; None if no user is required.

        Raises:
            HttpProblem: 401: it names no user, or has a wrong password or token; 503: too many
                passwords from its origin are to be checked.
        """
        self.check_named(authorization, route)
        if authorization is None:
            return None
        began = clock.monotonic()
        kind, _, word = authorization.strip().partition(" ")
        user = None
        if kind.lower() == "bearer":
            name = rapi_users.token_user(self._tokens, word.strip(), clock.now())
            user = self._users.get(name or "")
        elif kind.lower() == "basic":
            user = await self._user_with_password(word.strip(), origin_of(address))
        if user is None:
            await asyncio.sleep(max(0.0, began + WRONG_PASSWORD_S - clock.monotonic()))
            raise HttpProblem(401, "", _CHALLENGE)
        return user

    async def _user_with_password(self, word: str, origin: str) -> User | None:
        name, colon, password = _decode_basic(word).partition(":")
        if not colon:
            return None
        digest = self._digest(name, password)
        if hmac.compare_digest(self._remembered.get(name, b""), digest):
            return self._users.get(name)
        async with self._turns.turn(origin):
            if hmac.compare_digest(self._remembered.get(name, b""), digest):
                return self._users.get(name)  # another request of his came first
            key = b""
            while key != self._key:  # again, if the file changed meanwhile
                key, user = self._key, self._users.get(name)
                is_right = await _check(user, name, password)
        if not is_right:
            return None
        digest = self._digest(name, password)
        if len(self._remembered) < _REMEMBERED_MAX:
            self._remembered[name] = digest
        return user

    def _digest(self, name: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{name}\0{password}".encode(), hashlib.sha256)

    def goes_by_roles(self, user: User | None, route: Route) -> bool:
        """Tell whether it depends on roles, and so on the path, if a user may call a route."""
        return user is not None and bool(user.roles) and not _has_right(user, route)

    def permission(self, user: User | None, route: Route, path: str) -> Permission:
        """Return the right of a user to call a route.

        Args:
            path: with the full name of the object that it is about, if roles decide.

        Raises:
            HttpProblem: 403: nothing.
        """
        if user is None or _has_right(user, route) or not (route.access or user.roles):
            return Permission()
        wanted = route.access or (READ,)
        grants = [
            grant
            for role in user.roles
            for grant in self._roles.get(role, ())
            if grant.fits(path, wanted)
        ]
        if not grants:
            needed = " or ".join(f"'{right}'" for right in wanted)
            text = f"User '{user.name}' may not do this: the right {needed} is needed"
            raise HttpProblem(403, text)
        return Permission(grants if all(grant.is_limited for grant in grants) else ())

    def identity(self, name: str) -> dict[str, Any]:
        """Return the facts about a user, and his rights on anything at all; "" is nobody."""
        user = self._users.get(name) or User("", Scheme.NONE, "")
        grants = [grant for role in user.roles for grant in self._roles.get(role, ())]
        rights = user.rights.union(*(grant.rights for grant in grants))
        return {
            "name": user.name or None,
            "rights": [right for right in RIGHTS if right in rights],
            "roles": list(user.roles),
            "tokens": self.tokens_of(user.name),
        }

    def may_change(self, name: str) -> bool:
        """Tell whether a user may submit jobs of any kind."""
        user = self._users.get(name)
        return user is not None and WRITE in user.rights

    def roles_of(self, name: str) -> Sequence[str]:
        """Return the names of a user's roles."""
        user = self._users.get(name)
        return () if user is None else user.roles

    def tokens_of(self, name: str) -> list[dict[str, Any]]:
        """Return ids and ends of a user's tokens."""
        found = [each for each in self._tokens.values() if each.user == name]
        return [{"id": each.id, "expires": each.expires} for each in found]

    def everybody(self) -> dict[str, Any]:
        """Return all users and roles, without anything that is secret."""
        users = [
            {
                "name": user.name,
                "password": user.scheme,
                "rights": sorted(user.rights),
                "roles": user.roles,
                "tokens": self.tokens_of(user.name),
            }
            for user in self._users.values()
        ]
        roles = [{"name": name, "grants": grants} for name, grants in self._roles.items()]
        return {"users": users, "roles": roles}


def _has_right(user: User, route: Route) -> bool:
    """Tell whether a user may call a route whatever the roles are.

    Reading that asks for no right is for those who have any on everything, as for anybody else.
    """
    return route.is_public or not user.rights.isdisjoint(route.access or RIGHTS)


async def _check(user: User | None, name: str, password: str) -> bool:
    """Check a password by the slow hash, to the end: a thread cannot be broken off."""
    check = asyncio.ensure_future(
        asyncio.to_thread(rapi_users.is_password_of, user, name, password)
    )
    try:
        return await asyncio.shield(check)
    except asyncio.CancelledError:
        await asyncio.wait([check])
        raise


def _decode_basic(word: str) -> str:
    try:
        return rapi_users.text_of(base64.b64decode(word, validate=True))
    except (binascii.Error, ValueError):
        return ""


def _read(path: str) -> str:
    try:
        data = files.read_bytes_or_none(path, _FILE_BYTES_MAX) or b""
    except (OSError, GenericError) as err:
        logger.error("Cannot read %s: %s; going on without", path, err)  # noqa: TRY400 - says all
        return ""
    return data.decode("utf-8", "replace")


def _warn(path: str, wrong: Sequence[str]) -> None:
    for each in wrong:
        logger.warning("%s: %s; ignoring", path, each)
