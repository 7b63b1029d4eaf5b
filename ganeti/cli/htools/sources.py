"""Where the tools for placement get their snapshot of a cluster, and what options change in it.

Source: manual pages htools(1), "Backend specification", and hbal(1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import ValidationError, convert
from msgspec.structs import replace

from ganeti.allocation.model import Node
from ganeti.allocation.questions import snapshot_of
from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources import listings, utilisation
from ganeti.allocation.sources.text_data import made_up, read_text
from ganeti.base.daemons import MOND_PORT
from ganeti.base.errors import GenericError, ProtocolError, TransportError
from ganeti.base.json import loads, loads_as
from ganeti.cli.command import Context, Options
from ganeti.clients.rapi import RapiClient
from ganeti.protocol.iallocator import decode_request
from ganeti.protocol.rapi.values import DEFAULT_PORT
from ganeti.transport.curl_pool import CurlPool, CurlRequest, TlsTrust

FILE_BYTES_MAX: Final = 256 << 20  # 10,000 instances with 16 disks and networks each are 50 MB
_BACKENDS: Final = ("luxi", "master", "text_data", "ialloc_src", "simulate")
_MOND_TIMEOUT_S: Final = 10.0
_OK: Final = 200


def load(context: Context, options: Options) -> Snapshot:
    """Return the cluster that the options tell, with the changes that they make in it.

    Raises:
        GenericError: no source or more than one is given, or it cannot be read.
    """
    snapshot = with_options(_from_backend(context, options), options)
    return _with_load(context, options, snapshot)


def _from_backend(context: Context, options: Options) -> Snapshot:
    given = [name for name in _BACKENDS if options.get(name) not in (None, ())]
    flags = [f"--{name.replace('_', '-')}" for name in given]
    if not given:
        raise GenericError("no source of data is given; use -L on the master node, -m, -t or -I")
    if len(given) > 1:
        raise GenericError(f"only one of {' and '.join(flags)} can be given")
    tags = options.get("exclusion_tags") or ()
    memory = options.get("static_kvm_node_memory") or 0
    if memory < 0:
        raise GenericError("--static-kvm-node-memory: memory cannot be negative")
    match given[0]:
        case "luxi":
            return from_luxi(context, tags, memory)
        case "master":
            return from_rapi(options.master, tags, memory)
        case "text_data":
            return read_text(read_file(options.text_data), options.text_data, tags)
        case "ialloc_src":
            return _from_question(options.ialloc_src, tags, memory)
        case _:
            return made_up(options.simulate)


def read_file(path: str) -> bytes:
    """Return the content of a file.

    Raises:
        GenericError: it cannot be read, or is larger than anything that makes sense.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as err:
        raise GenericError(f"{path}: {err.strerror}") from err
    if len(content) > FILE_BYTES_MAX:
        raise GenericError(f"{path}: more than {FILE_BYTES_MAX >> 20} MiB")
    return content


def write_file(path: str, text: str) -> None:
    """Write a file.

    Raises:
        GenericError: it cannot be written.
    """
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as err:
        raise GenericError(f"{path}: {err.strerror}") from err


def _from_question(path: str, tags: Sequence[str], memory: int) -> Snapshot:
    try:
        request = decode_request(read_file(path))
        return snapshot_of(request, kvm_node_memory=memory, more_exclusion=tags)
    except ProtocolError as err:
        raise GenericError(f"{path}: no question to an allocator: {err.message}") from err


Rows = list[dict[str, Any]]


def from_luxi(context: Context, tags: Sequence[str], memory: int) -> Snapshot:
    """Return the cluster that the master daemon tells.

    Args:
        tags: beginnings of exclusion tags besides those of the cluster.
        memory: MiB that a KVM node needs itself; 0 is what it reports.

    Raises:
        GenericError: it does not answer, or the answers make no sense.
    """
    client = context.client
    return listings.ask_master(client, more_exclusion=tags, kvm_node_memory=memory)


def from_rapi(address: str, tags: Sequence[str], memory: int) -> Snapshot:
    """Return the cluster that a remote API tells.

    Args:
        address: host, host and port, or URL; one of a directory (``file://``) with the answers
            ``groups.json``, ``nodes.json``, ``instances.json`` and ``info.json``.
        tags: beginnings of exclusion tags besides those of the cluster.
        memory: MiB that a KVM node needs itself; 0 is what it reports.

    Raises:
        GenericError: it does not answer, or the answers make no sense.
    """
    ask = _read_answers if address.startswith(_FILES) else _ask_rapi
    try:
        info, *rows = ask(address)
        found = convert(info, dict[str, Any])
        groups, nodes, instances = (convert(each, Rows) for each in rows)
        more: dict[str, Any] = {"more_exclusion": tags, "kvm_node_memory": memory}
        return listings.from_listings(found, groups, nodes, instances, **more)
    except ValidationError as err:
        raise GenericError(f"{address}: no answer of a remote API: {err}") from err
    except (ProtocolError, TransportError) as err:
        raise GenericError(f"{address}: {err.message}") from err


_FILES: Final = "file://"


