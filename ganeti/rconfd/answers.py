"""The answer to each question: one function per row of `ganeti.protocol.confd_queries`.  Pure.

Source: confd.json, "query_types" and "error_codes".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec
from msgspec import Raw

from ganeti.base.json import dumps
from ganeti.base.versions import CONFIG_VERSION
from ganeti.protocol.confd import DATAGRAM_BYTES_MAX, ErrorKind, Status
from ganeti.protocol.confd_queries import Keys, MasterField, NodeRole, QueryType, Question
from ganeti.rconfd.facts import Facts, NodeFacts

_INDEX_DIGITS_MAX: Final = 9
# What a part of a list may have: a datagram less the packet around it.
_PART_BYTES_MAX: Final = DATAGRAM_BYTES_MAX - 2048
_XEN_PREFIX: Final = "xen-"
XEN_COLLECTORS: Final = frozenset({"inst-status-xen", "xen-cpu-avg-load"})

_fields: Final = msgspec.json.Decoder(dict[str, Raw])
_items: Final = msgspec.json.Decoder(list[Raw])


class Found(msgspec.Struct, frozen=True):
    """An answer; its value is JSON already."""

    value: bytes
    serial: int


class Refused(Exception):
    """The question cannot be answered."""

    def __init__(self, kind: ErrorKind) -> None:
        super().__init__(kind)
        self.kind = kind


Handler = Callable[[Facts, Question], Found]


def _text(question: Question) -> str:
    if not isinstance(question, str):
        raise Refused(ErrorKind.ARGUMENT)
    return question


def _keys(question: Question) -> Keys:
    if not isinstance(question, Keys):
        raise Refused(ErrorKind.ARGUMENT)
    return question


def _found(facts: Facts, value: object) -> Found:
    return Found(dumps(value), facts.cluster.serial_no)


def _node(facts: Facts, question: Question) -> tuple[str, NodeFacts]:
    uuid = facts.nodes.find(_text(question))
    if uuid is None:
        raise Refused(ErrorKind.UNKNOWN_ENTRY)
    return uuid, facts.nodes[uuid]


def _joined(texts: Iterable[Raw]) -> bytes:
    return b"[%b]" % b",".join(map(bytes, texts))


def ping(_facts: Facts, _question: Question) -> Found:
    """Say that we are there."""
    return Found(dumps(CONFIG_VERSION), 0)


def node_role(facts: Facts, question: Question) -> Found:
    """Tell the role of a node."""
    uuid, node = _node(facts, question)
    roles = (
        (uuid == facts.cluster.master_node, NodeRole.MASTER),
        (node.master_candidate, NodeRole.CANDIDATE),
        (node.drained, NodeRole.DRAINED),
        (node.offline, NodeRole.OFFLINE),
    )
    return _found(facts, next((role for has, role in roles if has), NodeRole.REGULAR))


def node_by_address(facts: Facts, question: Question) -> Found:
    """Tell the primary address of the primary node of the instance that has an address."""
    keys = _keys(question)
    link = facts.links.get(facts.default_link if keys.link is None else keys.link, {})
    match keys.ip, keys.iplist:
        case str(ip), None:
            return _found(facts, _node_address(facts, link, ip))
        case None, tuple(addresses):
            return _found(facts, [_one_of_many(facts, link, ip) for ip in addresses])
    raise Refused(ErrorKind.ARGUMENT)


def _node_address(facts: Facts, link: Mapping[str, str], ip: str) -> str:
    uuid = link.get(ip)
    node = None if uuid is None else facts.nodes.get(facts.instances[uuid].primary_node)
    if node is None:
        raise Refused(ErrorKind.UNKNOWN_ENTRY)
    return node.primary_ip


def _one_of_many(facts: Facts, link: Mapping[str, str], ip: str) -> tuple[Status, object, int]:
    try:
        return Status.OK, _node_address(facts, link, ip), facts.cluster.serial_no
    except Refused as err:
        return Status.ERROR, err.kind, 0


def cluster_master(facts: Facts, question: Question) -> Found:
    """Tell about the master."""
    node = facts.nodes.get(facts.cluster.master_node)
    if node is None:
        raise Refused(ErrorKind.INTERNAL)
    if question is None:
        return _found(facts, node.name)
    values = {
        MasterField.NAME: node.name,
        MasterField.IP: facts.cluster.master_ip,
        MasterField.MNODE_PIP: node.primary_ip,
    }
    return _found(facts, [values[field] for field in _keys(question).fields or ()])


def node_addresses(facts: Facts, _question: Question) -> Found:
    """List the primary addresses of all nodes."""
    return _found(facts, [node.primary_ip for node in facts.nodes.values()])


def candidate_addresses(facts: Facts, _question: Question) -> Found:
    """List the primary addresses of the master candidates."""
    nodes = facts.nodes.values()
    return _found(facts, [node.primary_ip for node in nodes if node.master_candidate])


def instance_addresses(facts: Facts, question: Question) -> Found:
    """List the addresses of instances on a link."""
    link = facts.default_link if question is None else _text(question)
    return _found(facts, list(facts.links.get(link, ())))


def node_drbd(facts: Facts, question: Question) -> Found:
    """List the DRBD devices of a node."""
    uuid, node = _node(facts, question)
    return Found(dumps(list(_drbd_rows(facts, uuid, node))), node.serial_no)


def node_drbd_part(facts: Facts, question: Question) -> Found:
    """List some of the DRBD devices of a node, and say where the others begin."""
    name, slash, start = _text(question).partition("/")
    uuid, node = _node(facts, name)
    try:
        first = _index(start) if slash else 0
    except LookupError as err:
        raise Refused(ErrorKind.ARGUMENT) from err
    rows: list[list[object]] = []
    left_bytes = _PART_BYTES_MAX
    for row in islice(_drbd_rows(facts, uuid, node), first, None):
        encoded = dumps(row)
        left_bytes -= len(encoded) + encoded.count(b'"')  # which are escaped in an answer
        if left_bytes < 0 and rows:
            return Found(dumps([rows, first + len(rows)]), facts.serial_no)
        rows.append(row)
    return Found(dumps([rows, None]), facts.serial_no)


def _drbd_rows(facts: Facts, uuid: str, node: NodeFacts) -> Iterator[list[object]]:
    for half in facts.drbd.get(uuid, ()):
        instance = facts.instances[half.instance]
        role = "primary" if instance.primary_node == uuid else "secondary"
        peer = facts.nodes.get(half.peer)
        peer_name = half.peer if peer is None else peer.name
        yield [node.name, half.minor, instance.name, f"disk/{half.index}", role, peer_name]


def node_instances(facts: Facts, question: Question) -> Found:
    """List the instances of a node, as the configuration has them."""
    uuid, node = _node(facts, question)
    raw = facts.instances.raw
    primary, secondary = (
        _joined(raw[one] for one in uuids) for uuids in facts.instances_by_node[uuid]
    )
    return Found(b"[%b,%b]" % (primary, secondary), node.serial_no)


def node_instance_serials(facts: Facts, question: Question) -> Found:
    """List the instances of a node by UUID and serial number."""
    uuid, _node_facts = _node(facts, question)
    rows = [
        [(one, facts.instances[one].serial_no) for one in uuids]
        for uuids in facts.instances_by_node[uuid]
    ]
    return Found(dumps(rows), facts.serial_no)


def instance_disks(facts: Facts, question: Question) -> Found:
    """List the disks of an instance, as the configuration has them."""
    uuid = facts.instances.find(_text(question))
    if uuid is None:
        raise Refused(ErrorKind.UNKNOWN_ENTRY)
    instance = facts.instances[uuid]
    raw = facts.disks.raw
    disks = _joined(raw[disk] for disk in instance.disks if disk in raw)
    return Found(disks, instance.serial_no)


def config_query(facts: Facts, question: Question) -> Found:
    """Show the value at a JSON pointer (RFC 6901) into the configuration."""
    pointer = _text(question)
    if not pointer.startswith("/"):
        raise Refused(ErrorKind.ARGUMENT)
    first, *rest = (word.replace("~1", "/").replace("~0", "~") for word in pointer.split("/")[1:])
    split = facts.split
    if first in split.tables:
        return Found(_in_table(split.tables[first], rest), facts.cluster.serial_no)
    top = split.cluster if first == "cluster" else split.top.get(first)
    if top is None:
        raise Refused(ErrorKind.ARGUMENT)
    return Found(_in_value(top, rest), facts.cluster.serial_no)


def _in_table(table: Mapping[str, Raw], words: Sequence[str]) -> bytes:
    if not words:
        return dumps(table)
    found = table.get(words[0])
    if found is None:
        raise Refused(ErrorKind.ARGUMENT)
    return _in_value(found, words[1:])


def _in_value(value: Raw, words: Sequence[str]) -> bytes:
    """Return what stands at a path below a value; only what is on the way is taken apart."""
    for word in words:
        try:
            value = _items.decode(value)[_index(word)] if _is_list(value) else _member(value, word)
        except (msgspec.DecodeError, LookupError) as err:
            raise Refused(ErrorKind.ARGUMENT) from err
    return bytes(value)


def _member(value: Raw, word: str) -> Raw:
    return _fields.decode(value)[word]


def _is_list(value: Raw) -> bool:
    return bytes(memoryview(value)[:1]) == b"["


def _index(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= _INDEX_DIGITS_MAX):
        raise LookupError(word)
    return int(word)


def data_collectors(facts: Facts, _question: Question) -> Found:
    """Tell how the data collectors are switched; those for Xen are off where there is no Xen."""
    cluster = facts.cluster
    has_xen = any(name.startswith(_XEN_PREFIX) for name in cluster.enabled_hypervisors)
    return _found(
        facts,
        {
            name: {
                "active": switch.active and (has_xen or name not in XEN_COLLECTORS),
                "interval": switch.interval,
            }
            for name, switch in cluster.data_collectors.items()
        },
    )


HANDLERS: Final[Mapping[QueryType, Handler]] = {
    QueryType.PING: ping,
    QueryType.NODE_ROLE: node_role,
    QueryType.NODE_PIP_BY_INSTANCE_IP: node_by_address,
    QueryType.CLUSTER_MASTER: cluster_master,
    QueryType.NODE_PIP_LIST: node_addresses,
    QueryType.MC_PIP_LIST: candidate_addresses,
    QueryType.INSTANCES_IPS_LIST: instance_addresses,
    QueryType.NODE_DRBD: node_drbd,
    QueryType.NODE_INSTANCES: node_instances,
    QueryType.INSTANCE_DISKS: instance_disks,
    QueryType.CONFIG_QUERY: config_query,
    QueryType.DATA_COLLECTORS: data_collectors,
    QueryType.NODE_INSTANCE_SERIALS: node_instance_serials,
    QueryType.NODE_DRBD_PART: node_drbd_part,
}
