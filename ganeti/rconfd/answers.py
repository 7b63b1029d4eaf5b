"""From a datagram to the datagram that answers it: one function for each kind of question.  Pure.

The kinds are the rows of `ganeti.protocol.confd_queries`.  The answer to a question does not change
before the configuration does, so its message is kept, signed but for the salt: then an answer costs
two hashes, however large the cluster is.

Source: confd.json, "query_types" and "error_codes".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec
from msgspec import Raw

from ganeti.base.errors import OpPrereqError, ProtocolError
from ganeti.base.json import dumps
from ganeti.base.versions import CONFIG_VERSION
from ganeti.config.index import By, drbd_devices
from ganeti.config.tables import K, R, Table, Tables
from ganeti.objects.model import Node
from ganeti.protocol import confd, confd_queries

_INDEX_DIGITS_MAX: Final = 9
# The size of a page of a list: a datagram less the packet around it.
_PAGE_BYTES_MAX: Final = confd.DATAGRAM_BYTES_MAX - 2048
_XEN_PREFIX: Final = "xen-"
XEN_COLLECTORS: Final = frozenset({"inst-status-xen", "xen-cpu-avg-load"})

_fields: Final = msgspec.json.Decoder(dict[str, Raw])
_items: Final = msgspec.json.Decoder(list[Raw])


class Refused(Exception):
    """The question cannot be answered."""

    def __init__(self, kind: confd.ErrorKind) -> None:
        super().__init__(kind)
        self.kind = kind


Handler = Callable[[Tables, confd_queries.Question], bytes]  # JSON


def _text(question: confd_queries.Question) -> str:
    if not isinstance(question, str):
        raise Refused(confd.ErrorKind.ARGUMENT)
    return question


def _keys(question: confd_queries.Question) -> confd_queries.Keys:
    if not isinstance(question, confd_queries.Keys):
        raise Refused(confd.ErrorKind.ARGUMENT)
    return question


def _node(config: Tables, question: confd_queries.Question) -> tuple[str, Node]:
    uuid = _find(config.nodes, _text(question))
    return uuid, config.nodes[uuid]


def _find(table: Table[K, R], key: str) -> K:
    """Return the UUID of an object by UUID, name, or short name that fits nothing else."""
    try:
        found = table.find(key)
    except OpPrereqError as err:
        raise Refused(confd.ErrorKind.UNKNOWN_ENTRY) from err
    if found is None:
        raise Refused(confd.ErrorKind.UNKNOWN_ENTRY)
    return found


def _joined(texts: Iterable[Raw]) -> bytes:
    return b"[%b]" % b",".join(map(bytes, texts))


def ping(_config: Tables, _question: confd_queries.Question) -> bytes:
    """Say that we are there."""
    return dumps(CONFIG_VERSION)


def node_role(config: Tables, question: confd_queries.Question) -> bytes:
    """Tell the role of a node."""
    uuid, node = _node(config, question)
    roles = (
        (uuid == config.cluster.master_node, confd_queries.NodeRole.MASTER),
        (node.master_candidate, confd_queries.NodeRole.CANDIDATE),
        (node.drained, confd_queries.NodeRole.DRAINED),
        (node.offline, confd_queries.NodeRole.OFFLINE),
    )
    return dumps(next((role for has, role in roles if has), confd_queries.NodeRole.REGULAR))


def node_by_address(config: Tables, question: confd_queries.Question) -> bytes:
    """Tell the primary address of the primary node of the instance that has an address."""
    keys = _keys(question)
    link = _default_link(config) if keys.link is None else keys.link
    match keys.ip, keys.iplist:
        case str(ip), None:
            return dumps(_node_address(config, link, ip))
        case None, tuple(addresses):
            return dumps([_one_of_many(config, link, ip) for ip in addresses])
    raise Refused(confd.ErrorKind.ARGUMENT)


def _default_link(config: Tables) -> str:
    """Return the link of network interfaces that name none."""
    return str(config.cluster.nicparams["default"].get("link") or "")


def _node_address(config: Tables, link: str, ip: str) -> str:
    links = (link, None) if link == _default_link(config) else (link,)
    for each in links:
        for uuid in config.instances.find_all(By.LINK_IP, (each, ip)):
            node = config.nodes.get(config.instances[uuid].primary_node)
            if node is not None:
                return node.primary_ip
    raise Refused(confd.ErrorKind.UNKNOWN_ENTRY)


def _one_of_many(config: Tables, link: str, ip: str) -> tuple[confd.ReplyStatus, object, int]:
    try:
        return confd.ReplyStatus.OK, _node_address(config, link, ip), config.serial_no
    except Refused as err:
        return confd.ReplyStatus.ERROR, err.kind, config.serial_no


def cluster_master(config: Tables, question: confd_queries.Question) -> bytes:
    """Tell about the master."""
    node = config.nodes.get(config.cluster.master_node)
    if node is None:
        raise Refused(confd.ErrorKind.INTERNAL)
    if question is None:
        return dumps(node.name)
    values = {
        confd_queries.MasterField.NAME: node.name,
        confd_queries.MasterField.IP: config.cluster.master_ip,
        confd_queries.MasterField.MNODE_PIP: node.primary_ip,
    }
    return dumps([values[field] for field in _keys(question).fields or ()])


def node_addresses(config: Tables, _question: confd_queries.Question) -> bytes:
    """List the primary addresses of all nodes."""
    return dumps([node.primary_ip for node in config.nodes.values()])


def candidate_addresses(config: Tables, _question: confd_queries.Question) -> bytes:
    """List the primary addresses of the master candidates."""
    nodes = config.nodes.values()
    return dumps([node.primary_ip for node in nodes if node.master_candidate])


def instance_addresses(config: Tables, question: confd_queries.Question) -> bytes:
    """List the addresses of instances on a link."""
    default = _default_link(config)
    link = default if question is None else _text(question)
    links = (link, None) if link == default else (link,)
    uuids = [uuid for each in links for uuid in config.instances.find_all(By.LINK, each)]
    addresses = dict.fromkeys(
        nic.ip
        for uuid in dict.fromkeys(uuids)
        for nic in config.instances.read(uuid).nics
        if nic.ip and nic.nicparams.get("link") in links
    )
    return dumps(list(addresses))


def node_drbd(config: Tables, question: confd_queries.Question) -> bytes:
    """List the DRBD devices of a node."""
    uuid, node = _node(config, question)
    return dumps(list(_drbd_rows(config, uuid, node)))


def node_drbd_part(config: Tables, question: confd_queries.Question) -> bytes:
    """List a page of the DRBD devices of a node."""
    name, first = _key_and_first(question)
    uuid, node = _node(config, name)
    return _page(first, map(dumps, islice(_drbd_rows(config, uuid, node), first, None)))


def _key_and_first(question: confd_queries.Question) -> tuple[str, int]:
    """Return the argument of a question that is answered in pages, and the first entry wanted."""
    key, first = confd_queries.split_page_query(None if question is None else _text(question))
    try:
        return key, _index(first)
    except LookupError as err:
        raise Refused(confd.ErrorKind.ARGUMENT) from err


def _first_of_all(question: confd_queries.Question) -> int:
    """Return the first entry wanted of a list that takes no argument."""
    key, first = _key_and_first(question)
    if key:
        raise Refused(confd.ErrorKind.ARGUMENT)
    return first


def _page(first: int, entries: Iterable[bytes]) -> bytes:
    """Return as many entries as fit, and say where the others begin.

    Args:
        entries: those from the first one on, as JSON.
    """
    page: list[bytes] = []
    left_bytes = _PAGE_BYTES_MAX
    for entry in entries:
        # An answer is JSON within JSON: these are escaped once more.
        left_bytes -= len(entry) + entry.count(b'"') + entry.count(b"\\") + len(",")
        if left_bytes < 0 and page:
            return b"[[%b],%d]" % (b",".join(page), first + len(page))
        page.append(entry)
    return b"[[%b],null]" % b",".join(page)


def _drbd_rows(config: Tables, uuid: str, node: Node) -> Iterator[list[object]]:
    for disk_uuid in config.disks.find_all(By.DISK_NODE, uuid):
        devices = list(drbd_devices(config.disks[disk_uuid]))
        for owner in config.instances.find_all(By.DISK_OWNER, disk_uuid) if devices else ():
            instance = config.instances[owner]
            name = f"disk/{instance.disks.index(disk_uuid)}"
            role = "primary" if instance.primary_node == uuid else "secondary"
            for node_a, node_b, _port, minor_a, minor_b, _secret in devices:
                for own, minor, other in ((node_a, minor_a, node_b), (node_b, minor_b, node_a)):
                    if own == uuid:
                        peer_name = _node_name(config, other)
                        yield [node.name, minor, instance.name, name, role, peer_name]


def node_instances(config: Tables, question: confd_queries.Question) -> bytes:
    """List the instances of a node, as the configuration has them."""
    uuid, _found_node = _node(config, question)
    raw = config.instances.raw
    primary, secondary = (
        _joined(raw[one] for one in uuids) for uuids in _instances_of(config, uuid)
    )
    return b"[%b,%b]" % (primary, secondary)


def _instances_of(config: Tables, node: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the instances with this primary node, and those with this secondary node."""
    return config.primary_instances(node), config.secondary_instances(node)


