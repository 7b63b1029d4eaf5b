"""What the template does once, so that no job process pays for doing it the first time.

What reads JSON into objects is built when the first of them is read, and libcurl and its TLS
library make their tables for the first connection: together a quarter of what a short job costs.
Forked processes inherit all of it.  No connection, thread or key is left behind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import Target, call_named
from ganeti.jobs.record import decode_job
from ganeti.objects.record import Record, decode_private
from ganeti.opcodes.opcode import OpCode
from ganeti.protocol.job_start import decode_message
from ganeti.protocol.node_rpc import encode_arguments
from ganeti.store import ssconf
from ganeti.transport.curl_pool import CurlPool, CurlRequest, TlsIdentity
from ganeti.transport.identity import node_client_certificate

# A job that comes just now waits for so long if the node daemon hangs.
_CALL_S_MAX: Final = 1.0


def rehearse(paths: Paths) -> Iterator[str]:
    """Use everything once that most jobs use; yields what was done, step by step."""
    readers: tuple[Callable[[bytes], object], ...] = (decode_job, decode_message)
    for read in readers:
        with contextlib.suppress(GenericError):  # which they raise after they got ready
            read(b"{}")
    for kind in (*_descendants(Record), *_descendants(OpCode)):
        with contextlib.suppress(msgspec.ValidationError):  # likewise
            msgspec.convert({}, kind, dec_hook=decode_private)
        yield kind.__name__
    with contextlib.suppress(GenericError):  # jobs will say what is wrong with the files
        _call_own_node(paths)
    yield "a call"


def _descendants(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for child in kind.__subclasses__():
        yield child
        yield from _descendants(child)


def _call_own_node(paths: Paths) -> None:
    """Ask this node's daemon for its version; what it answers, if at all, does not matter."""
    name = ssconf.master_node(paths)
    target = Target(name, ssconf.node_primary_ips(paths).get(name, ""))
    if not target.address:
        return
    identity = TlsIdentity(node_client_certificate(paths), paths.server_pem)
    body = encode_arguments(call_named("version"), [])
    with contextlib.closing(CurlPool(identity)) as pool:
        pool.perform([CurlRequest(target.url("version"), body, _CALL_S_MAX)])
