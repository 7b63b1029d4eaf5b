"""``gnt-debug wconfd`` and ``metad``: methods of these daemons by short words, or any by its name.

Source: cli.json, "gnt-debug"; wconfd.json, "methods".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ganeti.base import json
from ganeti.base.errors import (
    ErrorCode,
    GenericError,
    NotMasterError,
    OpPrereqError,
    ProtocolError,
    TransportError,
)
from ganeti.base.paths import Paths
from ganeti.cli.command import Context, Options, command
from ganeti.cli.run.listing import is_job_number
from ganeti.transport.unix_client import NobodyListensError, UnixClient

CONNECT_TIMEOUT_S: Final = 5.0
METAD_TIMEOUT_S: Final = 10.0
FLUSH_TIMEOUT_S: Final = 120.0  # the daemon itself gives up after 60


def wconfd(context: Context, _options: Options, args: list[str]) -> None:
    """Talk to the configuration daemon.

    Raises:
        OpPrereqError: the words are not understood.
        NotMasterError: there is no WConfD here, another node is the master.
    """
    _check_master(context.paths)
    word, *words = args
    connection = UnixClient(
        context.paths.wconfd_socket, connect_timeout_s=CONNECT_TIMEOUT_S, timeout_s=FLUSH_TIMEOUT_S
    )
    try:
        if word in _WORDS:
            context.terminal.write_lines(_short(connection, word, words))
        else:
            context.write(json.dumps(connection.call(word, _decode(words))).decode())
    finally:
        connection.close()


def metad(context: Context, _options: Options, args: list[str]) -> None:
    """Talk to the metadata daemon.

    Raises:
        OpPrereqError: the words are not understood, or the daemon does not run here.
        GenericError: it does not answer.
    """
    path = context.paths.metad_socket
    try:
        with UnixClient(
            path, connect_timeout_s=CONNECT_TIMEOUT_S, timeout_s=METAD_TIMEOUT_S
        ) as connection:
            _ask_metad(context, connection, args)
    except NobodyListensError as err:
        raise OpPrereqError(
            f"the metadata daemon does not run on this node ({err.message}); it is started with the"
            " first instance that communicates with the node, see ganeti-metad(8)",
            ErrorCode.STATE,
        ) from err
    except TransportError as err:
        raise GenericError(f"the metadata daemon of this node: {err.message}") from err


def _ask_metad(context: Context, connection: UnixClient, args: list[str]) -> None:
    word, *words = args
    if word == "echo":
        context.write(str(connection.call("echo", [" ".join(words)])))
    elif word == "listinstances" and not words:
        match connection.call("listInstances", []):
            case dict() as found:
                lines = [f"{name}: {address}" for name, address in found.items()]
                context.terminal.write_lines(lines)
    else:
        context.write(json.dumps(connection.call(word, _decode(words))).decode())


def _check_master(paths: Paths) -> None:
    """Refuse to run on a node where there can be no WConfD."""
    from ganeti.store import ssconf
    from ganeti.system.environment import own_hostname

    master = ssconf.read_key_or_none(paths, "master_node")
    if master != own_hostname():
        raise NotMasterError("this is not the master node", master or None)


def _decode(words: Sequence[str]) -> list[object]:
    try:
        return [json.loads(word) for word in words]
    except ProtocolError as err:
        raise OpPrereqError(f"arguments of methods are JSON: {err.message}") from err


def _list_locks(connection: UnixClient, words: Sequence[str]) -> list[str]:
    if len(words) != 1 or not is_job_number(words[0]):
        raise OpPrereqError("whose locks? for example: gnt-debug wconfd listlocks 12")
    client = client_of_job(_status(connection), int(words[0]))
    if client is None:
        return [f"Job {words[0]} holds no locks and waits for none."]
    held = connection.call("listLocks", [client])
    return format_held(held) or [f"Job {words[0]} holds no locks; it waits for some."]


def _status(connection: UnixClient) -> tuple[object, object]:
    match connection.call("listLocksWaitingStatus", []):
        case [owners, waiters]:
            return owners, waiters
        case answer:
            raise ProtocolError(f"unexpected answer about locks: {answer!r:.80}")


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


# The meaning of the answers, and their form on the screen.  Plain functions over plain values.


def client_of_job(status: tuple[object, object], job_id: int) -> object:
    """Return how WConfD knows a job that holds or waits for something, or None."""
    owners, waiters = status
    clients = [client for _, held in _pairs(owners) for client, _ in _pairs(held)]
    clients += [row[1] for row in _items(waiters) if isinstance(row, list) and len(row) == 3]
    for client in clients:
        if isinstance(client, list) and client and client[0] == job_id:
            return client
    return None


def _pairs(value: object) -> Iterable[tuple[object, object]]:
    return [(row[0], row[1]) for row in _items(value) if isinstance(row, list) and len(row) == 2]


def client_name(client: object) -> str:
    """Return how people call an owner of locks."""
    match client:
        case [int(job_id), *_]:
            return f"job {job_id}"
        case [identifier, *_]:
            return str(identifier)
    return str(client)


def format_held(held: object) -> list[str]:
    """Return one line for each lock of one owner."""
    return [f"{lock}: {mode}" for lock, mode in _pairs(held)]


def format_owners(owners: object) -> list[str]:
    """Return one line for each lock, with its owners."""
    return [
        f"{lock}: " + ", ".join(f"{client_name(client)} ({mode})" for client, mode in _pairs(held))
        for lock, held in _pairs(owners)
    ]


def format_waiters(waiters: object) -> list[str]:
    """Return one line for each request that waits."""
    lines = []
    for row in _items(waiters):
        match row:
            case [priority, client, request]:
                wanted = ", ".join(f"{lock} ({mode})" for lock, mode in _pairs(request))
                lines.append(f"{client_name(client)} waits with priority {priority}: {wanted}")
    return lines


def _short(connection: UnixClient, word: str, words: Sequence[str]) -> list[str]:
    """Return the lines about the answer to one of the short words."""
    if word == "echo":
        return [str(connection.call("echo", [" ".join(words)]))]
    if word == "listlocks":
        return _list_locks(connection, words)
    if words:
        raise OpPrereqError(f"this takes no argument, {words[0]!r} was given")
    if word == "listlockswaitingstatus":
        owners, waiters = _status(connection)
        return [*format_owners(owners), *format_waiters(waiters)]
    method, show = SHORT[word]
    return show(connection.call(method, []))


SHORT: Final[Mapping[str, tuple[str, Callable[[object], list[str]]]]] = {
    "cleanuplocks": ("cleanupLocks", lambda _: ["Freed the locks of dead owners."]),
    "listalllocks": ("listAllLocks", lambda names: [str(name) for name in _items(names)]),
    "listalllocksowners": ("listAllLocksOwners", format_owners),
    "flushconfig": ("flushConfig", lambda _: [_FLUSHED]),
}
"""Methods without arguments, and the lines about their answers."""
_FLUSHED: Final = "The configuration is on enough master candidates."
_WORDS: Final = ("echo", "listlocks", "listlockswaitingstatus", *SHORT)
COMMANDS: Final = (
    command(
        metad,
        "<word>...",
        description="""Talks to the metadata daemon of this node.  The words are one of: echo TEXT;
listinstances, the addresses at which instances ask.  Any other method is called by its name, with
its arguments as JSON; the answer is printed as JSON.""",
        examples="""
gnt-debug metad echo hello  # see that it answers
gnt-debug metad listinstances  # who it knows
gnt-debug metad forgetInstance '"web1.example.com"'  # answer it no more""",
    ),
    command(
        wconfd,
        "<word>...",
        description="""The words are one of: echo TEXT; cleanuplocks, to free the locks of dead
owners; listlocks JOB, the locks of a job; listalllocks; listalllocksowners;
listlockswaitingstatus, owners and waiters; flushconfig, to return once the configuration is on
enough master candidates.  Any other method is called by its name, with its arguments as JSON; the
answer is printed as JSON.""",
        examples="""
gnt-debug wconfd echo hello  # see that it answers
gnt-debug wconfd listlocks 12  # the locks of job 12
gnt-debug wconfd getNodes '["node1"]'  # a node as it is stored""",
    ),
)