def node_instance_serials(config: Tables, question: confd_queries.Question) -> bytes:
    """List the instances of a node by UUID and serial number."""
    uuid, _found_node = _node(config, question)
    rows = [
        [(one, config.instances.read(one).serial_no) for one in uuids]
        for uuids in _instances_of(config, uuid)
    ]
    return dumps(rows)


def instance_disks(config: Tables, question: confd_queries.Question) -> bytes:
    """List the disks of an instance, as the configuration has them."""
    instance = config.instances[_find(config.instances, _text(question))]
    raw = config.disks.raw
    return _joined(raw[disk] for disk in instance.disks if disk in raw)


def offline_nodes(config: Tables, question: confd_queries.Question) -> bytes:
    """List a page of the names of the nodes that are offline."""
    first = _first_of_all(question)
    nodes = map(config.nodes.__getitem__, config.nodes.order)
    names = (dumps(node.name) for node in nodes if node.offline)
    return _page(first, islice(names, first, None))


def instance_list(config: Tables, question: confd_queries.Question) -> bytes:
    """List a page of the names of all instances."""
    first = _first_of_all(question)
    names = map(config.instances.name_of, islice(config.instances.order, first, None))
    return _page(first, map(dumps, names))


def instance_primary_nodes(config: Tables, question: confd_queries.Question) -> bytes:
    """List a page of the names of all instances and of their primary nodes."""
    first = _first_of_all(question)
    instances = map(config.instances.read, islice(config.instances.order, first, None))
    return _page(
        first,
        (
            dumps([instance.name, _node_name(config, instance.primary_node)])
            for instance in instances
        ),
    )


