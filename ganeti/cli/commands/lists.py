"""The list and list-fields commands of all programs.

Source: query_fields.json, "default_fields".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ganeti.cli.commands.filter_words import format_action, format_json, format_trail
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.listing import Listing, both_filters, show_fields, show_list
from ganeti.cli.run.table import format_other, format_time

Handler = Callable[[Context, Options, list[str]], int]

INSTANCES: Final = Listing("instance", ("name", "hypervisor", "os", "pnode", "status", "oper_ram"))
NODES: Final = Listing(
    "node",
    ("name", "dtotal", "dfree", "mtotal", "mnode", "mfree", "pinst_cnt", "sinst_cnt"),
)
GROUPS: Final = Listing("group", ("name", "node_cnt", "pinst_cnt", "alloc_policy", "ndparams"))
NETWORKS: Final = Listing(
    "network", ("name", "network", "gateway", "mac_prefix", "group_list", "tags")
)
FILTERS: Final = Listing(
    "filter",
    ("uuid", "watermark", "priority", "predicates", "action", "reason_trail"),
    name_field="uuid",
    formats={
        "action": format_action,
        "predicates": format_json,
        "reason_trail": lambda value: "; ".join(format_trail(value)),
    },
)
EXPORTS: Final = Listing("export", ("node", "export"), name_field="node")


def format_summary(value: object) -> str:
    """Return what a job does: the summaries of its opcodes."""
    return ",".join(str(part) for part in value) if isinstance(value, list) else str(value)


def format_times(value: object) -> str:
    """Return the times of a job's opcodes."""
    return ",".join(format_time(part) for part in value) if isinstance(value, list) else "-"


JOBS: Final = Listing(
    "job",
    ("id", "status", "summary"),
    name_field="id",
    names_are_numbers=True,
    formats={
        "summary": format_summary,
        "received_ts": format_time,
        "start_ts": format_time,
        "end_ts": format_time,
        "opstart": format_times,
        "opexec": format_times,
        "opend": format_times,
        "opresult": format_other,
    },
)


def _lister(listing: Listing) -> Handler:
    def handler(context: Context, options: Options, args: list[str]) -> int:
        return show_list(context, options, args, listing)

    return handler


def _fields(resource: str) -> Handler:
    def handler(context: Context, options: Options, args: list[str]) -> int:
        return show_fields(context, options, args, resource)

    return handler


instances = _lister(INSTANCES)
instance_fields = _fields("instance")
nodes = _lister(NODES)
node_fields = _fields("node")
groups = _lister(GROUPS)
group_fields = _fields("group")
networks = _lister(NETWORKS)
network_fields = _fields("network")
filters = _lister(FILTERS)
filter_fields = _fields("filter")
job_fields = _fields("job")
export_fields = _fields("export")


def jobs(context: Context, options: Options, args: list[str]) -> int:
    """List jobs, with archived ones only when asked for."""
    extra: object = None
    if options.status_filter:
        extra = ["|", *(["==", "status", status] for status in options.status_filter)]
    if options.archived:
        extra = both_filters(extra, ["|", ["?", "archived"], ["!", ["?", "archived"]]])
    return show_list(context, options, args, JOBS, extra)


def exports(context: Context, options: Options, _args: list[str]) -> int:
    """List exports, of some nodes or of all."""
    return show_list(context, options, options.nodes, EXPORTS)
