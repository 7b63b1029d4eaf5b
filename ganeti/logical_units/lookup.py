"""Objects by name or UUID, with the error an operator needs when there is none."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from ganeti.base.errors import ErrorCode, OpPrereqError, ResolverError
from ganeti.base.paths import Paths
from ganeti.config.config_data import split_config
from ganeti.config.tables import Tables
from ganeti.objects.model import Disk, Instance, IpFamily, Network, Node, NodeGroup
from ganeti.protocol.wconfd import InstanceContext, ObjectKind, WConfCalls
from ganeti.system import environment

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


def check_name_free(
    kind: ObjectKind, objects: Iterable[NodeGroup] | Iterable[Network], name: str
) -> None:
    """Refuse a name that one of these objects has as its name or UUID.

    Raises:
        OpPrereqError: it is taken (already_exists).
    """
    for taken in objects:
        if name in (taken.name, taken.uuid):
            raise OpPrereqError(
                f"the name {name!r} is already used by {_WORDS.get(kind, kind.value)}"
                f" {taken.name!r} (UUID {taken.uuid})",
                ErrorCode.EXISTS,
            )


def expand(config: WConfCalls, kind: ObjectKind, names: Sequence[str]) -> list[tuple[str, str]]:
    """Turn names, short names or UUIDs into (uuid, full name), in the same order.

    Raises:
        OpPrereqError: one of them is unknown (unknown_entity) or ambiguous (wrong_input).
    """
    return _all_found(kind, names, config.expand_names(kind, list(names)) if names else [])


def _all_found(kind: ObjectKind, names: Sequence[str], found: Sequence[T | None]) -> list[T]:
    """Return the objects found for the names, or raise the error for the first unknown name."""
    for name, thing in zip(names, found, strict=True):
        if thing is None:
            raise unknown(kind, name)
    return present(found)


def _by_key(
    config: WConfCalls,
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
    return _all_found(kind, names, found)


def require_node(config: WConfCalls, name: str) -> Node:
    """Return a node by name, short name or UUID.

    Raises:
        OpPrereqError: there is none of that name.
    """
    return require_nodes(config, [name])[0]


def require_nodes(config: WConfCalls, names: Sequence[str]) -> list[Node]:
    """Return nodes by name, short name or UUID, in the same order.

    Raises:
        OpPrereqError: one of them is unknown.
    """
    return _by_key(config, ObjectKind.NODE, names, config.get_nodes)


def all_nodes(config: WConfCalls) -> list[Node]:
    """Return every node."""
    return present(config.get_nodes(None))


def all_groups(config: WConfCalls) -> list[NodeGroup]:
    """Return every node group."""
    return present(config.get_node_groups(None))


def all_instances(config: WConfCalls) -> list[Instance]:
    """Return every instance."""
    return present(config.get_instances(None))


def all_networks(config: WConfCalls) -> list[Network]:
    """Return every network."""
    return present(config.get_networks(None))


def named_or_all_nodes(config: WConfCalls, names: Sequence[str]) -> list[Node]:
    """Return nodes by name, each once and in the same order; all of them if none is named.

    Raises:
        OpPrereqError: one of them is unknown.
    """
    found = require_nodes(config, names) if names else all_nodes(config)
    return [*{node.uuid: node for node in found}.values()]


def require_group(config: WConfCalls, name: str) -> NodeGroup:
    """Return a node group by name or UUID.

    Raises:
        OpPrereqError: there is none of that name.
    """
    return _by_key(config, ObjectKind.NODEGROUP, [name], config.get_node_groups)[0]


def groups_named(config: WConfCalls, name: str | None) -> list[NodeGroup]:
    """Return the node group of a name or UUID; all groups if none is given.

    Raises:
        OpPrereqError: there is none of that name.
    """
    return all_groups(config) if name is None else [require_group(config, name)]


def group_nodes(config: WConfCalls, group_uuid: str) -> list[Node]:
    """Return the nodes of a group."""
    return [node for node in all_nodes(config) if node.group == group_uuid]


def groups_of(config: WConfCalls, nodes: Iterable[Node]) -> dict[str, NodeGroup]:
    """Return the groups of nodes by UUID."""
    uuids = list(dict.fromkeys(node.group for node in nodes))
    return {group.uuid: group for group in present(config.get_node_groups(uuids))}


def group_members(config: WConfCalls, group: NodeGroup) -> tuple[list[Node], list[Instance]]:
    """Return the nodes of a group and the instances with their primary node there."""
    node_uuids, instance_uuids = config.get_group_members([group.uuid])[0] or ([], [])
    nodes = present(config.get_nodes(node_uuids)) if node_uuids else []
    return nodes, present(config.get_instances(instance_uuids)) if instance_uuids else []


def require_instances(config: WConfCalls, names: Sequence[str]) -> list[Instance]:
    """Return instances by name, short name or UUID, in the same order.

    Raises:
        OpPrereqError: one of them is unknown.
    """
    return _by_key(config, ObjectKind.INSTANCE, names, config.get_instances)


def require_instance(config: WConfCalls, name: str) -> Instance:
    """Return an instance by name, short name or UUID.

    Raises:
        OpPrereqError: there is none of that name.
    """
    return require_instances(config, [name])[0]


def require_network(config: WConfCalls, name: str) -> Network:
    """Return a network by name or UUID.

    Raises:
        OpPrereqError: there is none of that name.
    """
    return _by_key(config, ObjectKind.NETWORK, [name], config.get_networks)[0]


def require_instance_context(config: WConfCalls, name: str, uuid: str | None) -> InstanceContext:
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


def disks_of_each(config: WConfCalls, instances: Sequence[Instance]) -> list[list[Disk]]:
    """Return the disks of each instance, read in one call."""
    uuids = [uuid for instance in instances for uuid in instance.disks]
    disks = {disk.uuid: disk for disk in present(config.get_disks(uuids) if uuids else [])}
    return [[disks[uuid] for uuid in instance.disks if uuid in disks] for instance in instances]


def present(objects: Iterable[T | None]) -> list[T]:
    """Return the objects that are there."""
    return [thing for thing in objects if thing is not None]


def tables(config: WConfCalls) -> Tables:
    """Return the whole configuration, as of one instant."""
    return Tables(split_config(bytes(config.read_config())))


# Names of instances and nodes as given by the operator: well-formed, and resolved if asked for.


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
            f" {NAME_LENGTH_MAX} are possible"
        )
    if _NAME.fullmatch(normal) is None or normal.startswith("-"):
        raise OpPrereqError(
            f"{name!r} is no valid {what} name; use letters, digits, '-', '_' and '.', at most 63"
            " characters between two dots"
        )
    return normal


def resolve(
    what: str, name: str, paths: Paths, hint: str = "", *, ip_version: int = IpFamily.IPV4.version
) -> tuple[str, str]:
    """Look a name up; returns the full name in lower case and the address.

    Args:
        ip_version: of the address that is wanted where the name has both.
        hint: another way for the operator, to be put behind the error.

    Raises:
        OpPrereqError: it does not resolve (resolver_error), or is the alias of another name,
            which is neither its short nor its long form.
    """
    normal = normal_name(what, name)
    try:
        full, address = environment.resolve(normal, paths, ip_version=ip_version)
    except ResolverError as err:
        raise OpPrereqError(f"{what} {err}{hint}", ErrorCode.RESOLVER) from err
    full = full.lower()
    if normal.startswith(f"{full}."):
        return normal, address  # /etc/hosts has the short name first
    if full != normal and not full.startswith(f"{normal}."):
        raise OpPrereqError(
            f"the {what} name {normal!r} is an alias of {full!r}, another name; use that, or mend"
            f" the name server or /etc/hosts{hint}"
        )
    return full, address


def check_ip_version(what: str, address: str, ip_version: int) -> None:
    """Refuse a node's or the cluster's own address if the cluster has another IP version.

    Raises:
        OpPrereqError: names the address.
    """
    if ipaddress.ip_address(address).version != ip_version:
        raise OpPrereqError(
            f"{what} has the address {address}, and the cluster uses IPv{ip_version}; give the name"
            f" an IPv{ip_version} address"
        )