def _node_name(config: Tables, uuid: str) -> str:
    """Return the name of a node, its UUID if there is no such node."""
    node = config.nodes.get(uuid)
    return uuid if node is None else node.name


def config_query(config: Tables, question: confd_queries.Question) -> bytes:
    """Show the value at a JSON pointer (RFC 6901) into the configuration."""
    found = _at_pointer(config, _text(question))
    return bytes(found) if isinstance(found, Raw) else dumps(found)


def config_part(config: Tables, question: confd_queries.Question) -> bytes:
    """Show a page of the object or list at a JSON pointer."""
    pointer, first = _key_and_first(question)
    entries = _entries(_at_pointer(config, pointer))
    return _page(first, map(dumps, islice(entries, first, None)))


def _entries(found: Mapping[str, Raw] | Raw) -> Iterable[object]:
    """Return the items of a list, or the keys and values of an object."""
    if not isinstance(found, Raw):
        return found.items()
    try:
        return _items.decode(found) if _is_list(found) else _fields.decode(found).items()
    except msgspec.DecodeError as err:
        raise Refused(confd.ErrorKind.ARGUMENT) from err


def _at_pointer(config: Tables, pointer: str) -> Mapping[str, Raw] | Raw:
    """Return a value of the configuration, a whole table as the mapping that it is."""
    if not pointer.startswith("/"):
        raise Refused(confd.ErrorKind.ARGUMENT)
    first, *rest = (word.replace("~1", "/").replace("~0", "~") for word in pointer.split("/")[1:])
    split = config.split
    if first in split.tables:
        return _in_table(split.tables[first], rest)
    top = split.cluster if first == "cluster" else split.top.get(first)
    if top is None:
        raise Refused(confd.ErrorKind.ARGUMENT)
    return _in_value(top, rest)


def _in_table(table: Mapping[str, Raw], words: Sequence[str]) -> Mapping[str, Raw] | Raw:
    if not words:
        return table
    found = table.get(words[0])
    if found is None:
        raise Refused(confd.ErrorKind.ARGUMENT)
    return _in_value(found, words[1:])


def _in_value(value: Raw, words: Sequence[str]) -> Raw:
    """Return the value at a path below another; only the values on the way are decoded."""
    for word in words:
        try:
            value = _items.decode(value)[_index(word)] if _is_list(value) else _member(value, word)
        except (msgspec.DecodeError, LookupError) as err:
            raise Refused(confd.ErrorKind.ARGUMENT) from err
    return value


def _member(value: Raw, word: str) -> Raw:
    return _fields.decode(value)[word]


def _is_list(value: Raw) -> bool:
    return bytes(memoryview(value)[:1]) == b"["


def _index(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= _INDEX_DIGITS_MAX):
        raise LookupError(word)
    return int(word)


def data_collectors(config: Tables, _question: confd_queries.Question) -> bytes:
    """Tell how the data collectors are switched; those for Xen are off where there is no Xen."""
    cluster = config.cluster
    has_xen = any(name.startswith(_XEN_PREFIX) for name in cluster.enabled_hypervisors)
    return dumps(
        {
            name: {
                "active": switch.active and (has_xen or name not in XEN_COLLECTORS),
                "interval": switch.interval,
            }
            for name, switch in cluster.data_collectors.items()
        }
    )


