"""All nodes of a cluster without their daemons: the handlers of the node daemon, over fake drivers.

Handlers, and with them all checks of arguments and all refusals, are those of `ganeti.node_ops`.
Guests are those of the hypervisor "fake", which also plays here that devices and snapshots can be
made while they run; disks and the directories of their files are names in memory.  Of their own
the nodes have the record of all calls, and the failures and answers that a test injects.

Answers that need a machine are played by methods ``do_...``: hooks, allocators and scripts of
operating systems, which would be processes; transfers, which would be daemons; addresses, bridges
and devices of the kernel; and the findings of a verification, which are other tests' concern.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final, cast

from fakes.fake_mirrors import Metadata, MirroredVolume, Side

from ganeti.base.errors import BlockDeviceError, GenericError, HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.versions import PROTOCOL_VERSION
from ganeti.clients.node_rpc import NodeClient, RpcResult, Target, read_answer
from ganeti.hypervisor import fake
from ganeti.hypervisor.fake import Book, FakeHypervisor, Phase
from ganeti.hypervisor.interface import (
    AssembledDisk,
    Disks,
    Hypervisor,
    InstanceInfo,
    Instant,
    MigrationState,
    MigrationStatus,
    NodeEnv,
    SnapshotAddress,
)
from ganeti.node_ops import context, dispatch
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.disks.chains import CHECKSUM_SUFFIX, ROOT_SUFFIX
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.parameters import defaults_of
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance, RpcNIC
from ganeti.protocol.export_description import CONFIG_NAME, SUMS_SUFFIX
from ganeti.protocol.node_rpc import (
    NodeCall,
    decode_arguments,
    encode_arguments,
    encode_broken_off,
    encode_failure,
    encode_result,
)
from ganeti.protocol.node_rpc_values import KeptSnapshot
from ganeti.storage import registry
from ganeti.storage.interface import (
    Assembled,
    BlockDevStatus,
    Dimensions,
    Link,
    Storage,
    StorageUnit,
    Volume,
)

NODE_MEMORY_MIB: Final = 4096
MIB: Final = 1 << 20


class FakeNode(Paths):
    """The content of one node: its drivers find it as the paths of their node."""

    def __init__(self, name: str, cluster: FakeRpc) -> None:
        super().__init__(f"{cluster.root}/nodes/{name}")
        self.name = name
        self.cluster = cluster
        self.disks: set[str] = set()
        self.sizes: dict[str, int] = {}  # disk -> MiB, of those that were made or grown here
        self.data: dict[str, str] = {}  # disk -> its content, "" when it is new
        self.directories: set[str] = set()
        self.records: dict[str, set[str]] = {}  # instance -> points since which writes are known
        self.snapshots: dict[str, dict[str, str]] = {}  # instance -> disk's UUID -> its path
        self.origins: dict[str, str] = {}  # snapshot of a volume -> that volume
        self.files: dict[str, object] = {}
        self.guests: dict[str, Any] = {}  # by name: what they may be told
        self.sides: dict[int, Side] = {}  # by minor
        self.metadata: dict[str, Metadata] = {}  # by volume
        self.broken: set[str] = set()  # volumes that give I/O errors
        self.unreadable: set[str] = set()  # disks that their driver cannot look at
        self.room_mib = 100000  # in each volume group
        self.is_dead = False
        self.has_left = False
        self.books = fake._Books(NodeEnv(self, name, ""))
        self.running = _Running(self.books)
        os.makedirs(self.lock_dir, exist_ok=True)
        os.makedirs(self.data_dir, exist_ok=True)
        self.write("/etc/hosts", f"192.0.2.200 {name}\n")

    @property
    def receiving(self) -> list[str]:
        """The instances that are expected from other nodes."""
        return [name for name in self.books.names() if name not in self.running]

    def write(self, path: str, content: str) -> None:
        """Write one of the node's files."""
        local = self.localize(path)
        os.makedirs(os.path.dirname(local), exist_ok=True)
        with open(local, "w", encoding="ascii") as file:
            file.write(content)

    def add_export(self, name: str, description: str) -> None:
        """Let there be an export of an instance."""
        self.write(f"/var/lib/ganeti/export/{name}/{CONFIG_NAME}", description)

    def cut_power(self) -> None:
        """Lose everything but what is on disks, and stay down."""
        self.is_dead = True
        self.crash()
        for side in self.sides.values():
            side.is_primary = False
            side.part(Link.NONE)
        self.sides.clear()

    def boot(self) -> None:
        """Come back after a power cut."""
        self.is_dead = False

    def crash(self) -> None:
        """Lose all guests, also those that are expected."""
        for name in self.books.names():
            self.books.forget(name)

    @property
    def memory(self) -> dict[str, int]:
        """MiB of each guest."""
        return {name: self.books.existing(name, *Phase).memory_mib for name in self.running}


