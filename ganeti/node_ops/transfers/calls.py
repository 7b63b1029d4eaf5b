"""Transfers of disks between nodes and to and from exports: start, look at, stop, forget one.

A transfer is a process of its own, so it outlives the call and the node daemon; its record
stands in its files until `impexp_cleanup`, or until it has ended and nobody asks for it anymore.

Source: node_rpc.json, calls import_start, export_start, impexp_*.
"""

import hashlib
import logging
import os
import socket
from collections.abc import Sequence
from typing import Final

from msgspec import to_builtins
from msgspec.structs import replace

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.node_ops.disks import chains, exports
from ganeti.node_ops.instances import os_definitions
from ganeti.node_ops.instances.os_scripts import log_path, os_environment
from ganeti.node_ops.instances.running import snapshots_of
from ganeti.node_ops.leftovers import end_script
from ganeti.node_ops.machine.keys import transfer_key_path
from ganeti.node_ops.transfers import main as transfer_process
from ganeti.node_ops.transfers.ends import End
from ganeti.node_ops.transfers.status import Request, TransferFiles, TransferStatus, files_of
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance
from ganeti.protocol.export_description import PARTIAL_SUFFIX
from ganeti.protocol.node_rpc_values import StreamForm, TransferOptions
from ganeti.protocol.service import read_as
from ganeti.storage.qcow2 import RawView
from ganeti.system import clock
from ganeti.system.files import ensure_directory

logger = logging.getLogger(__name__)

_STOP_TIMEOUT_S: Final = 5.0
_DIRECTORY_MODE: Final = 0o750
_BACKLOG: Final = 16  # may connect before the process of the transfer is there to greet them
_FORGOTTEN_S: Final = 86400.0  # RIE_CERT_VALIDITY: no transfer's certificate lives longer

_Place = tuple[str, Sequence[object]]  # the form of an end on the wire, and its values


