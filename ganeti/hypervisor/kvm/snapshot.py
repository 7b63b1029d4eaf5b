"""Snapshots of a running machine's disks, all at one instant, while the guest goes on.

One transaction of QEMU begins a backup job for each disk that copies nothing by itself: before the
guest overwrites something, the old contents go into an overlay of that disk, and a reader of the
overlay sees the disk as it was.  Overlays are read over a Unix socket, by the protocol NBD:

    guest ── disk ──(before a write)──> overlay ── NBD server ── reader of the snapshot
               └────(unchanged)────────────┘

An overlay is a file without a name, so it is gone with QEMU or with the snapshot, even if either is
killed.  Its room is taken before the snapshot begins: an overlay that could not grow would fail the
guest's writes.  Remains of a killed job in QEMU are found by their names; the next call removes it.

From an instant on, dirty bitmaps can record where the guest writes; they bear the name of that
instant.  The transaction that makes a snapshot begins the next one and copies the last one, whose
copy is what readers see.  The last one itself goes on until somebody says that it is not wanted
any more, so nothing is lost when the reader fails.

Source: QEMU's QMP reference, transaction, blockdev-backup, nbd-server-start, block-export-add.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.interface import Instant, SnapshotAddress, Snapshots
from ganeti.hypervisor.kvm import agent
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.hardware.disks import TPM
from ganeti.hypervisor.kvm.machine import DiskDevice
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorError
from ganeti.hypervisor.kvm.state import Machines, find_process
from ganeti.objects.disk_templates import DiskFormat
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.protocol.export_description import BLOCK_BYTES
from ganeti.protocol.node_rpc_values import KeptSnapshot
from ganeti.protocol.qmp import kept_snapshots
from ganeti.system import clock
from ganeti.system.files import ensure_directory, remove_if_exists

_PREFIX: Final = "snapshot-"  # of everything of ours in QEMU; names of its nodes have 31 letters
_FILE_SUFFIX: Final = "-file"
_WRITTEN: Final = f"{_PREFIX}written"  # the copy of a bitmap
_RECORD: Final = "since-"  # of bitmaps that record; the name of the instant follows
_PERSISTENT: Final = "qcow2"  # the only format that keeps bitmaps when QEMU ends
_SOCKET: Final = "nbd"
_COMMANDS: Final = ("blockdev-create", "block-export-add", "transaction")
_STATES: Final = frozenset({"running", "paused"})
_JOB_EVENTS: Final = frozenset({"JOB_STATUS_CHANGE"})
_JOB_TIMEOUT_S: Final = 60.0
_KEEP_TIMEOUT_S: Final = 60.0  # QEMU copies the tables of each image
_FORGET_TIMEOUT_S: Final = 300.0  # it counts what each block is still needed for
_DIRECTORY_MODE: Final = 0o750
_TABLES: Final = 4096  # an overlay's own tables have less than one byte for so many of the disk
_HEAD_BYTES: Final = 1 << 20
_MIB: Final = 1 << 20


def check_supported(monitor: Monitor, name: str) -> None:
    """Check that snapshots can be made now.

    Raises:
        HypervisorError: says why not.
    """
    status = monitor.status()
    if status not in _STATES:
        raise HypervisorError(f"instance {name} is {status}, so it does not run")
    schema = monitor.schema()
    missing = [command for command in _COMMANDS if not schema.has_command(command)]
    if missing:
        text = f"its QEMU is too old for snapshots, it has no {', '.join(missing)}"
        raise HypervisorError(f"instance {name}: {text}")


def begin(
    monitor: Monitor,
    disks: Sequence[DiskDevice],
    files: MachineFiles,
    directory: str,
    instant: Instant,
) -> list[str]:
    """Freeze the contents of all disks; each can be read under its UUID at the socket.

    Args:
        directory: where the overlays take their room.

    Returns:
        The UUIDs of the disks of which that is known.

    Raises:
        HypervisorError: it cannot be done, and nothing is left of it.
    """
    since, point = instant.since, instant.point
    end(monitor, files)
    check_supported(monitor, files.name)
    try:
        if point:
            keep_record(monitor, since)
        rows = _rows(monitor, disks, files.name)
        sizes = [_size(row) for row in rows]
        _check_room(directory, sum(map(overlay_bytes, sizes)), files.name)
        _listen(monitor, files)
        for index, (disk, size) in enumerate(zip(disks, sizes, strict=True)):
            _add_overlay(monitor, index, disk, size, directory)
        known = [bool(since) and _records(row, since) for row in rows]
        actions = [_backup(i, d) for i, d in enumerate(disks)]
        for row, is_known in zip(rows, known, strict=True):
            actions += _bitmap_actions(row, since if is_known else "", point)
        with agent.held_still(files.name, files, must=instant.quiesce):
            monitor.execute("transaction", {"actions": actions})
        for index, (disk, is_known) in enumerate(zip(disks, known, strict=True)):
            _export(monitor, index, disk, with_record=is_known)
    except BaseException as err:
        with contextlib.suppress(HypervisorError):  # only the first error counts
            end(monitor, files)
            if point:
                keep_record(monitor, since)
        if not isinstance(err, OSError):
            raise
        text = f"cannot make snapshots in {directory}: {err.strerror}"
        raise HypervisorError(f"instance {files.name}: {text}") from err
    return [disk.uuid for disk, is_known in zip(disks, known, strict=True) if is_known]


def keep_record(monitor: Monitor, point: str) -> None:
    """Remove all records of what was written but the one that began at an instant."""
    _remove_bitmaps(monitor, lambda name: name.startswith(_RECORD) and name != f"{_RECORD}{point}")


def _remove_bitmaps(monitor: Monitor, is_meant: Callable[[str], bool]) -> None:
    for row in monitor.query_list("query-named-block-nodes"):
        for name in filter(is_meant, map(_name, _bitmaps(row))):
            monitor.execute("block-dirty-bitmap-remove", {"node": row["node-name"], "name": name})


def _bitmaps(row: Mapping[str, object]) -> list[Mapping[str, object]]:
    found = row.get("dirty-bitmaps")
    return found if isinstance(found, list) else []


def _name(bitmap: Mapping[str, object]) -> str:
    return str(bitmap.get("name"))


def _records(row: Mapping[str, object], since: str) -> bool:
    """Tell whether a disk's record since an instant is whole."""
    return any(
        _name(bitmap) == f"{_RECORD}{since}"
        and bool(bitmap.get("recording"))
        and not bitmap.get("inconsistent")
        for bitmap in _bitmaps(row)
    )