class _Running(MutableMapping[str, int]):
    """The guests of a node by name, with their state: 0 running, 1 stopped."""

    def __init__(self, books: fake._Books) -> None:
        self._books = books

    def __getitem__(self, name: str) -> int:
        book = self._books.load(name)
        if book is None or book.phase is Phase.INCOMING:
            raise KeyError(name)
        return int(book.phase is not Phase.RUNNING)

    def __setitem__(self, name: str, state: int) -> None:
        phase = Phase.DOWN if state else Phase.RUNNING
        self._books.save(name, Book(memory_mib=128, vcpus=1, started_s=1.0, phase=phase))

    def __delitem__(self, name: str) -> None:
        self[name]
        self._books.forget(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._books.names() if name in self)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        book = self._books.load(name)
        return book is not None and book.phase is not Phase.INCOMING


# The drivers.


class _MemoryVolume(Volume):
    """A disk in memory; those of shared templates are seen by all nodes."""

    def _locate(self, logical_id: list[object]) -> None:
        is_volume = self._disk.dev_type == DiskTemplate.PLAIN
        self._name = "/".join(map(str, logical_id)) if is_volume else str(logical_id[1])

    @property
    def _node(self) -> FakeNode:
        return cast(FakeNode, self._env.paths)

    @property
    def _place(self) -> set[str]:
        return self._node.cluster.shared if self.traits.shared else self._node.disks

    def _check(self) -> None:
        if self._name not in self._place:
            raise BlockDeviceError(f"disk {self._name} is not there")

    def create(self, size_mib: int, *, exclusive_storage: bool = False) -> None:
        if self._name in self._place:
            raise BlockDeviceError(f"disk {self._name} exists")
        self._place.add(self._name)
        self._node.data[self._name] = ""
        self._node.sizes[self._name] = size_mib

    def remove(self) -> None:
        self._check_closed()
        self._remove_left()
        self._node.origins.pop(self._name, None)
        self._place.discard(self._name)
        self._node.data.pop(self._name, None)
        self._node.metadata.pop(self._name, None)
        self._node.broken.discard(self._name)

    def _check_closed(self) -> None:
        for side in self._node.sides.values():
            if side.is_attached and self._name in (side.data, side.meta):
                raise BlockDeviceError(f"volume {self._name} is in use")

    def find(self) -> BlockDevStatus | None:
        if self._name in self._node.unreadable:
            raise BlockDeviceError("cannot look at disks: it broke")
        return BlockDevStatus(self._name) if self._name in self._place else None

    def assemble(self) -> Assembled:
        self._check()
        return Assembled(self._name)

    def dimensions(self) -> Dimensions | None:
        size_mib = self._node.sizes.get(self._name, self._disk.size)
        return Dimensions(size_mib * MIB) if self._name in self._place else None

    def grow(self, amount_mib: int, *, dryrun: bool = False, backingstore: bool = True) -> None:
        self._check()
        if backingstore and not dryrun:
            old_mib = self._node.sizes.get(self._name, self._disk.size)
            self._node.sizes[self._name] = old_mib + amount_mib

    def rename(self, new_logical_id: Sequence[object]) -> None:
        self._check()
        self._check_closed()
        old_name, metadata = self._name, self._node.metadata.get(self._name)
        data, size_mib = self._node.data.get(old_name, ""), self._node.sizes.get(old_name)
        is_broken = old_name in self._node.broken
        self.remove()
        self._locate(list(new_logical_id))
        if self._name in self._place:
            raise BlockDeviceError(f"disk {self._name} exists")
        self._place.add(self._name)
        self._node.data[self._name] = data
        if metadata is not None:
            self._node.metadata[self._name] = metadata
        if size_mib is not None:
            self._node.sizes[self._name] = size_mib
        if is_broken:
            self._node.broken.add(self._name)

    def snapshot(self, name: str, size_mib: int) -> list[object]:
        self._check()
        self._remove_left()
        group = self._name.partition("/")[0]
        self._place.add(path := f"{group}/{name}")
        self._node.data[path] = self._node.data[self._name]
        self._node.origins[path] = self._name
        return [group, name]

    def _remove_left(self) -> None:
        for path in [path for path, each in self._node.origins.items() if each == self._name]:
            del self._node.origins[path]
            self._place.discard(path)
            self._node.data.pop(path, None)

    def wipe(self, offset_mib: int, size_mib: int) -> None:
        self._check()


