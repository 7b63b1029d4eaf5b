"""The routes of the remote API: methods of resources, declared as data.

Source: rapi.json.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from ganeti.protocol.rapi import users
from ganeti.protocol.rapi.answers import Shape, as_it_is
from ganeti.protocol.rapi.jobs import Inputs, Submission
from ganeti.protocol.rapi.values import QueryArgument

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
PATTERNS: Final[Mapping[str, str]] = {
    "job_id": r"\d{1,18}",
    "disk": r"\d{1,9}",
    "os": r"[\w.+_-]+",
    "group": r"[^/]+",  # any text but what lists cannot hold: with blanks, in other scripts
    "user": users.NAME.pattern,
    "role": users.NAME.pattern,
}
NAME_PATTERN: Final = r"[\w._-]+"


class Question(msgspec.Struct, frozen=True):
    """Asks LuxiD by one call; ``shape`` makes the answer."""

    method: str
    args: Callable[[Inputs], list[object]]
    shape: Shape = as_it_is


class ByJob(msgspec.Struct, frozen=True):
    """Asks by a job of one opcode, waits for it, and answers from its result."""

    opcode: Mapping[str, Any]
    shape: Shape


class Constant(msgspec.Struct, frozen=True):
    """Answers always the same."""

    body: bytes


class Document(msgspec.Struct, frozen=True):
    """Answers a document of the server itself; ``policy`` limits the sources of a page."""

    name: str
    policy: str = "default-src 'none'"


class BookPage(msgspec.Struct, frozen=True):
    """Answers a file of the book, which the package brings."""


class Identity(msgspec.Struct, frozen=True):
    """Answers the user of the request."""


class Counts(msgspec.Struct, frozen=True):
    """Answers how many requests there were, for Prometheus."""


class Room(msgspec.Struct, frozen=True):
    """Answers how many more instances fit, from what LuxiD tells; the server counts them."""


class ConsoleTicket(msgspec.Struct, frozen=True):
    """Answers a ticket for the console of an instance."""


class ConsoleSocket(msgspec.Struct, frozen=True):
    """Carries a console by WebSocket, for who has a ticket."""


class Usage(msgspec.Struct, frozen=True):
    """Answers what a node or an instance used lately; the node's monitoring daemon knows it."""


class BackupSchedule(msgspec.Struct, frozen=True):
    """Answers which instances are backed up by the watcher, and when next."""


class Users(msgspec.Struct, frozen=True):
    """Answers the users with their rights, roles and tokens, and the roles; no secrets."""


class NewToken(msgspec.Struct, frozen=True):
    """Makes a token for the user of the request."""


class TokenRemoval(msgspec.Struct, frozen=True):
    """Removes a token, of the user that the path names or else of the request."""


class UserSetting(msgspec.Struct, frozen=True):
    """Adds or changes a user."""


class UserRemoval(msgspec.Struct, frozen=True):
    """Removes a user and all tokens of the user."""


class RoleSetting(msgspec.Struct, frozen=True):
    """Makes a role, or replaces its grants."""


class RoleRemoval(msgspec.Struct, frozen=True):
    """Removes a role that nobody has."""


TokenChange = NewToken | TokenRemoval
AccessChange = TokenChange | UserSetting | UserRemoval | RoleSetting | RoleRemoval
Ours = Usage | ConsoleTicket | ConsoleSocket | BookPage | BackupSchedule | Users | AccessChange
Action = Submission | Question | ByJob | Constant | Document | Identity | Counts | Room | Ours


_VERSIONED: Final = ("instance", "node", "group", "network")
_OF_CLUSTER: Final = ("/2/info", "/2/modify", "/2/redistribute-config", "/2/tags")


