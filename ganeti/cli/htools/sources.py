"""Where the tools for placement get their snapshot of a cluster, and what options change in it.

A job waits for ``hail``, which reads a question only: what asks daemons is imported where they are
asked.

Source: manual pages htools(1), "Backend specification", and hbal(1).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from ganeti.allocation.model import Node
from ganeti.allocation.questions import snapshot_of
from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources import utilisation
from ganeti.allocation.sources.text_data import made_up, read_text
from ganeti.base.errors import GenericError, ProtocolError
from ganeti.cli.command import Context, Options
from ganeti.protocol.iallocator import AllocatorRequest, decode_request

FILE_BYTES_MAX: Final = 256 << 20  # 10,000 instances with 16 disks and networks each are 50 MB
_STANDARD_INPUT: Final = "-"
_BACKENDS: Final = ("luxi", "master", "text_data", "ialloc_src", "simulate")


def load(context: Context, options: Options, question: AllocatorRequest | None = None) -> Snapshot:
    """Return the cluster that the options tell, with the changes that they make in it.

    Args:
        question: tells the cluster if the options do not.

    Raises:
        GenericError: no source or more than one is given, or it cannot be read.
    """
    snapshot = with_options(_from_backend(context, options, question), options)
    return _with_load(context, options, snapshot)


def _from_backend(
    context: Context, options: Options, question: AllocatorRequest | None
) -> Snapshot:
    given = [name for name in _BACKENDS if options.get(name) not in (None, ())]
    flags = [f"--{name.replace('_', '-')}" for name in given]
    if not given and question is None:
        raise GenericError("no source of data is given; use -L on the master node, -m, -t or -I")
    if len(given) > 1:
        raise GenericError(f"only one of {' and '.join(flags)} can be given")
    tags = options.get("exclusion_tags") or ()
    memory = options.get("static_kvm_node_memory") or 0
    if memory < 0:
        raise GenericError("--static-kvm-node-memory: memory cannot be negative")
    if not given and question is not None:
        return snapshot_of(question, kvm_node_memory=memory, more_exclusion=tags)
    match given[0]:
        case "text_data":
            return read_text(read_file(options.text_data), options.text_data, tags)
        case "ialloc_src":
            return _from_question(options.ialloc_src, tags, memory)
        case "simulate":
            return made_up(options.simulate)
    from ganeti.clients import snapshots

    # Nodes that are taken for offline need not answer.
    more: dict[str, Any] = {
        "more_exclusion": tags,
        "kvm_node_memory": memory,
        "offline": options.get("offline") or (),
    }
    if given == ["master"]:
        return snapshots.from_rapi(options.master, **more)
    return snapshots.from_luxi(context.client, **more)


def read_file(path: str) -> bytes:
    """Return the content of a file; ``-`` is the standard input.

    Raises:
        GenericError: it cannot be read, or is larger than anything that makes sense.
    """
    try:
        if path == _STANDARD_INPUT:
            content = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
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
    return snapshot_of(read_question(path), kvm_node_memory=memory, more_exclusion=tags)


def read_question(path: str) -> AllocatorRequest:
    """Return the question to an allocator that is in a file.

    Raises:
        GenericError: it cannot be read, or is something else.
    """
    try:
        return decode_request(read_file(path))
    except ProtocolError as err:
        raise GenericError(f"{path}: no question to an allocator: {err.message}") from err


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
    if path:
        reports = utilisation.read_reports(read_file(path))
    else:
        from ganeti.clients import snapshots

        reports = snapshots.reports_of(snapshot.nodes.values())
    measured = utilisation.with_reports(snapshot, reports, is_xen=bool(options.get("mond_xen")))
    for collector in measured.incomplete:
        context.terminal.error(f"not every node tells {collector}; none of it is used")
    if measured.incomplete and options.get("exit_on_missing_mond_data"):
        raise GenericError("not all data of the monitoring daemons are there")
    return measured.snapshot
