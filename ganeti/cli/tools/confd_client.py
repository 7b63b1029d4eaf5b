"""``tools/confd-client``: ask RConfD by hand.

One command for each row of the table of queries, and one that tries them all.

Source: cli.json, "confd-client"; confd.json.
"""

from __future__ import annotations

import ipaddress
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti.base.errors import ConfdClientError, GenericError, ParameterError, TransportError
from ganeti.base.json import dumps
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, ArgKind, Context, Options, command, opt
from ganeti.cli.declaration.program import DEBUG, Command, Program
from ganeti.cli.declaration.values import Float
from ganeti.cli.run.listing import PLAIN_TABLE, print_plain
from ganeti.clients.confd import SETTLE_S, ConfdClient, candidate_addresses, read_key
from ganeti.protocol.confd import DEFAULT_PORT, EXPIRE_S, Answer, ErrorKind, ReplyStatus
from ganeti.protocol.confd_queries import Keys, MasterField, NodeRole, QueryType, Takes
from ganeti.system import clock
from ganeti.system.environment import resolve

FIELDS: Final[Mapping[str, MasterField]] = {
    "name": MasterField.NAME,
    "ip": MasterField.IP,
    "node-ip": MasterField.MNODE_PIP,
}
TEST: Final = "test"

_ARGUMENTS: Final[Mapping[Takes, tuple[opt.Argument, ...]]] = {
    Takes.NOTHING: (),
    Takes.NODE: (opt.Argument(ArgKind.NODE),),
    Takes.NODE_OR_UUID: (opt.Argument(ArgKind.NODE),),
    Takes.INSTANCE: (opt.Argument(ArgKind.INSTANCE),),
    Takes.ADDRESSES: (opt.Argument(ArgKind.TEXT, 1, None, metavar="ADDRESS"),),
    Takes.LINK: (opt.Argument(ArgKind.TEXT, 0, metavar="LINK"),),
    Takes.FIELDS: (opt.Argument(ArgKind.CHOICE, 0, None, choices=tuple(FIELDS)),),
    Takes.PATH: (opt.Argument(ArgKind.TEXT, metavar="PATH"),),
}
_LINK: Final = opt.option("--link", "link that the addresses are on; by default the cluster's")
_ALL: Final = opt.flag("--all", "show the answer of each candidate, not only the newest")
_SHOWN: Final = (
    *PLAIN_TABLE,
    opt.flag("--json", "print JSON: the answer, its serial number and the node that gave it"),
)
_COMMON: Final = (
    opt.option("--hmac=KEY", "key to sign with; by default that of this node"),
    opt.several(
        "-a --address",
        "candidate to ask, by address or name; by default those of this node's cluster",
    ),
    opt.number("-p --port", f"port to ask at; by default {DEFAULT_PORT}", default=DEFAULT_PORT),
    opt.option(
        "--timeout",
        f"seconds to wait for an answer; by default {EXPIRE_S:g}",
        Float,
        default=EXPIRE_S,
    ),
    DEBUG,
)


Rows = list[list[object]]
_BY_NAME: Final = {query.label: query for query in QueryType}
_SETTLE_ALL_S: Final = 1.0  # a user who wants to see all answers has time
_NOTHING: Final = ""
_MICROSECONDS: Final = 1_000_000


def _list(value: Any, _args: Sequence[str]) -> Rows:
    return [[item] for item in value]


def _node_role(value: Any, args: Sequence[str]) -> Rows:
    role = NodeRole(value).name.lower() if value in tuple(NodeRole) else value
    return [[args[0], role]]


def _instance_node(value: Any, args: Sequence[str]) -> Rows:
    """Show one answer, or the list of those for several addresses."""
    if isinstance(value, str):
        return [[args[0], value]]
    return [
        [address, answer if status == ReplyStatus.OK else _refusal(answer)]
        for address, (status, answer, _serial) in zip(args, value, strict=True)
    ]


def _refusal(kind: object) -> str:
    return "-" if kind == ErrorKind.UNKNOWN_ENTRY else f"error {kind}"


def _master(value: Any, args: Sequence[str]) -> Rows:
    if isinstance(value, str):
        return [["name", value]]
    return [[field, item] for field, item in zip(args, value, strict=True)]


