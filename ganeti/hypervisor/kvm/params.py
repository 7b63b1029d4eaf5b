"""Parameters of the hypervisor kvm: reading filled ones, and checking them against each other.

The table of parameters (`ganeti.objects.hypervisors`) says which values each may have.  The checks
here need no node; `ganeti.hypervisor.kvm.driver` looks at the node's files.

Source: constants.json, "hvparams" and "hypervisors"; manual page gnt-instance(8).
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Final

from ganeti.base.errors import GenericError, NotSupportedError, OpPrereqError
from ganeti.hypervisor import pci, shared_dirs
from ganeti.hypervisor.params import HvParams, parse_cpu_mask, wrong_param
from ganeti.objects.hypervisors import HVPARAMS, Hypervisor
from ganeti.objects.parameters import ValueType

VNC_BASE_PORT: Final = 5900
VNC_PASSWORD_BYTES: Final = 8  # the protocol uses no more
SPICE_PASSWORD_BYTES_MAX: Final = 60  # QEMU takes no more
PARAMETERS: Final = HVPARAMS[Hypervisor.KVM]

# Values of parameters -> QEMU's names; the others are the same
DISK_DRIVERS: Final[Mapping[str, str]] = {
    "paravirtual": "virtio-blk-pci",
    "ide": "ide-hd",
    "scsi": "scsi-hd",
}
SCSI_CONTROLLERS: Final[Mapping[str, str]] = {"lsi": "lsi53c895a"}
NIC_DRIVERS: Final[Mapping[str, str]] = {"paravirtual": "virtio-net-pci"}
SOUND_CARDS: Final[Mapping[str, tuple[str, ...]]] = {
    "ac97": ("AC97,audiodev=audio",),
    "es1370": ("ES1370,audiodev=audio",),
    "hda": ("intel-hda,id=hda", "hda-duplex,bus=hda.0,audiodev=audio"),
    "sb16": ("sb16,audiodev=audio",),
}
BRAILLE: Final = "braille"
USB_DEVICES: Final[Mapping[str, str]] = {
    BRAILLE: "usb-braille,chardev=braille",
    "keyboard": "usb-kbd",
    "mouse": "usb-mouse",
    "tablet": "usb-tablet",
    "wacom-tablet": "usb-wacom-tablet",
}
SPICE_TEXTS: Final[Mapping[str, str]] = {  # parameter -> option of QEMU
    "spice_image_compression": "image-compression",
    "spice_jpeg_wan_compression": "jpeg-wan-compression",
    "spice_streaming_video": "streaming-video",
    "spice_zlib_glz_wan_compression": "zlib-glz-wan-compression",
}
SCSI_DISK_TYPES: Final = frozenset({"scsi", "scsi-hd", "scsi-block", "scsi-generic", "scsi-cd"})
_NOT_BUILT: Final = frozenset({"mtd", "pflash", "sd"})
_CD_TYPES: Final = frozenset({"", "ide", "scsi", "scsi-cd"})
_USB_HOST: Final = re.compile(r"host:([0-9a-fA-F]{1,4}):([0-9a-fA-F]{1,4})")
_USB_HOST_PLACE: Final = re.compile(r"host:(\d{1,3})\.(\d{1,3})")
_INTERFACE: Final = re.compile(r"[^\s/:]{1,15}")  # IFNAMSIZ
_ALMOST_ADDRESS: Final = re.compile(r"[\d.]+")


class KvmParams(HvParams):
    """Filled parameters of an instance of KVM."""

    __slots__ = ()

    def _value(self, name: str) -> object:
        """Return a value; parameters of ours are missing where nobody has set them."""
        spec = PARAMETERS.get(name)
        return self.values.get(name, spec.default if spec and spec.is_ours else None)

    @property
    def has_vnc(self) -> bool:
        """Whether there is a VNC console."""
        return bool(self.text("vnc_bind_address"))

    @property
    def vnc_directory(self) -> str:
        """The directory in which VNC's socket is to be; "" where it has an address."""
        bind = self.text("vnc_bind_address")
        return bind if bind.startswith("/") else ""

    @property
    def has_spice(self) -> bool:
        """Whether there is a SPICE console."""
        return bool(self.text("spice_bind"))

    @property
    def uses_direct_io(self) -> bool:
        """Whether disks go past the node's page cache; native AIO works in no other way."""
        cache = self.text("disk_cache")
        return cache == "none" or (cache == "default" and self.text("disk_aio") == "native")

    def migration_capabilities(self) -> list[str]:
        """Return the migration capabilities to switch on."""
        return [name for name in re.split(r"[:,\s]+", self.text("migration_caps")) if name]

    def usb_devices(self) -> list[str]:
        """Return the USB devices asked for, as written."""
        return [name for name in re.split(r"[,\s]+", self.text("usb_devices")) if name]

    def topology(self) -> dict[str, int]:
        """Return how many sockets, cores and threads are asked for; without those left to QEMU."""
        names = ("sockets", "cores", "threads")
        return {name: count for name in names if (count := self.number(f"cpu_{name}"))}

    def processors_max(self, vcpus: int) -> int:
        """Return the processors that a machine has places for: as many as its topology makes."""
        each = prod(self.topology().values())
        return -(-max(vcpus, self.number("max_vcpus")) // each) * each

    def pci_devices(self) -> list[str]:
        """Return the addresses of the node's PCI devices asked for, as written."""
        return [name for name in re.split(r"[,\s]+", self.text(pci.PARAMETER)) if name]

    def shares(self) -> list[shared_dirs.Share]:
        """Return the directories of the node that the guest sees."""
        return shared_dirs.parse(self.text(shared_dirs.PARAMETER))


def _not_supported(name: str, value: str, instead: str) -> NotSupportedError:
    return NotSupportedError(f"hypervisor parameter {name}: {value} is not supported; {instead}")


def usb_device_option(device: str) -> str | None:
    """Return QEMU's name for a USB device, or None if there is no such device."""
    if found := _USB_HOST.fullmatch(device):
        return f"usb-host,vendorid=0x{found[1]},productid=0x{found[2]}"
    if found := _USB_HOST_PLACE.fullmatch(device):
        return f"usb-host,hostbus={found[1]},hostaddr={found[2]}"
    return USB_DEVICES.get(device)


def problems(hvparams: Mapping[str, object]) -> Iterator[GenericError]:
    """Find mistakes in filled parameters by themselves, as errors that can be raised.

    Whether each value is one that the table of parameters allows comes first; only then it makes
    sense to compare them with each other.
    """
    params = KvmParams(hvparams)
    wrong = list(_wrong_values(params))
    yield from wrong
    if not wrong:
        for check in _CHECKS:
            yield from check(params)


def _wrong_values(params: KvmParams) -> Iterator[GenericError]:
    for name in sorted(set(params.values) - set(PARAMETERS)):
        yield wrong_param(name, "hypervisor kvm has no such parameter")
    readers: Mapping[ValueType, Callable[[str], object]] = {
        ValueType.BOOL: params.flag,
        ValueType.INT: params.number,
        ValueType.SIZE: params.number,
    }
    for name, spec in PARAMETERS.items():
        try:
            found = spec.problem(readers.get(spec.type, params.text)(name))
        except OpPrereqError as err:  # not of its type
            yield err
            continue
        if found is not None:
            yield wrong_param(name, found)


def _cpu(params: KvmParams) -> Iterator[GenericError]:
    try:
        parse_cpu_mask(params.text("cpu_mask"))
    except OpPrereqError as err:
        yield err
    most = params.number("max_vcpus")
    topology = params.topology()
    if most and len(topology) == 3 and prod(topology.values()) < most:
        yield wrong_param(
            "max_vcpus", f"cpu_sockets, cpu_cores and cpu_threads make {prod(topology.values())}"
        )
    for name in ("max_memory", "max_vcpus"):
        if params.number(name) and not params.flag("acpi"):
            yield wrong_param(name, "needs acpi")


def _boot(params: KvmParams) -> Iterator[GenericError]:
    needs = {"cdrom": "cdrom_image_path", "floppy": "floppy_image_path"}
    image = needs.get(params.text("boot_order"))
    if image and not params.text(image):
        yield wrong_param("boot_order", f"{params.text('boot_order')} needs {image}")
    if params.text("initrd_path") and not params.text("kernel_path"):
        yield wrong_param("initrd_path", "needs kernel_path")
    if params.text("firmware") == "uefi-secure" and "q35" not in params.text("machine_version"):
        yield wrong_param("firmware", "uefi-secure needs machine_version q35")
    if params.text("firmware") and not params.flag("acpi"):
        yield wrong_param("firmware", "needs acpi")


def _disks(params: KvmParams) -> Iterator[GenericError]:
    disk, cdrom = params.text("disk_type"), params.text("cdrom_disk_type")
    if disk in _NOT_BUILT:
        yield _not_supported("disk_type", disk, "use paravirtual or scsi-hd")
    if cdrom not in _CD_TYPES:
        yield _not_supported("cdrom_disk_type", cdrom, "use ide or scsi-cd")
    if params.text("disk_aio") == "native" and not params.uses_direct_io:
        yield wrong_param("disk_aio", "native needs disk_cache none or default")


def _nics(params: KvmParams) -> Iterator[GenericError]:
    if params.text("nic_type") == "paravirtual":
        return
    if params.flag("vhost_net"):
        yield wrong_param("vhost_net", "needs nic_type paravirtual")
    if params.number("virtio_net_queues") > 1:
        yield wrong_param("virtio_net_queues", "needs nic_type paravirtual")


def _vnc(params: KvmParams) -> Iterator[GenericError]:
    address = params.text("vnc_bind_address")
    if address and not params.vnc_directory:
        yield from _wrong_address("vnc_bind_address", address)
    if ".." in params.vnc_directory.split("/"):
        yield wrong_param("vnc_bind_address", f"{address!r} is not a plain path")
    for name in ("vnc_password_file", "vnc_x509_path", "vnc_tls"):
        if params.values.get(name) and not address:
            yield wrong_param(name, "needs vnc_bind_address")
    if params.flag("vnc_x509_verify") and not params.text("vnc_x509_path"):
        yield wrong_param("vnc_x509_verify", "needs vnc_x509_path")
    if params.text("vnc_x509_path") and not params.flag("vnc_tls"):
        yield wrong_param("vnc_x509_path", "needs vnc_tls")


def ip_version(text: str) -> int | None:
    """Return 4 or 6; None when a text is no IP address."""
    try:
        return ipaddress.ip_address(text).version
    except ValueError:
        return None


def _wrong_address(name: str, text: str) -> Iterator[GenericError]:
    """Find a text that names no place to listen at: an address or an interface."""
    is_name = _INTERFACE.fullmatch(text) and not _ALMOST_ADDRESS.fullmatch(text)
    if ip_version(text) is None and not is_name:
        yield wrong_param(name, f"{text!r} is neither an IP address nor the name of an interface")


def _spice(params: KvmParams) -> Iterator[GenericError]:
    bind, version = params.text("spice_bind"), params.number("spice_ip_version")
    if bind:
        if params.has_vnc:
            yield wrong_param("spice_bind", "cannot be combined with vnc_bind_address")
        yield from _wrong_address("spice_bind", bind)
        if version and ip_version(bind) not in (None, version):
            yield wrong_param("spice_ip_version", f"{bind} is not of IP version {version}")
        return
    for name in (*SPICE_TEXTS, "spice_password_file", "spice_use_tls"):
        if params.values.get(name):
            yield wrong_param(name, "needs spice_bind")


def _security(params: KvmParams) -> Iterator[GenericError]:
    model, domain = params.text("security_model"), params.text("security_domain")
    if model == "user" and not domain:
        yield wrong_param("security_domain", "security_model user needs the name of a user")
    if model != "user" and domain:
        yield wrong_param("security_domain", "needs security_model user")
    if params.flag("tpm") and not params.flag("acpi"):
        yield wrong_param("tpm", "needs acpi")
    if params.pci_devices() and model != "none":
        yield wrong_param(pci.PARAMETER, "needs security_model none: only root may open devices")
    if params.flag("use_chroot"):
        yield _not_supported("use_chroot", "true", "set it to false")


def _lists(params: KvmParams) -> Iterator[GenericError]:
    for device in params.usb_devices():
        if usb_device_option(device) is None:
            known = ", ".join((*sorted(USB_DEVICES), "host:VENDOR:PRODUCT", "host:BUS.ADDRESS"))
            yield wrong_param("usb_devices", f"{device!r} is not one of {known}")
    for device in params.pci_devices():
        if not pci.ADDRESS.fullmatch(device):
            yield wrong_param(pci.PARAMETER, f"{device!r} is no PCI device such as 0000:01:00.0")
    for mistake in shared_dirs.mistakes(params.shares()):
        yield wrong_param(shared_dirs.PARAMETER, mistake)
    for capability in params.migration_capabilities():
        if not re.fullmatch(r"[a-z][a-z0-9-]*", capability):
            yield wrong_param("migration_caps", f"{capability!r} is no migration capability")
    try:
        shlex.split(params.text("kvm_extra"))
    except ValueError as err:
        yield wrong_param("kvm_extra", f"cannot be split into words: {err}")


_CHECKS: Final[tuple[Callable[[KvmParams], Iterator[GenericError]], ...]] = (
    *(_cpu, _boot, _disks, _nics, _vnc, _spice, _security, _lists),
)
