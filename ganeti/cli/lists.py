"""The list and list-fields commands of all programs, and the formats of their columns.

Source: query_fields.json, "default_fields".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from ganeti.cli.command import Command, Context, Handler, Options, command, opt
from ganeti.cli.run.listing import Listing, both_filters, show_fields, show_list
from ganeti.cli.run.table import Formatter, format_list, format_settings, format_time


def as_list(value: object) -> Sequence[object]:
    """Return a list, empty if it is something else."""
    return value if isinstance(value, list) else []


def _lists(words: str) -> Mapping[str, Formatter]:
    """Return the formats of fields that are shown with commas between; others are as in Python."""
    return dict.fromkeys(words.split(), format_list)


def _connections(value: object) -> str:
    """Return the groups of a network, each with mode, link and VLAN."""
    rows = [(row[0], ", ".join(map(str, row[1:]))) for row in map(as_list, as_list(value))]
    return ", ".join(f"{group} ({connection})" for group, connection in rows)


INSTANCES: Final = Listing(
    "instance",
    ("name", "hypervisor", "os", "pnode", "status", "oper_ram"),
    formats=_lists(
        "tags disk.sizes nic.ips nic.macs nic.modes nic.links nic.bridges nic.networks"
        " snodes snodes.group snodes.group.uuid"
    ),
)
NODES: Final = Listing(
    "node",
    ("name", "dtotal", "dfree", "mtotal", "mnode", "mfree", "pinst_cnt", "sinst_cnt"),
    formats=_lists("tags pinst_list sinst_list"),
)
GROUPS: Final = Listing(
    "group",
    ("name", "node_cnt", "pinst_cnt", "alloc_policy", "ndparams"),
    formats={**_lists("tags node_list pinst_list"), "ndparams": format_settings},
)
NETWORKS: Final = Listing(
    "network",
    ("name", "network", "gateway", "mac_prefix", "group_list", "tags"),
    formats={
        "group_list": _connections,
        "inst_list": lambda value: ", ".join(map(str, as_list(value))),
        **_lists("tags"),
    },
)
FILTERS: Final = Listing(
    "filter",
    ("uuid", "watermark", "priority", "predicates", "action", "reason_trail"),
    name_field="uuid",
)
EXPORTS: Final = Listing("export", ("node", "export"), name_field="node")


def format_times(value: object) -> str:
    """Return the times of a job's opcodes."""
    return ",".join(format_time(part) for part in value) if isinstance(value, list) else "-"


JOBS: Final = Listing(
    "job",
    ("id", "status", "summary"),
    name_field="id",
    names_are_numbers=True,
    formats={
        "summary": format_list,
        "received_ts": format_time,
        "start_ts": format_time,
        "end_ts": format_time,
        "opstart": format_times,
        "opexec": format_times,
        "opend": format_times,
    },
)


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


def state(name: str, help: str, statuses: tuple[str, ...]) -> opt.Option:
    """Return an option that selects jobs by their status."""
    return opt.constant(name, help, dest="status_filter", const=statuses)


PENDING = state("--pending", "jobs that have not begun", ("canceling", "queued", "waiting"))


def _commands(
    kind: str, handler: Handler, *parts: opt.Part, has_patterns: bool = False, examples: str = ""
) -> tuple[Command, Command]:
    """Return the commands that list the objects of a kind, and their fields."""
    patterns = f"""The arguments are names, patterns with * and ?, or one filter.  The fields
are named by 'gnt-{kind} list-fields'."""
    listed = {"description": patterns if has_patterns else "", "examples": examples}
    fields = f"list-fields: list the fields of {kind}s"
    return (
        command(handler, "LISTING", *parts, title=f"list: list {kind}s", **listed),
        command(partial(show_fields, resource=kind), "[<field>...] FIELDS", title=fields),
    )


COMMANDS: Final = {
    "gnt-backup": _commands("export", exports, "--units", opt.NODES),
    "gnt-filter": _commands("filter", partial(show_list, listing=FILTERS), "[<filter>...]"),
    "gnt-group": _commands("group", partial(show_list, listing=GROUPS), "[<group>...] --filter"),
    "gnt-instance": _commands(
        "instance",
        partial(show_list, listing=INSTANCES),
        "[<instance>...] --filter --units",
        has_patterns=True,
        examples="""
gnt-instance list  # all instances
gnt-instance list -o +be/vcpus,tags 'web*'  # more fields, some instances
gnt-instance list 'pnode == "node1" and not admin_up'  # a filter""",
    ),
    "gnt-job": _commands(
        "job",
        jobs,
        "[<job-id>...] --filter",
        opt.flag("--archived", "archived jobs too"),
        state("--error", "only jobs that failed", ("error",)),
        state("--finished", "only jobs that ended", ("canceled", "error", "success")),
        state("--running", "only jobs that run", ("running",)),
        PENDING,
        examples="""
gnt-job list --running  # the jobs at work now
gnt-job list -o +received_ts,opresult --error  # failed jobs, and their errors""",
    ),
    "gnt-network": _commands("network", partial(show_list, listing=NETWORKS), "[<network>...]"),
    "gnt-node": _commands(
        "node",
        partial(show_list, listing=NODES),
        "[<node>...] --filter --units",
        has_patterns=True,
        examples="""
gnt-node list  # all nodes
gnt-node list -o name,role,pip  # some fields
gnt-node list 'master_candidate and not offline'  # a filter""",
    ),
}
