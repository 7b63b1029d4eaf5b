"""Making a machine ready for the cluster, and replacing the certificates of its nodes.

The master composes a `NodeSetup` and sends it as JSON to ``node-daemon-setup`` on the machine. That
checks it against the files there, writes the files and starts the node daemon.  After that
the machine answers node RPC, and the job that adds it to the configuration can begin.

Secrets and certificates for clients are replaced as files: new ones are put on the master, and
sent from there like all others.  The certificates by which nodes know each other cannot be replaced
while they talk: the daemons are stopped, every node is told on another way, and then all start
again.  The master issues those of the other candidates too, so that every node is told at once whom
to trust, and another candidate can take over whenever the master is lost.  In the end a job lets
the candidates make certificates whose keys nobody else has had.

The steps of a renewal follow from the cluster's certificate on the master, which is replaced at
once.  So a renewal that was cut off, by a power failure too, goes on from there: it is done once
more with the certificate that is there, old or new.  That needs no LuxiD, which may not get enough
votes while some nodes have other certificates.

Source: constants.json, "ssh" (NDS_*); cli.json, "renew-crypto".
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import msgspec

from ganeti.base import errors, json
from ganeti.base.daemons import MASTER_DAEMONS, Place
from ganeti.base.errors import CommandError, GenericError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap import cluster_files, keys
from ganeti.bootstrap.node_transport import NodeTransport
from ganeti.config.config_data import find_node, nodes_of, split_config, with_candidate_certs
from ganeti.config.ssconf_values import ssconf_values
from ganeti.config.state import ConfigState
from ganeti.store import config_file, ssconf
from ganeti.store.notes import renewal as note
from ganeti.system import certificates, clock, daemon_control, files, ssh
from ganeti.system.environment import ROOTDIR_VARIABLE, own_hostname
from ganeti.system.filelock import FileLock

logger = logging.getLogger(__name__)

SETUP_PROGRAM: Final = "node-daemon-setup"
CLEANUP_PROGRAM: Final = "node-cleanup"
SETUP_TIMEOUT_S: Final = 120.0
WATCHER_TIMEOUT_S: Final = 300.0  # until its next run begins
_WATCHER_ON_NODE_S: Final = 90.0  # its scripts take a minute at most; the master waits no longer
EVERY_NODE: Final = frozenset({Place.NODE})


class NodeSetup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The message that makes a machine a node; keys as of NDS_*."""

    node_name: str
    cluster_name: str
    node_daemon_certificate: str
    ssconf: Mapping[str, str]
    hmac_key: str | None = None
    manage_ssh: bool = False
    ssh_host_key: list[tuple[str, str, str]] = []  # (kind, private, public); SSHS_SSH_HOST_KEY
    client_certificate: str | None = None  # ours: of a candidate, with its key
    start_node_daemon: bool = True
    force_join: bool = False


def decode_setup(data: bytes) -> NodeSetup:
    """Read a message from its JSON form.

    Raises:
        OpPrereqError: not the JSON of a `NodeSetup`; the text names the first fault.
    """
    try:
        return json.loads_as(NodeSetup, data)
    except errors.ProtocolError as err:
        raise OpPrereqError(f"the set-up data cannot be understood: {err.message}") from err


def compose_setup(
    paths: Paths,
    node_name: str,
    *,
    client_certificate: bytes | None = None,
    force_join: bool = False,
    with_ssh: bool = False,
) -> NodeSetup:
    """Compose the message for a new node on the master.

    Args:
        client_certificate: the one that it is to have, with its key.
        with_ssh: the node is to have the host keys that all nodes share, and to let the master
            change the keys that may log in.

    Raises:
        ConfigurationError, OSError: this machine is not the master of a cluster.
    """
    return NodeSetup(
        node_name=node_name,
        cluster_name=ssconf.cluster_name(paths),
        node_daemon_certificate=certificates_text(paths),
        ssconf=ssconf.read_all(paths),
        manage_ssh=with_ssh,
        ssh_host_key=ssh.read_host_keys(paths) if with_ssh else [],
        client_certificate=None if client_certificate is None else client_certificate.decode(),
        force_join=force_join,
    )


def certificates_text(paths: Paths) -> str:
    """Return the cluster certificate with its key.

    Raises:
        X509CertError: it is broken.
        OSError: it is missing.
    """
    pem = files.read_bytes(paths.server_pem)
    certificates.check_key_fits(pem, paths.server_pem)
    return pem.decode()


def set_up_remotely(transport: NodeTransport, setup: NodeSetup) -> str:
    """Run ``node-daemon-setup`` on a machine; returns its output.

    Raises:
        OpExecError: it failed there, or the machine was not reached; its output is in the
            text.
    """
    argv = daemon_control.command(SETUP_PROGRAM)
    return _run_remotely(transport, argv, msgspec.json.encode(setup), setup.node_name)