class Route(msgspec.Struct, frozen=True):
    """One method of one resource.

    Attributes:
        access: rights of which the user needs one; with none, no user is required.
        body: type of the body, if it is not made of an opcode's parameters.
        result: JSON schema of the answer.
        is_new: whether 3.0 does not have the resource.
        is_public: whether everybody gets it, even where the server requires a user elsewhere.
    """

    path: str
    method: str
    help: str
    action: Action
    access: tuple[str, ...] = ()
    arguments: tuple[QueryArgument, ...] = ()
    body: type[Any] | None = None
    result: Mapping[str, Any] = {}
    is_new: bool = False
    is_public: bool = False
    content_type: str = "application/json"

    @property
    def name(self) -> str:
        """The resource as the reason trail of a job names it, such as instances_name_startup."""
        words = []
        for part in self.path.removeprefix("/2/").strip("/").split("/"):
            placeholder = _PLACEHOLDER.fullmatch(part)
            if placeholder is None:
                words.append(part.replace("-", "_"))
            elif placeholder.group(1) != "disk":
                words.append({"job_id": "id", "uuid": "uuid"}.get(placeholder.group(1), "name"))
        return "_".join(words) or "root"

    @property
    def placeholders(self) -> list[str]:
        """The names of the variable parts of the path."""
        return _PLACEHOLDER.findall(self.path)

    def path_of(self, values: Mapping[str, str]) -> str:
        """Return the path with values for its variable parts."""
        return _PLACEHOLDER.sub(lambda found: values[found.group(1)], self.path)

    @property
    def about(self) -> str:
        """The kind of object with a version that it is about, or "cluster"; "" if there is none."""
        kinds = [name for name in self.placeholders if name in _VERSIONED]
        return "cluster" if self.path in _OF_CLUSTER else next(iter(kinds), "")

    @property
    def shows_version(self) -> bool:
        """Whether the answer is such an object, with its UUID and serial number."""
        whole = {"/2/info", *(f"/2/{kind}s/{{{kind}}}" for kind in _VERSIONED)}
        return self.method == "GET" and self.path in whole

    @property
    def has_whole_tag(self) -> bool:
        """Whether the tag of the answer is that of all its bytes, so that it need not be resent."""
        is_question = self.method == "GET" and not isinstance(self.action, Submission)
        return is_question and not self.shows_version

    @property
    def takes_body(self) -> bool:
        """Whether a body is looked at."""
        return self.body is not None or (
            isinstance(self.action, Submission) and self.action.has_body
        )


class Resource(msgspec.Struct, frozen=True):
    """A path and its methods; ``pattern`` matches concrete paths."""

    path: str
    pattern: re.Pattern[str]
    routes: Mapping[str, Route]

    @property
    def allowed(self) -> str:
        """The value of the header Allow."""
        return ", ".join(sorted(self.routes))


def resources_of(routes: Iterable[Route]) -> dict[str, Resource]:
    """Group routes by their path.

    Raises:
        AssertionError: two routes are the same.
    """
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        methods = by_path.setdefault(route.path, {})
        assert route.method not in methods, f"{route.method} {route.path} is declared twice"
        methods[route.method] = route
    return {
        path: Resource(path, re.compile(_regex(path), re.ASCII), methods)
        for path, methods in by_path.items()
    }


def _regex(path: str) -> str:
    parts = re.split(r"(\{\w+\})", path)
    return "".join(
        f"(?P<{part[1:-1]}>{PATTERNS.get(part[1:-1], NAME_PATTERN)})"
        if part.startswith("{")
        else re.escape(part)
        for part in parts
    )


class RouteTable:
    """Finds the resource of a path."""

    def __init__(self, resources: Mapping[str, Resource]) -> None:
        self.resources = resources
        self._fixed = {path: found for path, found in resources.items() if "{" not in path}
        self._variable: dict[tuple[int, str], list[Resource]] = {}
        for path, found in resources.items():
            if "{" in path:
                self._variable.setdefault(_class_of(path), []).append(found)

    def find(self, path: str) -> tuple[Resource, dict[str, str]] | None:
        """Return the resource of a decoded path, and the values in it."""
        found = self._fixed.get(path)
        if found is not None:
            return found, {}
        for resource in self._variable.get(_class_of(path), ()):
            match = resource.pattern.fullmatch(path)
            if match is not None:
                return resource, match.groupdict()
        return None


def _class_of(path: str) -> tuple[int, str]:
    """Return how deep a path is, and its first part, after the version if there is one."""
    _, *parts = path.removeprefix("/2").split("/", 3)
    return path.count("/"), parts[0] if parts else ""
