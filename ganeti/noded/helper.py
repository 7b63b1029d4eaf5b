"""The helper: the nursery of NodeD, which forks a child for each call given to it.

It is forked before the daemon has an event loop and threads, and imports once the modules that
children need.  Children still at work when the daemon ends finish by themselves: half an operation
is worse than one whose answer is lost.

Source: `ganeti.system.nursery` for its workings, `child` for the work of the children.
"""

import codecs
import contextlib
import gc
import importlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from typing import Final, NoReturn

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.daemon import log, memory
from ganeti.hypervisor import interface as hypervisors
from ganeti.node_ops import dispatch
from ganeti.noded import child
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import encode_arguments
from ganeti.protocol.service import call_of
from ganeti.storage import registry as disks
from ganeti.system import environment, nursery
from ganeti.system.process_facts import show_name, signals_wait

logger = logging.getLogger(__name__)

DAEMON_NAME: Final = "ganeti-noded"
_NAME: Final = "noded-helper"
_CALLS_REHEARSED: Final = 16  # Python adapts code after eight runs
_EXIT_FAILED: Final = 1
_EXIT_BAD_USAGE: Final = 2


def serve(control: socket.socket, paths: Paths, hostname: str) -> NoReturn:
    """Be the helper until the daemon closes its end of ``control``."""
    show_name(_NAME)
    status = _EXIT_FAILED
    try:
        nursery.ignore_signals()
        memory.be_an_ordinary_victim()
        _preload()
        _mend(paths, hostname)
        _rehearse(paths, hostname)

        def get_ready() -> None:
            show_name(child.SPARE_NAME)
            memory.lock_on_fault()

        def live(channel: socket.socket) -> NoReturn:
            show_name(child.CALL_NAME)
            child.run(channel, paths, hostname)

        def refuse(channel: socket.socket, err: OSError) -> None:
            where = f"node daemon on {hostname}"
            child.refuse(channel, f"{where} cannot start a process: {err.strerror}")

        nursery.Nursery(control, live, refuse, get_ready=get_ready).run()
        status = 0
    except BaseException:
        logger.exception("the helper process failed")
    finally:
        logging.shutdown()
        os._exit(status)


def close_all_but(kept: Iterable[int]) -> None:
    """Close every descriptor that a helper must not hold, such as the daemon's locked pid file."""
    keep = set(kept)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))


def main() -> NoReturn:
    """Run as a program: the daemon starts a new helper this way when the first has died."""
    if len(sys.argv) != 3 or not sys.argv[1].isdigit():
        sys.stderr.write("this is a part of ganeti-noded; it is not started by hand\n")
        sys.exit(_EXIT_BAD_USAGE)
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    paths = environment.current_paths()
    with contextlib.suppress(GenericError):  # calls are served even where no log can be written
        log.set_up(
            DAEMON_NAME,
            paths.log_file(DAEMON_NAME),
            debug=False,
            console=False,
            fallback=log.console_of(paths),
        )
    if sys.argv[2] == "lock":
        memory.enable()
    serve(control, paths, environment.own_hostname())


def _mend(paths: Paths, hostname: str) -> None:
    """Put right what calls left that died with an earlier daemon; failures are logged."""
    try:
        hypervisors.mend(hypervisors.NodeEnv(paths, hostname, ""))
    except Exception:
        logger.exception("cannot look at the remains of earlier calls; going on")


def _preload() -> None:
    """Import the modules that children need."""
    for module in (*hypervisors.driver_modules(), *disks.driver_modules()):
        try:
            importlib.import_module(module)
        except ImportError as err:  # its calls will say so, each time
            logger.warning("cannot import %s: %s; going on without", module, err)
    for call in NodeCalls.calls.values():
        dispatch.warm_up(call)
    codecs.lookup("ascii")  # a module that is loaded when something is read as such


def _rehearse(paths: Paths, hostname: str) -> None:
    """Serve a call that only looks some times, as children do: the first times are slow.

    What is built then, and how Python adapts the code, children inherit.
    """
    call = call_of(NodeCalls.version)
    body = encode_arguments(call, [])
    request = child.encode_request(child.RequestHead(call.name), body, stays=True)
    with _unstopped():
        for _ in range(_CALLS_REHEARSED):
            ours, theirs = socket.socketpair()
            with ours, theirs, theirs.makefile("rb") as requests:
                ours.sendall(request)
                child.serve_one(requests, theirs, paths, hostname)
    gc.collect()


@contextlib.contextmanager
def _unstopped() -> Iterator[None]:
    """Be the helper again after the block, which does the work of children."""
    with signals_wait([signal.SIGTERM]):
        try:
            yield
        finally:
            nursery.ignore_signals()
            log.set_job(None)
            show_name(_NAME)


if __name__ == "__main__":
    main()