def clean_up_remotely(transport: NodeTransport, node_name: str, *, backup: bool = False) -> None:
    """Run ``node-cleanup`` on a machine; errors as of `set_up_remotely`.

    Args:
        backup: the files are kept in a directory of the machine.
    """
    args = ["--yes-do-it"] if backup else ["--yes-do-it", "--no-backup"]
    argv = daemon_control.command(CLEANUP_PROGRAM, args)
    _run_remotely(transport, argv, b"", node_name)


def _run_remotely(transport: NodeTransport, argv: list[str], stdin: bytes, node_name: str) -> str:
    try:
        result = transport.run(argv, stdin=stdin, timeout_s=SETUP_TIMEOUT_S).check()
    except CommandError as err:
        said = err.output or err.message
        raise errors.OpExecError(
            f"node {node_name!r} could not be set up through {transport.describe()}: {said}"
        ) from err
    return result.stdout.decode("utf-8", "replace")


def watcher_kept_away(paths: Paths, timeout_s: float = WATCHER_TIMEOUT_S) -> FileLock:
    """Return the lock of the watcher here, taken: it would start daemons that are being stopped.

    Raises:
        GenericError: a run of it does not end.
    """
    files.ensure_directory(paths.lock_dir, 0o755)
    lock = FileLock(paths.watcher_lock)
    return lock.taken(
        timeout_s,
        f"ganeti-watcher has been at work for {timeout_s:g} s (it holds {lock.path}); nothing was"
        " changed. See its log, and try again",
    )


def set_up_here(paths: Paths, setup: NodeSetup) -> list[str]:
    """Make this machine a node: write certificate and simple configuration, start the daemon.

    Files written by a step are taken away again when a later one fails, but not host keys.

    Returns:
        The steps left to the administrator, a sentence each.

    Raises:
        OpPrereqError: wrong machine, or it belongs to a cluster already, or is the master;
            nothing was changed.
        GenericError: the node daemon did not start.
    """
    _check(paths, setup)
    pem = setup.node_daemon_certificate.encode()
    certificates.check_key_fits(pem, "the cluster certificate that was sent")
    client = None if setup.client_certificate is None else setup.client_certificate.encode()
    if client is not None:
        certificates.check_key_fits(client, "the client certificate that was sent")
    before = ssconf.read_key_or_none(paths, "cluster_name")
    with watcher_kept_away(paths, _WATCHER_ON_NODE_S), ExitStack() as undo:
        if before is None:
            undo.callback(cluster_files.remove_cluster_files, paths)
        daemon_control.stop_all(paths, _places_to_stop(paths), logger.info)
        if before != setup.cluster_name:
            cluster_files.remove_availability(paths)  # its daemons would start with the others
            cluster_files.remove_access(paths)
        cluster_files.ensure_directories(paths)
        if files.read_bytes_or_none(paths.server_pem) != pem:
            # Issued by another cluster's certificate, so nobody would trust it.
            files.remove_if_exists(paths.client_pem)
        files.write_durable(paths.server_pem, pem, cluster_files.SECRET_MODE)
        if client is not None:
            files.write_durable(paths.client_pem, client, cluster_files.SECRET_MODE)
        if setup.hmac_key is not None:
            files.write_durable(paths.hmac_key, setup.hmac_key.encode(), cluster_files.SECRET_MODE)
        ssconf.write_values(paths, setup.ssconf)
        if setup.start_node_daemon:
            start_daemons(paths, EVERY_NODE, undo, hostname=setup.node_name)
        note.end(paths)  # a renewal cut off here while this node was the master is settled by this
        if setup.manage_ssh:
            keys.let_keys_be_managed(paths)
        undo.pop_all()
    return keys.take_host_keys(paths, setup.ssh_host_key)


def start_daemons(
    paths: Paths,
    places: frozenset[Place],
    undo: ExitStack,
    report: Callable[[str], None] = logger.info,
    *,
    hostname: str | None = None,
) -> None:
    """Start the daemons of some places; they are stopped again when `undo` is unwound.

    Raises:
        CommandError: one that is needed did not come up; its own words are in the text.
    """
    undo.callback(_stop_again, paths, places)
    daemon_control.start_wanted(paths, places, report, hostname=hostname)


def _stop_again(paths: Paths, places: frozenset[Place]) -> None:
    """Stop daemons; a failure here must not hide the error that is being undone."""
    try:
        daemon_control.stop_all(paths, places, logger.info)
    except GenericError as err:
        logger.warning("Not everything could be stopped again: %s, ignoring", err.message)


