"""The users of the remote API, their rights, roles and tokens, as lines of text files.

The file of users is that of 3.0, ``<user> <password> [options]``; options are rights with commas
between, and beside them ``role:<name>``, which 3.0 takes for a right that nothing asks for.  Roles
and tokens have files of their own.

Source: rapi.json, "auth"; RFC 7914 (scrypt).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from ganeti.base.errors import OpPrereqError
from ganeti.base.json import dumps, loads_as
from ganeti.protocol.rapi.values import READ, REALM, WRITE

RIGHTS: Final = (READ, WRITE)
ROLE_PREFIX: Final = "role:"
NAME: Final = re.compile(r"[\w.@+-]{1,64}", re.ASCII)
_SCHEME: Final = re.compile(r"\{(\w+)\}(.*)", re.DOTALL)

# One hash costs 16 MiB and some 50 ms of CPU: dear for a thief, cheap once in the life of a file.
_COST: Final = (1 << 14, 8, 1)  # N, r and p of scrypt
_KEY_BYTES: Final = 32
_KEY_BYTES_MIN: Final = 16  # of the hashes of other programs
_KEY_BYTES_MAX: Final = 64
_SCRYPT_MEMORY_MAX: Final = 64 << 20
_SCRYPT: Final = re.compile(r"(\d{1,8})\$(\d{1,3})\$(\d{1,3})\$([\w+/=]+)\$([\w+/=]+)")


class Scheme(StrEnum):
    """How a password is written."""

    CLEARTEXT = "cleartext"
    HA1 = "ha1"
    SCRYPT = "scrypt"
    NONE = "none"  # no password: the user has tokens only


class User(msgspec.Struct, frozen=True):
    """One user; ``secret`` is the text that the scheme compares with."""

    name: str
    scheme: Scheme
    secret: str
    rights: frozenset[str] = frozenset()
    roles: tuple[str, ...] = ()


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rights on resources; with names or tags, only for instances that have one of them.

    Names and resources are shell patterns; ``*`` stands for slashes too.
    """

    rights: tuple[str, ...] = (READ,)
    resources: tuple[str, ...] = ("/2/*",)
    names: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    @property
    def is_limited(self) -> bool:
        """Whether it is about some instances only."""
        return bool(self.names or self.tags)

    def fits(self, path: str, wanted: Iterable[str]) -> bool:
        """Tell whether it gives one of these rights on a resource; reading is a right here."""
        return any(fnmatchcase(path, each) for each in self.resources) and any(
            right in self.rights for right in wanted
        )

    def covers(self, name: str, tags: Iterable[str]) -> bool:
        """Tell whether the right extends to an instance."""
        return (
            not self.is_limited
            or any(fnmatchcase(name, each) for each in self.names)
            or not set(self.tags).isdisjoint(tags)
        )


class Token(msgspec.Struct, frozen=True):
    """A secret that stands for a user until it expires (seconds since the epoch, 0: never)."""

    id: str
    user: str
    digest: str
    expires: int = 0


Roles = Mapping[str, list[Grant]]