def _read_answers(url: str) -> list[object]:
    directory = url.removeprefix(_FILES)
    names = ("info", "groups", "nodes", "instances")
    return [loads(read_file(f"{directory}/{name}.json")) for name in names]


def _ask_rapi(address: str) -> list[object]:
    host, port = _address(address)
    # As with 3.0, anybody is believed to be the cluster: nothing secret is sent.
    with RapiClient(host, port, trust=TlsTrust(checks_certificate=False)) as client:
        kinds = client.get_groups, client.get_nodes, client.get_instances
        return [client.get_info(), *(ask(bulk=1) for ask in kinds)]


def _address(text: str) -> tuple[str, int]:
    """Return host and port of an address or URL."""
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        port = parts.port or DEFAULT_PORT
    except ValueError as err:
        raise GenericError(f"--master: {text!r} is no address: {err}") from err
    return parts.hostname or "", port


def with_options(snapshot: Snapshot, options: Options) -> Snapshot:
    """Return the snapshot with the changes that options make in nodes and instances.

    Raises:
        GenericError: an option names an object that there is not.
    """
    offline = _found(options.get("offline") or (), snapshot.nodes, "node", "--offline")
    nodes = dict(snapshot.nodes)
    for name in offline:
        nodes[name] = replace(nodes[name], is_offline=True, is_usable=False)
    cpu, disk = options.get("max_cpu"), options.get("min_disk")
    for option, ratio, most in (("--max-cpu", cpu, None), ("--min-disk", disk, 1)):
        if ratio is not None and (ratio < 0 or (most is not None and ratio > most)):
            raise GenericError(f"{option}: {ratio} is no such ratio")
    if cpu is not None or disk is not None:
        nodes = {name: _with_limits(node, cpu, disk) for name, node in nodes.items()}
    return _with_fixed_instances(replace(snapshot, nodes=nodes), options)


def _with_limits(node: Node, cpu: float | None, disk: float | None) -> Node:
    return replace(
        node,
        vcpus_max=node.vcpus_max if cpu is None else node.cpus * cpu,
        disk_min=node.disk_min if disk is None else int(node.total_disk * disk),
    )


def _with_fixed_instances(snapshot: Snapshot, options: Options) -> Snapshot:
    known = snapshot.instances
    chosen, left_out = options.get("select_instances"), options.get("exclude_instances")
    if chosen is None and left_out is None:
        return snapshot
    movable = set(known)
    if chosen is not None:
        movable = set(_found(chosen, known, "instance", "--select-instances"))
    movable -= set(_found(left_out or (), known, "instance", "--exclude-instances"))
    instances = {name: replace(each, is_movable=name in movable) for name, each in known.items()}
    return replace(snapshot, instances=instances)


def _found(words: Sequence[str], known: Mapping[str, object], what: str, option: str) -> list[str]:
    """Return the names that these words mean: a whole name, or the beginning up to a dot."""
    found = []
    for word in words:
        fitting = [word] if word in known else [n for n in known if n.startswith(f"{word}.")]
        if len(fitting) != 1:
            problem = f"there is no {what} {word!r}" if not fitting else f"{word!r} is ambiguous"
            raise GenericError(f"{option}: {problem}")
        found += fitting
    return found


def _with_load(context: Context, options: Options, snapshot: Snapshot) -> Snapshot:
    if options.get("ignore_dynu"):
        return utilisation.without_load(snapshot)
    path = options.get("dynu_file")
    if path is not None:
        try:
            loads = utilisation.read_utilisation(read_file(path).decode())
        except UnicodeDecodeError as err:
            raise GenericError(f"{path}: invalid UTF-8 at byte {err.start}") from err
        except GenericError as err:
            prefix = "" if err.message.startswith(path) else f"{path}: "
            raise GenericError(f"{prefix}{err.message}") from err
        snapshot = utilisation.with_loads(snapshot, loads)
    if options.get("mond") != "yes":
        return snapshot
    path = options.get("mond_data")
    reports = utilisation.read_reports(read_file(path)) if path else _asked(snapshot)
    measured = utilisation.with_reports(snapshot, reports, is_xen=bool(options.get("mond_xen")))
    for collector in measured.incomplete:
        context.terminal.error(f"not every node tells {collector}; none of it is used")
    if measured.incomplete and options.get("exit_on_missing_mond_data"):
        raise GenericError("not all data of the monitoring daemons are there")
    return measured.snapshot


def _asked(snapshot: Snapshot) -> dict[str, list[utilisation.Report]]:
    """Ask the monitoring daemon of each node that is online; who does not answer is left out."""
    names = [name for name, node in snapshot.nodes.items() if not node.is_offline]
    requests = [
        CurlRequest(_reports_url(snapshot.nodes[name]), b"", _MOND_TIMEOUT_S, method="GET")
        for name in names
    ]
    found = {}
    with closing(CurlPool(None)) as pool:
        for name, answer in zip(names, pool.perform(requests), strict=True):
            if answer.error is None and answer.status == _OK:
                found[name] = loads_as(list[utilisation.Report], answer.body)
    return found


def _reports_url(node: Node) -> str:
    host = node.address or node.name
    return f"http://{f'[{host}]' if ':' in host else host}:{MOND_PORT}/1/report/all"
