"""The template: the process that job processes are forked from, so that none pays for its imports.

LuxiD execs one; it loads all that jobs need, never runs a job itself, and holds neither lock files
nor connections.  Every job has a process of its own, forked for it alone: invariants 1 and 2 of
ARCHITECTURE.md know no difference between a fork and an exec.

Source: ARCHITECTURE, "The life of a job"; doc/design.md for the departure from one exec per job.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import socket
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

import msgspec

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import Target
from ganeti.daemon import log
from ganeti.jobexec import main as job_process
from ganeti.jobs.record import decode_job
from ganeti.logical_units.registry import all_units, load_units
from ganeti.objects.record import Record, decode_private
from ganeti.opcodes.opcode import OpCode
from ganeti.protocol.job_start import decode_message
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import encode_arguments
from ganeti.protocol.service import call_of
from ganeti.protocol.wconfd import WConfCalls
from ganeti.store import ssconf
from ganeti.system import environment, nursery
from ganeti.system.process_facts import show_name
from ganeti.transport.curl_pool import CurlPool, CurlRequest, TlsIdentity

# A job that comes just now waits for so long if the node daemon hangs.
_CALL_S_MAX: Final = 1.0


def main() -> NoReturn:
    """Be the template until LuxiD closes its end of the control socket, our standard input."""
    status = 1
    try:
        show_name("gnt-job-nursery")
        nursery.ignore_signals()
        paths = environment.current_paths()
        log.set_up("ganeti-job", f"{paths.log_dir}/jobs.log", debug=False, console=False)
        with _take_control() as control:
            _nursery(control, paths).run(itertools.chain(load_all(), rehearse(paths), _tidy_up()))
        status = 0
    finally:
        os._exit(status)  # taking the interpreter apart is of no use to anybody


def load_all() -> Iterator[str]:
    """Import what the opcodes need, one module after the other; yields each that is done."""
    yield from load_units()
    all_units()
    yield "the table of units"


def _tidy_up() -> Iterator[str]:
    """Free what getting ready left behind, before it is shared with all that come."""
    gc.collect()
    yield "tidy"


def _nursery(control: socket.socket, paths: Paths) -> nursery.Nursery:
    def live(channel: socket.socket) -> NoReturn:
        os._exit(job_process.run(paths, channel))

    def refuse(_channel: socket.socket, _err: OSError) -> None:
        """LuxiD sees the channel close, and the log says why."""

    return nursery.Nursery(control, live, refuse)


def _take_control() -> socket.socket:
    """Return the control socket; standard input and output are nothing from here on."""
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return control


# What is slow the first time.


def rehearse(paths: Paths) -> Iterator[str]:
    """Use everything once that most jobs use; yields each step that is done.

    JSON readers are built when the first object is read, and libcurl and its TLS library make their
    tables for the first connection: together a quarter of the time of a short job.  Forked
    processes inherit all of it.  No connection, thread or key is left behind.
    """
    readers: tuple[Callable[[bytes], object], ...] = (decode_job, decode_message)
    for read in readers:
        with contextlib.suppress(GenericError):  # which they raise after they got ready
            read(b"{}")
    for kind in (*_descendants(Record), *_descendants(OpCode)):
        with contextlib.suppress(msgspec.ValidationError):  # likewise
            msgspec.convert({}, kind, dec_hook=decode_private)
        yield kind.__name__
    for call in (*WConfCalls.calls.values(), *NodeCalls.calls.values()):
        call.prepare()
        yield call.name
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
    identity = TlsIdentity.of_node(paths)
    body = encode_arguments(call_of(NodeCalls.version), [])
    with contextlib.closing(CurlPool(identity)) as pool:
        pool.perform([CurlRequest(target.url("version"), body, _CALL_S_MAX)])