def _bitmap_actions(row: Mapping[str, object], since: str, point: str) -> list[dict[str, object]]:
    """Return the actions that copy the last record of a disk, and begin the next one."""
    node = row["node-name"]
    found: list[dict[str, object]] = []
    if since:
        copy = {"node": node, "name": _WRITTEN, "granularity": BLOCK_BYTES, "disabled": True}
        found.append({"type": "block-dirty-bitmap-add", "data": copy})
        merge = {"node": node, "target": _WRITTEN, "bitmaps": [f"{_RECORD}{since}"]}
        found.append({"type": "block-dirty-bitmap-merge", "data": merge})
    if point:
        name, keeps = f"{_RECORD}{point}", row.get("drv") == _PERSISTENT
        new = {"node": node, "name": name, "granularity": BLOCK_BYTES, "persistent": keeps}
        found.append({"type": "block-dirty-bitmap-add", "data": new})
    return found


def end(monitor: Monitor, files: MachineFiles) -> None:
    """Remove the snapshots, also incomplete ones; does nothing when there are none.

    Raises:
        HypervisorError: QEMU keeps something.
    """
    socket_path = files.socket_path(_SOCKET)
    if not os.path.exists(socket_path):  # it is there before anything else
        return
    with contextlib.suppress(MonitorError):  # the server did not run yet
        monitor.execute("nbd-server-stop")
    _end_jobs(monitor)
    names = [str(row.get("node-name")) for row in monitor.query_list("query-named-block-nodes")]
    # An overlay goes before the file that it lies in.
    ours = [name for name in names if name.startswith(_PREFIX)]
    for name in sorted(ours, key=lambda name: name.endswith(_FILE_SUFFIX)):
        monitor.execute("blockdev-del", {"node-name": name})
    _remove_bitmaps(monitor, lambda name: name == _WRITTEN)
    remove_if_exists(files.link(_SOCKET))
    remove_if_exists(socket_path)


def overlay_bytes(size: int) -> int:
    """Return how much room an overlay takes at most: every block of the disk, and its tables."""
    return size + size // _TABLES + _HEAD_BYTES


def _images(monitor: Monitor) -> dict[str, Mapping[str, Any]]:
    """Return QEMU's descriptions of its images, by the names of their nodes."""
    return {
        str(row.get("node-name")): image
        for row in monitor.query_list("query-named-block-nodes")
        if isinstance(image := row.get("image"), dict)
    }


def _rows(monitor: Monitor, disks: Sequence[DiskDevice], name: str) -> list[Mapping[str, object]]:
    """Return what QEMU knows of each disk."""
    found = {row.get("node-name"): row for row in monitor.query_list("query-named-block-nodes")}
    missing = [disk.uuid for disk in disks if disk.node_name not in found]
    if missing:
        raise _unknown_disk(name, missing[0])
    return [found[disk.node_name] for disk in disks]


