"""The common part of both halves of a move to another cluster: secret, certificates, waiting.

The half that sends is in `export`, the half that receives `remote_import`.  Each disk is a
transfer of its own; all of them go on at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError, ProtocolError, X509CertError
from ganeti.base.paths import Paths
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.copying import (
    POLL_S,
    PROGRESS_S,
    ask_patiently,
    looks,
    progress_text,
    transfer_states,
)
from ganeti.objects.model import Node
from ganeti.protocol import remote_move
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.remote_move import CERTIFICATE_VALIDITY_S, SECRET_BYTES_MAX, Secret
from ganeti.system import files

_VALIDITY_S_MAX: Final = 2 * CERTIFICATE_VALIDITY_S  # nodes round up to whole days


def domain_secret(paths: Paths) -> Secret:
    """Return the cluster domain secret.

    Raises:
        OpPrereqError: the cluster has none.
    """
    path = paths.cluster_domain_secret
    try:
        data = files.read_bytes(path, SECRET_BYTES_MAX)
    except OSError as err:
        raise OpPrereqError(
            f"the cluster domain secret {path} cannot be read ({err.strerror}); make one with"
            " 'gnt-cluster renew-crypto --new-cluster-domain-secret'",
            ErrorCode.ENVIRON,
        ) from err
    if not data.strip():
        raise OpPrereqError(f"the cluster domain secret {path} is empty", ErrorCode.ENVIRON)
    return Secret(data)


def peer_certificate(context: JobContext, secret: Secret, said: str | None, whose: str) -> str:
    """Return the certificate that the other cluster will show, as PEM.

    Raises:
        ProtocolError: it is not signed, has expired, or is valid for too long.
    """
    from ganeti.system import certificates  # cryptography: 30 ms and its memory for every job

    pem = remote_move.read_certificate(secret, said, whose)
    try:
        facts = certificates.facts(pem.encode(), f"certificate of {whose}")
    except X509CertError as err:
        raise ProtocolError(str(err)) from err
    now = context.now()
    if not facts.not_before <= now < facts.not_after:
        raise ProtocolError(
            f"the certificate of {whose} has expired, or is not valid yet: compare the clocks of"
            " both clusters, and begin anew"
        )
    if facts.not_after - now > _VALIDITY_S_MAX:
        raise ProtocolError(f"the certificate of {whose} is valid for more than two days")
    return pem


def make_certificate(context: JobContext, node: Node) -> tuple[str, str]:
    """Make a certificate for one move on a node; returns its name there and its PEM text.

    Raises:
        OpExecError: the node could not.
    """
    nodes = context.nodes.on(node, "make a certificate for the move")
    match answer := nodes.x509_cert_create(CERTIFICATE_VALIDITY_S):
        case [str(name), str(pem)]:
            return name, pem
        case _:
            raise OpExecError(f"node {node.name!r} made no certificate but {answer!r}")


def remove_certificate(context: JobContext, node: Node, name: str) -> None:
    """Remove a certificate that was made for one move; a failure is told."""
    context.attempt(f"remove certificate {name}", NodeCalls.x509_cert_remove, node, name)


def follow(context: JobContext, doing: str, node: Node, names: Sequence[str], done: str) -> None:
    """Wait until all transfers on a node have ended; the first that fails ends the waiting.

    Args:
        names: of the transfers, in the order of the disks.
        done: the word for a disk whose transfer has ended.

    Raises:
        OpExecError: one failed; names the disk and the reason.
        JobCanceled: canceled meanwhile.
    """
    waiting = dict(enumerate(names))
    for is_due in looks(context, POLL_S, PROGRESS_S):
        found = transfer_states(context, doing, node, list(waiting.values()))
        states = dict(zip(waiting, found, strict=True))
        for index, state in states.items():
            if state.get("exit_status") is None:
                continue
            if state["exit_status"] != 0:
                raise OpExecError(
                    f"cannot {doing}: disk {index}: node {node.name!r}: {state['error_message']}"
                )
            context.feedback(f"* disk {index} {done}")
            del waiting[index]
        if not waiting:
            return
        for index in waiting if is_due else ():
            if states[index].get("connected"):
                context.feedback(progress_text(index, states[index]))


def have_arrived(context: JobContext, doing: str, node: Node, names: Sequence[str]) -> bool:
    """Stop transfers to a node, and tell whether all disks had arrived.

    Raises:
        OpExecError: that cannot be found out.
        JobCanceled: canceled while the node does not answer.
    """
    for name in names:
        ask_patiently(context, doing, NodeCalls.impexp_abort, node, name)
    states = transfer_states(context, doing, node, names)
    return all(state.get("exit_status") == 0 for state in states)
