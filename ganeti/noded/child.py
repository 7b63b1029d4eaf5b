"""One call in a process of its own: read the request, run the handler, write the answer, end.

The request is one line of JSON (`RequestHead`), then the body as it came over the wire, until end
of stream.  The reply is the body of the answer, which ends in a newline; JSON holds no raw newline
before that, so a reply cut short is known as such.
"""

import contextlib
import logging
import os
import signal
import socket
from types import FrameType
from typing import Final, NoReturn

import msgspec
from msgspec import structs

from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.daemon import log
from ganeti.node_ops import dispatch
from ganeti.node_ops.context import NodeContext
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import encode_failure

logger = logging.getLogger(__name__)

END_OF_REPLY: Final = b"\n"
_CHUNK_BYTES: Final = 1 << 16  # a larger buffer is a mapping of its own, each time
_EXIT_CRASHED: Final = 70


class RequestHead(msgspec.Struct, frozen=True):
    """The facts of a call beside the body of its request; see NodeContext."""

    call: str
    peer: str = ""
    job_id: int | None = None
    deadline_s: float | None = None
    peer_name: str = ""


class StoppedError(BaseException):
    """The daemon stops this child: its deadline is over.

    Not an Exception, so that no handler takes it for a failure of its own; clean-up in ``finally``
    runs, which ends the commands that the handler waits for.
    """


def encode_request(head: RequestHead, body: bytes) -> bytes:
    """Return the bytes that a child reads."""
    return dumps(head) + b"\n" + body


def run(channel: socket.socket, paths: Paths, hostname: str) -> NoReturn:
    """Serve one call over ``channel`` and end this process."""
    status = _EXIT_CRASHED
    try:
        signal.signal(signal.SIGTERM, _on_stop)
        _serve(channel, paths, hostname)
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


def _serve(channel: socket.socket, paths: Paths, hostname: str) -> None:
    """Read the request, run the handler, write the answer."""
    head_line, _, body = _read_all(channel).partition(b"\n")
    head = loads_as(RequestHead, head_line)
    call = NodeCalls.calls[head.call]
    context = NodeContext(paths, hostname, **structs.asdict(head))
    log.set_job(head.job_id)
    answer = dispatch.answer(context, call, body)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the work is done: do not cut the answer
    channel.sendall(answer)


def refuse(channel: socket.socket, text: str) -> None:
    """Answer in place of a child that could not be made."""
    with contextlib.suppress(OSError):
        channel.sendall(encode_failure(text))


def _read_all(channel: socket.socket) -> bytes:
    """Read until the daemon has shut down its side."""
    chunks = []
    while chunk := channel.recv(_CHUNK_BYTES):
        chunks.append(chunk)
    return b"".join(chunks)


def _on_stop(_number: int, _frame: FrameType | None) -> None:
    """Leave the handler, at any point of it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough; clean-up must not be cut
    raise StoppedError
