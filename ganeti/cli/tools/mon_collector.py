"""``tools/mon-collector``: print the report of one data collector of the monitoring daemon.

The sources of a collector may be files.

Source: cli.json, "mon_collector"; mond.json, "command_line".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.json import dumps, loads
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, ArgKind, Context, Options, command, opt
from ganeti.cli.declaration.program import DEBUG, VERSION, Program
from ganeti.clients import confd
from ganeti.clients.confd import AsyncConfdClient
from ganeti.collectors import cluster_facts
from ganeti.collectors.cluster_facts import ClusterFacts
from ganeti.collectors.collector import Collector, NodeView, read_text
from ganeti.collectors.diagnose import Diagnose
from ganeti.collectors.diskstats import DISKSTATS, Diskstats
from ganeti.collectors.drbd import Drbd
from ganeti.collectors.kvm import KvmInstanceStatus
from ganeti.collectors.lv import LogicalVolumes
from ganeti.collectors.node_lookup import Ask, NodeLookup, value_or_none
from ganeti.collectors.xen import XenInstanceStatus
from ganeti.protocol.confd import DEFAULT_PORT
from ganeti.protocol.confd_queries import QueryType
from ganeti.system import clock
from ganeti.system.environment import own_hostname

_ADDRESS: Final = opt.option("-a --address=IP_ADDR", "address of the RConfD to ask")
_PORT: Final = opt.number("-p --port", "its port")


def _file(flags: str, help: str) -> opt.Option:
    return opt.option(flags, help, metavar="FILE", completes=ArgKind.FILE)


Question: TypeAlias = Callable[[NodeLookup, Ask], Awaitable[ClusterFacts]]

_TIMEOUT_S: Final = 5.0
_DIAGNOSE_COMMAND: Final = "/cluster/diagnose_data_collector_filename"


def diskstats(context: Context, options: Options, _args: list[str]) -> int:
    """The kernel's counters of each block device."""
    return _print(context, Diskstats(options.file or DISKSTATS), ClusterFacts(problem=None))


def drbd(context: Context, options: Options, _args: list[str]) -> int:
    """How the DRBD devices are."""
    if options.drbd_pairing is not None:
        owners = cluster_facts.decode_drbd_owners(_load(options.drbd_pairing))
        facts = ClusterFacts(problem=None, drbd_owners=owners)
    else:
        facts = _asked(context, options, _drbd_facts)
    collector = Drbd(options.drbd_status or "")
    return _print(context, collector, facts)


async def _drbd_facts(lookup: NodeLookup, _ask: Ask) -> ClusterFacts:
    owners, instances = await lookup.drbd_owners(), await lookup.instances()
    return ClusterFacts(problem=None, drbd_owners=owners, instances=instances)


def inst_status_xen(context: Context, options: Options, _args: list[str]) -> int:
    """The actual and the wanted state of the Xen instances."""
    return _print(context, XenInstanceStatus(), _asked(context, options, _instance_facts))


def inst_status_kvm(context: Context, options: Options, _args: list[str]) -> int:
    """The actual and the wanted state of the KVM instances."""
    return _print(context, KvmInstanceStatus(), _asked(context, options, _instance_facts))


async def _instance_facts(lookup: NodeLookup, _ask: Ask) -> ClusterFacts:
    return ClusterFacts(problem=None, instances=await lookup.instances())


def lv(context: Context, options: Options, _args: list[str]) -> int:
    """The logical volumes and whose they are."""
    if options.instances is not None:
        known = cluster_facts.decode_instances(_load(options.instances))
        owners = cluster_facts.owners_of_volumes((*known.primary, *known.secondary))
        facts = ClusterFacts(problem=None, volume_owners=owners)
    else:
        facts = _asked(context, options, _volume_facts)
    return _print(context, LogicalVolumes(options.file), facts)


async def _volume_facts(lookup: NodeLookup, _ask: Ask) -> ClusterFacts:
    owners = await lookup.volume_owners(await lookup.instances())
    return ClusterFacts(problem=None, volume_owners=owners)


def diagnose(context: Context, options: Options, _args: list[str]) -> int:
    """The output of the node's diagnose command, signed."""
    return _print(context, Diagnose(), _asked(context, options, _diagnose_facts))


async def _diagnose_facts(_lookup: NodeLookup, ask: Ask) -> ClusterFacts:
    command = await ask(QueryType.CONFIG_QUERY, _DIAGNOSE_COMMAND)
    return ClusterFacts(problem=None, diagnose_command="" if command is None else str(command))


def _asked(context: Context, options: Options, question: Question) -> ClusterFacts:
    """Return the answer of RConfD; without it a collector reports less."""

    async def put() -> ClusterFacts:
        with contextlib.closing(_client(context, options)) as client:

            async def ask(query_type: QueryType, query: object = None) -> object:
                return value_or_none(await client.ask(query_type, query))

            return await question(NodeLookup(own_hostname(), ask), ask)

    try:
        return asyncio.run(put())
    except GenericError as err:
        context.terminal.error(f"{context.program}: {err.message}")
        return ClusterFacts(problem=err.message)


def _print(context: Context, collector: Collector, facts: ClusterFacts) -> int:
    """Print the report of a collector, in any case."""
    view = NodeView(context.paths, own_hostname(), facts)
    try:
        report = collector.report(collector.collect(view), clock.now_ns())
    except GenericError as err:
        context.write(dumps(collector.failure(err.message, clock.now_ns())).decode())
        if facts.problem is None or facts.problem not in err.message:
            context.terminal.error(f"{context.program}: {err.message}")
        return EXIT_FAILURE
    context.write(dumps(report).decode())
    return EXIT_SUCCESS


def _client(context: Context, options: Options) -> AsyncConfdClient:
    """Return a client of the RConfD that the options name, or of the cluster's."""
    paths = context.paths
    address = options.get("address")
    addresses = confd.candidate_addresses(paths) if address is None else [address]
    port = options.get("port") or DEFAULT_PORT
    return AsyncConfdClient(confd.read_key(paths), addresses, port=port, timeout_s=_TIMEOUT_S)


def _load(path: str) -> object:
    """Read a JSON file.

    Raises:
        GenericError: it cannot be read, or holds no JSON; the text names it.
    """
    text = read_text(path)
    try:
        return loads(text)
    except ProtocolError as err:
        raise GenericError(f"{path}: {err.message}") from err


PROGRAM: Final = Program(
    "mon-collector",
    "print the report of one data collector",
    """Runs one of the data collectors of ganeti-mond and prints its report, which has the form that
the daemon serves.  The daemon need not run.  What a collector must know of the cluster is asked of
RConfD, or read from a file that holds the same as JSON.  A collector that cannot do its work says
so in its report, on the standard error, and by exit status 1.""",
    (
        command(diskstats, _file("-f --file", "read this instead of /proc/diskstats")),
        command(
            drbd,
            _file("-s --drbd-status", "read this instead of /proc/drbd"),
            _file(
                "-p --drbd-pairing",
                "read from here which instance has which device, as RConfD answers it",
            ),
        ),
        command(inst_status_xen, _ADDRESS, _PORT),
        command(inst_status_kvm, _ADDRESS, _PORT),
        command(
            lv,
            _file("-f --file", "read this instead of the report of lvs, as JSON"),
            *(_ADDRESS, _PORT),
            _file(
                "-i --instances",
                "read the instances from here, as RConfD answers them, with their disks instead of"
                " the UUIDs of these",
            ),
        ),
        command(diagnose, _ADDRESS, _PORT),
    ),
    is_interspersed=True,
    common_options=(DEBUG, VERSION),
)
