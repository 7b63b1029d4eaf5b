"""One call in a process of its own: read the request, run the handler, write the answer, end.

The request is one line of JSON (`Request`), then the body as it came over the wire.  The reply is
the body of the answer, which ends in a newline; JSON holds no raw newline before that, so a reply
cut short is known as such.

A child whose call only looked may be told to stay: it then waits for another such call on its
channel, until the daemon closes that.
"""

import contextlib
import logging
import os
import signal
import socket
from types import FrameType
from typing import BinaryIO, Final, NoReturn

import msgspec
from msgspec import structs

from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.daemon import log
from ganeti.node_ops import dispatch
from ganeti.node_ops.context import NodeContext
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import encode_failure
from ganeti.system import process
from ganeti.system.process_facts import show_name

logger = logging.getLogger(__name__)

END_OF_REPLY: Final = b"\n"
SPARE_NAME: Final = "noded-spare"  # in ``ps``: a child that waits for its call, or the next one
CALL_NAME: Final = "noded-call"
_EXIT_CRASHED: Final = 70


class RequestHead(msgspec.Struct, frozen=True):
    """The facts of a call beside the body of its request; see NodeContext."""

    call: str
    peer: str = ""
    job_id: int | None = None
    deadline_s: float | None = None
    peer_name: str = ""


class Request(msgspec.Struct, frozen=True, array_like=True):
    """The line before the body of a request; ``stays``: the child waits for another call then."""

    head: RequestHead
    body_bytes: int
    stays: bool = False


class StoppedError(BaseException):
    """The daemon stops this child: its deadline is over.

    Not an Exception, so that no handler takes it for a failure of its own; clean-up in ``finally``
    runs, which ends the commands that the handler waits for.
    """


def encode_request(head: RequestHead, body: bytes, *, stays: bool = False) -> bytes:
    """Return the bytes that a child reads."""
    return dumps(Request(head, len(body), stays)) + b"\n" + body


def run(channel: socket.socket, paths: Paths, hostname: str) -> NoReturn:
    """Serve the calls that come over ``channel``, mostly one, and end this process."""
    status = _EXIT_CRASHED
    try:
        requests = channel.makefile("rb")
        while serve_one(requests, channel, paths, hostname):
            # Until the next call there is nothing to clean up when somebody ends this process.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            show_name(SPARE_NAME)
        status = 0
    except StoppedError:
        logger.warning("child %d was stopped", os.getpid())
    except BrokenPipeError:
        logger.warning("nobody waits for the answer of child %d any more", os.getpid())
        status = 0
    except BaseException:
        logger.exception("child %d failed", os.getpid())
    finally:
        with contextlib.suppress(Exception):
            logging.shutdown()
        os._exit(status)


def serve_one(requests: BinaryIO, channel: socket.socket, paths: Paths, hostname: str) -> bool:
    """Read one request, run the handler, write the answer; returns whether to wait for another."""
    line = requests.readline()
    if not line:
        return False
    show_name(CALL_NAME)
    signal.signal(signal.SIGTERM, _on_stop)
    request = loads_as(Request, line)
    body = requests.read(request.body_bytes)
    if len(body) < request.body_bytes:
        logger.warning("the request for %s was cut off; it is not carried out", request.head.call)
        return False
    head = request.head
    call = NodeCalls.calls[head.call]
    context = NodeContext(paths, hostname, **structs.asdict(head))
    log.set_job(head.job_id)
    answer = dispatch.answer(context, call, body)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the work is done: do not cut the answer
    channel.sendall(answer)
    return request.stays


def refuse(channel: socket.socket, text: str) -> None:
    """Answer in place of a child that could not be made."""
    with contextlib.suppress(OSError):
        channel.sendall(encode_failure(text))


def _on_stop(_number: int, _frame: FrameType | None) -> None:
    """Leave the handler, at any point of it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough; clean-up must not be cut
    process.stops.stop(StoppedError())
