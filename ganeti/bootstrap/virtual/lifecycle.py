"""Making, starting, stopping and removing virtual clusters: several nodes on this one machine.

The cluster is made by the very commands that make a real one, run in the place of its first node.
Every process below its base directory, even one started by hand, carries the root directory of its
node in its environment.  That, and nothing else, decides which processes may be stopped.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from ganeti.base import errors
from ganeti.base.daemons import Place
from ganeti.base.errors import GenericError, OpExecError, OpPrereqError
from ganeti.base.paths import VIRTUAL_CLUSTER_RECORD, Paths
from ganeti.bootstrap import cluster_files
from ganeti.bootstrap.virtual import layout, shell
from ganeti.bootstrap.virtual.layout import VirtualCluster
from ganeti.storage.network import mounts
from ganeti.store import ssconf
from ganeti.system import daemon_control, files, process
from ganeti.system.environment import ROOTDIR_VARIABLE, node_environment

_NODE: Final = frozenset({Place.NODE})
_MASTER: Final = frozenset({Place.MASTER})
PROBED_PORT: Final = 1811
NETWORK_TRIES: Final = 32
COMMAND_TIMEOUT_S: Final = 120.0
_UNMOUNT_TIMEOUT_S: Final = 30.0
QEMU_NAMES: Final = ("qemu-system-x86_64", "kvm", "qemu-kvm", "qemu-system-aarch64")
_LOOPBACK_TEXT: Final = "are all addresses of 127.0.0.0/8 on the loopback interface?"

Feedback = Callable[[str], None]
CommandRunner = Callable[[str, Sequence[str]], None]


def find_qemu() -> str | None:
    """Return the path of a QEMU binary, or None."""
    return next((path for name in QEMU_NAMES if (path := shutil.which(name))), None)


def absolute_base(text: str) -> str:
    """Return a base directory as an absolute path without symbolic links."""
    return os.path.realpath(text)


def load(base: str) -> VirtualCluster:
    """Return the virtual cluster in a directory.

    Raises:
        OpPrereqError: there is none.
    """
    data = files.read_bytes_or_none(os.path.join(base, VIRTUAL_CLUSTER_RECORD))
    if data is None:
        raise OpPrereqError(f"there is no virtual cluster in {base}", errors.ErrorCode.NOENT)
    return layout.decode_record(data, base)


# Making one.


def plan(
    base: str, node_count: int, hypervisor: str | None, *, without: Sequence[str] = ()
) -> VirtualCluster:
    """Plan a new virtual cluster; nothing is made yet.

    ``without`` names daemons that it is not to run.

    Raises:
        OpPrereqError: the directory is taken or too long, no addresses are free, or it cannot go
            without such a daemon.
    """
    names = layout.node_names(node_count)
    layout.check_base(base, names)
    layout.check_without(without)
    if os.path.lexists(os.path.join(base, VIRTUAL_CLUSTER_RECORD)):
        raise OpPrereqError(
            f"there is a virtual cluster in {base} already; 'destroy' removes it",
            errors.ErrorCode.EXISTS,
        )
    if os.path.isdir(base) and os.listdir(base):
        raise OpPrereqError(f"{base} is not empty", errors.ErrorCode.EXISTS)
    chosen = hypervisor or ("kvm" if find_qemu() else "fake")
    for network in layout.candidate_networks(base, NETWORK_TRIES):
        cluster = VirtualCluster(
            base=base, network=network, node_names=names, hypervisor=chosen, without=tuple(without)
        )
        if all(_is_free(address) for address in cluster.hosts().values()):
            return cluster
    raise OpPrereqError(
        f"no free loopback addresses found in {NETWORK_TRIES} tries; {_LOOPBACK_TEXT}",
        errors.ErrorCode.NORES,
    )


def _is_free(address: str) -> bool:
    """Tell whether nobody on this machine uses the node daemon's port at an address.

    Raises:
        OpPrereqError: the address cannot be used at all.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, PROBED_PORT))
        except OSError as err:
            if err.errno == errno.EADDRINUSE:
                return False
            raise OpPrereqError(
                f"address {address} cannot be used: {err.strerror}; {_LOOPBACK_TEXT}",
                errors.ErrorCode.ENVIRON,
            ) from err
    return True


