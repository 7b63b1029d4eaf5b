"""Transfers of disks between nodes and to and from exports: start, look at, stop, forget one.

A transfer is a process of its own, so it outlives the call and the node daemon; what is known about
it stands in its files until `impexp_cleanup`, or until it has ended and nobody asks for it anymore.

Source: node_rpc.json, calls import_start, export_start, impexp_*.
"""

import contextlib
import logging
import os
import shutil
import socket
import sys
import tempfile
from typing import Final

from msgspec import to_builtins
from msgspec.structs import replace

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.paths import Paths
from ganeti.node_ops import drivers
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.crypto import transfer_key_path
from ganeti.node_ops.leftovers import end_script
from ganeti.node_ops.transfers import main as transfer_process
from ganeti.node_ops.transfers.ends import End
from ganeti.node_ops.transfers.places import find_end
from ganeti.node_ops.transfers.status import (
    Options,
    Request,
    Status,
    TransferFiles,
    files_of,
)
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.system import clock, filelock, process
from ganeti.system.files import ensure_directory

logger = logging.getLogger(__name__)

_STOP_TIMEOUT_S: Final = 5.0
_FORGOTTEN_S: Final = 86400.0  # RIE_CERT_VALIDITY: no transfer's certificate lives longer


def import_start(
    context: NodeContext,
    opts: Options,
    instance: RpcInstance,
    component: str,
    dest: tuple[str, list[object]],
) -> str:
    """Begin to receive a disk; returns the name of the transfer, whose status has the port.

    Raises:
        BlockDeviceError: the disk is not there.
        GenericError: the file of an export cannot be there.
        NotSupportedError: an unknown way to compress.
    """
    end_script(context, instance.name)
    end = find_end(context, instance, component, dest, receives=True)
    host = drivers.own_address(context) if context.paths.root else ""
    with _listen(host, ipv6=opts.ipv6) as listener:
        request = _request(context, opts, instance, end, listener=listener.fileno())
        port = int(listener.getsockname()[1])
        return _start(context, f"import-{component}", request, port)


def export_start(
    context: NodeContext,
    opts: Options,
    host: str,
    port: int,
    instance: RpcInstance,
    component: str,
    source: tuple[str, list[object]],
) -> str:
    """Begin to send a disk to whoever receives it; returns the name of the transfer.

    Raises:
        BlockDeviceError: the disk is not there.
        GenericError: the file of an export cannot be there.
        NotSupportedError: an unknown way to compress.
    """
    end_script(context, instance.name)
    end = find_end(context, instance, component, source, receives=False)
    request = _request(context, opts, instance, end, host=host, port=port)
    return _start(context, f"export-{component}", request, None)


def impexp_status(context: NodeContext, names: list[str]) -> list[object]:
    """Return the state of each transfer; null for one that there is not."""
    return [_state(context.paths, name) for name in names]


def impexp_abort(context: NodeContext, name: str) -> None:
    """Stop a transfer."""
    _stop(files_of(context.paths, name))


def impexp_cleanup(context: NodeContext, name: str) -> None:
    """Stop a transfer and forget it; one that is forgotten already is no error."""
    files = files_of(context.paths, name)
    _stop(files)
    shutil.rmtree(files.directory, ignore_errors=True)


def _request(
    context: NodeContext,
    options: Options,
    instance: RpcInstance,
    end: End,
    *,
    host: str = "",
    port: int = 0,
    listener: int = -1,
) -> Request:
    transfer_process.check_options(options)
    paths = context.paths
    if (options.key_name is None) != (options.ca_pem is None):
        raise ProtocolError("a key of its own and the peer's certificate belong together")
    certificate = paths.server_pem if listener >= 0 else paths.client_pem
    if options.key_name is not None:
        certificate = transfer_key_path(paths, options.key_name)
    return Request(
        end=end,
        options=options,
        certificate=certificate,
        authority="" if options.ca_pem else paths.server_pem,
        host=host,
        port=port,
        listener=listener,
        instance=instance.name,
    )


def _listen(host: str, *, ipv6: bool) -> socket.socket:
    family = socket.AF_INET6 if ipv6 or ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, backlog=1)


def _start(context: NodeContext, what: str, request: Request, port: int | None) -> str:
    """Start the process; returns the name of the transfer."""
    parent = context.paths.import_export_dir
    ensure_directory(parent, 0o700)
    _make_way(parent, request)
    safe = "".join(letter if letter.isalnum() else "-" for letter in what)
    directory = tempfile.mkdtemp(prefix=f"{safe}-", dir=parent)
    files = TransferFiles(directory)
    now = clock.now()
    if request.options.ca_pem:
        request = replace(request, authority=files.save_authority(request.options.ca_pem))
    files.save_request(request)
    files.save_status(Status(ctime=now, mtime=now, listen_port=port))
    with contextlib.ExitStack() as opened:
        log = os.open(files.log, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        opened.callback(os.close, log)
        lock = filelock.open_locked(files.pid)
        assert lock is not None, "nobody knows of this directory yet"
        opened.callback(os.close, lock)
        child = process.spawn(
            [sys.executable, "-m", transfer_process.__name__, directory],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=log,
            pass_fds=[lock, *([request.listener] if request.listener >= 0 else [])],
            cwd="/",
        )
        os.pwrite(lock, str(child.pid).encode(), 0)
    return os.path.basename(directory)


def _make_way(parent: str, request: Request) -> None:
    """End what is left of transfers that nobody waits for, and forget it.

    Those are the ones that ended long ago, and those on the very device or file that is to be
    written now, or that are writing it: the job that began them has died.
    """
    for name in os.listdir(parent):
        files = TransferFiles(os.path.join(parent, name))
        status = files.load_status()
        if status is None:
            continue
        is_old = status.mtime < clock.now() - _FORGOTTEN_S and files.live_pid() is None
        if is_old or _is_rival(files, request):
            logger.info("ending transfer %s, which nobody waits for", name)
            _stop(files)
            shutil.rmtree(files.directory, ignore_errors=True)


def _is_rival(files: TransferFiles, request: Request) -> bool:
    """Tell whether another transfer works on the same device or file, one of the two writing."""
    try:
        other = files.load_request()
    except GenericError:
        return False
    writes = other.listener >= 0 or request.listener >= 0
    return writes and other.end.path == request.end.path


def _state(paths: Paths, name: str) -> object:
    files = files_of(paths, name)
    files.note_interest()
    is_alive = files.live_pid() is not None  # asked first: it may end between the two
    status = files.load_status()
    if status is None:
        return None
    wire = to_builtins(status)
    if status.exit_status is None and not is_alive:
        wire.update(exit_status=1, error_message=_last_words(files))
    return wire


def _last_words(files: TransferFiles) -> str:
    with open(files.log, encoding="utf-8", errors="replace") as log:
        lines = log.read(1 << 16).strip().splitlines()
    return f"the process of the transfer ended early: {lines[-1] if lines else 'it said nothing'}"


def _stop(files: TransferFiles) -> None:
    pid = files.live_pid()
    if pid is not None and not process.terminate(pid, _STOP_TIMEOUT_S):
        raise GenericError(f"process {pid} of transfer {files.directory} cannot be ended")
