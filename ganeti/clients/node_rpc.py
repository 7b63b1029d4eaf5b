"""Calls the daemons of other nodes: one call, many nodes, one deadline.

Every call answers one `RpcResult` per node and never raises because of a node: whoever asked
decides what a node's failure means.  Nodes marked offline are not asked.  What makes the whole call
impossible (no certificate here, wrong arguments) is raised.

Source: node_rpc.json, "transport", "encoders" and "calls".
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, Self, TypeVar

import msgspec

from ganeti.base.errors import OpExecError, ProtocolError, X509CertError
from ganeti.base.paths import Paths
from ganeti.protocol.node_rpc import (
    DEFAULT_PORT,
    JOB_HEADER,
    NODE_RPC,
    Encoder,
    NodeCall,
    Place,
    decode_answer,
    encode_arguments,
)
from ganeti.protocol.node_rpc_values import FileDetails, compress, encode_file_details
from ganeti.transport.curl_pool import (
    CurlPool,
    CurlRequest,
    CurlResponse,
    Pool,
    TlsIdentity,
)
from ganeti.transport.identity import node_client_certificate

PoolT = TypeVar("PoolT", bound=Pool)

OFFLINE_ERROR: Final = "node is marked offline"
_STATUS_OK: Final = 200
_BODY_SHOWN_BYTES: Final = 200


# Structs, not dataclasses: every job process pays for making these classes.


class Target(msgspec.Struct, frozen=True):
    """Where a node's daemon is reached."""

    name: str
    address: str
    port: int = DEFAULT_PORT
    offline: bool = False

    def url(self, call: str) -> str:
        """Return the URL of a call on this node."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"https://{host}:{self.port}/{call}"


class RpcResult(msgspec.Struct, frozen=True):
    """What one node answered; ``error`` is None when it did what was asked.

    ``address`` is set when the node was not reached, or did not answer as a node daemon does.
    """

    node_name: str
    payload: object = None
    error: str | None = None
    offline: bool = False
    address: str = ""

    @property
    def failure_text(self) -> str:
        """The failure with the node's name: ``node 'n3' (127.1.2.3:1811): connection refused``."""
        place = f" ({self.address})" if self.address else ""
        return f"node {self.node_name!r}{place}: {self.error}"

    def check(self, what: str) -> object:
        """Return the payload.

        Args:
            what: what was tried, as it reads before a colon.

        Raises:
            OpExecError: the call failed; names the node and what it said.
        """
        if self.error is not None:
            raise OpExecError(f"{what}: {self.failure_text}")
        return self.payload


class Caller(Generic[PoolT]):
    """What both clients share: the pool of connections, requests and results."""

    def __init__(
        self, paths: Paths, make_pool: Callable[[TlsIdentity], PoolT], job_id: int | None
    ) -> None:
        self._paths = paths
        self._make_pool = make_pool
        self._headers = () if job_id is None else (f"{JOB_HEADER}: {job_id}",)
        self._pool: PoolT | None = None
        self._seen: tuple[object, ...] = ()
        self._last_encoded: tuple[NodeCall, tuple[object, ...], bytes] | None = None

    def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        if self._pool is not None:
            self._pool.retire()
            self._pool = None

    def _current_pool(self) -> PoolT:
        """Return the pool; a new one when the certificates are other ones by now."""
        identity = TlsIdentity(node_client_certificate(self._paths), self._paths.server_pem)
        seen = (identity, *map(_stamp, (identity.certificate_path, identity.authority_path)))
        if self._pool is None or seen != self._seen:
            self.close()
            self._pool = self._make_pool(identity)
            self._seen = seen
        return self._pool

    def _request(self, call: NodeCall, target: Target, args: Sequence[object]) -> CurlRequest:
        # Calls served in the daemon write whole files: doing one twice is doing it once.
        repeatable = not call.changes or call.runs_in is Place.DAEMON
        return CurlRequest(
            target.url(call.name),
            self._body(call, args),
            call.deadline_s(args),
            self._headers,
            repeatable,
        )

    def _body(self, call: NodeCall, args: Sequence[object]) -> bytes:
        """Encode the arguments; the same ones for many nodes only once."""
        last = self._last_encoded
        if (
            last is not None
            and last[0] is call
            and len(last[1]) == len(args)
            and all(map(operator.is_, last[1], args))
        ):
            return last[2]
        body = encode_arguments(call, encode_values(call, args))
        self._last_encoded = (call, tuple(args), body)
        return body