def prepare(cluster: VirtualCluster, os_directories: Sequence[str]) -> None:
    """Make the directories of all nodes, with names, shared storage and operating systems.

    Raises:
        GenericError: something cannot be written; nothing is left then.
    """
    existed = os.path.isdir(cluster.base)
    try:
        with ExitStack() as undo:
            undo.callback(_remove_tree, cluster.base, keep=existed)
            files.ensure_directory(cluster.shared_directory, 0o755)
            for name in cluster.node_names:
                _prepare_node(cluster, cluster.paths_of(name), os_directories)
            shell.prepare(cluster)
            files.write_durable(cluster.record_path, cluster.encode(), 0o644)
            undo.pop_all()
    except OSError as err:
        raise GenericError(f"cannot make {err.filename}: {err.strerror}") from err


def _prepare_node(cluster: VirtualCluster, paths: Paths, os_directories: Sequence[str]) -> None:
    cluster_files.ensure_directories(paths)
    files.ensure_directory(os.path.dirname(paths.etc_hosts), 0o755)
    files.write_atomic(paths.etc_hosts, cluster.hosts_text().encode(), 0o644)
    files.ensure_directory(paths.file_storage_dir, 0o750)
    target = os.path.relpath(
        cluster.shared_directory, os.path.dirname(paths.shared_file_storage_dir)
    )
    os.symlink(target, paths.shared_file_storage_dir)
    real = Paths()
    allowed = [real.file_storage_dir, real.shared_file_storage_dir, real.gluster_storage_dir]
    files.write_atomic(
        paths.file_storage_paths_file, "".join(f"{p}\n" for p in allowed).encode(), 0o644
    )
    os_directory = paths.os_search_path[0]
    for source in os_directories:
        shutil.copytree(source, os.path.join(os_directory, os.path.basename(source)))
    allocators = paths.iallocator_search_path[-1]
    files.ensure_directory(allocators, 0o755)
    for entry in _bundled("tools/iallocators", "lib/ganeti/iallocators"):
        if entry.is_file():
            os.symlink(entry.path, os.path.join(allocators, entry.name))


def bundled_os_definitions() -> list[str]:
    """Return the directories of the operating system definitions that come with the programs."""
    return [
        entry.path for entry in _bundled("doc/examples/os", "share/ganeti/os") if entry.is_dir()
    ]


def _bundled(in_checkout: str, in_prefix: str) -> list[os.DirEntry[str]]:
    """List a directory that comes with the programs; empty if it is not installed."""
    directory = daemon_control.bundled(in_checkout, in_prefix)
    return list(os.scandir(directory)) if os.path.isdir(directory) else []


def init_arguments(cluster: VirtualCluster) -> list[str]:
    """Return the arguments of ``gnt-cluster init`` that suit a virtual cluster.

    Guests may be small, and no SSH, address or hosts file of the machine is touched.
    """
    hypervisors = "fake" if cluster.hypervisor == "fake" else f"{cluster.hypervisor},fake"
    arguments = [
        "init",
        f"--enabled-hypervisors={hypervisors}",
        "--enabled-disk-templates=file,sharedfile,diskless",
        "--master-netdev=lo",
        "--no-ssh-init",
        "--no-etc-hosts",
        (
            "--ipolicy-bounds-specs="
            "min:memory-size=4,disk-size=1,disk-count=0,cpu-count=1,nic-count=0,spindle-use=0/"
            "max:memory-size=32768,disk-size=1048576,disk-count=16,cpu-count=8,nic-count=8,"
            "spindle-use=12"
        ),
    ]
    if cluster.hypervisor == "kvm":
        qemu = find_qemu() or "/usr/bin/qemu-system-x86_64"
        arguments.append(f"-Hkvm:kvm_path={qemu},kernel_path=,initrd_path=,root_path=")
    return [*arguments, cluster.cluster_name]


def create(
    cluster: VirtualCluster,
    *,
    extra_init: Sequence[str] = (),
    runner: CommandRunner | None = None,
    feedback: Feedback = lambda _text: None,
) -> None:
    """Make the nodes and, by the real commands, the cluster.

    ``runner`` runs one command on the first node; given one, it may show its commands.

    Raises:
        GenericError: a command failed; nothing is left then, neither process nor file.
    """
    prepare(cluster, bundled_os_definitions())
    run = runner or (lambda node, argv: run_checked(cluster, node, argv))
    with ExitStack() as undo:
        undo.callback(destroy, cluster)
        *options, name = init_arguments(cluster)
        feedback(f"Making the cluster on {cluster.first_node}")
        run(cluster.first_node, ["gnt-cluster", *options, *extra_init, name])
        for node in cluster.node_names[1:]:
            feedback(f"Adding {node}")
            run(cluster.first_node, ["gnt-node", "add", node])
        undo.pop_all()


