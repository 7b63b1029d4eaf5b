"""Disk templates with their traits, the kinds of storage behind them, and images for disks.

A template is one row of `DiskTemplate`.  Decisions by template ask its traits, so a new one stands
in no other list.

Source: constants.json, "disk_templates"; config.json, "disk_logical_id".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import NoneType
from typing import Any, Final, Self

from msgspec import Struct

DISKS_MAX: Final = 16
DRBD_META_SIZE_MIB: Final = 128
BLOCKDEV_DRIVER: Final = "manual"
ADOPTABLE_BLOCKDEV_ROOT: Final = "/dev/disk/"
MIXED: Final = "mixed"  # shown for an instance with disks of several templates


class Units(Struct, frozen=True):
    """Facts about the storage units of a node: volume groups, or directories of files.

    Attributes:
        setting: the cluster's setting that names the unit, "" where there is none.
        is_directory: the units are directories, and disks are files below them.
        driver: module and class that look after them on a node, where the disks' driver does not.
        is_mounted: the directory has its files only while this node uses one.
        parameter: the disk parameter that names the unit, "" where there is none.
        has_parameters: a node reaches the unit by parameters of its disks.
    """

    setting: str = ""
    is_directory: bool = False
    driver: str = ""
    is_mounted: bool = False
    parameter: str = ""
    has_parameters: bool = False

    @property
    def are_named(self) -> bool:
        """Whether the cluster names them, instead of taking those that a node has."""
        return self.is_directory or bool(self.parameter)


class Row(StrEnum):
    """Base of words with facts about each: a member is equal to its word alone."""

    _value_: str
    traits: Any  # of a narrower type in each table

    def __new__(cls, word: str, traits: object = None) -> Self:
        """Make a member from its row."""
        made = str.__new__(cls, word)
        made._value_ = word
        made.traits = traits
        return made


class StorageType(Row):
    """Kinds of storage that disks take their space from."""

    traits: Units | None

    @property
    def units(self) -> Units | None:
        """Facts about its units; None where there are none to report on."""
        return self.traits

    BLOCKDEV = "blockdev"
    DISKLESS = "diskless"
    EXT = "ext"
    FILE = "file", Units("file_storage_dir", is_directory=True)
    GLUSTER = (
        "gluster",
        Units("gluster_storage_dir", is_directory=True, is_mounted=True, has_parameters=True),
    )
    LVM_PV = "lvm-pv", Units(driver="ganeti.storage.lvm_units:PhysicalVolumes")
    LVM_VG = ("lvm-vg", Units("volume_group_name", driver="ganeti.storage.lvm_units:VolumeGroups"))
    RADOS = "rados", Units(parameter="pool", has_parameters=True)
    SHAREDFILE = "sharedfile", Units("shared_file_storage_dir", is_directory=True)


class Mirroring(StrEnum):
    """Where the data of a disk is besides its primary node."""

    NONE = "nowhere"
    INTERNAL = "on a second node"
    EXTERNAL = "every node reaches it"


class Adoption(StrEnum):
    """Whether a disk can be something that exists already."""

    NEVER = "never"
    POSSIBLE = "possible"
    ALWAYS = "always"


LogicalIdParts = Mapping[str, type | tuple[type, ...]]
_FILE: Final[LogicalIdParts] = {"driver": str, "path": str}


class Traits(Struct, frozen=True, kw_only=True):
    """Facts about the disks of one template.

    Attributes:
        driver: module and class that serve its disks on a node; None where that is not built yet.
        logical_id: names and types of the parts of a logical id.
        child_count: how many disks it is put together from.
        extra_mib: space on each node besides the disk's own size.
        can_copy: a disk can move to another node only by copying it there.
        keeps_snapshots: a disk keeps snapshots of its own, under names.
        has_access: the hypervisor may reach it without a device of the node.
        has_own_directory: the files lie in a directory named after the instance.
        takes_physical_volumes: fits nodes that give whole physical volumes to one instance.
        counts_as_usage: its size is part of the disk usage that queries show.
    """

    storage: StorageType
    logical_id: LogicalIdParts = {}
    driver: str | None = None
    mirroring: Mirroring = Mirroring.NONE
    child_count: int = 0
    extra_mib: int = 0
    adoption: Adoption = Adoption.NEVER
    can_grow: bool = True
    can_copy: bool = False
    has_snapshots: bool = False
    keeps_snapshots: bool = False
    has_access: bool = False
    has_own_directory: bool = False
    takes_physical_volumes: bool = False
    counts_as_usage: bool = True

    @property
    def has_disks(self) -> bool:
        """Whether instances of this template have disks at all."""
        return self.storage is not StorageType.DISKLESS

    @property
    def is_supported(self) -> bool:
        """Whether instances can be made with it."""
        return self.driver is not None or not self.has_disks

    @property
    def is_file(self) -> bool:
        """Whether its disks are files."""
        return self.storage.units is not None and self.storage.units.is_directory

    @property
    def notes_owner(self) -> bool:
        """Whether the name of the instance can be noted on a disk."""
        return self.is_lvm or self.has_provider or self.storage is StorageType.RADOS

    @property
    def is_lvm(self) -> bool:
        """Whether its disks are logical volumes, or put together from these."""
        return self.storage is StorageType.LVM_VG

    @property
    def is_mounted(self) -> bool:
        """Whether the directory of its files has them only while a node uses one."""
        return self.storage.units is not None and self.storage.units.is_mounted

    @property
    def directory_setting(self) -> str:
        """Name of the cluster's setting that has the directory of its files, "" without files."""
        units = self.storage.units
        return units.setting if units is not None and units.is_directory else ""

    @property
    def directory_check(self) -> str:
        """Name of the item of ``node_verify`` that looks at that directory."""
        return self.directory_setting.removesuffix("dir").replace("_", "-") + "path"

    @property
    def mirrored(self) -> bool:
        """Whether a second node has the data too, by means of the template itself."""
        return self.mirroring is Mirroring.INTERNAL

    @property
    def shared(self) -> bool:
        """Whether every node reaches its disks."""
        return self.mirroring is Mirroring.EXTERNAL

    @property
    def alone(self) -> bool:
        """Whether one node alone has a disk, so that its instance can run there only."""
        return self.mirroring is Mirroring.NONE

    @property
    def node_count(self) -> int:
        """On how many nodes a disk takes space."""
        return 2 if self.mirrored else 1

    @property
    def must_adopt(self) -> bool:
        """Whether its disks always exist before their instance."""
        return self.adoption is Adoption.ALWAYS

    @property
    def can_convert_to(self) -> bool:
        """Whether an instance can be converted to it."""
        return self.has_disks and not self.must_adopt

    @property
    def has_provider(self) -> bool:
        """Whether somebody else's scripts make its disks, with parameters of their own."""
        return "provider" in self.logical_id


