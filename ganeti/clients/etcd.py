"""Talks to etcd by its JSON gateway: keys, leases, transactions, members.

Each question goes to the member that answered last, and to the next one if that is silent; all of
it within one deadline.  Keys and values are bytes in base64 on the wire, numbers are text.

Source: etcd 3.4, "gRPC gateway", `/v3/kv`, `/v3/lease`, `/v3/cluster`, `/v3/maintenance`.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import msgspec

from ganeti.base.errors import ProtocolError, TransportError
from ganeti.base.json import dumps
from ganeti.objects.record import Record
from ganeti.store.availability import Settings
from ganeti.system import clock
from ganeti.transport.async_curl_pool import AsyncCurlPool
from ganeti.transport.curl_pool import CurlRequest, CurlResponse, TlsIdentity

logger = logging.getLogger(__name__)

RecordT = TypeVar("RecordT", bound=Record)
_OK: Final = 200
_NOT_FOUND: Final = 5  # the code of gRPC: a lease that has ended
_UNAVAILABLE: Final = 14  # no leader, or it does not answer


@dataclass(frozen=True, slots=True)
class Entry:
    """A value, the revision that wrote it last, and the lease that it is bound to; 0 for none."""

    value: bytes
    revision: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All entries below a prefix, by what follows it, as of one revision."""

    entries: Mapping[str, Entry]
    revision: int

    def one(self, key: str, kind: type[RecordT]) -> RecordT | None:
        """Return a record; None where there is none, or none that can be read."""
        entry = self.entries.get(key)
        if entry is None:
            return None
        try:
            return msgspec.json.decode(entry.value, type=kind)
        except msgspec.MsgspecError:
            logger.warning("What etcd has for %s cannot be read", key)
            return None

    def below(self, prefix: str, kind: type[RecordT]) -> dict[str, RecordT]:
        """Return the records whose keys begin so, by what follows."""
        found = {}
        for key in self.entries:
            if key.startswith(prefix) and (record := self.one(key, kind)) is not None:
                found[key.removeprefix(prefix)] = record
        return found

    def revision_of(self, key: str) -> int:
        """Return the revision that wrote a key; 0 where there is none."""
        entry = self.entries.get(key)
        return 0 if entry is None else entry.revision


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A condition: the key was last written by that revision; 0 means that there is no such key."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class Put:
    """A key that is written; it ends with the lease, if one is given."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """A key that is taken away."""

    key: str


@dataclass(frozen=True, slots=True)
class MemberHealth:
    """What a member says of itself.

    Attributes:
        leader: the id of the leader that it follows; 0 for none.
        trouble: why it did not answer; "" if it did.
    """

    leader: int = 0
    size_bytes: int = 0
    latency_s: float = 0.0
    trouble: str = ""


class EtcdMember(msgspec.Struct, frozen=True):
    """A member, as the members know each other.

    Attributes:
        name: what it calls itself; "" until it has been started.
        is_learner: it gets all data, and does not count for a majority yet.
    """

    ID: int
    name: str = ""
    peer_urls: tuple[str, ...] = msgspec.field(default=(), name="peerURLs")
    client_urls: tuple[str, ...] = msgspec.field(default=(), name="clientURLs")
    is_learner: bool = msgspec.field(default=False, name="isLearner")


class _Members(msgspec.Struct, frozen=True):
    members: list[EtcdMember] = []


class _KeyValue(msgspec.Struct, frozen=True):
    key: str
    mod_revision: str
    value: str = ""
    lease: str = "0"


class _Header(msgspec.Struct, frozen=True):
    revision: str = "0"


class _Range(msgspec.Struct, frozen=True):
    header: _Header
    kvs: list[_KeyValue] = []


class _Granted(msgspec.Struct, frozen=True):
    ID: str


class _Kept(msgspec.Struct, frozen=True):
    TTL: str = "0"


class _KeptAlive(msgspec.Struct, frozen=True):
    result: _Kept


class _Transaction(msgspec.Struct, frozen=True):
    succeeded: bool = False


class _Status(msgspec.Struct, frozen=True):
    leader: str = "0"
    dbSize: str = "0"  # noqa: N815 - as on the wire


class _Refusal(msgspec.Struct, frozen=True):
    error: Any = ""
    message: str = ""
    code: int = 0


class EtcdClient:
    """Asks the members of one etcd for what stands below a prefix.

    Args:
        endpoints: URLs, such as ``https://192.0.2.1:2379``.
        prefix: of all keys; not part of the keys that methods take and return.
        timeout_s: for one question, whatever number of members it takes.
    """

    def __init__(
        self, endpoints: Sequence[str], identity: TlsIdentity | None, prefix: str, timeout_s: float
    ) -> None:
        self.endpoints = list(endpoints)
        self._prefix = prefix
        self._timeout_s = timeout_s
        self._pool = AsyncCurlPool(identity)

    @classmethod
    def of(cls, settings: Settings, timeout_s: float) -> Self:
        """Return the client of the etcd that high availability uses."""
        identity = None
        if settings.certificate:
            identity = TlsIdentity(settings.certificate, settings.authority)
        return cls(settings.endpoints, identity, settings.prefix, timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; questions that wait fail."""
        self._pool.close()

    async def read(self) -> Snapshot:
        """Return everything below the prefix, as most members have agreed on it.

        Raises:
            TransportError: no member answers, or none has a leader.
            ProtocolError: it is not etcd that answers.
        """
        found = await self._ask("kv/range", self._all(), _Range)
        return Snapshot(
            {
                b64decode(each.key).decode().removeprefix(self._prefix): Entry(
                    b64decode(each.value), int(each.mod_revision), int(each.lease)
                )
                for each in found.kvs
            },
            int(found.header.revision),
        )

    async def grant(self, ttl_s: int) -> int:
        """Return a new lease, which ends so many seconds after it was renewed last.

        Raises:
            TransportError, ProtocolError: as `read`.
        """
        return int((await self._ask("lease/grant", {"TTL": str(ttl_s)}, _Granted)).ID)

    async def keep_alive(self, lease: int) -> int:
        """Renew a lease; returns for how many seconds, 0 if it does not exist any more.

        Etcd may give longer than it was asked for: one and a half of its election timeout at least.

        Raises:
            TransportError, ProtocolError: as `read`.
        """
        found = await self._ask("lease/keepalive", {"ID": str(lease)}, _KeptAlive)
        return int(found.result.TTL)

    async def revoke(self, lease: int) -> None:
        """End a lease with all keys that are bound to it.

        Raises:
            TransportError, ProtocolError: as `read`; not for a lease that has ended already.
        """
        await self._ask("lease/revoke", {"ID": str(lease)}, _Header, missing=_Header())

    async def change(self, conditions: Sequence[Unchanged], *changes: Put | Delete) -> bool:
        """Make all changes if all conditions hold, else none; returns which.

        Raises:
            TransportError: nobody knows whether it was done.
            ProtocolError: as `read`.
        """
        question = {
            "compare": [
                {
                    "target": "MOD",
                    "result": "EQUAL",
                    "key": self._key(each.key),
                    "mod_revision": str(each.revision),
                }
                for each in conditions
            ],
            "success": [self._request(change) for change in changes],
        }
        found: _Transaction = await self._ask("kv/txn", question, _Transaction)
        return found.succeeded

    async def erase(self) -> None:
        """Take away everything below the prefix, however many keys that are.

        Raises:
            TransportError, ProtocolError: as `read`.
        """
        await self._ask("kv/deleterange", self._all(), _Header)

    async def health(self) -> dict[str, MemberHealth]:
        """Ask every member for itself; {endpoint: its answer}."""
        started_s = clock.monotonic()

        async def ask(endpoint: str) -> MemberHealth:
            [response] = await self._pool.perform(
                [_request(endpoint, "maintenance/status", {}, self._timeout_s)]
            )
            try:
                status = _understand(response, _Status)
            except (TransportError, ProtocolError) as err:
                return MemberHealth(trouble=err.message)
            latency_s = clock.monotonic() - started_s
            return MemberHealth(int(status.leader), int(status.dbSize), latency_s)

        found = await asyncio.gather(*map(ask, self.endpoints))
        return dict(zip(self.endpoints, found, strict=True))

    async def members(self) -> list[EtcdMember]:
        """Return the members as one of them knows them; it need not have a leader.

        Raises:
            TransportError, ProtocolError: as `read`.
        """
        found: _Members = await self._ask("cluster/member/list", {}, _Members)
        return found.members

    async def add_member(self, peer_url: str, *, as_learner: bool = False) -> int:
        """Let there be one more member, which is then to be started; returns its id.

        One that counts does so at once: the majority may depend on it before it runs.  A learner
        counts from `promote_member` on, and is refused that until it has all data.  A member with
        that URL that is there already is returned.

        Raises:
            TransportError: as `read`; or members do not reach each other for some seconds yet.
            ProtocolError: as `read`; or too few members run.
        """
        for member in await self.members():
            if peer_url in member.peer_urls:
                return member.ID
        question = {"peerURLs": [peer_url], "isLearner": as_learner}
        found: _Members = await self._ask("cluster/member/add", question, _Members)
        return next(member.ID for member in found.members if peer_url in member.peer_urls)

    async def promote_member(self, member_id: int) -> None:
        """Let a learner count.

        Raises:
            TransportError: as `read`.
            ProtocolError: as `read`; it is none, or does not have all data yet.
        """
        await self._ask("cluster/member/promote", {"ID": str(member_id)}, _Members)

    async def remove_member(self, member_id: int) -> None:
        """Let a member be none any more, if it is one; its process ends by itself.

        Raises:
            TransportError, ProtocolError: as `add_member`.
        """
        question = {"ID": str(member_id)}
        await self._ask("cluster/member/remove", question, _Members, missing=_Members())

    def _all(self) -> dict[str, str]:
        """Return what says to etcd that all keys below the prefix are meant."""
        first = self._prefix.encode()
        end = first[:-1] + bytes([first[-1] + 1])
        return {"key": _base64(first), "range_end": _base64(end)}

    def _key(self, name: str) -> str:
        return _base64((self._prefix + name).encode())

    def _request(self, change: Put | Delete) -> dict[str, object]:
        if isinstance(change, Delete):
            return {"request_delete_range": {"key": self._key(change.key)}}
        put = {"key": self._key(change.key), "value": _base64(change.value)}
        return {"request_put": {**put, "lease": str(change.lease)}}

    async def _ask(
        self, path: str, question: object, kind: type[Any], *, missing: object = None
    ) -> Any:
        """Return the first answer of a member that has a leader."""
        deadline_s = clock.monotonic() + self._timeout_s
        troubles = []
        for turn, endpoint in enumerate(list(self.endpoints)):
            left_s = deadline_s - clock.monotonic()
            if left_s <= 0:
                break
            members_left = len(self.endpoints) - turn
            request = _request(endpoint, path, question, left_s / min(members_left, 2))
            [response] = await self._pool.perform([request])
            try:
                found = _understand(response, kind, missing=missing)
            except TransportError as err:
                troubles.append(f"{endpoint}: {err.message}")
                continue
            self.endpoints.sort(key=endpoint.__ne__)
            return found
        raise TransportError("etcd does not answer: " + ("; ".join(troubles) or "no member"))


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _request(endpoint: str, path: str, question: object, timeout_s: float) -> CurlRequest:
    # Whatever may have been done already is repeated by those who asked, if they want to.
    body = dumps(question)
    return CurlRequest(f"{endpoint}/v3/{path}", body, timeout_s, repeatable=False)


def _understand(response: CurlResponse, kind: type[Any], *, missing: object = None) -> Any:
    """Return what a member answered.

    Raises:
        TransportError: it does not answer, or has no leader.
        ProtocolError: it refuses, or is no etcd.
    """
    if response.error is not None:
        raise TransportError(response.error)
    try:
        if response.status == _OK:
            return msgspec.json.decode(response.body, type=kind, strict=False)
        refusal = msgspec.json.decode(response.body, type=_Refusal)
    except (msgspec.MsgspecError, UnicodeDecodeError) as err:
        raise ProtocolError(f"this is not the answer of an etcd: {err}") from err
    if refusal.code == _NOT_FOUND and missing is not None:
        return missing
    text = refusal.message or str(refusal.error)
    if refusal.code == _UNAVAILABLE or "no leader" in text:
        raise TransportError(text)
    raise ProtocolError(f"etcd refuses: {text}")