# Running commands.


def command_environment(cluster: VirtualCluster, node_name: str) -> dict[str, str]:
    """Return the environment that makes a command run on a node."""
    directories = [*shell.search_path(cluster), os.environ.get("PATH", os.defpath)]
    of_node = node_environment(cluster.paths_of(node_name), node_name)
    return {**os.environ, **of_node, "PATH": os.pathsep.join(directories)}


def find_program(name: str, environment: Mapping[str, str]) -> str:
    """Return the path of a program.

    Raises:
        OpExecError: it is not installed.
    """
    program = shutil.which(name, path=environment["PATH"])
    if program is None:
        raise OpExecError(f"{name} is not installed; is the virtual environment complete?")
    return program


def run_checked(
    cluster: VirtualCluster,
    node_name: str,
    argv: Sequence[str],
    *,
    timeout_s: float = COMMAND_TIMEOUT_S,
) -> str:
    """Run a command on a node; returns its output.

    Raises:
        OpExecError: it failed; the text holds its last words.
    """
    environment = command_environment(cluster, node_name)
    program = find_program(argv[0], environment)
    try:
        result = process.run([program, *argv[1:]], timeout_s=timeout_s, env=environment)
        return result.check().output
    except errors.CommandError as err:
        raise OpExecError(f"{' '.join(argv[:2])} failed: {err.output or err.message}") from err


# Starting and stopping.


def master_of(cluster: VirtualCluster) -> str | None:
    """Return the name of the master node, as most nodes have recorded it; None without cluster."""
    votes: Counter[str] = Counter()
    for name in cluster.node_names:
        try:
            master = ssconf.read_key_or_none(cluster.paths_of(name), "master_node")
        except errors.ConfigurationError:
            continue
        if master in cluster.node_names:
            votes[master] += 1
    return max(votes, key=lambda name: votes[name], default=None)


def start(cluster: VirtualCluster, feedback: Feedback) -> None:
    """Start the daemons of every node that belongs to the cluster; returns when they answer.

    Raises:
        GenericError: a daemon does not come up; its own words are in the text.
    """
    for name in cluster.node_names:
        paths = cluster.paths_of(name)
        if os.path.exists(paths.server_pem):
            daemon_control.start_wanted(paths, _NODE, _speaking_of(name, feedback), hostname=name)
    master = master_of(cluster)
    if master is None:
        raise OpPrereqError(f"the nodes in {cluster.base} are not part of a cluster")
    daemon_control.start_wanted(
        cluster.paths_of(master), _MASTER, _speaking_of(master, feedback), hostname=master
    )


def _speaking_of(node_name: str, feedback: Feedback) -> Feedback:
    return lambda text: feedback(f"{node_name}: {text}")


def stop(cluster: VirtualCluster, feedback: Feedback, *, keep_guests: bool = False) -> None:
    """Stop every process of the cluster: daemons, job processes, and guests unless kept.

    Raises:
        GenericError: a process does not end.
    """
    for place in (_MASTER, _NODE):
        for name in cluster.node_names:
            daemon_control.stop_all(cluster.paths_of(name), place, _speaking_of(name, feedback))
    found_processes = find_processes(cluster.base)
    others = [f for f in found_processes if not (keep_guests and is_guest(f.command))]
    for found in others:
        feedback(f"{os.path.basename(found.root)}: ending {found.command[:60]}")
    left = end_processes(others)
    if left:
        numbers = ", ".join(str(found.pid) for found in left)
        raise GenericError(f"these processes do not end: {numbers}")


def is_guest(command: str) -> bool:
    """Tell whether a process is a guest."""
    program = os.path.basename(command.partition(" ")[0])
    return program in QEMU_NAMES or program.startswith("qemu-system")


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """One daemon of one node; ``pid`` is None when it does not run."""

    node_name: str
    address: str
    role: str
    daemon: str
    pid: int | None