_EXTERNAL: Final = Mirroring.EXTERNAL


def _template(word: str, storage: StorageType, **traits: Any) -> tuple[str, Traits]:
    return word, Traits(storage=storage, **traits)


class DiskTemplate(Row):
    """How the disks of an instance are made; also the device type of a disk."""

    traits: Traits

    BLOCKDEV = _template(
        "blockdev",
        StorageType.BLOCKDEV,
        driver="ganeti.storage.block_device:AdoptedStorage",
        logical_id=_FILE,
        mirroring=_EXTERNAL,
        adoption=Adoption.ALWAYS,
        can_grow=False,
        counts_as_usage=False,
    )
    DISKLESS = _template("diskless", StorageType.DISKLESS, mirroring=_EXTERNAL, can_grow=False)
    DRBD = _template(
        "drbd",
        StorageType.LVM_VG,
        driver="ganeti.storage.drbd.volume:DrbdStorage",
        logical_id={
            "node_a": str,
            "node_b": str,
            "port": (int, NoneType),
            "minor_a": int,
            "minor_b": int,
            "secret": str,
        },
        mirroring=Mirroring.INTERNAL,
        child_count=2,  # data and metadata
        extra_mib=DRBD_META_SIZE_MIB,
        has_snapshots=True,
    )
    EXT = _template(
        "ext",
        StorageType.EXT,
        driver="ganeti.storage.external:ExternalStorage",
        logical_id={"provider": str, "name": str},
        mirroring=_EXTERNAL,
        has_snapshots=True,
        has_access=True,
    )
    FILE = _template(
        "file",
        StorageType.FILE,
        driver="ganeti.storage.file:FileStorage",
        logical_id=_FILE,
        can_copy=True,
        adoption=Adoption.POSSIBLE,
        has_own_directory=True,
    )
    GLUSTER = _template(
        "gluster",
        StorageType.GLUSTER,
        driver="ganeti.storage.network.gluster:GlusterStorage",
        logical_id=_FILE,
        mirroring=_EXTERNAL,
        has_access=True,
    )
    PLAIN = _template(
        "plain",
        StorageType.LVM_VG,
        driver="ganeti.storage.lvm:PlainStorage",
        logical_id={"vg": str, "volume": str},
        adoption=Adoption.POSSIBLE,
        can_copy=True,
        has_snapshots=True,
        keeps_snapshots=True,
        takes_physical_volumes=True,
    )
    RBD = _template(
        "rbd",
        StorageType.RADOS,
        driver="ganeti.storage.network.rbd:RbdStorage",
        logical_id={"driver": str, "name": str},
        mirroring=_EXTERNAL,
        has_snapshots=True,
        keeps_snapshots=True,
        has_access=True,
        counts_as_usage=False,
    )
    SHAREDFILE = _template(
        "sharedfile",
        StorageType.SHAREDFILE,
        driver="ganeti.storage.file:FileStorage",
        logical_id=_FILE,
        mirroring=_EXTERNAL,
        adoption=Adoption.POSSIBLE,
        has_own_directory=True,
    )


