"""``mon-collector``: one collector each, its sources perhaps in files."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.json import dumps, loads
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_FAILURE, EXIT_SUCCESS
from ganeti.clients import confd
from ganeti.clients.confd import AsyncConfdClient
from ganeti.collectors import cluster_facts
from ganeti.collectors import diskstats as disk_collector
from ganeti.collectors import drbd as drbd_collector
from ganeti.collectors import lv as lv_collector
from ganeti.collectors.cluster_facts import ClusterFacts
from ganeti.collectors.node_lookup import Ask, NodeLookup, value_or_none
from ganeti.collectors.node_view import Collect, NodeView, read_text
from ganeti.collectors.registry import COLLECTORS
from ganeti.collectors.report import Report
from ganeti.protocol.confd import DEFAULT_PORT
from ganeti.protocol.confd_queries import QueryType
from ganeti.system import clock
from ganeti.system.environment import own_hostname

_TIMEOUT_S: Final = 5.0
_DIAGNOSE_COMMAND: Final = "/cluster/diagnose_data_collector_filename"


def diskstats(context: Context, options: Options, _args: list[str]) -> int:
    """Report on block devices."""
    collect = disk_collector.make(options.file or disk_collector.DISKSTATS)
    return _print(context, "diskstats", collect, ClusterFacts(problem=None))


def drbd(context: Context, options: Options, _args: list[str]) -> int:
    """Report on DRBD devices."""
    if options.drbd_pairing is not None:
        owners = cluster_facts.decode_drbd_owners(_load(options.drbd_pairing))
        facts = ClusterFacts(problem=None, drbd_owners=owners)
    else:
        facts = _asked(
            context,
            options,
            _asked_drbd_facts,
        )
    collect = drbd_collector.make(options.drbd_status or drbd_collector.PROC_DRBD)
    return _print(context, "drbd", collect, facts)


async def _asked_drbd_facts(ask: Ask) -> ClusterFacts:
    owners = await NodeLookup(own_hostname(), ask).drbd_owners()
    return ClusterFacts(problem=None, drbd_owners=owners)


def inst_status_xen(context: Context, options: Options, _args: list[str]) -> int:
    """Report on Xen instances."""
    return _instances(context, options, "inst-status-xen")


def inst_status_kvm(context: Context, options: Options, _args: list[str]) -> int:
    """Report on KVM instances."""
    return _instances(context, options, "inst-status-kvm")


def _instances(context: Context, options: Options, name: str) -> int:
    facts = _asked(context, options, _instance_facts)
    return _print(context, name, COLLECTORS[name].load(), facts)


async def _instance_facts(ask: Ask) -> ClusterFacts:
    instances = await NodeLookup(own_hostname(), ask).instances()
    return ClusterFacts(problem=None, instances=instances)


def lv(context: Context, options: Options, _args: list[str]) -> int:
    """Report on logical volumes."""
    if options.instances is not None:
        known = cluster_facts.decode_instances(_load(options.instances))
        owners = cluster_facts.owners_of_volumes((*known.primary, *known.secondary))
        facts = ClusterFacts(problem=None, volume_owners=owners)
    else:
        facts = _asked(context, options, _asked_volume_facts)
    source = options.file

    def from_file(view: NodeView) -> object:
        return lv_collector.parse(read_text(source), view.cluster.volume_owners or {})

    collect = COLLECTORS["lv"].load() if source is None else from_file
    return _print(context, "lv", collect, facts)


async def _asked_volume_facts(ask: Ask) -> ClusterFacts:
    lookup = NodeLookup(own_hostname(), ask)
    owners = await lookup.volume_owners(await lookup.instances())
    return ClusterFacts(problem=None, volume_owners=owners)


def diagnose(context: Context, options: Options, _args: list[str]) -> int:
    """Have the node diagnosed."""
    facts = _asked(context, options, _diagnose_facts)
    return _print(context, "diagnose", COLLECTORS["diagnose"].load(), facts)


async def _diagnose_facts(ask: Ask) -> ClusterFacts:
    command = await ask(QueryType.CONFIG_QUERY, _DIAGNOSE_COMMAND)
    return ClusterFacts(problem=None, diagnose_command="" if command is None else str(command))


def _asked(
    context: Context, options: Options, question: Callable[[Ask], Awaitable[ClusterFacts]]
) -> ClusterFacts:
    """Return what RConfD says; without it a collector does what it can."""

    async def put() -> ClusterFacts:
        with contextlib.closing(_client(context, options)) as client:

            async def ask(query_type: QueryType, query: object = None) -> object:
                return value_or_none(await client.ask(query_type, query))

            return await question(ask)

    try:
        return asyncio.run(put())
    except GenericError as err:
        context.terminal.error(f"{context.program}: {err.message}")
        return ClusterFacts(problem=err.message)


def _print(context: Context, name: str, collect: Collect, facts: ClusterFacts) -> int:
    """Print the report of a collector, in any case."""
    row = COLLECTORS[name]
    view = NodeView(context.paths, own_hostname(), facts)
    try:
        report = row.report(collect(view), clock.now_ns())
    except GenericError as err:
        report = row.failure(err.message, clock.now_ns())
        _write(context, report)
        if facts.problem is None or facts.problem not in err.message:
            context.terminal.error(f"{context.program}: {err.message}")
        return EXIT_FAILURE
    _write(context, report)
    return EXIT_SUCCESS


def _write(context: Context, report: Report) -> None:
    context.write(dumps(report).decode())


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