def _places_to_stop(paths: Paths) -> frozenset[Place]:
    """Return the places whose daemons are stopped: a former master may run a remote API."""
    is_master = daemon_control.running_pid(paths, MASTER_DAEMONS[0]) is not None
    return EVERY_NODE if is_master else frozenset(Place)


def _check(paths: Paths, setup: NodeSetup) -> None:
    own = own_hostname()
    if setup.node_name not in (own, own.partition(".")[0], socket.gethostname()):
        raise OpPrereqError(
            f"set-up data for node {setup.node_name!r} came to {own!r}; check the name service"
        )
    unknown = sorted(set(setup.ssconf) - ssconf.KEYS)
    if unknown:
        raise OpPrereqError(f"the set-up data has unknown ssconf keys: {', '.join(unknown)}")
    _check_no_other_master(paths, setup, own)
    if setup.force_join:
        return
    found = ssconf.read_key_or_none(paths, "cluster_name")
    if found is not None and found != setup.cluster_name:
        raise errors.wrong_state(
            f"node {own!r} belongs to cluster {found!r}, not to {setup.cluster_name!r};"
            " use --force-join to take it over"
        )
    if found is None and config_file.has_config(paths):
        raise errors.wrong_state(
            f"node {own!r} has a cluster configuration in {paths.config_data} but is no member of a"
            " cluster; run node-cleanup there first"
        )


def _check_no_other_master(paths: Paths, setup: NodeSetup, own: str) -> None:
    """Refuse a living master, even by force: its cluster would lose its certificate."""
    master = setup.ssconf.get("master_node", setup.node_name)
    if master != setup.node_name and daemon_control.running_pid(paths, MASTER_DAEMONS[0]):
        raise errors.wrong_state(
            f"{MASTER_DAEMONS[0]} runs on {own!r}, which is a master, and the set-up data names"
            f" {master!r}; if that is right, stop it first: 'daemon-util stop-master' on {own!r}"
        )


def clean_up_here(paths: Paths, *, backup: bool) -> list[str]:
    """Make this machine no node of any cluster; returns the files that were removed.

    Raises:
        OpPrereqError: the master's daemons run here: destroy the cluster instead.
        GenericError: a daemon cannot be stopped, or a run of the watcher does not end.
    """
    for name in reversed(MASTER_DAEMONS):
        if daemon_control.running_pid(paths, name) is not None:
            raise errors.wrong_state(
                f"{name} runs here, so this is a master; use 'gnt-cluster destroy'"
            )
    kept = f"{paths.backup_dir}/ganeti-{int(clock.now())}" if backup else None
    with watcher_kept_away(paths, _WATCHER_ON_NODE_S):
        if kept is not None:
            _back_up(paths, kept, cluster_files.cluster_files(paths), shutil.copy2)
        daemon_control.stop_all(paths, frozenset(Place), logger.info)
        if kept is not None and os.path.isdir(paths.queue_archive_dir):
            # So many files may take longer to copy than the master waits.
            _back_up(paths, kept, [paths.queue_archive_dir], shutil.move)
        return cluster_files.remove_cluster_files(paths)


def _back_up(
    paths: Paths, target: str, found: Sequence[str], take: Callable[[str, str], object]
) -> None:
    """Copy or move files below a directory.

    Raises:
        GenericError: one cannot be taken there.
    """
    for path in found:
        copy = target + path.removeprefix(paths.root)
        try:
            files.ensure_directory(copy.rpartition("/")[0], 0o700)
            take(path, copy)
        except OSError as err:
            raise GenericError(f"cannot back up {path}: {err.strerror or err}") from err


EVERYWHERE: Final = frozenset(Place)
REACH_TIMEOUT_S: Final = 60.0

Feedback = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Peer:
    """Another node, and how it is reached without its node daemon."""

    name: str
    transport: NodeTransport


def write_files(paths: Paths, contents: Mapping[str, bytes]) -> None:
    """Put new keys and certificates on this node; all or none of them.

    Args:
        contents: by the names of well-known paths.

    Raises:
        GenericError: one cannot be written; those before it are as they were.
    """
    with ExitStack() as undo:
        for name, content in contents.items():
            cluster_files.replace_file(undo, getattr(paths, name), content, keys.mode_of(name))
        undo.pop_all()


def check_reachable(peers: Sequence[Peer]) -> None:
    """Refuse while a node cannot be told: it would be lost to the others.

    Raises:
        OpPrereqError: the text names the nodes and the errors.
    """
    _, failures = _run_on_each(peers, ["true"])
    if failures:
        raise OpPrereqError(
            f"cannot run programs on {'; '.join(failures.values())}. Put that right, or mark the"
            " node offline and take it in again by 'gnt-node add --readd' afterwards",
            errors.ErrorCode.ENVIRON,
        )