_TRAITS: Final = {str(each): each.traits for each in DiskTemplate}
_SEVERAL: Final = Traits(storage=StorageType.BLOCKDEV, can_grow=False, counts_as_usage=False)


def traits_of(template: str) -> Traits:
    """Return the traits of a template by its name.

    `MIXED` has disks, and permits nothing: `traits_of_all` tells what is possible with several.
    """
    return _TRAITS.get(template, _SEVERAL)


def traits_of_all(templates: Iterable[str]) -> Traits:
    """Return the traits that instances with disks of several templates have: those of the weakest.

    A disk that only its own node reaches keeps the instance there, and one with a copy on a second
    node binds it to the two, whatever the others could do.
    """
    found = [traits_of(template) for template in dict.fromkeys(templates)]
    if len(found) < 2:
        return found[0] if found else traits_of(DiskTemplate.DISKLESS)
    places = {each.mirroring for each in found}
    order = (Mirroring.NONE, Mirroring.INTERNAL, Mirroring.EXTERNAL)
    return Traits(
        storage=StorageType.BLOCKDEV,  # nodes do not report on a mixture
        mirroring=next(each for each in order if each in places),
        can_grow=all(each.can_grow for each in found),
        can_copy=all(each.can_copy for each in found),
        has_snapshots=all(each.has_snapshots for each in found),
        keeps_snapshots=all(each.keeps_snapshots for each in found),
        takes_physical_volumes=all(each.takes_physical_volumes for each in found),
    )


def binding_template(templates: Iterable[str]) -> str:
    """Return the template that says where an instance can be: that of the disk which binds it most.

    Allocators of 3.0 know one template for an instance, and no mixture.
    """
    order = (Mirroring.NONE, Mirroring.INTERNAL, Mirroring.EXTERNAL)
    return min(
        map(str, templates),
        key=lambda template: order.index(traits_of(template).mirroring),
        default=str(DiskTemplate.DISKLESS),
    )


def file_templates() -> list[DiskTemplate]:
    """Return the supported templates of disks that are files."""
    return [each for each in DiskTemplate if each.traits.is_supported and each.traits.is_file]


def supported_templates() -> list[str]:
    """Return the names of the templates that instances can be made with, sorted."""
    return sorted(str(each) for each in DiskTemplate if each.traits.is_supported)


class FileDriver(StrEnum):
    """How a hypervisor opens the file behind a disk."""

    BLKTAP = "blktap"
    BLKTAP2 = "blktap2"
    LOOP = "loop"


class DiskFormat(StrEnum):
    """The content of the file behind a disk: its bytes as they are, or an image of QEMU's."""

    RAW = "raw"
    QCOW2 = "qcow2"