HANDLERS: Final[Mapping[confd_queries.QueryType, Handler]] = {
    confd_queries.QueryType.PING: ping,
    confd_queries.QueryType.NODE_ROLE: node_role,
    confd_queries.QueryType.NODE_PIP_BY_INSTANCE_IP: node_by_address,
    confd_queries.QueryType.CLUSTER_MASTER: cluster_master,
    confd_queries.QueryType.NODE_PIP_LIST: node_addresses,
    confd_queries.QueryType.MC_PIP_LIST: candidate_addresses,
    confd_queries.QueryType.INSTANCES_IPS_LIST: instance_addresses,
    confd_queries.QueryType.NODE_DRBD: node_drbd,
    confd_queries.QueryType.NODE_INSTANCES: node_instances,
    confd_queries.QueryType.INSTANCE_DISKS: instance_disks,
    confd_queries.QueryType.CONFIG_QUERY: config_query,
    confd_queries.QueryType.DATA_COLLECTORS: data_collectors,
    confd_queries.QueryType.NODE_INSTANCE_SERIALS: node_instance_serials,
    confd_queries.QueryType.NODE_DRBD_PART: node_drbd_part,
    confd_queries.QueryType.OFFLINE_NODES: offline_nodes,
    confd_queries.QueryType.INSTANCE_LIST: instance_list,
    confd_queries.QueryType.INSTANCE_PRIMARY_NODES: instance_primary_nodes,
    confd_queries.QueryType.CONFIG_PART: config_part,
}


# Ten questions about each thing of a cluster of 5,000 instances need less than either.
KEPT_MAX: Final = 50_000
KEPT_BYTES_MAX: Final = 8_000_000
_KEPT_OVERHEAD_BYTES: Final = 500  # of a small entry, about


class Answerer:
    """Answers from one version of the configuration.

    Attributes:
        config: that version.
    """

    def __init__(self, config: Tables, signer: confd.Signer) -> None:
        self.config = config
        self._signer = signer
        self._kept: dict[tuple[int, bytes], confd.Sealable] = {}
        self._kept_bytes = 0

    def answer(self, data: bytes, now_s: int) -> bytes:
        """Return the answer to a datagram.

        Raises:
            ProtocolError: it gets none; the text says why.
        """
        request = confd.open_request(self._signer, data, now_s)
        key = (request.type, bytes(request.query))
        message = self._kept.get(key)
        if message is None:
            message = self._keep(key)
        packet = confd.seal(self._signer, request.rsalt, message)
        if len(packet) <= confd.DATAGRAM_BYTES_MAX:
            return packet
        packet = confd.seal(self._signer, request.rsalt, self._too_large(key, len(packet)))
        if len(packet) > confd.DATAGRAM_BYTES_MAX:
            raise ProtocolError(f"the salt for its answer has {len(request.rsalt)} characters")
        return packet

    def _keep(self, key: tuple[int, bytes]) -> confd.Sealable:
        message = confd.sealable(self._find(*key))
        if len(message.middle) > confd.DATAGRAM_BYTES_MAX:
            message = self._too_large(key, len(message.middle))
        size_bytes = len(key[1]) + sum(map(len, message)) + _KEPT_OVERHEAD_BYTES
        if len(self._kept) >= KEPT_MAX or self._kept_bytes + size_bytes > KEPT_BYTES_MAX:
            self._kept.clear()
            self._kept_bytes = 0
        self._kept[key] = message
        self._kept_bytes += size_bytes
        return message

    def _find(self, number: int, raw: bytes) -> bytes:
        """Return the message that answers a question."""
        try:
            handler = HANDLERS[confd_queries.QueryType(number)]
        except ValueError as err:
            raise ProtocolError(f"there is no query type {number}") from err
        question = confd_queries.decode_question(raw)
        try:
            return self._reply(confd.ReplyStatus.OK, handler(self.config, question))
        except Refused as err:
            return self._reply(confd.ReplyStatus.ERROR, b"%d" % err.kind)

    def _reply(self, status: confd.ReplyStatus, answer: bytes) -> bytes:
        """Return a message; refusals name their configuration too, as they may be the news."""
        return confd.reply_message(status, answer, self.config.serial_no)

    def _too_large(self, key: tuple[int, bytes], size_bytes: int) -> confd.Sealable:
        """Return the message that says that an answer cannot be sent, and how to ask instead."""
        query = confd_queries.QueryType(key[0])
        forms = query.paged_forms(confd_queries.decode_question(key[1]))
        pages = " or ".join(f"{form.label!r} (query type {form:d})" for form in forms)
        reason = (
            f"the answer has {size_bytes} bytes, {confd.DATAGRAM_BYTES_MAX} fit into a datagram;"
            f" ask for a part of it{pages and f', or for its pages by {pages}'}"
        )
        return confd.sealable(self._reply(confd.ReplyStatus.ERROR, dumps(reason)))