class Transfers(NodeHandler):
    """Transfers of disks."""

    def import_start(
        self, opts: TransferOptions, instance: RpcInstance, component: str, dest: _Place
    ) -> str:
        end_script(self.node, instance.name)
        end = self._find_end(instance, component, dest, opts.form, receives=True)
        host = self.node.address if self.paths.root else ""
        with _listen(host, ipv6=opts.ipv6) as listener:
            request = _request(self.node, opts, instance, end, listener=listener.fileno())
            port = int(listener.getsockname()[1])
            return _start(self.node, f"import-{component}", request, port)

    def export_start(
        self,
        opts: TransferOptions,
        host: str,
        port: int,
        instance: RpcInstance,
        component: str,
        source: _Place,
    ) -> str:
        end_script(self.node, instance.name)
        end = self._find_end(instance, component, source, opts.form, receives=False)
        request = _request(self.node, opts, instance, end, host=host, port=port)
        return _start(self.node, f"export-{component}", request, None)

    def export_merge(self, export: str, number: int) -> str:
        end = End(kind="merge", path=exports.local_path(self.paths, export), number=number)
        request = Request(end=end, options=TransferOptions(), certificate="", authority="")
        return _start(self.node, f"merge-{number}", request, None)

    def impexp_status(self, names: Sequence[str]) -> list[object]:
        return [_state(self.paths, name) for name in names]

    def impexp_abort(self, name: str) -> None:
        files_of(self.paths, name).stop(_STOP_TIMEOUT_S)

    def impexp_cleanup(self, name: str) -> None:
        files_of(self.paths, name).forget(_STOP_TIMEOUT_S)

    def _find_end(
        self,
        instance: RpcInstance,
        component: str,
        place: _Place,
        form: StreamForm,
        *,
        receives: bool,
    ) -> End:
        """Return one end of a transfer on this node.

        Raises:
            BlockDeviceError: the disk is not there.
            GenericError: a file that cannot belong to an export, or a script that is missing.
            ProtocolError: nothing of that form is known.
        """
        match place:
            case ("raw", [disk]):
                path, view = self._device(instance, disk)
                return End(kind="raw", path=path, view=view, size_bytes=_recorded_bytes(disk))
            case ("file", [str(path), *rest]):
                return self._file(path, rest, receives=receives)
            case ("script", [disk, int(index)]):
                path, view = self._device(instance, disk)
                end = self._script(instance, component, path, index, receives=receives)
                if form is StreamForm.PLAIN and instance.os and not end.argv:
                    raise _lacks_script(instance.os, receives=receives)
                return replace(end, view=view, size_bytes=_recorded_bytes(disk))
            case ("snapshot", [str(uuid)]) if not receives:
                found = snapshots_of(self.node, instance).address(instance.name, uuid)
                return End(kind="snapshot", path=found.socket_path, export=found.export)
            case ("changes", [disk, bool(is_live), bool(is_recorded)]) if not receives:
                return self._changes(instance, disk, is_live=is_live, is_recorded=is_recorded)
            case ("chain", [str(path), int(number), str(dump)]) if not receives:
                points = chains.points_of(exports.local_path(self.paths, path))
                layers, root = chains.layers_of(points, number, dump)
                return End(kind="chain", path=path, layers=layers, root=root)
            case ("increment", [str(path), str(sums), str(root)]) if receives:
                end = self._file(path, (), receives=True)
                known = exports.local_path(self.paths, sums) if sums else ""
                return replace(end, kind="increment", sums=known, root=root)
            case ("kept", [disk, str(name)]) if not receives:
                return self._kept(instance, disk, name)
            case (kind, args):
                raise ProtocolError(f"no end of a transfer: {kind!r} with {len(args)} value(s)")

    def _changes(
        self, instance: RpcInstance, wire: object, *, is_live: bool, is_recorded: bool
    ) -> End:
        """Return a disk, or its snapshot, of which the changes are wanted."""
        scratch = self.paths.export_dir
        ensure_directory(scratch, _DIRECTORY_MODE)
        if not is_live:
            path, view = self._device(instance, wire)
            return End(kind="changes", path=path, view=view, scratch=scratch)
        uuid = read_as(RpcDisk, wire).uuid
        found = snapshots_of(self.node, instance).address(instance.name, uuid)
        return End(
            kind="changes",
            path=found.socket_path,
            export=found.export,
            written=found.written if is_recorded else "",
            scratch=scratch,
        )

    def _device(self, instance: RpcInstance, wire: object) -> tuple[str, RawView | None]:
        """Return the local path of the disk that is meant, and how its bytes come there."""
        disk = read_as(RpcDisk, wire)
        index = int(disk.iv_name.rpartition("/")[2]) if disk.iv_name else 0
        path = self.node.assemble_disk(instance.name, index, disk).dev_path
        view = self.node.volume(disk).raw_view
        if not path and view is None:
            text = f"has no device on node {self.hostname}, so it cannot be copied"
            raise GenericError(f"disk {disk.uuid} {text}")
        return (path, None) if view is None else (view.path, view)

    def _kept(self, instance: RpcInstance, wire: object, name: str) -> End:
        """Return the contents of a snapshot: a disk of its own, or within a disk's file."""
        copy = self.node.volume(read_as(RpcDisk, wire)).as_kept(name)
        if copy is not None:
            path, view = copy.assemble().dev_path, copy.raw_view
            return End(kind="raw", path=path if view is None else view.path, view=view)
        _path, view = self._device(instance, wire)
        if view is None:
            raise GenericError(f"disks of instance {instance.name!r} do not keep snapshots")
        digest = hashlib.sha256(view.path.encode()).hexdigest()[:12]  # paths of sockets are short
        socket_path = os.path.join(os.path.dirname(view.path), digest)
        return End(kind="snapshot", path=socket_path, export=name, image=view.image)

    def _file(self, path: str, rest: Sequence[object], *, receives: bool) -> End:
        local = exports.local_path(self.paths, path)
        if receives:
            ensure_directory(os.path.dirname(local), _DIRECTORY_MODE)
        elif not os.path.isfile(local):
            raise GenericError(f"node {self.hostname} has no file {path}")
        return End(kind="file", path=local, sha256=str(rest[0]) if rest and rest[0] else "")

    def _script(
        self, instance: RpcInstance, name: str, device: str, index: int, *, receives: bool
    ) -> End:
        kind = os_definitions.IMPORT if receives else os_definitions.EXPORT
        if not instance.os:
            return End(kind="script", path=device)
        definition = os_definitions.load(self.paths, instance.os)
        if kind not in definition.scripts:
            return End(kind="script", path=device)
        env = os_environment(self.node, definition, instance, 0)
        env |= {f"{kind.upper()}_DEVICE": device, f"{kind.upper()}_INDEX": str(index)}
        return End(
            kind="script",
            path=device,
            argv=[definition.script(kind)],
            env=env,
            cwd=definition.path,
            log=log_path(self.node, kind, definition.name, f"{instance.name}-{name}"),
        )


