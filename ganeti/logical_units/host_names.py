"""Names of instances and nodes as given by the operator: well-formed, and resolved if asked for."""

from __future__ import annotations

import re
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError, ResolverError
from ganeti.base.paths import Paths
from ganeti.system import environment

NAME_LENGTH_MAX: Final = 255
_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")


def normal_name(what: str, name: str) -> str:
    """Return a host name in lower case.

    Args:
        what: the kind of thing that has the name, for errors.

    Raises:
        OpPrereqError: it cannot be a host name.
    """
    normal = name.lower().rstrip(".")
    if len(normal) > NAME_LENGTH_MAX:
        raise OpPrereqError(
            f"the {what} name {normal[:40]!r}... has {len(normal)} characters, at most"
            f" {NAME_LENGTH_MAX} are possible",
            ErrorCode.INVAL,
        )
    if _NAME.fullmatch(normal) is None or normal.startswith("-"):
        raise OpPrereqError(
            f"{name!r} is no valid {what} name; use letters, digits, '-', '_' and '.', at most 63"
            " characters between two dots",
            ErrorCode.INVAL,
        )
    return normal


def resolve(what: str, name: str, paths: Paths, hint: str = "") -> tuple[str, str]:
    """Look a name up; returns the full name in lower case and the address.

    Args:
        hint: what else could be done, to be put behind the error.

    Raises:
        OpPrereqError: it does not resolve (resolver_error).
    """
    normal = normal_name(what, name)
    try:
        full, address = environment.resolve(normal, paths)
    except ResolverError as err:
        raise OpPrereqError(f"{what} {err}{hint}", ErrorCode.RESOLVER) from err
    return full.lower(), address
