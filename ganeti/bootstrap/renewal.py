"""Replacing keys and certificates of a cluster that is there.

Secrets and certificates for clients are files: new ones are put on the master, and sent from there
like all others.  The certificates by which nodes know each other cannot be replaced while they
talk: the daemons are stopped, every node is told on another way, and then all start again.  From
then on only the master is trusted; a job lets the other candidates make certificates of their own.

All that is told follows from the cluster's certificate on the master, which is replaced in one
step.  So a renewal that was cut off, by a power failure too, goes on from there: it is done once
more with the certificate that is there, old or new.  That needs no LuxiD, which may not get enough
votes while some nodes have other certificates.

Source: cli.json, "renew-crypto"; constants.json, "ssh" (NDS_*).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from ganeti.base.daemons import Place
from ganeti.base.errors import CommandError, ErrorCode, GenericError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap import cluster_files, keys, node_setup
from ganeti.bootstrap.node_transport import NodeTransport
from ganeti.config.master_change import with_only_candidate_cert
from ganeti.config.ssconf_values import ssconf_values
from ganeti.config.state import ConfigState
from ganeti.store import config_file, ssconf
from ganeti.store import renewal as note
from ganeti.system import certificates, clock, daemon_control, files

logger = logging.getLogger(__name__)

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
            _replace(undo, getattr(paths, name), content, keys.mode_of(name))
        undo.pop_all()


def _replace(undo: ExitStack, path: str, content: bytes, mode: int) -> None:
    before = files.read_bytes_or_none(path)
    try:
        files.write_durable(path, content, mode)
    except OSError as err:
        raise GenericError(f"cannot write {path}: {err.strerror}; nothing was changed") from err
    if before is None:
        undo.callback(files.remove_if_exists, path)
    else:
        undo.callback(files.write_durable, path, before, mode)


def check_reachable(peers: Sequence[Peer]) -> None:
    """Refuse while a node cannot be told: it would be lost to the others.

    Raises:
        OpPrereqError: the text names the nodes and the errors.
    """
    failures = []
    for peer in peers:
        try:
            peer.transport.run(["true"], stdin=b"", timeout_s=REACH_TIMEOUT_S).check()
        except CommandError as err:
            said = err.output or err.message
            failures.append(f"{peer.name} ({peer.transport.describe()}): {said}")
    if failures:
        raise OpPrereqError(
            f"cannot run programs on {'; '.join(failures)}. Put that right, or mark the node"
            " offline and take it in again by 'gnt-node add --readd' afterwards",
            ErrorCode.ENVIRON,
        )


def replace_identity(
    paths: Paths, own_name: str, peers: Sequence[Peer], *, server_pem: bytes | None, say: Feedback
) -> list[str]:
    """Give the cluster another certificate, or only the master another one as a client.

    This node's daemons stop and start again whatever happens; instances run on meanwhile.

    Args:
        server_pem: the cluster's new certificate; None leaves it as it is.

    Returns:
        The names of the nodes that were not told; they have to be taken in again.  The note that
        this is going on stays until the caller has the candidates make their certificates.

    Raises:
        GenericError: it failed on this node; certificates and configuration are as they were.
    """
    say(f"Stopping the daemons on {own_name}")
    was_cut_off = note.is_cut_off(paths)
    note.begin(paths)
    try:
        daemon_control.stop_all(paths, EVERYWHERE, logger.info)
        try:
            _write_identity(paths, own_name, server_pem)
        except GenericError:
            if not was_cut_off:
                note.end(paths)  # nothing has changed
            raise
        return _tell(paths, peers, say)
    finally:
        say(f"Starting the daemons on {own_name}")
        daemon_control.start_wanted(paths, EVERYWHERE, logger.info)


def _write_identity(paths: Paths, own_name: str, server_pem: bytes | None) -> None:
    """Write the certificates of this node, and make it the only one that is trusted."""
    server = server_pem or files.read_bytes(paths.server_pem)
    client = keys.make_client_certificate(own_name, server)
    digest = certificates.facts(client, paths.client_pem).digest
    config = with_only_candidate_cert(
        config_file.read_config(paths), node_name=own_name, digest=digest, now=clock.now()
    )
    with ExitStack() as undo:
        _replace(undo, paths.server_pem, server, cluster_files.SECRET_MODE)
        _replace(undo, paths.client_pem, client, cluster_files.SECRET_MODE)
        _replace(undo, paths.config_data, config, config_file.FILE_MODE)
        try:
            ssconf.write_values(paths, ssconf_values(ConfigState(config).durable))
        except OSError as err:
            raise GenericError(f"cannot write {err.filename}: {err.strerror}") from err
        undo.pop_all()


def _tell(paths: Paths, peers: Sequence[Peer], say: Feedback) -> list[str]:
    """Send each node the certificate and the trusted digests; returns the nodes that failed."""
    missed = []
    for peer in peers:
        say(f"Setting up node {peer.name}")
        try:
            node_setup.set_up_remotely(peer.transport, node_setup.compose_setup(paths, peer.name))
        except GenericError as err:
            missed.append(peer.name)
            say(f"{err.message}; going on")
    return missed
