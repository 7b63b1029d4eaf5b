"""The work that an earlier job left running on an instance of this node is ended here.

A job that is killed or canceled gives up its locks while its work on a node goes on: a script
of the operating system or of an external storage provider, a transfer that reads or fills a disk,
a merge of exports.  Nobody waits for it any more, and the next job has the instance to itself: its
first call for that instance, or for that disk or export of it, ends the work.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.transfers.status import Request, TransferFiles
from ganeti.system import process
from ganeti.system.filelock import FileLock, PidFile, running_pid

logger = logging.getLogger(__name__)

_STOP_TIMEOUT_S: Final = 10.0  # then by force; a script is killed with all that it started
_LOCK_TIMEOUT_S: Final = 2.0  # for the lock of a process that is being ended just now


@contextlib.contextmanager
def alone(context: NodeContext, instance_name: str) -> Iterator[None]:
    """Run a script of an instance, or start it, with nothing else at work on its disks.

    Raises:
        GenericError: a process of an earlier job cannot be ended, or is a start that goes on.
    """
    end_leftovers(context, instance_name)
    otherwise = (
        f"an earlier job's call still works on instance {instance_name!r} on node"
        f" {context.hostname}; try again when it has ended"
    )
    with FileLock(_file(context.paths, instance_name, "lock")).taken(_LOCK_TIMEOUT_S, otherwise):
        yield


@contextlib.contextmanager
def can_be_ended(context: NodeContext, instance_name: str) -> Iterator[None]:
    """Say that this process may be ended by the next call for the instance; within `alone`."""
    marker = PidFile(_file(context.paths, instance_name, "pid"))
    marker.acquire()
    try:
        yield
    finally:
        marker.release()


@contextlib.contextmanager
def alone_with_disk(context: NodeContext, uuid: str, *, owner: str = "") -> Iterator[None]:
    """Change a disk with nothing else at work on it; the next call that does so may end this one.

    Args:
        owner: the instance that a new disk is for, which the next call may make another disk for.

    Raises:
        GenericError: a process of an earlier job cannot be ended, or does not end.
    """
    wanted = {f"disk-{uuid}": f"a change of disk {uuid}"}
    if owner:
        wanted[f"new-disk-{owner}"] = f"the creation of a disk of instance {owner!r}"
    with contextlib.ExitStack() as held:
        for name, what in wanted.items():
            path = os.path.join(context.paths.lock_dir, f"{quote(name, safe='')}.pid")
            pid = running_pid(path)
            if pid is not None:
                _end(context, pid, what)
            marker = PidFile(path)
            marker.acquire()
            held.callback(marker.release)
        yield


def end_leftovers(context: NodeContext, instance_name: str) -> None:
    """End the processes of earlier jobs that are still at work on an instance.

    Raises:
        GenericError: it cannot be ended; names the process.
    """
    end_script(context, instance_name)
    what = f"a transfer of instance {instance_name!r}"
    _end_transfers(context, what, lambda request: request.instance == instance_name)


def end_transfers_into(context: NodeContext, directory: str) -> None:
    """End the transfers of earlier jobs that write into an export, or merge it in there.

    Raises:
        GenericError: it cannot be ended; names the process.
    """
    what = f"a transfer into {directory}"
    _end_transfers(context, what, lambda request: request.changes(directory))


def end_script(context: NodeContext, instance_name: str) -> None:
    """End a script of the operating system that an earlier job left; errors as `end_leftovers`."""
    pid = running_pid(_file(context.paths, instance_name, "pid"))
    if pid is not None:
        _end(context, pid, f"an OS script of instance {instance_name!r}")


def _end(context: NodeContext, pid: int, what: str) -> None:
    logger.warning("ending %s (process %d) that an earlier job left at work", what, pid)
    if not process.terminate(pid, _STOP_TIMEOUT_S):
        raise GenericError(
            f"{what}, which an earlier job left at work on node {context.hostname}, cannot be"
            f" ended: process {pid} does not die"
        )


def _file(paths: Paths, instance_name: str, suffix: str) -> str:
    return os.path.join(paths.lock_dir, f"os-{instance_name}.{suffix}")


def _transfers(paths: Paths) -> Iterator[TransferFiles]:
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(paths.import_export_dir):
            yield TransferFiles(os.path.join(paths.import_export_dir, name))


def _end_transfers(context: NodeContext, what: str, is_meant: Callable[[Request], bool]) -> None:
    for transfer in _transfers(context.paths):
        pid = transfer.live_pid()
        if pid is not None and _is_of(transfer, is_meant):
            _end(context, pid, what)
            shutil.rmtree(transfer.directory, ignore_errors=True)


def _is_of(transfer: TransferFiles, is_meant: Callable[[Request], bool]) -> bool:
    try:
        return is_meant(transfer.load_request())
    except GenericError:  # it is being made, or damaged: not one that works
        return False