class NodeRpcClient(Caller[CurlPool]):
    """Calls nodes and waits for them.

    Args:
        job_id: whose calls these are, for the nodes' logs.
    """

    def __init__(self, paths: Paths, job_id: int | None = None) -> None:
        super().__init__(paths, CurlPool, job_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def call(self, name: str, targets: Mapping[Target, Sequence[object]]) -> dict[str, RpcResult]:
        """Make one call on many nodes at once; returns {node name: result}.

        Args:
            targets: the arguments for each node.

        Raises:
            X509CertError: a certificate of this node is missing.
            ProtocolError: no such call, or not the arguments that it takes.
        """
        call = call_named(name)
        asked = to_be_asked(call, targets)
        requests = [self._request(call, target, targets[target]) for target in asked]
        responses = self._current_pool().perform(requests) if requests else []
        return results(targets, zip(asked, responses, strict=True))

    def single(self, name: str, target: Target, *args: object) -> RpcResult:
        """Make one call on one node; errors as of `call`."""
        return self.call(name, {target: args})[target.name]


def encode_values(call: NodeCall, args: Sequence[object]) -> list[object]:
    """Bring a caller's arguments into the form for the wire, as the call's encoders say.

    Objects are asked for theirs (``to_wire``); what has that form already stays as it is.
    """
    if len(args) != len(call.arguments):
        return list(args)  # encode_arguments says what is wrong
    return [
        value if argument.encoder is None else _encode_value(argument.encoder, value)
        for argument, value in zip(call.arguments, args, strict=True)
    ]


def _encode_value(encoder: Encoder, value: object) -> object:
    if encoder is Encoder.COMPRESS and isinstance(value, bytes | str):
        return compress(value)
    if isinstance(value, FileDetails):
        return encode_file_details(value)
    return _to_wire(value)


def _to_wire(value: object) -> object:
    to_wire = getattr(value, "to_wire", None)
    if to_wire is not None:
        return to_wire()
    if isinstance(value, list | tuple):
        return [_to_wire(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _to_wire(item) for key, item in value.items()}
    return value


def call_named(name: str) -> NodeCall:
    """Return the row of a call, or raise ProtocolError."""
    call = NODE_RPC.get(name)
    if call is None:
        raise ProtocolError(f"there is no node call {name!r}")
    return call


def to_be_asked(call: NodeCall, targets: Iterable[Target]) -> list[Target]:
    """Return the nodes that the call goes to."""
    return [target for target in targets if call.sent_to_offline or not target.offline]


def results(
    targets: Iterable[Target], answered: Iterable[tuple[Target, CurlResponse]]
) -> dict[str, RpcResult]:
    """Return {node name: result}; who was not asked is offline."""
    found = {
        target.name: RpcResult(target.name, error=OFFLINE_ERROR, offline=True) for target in targets
    }
    found.update((target.name, _result(target, response)) for target, response in answered)
    return found


def _result(target: Target, response: CurlResponse) -> RpcResult:
    address = f"{target.address}:{target.port}"
    if response.error is not None:
        return RpcResult(target.name, error=response.error, address=address)
    if response.status != _STATUS_OK:
        error = f"HTTP status {response.status}: {_said(response.body)}"
        return RpcResult(target.name, error=error, address=address)
    try:
        success, value = decode_answer(response.body)
    except ProtocolError as err:
        return RpcResult(target.name, error=err.message, address=address)
    if success:
        return RpcResult(target.name, payload=value)
    return RpcResult(target.name, error=str(value) or "failed without saying why")


def _said(body: bytes) -> str:
    """Return the reason in an answer that is not a success."""
    try:
        return str(decode_answer(body)[1])
    except ProtocolError:
        text = body[:_BODY_SHOWN_BYTES].decode("utf-8", "replace").strip()
        return text or "no reason given"


def _stamp(path: str) -> tuple[int, int]:
    try:
        state = os.stat(path)
    except OSError as err:
        raise X509CertError(path, f"cannot be used: {err.strerror}") from err
    return state.st_mtime_ns, state.st_ino