def text_of(data: bytes) -> str:
    """Return the text of a password: bytes that are no UTF-8 are Latin-1."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


# The file of users.


def parse_users(text: str) -> tuple[dict[str, User], list[str]]:
    """Return the users by name, and the problems of lines that were left out."""
    users: dict[str, User] = {}
    wrong: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            user = _parse_user(line)
        except ValueError as err:
            wrong.append(f"line {number}: {err}")
            continue
        users[user.name] = user
    return users, wrong


def _parse_user(line: str) -> User:
    name, *rest = line.split(None, 2)
    if not rest:
        raise ValueError("a password is missing")
    words = rest[1].split(",") if len(rest) == 2 else []
    options = [word.strip() for word in words if word.strip()]
    scheme, secret = parse_password(rest[0])
    roles = tuple(word[len(ROLE_PREFIX) :] for word in options if word.startswith(ROLE_PREFIX))
    rights = frozenset(word for word in options if not word.startswith(ROLE_PREFIX))
    return User(name, scheme, secret, rights, roles)


def parse_password(word: str) -> tuple[Scheme, str]:
    """Return the scheme of a password as written in the file, and its text for comparison.

    Raises:
        ValueError: of a kind that is not known.
    """
    match = _SCHEME.fullmatch(word)
    if match is None:
        return Scheme.CLEARTEXT, word
    try:
        scheme = Scheme(match.group(1).lower())
    except ValueError as err:
        raise ValueError(f"passwords of kind {{{match.group(1)}}} are not known") from err
    secret = match.group(2)
    if scheme is Scheme.SCRYPT:
        _scrypt_parts(secret)
    return scheme, secret


def _scrypt_parts(secret: str) -> tuple[int, int, int, bytes, bytes]:
    match = _SCRYPT.fullmatch(secret)
    if match is None:
        raise ValueError("a scrypt hash has the form {scrypt}N$r$p$salt$hash")
    n, r, p = (int(word) for word in match.groups()[:3])
    if n < 2 or n & (n - 1) or not r or not p or 128 * n * r * p > _SCRYPT_MEMORY_MAX:
        raise ValueError(f"scrypt with N={n}, r={r}, p={p} is not possible here")
    try:
        salt, digest = (base64.b64decode(word, validate=True) for word in match.groups()[3:])
    except binascii.Error as err:
        raise ValueError("salt and hash of scrypt must be base64") from err
    if not _KEY_BYTES_MIN <= len(digest) <= _KEY_BYTES_MAX:
        limits = f"{_KEY_BYTES_MIN} to {_KEY_BYTES_MAX}"
        raise ValueError(f"a hash of scrypt has {limits} bytes, this one {len(digest)}")
    return n, r, p, salt, digest


def _scrypt(
    password: str, n: int, r: int, p: int, salt: bytes, size_bytes: int = _KEY_BYTES
) -> bytes:
    memory = 2 * _SCRYPT_MEMORY_MAX
    return hashlib.scrypt(
        password.encode(), salt=salt, n=n, r=r, p=p, maxmem=memory, dklen=size_bytes
    )


def hash_password(password: str, salt: bytes) -> str:
    """Return the scrypt form of a password, for the file of users."""
    digest = _scrypt(password, *_COST, salt)
    words = [base64.b64encode(part).decode() for part in (salt, digest)]
    return "{scrypt}" + "$".join([*map(str, _COST), *words])


def is_password_of(user: User | None, name: str, password: str) -> bool:
    """Check a password.  Slow by intent, and as slow for an unknown user, in every scheme.

    Args:
        user: the user of that name, if there is one.
    """
    if user is not None and user.scheme is Scheme.SCRYPT:
        n, r, p, salt, digest = _scrypt_parts(user.secret)
        return hmac.compare_digest(_scrypt(password, n, r, p, salt, len(digest)), digest)
    _scrypt(password, *_COST, b"as slow as any other")
    if user is None or user.scheme is Scheme.NONE:
        return False
    if user.scheme is Scheme.CLEARTEXT:
        return hmac.compare_digest(password.encode(), user.secret.encode())
    text = f"{name}:{REALM}:{password}".encode()
    found = hashlib.md5(text, usedforsecurity=False).hexdigest()  # the form of 3.0's files
    return hmac.compare_digest(found.encode(), user.secret.lower().encode())


def user_line(name: str, password: str, options: Iterable[str], known: Collection[str] = ()) -> str:
    """Return the line of a user, with a password as it is written in the file.

    Args:
        known: options that the line has already; 3.0 leaves it to the file what they are.

    Raises:
        OpPrereqError: a name or option would not be read back as it is.
    """
    check_name(name, "user")
    words = list(options)
    for word in words:
        is_role = word.startswith(ROLE_PREFIX) and NAME.fullmatch(word[len(ROLE_PREFIX) :])
        if word not in RIGHTS and word not in known and not is_role:
            raise OpPrereqError(f"{word!r} is neither a right ({', '.join(RIGHTS)}) nor a role")
    return f"{name} {password} {','.join(words)}".rstrip()


def check_name(name: str, what: str) -> None:
    """Refuse a name that a file cannot hold.

    Raises:
        OpPrereqError: letters, digits and ``.@+-_`` only.
    """
    if not NAME.fullmatch(name):
        raise OpPrereqError(f"{name!r} is no name for a {what}: letters, digits and .@+-_ only")


def with_line(text: str, name: str, line: str | None) -> str:
    """Return a file's text with the line of a user or token replaced, added or (None) removed."""
    lines = []
    done = line is None
    for each in text.splitlines():
        if each.split(None, 1)[:1] != [name]:
            lines.append(each)
        elif not done and line is not None:
            lines.append(line)
            done = True
    if not done and line is not None:
        lines.append(line)
    return "".join(f"{each}\n" for each in lines)


# Roles.


def parse_roles(data: bytes) -> dict[str, list[Grant]]:
    """Read the file of roles: a JSON object of lists of grants.

    Raises:
        ProtocolError: it is something else; says where.
    """
    return loads_as(dict[str, list[Grant]], data) if data.strip() else {}


def format_roles(roles: Roles) -> bytes:
    """Return the content of the file of roles."""
    return msgspec.json.format(dumps(roles), indent=2) + b"\n"


# Tokens.


def token_digest(secret: str) -> str:
    """Return the stored form of a token's secret, which is random: a plain hash protects it."""
    return hashlib.sha256(secret.encode()).hexdigest()


def parse_tokens(text: str) -> tuple[dict[str, Token], list[str]]:
    """Return the tokens by id, and the problems of lines that were left out."""
    tokens: dict[str, Token] = {}
    wrong: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) == 4 and words[3].isascii() and words[3].isdigit():
            tokens[words[0]] = Token(words[0], words[1], words[2], int(words[3]))
        else:
            wrong.append(f"line {number}: not of the form <id> <user> <digest> <expiry>")
    return tokens, wrong


def token_line(token: Token) -> str:
    """Return the line of a token."""
    return f"{token.id} {token.user} {token.digest} {token.expires}"


def token_user(tokens: Mapping[str, Token], word: str, now: float) -> str | None:
    """Return the user that a token stands for now, or None."""
    token_id, _, secret = word.partition(".")
    token = tokens.get(token_id)
    expected = token.digest if token is not None else token_digest("")
    if not hmac.compare_digest(token_digest(secret), expected) or token is None:
        return None
    return None if token.expires and now >= token.expires else token.user