UEFI_VARS: Final = "uefi-vars"
TPM_STATE: Final = "tpm-state"
MACHINE_DISKS: Final = frozenset({TPM_STATE, UEFI_VARS})
"""Names of disks with which a machine keeps state of its own, where its parameters ask for that.

So the state goes wherever the disks of the instance go: copies, moves, exports, snapshots.
"""
FORMAT: Final = "format"  # the parameter of a disk that says it; without it the file is raw


def format_of(params: Mapping[str, object] | None) -> DiskFormat:
    """Return the format of a disk from its own parameters.

    It is decided when the disk is made and never found out from the file: a guest can write the
    head of an image into a raw disk.
    """
    return DiskFormat(str((params or {}).get(FORMAT, DiskFormat.RAW)))


STRIPE_SIZE: Final = "stripe-size"  # a parameter of disks on logical volumes, in KiB
THIN_POOL: Final = "thin-pool"  # the parameter of disks on logical volumes that names their pool
_NO_POOL: Final = ("", "none")


def thin_pool_of(params: Mapping[str, object] | None) -> str:
    """Return the thin pool that filled parameters of a disk name, "" for none."""
    pool = str((params or {}).get(THIN_POOL, ""))
    return "" if pool in _NO_POOL else pool


def keeps_snapshots(template: str, format_: DiskFormat) -> bool:
    """Tell whether disks of a template, with files of a format, keep snapshots of their own."""
    return traits_of(template).keeps_snapshots or format_ is DiskFormat.QCOW2


KEPT: Final = ".kept."  # in names of volumes, between that of a disk and that of a snapshot of it


def volume_of_kept(path: str) -> str:
    """Return the volume that has a snapshot, or the one named if that is no snapshot."""
    return path.partition(KEPT)[0]


# With a number at its end in earlier versions, and a UUID that was not the disk's.
_EXPORT_SNAPSHOT: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.snap[0-9]*")


def export_snapshot(uuid: str) -> str:
    """Return the name of the snapshot of a disk that an export reads: there is one at a time."""
    return f"{uuid}.snap"


def is_export_snapshot(name: str) -> bool:
    """Tell whether a snapshot was made for an export, by its name."""
    return _EXPORT_SNAPSHOT.fullmatch(name) is not None


class DiskMode(StrEnum):
    """Whether the instance may write."""

    RW = "rw"
    RO = "ro"


class DiskAccess(StrEnum):
    """Whether a disk goes through a kernel block device or straight to the hypervisor."""

    KERNELSPACE = "kernelspace"
    USERSPACE = "userspace"


class DeviceAction(StrEnum):
    """A change of one disk or NIC of an instance."""

    ADD = "add"
    ATTACH = "attach"
    DETACH = "detach"
    MODIFY = "modify"
    REMOVE = "remove"


class LocalDiskStatus:
    """State of a mirrored disk's local half, as numbers on the wire."""

    OKAY: Final = 1
    SYNC: Final = 2
    UNKNOWN: Final = 3
    FAULTY: Final = 4


def disk_space_mib(disks: Iterable[tuple[str, int]]) -> int:
    """Return the space that disks take on a node, with the extra space of their templates.

    Args:
        disks: template and size (MiB) of each.
    """
    return sum(size_mib + traits_of(template).extra_mib for template, size_mib in disks)


# Images that disks are filled from: files on a node, or URLs.

OS_IMAGE: Final = "os-image"  # the parameter of an operating system that names its image
IMAGES: Final = ("install_image", "zeroing_image")  # settings of the cluster
_URL: Final = (
    r"(?i:https?|ftps?)://([^\s/?#@]+@)?(\[[0-9A-Fa-f:.]+\]|[^\s/?#@:\[\]]+)(:\d{1,5})?([/?#]\S*)?"
)


def image_problem(what: str, image: str) -> str | None:
    """Return why a text names no image, None if it does; the file may not be there.

    Args:
        what: the parameter that has it, for the message.
    """
    if (image.startswith("/") and "\0" not in image) or re.fullmatch(_URL, image):
        return None
    return f"{what}: {image!r} is neither an absolute path nor a URL (http, https, ftp, ftps)"
