"""Calls the daemons of other nodes: one call, many nodes, one deadline.

Every call answers one `RpcResult` per node and never raises because of a node: the caller decides
about the consequences of a node's failure.  Nodes marked offline are not asked.  A fault that makes
the call impossible for all nodes (no certificate here, wrong arguments) is raised.

Source: node_rpc.json, "transport", "encoders" and "calls".
"""

from __future__ import annotations

import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, TypeVarTuple, cast

import msgspec

from ganeti.base.errors import (
    ErrorCode,
    GenericError,
    NodeNotReachedError,
    OpExecError,
    OpPrereqError,
    ProtocolError,
    X509CertError,
)
from ganeti.base.json import loads
from ganeti.base.paths import Paths
from ganeti.objects.model import Node
from ganeti.protocol import node_rpc as rpc
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import NodeCall
from ganeti.protocol.service import call_of
from ganeti.system import clock
from ganeti.transport.clocks import gap_words
from ganeti.transport.curl_pool import CurlPool, CurlRequest, CurlResponse, Pool, TlsIdentity

P = ParamSpec("P")
R = TypeVar("R")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)
Ts = TypeVarTuple("Ts")
PoolT = TypeVar("PoolT", bound=Pool)

OFFLINE_ERROR: Final = "node is marked offline"
_STATUS_OK: Final = 200
_STATUS_FORBIDDEN: Final = 403
_UNKNOWN_CALL: Final = 404  # node_rpc.json, "unknown_call"
_BODY_SHOWN_BYTES: Final = 500


class Target(msgspec.Struct, frozen=True):
    """Where a node's daemon is reached."""

    name: str
    address: str
    port: int = rpc.DEFAULT_PORT
    offline: bool = False

    def url(self, call: str) -> str:
        """Return the URL of a call on this node."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"https://{host}:{self.port}/{call}"


AnyNode = Node | Target


class RpcResult(msgspec.Struct, Generic[AnswerT_co], frozen=True):
    """The answer of one node.

    Attributes:
        payload: the value that the call is declared to return; None if there is an error.
        error: None when the node did as asked.
        address: set when the node was not reached, or did not answer as a node daemon does.
    """

    node_name: str
    payload: AnswerT_co = cast(Any, None)
    error: str | None = None
    offline: bool = False
    address: str = ""
    call: str = ""

    @property
    def is_open(self) -> bool:
        """Whether the node may have done as asked although there is an error."""
        return bool(self.address) or (self.error or "").endswith(rpc.BROKEN_OFF)

    @property
    def lacks_call(self) -> bool:
        """Whether the node does not know the call: it is of another version, or of Ganeti 3.0."""
        return (self.error or "").startswith(f"HTTP status {_UNKNOWN_CALL}:")

    @property
    def failure_text(self) -> str:
        """The failure with the node's name: ``node 'n3' (127.1.2.3:1811): connection refused``."""
        place = f" ({self.address})" if self.address else ""
        return f"node {self.node_name!r}{place}: {self.error}"

    def explain(self, doing: str) -> str:
        """Say which step failed, where, and the reason; ``doing`` reads on after "cannot"."""
        if self.offline:
            return f"cannot {doing}: node {self.node_name!r} is offline"
        text = f"cannot {doing}: node {self.node_name!r}, call {self.call}: {self.error}"
        return f"{text}; {what_helps(self.node_name)}" if self.address else text

    def check(self, what: str) -> AnswerT_co:
        """Return the payload.

        Args:
            what: the attempt, as it reads before a colon: "cannot start the instance".

        Raises:
            OpExecError: the call failed; names the node and its error.
        """
        if self.error is not None:
            raise OpExecError(f"{what}: {self.failure_text}")
        return self.payload


def what_helps(node_name: str) -> str:
    """Return the next step for an operator when a node was not reached."""
    return (
        "is ganeti-noded running there?  While the node is down, mark it:"
        f" 'gnt-node modify --offline=yes {node_name}'"
    )


