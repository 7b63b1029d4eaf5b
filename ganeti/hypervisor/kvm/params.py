"""Parameters of the hypervisor kvm: reading filled ones, and checking them against each other.

What is checked here needs no node; `ganeti.hypervisor.kvm.validation` looks at the node's files.

Source: constants.json, "hvparams" and "hypervisors"; manual page gnt-instance(8).
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError
from ganeti.hypervisor.kvm.cpu_mask import parse_cpu_mask
from ganeti.objects.hypervisors import MigrationMode
from ganeti.objects.parameters import HVPARAMS, ValueType

VNC_BASE_PORT: Final = 5900
VNC_PASSWORD_BYTES_MAX: Final = 8  # the protocol uses no more
PCI_SLOTS: Final = 32
SERIAL_SPEEDS: Final = frozenset(
    {75, 110, 300, 600, 1200, 1800, 2400, 4800, 9600, 14400, 19200, 28800, 38400, 57600}
    | {115200, 230400, 345600, 460800}
)
DISK_TYPES: Final[Mapping[str, str | None]] = {  # None: not supported
    "paravirtual": "virtio-blk-pci",
    "ide": "ide-hd",
    "scsi": "scsi-hd",
    "scsi-hd": "scsi-hd",
    "scsi-block": "scsi-block",
    "scsi-generic": "scsi-generic",
    "scsi-cd": "scsi-cd",
    "mtd": None,
    "pflash": None,
    "sd": None,
}
SCSI_CONTROLLERS: Final[Mapping[str, str]] = {
    "lsi": "lsi53c895a",
    "megasas": "megasas",
    "virtio-scsi-pci": "virtio-scsi-pci",
}
SCSI_DISK_TYPES: Final = frozenset({"scsi", "scsi-hd", "scsi-block", "scsi-generic", "scsi-cd"})
NIC_TYPES: Final[Mapping[str, str]] = {
    "paravirtual": "virtio-net-pci",
    "e1000": "e1000",
    "i82551": "i82551",
    "i82557b": "i82557b",
    "i82559er": "i82559er",
    "ne2k_isa": "ne2k_isa",
    "ne2k_pci": "ne2k_pci",
    "pcnet": "pcnet",
    "rtl8139": "rtl8139",
}
SOUND_CARDS: Final[Mapping[str, tuple[str, ...]]] = {
    "ac97": ("AC97,audiodev=audio",),
    "es1370": ("ES1370,audiodev=audio",),
    "hda": ("intel-hda,id=hda", "hda-duplex,bus=hda.0,audiodev=audio"),
    "sb16": ("sb16,audiodev=audio",),
}
USB_DEVICES: Final[Mapping[str, str]] = {
    "braille": "usb-braille",
    "keyboard": "usb-kbd",
    "mouse": "usb-mouse",
    "tablet": "usb-tablet",
    "wacom-tablet": "usb-wacom-tablet",
}
_USB_HOST: Final = re.compile(r"host:([0-9a-fA-F]{1,4}):([0-9a-fA-F]{1,4})")
_USB_HOST_PLACE: Final = re.compile(r"host:(\d{1,3})\.(\d{1,3})")

_INTERFACE: Final = re.compile(r"[^\s/:]{1,15}")  # IFNAMSIZ
_ALMOST_ADDRESS: Final = re.compile(r"[\d.]+")

_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "boot_order": frozenset({"cdrom", "disk", "floppy", "network"}),
    "cdrom_disk_type": frozenset({"", *DISK_TYPES}),
    "disk_aio": frozenset({"native", "threads"}),
    "disk_cache": frozenset({"default", "none", "writeback", "writethrough"}),
    "disk_discard": frozenset({"default", "ignore", "unmap"}),
    "disk_type": frozenset(DISK_TYPES),
    "kvm_flag": frozenset({"", "disabled", "enabled"}),
    "migration_mode": frozenset(MigrationMode),
    "nic_type": frozenset(NIC_TYPES),
    "reboot_behavior": frozenset({"exit", "reboot"}),
    "scsi_controller_type": frozenset(SCSI_CONTROLLERS),
    "security_model": frozenset({"none", "pool", "user"}),
    "soundhw": frozenset({"", *SOUND_CARDS}),
    "spice_image_compression": frozenset({"", "auto_glz", "auto_lz", "glz", "lz", "off", "quic"}),
    "spice_jpeg_wan_compression": frozenset({"", "always", "auto", "never"}),
    "spice_streaming_video": frozenset({"", "all", "filter", "off"}),
    "spice_zlib_glz_wan_compression": frozenset({"", "always", "auto", "never"}),
    "usb_mouse": frozenset({"", "mouse", "tablet"}),
    "vga": frozenset({"", "cirrus", "none", "qxl", "std", "virtio", "vmware"}),
}
_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "cpu_cores": (0, 1024),
    "cpu_sockets": (0, 1024),
    "cpu_threads": (0, 1024),
    "kvm_pci_reservations": (4, PCI_SLOTS),
    "migration_bandwidth": (1, 1 << 30),
    "migration_downtime": (1, 2_000_000),  # QEMU's own limit, milliseconds
    "migration_port": (1, 65535),
    "virtio_net_queues": (1, 8),
}
_ABSOLUTE_PATHS: Final = (
    "floppy_image_path",
    "initrd_path",
    "kernel_path",
    "kvm_path",
    "mem_path",
    "spice_password_file",
    "vnc_password_file",
    "vnc_x509_path",
)


@dataclass(frozen=True, slots=True)
class KvmParams:
    """Filled parameters, read by type.

    Raises:
        OpPrereqError: (on reading) the parameter is missing or of the wrong type.
    """

    values: Mapping[str, object]

    def text(self, name: str) -> str:
        """Return a text; "" where it is null."""
        value = self.values.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._wrong_type(name, "a text")
        return value

    def number(self, name: str) -> int:
        """Return a whole number."""
        value = self.values.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong_type(name, "a whole number")
        return value

    def flag(self, name: str) -> bool:
        """Return yes or no."""
        value = self.values.get(name)
        if not isinstance(value, bool):
            raise self._wrong_type(name, "true or false")
        return value

    def _wrong_type(self, name: str, wanted: str) -> OpPrereqError:
        return wrong_param(name, f"must be {wanted}, not {self.values.get(name)!r}")

    @property
    def has_vnc(self) -> bool:
        """Whether there is a VNC console."""
        return bool(self.text("vnc_bind_address"))

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


def wrong_param(name: str, text: str, ecode: ErrorCode = ErrorCode.INVAL) -> OpPrereqError:
    """Return an error about one parameter."""
    return OpPrereqError(f"hypervisor parameter {name}: {text}", ecode)


def _not_supported(name: str, value: str, instead: str) -> NotSupportedError:
    return NotSupportedError(f"hypervisor parameter {name}: {value} is not supported; {instead}")


def usb_device_option(device: str) -> str | None:
    """Return QEMU's name for a USB device, or None if there is no such device."""
    if found := _USB_HOST.fullmatch(device):
        return f"usb-host,vendorid=0x{found[1]},productid=0x{found[2]}"
    if found := _USB_HOST_PLACE.fullmatch(device):
        return f"usb-host,hostbus={found[1]},hostaddr={found[2]}"
    return USB_DEVICES.get(device)


