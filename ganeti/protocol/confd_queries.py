"""What RConfD can be asked: one table for the daemon, the client, its command and the manual.

Those from `OWN_TYPES_FROM` on are additions to what Ganeti 3.0 knows, whose daemons do not answer
them.

Source: confd.json, "query_types".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

import msgspec
from msgspec import Raw

from ganeti.base.errors import ProtocolError

OWN_TYPES_FROM: Final = 100  # far from the next number that somebody else may take


class QueryType(IntEnum):
    """The number of a question."""

    PING = 0
    NODE_ROLE = 1
    NODE_PIP_BY_INSTANCE_IP = 2
    CLUSTER_MASTER = 3
    NODE_PIP_LIST = 4
    MC_PIP_LIST = 5
    INSTANCES_IPS_LIST = 6
    NODE_DRBD = 7
    NODE_INSTANCES = 8
    INSTANCE_DISKS = 9
    CONFIG_QUERY = 10
    DATA_COLLECTORS = 11
    NODE_INSTANCE_SERIALS = OWN_TYPES_FROM
    NODE_DRBD_PART = OWN_TYPES_FROM + 1


class NodeRole(IntEnum):
    """The role of a node, as answered."""

    MASTER = 0
    CANDIDATE = 1
    OFFLINE = 2
    DRAINED = 3
    REGULAR = 4


class MasterField(IntEnum):
    """What can be asked of the master."""

    NAME = 0
    IP = 1
    MNODE_PIP = 2


class Keys(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A question with several parts; the keys on the wire are digits."""

    link: str | None = msgspec.field(default=None, name="0")
    ip: str | None = msgspec.field(default=None, name="1")
    iplist: tuple[str, ...] | None = msgspec.field(default=None, name="2")
    fields: tuple[MasterField, ...] | None = msgspec.field(default=None, name="3")


Question = str | Keys | None

_questions: Final[msgspec.json.Decoder[Question]] = msgspec.json.Decoder(str | Keys | None)


def decode_question(raw: Raw | bytes) -> Question:
    """Understand what a request asks about.

    Raises:
        ProtocolError: neither null nor a text nor an object of the known keys.
    """
    try:
        return _questions.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as err:
        raise ProtocolError(f"a malformed query: {err}") from err


class Takes(StrEnum):
    """What a question takes besides its type."""

    NOTHING = "nothing"
    NODE = "the name of a node"
    NODE_OR_UUID = "the name or UUID of a node"
    INSTANCE = "the name or UUID of an instance"
    ADDRESSES = "addresses, and perhaps the link that they are on"
    LINK = "a link, or nothing for the cluster's default"
    FIELDS = "fields, or nothing for the name"
    PATH = "a JSON pointer into the configuration"


@dataclass(frozen=True, slots=True)
class Query:
    """One question: its number, its name in commands and in the protocol, what it is about."""

    type: QueryType
    name: str
    takes: Takes
    summary: str
    answer: str

    @property
    def constant(self) -> str:
        """Its name in the protocol."""
        suffix = "_BYNAME" if self.type is QueryType.NODE_ROLE else ""
        return f"CONFD_REQ_{self.type.name}{suffix}"


_ROWS: Final = (
    Query(
        QueryType.PING,
        "ping",
        Takes.NOTHING,
        "ask whether it answers",
        "the version of the configuration's format, a number",
    ),
    Query(
        QueryType.NODE_ROLE,
        "node-role",
        Takes.NODE,
        "show the role of a node",
        "0 for the master, 1 a master candidate, 2 offline, 3 drained, 4 for any other node",
    ),
    Query(
        QueryType.NODE_PIP_BY_INSTANCE_IP,
        "instance-node",
        Takes.ADDRESSES,
        "show on which node the instance with an address runs",
        "the primary address of its primary node; for a list of addresses a list of [status,"
        " answer, serial number]",
    ),
    Query(
        QueryType.CLUSTER_MASTER,
        "master",
        Takes.FIELDS,
        "show which node is the master",
        "its name; for a list of fields the list of their values: 0 for its name, 1 for the address"
        " of the cluster, 2 for the primary address of the master node",
    ),
    Query(
        QueryType.NODE_PIP_LIST,
        "node-ips",
        Takes.NOTHING,
        "list the primary addresses of all nodes",
        "a list of addresses",
    ),
    Query(
        QueryType.MC_PIP_LIST,
        "candidate-ips",
        Takes.NOTHING,
        "list the primary addresses of the master candidates",
        "a list of addresses",
    ),
    Query(
        QueryType.INSTANCES_IPS_LIST,
        "instance-ips",
        Takes.LINK,
        "list the addresses of the instances on a link",
        "a list of addresses",
    ),
    Query(
        QueryType.NODE_DRBD,
        "node-drbd",
        Takes.NODE_OR_UUID,
        "list the DRBD devices of a node",
        'a list of [node, minor, instance, "disk/N", "primary" or "secondary", the other node];'
        " with the serial number of the node",
    ),
    Query(
        QueryType.NODE_INSTANCES,
        "node-instances",
        Takes.NODE_OR_UUID,
        "list the instances of a node",
        "[instances whose primary node it is, instances whose secondary node it is], objects as in"
        " the configuration; with the serial number of the node",
    ),
    Query(
        QueryType.INSTANCE_DISKS,
        "instance-disks",
        Takes.INSTANCE,
        "list the disks of an instance",
        "objects as in the configuration; with the serial number of the instance",
    ),
    Query(
        QueryType.CONFIG_QUERY,
        "config",
        Takes.PATH,
        "show a part of the configuration",
        "what stands there",
    ),
    Query(
        QueryType.DATA_COLLECTORS,
        "data-collectors",
        Takes.NOTHING,
        "list the data collectors of the monitoring daemon and how they are switched",
        '{name: {"active": true or false, "interval": microseconds}}',
    ),
    Query(
        QueryType.NODE_INSTANCE_SERIALS,
        "instance-serials",
        Takes.NODE_OR_UUID,
        "list the instances of a node by UUID and serial number, also where they are many",
        "[instances whose primary node it is, instances whose secondary node it is], [UUID, serial"
        " number] each; with the serial number of the configuration; not known to Ganeti 3.0",
    ),
    Query(
        QueryType.NODE_DRBD_PART,
        "node-drbd-part",
        Takes.NODE_OR_UUID,
        "list the DRBD devices of a node in parts, where they are many; NODE/100 asks for those"
        " after the first 100",
        "[as many as fit of what node-drbd answers, how many there are of them before the next part"
        " or null]; with the serial number of the configuration; not known to Ganeti 3.0",
    ),
)
QUERIES: Final[Mapping[QueryType, Query]] = {query.type: query for query in _ROWS}