class Caller(Generic[PoolT]):
    """The common part of both clients: the pool of connections, and the requests."""

    def __init__(
        self, paths: Paths, make_pool: Callable[[TlsIdentity], PoolT], job_id: int | None
    ) -> None:
        self._paths = paths
        self._make_pool = make_pool
        self._headers = () if job_id is None else (f"{rpc.JOB_HEADER}: {job_id}",)
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
        identity = TlsIdentity.of_node(self._paths)
        seen = (identity, *map(_stamp, (identity.certificate_path, identity.authority_path)))
        if self._pool is None or seen != self._seen:
            self.close()
            self._pool = self._make_pool(identity)
            self._seen = seen
        return self._pool

    def _request(self, call: NodeCall, target: Target, args: Sequence[object]) -> CurlRequest:
        # Calls served in the daemon write whole files: doing one twice is doing it once.
        repeatable = not call.rules.changes or call.rules.place is rpc.Place.DAEMON
        return CurlRequest(
            target.url(call.name),
            self._body(call, args),
            rpc.deadline_s(call, args),
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
        body = rpc.encode_arguments(call, args)
        self._last_encoded = (call, tuple(args), body)
        return body


class NodeClient(ABC):
    """Typed calls of nodes; a subclass brings them to the nodes.

    `on` is for work that has begun (it raises OpExecError), `check` for the checks before it (it
    raises OpPrereqError).  The others take the call as a reference such as ``NodeCalls.version``
    and give one `RpcResult` per node, because each node may fail by itself.
    """

    @abstractmethod
    def perform(
        self, call: NodeCall, targets: Mapping[Target, Sequence[object]]
    ) -> dict[str, RpcResult[Any]]:
        """Make one call on many nodes at once; returns {node name: result}.

        Args:
            targets: the arguments for each node.

        Raises:
            X509CertError: a certificate of this node is missing.
            ProtocolError: not the arguments that the call takes.
        """

    def on(self, node: AnyNode, doing: str) -> NodeCalls:
        """Return the calls of one node, for a step that reads as ``doing`` after "cannot".

        They raise OpExecError if the node is offline or failed, and NodeNotReachedError, which is
        one, if it was not reached, or the call broke off there.
        """

        def failure(result: RpcResult[Any]) -> GenericError:
            kind = NodeNotReachedError if result.is_open else OpExecError
            return kind(result.explain(doing))

        return _OnNode(self, node, failure)

    def check(self, node: AnyNode, doing: str, ecode: ErrorCode = ErrorCode.ENVIRON) -> NodeCalls:
        """As `on`, for a check: its calls raise OpPrereqError."""
        return _OnNode(self, node, lambda result: OpPrereqError(result.explain(doing), ecode))

    def call_one(
        self,
        method: Callable[Concatenate[NodeCalls, P], R],
        node: AnyNode,
        *args: P.args,
        **named: P.kwargs,
    ) -> RpcResult[R]:
        """Make one call on one node."""
        return self.call_all(method, [node], *args, **named)[node.name]

    def call_all(
        self,
        method: Callable[Concatenate[NodeCalls, P], R],
        nodes: Iterable[AnyNode],
        *args: P.args,
        **named: P.kwargs,
    ) -> dict[str, RpcResult[R]]:
        """Make one call on many nodes at once, under one deadline; returns {node name: result}."""
        call = call_of(method)
        bound = call.bind(args, named)
        return self.perform(call, {target_of(node): bound for node in nodes})

    def call_each(
        self, method: Callable[[NodeCalls, *Ts], R], nodes: Mapping[Target, tuple[*Ts]]
    ) -> dict[str, RpcResult[R]]:
        """As `call_all`, with arguments of its own for each node."""
        return self.perform(call_of(method), nodes)


class _OnNode(NodeCalls):
    """The calls of one node; failures are raised."""

    def __init__(
        self, client: NodeClient, node: AnyNode, failure: Callable[[RpcResult[Any]], GenericError]
    ) -> None:
        self._client = client
        self._target = target_of(node)
        self._failure = failure

    def invoke(self, call: NodeCall, args: list[Any]) -> Any:
        result = self._client.perform(call, {self._target: args})[self._target.name]
        if result.error is not None:
            raise self._failure(result)
        return result.payload


class NodeRpcClient(Caller[CurlPool], NodeClient):
    """Calls nodes and waits for them.

    Args:
        job_id: the job that makes the calls, for the nodes' logs.
    """

    def __init__(self, paths: Paths, job_id: int | None = None) -> None:
        super().__init__(paths, CurlPool, job_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def perform(
        self, call: NodeCall, targets: Mapping[Target, Sequence[object]]
    ) -> dict[str, RpcResult[Any]]:
        """Make one call on many nodes at once; see `NodeClient.perform`."""
        asked = to_be_asked(call, targets)
        requests = [self._request(call, target, targets[target]) for target in asked]
        responses = self._current_pool().perform(requests) if requests else []
        return results(call, targets, zip(asked, responses, strict=True))


def target_of(node: AnyNode) -> Target:
    """Return where a node's daemon is reached."""
    if isinstance(node, Target):
        return node
    return Target(node.name, node.primary_ip, offline=node.offline)


def to_be_asked(call: NodeCall, targets: Iterable[Target]) -> list[Target]:
    """Return the nodes that the call goes to."""
    return [target for target in targets if call.rules.to_offline or not target.offline]


def results(
    call: NodeCall, targets: Iterable[Target], answered: Iterable[tuple[Target, CurlResponse]]
) -> dict[str, RpcResult[Any]]:
    """Return {node name: result}; nodes that were not asked are offline."""
    found: dict[str, RpcResult[Any]] = {
        target.name: RpcResult(target.name, error=OFFLINE_ERROR, offline=True, call=call.name)
        for target in targets
    }
    found.update((target.name, _result(call, target, response)) for target, response in answered)
    return found


def _result(call: NodeCall, target: Target, response: CurlResponse) -> RpcResult[Any]:
    address = f"{target.address}:{target.port}"
    error = response.error
    if error is None and response.status != _STATUS_OK:
        error = f"HTTP status {response.status}: {_said(response.body)}"
        if response.status == _STATUS_FORBIDDEN:
            gap = gap_words(response.date, clock.now())
            error += f"; {gap}" if gap else ""
    if error is None:
        try:
            return read_answer(call, target.name, response.body)
        except ProtocolError as err:
            error = err.message
    return RpcResult(target.name, error=error, address=address, call=call.name)


def read_answer(call: NodeCall, node_name: str, body: bytes) -> RpcResult[Any]:
    """Return the result that a node has sent; raises ProtocolError if it is of a wrong type."""
    success, value = rpc.decode_answer(body)
    if success:
        return RpcResult(node_name, call.decode_answer(value), call=call.name)
    error = str(loads(bytes(value))) or "failed without saying why"
    return RpcResult(node_name, error=error, call=call.name)


def _said(body: bytes) -> str:
    """Return the reason in an answer that is not a success."""
    try:
        return str(loads(bytes(rpc.decode_answer(body)[1])))
    except ProtocolError:
        text = body[:_BODY_SHOWN_BYTES].decode("utf-8", "replace").strip()
        return text or "no reason given"


def _stamp(path: str) -> tuple[int, int]:
    try:
        state = os.stat(path)
    except OSError as err:
        raise X509CertError(path, f"cannot be used: {err.strerror}") from err
    return state.st_mtime_ns, state.st_ino
