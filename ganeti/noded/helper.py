"""The helper: a small single-threaded process that forks a child for each call given to it.

A daemon with an event loop and threads must not fork: a child may find a lock held by a thread that
it does not have.  So the helper is forked before loop and threads exist, imports what children need
once, and then only waits on its control socket for calls: a number of the daemon's choice, and a
descriptor that goes to a fresh child (see `child`).  It writes back who the child is and, later,
how it ended: number of the call, number of the process, wait status.

The helper ends when the daemon is gone, which it sees as the end of the control socket.  Children
still at work then finish by themselves: half an operation is worse than one whose answer is lost.
"""

import contextlib
import gc
import importlib
import logging
import os
import signal
import socket
import struct
import sys
from collections.abc import Iterable
from typing import Final, NoReturn

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.daemon import log
from ganeti.hypervisor import registry as hypervisors
from ganeti.node_ops import dispatch, registry
from ganeti.noded import child, memory
from ganeti.protocol.node_rpc import NODE_RPC, Place
from ganeti.storage import registry as disks
from ganeti.system import environment, title

logger = logging.getLogger(__name__)

DAEMON_NAME: Final = "ganeti-noded"
CALL: Final = struct.Struct("!q")  # number of the call; a descriptor comes with it
REPORT: Final = struct.Struct("!qqi")  # number of the call, number of the process, wait status
STILL_RUNNING: Final = -1  # in the place of a wait status
_EXIT_FAILED: Final = 1
_EXIT_BAD_USAGE: Final = 2


def serve(control: socket.socket, paths: Paths, hostname: str) -> NoReturn:
    """Be the helper until the daemon closes its end of ``control``."""
    title.show_name("noded-helper")
    status = _EXIT_FAILED
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the daemon alone decides when we end
        _preload()
        _Nursery(control, paths, hostname).run()
        status = 0
    except BaseException:
        logger.exception("the helper process failed")
    finally:
        logging.shutdown()
        os._exit(status)


class _Nursery:
    """The children at work, and the way to the daemon."""

    def __init__(self, control: socket.socket, paths: Paths, hostname: str) -> None:
        self._control = control
        self._paths = paths
        self._hostname = hostname
        self._calls: dict[int, int] = {}  # by process number

    def run(self) -> None:
        """Start children until the daemon has closed its end."""
        signal.signal(signal.SIGCHLD, lambda _number, _frame: self._reap())
        while True:
            token, descriptors, _flags, _address = socket.recv_fds(
                self._control, CALL.size, 1, socket.MSG_CMSG_CLOEXEC
            )
            if len(token) != CALL.size:
                return
            for descriptor in descriptors:
                with socket.socket(fileno=descriptor) as channel:
                    self._start(CALL.unpack(token)[0], channel)

    def _start(self, call: int, channel: socket.socket) -> None:
        """Fork the child for one call."""
        # Its end must not be looked for before its number is written down.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        try:
            pid = os.fork()
        except OSError as err:
            logger.warning("cannot fork: %s", err)
            where = f"node daemon on {self._hostname}"
            child.refuse(channel, f"{where} cannot start a process: {err.strerror}")
        else:
            if pid == 0:
                os.setsid()
                self._control.close()
                child.run(channel, self._paths, self._hostname)
            self._calls[pid] = call
            self._report(call, pid, STILL_RUNNING)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    def _reap(self) -> None:
        """Collect ended children and tell the daemon how they ended."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                call = self._calls.pop(pid, None)
                if call is not None:
                    self._report(call, pid, status)

    def _report(self, call: int, pid: int, status: int) -> None:
        with contextlib.suppress(OSError):  # the daemon is gone, or does not read: its loss
            self._control.send(REPORT.pack(call, pid, status), socket.MSG_DONTWAIT)


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


def _preload() -> None:
    """Import what children need, and set it aside from the garbage collector.

    A child that never collects these objects never writes to their pages, so they stay shared.
    """
    handlers = sorted(registry.modules_for(Place.CHILD))
    for module in (*handlers, *hypervisors.driver_modules(), *disks.driver_modules()):
        try:
            importlib.import_module(module)
        except ImportError as err:  # its calls will say so, each time
            logger.warning("cannot import %s: %s; going on without", module, err)
    for name in registry.MODULES:
        dispatch.warm_up(NODE_RPC[name])
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    main()
