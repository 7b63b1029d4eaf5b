"""The base of all handlers of node calls, and their context: the node, the caller, the time.

It also gives handlers the drivers of this node, and the disks of instances as they are here.
"""

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from ganeti.base.errors import (
    BlockDeviceError,
    GenericError,
    ResolverError,
    StorageError,
    failing_as,
)
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import AssembledDisk, Hypervisor, NodeEnv, get_hypervisor
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance
from ganeti.protocol.node_calls import NodeCalls
from ganeti.storage.interface import Assembled, Volume
from ganeti.storage.qcow2 import RawView
from ganeti.storage.registry import volume_of
from ganeti.store import ssconf
from ganeti.system import clock, environment
from ganeti.system.files import ensure_directory, remove_if_exists

logger = logging.getLogger(__name__)

# A script is ended this much before its call, so that the answer can have its output.
_SCRIPT_MARGIN_S: Final = 5.0
_SCRIPT_TIMEOUT_S_MIN: Final = 1.0
_NO_DEADLINE_S: Final = 900.0
_INSTANCE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def check_instance_name(name: str) -> None:
    """Refuse a name that could lead out of a directory of files named after instances.

    Raises:
        GenericError: it is no host name.
    """
    if not _INSTANCE_NAME.fullmatch(name):
        raise GenericError(f"{name!r} is not a valid instance name")


def assemble_all(volume: Volume) -> Assembled:
    """Make a disk usable with its children; a mirrored one may go on without, by its copy.

    Raises:
        BlockDeviceError: it cannot be used.
    """
    for child in volume.children:
        try:
            assemble_all(child)
        except BlockDeviceError as err:
            if not volume.traits.mirrored:
                raise
            logger.warning("%s; its other copy has to do", err.message)
    return volume.assemble()


