"""The users of the remote API and their passwords, as files: read, changed, written durably.

Source: rapi.json, "auth".
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.protocol.rapi import users as rapi_users
from ganeti.protocol.rapi.users import RIGHTS, ROLE_PREFIX, Grant, Roles, Scheme, Token, User
from ganeti.system import clock, files
from ganeti.system.filelock import DirectoryLock

TOKENS_MAX: Final = 50  # of one user, that have not expired
_DIRECTORY_MODE: Final = 0o750
_FILE_MODE: Final = 0o640
_SALT_BYTES: Final = 16
_SECRET_BYTES: Final = 32
_ID_BYTES: Final = 6
_OTHERS_S: Final = 10.0  # to wait for somebody else who changes a file


class RapiAccess:
    """Users, roles and tokens of a node's files."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def users(self) -> dict[str, User]:
        """Return the users by name."""
        return rapi_users.parse_users(self._text(self._paths.rapi_users))[0]

    def roles(self) -> dict[str, list[Grant]]:
        """Return the roles by name.

        Raises:
            ProtocolError: the file cannot be understood.
        """
        return rapi_users.parse_roles(self._text(self._paths.rapi_roles).encode())

    def tokens(self) -> dict[str, Token]:
        """Return the tokens by id."""
        return rapi_users.parse_tokens(self._text(self._paths.rapi_tokens))[0]

    def set_user(
        self,
        name: str,
        password: str | None = None,
        rights: Collection[str] | None = None,
        roles: Collection[str] | None = None,
    ) -> None:
        """Add a user, or change one.  What is None stays as it is; a new user has nothing of it.

        Raises:
            OpPrereqError: a name, a right or a role is not possible.
            OpExecError: the file cannot be written.
        """
        word = ""
        if password is not None:
            word = rapi_users.hash_password(password, secrets.token_bytes(_SALT_BYTES))
        with self._locked():  # what stays is as the last change left it
            self.check_user(name, roles)
            known = self.users().get(name) or User(name, Scheme.NONE, "")
            roles = known.roles if roles is None else roles
            rights = known.rights if rights is None else rights
            word = word or f"{{{known.scheme.upper()}}}{known.secret}"
            options = [f"{ROLE_PREFIX}{role}" for role in dict.fromkeys(roles)]
            kept = {*known.rights, *(f"{ROLE_PREFIX}{role}" for role in known.roles)}
            line = rapi_users.user_line(name, word, [*sorted({*rights}), *options], kept)
            self._replace_line(self._paths.rapi_users, name, line)

    def check_user(self, name: str, roles: Collection[str] | None) -> None:
        """Refuse a name that a user cannot have, and roles that there are not.

        Raises:
            OpPrereqError: says which.
        """
        rapi_users.check_name(name, "user")
        if missing := sorted({*(roles or ())} - self.roles().keys()):
            raise OpPrereqError(f"there is no role {missing[0]!r}: make it first", ErrorCode.NOENT)

    def remove_user(self, name: str) -> None:
        """Remove a user with all tokens.

        Raises:
            OpPrereqError: there is none.
            OpExecError: a file cannot be written.
        """
        with self._locked():  # nobody makes a token meanwhile, for a later user of the name
            self._check_is_user(name)
            for token in [each for each in self.tokens().values() if each.user == name]:
                self._replace_line(self._paths.rapi_tokens, token.id, None)
            self._replace_line(self._paths.rapi_users, name, None)

    def _check_is_user(self, name: str) -> None:
        if name not in self.users():
            raise OpPrereqError(f"there is no user {name!r}", ErrorCode.NOENT)

    def set_role(self, name: str, grants: Sequence[Grant], *, keeps: bool = False) -> None:
        """Make a role, or replace its grants.

        Args:
            keeps: the role keeps the grants that it has.

        Raises:
            OpPrereqError: a name or a right is not possible.
            OpExecError: the file cannot be written.
        """
        rapi_users.check_name(name, "role")
        if wrong := sorted({right for grant in grants for right in grant.rights} - {*RIGHTS}):
            raise OpPrereqError(f"{wrong[0]!r} is not a right; there are {' and '.join(RIGHTS)}")
        with self._locked():
            roles = self.roles()
            before = roles.get(name, []) if keeps else []
            self._write_roles({**roles, name: [*before, *grants]})

    def remove_role(self, name: str) -> None:
        """Remove a role that nobody has.

        Raises:
            OpPrereqError: there is none, or somebody has it.
            OpExecError: the file cannot be written.
        """
        with self._locked():
            roles = self.roles()
            if name not in roles:
                raise OpPrereqError(f"there is no role {name!r}", ErrorCode.NOENT)
            if users := sorted(user.name for user in self.users().values() if name in user.roles):
                raise OpPrereqError(f"role {name!r} is that of {', '.join(users)}", ErrorCode.STATE)
            self._write_roles({key: value for key, value in roles.items() if key != name})

    def _write_roles(self, roles: Roles) -> None:
        self._write(self._paths.rapi_roles, rapi_users.format_roles(roles))

    def add_token(self, user: str, expires: int) -> str:
        """Make a token for a user and return it: it is not kept anywhere.

        Tokens that have expired, of anybody, are removed on the way.

        Raises:
            OpPrereqError: there is no such user, or one with too many tokens.
            OpExecError: the file cannot be written.
        """
        token_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        token = Token(token_id, user, rapi_users.token_digest(secret), expires)
        with self._locked():
            self._check_is_user(user)
            text = self._text_of_valid_tokens()
            known = rapi_users.parse_tokens(text)[0].values()
            if len([each for each in known if each.user == user]) >= TOKENS_MAX:
                told = f"there are {TOKENS_MAX} tokens of {user!r}: remove some"
                raise OpPrereqError(told, ErrorCode.INVAL)
            text = rapi_users.with_line(text, token_id, rapi_users.token_line(token))
            self._write_text(self._paths.rapi_tokens, text)
        return f"{token_id}.{secret}"

    def _text_of_valid_tokens(self) -> str:
        text, now = self._text(self._paths.rapi_tokens), clock.now()
        for token in rapi_users.parse_tokens(text)[0].values():
            if 0 < token.expires <= now:
                text = rapi_users.with_line(text, token.id, None)
        return text

    def remove_token(self, token_id: str) -> None:
        """Remove a token; OpExecError as of `set_user`."""
        with self._locked():
            self._replace_line(self._paths.rapi_tokens, token_id, None)

    def _text(self, path: str) -> str:
        return (files.read_bytes_or_none(path) or b"").decode("utf-8", "surrogateescape")

    def _replace_line(self, path: str, name: str, line: str | None) -> None:
        """Replace the line of a user or token, add it, or remove it with None."""
        self._write_text(path, rapi_users.with_line(self._text(path), name, line))

    def _write_text(self, path: str, text: str) -> None:
        self._write(path, text.encode("utf-8", "surrogateescape"))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep others from changing the files: commands and the daemon do."""
        files.ensure_directory(self._paths.rapi_dir, _DIRECTORY_MODE)
        lock = DirectoryLock(self._paths.rapi_dir)
        lock.acquire(timeout_s=_OTHERS_S)
        with lock:
            yield

    def _write(self, path: str, data: bytes) -> None:
        directory = os.path.dirname(path)
        try:
            files.ensure_directory(directory, _DIRECTORY_MODE)
            state = os.stat(directory)  # the daemon's user reads it: the one the directory is of
            owner = (state.st_uid, state.st_gid) if os.geteuid() == 0 else None
            files.write_durable(path, data, _FILE_MODE, owner=owner)
        except OSError as err:
            raise OpExecError(f"cannot write {path}: {err.strerror}") from err


def describe_grant(grant: Grant) -> Mapping[str, object]:
    """Return a grant for people to see."""
    found: dict[str, object] = {
        "rights": ",".join(grant.rights),
        "resources": ",".join(grant.resources),
    }
    for name in ("names", "tags"):
        if values := getattr(grant, name):
            found[name] = ",".join(values)
    return found
