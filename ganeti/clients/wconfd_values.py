"""What WConfD's answers look like on the client's side: typed objects instead of JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from ganeti.base.errors import ProtocolError
from ganeti.objects.cluster import Cluster
from ganeti.objects.disk import Disk
from ganeti.objects.filter_rule import FilterRule
from ganeti.objects.instance import Instance
from ganeti.objects.network import Network
from ganeti.objects.node import Node
from ganeti.objects.nodegroup import NodeGroup
from ganeti.objects.record import Record, plain
from ganeti.protocol.wconfd import ClientId

T = TypeVar("T")

WireObject = Record | Mapping[str, object]  # a typed object, or its JSON form
LockRequest = Sequence[tuple[str, str]]  # lock name, "shared" | "exclusive" | "release"


class InstanceContext(msgspec.Struct, frozen=True):
    """An instance and all that it refers to, as of one instant.

    `nodes` begin with the primary node, then the secondary ones; `groups` are those of these
    nodes and `networks` those of the instance's network cards, each once.
    """

    cluster: Cluster
    instance: Instance
    disks: list[Disk]
    nodes: list[Node]
    groups: list[NodeGroup]
    networks: list[Network]


def _same(value: Any) -> Any:
    return value


def _nothing(_value: Any) -> None:
    return None


def _list_of(from_wire: Callable[[Any], T]) -> Callable[[Any], list[T | None]]:
    def decode(values: Any) -> list[T | None]:
        return [None if value is None else from_wire(value) for value in values]

    return decode


def _pair(value: Any) -> tuple[Any, Any]:
    first, second = value
    return first, second


def _pairs(values: Any) -> list[tuple[Any, Any] | None]:
    return [None if value is None else _pair(value) for value in values]


def _clients(values: Any) -> list[ClientId]:
    return [ClientId.from_wire(value) for value in values]


def _wait_result(value: Any) -> tuple[str, list[ClientId]]:
    outcome, blockers = value
    return outcome, _clients(blockers)


def _serial(value: Any) -> tuple[int, float] | None:
    return None if value is None else (int(value[0]), float(value[1]))


def _instance_context(value: Any) -> InstanceContext:
    return InstanceContext(
        cluster=Cluster.from_wire(value["cluster"]),
        instance=Instance.from_wire(value["instance"]),
        disks=[Disk.from_wire(disk) for disk in value["disks"]],
        nodes=[Node.from_wire(node) for node in value["nodes"]],
        groups=[NodeGroup.from_wire(group) for group in value["groups"]],
        networks=[Network.from_wire(network) for network in value["networks"]],
    )


# result kind of the method table -> decoder; a kind that is missing here stays as it came
DECODERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "void": _nothing,
    "serial": _serial,
    "serial?": _serial,
    "cluster": Cluster.from_wire,
    "nodes": _list_of(Node.from_wire),
    "nodegroups": _list_of(NodeGroup.from_wire),
    "instances": _list_of(Instance.from_wire),
    "disks": _list_of(Disk.from_wire),
    "networks": _list_of(Network.from_wire),
    "filters": _list_of(FilterRule.from_wire),
    "instance_context": _instance_context,
    "expanded": _pairs,
    "held": _pairs,
    "uuid_lists": _pairs,
    "clients": _clients,
    "wait_result": _wait_result,
}


def encode_argument(value: object) -> object:
    """Turn an argument of the stub into JSON values."""
    if isinstance(value, ClientId):
        return value.to_wire()
    if isinstance(value, Record | list | tuple | Mapping):
        return plain(value)
    return value


def decode_result(kind: str, value: object) -> Any:
    """Turn the JSON of a result into what the stub promises.

    Raises:
        ProtocolError: the server's answer has another shape than the table says.
    """
    try:
        return DECODERS.get(kind, _same)(value)
    except (TypeError, ValueError, KeyError) as err:
        raise ProtocolError(f"unexpected answer of WConfD for {kind}: {err}") from err