class _MemoryStorage(Storage):
    """Disks in memory, in units of no great size."""

    volume = _MemoryVolume

    def units(self, names: Sequence[str]) -> list[StorageUnit]:
        return [StorageUnit(self.kind, name, 7, 9, 2) for name in names]

    def space(self, name: str) -> StorageUnit:
        node = cast(FakeNode, self.env.paths)
        used_mib = sum(
            node.sizes.get(disk, 0) for disk in node.disks if disk.startswith(f"{name}/")
        )
        return StorageUnit(self.kind, name, node.room_mib - used_mib, node.room_mib, used_mib)


class _MirroredStorage(_MemoryStorage):
    """Disks with copies on other nodes."""

    volume = MirroredVolume


def _driver(template: DiskTemplate) -> type[Storage]:
    return _MirroredStorage if template.traits.mirrored else _MemoryStorage


class _Guests(FakeHypervisor):
    """The hypervisor "fake", whose guests take devices and snapshots while they run."""

    def __init__(self, name: str, env: NodeEnv, hvparams: Mapping[str, object]) -> None:
        super().__init__(name, env, hvparams)
        self._node = cast(FakeNode, env.paths)
        self.migration = _Migration(self._books, self._node.cluster)
        self.hotplug = _Hotplug(self._node)
        self.snapshots = _Snapshots(self._node)

    def start(self, instance: RpcInstance, disks: Disks, *, paused: bool = False) -> None:
        super().start(instance, disks, paused=paused)
        if self._node.cluster.ends_by_itself(instance):
            self._node.running[instance.name] = 1

    def all_instances_info(self) -> list[InstanceInfo]:
        return super().all_instances_info() if self.name == "fake" else []

    def node_info(self) -> dict[str, object]:
        used_mib = sum(info.memory_mib for info in self.all_instances_info())
        memory = {"memory_total": NODE_MEMORY_MIB, "memory_free": NODE_MEMORY_MIB - used_mib}
        return {**memory, "memory_dom0": 0, "cpu_total": 4, "cpu_nodes": 1, "cpu_sockets": 1}