def _unknown_disk(name: str, uuid: str) -> HypervisorError:
    return HypervisorError(f"the running instance {name} does not have disk {uuid}")


def _size(row: Mapping[str, object]) -> int:
    image = row.get("image")
    return int(image["virtual-size"]) if isinstance(image, dict) else 0


def _check_room(directory: str, wanted: int, name: str) -> None:
    ensure_directory(directory, _DIRECTORY_MODE)
    found = os.statvfs(directory)
    free = found.f_bavail * found.f_frsize
    if wanted > free:
        raise HypervisorError(
            f"instance {name}: no room for the snapshots of its disks in {directory}:"
            f" {wanted // _MIB} MiB are needed, {free // _MIB} MiB are free; make room there, or"
            " let the instance be stopped meanwhile"
        )


def _listen(monitor: Monitor, files: MachineFiles) -> None:
    """Let QEMU serve exports; the socket is made here, as QEMU may have no right to make one."""
    with contextlib.closing(files.listen(_SOCKET)) as listener:
        monitor.hand_over(_SOCKET, listener.fileno())
    monitor.execute("nbd-server-start", {"addr": {"type": "fd", "data": {"str": _SOCKET}}})


def _add_overlay(monitor: Monitor, index: int, disk: DiskDevice, size: int, directory: str) -> None:
    """Make an empty overlay over a disk, with all the room that it can ever need."""
    node = f"{_PREFIX}{index}"
    file_node = node + _FILE_SUFFIX
    with tempfile.TemporaryFile(dir=directory) as file:
        with monitor.lent(file.fileno()) as path:
            there = {"driver": "file", "filename": path}
            monitor.execute("blockdev-add", {**there, "node-name": file_node})
        _create(monitor, file_node, size)
        os.posix_fallocate(file.fileno(), 0, overlay_bytes(size))
    monitor.execute(
        "blockdev-add",
        {"driver": "qcow2", "node-name": node, "file": file_node, "backing": disk.node_name},
    )


def _create(monitor: Monitor, file_node: str, size: int) -> None:
    """Write the tables of an empty overlay."""
    job = f"{_PREFIX}create"
    options = {"driver": "qcow2", "file": file_node, "size": size}
    monitor.execute("blockdev-create", {"job-id": job, "options": options})
    deadline = clock.monotonic() + _JOB_TIMEOUT_S
    while (found := _job(monitor, job)).get("status") != "concluded":
        if clock.monotonic() > deadline:
            raise HypervisorError(f"QEMU did not make the overlay within {_JOB_TIMEOUT_S:.0f} s")
        monitor.wait_event(_JOB_EVENTS, 0.1)
    monitor.execute("job-dismiss", {"id": job})
    if found.get("error"):
        raise HypervisorError(f"QEMU could not make the overlay: {found['error']}")


def _jobs(monitor: Monitor, prefix: str) -> list[Mapping[str, object]]:
    rows = monitor.query_list("query-jobs")
    return [row for row in rows if str(row.get("id")).startswith(prefix)]


def _job(monitor: Monitor, name: str) -> Mapping[str, object]:
    for row in _jobs(monitor, name):
        return row
    raise HypervisorError(f"QEMU forgot its job {name}")


def _backup(index: int, disk: DiskDevice) -> dict[str, object]:
    """Return the action that begins to keep blocks before the guest overwrites them."""
    name = f"{_PREFIX}{index}"
    data = {"job-id": name, "device": disk.node_name, "target": name, "sync": "none"}
    return {"type": "blockdev-backup", "data": data}


def _export(monitor: Monitor, index: int, disk: DiskDevice, *, with_record: bool) -> None:
    name = f"{_PREFIX}{index}"
    export: dict[str, object] = {"type": "nbd", "id": name, "node-name": name, "name": disk.uuid}
    export |= {"writable": False, "bitmaps": [_WRITTEN] if with_record else []}
    monitor.execute("block-export-add", export)


def _end_jobs(monitor: Monitor) -> None:
    """End all jobs of ours, and wait until they have."""
    deadline = clock.monotonic() + _JOB_TIMEOUT_S
    asked: set[str] = set()
    while ours := _jobs(monitor, _PREFIX):
        for row in ours:
            name = str(row["id"])
            with contextlib.suppress(MonitorError):  # it may just have come to its end
                if row.get("status") == "concluded":
                    monitor.execute("job-dismiss", {"id": name})
                elif name not in asked:
                    asked.add(name)
                    monitor.execute("job-cancel", {"id": name})
        if clock.monotonic() > deadline:
            raise HypervisorError(f"QEMU does not end its job {ours[0]['id']}")
        monitor.wait_event(_JOB_EVENTS, 0.05)