def _check_types(params: KvmParams) -> None:
    unknown = sorted(set(params.values) - set(HVPARAMS["kvm"]))
    if unknown:
        raise wrong_param(unknown[0], "hypervisor kvm has no such parameter")
    readers: Mapping[ValueType, Callable[[str], object]] = {
        ValueType.BOOL: params.flag,
        ValueType.INT: params.number,
    }
    for name, spec in HVPARAMS["kvm"].items():
        readers.get(spec.type, params.text)(name)


def _check_single_values(params: KvmParams) -> None:
    for name, words in _WORDS.items():
        value = params.text(name)
        if value not in words:
            known = ", ".join(sorted(word or '""' for word in words))
            raise wrong_param(name, f"{value!r} is not one of {known}")
    for name, (low, high) in _RANGES.items():
        number = params.number(name)
        if not low <= number <= high:
            raise wrong_param(name, f"{number} is not between {low} and {high}")
    for name in _ABSOLUTE_PATHS:
        path = params.text(name)
        if path and not path.startswith("/"):
            raise wrong_param(name, f"{path!r} is not an absolute path")
    if params.number("serial_speed") not in SERIAL_SPEEDS:
        raise wrong_param("serial_speed", f"{params.number('serial_speed')} is no serial speed")


def _check_cpu(params: KvmParams) -> None:
    parse_cpu_mask(params.text("cpu_mask"))


def _check_boot(params: KvmParams) -> None:
    needs = {"cdrom": "cdrom_image_path", "floppy": "floppy_image_path"}
    image = needs.get(params.text("boot_order"))
    if image and not params.text(image):
        raise wrong_param("boot_order", f"{params.text('boot_order')} needs {image}")
    if params.text("initrd_path") and not params.text("kernel_path"):
        raise wrong_param("initrd_path", "needs kernel_path")
    for name in ("cdrom_image_path", "cdrom2_image_path"):
        path = params.text(name)
        if path and not re.match(r"/|(https?|ftps?)://", path):
            raise wrong_param(name, f"{path!r} is neither an absolute path nor a URL")