class _Migration(fake._FakeMigration):
    """A migration that ends at once, or goes through the states that a test has written down."""

    def __init__(self, books: Any, cluster: FakeRpc) -> None:
        super().__init__(books)
        self._states = cluster.migration_states

    def accept(self, instance: RpcInstance, info: str, address: str, disks: Disks) -> str:
        return super().accept(instance, info, address, disks) + ":8102"

    def send(self, instance: RpcInstance, target_address: str, *, live: bool) -> None:
        self.check(instance)

    def status(self, instance: RpcInstance, *, wait_s: float = 1.0) -> MigrationStatus:
        state = self._states.pop(0) if self._states else {"status": "completed"}
        if state["status"] == MigrationState.COMPLETED:
            super().send(instance, "", live=True)
        return MigrationStatus(**state)


def _check_runs(node: FakeNode, instance: RpcInstance) -> None:
    if node.running.get(instance.name) != 0:
        raise HypervisorError("it does not run here")


class _Hotplug:
    """Devices that guests take and give back at once."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node

    def check(self, instance: RpcInstance) -> None:
        _check_runs(self._node, instance)

    def add_disk(self, instance: RpcInstance, disk: AssembledDisk) -> str:
        self.check(instance)
        return "pci.0/0xc"

    def remove_disk(self, instance: RpcInstance, uuid: str) -> None:
        self.check(instance)

    def add_nic(self, instance: RpcInstance, nic: RpcNIC, index: int) -> str:
        self.check(instance)
        return "pci.0/0xc"

    def remove_nic(self, instance: RpcInstance, uuid: str) -> None:
        self.check(instance)

    def grow(self, instance: RpcInstance, *, vcpus: int, memory_mib: int) -> None:
        self.check(instance)


class _Snapshots:
    """Snapshots that share the content of their disks."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node

    def check(self, instance: RpcInstance) -> None:
        _check_runs(self._node, instance)

    def take(self, instance: RpcInstance, directory: str, instant: Instant) -> list[str]:
        since, point = instant.since, instant.point
        self.check(instance)
        paths = {str(disk.uuid): str(disk.logical_id[1]) for disk in instance.disks_info}
        self._node.snapshots[instance.name] = paths
        if point:
            self._node.records.setdefault(instance.name, set()).add(point)
        return list(paths) if since in self._node.records.get(instance.name, ()) else []

    def record_since(self, name: str, point: str) -> None:
        self._node.records[name] = self._node.records.get(name, set()) & {point}

    def kept(self, instance: RpcInstance) -> list[list[KeptSnapshot]]:
        return [[] for _ in instance.disks_info]

    def keep(
        self,
        instance: RpcInstance,
        name: str,
        *,
        quiesce: bool,
        beside: Callable[[], None] | None = None,
    ) -> bool:
        raise NotImplementedError("played disks keep nothing")

    def forget(self, instance: RpcInstance, name: str) -> None:
        raise NotImplementedError("played disks keep nothing")

    def address(self, name: str, uuid: str) -> SnapshotAddress:
        raise NotImplementedError("transfers are played")

    def drop(self, name: str) -> None:
        self._node.snapshots.pop(name, None)


def _get_hypervisor(name: str, env: NodeEnv, hvparams: Mapping[str, object]) -> Hypervisor:
    return _Guests(name, env, {**defaults_of(HVPARAMS[name]), **hvparams})


def _context(node: FakeNode) -> NodeContext:
    return NodeContext(node, node.name)


def _device(node: FakeNode, disk: Mapping[str, object]) -> str:
    """Return the name of a disk; raises BlockDeviceError if it is not there."""
    return _context(node).volume(RpcDisk.from_wire(disk)).assemble().dev_path


def _run_script(node: FakeNode, instance: Mapping[str, Any]) -> None:
    """Write the disks as a script of an operating system does."""
    for disk in instance["disks_info"]:
        _open_device(node, disk)


def _open_device(node: FakeNode, disk: Mapping[str, object]) -> str:
    """Return the name of a disk that can be read and written."""
    path = _device(node, disk)
    side = node.sides.get(int(path.removeprefix("/dev/drbd"))) if "/dev/drbd" in path else None
    if side is not None and not side.is_primary:
        raise BlockDeviceError(f"{path}: Wrong medium type")
    return path