def _lacks_script(os_name: str, *, receives: bool) -> GenericError:
    kind = os_definitions.IMPORT if receives else os_definitions.EXPORT
    return GenericError(
        f"operating system {os_name!r} has no {kind} script here, and clusters of 3.0 read and"
        " write disks by the scripts of their systems"
    )


def _recorded_bytes(wire: object) -> int:
    """Return the size of a disk whose device may be larger: a volume has whole extents; else 0.

    Its guest uses the whole device, so all of it is sent; this is what has to come for it.
    """
    disk = read_as(RpcDisk, wire)
    return disk.size << 20 if disk.traits.is_lvm else 0


def _request(
    context: NodeContext,
    options: TransferOptions,
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
    return socket.create_server((host, 0), family=family, backlog=_BACKLOG)


def _start(context: NodeContext, what: str, request: Request, port: int | None) -> str:
    """Start the process; returns the name of the transfer."""
    parent = context.paths.import_export_dir
    _make_way(parent, request)
    safe = "".join(letter if letter.isalnum() else "-" for letter in what)
    files = TransferFiles.make(parent, safe)
    now = clock.now()
    if request.options.ca_pem:
        request = replace(request, authority=files.save_authority(request.options.ca_pem))
    files.save_request(dumps(request))
    files.save_status(TransferStatus(ctime=now, mtime=now, listen_port=port))
    listeners = [request.listener] if request.listener >= 0 else []
    files.start(transfer_process.__name__, listeners)
    return os.path.basename(files.directory)


def _make_way(parent: str, request: Request) -> None:
    """End the rest of transfers that nobody waits for, and remove their files.

    Those are the ones that ended long ago, and those on the very device or file that is to be
    written now, or that are writing it: the job that began them has died.
    """
    ensure_directory(parent, 0o700)
    for name in os.listdir(parent):
        files = TransferFiles(os.path.join(parent, name))
        status = files.load_status()
        if status is None:
            continue
        is_old = status.mtime < clock.now() - _FORGOTTEN_S and files.live_pid() is None
        if is_old or _is_rival(files, request):
            logger.info("ending transfer %s, which nobody waits for", name)
            files.forget(_STOP_TIMEOUT_S)


def _is_rival(files: TransferFiles, request: Request) -> bool:
    """Tell whether another transfer works on the same device or file, one of the two writing."""
    try:
        other = files.load_request()
    except GenericError:
        return False
    if request.end.kind == "merge":
        return other.changes(f"{request.end.path}{PARTIAL_SUFFIX}")
    if other.end.kind == "merge":
        return other.changes(os.path.dirname(request.end.path))
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
    del wire["written"]
    if status.exit_status is None and not is_alive:
        if status.written:  # the sender may have succeeded
            return {**wire, "exit_status": 0}
        message = f"the process of the transfer ended early: {files.last_words()}"
        wire.update(exit_status=1, error_message=message)
    return wire