# Without a program of ours, which takes its time to start.
_NAME_MASTER: Final = f'cat "${{{ROOTDIR_VARIABLE}}}{Paths("").ssconf_file("master_node")}"'


def ask_masters(peers: Sequence[Peer]) -> tuple[dict[str, str], dict[str, str]]:
    """Ask nodes for the master that they follow, whatever certificates they have.

    Returns:
        {node: its master}, and for the nodes that did not tell {node: who it is, and why}.
    """
    said, failures = _run_on_each(peers, ["sh", "-c", _NAME_MASTER])
    return {name: (text.split() or [""])[-1] for name, text in said.items()}, failures


def _run_on_each(
    peers: Sequence[Peer], argv: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Run a short program on nodes; returns {node: output} and {node: who it is, and its error}."""
    said, failures = {}, {}
    for peer in peers:
        try:
            result = peer.transport.run(argv, stdin=b"", timeout_s=REACH_TIMEOUT_S).check()
        except CommandError as err:
            why = err.output or err.message
            failures[peer.name] = f"{peer.name} ({peer.transport.describe()}): {why}"
        else:
            said[peer.name] = result.stdout.decode("utf-8", "replace")
    return said, failures


def replace_identity(
    paths: Paths, own_name: str, peers: Sequence[Peer], *, server_pem: bytes | None, say: Feedback
) -> list[str]:
    """Give the cluster another certificate, or only the master another one as a client.

    This node's daemons stop, and start again even after a failure; instances run on meanwhile, and
    no watcher starts daemons, which would go on with what they read before.

    Args:
        server_pem: the cluster's new certificate; None leaves it as it is.

    Returns:
        The names of the nodes that were not told; they have to be taken in again.  The note that
        this is going on stays until the caller has the candidates make their certificates.

    Raises:
        GenericError: it failed on this node; certificates and configuration are as they were.
    """
    with watcher_kept_away(paths):
        say(f"Stopping the daemons on {own_name}")
        was_cut_off = note.is_cut_off(paths)
        note.begin(paths)
        try:
            daemon_control.stop_all(paths, EVERYWHERE, logger.info)
            try:
                issued = _write_identity(paths, own_name, [peer.name for peer in peers], server_pem)
            except GenericError:
                if not was_cut_off:
                    note.end(paths)  # nothing has changed
                raise
            return _tell(paths, peers, issued, say)
        finally:
            say(f"Starting the daemons on {own_name}")
            daemon_control.start_wanted(paths, EVERYWHERE, logger.info)


def _write_identity(
    paths: Paths, own_name: str, others: Collection[str], server_pem: bytes | None
) -> dict[str, bytes]:
    """Write the certificates of this node, and trust new ones only.

    Returns:
        Those of the other nodes that are candidates, by name.
    """
    server = server_pem or files.read_bytes(paths.server_pem)
    before = config_file.read_config(paths)
    split = split_config(before)
    candidates = [node for node in nodes_of(split) if node.name in others and node.master_candidate]
    digests, issued = {}, {}
    for node in (find_node(split, own_name), *candidates):
        issued[node.name] = keys.make_client_certificate(node.name, server)
        digests[node.uuid] = certificates.facts(issued[node.name], paths.client_pem).digest
    client = issued.pop(own_name)
    config = with_candidate_certs(before, digests, now=clock.now())
    with ExitStack() as undo:
        cluster_files.replace_file(undo, paths.server_pem, server, cluster_files.SECRET_MODE)
        cluster_files.replace_file(undo, paths.client_pem, client, cluster_files.SECRET_MODE)
        cluster_files.replace_file(undo, paths.config_data, config, config_file.FILE_MODE)
        try:
            ssconf.write_values(paths, ssconf_values(ConfigState(config).durable))
        except OSError as err:
            raise GenericError(f"cannot write {err.filename}: {err.strerror}") from err
        undo.pop_all()
    return issued


def _tell(
    paths: Paths, peers: Sequence[Peer], issued: Mapping[str, bytes], say: Feedback
) -> list[str]:
    """Send each node its certificates and the trusted digests; returns the nodes that failed."""
    missed = []
    for peer in peers:
        say(f"Setting up node {peer.name}")
        client = issued.get(peer.name)
        try:
            setup = compose_setup(paths, peer.name, client_certificate=client)
            set_up_remotely(peer.transport, setup)
        except GenericError as err:
            missed.append(peer.name)
            say(f"{err.message}; going on")
    return missed