_DRIVERS: Final = (
    (context, "get_hypervisor", _get_hypervisor),
    (registry, "_driver", _driver),
    (registry, "resolve_name", lambda _name: _MemoryStorage),
)


@contextlib.contextmanager
def _fake_drivers() -> Iterator[None]:
    """Let node operations find these drivers.  Some tests do it 10,000 times: no mock.patch."""
    real = [getattr(module, name) for module, name, _ in _DRIVERS]
    for module, name, fake_one in _DRIVERS:
        setattr(module, name, fake_one)
    try:
        yield
    finally:
        for (module, name, _), real_one in zip(_DRIVERS, real, strict=True):
            setattr(module, name, real_one)


Failure = Callable[[str, str, Sequence[Any]], str | None]


class FakeRpc(NodeClient):
    """All node daemons of a cluster."""

    def __init__(self, root: str) -> None:
        self.root = root
        shutil.rmtree(f"{root}/nodes", ignore_errors=True)  # of an earlier cluster
        self.nodes: dict[str, FakeNode] = {}
        self.calls: list[tuple[str, str, list[Any]]] = []  # node, call, arguments
        self.failure: Failure = lambda _node, _call, _args: None
        self.lost_answer: Failure = lambda _node, _call, _args: None
        self.hook_results: dict[str, list[Any]] = {}
        self.migration_states: list[dict[str, Any]] = []
        self.transfers: dict[str, tuple[FakeNode, str]] = {}  # name -> disk of a node
        self.transfer_error: str | None = None
        self.providers: list[Any] = []
        self.devices: dict[str, int] = {}
        self.package_answers = [""]  # of a machine that installs, look by look; the last one stays
        self.images: dict[str, int] = {}  # files of all nodes: path -> bytes
        self.ends_by_itself: Callable[[RpcInstance], bool] = lambda _instance: False
        self.shared: set[str] = set()  # disks on storage that all nodes see
        self.sync_steps = 0  # looks until a synchronization is done
        self.is_link_cut = False  # sides do not reach each other, nodes are reached
        self.now_s = 1700000000.0  # when sides lose each other
        self.os_list: dict[str, list[Any]] = {}
        self.verify_answers: dict[str, Any] = {}
        self.has_ip = True
        self.answers: dict[str, Any] = {}  # by call, in place of the node daemon's
        # allocators by name: question and options to what is printed
        self.allocators: dict[str, Callable[[dict[str, Any], dict[str, Any]], str]] = {}

    def node(self, name: str) -> FakeNode:
        """Return a node, making it when it is asked for the first time."""
        if "." not in name:
            name += ".example.com"
        return self.nodes.get(name) or self.nodes.setdefault(name, FakeNode(name, self))

    def node_at(self, address: str) -> FakeNode:
        """Return the node with an address, of which the last part is its number."""
        return self.node(f"node{address.rpartition('.')[2]}")

    def write(self, content: str) -> None:
        """Let the one guest with mirrored disks write to all of them."""
        sides = [side for node in self.nodes.values() for side in node.sides.values()]
        for side in sides:
            if side.is_primary:
                side.write(content)

    def fail(self, call: str, node: str | None = None, text: str = "it broke") -> None:
        """Let every such call fail."""
        self.failure = lambda where, name, _args: (
            text if name == call and node in (None, where, where.partition(".")[0]) else None
        )

    def perform(
        self, call: NodeCall, targets: Mapping[Target, Sequence[object]]
    ) -> dict[str, RpcResult[Any]]:
        return {target.name: self._one(call, target, args) for target, args in targets.items()}

    def _one(self, call: NodeCall, target: Target, sent: Sequence[object]) -> RpcResult[Any]:
        if target.offline and not call.rules.to_offline:
            return RpcResult(target.name, error="is marked offline", offline=True, call=call.name)
        body = encode_arguments(call, sent)
        name, args = call.name, decode_arguments(call, body)
        self.calls.append((target.name, name, args))
        if self.node(target.name).is_dead:
            return RpcResult(
                target.name, error="no route to host", address=target.address, call=name
            )
        refused = self.failure(target.name, name, args)
        if refused is not None:
            return read_answer(call, target.name, encode_failure(refused))
        answer = self._answer(call, self.node(target.name), body)
        lost = self.lost_answer(target.name, name, args)
        return read_answer(call, target.name, encode_broken_off(lost) if lost else answer)

    def _answer(self, call: NodeCall, node: FakeNode, body: bytes) -> bytes:
        """Answer as a test wants it, as it is played here, or as the node daemon does."""
        played = getattr(self, "do_" + call.name, None)
        with _fake_drivers():
            if played is None and call.name not in self.answers:
                return dispatch.answer(_context(node), call, body)
            args = decode_arguments(call, body)
            try:
                call.read(args)  # the node would refuse a wrong one
                return encode_result(played(node, *args) if played else self.answers[call.name])
            except GenericError as err:
                return encode_failure(err.message)

    def called(self, call: str) -> list[tuple[str, list[Any]]]:
        """Return (short node name, arguments) of each such call."""
        return [(n.partition(".")[0], args) for n, name, args in self.calls if name == call]

    def names(self) -> list[str]:
        """Return the names of all calls in order."""
        return [name for _, name, _ in self.calls]

    # Played answers.

    def do_test_delay(self, _node: FakeNode, _duration: float) -> None:
        return None

    def do_hooks_runner(self, node: FakeNode, path: str, phase: str, _env: Any) -> list[Any]:
        return self.hook_results.get(f"{node.name.partition('.')[0]}:{path}-{phase}", [])

    def do_iallocator_runner(
        self, _node: FakeNode, name: str, question: str, options: dict[str, Any]
    ) -> str:
        if name not in self.allocators:
            raise GenericError(f"iallocator {name!r} is not in /usr/lib/ganeti/iallocators")
        return self.allocators[name](json.loads(question), options)

    def do_node_verify(self, node: FakeNode, checks: Any, _name: str, _params: Any) -> Any:
        number = node.name.partition(".")[0].removeprefix("node")
        return {
            "version": [PROTOCOL_VERSION, "3.0.2"],
            "time": [1000, 0],
            "client-cert": [None, f"D{number}"],
            "filelist": {},
            "hypervisor": {},
            **self.verify_answers,
        }

    def do_node_crypto_tokens(self, node: FakeNode, request: list[Any]) -> list[Any]:
        return [["ssl", f"DIGEST:{node.name}"] for _ in request]

    def do_node_has_ip_address(self, _node: FakeNode, _address: str) -> bool:
        return self.has_ip

    def do_node_leave_cluster(self, node: FakeNode, _ssh: bool) -> None:
        node.has_left = True

    def do_node_deactivate_master_ip(self, _node: FakeNode, _params: Any, _script: bool) -> None:
        return None

    def do_node_activate_master_ip(self, _node: FakeNode, _params: Any, _script: bool) -> None:
        return None

    def do_upload_file(self, node: FakeNode, details: Any) -> None:
        node.files[details[0]] = details

    def do_os_validate(self, _node: FakeNode, *_args: Any) -> bool:
        return True

    def do_os_diagnose(self, node: FakeNode) -> list[Any]:
        return self.os_list.get(node.name.partition(".")[0], [])

    def do_bridges_exist(self, _node: FakeNode, _bridges: list[str]) -> None:
        return None

    def do_file_storage_dir_create(self, node: FakeNode, path: str) -> None:
        node.directories.add(path)

    def do_file_storage_dir_remove(self, node: FakeNode, path: str) -> None:
        node.directories.discard(path)

    def do_file_storage_dir_rename(self, node: FakeNode, old: str, new: str) -> None:
        node.directories.discard(old)
        node.directories.add(new)
        for place in (node.disks, self.shared):
            for path in [path for path in place if path.startswith(f"{old}/")]:
                place.remove(path)
                place.add(new + path.removeprefix(old))
                node.data[new + path.removeprefix(old)] = node.data.pop(path, "")

    def do_extstorage_diagnose(self, _node: FakeNode) -> list[Any]:
        return self.providers

    def do_bdev_sizes(self, _node: FakeNode, paths: list[str]) -> dict[str, int]:
        return {path: self.devices[path] for path in paths if path in self.devices}

    def do_image_size(self, _node: FakeNode, image: str) -> int | None:
        return self.images.get(image)

    def do_blockdev_image(self, node: FakeNode, disk: Any, image: str, _size: int) -> None:
        node.data[_device(node, disk)] = image

    def do_import_start(
        self, node: FakeNode, _opts: Any, _instance: Any, _component: str, dest: Any
    ) -> str:
        name = f"import-{len(self.transfers)}"
        self.transfers[name] = (node, self._end(node, dest))
        return name

    def _end(self, node: FakeNode, io: Any) -> str:
        """Return the path of what one end of a transfer is."""
        kind, args = io
        if kind in ("file", "increment"):
            return str(args[0])
        if kind == "chain":
            return f"{args[0]}/{args[2]}"
        if kind == "snapshot":
            found = {uuid: path for kept in node.snapshots.values() for uuid, path in kept.items()}
            return found[args[0]]
        return _open_device(node, args[0])

    def do_export_start(self, node: FakeNode, *args: Any) -> str:
        _opts, _host, port, _instance, _component, source = args
        name = f"export-{len(self.transfers)}"
        path = self._end(node, source)
        self.transfers[name] = (node, path)
        if self.transfer_error is None:
            into, into_path = self.transfers[f"import-{port}"]
            into.data[into_path] = node.data.get(path, "")
            if into_path.startswith("/var/lib/ganeti/export/"):  # a dump, with its checksum
                into.write(into_path, "")
                into.write(into_path + CHECKSUM_SUFFIX, "ab" * 32)
                if source[0] == "changes":
                    into.write(into_path + ROOT_SUFFIX, "cd" * 32)
                    into.write(f"{into_path.rpartition('.')[0]}{SUMS_SUFFIX}", "")
        return name

    def do_impexp_status(self, _node: FakeNode, names: list[str]) -> list[Any]:
        return [
            {
                "exit_status": 0 if self.transfer_error is None else 1,
                "error_message": self.transfer_error,
                "listen_port": int(name.rpartition("-")[2]),
                "progress_percent": 100.0,
            }
            for name in names
        ]

    def do_impexp_abort(self, _node: FakeNode, name: str) -> None:
        assert name in self.transfers

    def do_impexp_cleanup(self, _node: FakeNode, name: str) -> None:
        del self.transfers[name]

    def do_instance_metadata_modify(self, node: FakeNode, guest: Any) -> None:
        node.guests[guest["name"]] = guest

    def do_node_ensure_daemon(self, _node: FakeNode, _daemon: str, _run: bool) -> bool:
        return True

    def do_os_package_write(self, node: FakeNode, _instance: Any, disk: Any, *_args: Any) -> None:
        node.data[_device(node, disk)] = "package"

    def do_os_package_answer(self, _node: FakeNode, _disk: Any) -> str:
        return self.package_answers.pop(0) if self.package_answers[1:] else self.package_answers[0]

    def do_os_package_log(self, _node: FakeNode, *_args: Any) -> list[str]:
        return ["/var/log/ganeti/os/add.log", "last words"]

    def do_instance_os_add(self, node: FakeNode, instance: Any, _again: bool, _debug: int) -> None:
        _run_script(node, instance)

    def do_instance_run_rename(self, node: FakeNode, instance: Any, *_args: Any) -> None:
        _run_script(node, instance)