def status(cluster: VirtualCluster) -> list[DaemonStatus]:
    """Return the daemons of each node."""
    master = master_of(cluster)
    rows = []
    for name in cluster.node_names:
        paths = cluster.paths_of(name)
        is_member = os.path.exists(paths.server_pem)
        role = "master" if name == master else ("node" if is_member else "not in the cluster")
        places = _NODE | _MASTER if name == master else _NODE
        for daemon in daemon_control.wanted(paths, places):
            pid = daemon_control.running_pid(paths, daemon.name)
            rows.append(DaemonStatus(name, cluster.address_of(name), role, daemon.name, pid))
    return rows


def destroy(cluster: VirtualCluster, feedback: Feedback = lambda _text: None) -> None:
    """Stop everything and remove the whole base directory.

    Raises:
        GenericError: a process does not end, or a file cannot be removed.
    """
    stop(cluster, feedback)
    _unmount_below(cluster.base)
    _remove_tree(cluster.base, keep=False)


def _unmount_below(base: str) -> None:
    """Unmount what nodes have left mounted, or their volumes would be emptied with the tree.

    Raises:
        GenericError: something stays mounted.
    """
    for place in mounts.below(base):
        argv = ["umount", "--lazy", place]
        process.run(argv, timeout_s=_UNMOUNT_TIMEOUT_S).check()


def _remove_tree(base: str, *, keep: bool) -> None:
    try:
        if keep:
            for entry in os.scandir(base):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)
        else:
            shutil.rmtree(base)
    except FileNotFoundError:
        return
    except OSError as err:
        raise GenericError(f"cannot remove {err.filename}: {err.strerror}") from err


def exec_on_node(cluster: VirtualCluster, node_name: str, argv: Sequence[str]) -> None:
    """Become a command that runs on a node; returns only by an error.

    Raises:
        OpPrereqError: there is no such command.
    """
    environment: Mapping[str, str] = command_environment(cluster, node_name)
    try:
        os.execvpe(argv[0], list(argv), environment)  # noqa: S606 - we become it
    except OSError as err:
        raise OpPrereqError(
            f"cannot run {argv[0]!r}: {err.strerror}", errors.ErrorCode.NOENT
        ) from err


def entrance_of(cluster: VirtualCluster) -> str:
    """Return the node to enter where none is named: the master."""
    return master_of(cluster) or cluster.first_node


def exec_shell(cluster: VirtualCluster, node_name: str) -> None:
    """Become a shell on a node; returns only by an error.

    Raises:
        OpPrereqError: bash is not installed.
    """
    shell.prepare(cluster)
    exec_on_node(cluster, node_name, shell.shell_command(cluster))


KILL_TIMEOUT_S: Final = 10.0
_PREFIX: Final = ROOTDIR_VARIABLE.encode() + b"="


@dataclass(frozen=True, slots=True)
class NodeProcess:
    """A process that runs on a virtual node."""

    pid: int
    root: str
    command: str


def find_processes(base: str) -> list[NodeProcess]:
    """Return the processes of all nodes below a base directory.

    This process and its ancestors do not count: a shell on a node may stop the cluster.
    Processes of other users are not seen.
    """
    found = []
    own = _own_line()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in own:
            continue
        root = _root_of(int(entry))
        if root is not None and os.path.dirname(root.rstrip("/")) == base:
            found.append(NodeProcess(int(entry), root, _command_of(int(entry))))
    return found


def _own_line() -> set[int]:
    """Return this process and its ancestors."""
    line: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in line:
        line.add(pid)
        fields = _read(pid, "stat").rpartition(b")")[2].split()
        pid = int(fields[1]) if len(fields) > 1 else 0
    return line


def _root_of(pid: int) -> str | None:
    for variable in _read(pid, "environ").split(b"\0"):
        if variable.startswith(_PREFIX):
            return os.fsdecode(variable.removeprefix(_PREFIX))
    return None


def _command_of(pid: int) -> str:
    return _read(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace").strip()


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:  # gone meanwhile, or another user's
        return b""


def end_processes(
    processes: list[NodeProcess], *, timeout_s: float = KILL_TIMEOUT_S
) -> list[NodeProcess]:
    """End processes, by SIGTERM, then by SIGKILL; returns the processes that are still there."""
    for each in processes:
        _signal(each.pid, signal.SIGTERM)
    left = [each for each in processes if not process.wait_gone(each.pid, timeout_s / 2)]
    for each in left:
        _signal(each.pid, signal.SIGKILL)
    return [each for each in left if not process.wait_gone(each.pid, timeout_s / 2)]


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