@dataclass(frozen=True, slots=True)
class NodeContext:
    """One call on one node.

    Attributes:
        hostname: full name of this node.
        peer: address of the caller, "" when the call did not come over the network.
        job_id: the job that asks, when its client said so.
        deadline_s: when the call is stopped, on the clock that never jumps.
        peer_name: the name in the caller's certificate; in old clusters that is the cluster's.
    """

    paths: Paths
    hostname: str
    call: str = ""
    peer: str = ""
    job_id: int | None = None
    deadline_s: float | None = None
    peer_name: str = ""

    def script_timeout_s(self) -> float:
        """Return how long a script may run that is all that is left to do."""
        if self.deadline_s is None:
            return _NO_DEADLINE_S
        return max(_SCRIPT_TIMEOUT_S_MIN, self.deadline_s - clock.monotonic() - _SCRIPT_MARGIN_S)

    @property
    def env(self) -> NodeEnv:
        """The node as drivers see it."""
        return NodeEnv(self.paths, self.hostname, self.address)

    @property
    def address(self) -> str:
        """The primary address of this node, "" if it cannot be found out."""
        if ssconf.read_key_or_none(self.paths, "node_primary_ips") is not None:
            address = ssconf.node_primary_ips(self.paths).get(self.hostname)
            if address is not None:
                return address
        try:
            return environment.resolve(self.hostname, self.paths)[1]
        except ResolverError:
            return ""

    def wire_path(self, path: str) -> str:
        """Return a local path for the wire: without the root of a virtual node, if it is below."""
        is_below = self.paths.root and path.startswith(self.paths.root + "/")
        return self.paths.globalize(path) if is_below else path

    # Drivers

    def hypervisor(self, name: str, hvparams: Mapping[str, object]) -> Hypervisor:
        """Return a hypervisor of this node; errors as of `get_hypervisor`."""
        return get_hypervisor(name, self.env, hvparams)

    def hypervisors(
        self, names: Iterable[str], all_hvparams: Mapping[str, object]
    ) -> Iterator[Hypervisor]:
        """Yield hypervisors of this node, with the cluster's parameters {name: parameters}."""
        for name in names:
            params = all_hvparams.get(name)
            yield self.hypervisor(name, params if isinstance(params, Mapping) else {})

    def instance_names(self, names: Iterable[str], all_hvparams: Mapping[str, object]) -> list[str]:
        """Return the names of all instances of some hypervisors, in order."""
        found = (each.list_instances() for each in self.hypervisors(names, all_hvparams))
        return sorted(instance for instances in found for instance in instances)

    def hypervisor_of(self, instance: RpcInstance) -> Hypervisor:
        """Return the hypervisor of an instance on this node; errors as of `get_hypervisor`."""
        return self.hypervisor(instance.hypervisor, instance.hvparams)

    def volume(self, disk: RpcDisk) -> Volume:
        """Return a disk as it is on this node; errors as of `volume_of`."""
        return volume_of(disk, self.env)

    # Disks of instances

    def assemble_disk(self, instance_name: str, index: int, disk: RpcDisk) -> AssembledDisk:
        """Assemble a disk of an instance, which may be assembled already.

        Raises:
            BlockDeviceError: it does not exist, or cannot be assembled; the text names it.
        """
        try:
            assembled = assemble_all(self.volume(disk))
        except (BlockDeviceError, StorageError) as err:
            raise BlockDeviceError(
                f"disk {index} of instance {instance_name!r} cannot be used on node"
                f" {self.hostname}: {err.message}"
            ) from err
        return AssembledDisk(
            index=index,
            uuid=str(disk.uuid),
            dev_path=assembled.dev_path,
            size_mib=disk.size,
            mode=disk.mode,
            uri=assembled.uri,
            # A provider may attach a file, which QEMU opens in another way than a device.
            dev_type="file" if os.path.isfile(assembled.dev_path) else disk.dev_type,
            format=disk.format,
            name=disk.name or "",
        )

    def assemble_disks(self, instance: RpcInstance) -> list[AssembledDisk]:
        """Assemble the disks of an instance; errors as of `assemble_disk`."""
        disks = enumerate(instance.disks_info)
        return [self.assemble_disk(instance.name, index, disk) for index, disk in disks]

    def assemble_for_programs(self, instance: RpcInstance) -> list[AssembledDisk]:
        """Assemble the disks of an instance; each has the path at which its bytes are shown."""
        return [
            each if view is None else replace(each, dev_path=view.path, dev_type="file")
            for each, view in zip(
                self.assemble_disks(instance), self._views(instance.disks_info), strict=True
            )
        ]

    def _views(self, disks: Iterable[RpcDisk]) -> list[RawView | None]:
        return [self.volume(disk).raw_view for disk in disks]

    @contextmanager
    def shown(self, disks: Iterable[RpcDisk]) -> Iterator[None]:
        """Show the bytes of disks, for programs that work on these.

        Raises:
            BlockDeviceError: somebody has one of the disks in use.
        """
        with ExitStack() as stack:
            for view in filter(None, self._views(disks)):
                stack.enter_context(view.shown())
            yield

    def open_disks(self, instance: RpcInstance, *, exclusive: bool = True) -> None:
        """Make the assembled disks of an instance writable; ``exclusive`` means nowhere else."""
        for disk in instance.disks_info:
            self.volume(disk).open(exclusive=exclusive)

    def linked(self, instance_name: str, disk: AssembledDisk) -> AssembledDisk:
        """Link an assembled disk, if it has a device, and return it under its link."""
        if not disk.dev_path:
            return disk
        return replace(disk, dev_path=self.link_disk(instance_name, disk.index, disk.dev_path))

    def linked_disks(self, instance: RpcInstance) -> list[AssembledDisk]:
        """Assemble and link the disks of an instance; errors as of `assemble_disk`."""
        return [self.linked(instance.name, disk) for disk in self.assemble_disks(instance)]

    def link_disk(self, instance_name: str, index: int, dev_path: str) -> str:
        """Point the link of a disk at its device, in one step; returns the path of the link.

        By its link a disk has the same name on each run of the instance here, with any device.
        """
        check_instance_name(instance_name)
        path = os.path.join(self.paths.disk_links_dir, f"{instance_name}:{index}")
        temporary = f"{path}.{os.getpid()}.new"
        with failing_as(BlockDeviceError, f"cannot make the link {path}"):
            ensure_directory(self.paths.disk_links_dir, 0o755)
            if os.path.islink(path) and os.readlink(path) == dev_path:
                return path
            remove_if_exists(temporary)
            os.symlink(dev_path, temporary)
            os.rename(temporary, path)
        return path

    def unlink_disks(self, instance_name: str) -> None:
        """Remove all disk links of an instance."""
        check_instance_name(instance_name)
        try:
            names = os.listdir(self.paths.disk_links_dir)
        except FileNotFoundError:
            return
        for name in names:
            owner, _colon, index = name.rpartition(":")
            if owner == instance_name and index.isdigit():
                os.unlink(os.path.join(self.paths.disk_links_dir, name))


class NodeHandler(NodeCalls):
    """One call on one node: a subclass serves the calls that it overrides.

    A failure is any error of ``ganeti.base.errors``.
    """

    def __init__(self, context: NodeContext) -> None:
        self.node = context
        self.paths = context.paths
        self.hostname = context.hostname
