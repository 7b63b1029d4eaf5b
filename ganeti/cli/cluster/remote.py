"""``gnt-cluster`` command and copyfile: straight to the nodes, by SSH, without a job."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.bootstrap.node_transport import NodeTransport, transport_to
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options, command, opt
from ganeti.cli.run.listing import no_nodes, rows_of_chosen
from ganeti.store import ssconf
from ganeti.system.process import CommandResult, describe_end

COMMAND_TIMEOUT_S: Final = 3600.0
COPY_TIMEOUT_S: Final = 600.0
FILE_BYTES_MAX: Final = 256 << 20  # it is held in memory, once for all nodes
_AT_ONCE_MAX: Final = 16
# Written beside the old file and renamed, so that nobody finds half a file.  SSH that is ended, or
# loses its connection, looks there like the end of the file.
_RECEIVE: Final = (
    'set -e; umask 077; new="$1.new.$$"; trap \'rm -f "$new"\' EXIT; cat > "$new";'
    ' test "$(wc -c < "$new")" -eq "$3" || { echo "the file was cut off" >&2; exit 1; };'
    ' chmod "$2" "$new"; mv -fT "$new" "$1"'
)


@dataclass(frozen=True, slots=True)
class Destination:
    """A node that is to run something."""

    name: str
    transport: NodeTransport


def run_command(context: Context, options: Options, args: list[str]) -> int:
    """Run a command on nodes, the master the last.

    The exit status only tells that it was run: what it returned on each node is printed.
    """
    line = " ".join(args)  # a shell there reads it, as with SSH itself
    own_name = ssconf.master_node(context.paths)
    chosen = sorted(destinations(context, options), key=lambda node: node.name == own_name)

    def run(node: Destination, stop_fd: int) -> CommandResult:
        argv = ["bash", "-c", line]
        return node.transport.run(argv, stdin=b"", timeout_s=COMMAND_TIMEOUT_S, stop_fd=stop_fd)

    for node, result in on_each(chosen, run):
        succeeded = isinstance(result, CommandResult) and result.succeeded
        if not (succeeded and options.failure_only):
            _show(context, node, result, with_name=options.show_machine_names)
    return EXIT_SUCCESS


def _show(
    context: Context, node: Destination, result: CommandResult | GenericError, *, with_name: bool
) -> None:
    context.write("-" * 48)
    if not with_name:
        context.write(f"node: {node.name}")
    if isinstance(result, GenericError):
        context.terminal.error(f"Node {node.name}: {result.message}")
        return
    if with_name:
        texts = result.output.splitlines()
        context.terminal.write_lines([f"{node.name}: {text}" for text in texts])
    else:
        context.write(result.output)  # its last line is followed by an empty one
    if result.timed_out or result.truncated:
        context.terminal.error(f"Node {node.name}: the command {describe_end(result)}")
    else:
        context.write(f"return code = {result.status}")


def copyfile(context: Context, options: Options, args: list[str]) -> int:
    """Copy a file to nodes.

    The exit status tells whether all have it."""
    [path] = args
    data, mode = read_file(path)
    own_name = ssconf.master_node(context.paths)
    chosen = [node for node in destinations(context, options) if node.name != own_name]

    def send(node: Destination, stop_fd: int) -> CommandResult:
        there = place_on(context, path, node.name)
        argv = receiving(there, mode, len(data))
        return node.transport.run(
            argv, stdin=data, timeout_s=COPY_TIMEOUT_S, stop_fd=stop_fd
        ).check()

    failures = 0
    for node, result in on_each(chosen, send):
        if isinstance(result, GenericError):
            failures += 1
            context.terminal.error(f"Copying {path} to node {node.name} failed: {result.message}")
    return EXIT_FAILURE if failures else EXIT_SUCCESS


def receiving(path: str, mode: int, size_bytes: int) -> tuple[str, ...]:
    """Return the command that writes its input to a file, if all of that comes."""
    return ("sh", "-c", _RECEIVE, "sh", path, f"{mode:o}", f"{size_bytes}")


def read_file(path: str) -> tuple[bytes, int]:
    """Return a file's content and its mode.

    Raises:
        OpPrereqError: it cannot be read, is no plain file, or is too large.
    """
    if not os.path.isabs(path):
        raise OpPrereqError(f"path {path!r} is not absolute")
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise OpPrereqError(f"{path} is not a plain file")
            if found.st_size > FILE_BYTES_MAX:
                raise OpPrereqError(f"{path} has {found.st_size} bytes, at most {FILE_BYTES_MAX}")
            return file.read(), stat.S_IMODE(found.st_mode)
    except OSError as err:
        raise OpPrereqError(f"cannot read {path}: {err.strerror}") from err


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a named pipe, which has no writer yet, keeps nobody waiting."""
    return os.open(path, flags | os.O_NONBLOCK)


def place_on(context: Context, path: str, node_name: str) -> str:
    """Return where a file goes on another node: the same path, below the node's own root.

    Raises:
        OpPrereqError: this is a virtual node, and the file is not below its root.
    """
    root = context.paths.root
    if not root:
        return path
    if not path.startswith(f"{root}/"):
        raise OpPrereqError(f"{path} is not below {root}, the root of this virtual node")
    return os.path.join(os.path.dirname(root), node_name) + path.removeprefix(root)


def destinations(context: Context, options: Options) -> list[Destination]:
    """Return the nodes named, or all of a group or of the cluster; offline ones are left out.

    Raises:
        OpPrereqError: one is unknown or not in the group, or none is left.
    """
    address = "sip" if options.get("use_replication_network") else "name"
    group = options.node_group
    rows = rows_of_chosen(context, options.nodes, group, ["ndp/ssh_port", address])
    cluster_name = ssconf.cluster_name(context.paths)
    chosen = []
    for name, is_offline, _, port, reached_at in rows:
        if is_offline:
            if options.nodes:
                context.terminal.error(f"Node {name} is offline, leaving it out.")
            continue
        transport = transport_to(
            context.paths,
            str(name),
            cluster_name=cluster_name,
            address=str(reached_at),
            port=int(str(port)),
        )
        chosen.append(Destination(str(name), transport))
    if not chosen:
        raise no_nodes(group)
    return chosen


def on_each(
    nodes: Sequence[Destination], work: Callable[[Destination, int], CommandResult]
) -> Iterator[tuple[Destination, CommandResult | GenericError]]:
    """Do something on all nodes, several at once; yields the result of each, in their order.

    Args:
        work: also gets a descriptor that can be read once nobody waits any more.
    """
    stop_fd, writer = os.pipe2(os.O_CLOEXEC)

    def one(node: Destination) -> CommandResult | GenericError:
        try:
            return work(node, stop_fd)
        except GenericError as err:
            return err

    try:
        with ThreadPoolExecutor(min(_AT_ONCE_MAX, max(len(nodes), 1))) as pool:
            try:
                yield from zip(nodes, pool.map(one, nodes), strict=True)
            finally:
                os.close(writer)
    finally:
        os.close(stop_fd)


COMMANDS: Final = (
    command(
        run_command,
        "<command>... --node-group --show-machine-names",
        opt.flag("--failure-only", "show only failures"),
        opt.NODES,
        title="command: run a command on nodes",
        examples="""
gnt-cluster command -M uptime  # on all nodes, with their names before each line
gnt-cluster command -n node2 -- systemctl restart ganeti-mond  # on one node""",
    ),
    command(
        copyfile,
        "<file> --node-group",
        opt.NODES,
        opt.flag("--use-replication-network", "copy through the replication network"),
        examples="""
gnt-cluster copyfile /etc/hosts  # to the same place on all nodes""",
    ),
)
