"""Keeping a daemon in memory, so that it can act when the machine's disk no longer does.

The daemon locks all it has, and with it the pages of programs and libraries that children of the
node daemon share; such a child locks only pages that it maps anew, as it touches them, which costs
nothing.  Where the system does not permit it (no CAP_IPC_LOCK and a limit by RLIMIT_MEMLOCK) this
is logged and the daemon goes on: below a limit the lock itself may be granted, but then everything
mapped beyond it fails, and a daemon that cannot load a library is worse than one that may be
swapped out.

Memory that a daemon needed for a moment only goes back to the system: `return_large_buffers` and
`give_back` are called for every daemon.

Source: mlockall(2), malloc_trim(3); design of Ganeti 2.1, "Node daemon in RAM".
"""

import ctypes
import gc
import logging
import mmap
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

logger = logging.getLogger(__name__)

_MCL_CURRENT: Final = 1
_MCL_FUTURE: Final = 2
_MCL_ONFAULT: Final = 4
_MLOCK_ONFAULT: Final = 1  # mlock2(2)
_MAP_NORESERVE: Final = 0x4000  # mmap(2); the module names it from Python 3.13 on
_M_ARENA_MAX: Final = -8  # mallopt(3)

_M_MMAP_THRESHOLD: Final = -3
_M_TRIM_THRESHOLD: Final = -1
_LARGE_BYTES: Final = 1 << 20  # nothing that is done often needs that much
_SPARE_BYTES: Final = 2 << 20  # free at the end of the heap; less would be asked for all the time

# With every page locked a thread's stack is memory in use; the default of 8 MB would be too much.
THREAD_STACK_BYTES: Final = 256 * 1024

_VICTIM_SCORE: Final = "/proc/self/oom_score_adj"  # proc(5)

_state = {"enabled": False}


def enable() -> None:
    """Switch `lock_everything` and `lock_on_fault` on; without this they do nothing."""
    _state["enabled"] = True


def is_enabled() -> bool:
    """Tell whether this daemon is to be kept in memory."""
    return _state["enabled"]


def be_an_ordinary_victim(path: str = _VICTIM_SCORE) -> None:
    """Give up the protection of the daemon from the kernel's out-of-memory killer.

    Most likely a guest uses up the memory of a node, and a guest would inherit the protection.
    """
    try:
        with open(path, encoding="ascii") as file:
            is_spared = int(file.read()) < 0
        if is_spared:
            with open(path, "w", encoding="ascii") as file:
                file.write("0\n")
    except (OSError, ValueError) as err:
        logger.warning("children may be spared when memory runs out: %s; ignoring", err)


def lock_everything() -> bool:
    """Lock all memory of this process, now and later; returns whether that was permitted.

    To be called before there are threads.
    """
    _share_one_heap()
    return _lock(_MCL_CURRENT | _MCL_FUTURE, logging.WARNING)


def lock_on_fault() -> bool:
    """Lock pages mapped from here on, as they are used; returns whether that was permitted."""
    return _lock(_MCL_FUTURE | _MCL_ONFAULT, logging.DEBUG)


def _lock(flags: int, level: int) -> bool:
    """Call mlockall(2)."""
    if not _state["enabled"]:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit != resource.RLIM_INFINITY and not _may_exceed(limit, libc):
        reason = f"the limit is {limit >> 10} KiB"
    elif libc.mlockall(flags) == 0:
        return True
    else:
        reason = os.strerror(ctypes.get_errno())
    logger.log(level, "memory is not locked: %s; going on", reason)
    return False


def _may_exceed(limit: int, libc: ctypes.CDLL) -> bool:
    """Tell whether this process may lock more than its limit, found by trying to.

    Nothing is touched, so nothing is really locked.  The capabilities in /proc/self/status do
    not tell: one counts only when it is for the whole machine.
    """
    size = limit + mmap.PAGESIZE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    try:
        with mmap.mmap(-1, size, flags=flags) as area:
            start = ctypes.c_char.from_buffer(area)
            status = libc.mlock2(ctypes.byref(start), ctypes.c_size_t(size), _MLOCK_ONFAULT)
            del start  # the area cannot be closed while something points to it
    except (OSError, AttributeError) as err:  # no room, or a C library without mlock2
        logger.debug("cannot try to lock %d bytes: %s; ignoring", size, err)
        return False
    return bool(status == 0)


def return_large_buffers() -> None:
    """Let the C library return each large buffer to the system once it is freed.

    By default it learns from the first configuration that is read to keep buffers of that size, in
    each thread that ever had one.  To be called at the start of a daemon.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _SPARE_BYTES)


def give_back() -> None:
    """Return memory to the system that is not used any more, as after a start."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # other C libraries keep less
        libc.malloc_trim(0)


def keep_what_is_there() -> None:
    """Clear garbage away once, and keep the collector from looking at all the rest ever again."""
    gc.collect()
    gc.freeze()


def _share_one_heap() -> None:
    """Keep glibc from reserving 64 MB for each thread, which would all count as locked."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries do not reserve
        mallopt(_M_ARENA_MAX, 1)


@contextmanager
def of_what_stays() -> Iterator[None]:
    """Keep the collector of garbage from looking at the many objects made here, now and later.

    For a table of a large cluster that would take longer than to make it.  Cycles that become
    garbage meanwhile stay too, so this is for a short time, once.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
