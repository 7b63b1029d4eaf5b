"""The users of the remote API and their passwords, as files: read, changed, written durably.

Source: rapi.json, "auth".
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import OpExecError
from ganeti.base.paths import Paths
from ganeti.protocol.rapi import users as rapi_users
from ganeti.protocol.rapi.users import Grant, Roles, Token, User
from ganeti.system import files
from ganeti.system.filelock import DirectoryLock

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

    def set_user(self, name: str, password: str | None, options: list[str]) -> None:
        """Add a user, or change one; without a password that stays, or there is none.

        Raises:
            OpPrereqError: a name or an option is not possible.
            OpExecError: the file cannot be written.
        """
        if password is not None:
            word = rapi_users.hash_password(password, secrets.token_bytes(_SALT_BYTES))
        else:
            known = self.users().get(name)
            word = "{NONE}" if known is None else f"{{{known.scheme.upper()}}}{known.secret}"
        line = rapi_users.user_line(name, word, options)
        self._put_line(self._paths.rapi_users, name, line)

    def remove_user(self, name: str) -> None:
        """Remove a user with all tokens; OpExecError as of `set_user`."""
        for token in [each for each in self.tokens().values() if each.user == name]:
            self.remove_token(token.id)
        self._put_line(self._paths.rapi_users, name, None)

    def write_roles(self, roles: Roles) -> None:
        """Replace all roles; OpExecError as of `set_user`."""
        self._write(self._paths.rapi_roles, rapi_users.format_roles(roles))

    def add_token(self, user: str, expires: int) -> str:
        """Make a token for a user and return it: it is not kept anywhere.

        Raises:
            OpExecError: the file cannot be written.
        """
        token_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        token = Token(token_id, user, rapi_users.token_digest(secret), expires)
        line = rapi_users.token_line(token)
        self._put_line(self._paths.rapi_tokens, token_id, line)
        return f"{token_id}.{secret}"

    def remove_token(self, token_id: str) -> None:
        """Remove a token; OpExecError as of `set_user`."""
        self._put_line(self._paths.rapi_tokens, token_id, None)

    def _text(self, path: str) -> str:
        return (files.read_bytes_or_none(path) or b"").decode("utf-8", "surrogateescape")

    def _put_line(self, path: str, name: str, line: str | None) -> None:
        """Replace the line of a user or token, add it, or remove it with None."""
        files.ensure_directory(os.path.dirname(path), _DIRECTORY_MODE)
        lock = DirectoryLock(os.path.dirname(path))  # commands and the daemon change them
        lock.acquire(timeout_s=_OTHERS_S)
        with lock:
            text = rapi_users.with_line(self._text(path), name, line)
            self._write(path, text.encode("utf-8", "surrogateescape"))

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