def _check_disks(params: KvmParams) -> None:
    if DISK_TYPES[params.text("disk_type")] is None:
        raise _not_supported("disk_type", params.text("disk_type"), "use paravirtual or scsi-hd")
    if params.text("cdrom_disk_type") not in ("", "ide", "scsi", "scsi-cd"):
        raise _not_supported(
            "cdrom_disk_type", params.text("cdrom_disk_type"), "use ide or scsi-cd"
        )
    if params.text("disk_aio") == "native" and not params.uses_direct_io:
        raise wrong_param("disk_aio", "native needs disk_cache none or default")


def _check_nics(params: KvmParams) -> None:
    if params.text("nic_type") == "paravirtual":
        return
    if params.flag("vhost_net"):
        raise wrong_param("vhost_net", "needs nic_type paravirtual")
    if params.number("virtio_net_queues") > 1:
        raise wrong_param("virtio_net_queues", "needs nic_type paravirtual")


def _check_vnc(params: KvmParams) -> None:
    address = params.text("vnc_bind_address")
    if address and not address.startswith("/"):
        _check_listening("vnc_bind_address", address)
    for name in ("vnc_password_file", "vnc_x509_path"):
        if params.text(name) and not address:
            raise wrong_param(name, "needs vnc_bind_address")
    if params.flag("vnc_tls") and not address:
        raise wrong_param("vnc_tls", "needs vnc_bind_address")
    if params.flag("vnc_x509_verify") and not params.text("vnc_x509_path"):
        raise wrong_param("vnc_x509_verify", "needs vnc_x509_path")
    if params.text("vnc_x509_path") and not params.flag("vnc_tls"):
        raise wrong_param("vnc_x509_path", "needs vnc_tls")


def _check_listening(name: str, text: str) -> int | None:
    """Check where to listen: an address, whose version is returned, or an interface's name."""
    try:
        return ipaddress.ip_address(text).version
    except ValueError as err:
        if _INTERFACE.fullmatch(text) and not _ALMOST_ADDRESS.fullmatch(text):
            return None
        raise wrong_param(
            name, f"{text!r} is neither an IP address nor the name of an interface"
        ) from err


def _check_spice(params: KvmParams) -> None:
    bind, version = params.text("spice_bind"), params.number("spice_ip_version")
    if version not in (0, 4, 6):
        raise wrong_param("spice_ip_version", f"{version} is not 0, 4 or 6")
    if bind:
        if params.has_vnc:
            raise wrong_param("spice_bind", "cannot be combined with vnc_bind_address")
        if _check_listening("spice_bind", bind) not in (None, version) and version:
            raise wrong_param("spice_ip_version", f"{bind} is not of IP version {version}")
        return
    for name in (
        "spice_image_compression",
        "spice_jpeg_wan_compression",
        "spice_password_file",
        "spice_streaming_video",
        "spice_zlib_glz_wan_compression",
    ):
        if params.text(name):
            raise wrong_param(name, "needs spice_bind")
    if params.flag("spice_use_tls"):
        raise wrong_param("spice_use_tls", "needs spice_bind")


def _check_security(params: KvmParams) -> None:
    model, domain = params.text("security_model"), params.text("security_domain")
    if model == "user" and not domain:
        raise wrong_param("security_domain", "security_model user needs the name of a user")
    if model != "user" and domain:
        raise wrong_param("security_domain", "needs security_model user")
    if params.flag("use_chroot"):
        raise _not_supported("use_chroot", "true", "set it to false")


def _check_lists(params: KvmParams) -> None:
    for device in params.usb_devices():
        if usb_device_option(device) is None:
            known = ", ".join((*sorted(USB_DEVICES), "host:VENDOR:PRODUCT", "host:BUS.ADDRESS"))
            raise wrong_param("usb_devices", f"{device!r} is not one of {known}")
    for capability in params.migration_capabilities():
        if not re.fullmatch(r"[a-z][a-z0-9-]*", capability):
            raise wrong_param("migration_caps", f"{capability!r} is no migration capability")
    try:
        shlex.split(params.text("kvm_extra"))
    except ValueError as err:
        raise wrong_param("kvm_extra", f"cannot be split into words: {err}") from err


_CHECKS: Final[tuple[Callable[[KvmParams], None], ...]] = (
    _check_types,
    _check_single_values,
    _check_cpu,
    _check_boot,
    _check_disks,
    _check_nics,
    _check_vnc,
    _check_spice,
    _check_security,
    _check_lists,
)


def check_params(hvparams: Mapping[str, object]) -> None:
    """Check filled parameters against each other.

    Raises:
        OpPrereqError: naming the parameter and what would be right.
        NotSupportedError: a value that has no implementation.
    """
    params = KvmParams(hvparams)
    for check in _CHECKS:
        check(params)
