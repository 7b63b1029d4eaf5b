"""Objects by name or UUID, with the error an operator needs when there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.protocol.wconfd import ObjectKind

if TYPE_CHECKING:
    from ganeti.clients.wconfd_stub import WConfStub
    from ganeti.clients.wconfd_values import InstanceContext
    from ganeti.objects.disk import Disk
    from ganeti.objects.instance import Instance
    from ganeti.objects.network import Network
    from ganeti.objects.node import Node
    from ganeti.objects.nodegroup import NodeGroup

T = TypeVar("T")

_LISTED_BY: Final = {
    ObjectKind.NODE: "gnt-node list",
    ObjectKind.NODEGROUP: "gnt-group list",
    ObjectKind.INSTANCE: "gnt-instance list",
    ObjectKind.NETWORK: "gnt-network list",
}
_WORDS: Final = {ObjectKind.NODEGROUP: "node group"}


def unknown(kind: ObjectKind, key: str) -> OpPrereqError:
    """Make the error for a name that means nothing."""
    hint = f"; see '{_LISTED_BY[kind]}'" if kind in _LISTED_BY else ""
    return OpPrereqError(
        f"{_WORDS.get(kind, kind.value)} {key!r} is not known{hint}", ErrorCode.NOENT
    )


def expand(config: WConfStub, kind: ObjectKind, names: Sequence[str]) -> list[tuple[str, str]]:
    """Turn names, short names or UUIDs into (uuid, full name), in the same order.

    Raises:
        OpPrereqError: one of them is unknown (unknown_entity) or ambiguous (wrong_input).
    """
    expanded = config.expand_names(kind.value, list(names)) if names else []
    found = []
    for name, pair in zip(names, expanded, strict=True):
        if pair is None:
            raise unknown(kind, name)
        found.append(pair)
    return found


def _by_key(
    config: WConfStub,
    kind: ObjectKind,
    names: Sequence[str],
    get: Callable[[Sequence[str]], list[T | None]],
) -> list[T]:
    """Return objects in order: by full name or UUID in one call, by short name in two more."""
    found = get(names) if names else []
    short = [index for index, thing in enumerate(found) if thing is None]
    if short:
        keys = [uuid for uuid, _ in expand(config, kind, [names[index] for index in short])]
        for index, thing in zip(short, get(keys), strict=True):
            found[index] = thing
    return [_existing(kind, name, thing) for name, thing in zip(names, found, strict=True)]


def _existing(kind: ObjectKind, name: str, thing: T | None) -> T:
    if thing is None:
        raise unknown(kind, name)
    return thing


def require_node(config: WConfStub, name: str) -> Node:
    """Return a node by name, short name or UUID.

    Raises:
        OpPrereqError: there is none of that name.
    """
    return require_nodes(config, [name])[0]


def require_nodes(config: WConfStub, names: Sequence[str]) -> list[Node]:
    """Return nodes by name, short name or UUID, in the same order.

    Raises:
        OpPrereqError: one of them is unknown.
    """
    return _by_key(config, ObjectKind.NODE, names, config.get_nodes)


def all_nodes(config: WConfStub) -> list[Node]:
    """Return every node."""
    return present(config.get_nodes(None))


def require_group(config: WConfStub, name: str) -> NodeGroup:
    """Return a node group by name or UUID.

    Raises:
        OpPrereqError: there is none of that name.
    """
    return _by_key(config, ObjectKind.NODEGROUP, [name], config.get_node_groups)[0]


def require_instances(config: WConfStub, names: Sequence[str]) -> list[Instance]:
    """Return instances by name, short name or UUID, in the same order.

    Raises:
        OpPrereqError: one of them is unknown.
    """
    return _by_key(config, ObjectKind.INSTANCE, names, config.get_instances)


def require_instance(config: WConfStub, name: str) -> Instance:
    """Return an instance by name, short name or UUID.

    Raises:
        OpPrereqError: there is none of that name.
    """
    return require_instances(config, [name])[0]


def require_network(config: WConfStub, name: str) -> Network:
    """Return a network by name or UUID.

    Raises:
        OpPrereqError: there is none of that name.
    """
    return _by_key(config, ObjectKind.NETWORK, [name], config.get_networks)[0]


def require_instance_context(config: WConfStub, name: str, uuid: str | None) -> InstanceContext:
    """Return an instance with its disks, nodes, groups and networks, as of one instant.

    Args:
        uuid: when given it decides, and the name is not looked at.

    Raises:
        OpPrereqError: there is no such instance.
    """
    try:
        return config.get_instance_context(uuid or name)
    except OpPrereqError as err:
        if uuid or err.ecode != ErrorCode.NOENT:
            raise
    key, _full_name = expand(config, ObjectKind.INSTANCE, [name])[0]
    return config.get_instance_context(key)


def disks_of(config: WConfStub, instance: Instance) -> list[Disk]:
    """Return the disks of an instance in order."""
    return present(config.get_disks(list(instance.disks))) if instance.disks else []


def present(objects: Iterable[T | None]) -> list[T]:
    """Return the objects that are there."""
    return [thing for thing in objects if thing is not None]
