"""The questions to RConfD: one table for the daemon, the client, its command and the manual.

Types from `OWN_TYPES_FROM` on are not in Ganeti 3.0, whose daemons do not answer them.

Lists of any length are answered in pages, each of which fits into a datagram.  The query of a page
is ``KEY/FIRST``: the argument of the question, which may be empty, and how many entries to leave
out.  Null asks for the first page, and so does a KEY without a slash.  The answer is ``[entries,
FIRST of the next page or null]``.  Pages belong together if their answers have the same serial
number.

Source: confd.json, "query_types"; design 2.1, "Ganeti Confd", for the lists of instances, their
primary nodes, and the nodes that are offline.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final, Self

import msgspec
from msgspec import Raw

from ganeti.base.errors import ProtocolError

OWN_TYPES_FROM: Final = 100  # far from the next number that somebody else may take


class NodeRole(IntEnum):
    """The role of a node, as answered."""

    MASTER = 0
    CANDIDATE = 1
    OFFLINE = 2
    DRAINED = 3
    REGULAR = 4


class MasterField(IntEnum):
    """The facts about the master that can be asked for."""

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
    """Decode the argument of a request.

    Raises:
        ProtocolError: neither null nor a text nor an object of the known keys.
    """
    try:
        return _questions.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as err:
        raise ProtocolError(f"a malformed query: {err}") from err


class Takes(StrEnum):
    """The argument of a question besides its type."""

    NOTHING = "nothing"
    NODE = "the name of a node"
    NODE_OR_UUID = "the name or UUID of a node"
    INSTANCE = "the name or UUID of an instance"
    ADDRESSES = "addresses, and perhaps the link that they are on"
    LINK = "a link, or nothing for the cluster's default"
    FIELDS = "fields, or nothing for the name"
    PATH = "a JSON pointer into the configuration"


def page_query(key: str, first: int) -> str:
    """Return the query of a page."""
    return f"{key}/{first}"


def split_page_query(query: str | None) -> tuple[str, str]:
    """Return KEY and FIRST in the query of a page."""
    if query is None or "/" not in query:
        return query or "", "0"
    key, _slash, first = query.rpartition("/")
    return key, first


def _row(
    number: int, label: str, takes: Takes, summary: str, answer: str, *, pages_of: str = ""
) -> tuple[int, str, Takes, str, str, str]:
    return number, label, takes, summary, answer, pages_of


class QueryType(IntEnum):
    """One question: its number, its name in commands, its argument, its purpose, its answer.

    ``pages_of`` is for questions answered in pages: the question, as a command, that has the same
    answer in one piece; its own name if there is none.  The answer is then that of all pages.
    """

    _value_: int
    label: str
    takes: Takes
    summary: str
    answer: str
    pages_of: str

    # Looking up a member by its number needs no more.
    def __new__(
        cls, number: int, label: str = "", takes: Takes = Takes.NOTHING, *texts: str
    ) -> Self:
        """Make a member from its row."""
        made = int.__new__(cls, number)
        made._value_, made.label, made.takes = number, label, takes
        made.summary, made.answer, made.pages_of = texts
        return made

    @property
    def constant(self) -> str:
        """Its name in the protocol."""
        suffix = "_BYNAME" if self is QueryType.NODE_ROLE else ""
        return f"CONFD_REQ_{self.name}{suffix}"

    @property
    def is_paged(self) -> bool:
        """Whether it is answered in pages."""
        return bool(self.pages_of)

    @property
    def answer_described(self) -> str:
        """What it answers, as a sentence."""
        pages = "in pages " if self.is_paged else ""
        origin = "; not known to Ganeti 3.0" if self >= OWN_TYPES_FROM else ""
        return f"Answers {pages}{self.answer}{origin}."

    def paged_forms(self, question: object) -> list[Self]:
        """Return the questions that have the answer to this one in pages."""
        meant = (self.label, f"{self.label} {question}")
        return [query for query in type(self) if query is not self and query.pages_of in meant]

    PING = _row(
        0,
        "ping",
        Takes.NOTHING,
        "ask whether it answers",
        "the version of the configuration's format, a number",
    )
    NODE_ROLE = _row(
        1,
        "node-role",
        Takes.NODE,
        "show the role of a node",
        "0 for the master, 1 a master candidate, 2 offline, 3 drained, 4 for any other node",
    )
    NODE_PIP_BY_INSTANCE_IP = _row(
        2,
        "instance-node",
        Takes.ADDRESSES,
        "show on which node the instance with an address runs",
        "the primary address of its primary node; for a list of addresses a list of [status,"
        " answer, serial number]",
    )
    CLUSTER_MASTER = _row(
        3,
        "master",
        Takes.FIELDS,
        "show which node is the master",
        "its name; for a list of fields the list of their values: 0 for its name, 1 for the address"
        " of the cluster, 2 for the primary address of the master node",
    )
    NODE_PIP_LIST = _row(
        4,
        "node-ips",
        Takes.NOTHING,
        "list the primary addresses of all nodes",
        "a list of addresses",
    )
    MC_PIP_LIST = _row(
        5,
        "candidate-ips",
        Takes.NOTHING,
        "list the primary addresses of the master candidates",
        "a list of addresses",
    )
    INSTANCES_IPS_LIST = _row(
        6,
        "instance-ips",
        Takes.LINK,
        "list the addresses of the instances on a link",
        "a list of addresses",
    )
    NODE_DRBD = _row(
        7,
        "node-drbd",
        Takes.NODE_OR_UUID,
        "list the DRBD devices of a node",
        'a list of [node, minor, instance, "disk/N", "primary" or "secondary", the other node]',
    )
    NODE_INSTANCES = _row(
        8,
        "node-instances",
        Takes.NODE_OR_UUID,
        "list the instances of a node",
        "[instances whose primary node it is, instances whose secondary node it is], objects as in"
        " the configuration",
    )
    INSTANCE_DISKS = _row(
        9,
        "instance-disks",
        Takes.INSTANCE,
        "list the disks of an instance",
        "objects as in the configuration",
    )
    CONFIG_QUERY = _row(
        10, "config", Takes.PATH, "show a part of the configuration", "the value at that place"
    )
    DATA_COLLECTORS = _row(
        11,
        "data-collectors",
        Takes.NOTHING,
        "list the data collectors of the monitoring daemon and how they are switched",
        '{name: {"active": true or false, "interval": microseconds}}',
    )
    NODE_INSTANCE_SERIALS = _row(
        OWN_TYPES_FROM,
        "instance-serials",
        Takes.NODE_OR_UUID,
        "list the instances of a node by UUID and serial number, also where they are many",
        "[instances whose primary node it is, instances whose secondary node it is], [UUID, serial"
        " number] each",
    )
    NODE_DRBD_PART = _row(
        OWN_TYPES_FROM + 1,
        "node-drbd-part",
        Takes.NODE_OR_UUID,
        "list the DRBD devices of a node, also where they are many",
        "what node-drbd answers",
        pages_of="node-drbd",
    )
    OFFLINE_NODES = _row(
        OWN_TYPES_FROM + 2,
        "offline-nodes",
        Takes.NOTHING,
        "list the nodes that are offline",
        "a list of names",
        pages_of="offline-nodes",
    )
    INSTANCE_LIST = _row(
        OWN_TYPES_FROM + 3,
        "instances",
        Takes.NOTHING,
        "list all instances",
        "a list of names",
        pages_of="config /instances",
    )
    INSTANCE_PRIMARY_NODES = _row(
        OWN_TYPES_FROM + 4,
        "primary-nodes",
        Takes.NOTHING,
        "list all instances and their primary nodes",
        "a list of [name of the instance, name of the node]",
        pages_of="config /instances",
    )
    CONFIG_PART = _row(
        OWN_TYPES_FROM + 5,
        "config-part",
        Takes.PATH,
        "show an object or a list in the configuration, also where it is large",
        "a list of [key, value] for an object, of values for a list",
        pages_of="config",
    )
