"""What WConfD's answers look like on the client's side: typed objects instead of JSON.

The classes of the objects are imported when such an object is answered: most jobs get few kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from ganeti.base.errors import ProtocolError
from ganeti.objects.record import Record, plain
from ganeti.protocol.wconfd import ClientId

if TYPE_CHECKING:
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.disk import Disk
    from ganeti.objects.instance import Instance
    from ganeti.objects.network import Network
    from ganeti.objects.node import Node
    from ganeti.objects.nodegroup import NodeGroup

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


def _from_wire(kind: str) -> Callable[[Any], Any]:
    """Return what makes an object from JSON; `kind` is "module.class" below `ganeti.objects`."""
    module, _, name = kind.partition(".")
    found: Any = getattr(import_module(f"ganeti.objects.{module}"), name)
    decode: Callable[[Any], Any] = found.from_wire
    return decode


def _one(kind: str) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        return _from_wire(kind)(value)

    return decode


def _list_of(kind: str) -> Callable[[Any], list[Any]]:
    def decode(values: Any) -> list[Any]:
        from_wire = _from_wire(kind)
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
        cluster=DECODERS["cluster"](value["cluster"]),
        instance=_from_wire("instance.Instance")(value["instance"]),
        disks=DECODERS["disks"](value["disks"]),
        nodes=DECODERS["nodes"](value["nodes"]),
        groups=DECODERS["nodegroups"](value["groups"]),
        networks=DECODERS["networks"](value["networks"]),
    )


# result kind of the method table -> decoder; a kind that is missing here stays as it came
DECODERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "void": _nothing,
    "serial": _serial,
    "serial?": _serial,
    "cluster": _one("cluster.Cluster"),
    "nodes": _list_of("node.Node"),
    "nodegroups": _list_of("nodegroup.NodeGroup"),
    "instances": _list_of("instance.Instance"),
    "disks": _list_of("disk.Disk"),
    "networks": _list_of("network.Network"),
    "filters": _list_of("filter_rule.FilterRule"),
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