def _with_roles(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each instance in an answer about a node, after the role of the node for it."""
    for role, instances in zip(("primary", "secondary"), value, strict=True):
        yield from ((role, one) for one in instances)


def _node_instances(value: Any, _args: Sequence[str]) -> Rows:
    return [
        [one.get("name"), role, one.get("admin_state"), one.get("uuid")]
        for role, one in _with_roles(value)
    ]


def _node_serials(value: Any, _args: Sequence[str]) -> Rows:
    return [[uuid, role, serial] for role, (uuid, serial) in _with_roles(value)]


def _disks(value: Any, _args: Sequence[str]) -> Rows:
    return [
        [f"disk/{index}", disk.get("dev_type"), disk.get("size"), disk.get("uuid")]
        for index, disk in enumerate(value)
    ]


def _collectors(value: Any, _args: Sequence[str]) -> Rows:
    return [
        [name, switch["active"], switch["interval"] / _MICROSECONDS]
        for name, switch in sorted(value.items())
    ]


def _as_json(value: Any, _args: Sequence[str]) -> Rows:
    return [[dumps(value).decode()]]


def _entries(value: Any, _args: Sequence[str]) -> Rows:
    return [[dumps(entry).decode()] for entry in value]


# How the answer to each question is shown: the titles and the rows.
TABLES: Final[Mapping[QueryType, tuple[str, Callable[[Any, Sequence[str]], Rows]]]] = {
    QueryType.PING: ("Version", lambda value, _args: [[value]]),
    QueryType.NODE_ROLE: ("Node Role", _node_role),
    QueryType.NODE_PIP_BY_INSTANCE_IP: ("Address NodeIP", _instance_node),
    QueryType.CLUSTER_MASTER: ("Field Value", _master),
    QueryType.NODE_PIP_LIST: ("NodeIP", _list),
    QueryType.MC_PIP_LIST: ("NodeIP", _list),
    QueryType.INSTANCES_IPS_LIST: ("Address", _list),
    QueryType.NODE_DRBD: ("Node Minor Instance Disk Role Peer", lambda value, _args: value),
    QueryType.NODE_INSTANCES: ("Instance Role State UUID", _node_instances),
    QueryType.INSTANCE_DISKS: ("Disk Type Size UUID", _disks),
    QueryType.CONFIG_QUERY: ("Value", _as_json),
    QueryType.DATA_COLLECTORS: ("Collector Active Interval", _collectors),
    QueryType.NODE_INSTANCE_SERIALS: ("UUID Role Serial", _node_serials),
    QueryType.NODE_DRBD_PART: ("Node Minor Instance Disk Role Peer", lambda value, _args: value),
    QueryType.OFFLINE_NODES: ("Node", _list),
    QueryType.INSTANCE_LIST: ("Instance", _list),
    QueryType.INSTANCE_PRIMARY_NODES: ("Instance Node", lambda value, _args: value),
    QueryType.CONFIG_PART: ("Value", _entries),
}


def ask(context: Context, options: Options, args: list[str]) -> int:
    """Ask one question and show the answer."""
    query = _BY_NAME[context.command.name]
    question = _question(query, options, args)
    with _client(context, options) as client:
        answers = _ask_all(client, query, question)
    newest = answers[0]
    shows_all = bool(options.get("all"))
    value = None if shows_all else newest.check()
    titles, rows = TABLES[query]
    if options.json:
        plain = [_plain(answer) for answer in answers]
        context.write(dumps(plain if shows_all else plain[0]).decode())
    elif shows_all:
        told: Rows = [
            [answer.peer, answer.status.name.lower(), answer.serial, dumps(answer.value).decode()]
            for answer in answers
        ]
        print_plain(context, options, ["Candidate", "Status", "Serial", "Answer"], told)
    else:
        print_plain(context, options, titles.split(), rows(value, args))
    return EXIT_SUCCESS if newest.status is ReplyStatus.OK else EXIT_FAILURE


def _ask_all(client: ConfdClient, query: QueryType, question: object) -> list[Answer]:
    try:
        if query.is_paged:
            return [client.read_list(query, "" if question is None else str(question))]
        return client.ask_all(query, question)
    except TransportError as err:  # the master has no part in it
        raise GenericError(err.message) from err


def _plain(answer: Answer) -> dict[str, object]:
    return {
        "peer": answer.peer,
        "status": answer.status,
        "serial": answer.serial,
        "answer": answer.value,
    }


def _question(query: QueryType, options: Options, args: Sequence[str]) -> object:
    """Return the argument of a request."""
    match query.takes:
        case Takes.ADDRESSES if len(args) == 1:
            return Keys(link=options.link, ip=args[0])
        case Takes.ADDRESSES:
            return Keys(link=options.link, iplist=tuple(args))
        case Takes.FIELDS:
            return Keys(fields=tuple(FIELDS[name] for name in args)) if args else None
    return args[0] if args else None


def _client(context: Context, options: Options) -> ConfdClient:
    """Return a client for the nodes and the key that the options name."""
    if options.timeout <= 0:
        raise ParameterError(f"--timeout must be more than 0, not {options.timeout:g}")
    key = read_key(context.paths) if options.hmac is None else _as_in_file(options.hmac)
    addresses = [_address(context, text) for text in options.address]
    addresses = addresses or candidate_addresses(context.paths)
    return ConfdClient(
        key,
        addresses,
        port=options.port,
        timeout_s=options.timeout,
        settle_s=_SETTLE_ALL_S if options.get("all") else SETTLE_S,
    )


def _address(context: Context, text: str) -> str:
    """Return the address of a candidate given by address or name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return resolve(text, context.paths)[1]
    return text


def _as_in_file(key: str) -> bytes:
    """Return a key as it stands in its file, with the end of the line, which belongs to it."""
    return key.removesuffix("\n").encode() + b"\n"


def try_all(context: Context, options: Options, _args: list[str]) -> int:
    """Ask every question, then one many times over."""
    if options.requests < 1:
        raise ParameterError(f"--requests must be at least 1, not {options.requests}")
    with _client(context, options) as client:
        _ask_all(client, QueryType.PING, None)
        failed = sum(not _try(context, client, query) for query in QueryType)
        _measure(context, client, options.requests)
    return EXIT_FAILURE if failed else EXIT_SUCCESS


def _try(context: Context, client: ConfdClient, query: QueryType) -> bool:
    begun_s = clock.monotonic()
    try:
        question = _example_or_nothing(client, query)
        if question == _NOTHING:
            context.write(f"{query.label:16} -   there is nothing to ask about")
            return True
        answer = _ask_all(client, query, question)[0]
        value = answer.check()
    except GenericError as err:
        context.write(f"{query.label:16} FAILED: {err.message}")
        return False
    took_ms = (clock.monotonic() - begun_s) * 1000
    size = len(dumps(value))
    context.write(
        f"{query.label:16} ok  {size:6} bytes  serial {answer.serial:5}  {took_ms:6.1f} ms"
    )
    return True


def _example_or_nothing(client: ConfdClient, query: QueryType) -> object:
    try:
        return _example(client, query)
    except ConfdClientError:  # a list of all that there is may be too long for an answer
        return _NOTHING


def _example(client: ConfdClient, query: QueryType) -> object:
    """Return something to ask about that is there."""
    match query.takes:
        case Takes.NODE | Takes.NODE_OR_UUID:
            return client.value(QueryType.CLUSTER_MASTER)
        case Takes.INSTANCE:
            instances = client.read_list(QueryType.INSTANCE_LIST).value
            return next(iter(instances if isinstance(instances, list) else ()), _NOTHING)
        case Takes.ADDRESSES:
            found = client.value(QueryType.INSTANCES_IPS_LIST)
            return Keys(iplist=tuple(map(str, found if isinstance(found, list) else ())))
        case Takes.FIELDS:
            return Keys(fields=tuple(FIELDS.values()))
        case Takes.PATH:
            return "/cluster/enabled_hypervisors"
    return None


def _measure(context: Context, client: ConfdClient, count: int) -> None:
    times_ms = []
    for _ in range(count):
        begun_s = clock.monotonic()
        client.ask(QueryType.PING)
        times_ms.append((clock.monotonic() - begun_s) * 1000)
    times_ms.sort()
    slow_ms = times_ms[int(len(times_ms) * 0.99)]
    context.write(
        f"{count} requests: median {statistics.median(times_ms):.2f} ms,"
        f" 99 of 100 under {slow_ms:.2f} ms"
    )


_EXAMPLES: Final = {
    "ping": "confd-client ping --all  # the candidates that answer",
    "master": "confd-client master name ip node-ip  # all that there is to know",
    "config": """
confd-client config /cluster/cluster_name  # the name of the cluster
confd-client config /cluster/enabled_hypervisors/0  # one item of a list""",
    "primary-nodes": "confd-client primary-nodes --no-headers --separator=:  # for a script",
    "config-part": "confd-client config-part /instances  # all instances, a line each",
    "instance-node": "confd-client instance-node 192.0.2.7 --json  # for a script",
}


def _command(query: QueryType) -> Command:
    asks = ", one page after the other, and shows all" if query.is_paged else ""
    return command(
        ask,
        _ARGUMENTS[query.takes],
        (_LINK,) if query.takes is Takes.ADDRESSES else (),
        () if query.is_paged else (_ALL,),
        _SHOWN,
        title=f"{query.label}: {query.summary}",
        description=f"Asks {query.constant}{asks}.  {query.answer_described}",
        examples=_EXAMPLES.get(query.label, ()),
    )


PROGRAM: Final = Program(
    "confd-client",
    "ask the configuration query daemons of a cluster",
    """Asks up to six master candidates at once and shows the newest answer, the one with the
highest serial number.  Works on every node, also while the master is away, and on any machine that
is given the key and an address.  Without a command it does the same as with 'test'.""",
    (
        *map(_command, QueryType),
        command(
            try_all,
            opt.number(
                "-r --requests",
                "how many requests to measure with, one after the other",
                default=100,
            ),
            title=f"{TEST}: try every question, and measure how fast answers come",
            description="""Asks about objects that earlier answers named.  The exit status is 0 if
            every question was answered.""",
            examples="confd-client test -a 192.0.2.1 -r 1000  # as of Ganeti 3.0",
        ),
    ),
    is_interspersed=True,
    common_options=_COMMON,
)


def main() -> int:
    """Run ``confd-client`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM, with_command(sys.argv[1:]))


def with_command(words: list[str]) -> list[str]:
    """Return the words with a command in front: that of 3.0 has options only."""
    asks_help = words[:1] in (["--help"], ["-h"], ["--version"])
    if (not words or words[0].startswith("-")) and not asks_help:
        return [TEST, *words]
    return words