@contextlib.contextmanager
def disks_alone(machines: Machines, name: str) -> Iterator[Monitor]:
    """Talk to a machine, after the remains of an earlier job's snapshot are removed."""
    with machines.control(name) as monitor:
        agent.let_go(machines.files(name), monitor)
        end(monitor, machines.files(name))
        yield monitor


@contextlib.contextmanager
def _stopped(monitor: Monitor) -> Iterator[None]:
    """Let a guest that runs stand still, with all that it wrote on its disks."""
    was_running = monitor.status() == "running"
    if was_running:
        monitor.execute("stop", timeout_s=_KEEP_TIMEOUT_S)  # QEMU flushes all disks
    try:
        yield
    finally:
        if was_running:
            monitor.execute("cont")


class KvmSnapshots(Snapshots):
    """Snapshots of the disks of machines that run."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def check(self, instance: RpcInstance) -> None:
        """Check that the machine runs, was started by us, and that its QEMU is new enough."""
        self._machines.runtime(instance.name)
        with self._machines.control(instance.name) as monitor:
            check_supported(monitor, instance.name)

    def take(self, instance: RpcInstance, directory: str, instant: Instant) -> list[str]:
        """Keep the contents of all disks as they are now, to be read at `address`."""
        disks, files = self._machines.runtime(instance.name).machine.disks, self._machines.files
        with self._machines.control(instance.name) as monitor:
            own = files(instance.name)
            known = begin(monitor, disks, own, directory, instant)
        # QEMU does not see what a TPM writes.
        unseen = {disk.uuid for disk in disks if disk.driver == TPM}
        return [uuid for uuid in known if uuid not in unseen]

    def address(self, name: str, uuid: str) -> SnapshotAddress:
        """Return QEMU's socket, and the disk's name there."""
        return SnapshotAddress(self._machines.files(name).socket_path(_SOCKET), uuid, _WRITTEN)

    def record_since(self, name: str, point: str) -> None:
        """Remove all dirty bitmaps of ours but those that began at one instant."""
        if find_process(self._machines.files(name)) is not None:
            with self._machines.control(name) as monitor:
                keep_record(monitor, point)

    def kept(self, instance: RpcInstance) -> list[list[KeptSnapshot]]:
        """Return what QEMU knows of the snapshots in each image."""
        with self._machines.control(instance.name) as monitor:
            images = _images(monitor)
            nodes = self._node_names(instance)
        return [kept_snapshots(images.get(node, {})) for node in nodes]

    def keep(
        self,
        instance: RpcInstance,
        name: str,
        *,
        quiesce: bool,
        beside: Callable[[], None] | None = None,
    ) -> bool:
        """Take a snapshot in each image by one transaction; of other disks the guest waits."""
        images = [disk.format is not DiskFormat.RAW for disk in instance.disks_info]
        nodes = list(itertools.compress(self._node_names(instance), images))
        files = self._machines.files(instance.name)
        actions = [
            {"type": "blockdev-snapshot-internal-sync", "data": {"device": node, "name": name}}
            for node in nodes
        ]
        with (
            disks_alone(self._machines, instance.name) as monitor,
            agent.held_still(
                instance.name, files, must=quiesce, stops=beside is not None
            ) as is_still,
            _stopped(monitor) if beside else contextlib.nullcontext(),
        ):
            if beside:
                beside()
            if actions:
                monitor.execute("transaction", {"actions": actions}, timeout_s=_KEEP_TIMEOUT_S)
        return is_still

    def forget(self, instance: RpcInstance, name: str) -> None:
        """Remove a snapshot from the images that have it."""
        with disks_alone(self._machines, instance.name) as monitor:
            images = _images(monitor)
            for node in self._node_names(instance):
                if any(each.name == name for each in kept_snapshots(images.get(node, {}))):
                    monitor.execute(
                        "blockdev-snapshot-delete-internal-sync",
                        {"device": node, "name": name},
                        timeout_s=_FORGET_TIMEOUT_S,
                    )

    def _node_names(self, instance: RpcInstance) -> list[str]:
        """Return QEMU's names for the images of the disks, in the instance's order."""
        machine = self._machines.runtime(instance.name).machine
        found = {disk.uuid: disk.node_name for disk in machine.disks}
        missing = [disk.uuid for disk in instance.disks_info if disk.uuid not in found]
        if missing:
            raise _unknown_disk(instance.name, missing[0])
        return [found[disk.uuid] for disk in instance.disks_info]

    def drop(self, name: str) -> None:
        """Remove the snapshots; those of a machine that ended went with it."""
        if find_process(self._machines.files(name)) is not None:
            with disks_alone(self._machines, name):
                pass
